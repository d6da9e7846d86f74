// Jobs that prepare together make what one run alone makes.
#include "data/jobs.h"

#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <set>

#include "base/files.h"
#include "base/philox.h"
#include "base/threads.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using testing::DataTest;
using testing::error_of;
using testing::ToyEncoder;

class SlowEncoder : public ToyEncoder {
 public:
  int delay_us = 0;
  mutable std::atomic<int64_t> rows{0};
  std::vector<int32_t> encode(std::string_view text, std::span<const ByteSpan> plain,
                              std::vector<ByteSpan>* offsets) const override {
    ++rows;
    if (delay_us) ::usleep(static_cast<useconds_t>(delay_us));
    return ToyEncoder::encode(text, plain, offsets);
  }
};

class JobsTest : public DataTest {
 protected:
  // Chats in files, among them exact and near copies (also from one file to another), rows too short, and addresses.
  void write_rows(const std::vector<int>& files) {
    Philox random(3, 1);
    std::vector<std::string> before;
    for (size_t f = 0; f < files.size(); ++f) {
      std::string s;
      for (int i = 0; i < files[f]; ++i) {
        std::string q;
        const uint32_t what = random.below(10);
        if (what < 2 && !before.empty()) {
          q = before[random.below(static_cast<uint32_t>(before.size()))];
          if (what == 1) q += " nearly";
        } else {
          for (uint32_t n = 20 + random.below(30), k = 0; k < n; ++k)
            q += "w" + std::to_string(random.below(3000)) + " ";
          if (what == 3) q += "ann" + std::to_string(i) + "@example.org";
          if (what == 4) q = "short";
          before.push_back(q);
        }
        s += R"({"question":")" + q + R"(","answer":"yes"})" + "\n";
      }
      write("d/" + std::to_string(f) + ".jsonl", s);
    }
  }
  config::Recipe recipe(const std::string& rest = "") {
    return config::parse_recipe("meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {source: local, path: '" +
                                    path("d") + "', seq_len: 512" + rest + "}\n",
                                "test.yaml");
  }
  static constexpr const char* kAll =
      ", eval_fraction: 0.1, shard: {num_shards: 3}, dedupe: {minhash: {threshold: 0.7}}, "
      "filter: {min_words: 5, redact: [email]}";
  std::string bytes_of(const std::string& out) {
    std::string all;
    for (const std::string& f : list_files(path(out))) all += f + "\n" + read_file(path(out) + "/" + f);
    EXPECT_FALSE(fs::exists(path(out) + "/.work"));
    return all;
  }
  ToyEncoder coder_;
};

TEST_F(JobsTest, TogetherTheyMakeTheSingleRunsFolder) {
  write_rows({300, 0, 120, 500, 40});
  const config::Recipe r = recipe(kAll);
  const Prepared single = prepare(r, coder_, path("single"));
  ASSERT_GT(single.curation->dropped.at("near_copy"), 10);
  ASSERT_GT(single.curation->dropped.at("exact_copy"), 10);
  ASSERT_GT(single.curation->redacted.at("email"), 10);
  for (int jobs : {1, 2, 3, 16}) {
    const std::string out = "jobs" + std::to_string(jobs);
    for (int j = jobs; j >= 1; --j)  // in another order
      EXPECT_EQ(prepare_job(r, coder_, path(out), {j, jobs}).last, j == 1);
    SlowEncoder none;
    EXPECT_EQ(merge_jobs(r, none, path(out)).train.tokens, single.train.tokens);
    EXPECT_EQ(none.rows, 0);  // merging tokenizes nothing
    EXPECT_EQ(bytes_of(out), bytes_of("single"));
    EXPECT_TRUE(merge_jobs(r, coder_, path(out)).kept);
    EXPECT_FALSE(std::filesystem::exists(path(out) + "/.merge"));
    EXPECT_TRUE(prepare_job(r, coder_, path(out), {1, jobs}).prepared);
  }
}

TEST_F(JobsTest, OneLargeFileIsDealtOutBlockByBlock) {
  std::string s;  // three blocks of 16 MiB
  for (int i = 0; i < 40; ++i) s += R"({"text":")" + std::to_string(i) + std::string(1 << 20, 'x') + "\"}\n";
  write("d/a.jsonl", s);
  const config::Recipe r = recipe(", dedupe: {exact: true}, eval_fraction: 0.2");
  prepare(r, coder_, path("single"));
  int64_t rows = 0;
  for (int j = 1; j <= 2; ++j) {
    const JobDone d = prepare_job(r, coder_, path("out"), {j, 2});
    EXPECT_EQ(d.blocks, j == 1 ? 2 : 1);
    rows += d.rows;
  }
  EXPECT_EQ(rows, 40);
  merge_jobs(r, coder_, path("out"));
  EXPECT_EQ(bytes_of("out"), bytes_of("single"));
}

