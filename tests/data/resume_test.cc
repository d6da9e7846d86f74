// Preparing that is stopped and started again: nothing finished is repeated, and the result is the same.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/files.h"
#include "base/hash.h"
#include "base/philox.h"
#include "base/threads.h"
#include "data/first_pass.h"
#include "data/prepare.h"
#include "data/store/token_blocks.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using testing::DataTest;
using testing::error_of;

// Counts the rows that it tokenizes, and may stop the program at one.
class CountingEncoder : public testing::ToyEncoder {
 public:
  mutable std::atomic<int64_t> rows{0};
  int64_t stop_at = INT64_MAX;
  mutable std::atomic<bool> stop{false};
  int delay_us = 0;
  std::vector<int32_t> encode(std::string_view text, std::span<const ByteSpan> plain,
                              std::vector<ByteSpan>* offsets) const override {
    if (++rows == stop_at) stop = true;
    if (delay_us) ::usleep(static_cast<useconds_t>(delay_us));
    return ToyEncoder::encode(text, plain, offsets);
  }
};

class ResumeTest : public DataTest {
 protected:
  // Some files of chats, `rows` each of about a KiB: a piece is 16 MiB of rows.
  void write_rows(int files, int rows) {
    Philox random(7, 1);
    for (int f = 0; f < files; ++f) {
      std::string s;
      for (int i = 0; i < rows; ++i)
        s += R"({"question":")" + std::to_string(f * rows + i) + std::string(1 + random.below(1600), 'q') +
             R"(","answer":")" + std::string(1 + random.below(400), 'a') + "\"}\n";
      write("d/" + std::to_string(f) + ".jsonl", s);
    }
  }
  config::Recipe recipe(const std::string& rest = "") {
    return config::parse_recipe("meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {source: local, path: '" +
                                    path("d") + "', seq_len: 4096, eval_fraction: 0.1" + rest + "}\n",
                                "test.yaml");
  }
  std::string manifest(const std::string& out) { return blake3_hex(read_file(path(out) + "/dataset.json")); }
};

TEST_F(ResumeTest, WhatIsTokenizedIsNotTokenizedAgain) {
  write_rows(4, 200);
  CountingEncoder whole;
  prepare(recipe(), whole, path("whole"));
  ASSERT_EQ(whole.rows, 800);

  CountingEncoder first;
  first.stop_at = 500;  // in the third file: three pieces are done when the call returns
  Access access;
  access.cancel = &first.stop;
  EXPECT_HAS(error_of([&] { prepare(recipe(), first, path("out"), access); }, Exit::kInterrupted), "goes on");
  EXPECT_FALSE(fs::exists(path("out/dataset.json")));
  EXPECT_EQ(first.rows, 600);
  CountingEncoder second;
  prepare(recipe(), second, path("out"));
  EXPECT_EQ(second.rows, 200);
  EXPECT_EQ(manifest("out"), manifest("whole"));
  EXPECT_FALSE(fs::exists(path("out/.work")));
}

TEST_F(ResumeTest, PiecesOfUnchangedFilesServeAfterOneIsMended) {
  write_rows(3, 100);
  const std::string good = read_file(path("d/2.jsonl"));
  write("d/2.jsonl", good + "broken\n");
  CountingEncoder coder;
  EXPECT_HAS(error_of([&] { prepare(recipe(), coder, path("out")); }), "2.jsonl:101");
  EXPECT_TRUE(list_files(path("out")).empty());
  write("d/2.jsonl", good);
  CountingEncoder again;
  prepare(recipe(), again, path("out"));
  EXPECT_EQ(again.rows, 100);
}