TEST_F(JobsTest, HeldOutFilesTextLimitsAndTasksWorkToo) {
  write("d/a.txt", std::string(3000, 'a') + "\n");
  write("d/b.txt", std::string(2000, 'b') + "\n");
  write("e.txt", std::string(1500, 'e') + "\n");
  const std::string held = ", eval_path: '" + path("e.txt") + "'";
  write("q/a.jsonl", "{\"question\":\"1\",\"answer\":\"2\"}\n{\"question\":\"3\",\"answer\":\"4\"}\n");
  const auto all = [&](const std::string& data) {
    return config::parse_recipe(
        "meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {seq_len: 64, " + data + "}\n", "test.yaml");
  };
  int n = 0;
  for (const std::string& data : {"source: local, path: '" + path("d") + "'" + held,
                                  "source: local, path: '" + path("d") + "', sampling: random_windows" + held,
                                  "source: local, max_samples: 1, path: '" + path("q") + "'",
                                  std::string("source: synth, synth: {task: arithmetic, rows: 50, test_rows: 5}")}) {
    const std::string single = "single" + std::to_string(n), out = "out" + std::to_string(n++);
    prepare(all(data), coder_, path(single));
    for (int j : {2, 3, 1}) prepare_job(all(data), coder_, path(out), {j, 3});
    merge_jobs(all(data), coder_, path(out));
    EXPECT_EQ(bytes_of(out), bytes_of(single)) << data;
  }
}

TEST_F(JobsTest, AMissingOrForeignOrDamagedPartIsNamed) {
  write_rows({200, 200, 200, 200});
  const config::Recipe r = recipe(kAll);
  EXPECT_HAS(error_of([&] { merge_jobs(r, coder_, path("out")); }), "no job has finished");
  for (int j : {1, 2, 4}) prepare_job(r, coder_, path("out"), {j, 4});
  EXPECT_HAS(error_of([&] { merge_jobs(r, coder_, path("out")); }), "job 3/4;");
  EXPECT_HAS(error_of([&] { merge_jobs(recipe(), coder_, path("out")); }), "another recipe");
  prepare_job(recipe(), coder_, path("out"), {3, 4});  // of another recipe
  EXPECT_HAS(error_of([&] { merge_jobs(r, coder_, path("out")); }), "job 3/4;");
  prepare_job(r, coder_, path("out"), {3, 4});
  EXPECT_HAS(error_of([&] { prepare_job(r, coder_, path("out"), {5, 4}); }), "job 5/4");

  const auto a_file = [&] { return fs::directory_iterator(path("out/.work/prints"))->path().string(); };
  const std::string victim = a_file(), good = read_file(victim);
  std::string bad = good;
  bad[bad.size() / 2] ^= 1;
  write(fs::relative(victim, folder_).string(), bad);
  const std::string said = error_of([&] { merge_jobs(r, coder_, path("out")); });
  EXPECT_HAS(said, "is damaged");
  EXPECT_FALSE(fs::exists(path("out/dataset.json")));
  const int owner = said[said.find("run job ") + 8] - '0';
  prepare_job(r, coder_, path("out"), {owner, 4});
  const Prepared p = merge_jobs(r, coder_, path("out"));
  prepare(r, coder_, path("single"));
  EXPECT_EQ(bytes_of("out"), bytes_of("single"));

  // A file that changes between the jobs and the merge, its size the same.
  for (int j : {1, 2}) prepare_job(r, coder_, path("later"), {j, 2});
  std::string rows = read_file(path("d/1.jsonl"));
  rows[rows.find("\"yes\"") + 1] = 'Y';
  write("d/1.jsonl", rows);
  EXPECT_HAS(error_of([&] { merge_jobs(r, coder_, path("later")); }), "another content");
}

TEST_F(JobsTest, AtOnceKilledAndRepeatedTheResultIsTheSame) {
  write_rows({60, 60, 60, 60, 60, 60, 60, 60});
  const config::Recipe r = recipe(kAll);
  prepare(r, coder_, path("single"));
  constexpr int kJobs = 3;
  Philox random(static_cast<uint64_t>(::getpid()), 2);
  int killed = 0;
  std::set<int> done;
  while (done.size() < kJobs || killed < 10) {
    if (done.size() == kJobs) {
      fs::remove_all(path("out"));  // too quick
      done.clear();
    }
    std::vector<pid_t> children;
    for (int j = 1; j <= kJobs; ++j) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        set_num_threads(1);
        SlowEncoder slow;
        slow.delay_us = 300;
        try {
          prepare_job(r, slow, path("out"), {j, kJobs});
          ::_exit(0);
        } catch (...) {
          ::_exit(1);
        }
      }
      children.push_back(child);
    }
    ::usleep(static_cast<useconds_t>(1000 + random.below(40'000)));
    for (int j = 1; j <= kJobs; ++j) {
      if (killed < 10) ::kill(children[static_cast<size_t>(j) - 1], SIGKILL);
      int status = 0;
      ::waitpid(children[static_cast<size_t>(j) - 1], &status, 0);
      killed += WIFSIGNALED(status);
      if (!WIFEXITED(status)) continue;
      ASSERT_EQ(WEXITSTATUS(status), 0);
      done.insert(j);
    }
  }
  merge_jobs(r, coder_, path("out"));
  EXPECT_EQ(bytes_of("out"), bytes_of("single"));
}

}  // namespace
}  // namespace mxt::data