TEST_F(ResumeTest, DamagedBlocksAreMadeAgain) {
  const Kept kept(path("p"));
  const std::vector<Document> documents = {
      {{1, 2, 3}, {}}, {{}, {}}, {{4, 5, 6, 7}, {-100, 5, -100, 7}}, {{1, 2}, {9, -100}}};
  TokenBlock block;
  for (const Document& d : documents) block.rows.push_back({d, true, false, true});
  block.rows[1].made = false;
  block.redacted = {{1, 2, 3}, {}, {}, {0, 0, 7}};
  block.last = true;
  block.shape = Shape::kAlpaca;
  put_tokens(kept, "abc", block);
  const auto back = find_tokens(kept, "abc");
  ASSERT_TRUE(back);
  ASSERT_EQ(back->rows.size(), documents.size());
  for (size_t i = 0; i < documents.size(); ++i) {
    EXPECT_EQ(back->rows[i].document.ids, documents[i].ids);
    EXPECT_EQ(back->rows[i].document.labels, documents[i].labels);
    EXPECT_EQ(back->rows[i].made, i != 1);
  }
  EXPECT_EQ(back->redacted, block.redacted);
  EXPECT_TRUE(back->last);
  EXPECT_EQ(back->shape, Shape::kAlpaca);
  EXPECT_FALSE(find_tokens(kept, "abd"));
  const std::string bytes = read_file(path("p/abc"));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    write("p/abc", bad);
    EXPECT_FALSE(find_tokens(kept, "abc")) << i;
    write("p/abc", bytes.substr(0, i));
    EXPECT_FALSE(find_tokens(kept, "abc")) << i;
  }
}

TEST_F(ResumeTest, FindingsComeBackAsTheyWereKept) {
  const Kept kept(path("p"));
  Findings f;
  f.prints.resize(3);
  f.prints[0] = {{1, 2}, 77, {5, 6, 5}, {8, 9}};
  f.prints[2] = {{3}, 78, {1}, {2, 3}};
  f.failed = {-1, 2, -1};
  f.last = true;
  put_findings(kept, "x", f);
  Findings g;
  ASSERT_TRUE(find_findings(kept, "x", &g));
  EXPECT_EQ(g.failed, f.failed);
  EXPECT_TRUE(g.last);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::memcmp(g.prints[i].content, f.prints[i].content, 16), 0);
    EXPECT_EQ(g.prints[i].spelling, f.prints[i].spelling);
    EXPECT_EQ(g.prints[i].shingles, f.prints[i].shingles);
    EXPECT_EQ(g.prints[i].band_keys, f.prints[i].band_keys);
  }
  const std::string bytes = read_file(path("p/x"));
  for (size_t i = 0; i < bytes.size(); ++i) {
    write("p/x", bytes.substr(0, i));
    EXPECT_FALSE(find_findings(kept, "x", &g)) << i;
  }
}

TEST_F(ResumeTest, KilledTenTimesAtRandomTheResultIsTheUndisturbedOne) {
  write_rows(12, 40);
  CountingEncoder whole;
  prepare(recipe(), whole, path("whole"));
  Philox random(static_cast<uint64_t>(::getpid()), 2);
  int killed = 0;
  for (bool done = false; !done;) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      set_num_threads(1);
      CountingEncoder slow;
      slow.delay_us = 300;  // some 20 ms a piece
      try {
        prepare(recipe(), slow, path("out"));
        ::_exit(0);
      } catch (...) {
        ::_exit(1);
      }
    }
    if (killed < 10) {
      ::usleep(static_cast<useconds_t>(1000 + random.below(60'000)));
      ::kill(child, SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    killed += WIFSIGNALED(status);
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      if (killed >= 10) break;
      fs::remove_all(path("out"));  // finished before it was killed: once more
    }
  }
  EXPECT_EQ(killed, 10);
  EXPECT_EQ(manifest("out"), manifest("whole"));
  for (const std::string& f : list_files(path("whole")))
    EXPECT_EQ(read_file(path("whole/" + f)), read_file(path("out/" + f))) << f;
  for (const auto& e : fs::directory_iterator(path("out"))) EXPECT_FALSE(e.path().extension() == ".tmp") << e.path();
}

}  // namespace
}  // namespace mxt::data
