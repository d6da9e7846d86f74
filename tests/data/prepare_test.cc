#include "data/prepare.h"

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/philox.h"
#include "base/threads.h"
#include "data/inputs.h"
#include "data/preview.h"
#include "data/source/duckdb_api.h"
#include "data/synth/synth.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using testing::DataTest;
using testing::error_of;
using testing::ToyEncoder;
using Ids = std::vector<int32_t>;

class PrepareTest : public DataTest {
 protected:
  // `data` is the inside of the data section, as "path: x, seq_len: 64".
  config::Recipe recipe(const std::string& data, const std::string& rest = "") {
    return config::parse_recipe("meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {" + data + "}\n" + rest,
                                "test.yaml");
  }
  config::Recipe local(const std::string& file, const std::string& data = "seq_len: 64") {
    return recipe("source: local, path: '" + file + "', " + data);
  }
  Prepared run(const config::Recipe& r, const std::string& out = "out") { return prepare(r, coder_, path(out)); }
  std::string texts(const std::vector<std::string>& values) {
    std::string s;
    for (const std::string& v : values) s += R"({"text":")" + v + "\"}\n";
    return s;
  }
  // Documents of a part as text, in the order of the rows.
  std::vector<std::string> documents(const std::string& part = "train", const std::string& out = "out") {
    std::vector<std::string> all;
    const Dataset d = Dataset::open(path(out), part, true);
    for (int64_t i = 0; i < d.rows(); ++i) {
      const Row r = d.row(i);
      for (size_t k = 0; k + 1 < r.cu_seqlens.size(); ++k)
        all.push_back(coder_.decode(r.ids.subspan(static_cast<size_t>(r.cu_seqlens[k]),
                                                  static_cast<size_t>(r.cu_seqlens[k + 1] - r.cu_seqlens[k]))));
    }
    return all;
  }
  std::vector<std::string> sorted(std::vector<std::string> v) {
    std::sort(v.begin(), v.end());
    return v;
  }
  // All files of a prepared folder, names and bytes.
  std::string bytes_of(const std::string& out) {
    std::string all;
    for (const std::string& f : list_files(path(out))) all += f + "\n" + read_file(path(out) + "/" + f);
    return all;
  }
  std::string random_chats(int n) {
    Philox random(1, 1);
    std::string s;
    for (int i = 0; i < n; ++i) {
      std::string a(1 + random.below(30), 'a'), q(1 + random.below(30), 'q');
      s += R"({"question":")" + std::to_string(i) + q + R"(","answer":")" + a + "\"}\n";
    }
    return s;
  }
  ToyEncoder coder_;
};

TEST_F(PrepareTest, PackedRowsHoldWholeDocumentsWithTheirBoundaries) {
  const std::string file = write("a.jsonl", random_chats(500));
  const Prepared p = run(local(file, "seq_len: 200"));
  const Dataset d = Dataset::open(path("out"));
  EXPECT_LT(d.rows(), 300);
  EXPECT_EQ(d.rows(), p.train.rows);
  int64_t tokens = 0, targets = 0, count = 0;
  std::set<std::string> seen;
  for (int64_t i = 0; i < d.rows(); ++i) {
    const Row r = d.row(i);
    ASSERT_LE(r.ids.size(), 200u);
    ASSERT_EQ(r.cu_seqlens.front(), 0);
    ASSERT_EQ(r.cu_seqlens.back(), static_cast<int32_t>(r.ids.size()));
    tokens += static_cast<int64_t>(r.ids.size());
    for (size_t k = 0; k + 1 < r.cu_seqlens.size(); ++k, ++count) {
      const size_t b = static_cast<size_t>(r.cu_seqlens[k]), n = static_cast<size_t>(r.cu_seqlens[k + 1]) - b;
      const std::string text = coder_.decode(r.ids.subspan(b, n));
      EXPECT_TRUE(text.starts_with("<|im_start|>user\n")) << text;
      EXPECT_TRUE(text.ends_with("<|im_end|>\n")) << text;
      EXPECT_EQ(text.find("<|im_start|>user", 1), std::string::npos) << text;
      EXPECT_TRUE(seen.insert(text).second);
      for (size_t t = b; t < b + n; ++t) {
        targets += t > b && r.labels[t] != kNoTarget;
        EXPECT_TRUE(r.labels[t] == kNoTarget || r.labels[t] == r.ids[t]);
      }
    }
  }
  EXPECT_EQ(count, 500);
  EXPECT_EQ(p.train.documents, 500);
  EXPECT_EQ(tokens, p.train.tokens);
  EXPECT_EQ(targets, p.train.targets);
  EXPECT_EQ(p.rows_in, 500);
}

TEST_F(PrepareTest, WeightsOfCallsAreSaidToMeanNothingWhereNoRowCalls) {
  struct Caller : ToyEncoder {  // what is said after "call " is a call
    RenderedChat render_whole(const OrderedJson& messages, const OrderedJson* tools) const override {
      RenderedChat r = ToyEncoder::render_whole(messages, tools);
      if (const size_t at = r.text.find("call "); at != std::string::npos)
        r.calls.push_back({{at, r.text.size()}, tokenizer::CallPart::kName});
      return r;
    }
  } coder;
  const std::string chats = random_chats(5);
  const std::string file = write("a.jsonl", chats),
                    calls = write("b.jsonl", chats + R"({"question":"hello","answer":"call it"})" + "\n");
  const auto said = [&](const std::string& rows, const char* out) {
    ::testing::internal::CaptureStderr();
    prepare(local(rows, "seq_len: 200, loss_weights: {name: 2}"), coder, path(out));
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string none = said(file, "none");
  EXPECT_HAS(none, "no row's trained turns hold a call");
  EXPECT_EQ(none.find("no row's", none.find("no row's") + 1), std::string::npos) << none;
  EXPECT_EQ(said(calls, "calls").find("no row's"), std::string::npos);
}

TEST_F(PrepareTest, CroppedRowsBeginWithTheBosAndAreFull) {
  std::string rows;
  for (int i = 0; i < 300; ++i)
    rows += R"({"text":")" + std::string(1 + static_cast<size_t>(i * 37 % 150), 'a') + "\"}\n";
  const std::string file = write("a.jsonl", rows);
  const Prepared p = run(local(file, "seq_len: 64, pack: bos_crop"));
  EXPECT_GT(p.cut, 0);
  EXPECT_HAS(p.text(), "cut to fill rows");
  const Dataset d = Dataset::open(path("out"), "train", true);
  EXPECT_EQ(d.rows(), p.train.rows);
  int64_t tokens = 0, targets = 0;
  for (int64_t i = 0; i < d.rows(); ++i) {
    const Row r = d.row(i);
    EXPECT_TRUE(r.overlaps);
    ASSERT_EQ(r.ids.size(), 65u);
    for (size_t k = 0; k + 1 < r.cu_seqlens.size(); ++k) {
      EXPECT_EQ(r.ids[static_cast<size_t>(r.cu_seqlens[k])], ToyEncoder::kStart);
      targets += r.cu_seqlens[k + 1] - r.cu_seqlens[k] - 1;
    }
    tokens += 65;
    EXPECT_EQ(std::count(r.ids.begin(), r.ids.end(), ToyEncoder::kEnd), 0) << "no end of text";
  }
  EXPECT_EQ(p.train.tokens, tokens);
  EXPECT_EQ(p.train.targets, targets);
  EXPECT_EQ(p.train.longest, 64);
  EXPECT_HAS(d.packing(), "bos_crop");
  EXPECT_HAS(d.packing(), "no document sees another");
  EXPECT_TRUE(run(local(file, "seq_len: 64, pack: bos_crop")).kept);

  const Prepared joined = run(local(file, "seq_len: 64, pack: bos_crop, boundaries: row"), "joined");
  const Dataset j = Dataset::open(path("joined"), "train", true);
  EXPECT_EQ(j.rows(), d.rows());
  EXPECT_EQ(joined.train.targets, 64 * j.rows()) << "every token but a row's first";
  for (int64_t i = 0; i < j.rows(); ++i) {
    EXPECT_EQ(j.row(i).cu_seqlens.size(), 2u);
    EXPECT_TRUE(std::equal(j.row(i).ids.begin(), j.row(i).ids.end(), d.row(i).ids.begin()));
  }
  EXPECT_HAS(j.packing(), "see those before them");
}

TEST_F(PrepareTest, RowsOfConversationsAreWholeAndTheirLastTokenIsATargetAlone) {
  const Prepared p = run(local(write("c.jsonl", random_chats(200)), "seq_len: 256, pack: best_fit"));
  EXPECT_EQ(p.train.documents, 200);
  EXPECT_EQ(p.cut, 0);
  const Dataset d = Dataset::open(path("out"), "train", true);
  EXPECT_HAS(d.packing(), "best_fit");
  int64_t targets = 0;
  for (int64_t i = 0; i < d.rows(); ++i) {
    const Row r = d.row(i);
    EXPECT_TRUE(r.overlaps);
    EXPECT_LE(r.ids.size(), 257u);
    for (size_t k = 0; k + 1 < r.cu_seqlens.size(); ++k)
      for (int32_t t = r.cu_seqlens[k] + 1; t < r.cu_seqlens[k + 1]; ++t)
        targets += r.labels[static_cast<size_t>(t)] != kNoTarget;
  }
  EXPECT_EQ(targets, p.train.targets);
  EXPECT_LE(p.train.longest, 256);
}

TEST_F(PrepareTest, QuestionsAndCompletionsAreTextsWhereTheyAreCropped) {
  std::string rows;
  for (int i = 0; i < 30; ++i) rows += "{\"question\":\"hello\",\"answer\":\"" + std::string(20, 'b') + "\"}\n";
  const Prepared p = run(local(write("q.jsonl", rows), "seq_len: 64, pack: bos_crop"));
  EXPECT_GT(p.train.rows, 0);
  const Dataset d = Dataset::open(path("out"), "train", true);
  EXPECT_EQ(d.row(0).ids[0], ToyEncoder::kStart);
  std::string said;
  for (const int32_t id : d.row(0).ids.subspan(1, 22)) said += coder_.token_bytes(id);
  EXPECT_HAS(said, "hello\nbbbb");
}

TEST_F(PrepareTest, CroppingWantsTextsABosAndTokensForARow) {
  const std::string chats = write("c.jsonl",
                                  R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"),
                    text = write("a.jsonl", texts({"hello world"}));
  EXPECT_HAS(error_of([&] { run(local(chats, "seq_len: 64, pack: bos_crop")); }), "bos_crop crops texts");
  EXPECT_HAS(error_of([&] { run(local(text, "seq_len: 64, pack: bos_crop")); }),
             "one row of data.pack: bos_crop needs 65 (data.seq_len + 1); use more text or a shorter seq_len");
  coder_.begin = -1;
  EXPECT_HAS(error_of([&] { run(local(text, "seq_len: 64, pack: bos_crop")); }), "the tokenizer has none");
}

TEST_F(PrepareTest, RowsOfWholeDocumentsCanBeJoined) {
  const std::string file = write("a.jsonl", texts({"aaaa", "bbbb", "cc"}));
  const Prepared p = run(local(file, "seq_len: 64, boundaries: row"));
  EXPECT_EQ(p.train.rows, 1);
  EXPECT_EQ(p.train.targets, p.train.tokens - 1);
  EXPECT_EQ(documents().size(), 1u);
}

TEST_F(PrepareTest, WithoutPackingADocumentIsARowInFileOrder) {
  run(local(write("a.jsonl", texts({"three", "one", "two"})), "seq_len: 64, packing: false"));
  EXPECT_EQ(documents(), (std::vector<std::string>{"three<|im_end|>", "one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(Dataset::open(path("out")).rows(), 3);
}

TEST_F(PrepareTest, FinishedTokenRowsPassUnchangedInFileOrder) {
  const std::string file =
      write("a.jsonl", "{\"input_ids\":[1,2,3],\"labels\":[-100,2,9]}\n{\"input_ids\":[4,5],\"labels\":[4,5]}\n");
  run(local(file, "seq_len: 64, packing: false, shuffle: false"));
  const Dataset d = Dataset::open(path("out"));
  ASSERT_EQ(d.rows(), 2);
  const Row r = d.row(0);
  EXPECT_EQ(Ids(r.ids.begin(), r.ids.end()), (Ids{1, 2, 3}));
  EXPECT_EQ(Ids(r.labels.begin(), r.labels.end()), (Ids{-100, 2, 9}));
  EXPECT_EQ(d.row(1).ids[1], 5);
}

TEST_F(PrepareTest, LongDocumentsAreCutAndThoseWithoutATargetDroppedBothCounted) {
  const std::string file = write("a.jsonl", R"({"prompt":")" + std::string(100, 'p') + R"(","completion":"x"})" + "\n" +
                                                R"({"prompt":"p","completion":")" + std::string(100, 'c') + "\"}\n");
  const Prepared p = run(local(file));
  EXPECT_EQ(p.rows_in, 2);
  EXPECT_EQ(p.cut, 2);
  EXPECT_EQ(p.cut_tokens, 2 * (102 - 64));
  EXPECT_EQ(p.dropped_no_target, 1);
  EXPECT_EQ(p.train.documents, 1);
  EXPECT_EQ(p.train.tokens, 64);
  EXPECT_EQ(p.train.targets, 63);
  EXPECT_HAS(p.text(), "1 dropped");
  const Json m = read_json_file(path("out/dataset.json"));
  EXPECT_EQ(m["dropped"]["no_target"], 1);
  EXPECT_EQ(m["cut"]["documents"], 2);
}

TEST_F(PrepareTest, WhatIsPreparedDoesNotLieAmongItsRows) {
  write("rows/a.jsonl", texts({"one", "two"}));
  write("rows/deep/b.json", R"([{"text":"three"}])");
  for (const auto& [source, out] : {std::pair("rows", "rows"), std::pair("rows", "rows/out"),
                                    std::pair("rows/", "rows/a/b"), std::pair("rows/*.json", "rows"),
                                    std::pair("rows/**", "rows/deep"), std::pair("rows/deep/../*.json", "rows/x/..")})
    EXPECT_HAS(error_of([&, s = source, o = out] { run(local(path(s)), o); }), "read as rows") << source << " " << out;
  EXPECT_FALSE(std::filesystem::exists(path("rows/dataset.json")));
  run(local(path("rows")), "beside");
  run(local(path("rows/a.jsonl")), "rows");  // one file, or a pattern that nothing made fits
  run(local(path("rows/*.jsonl")), "rows/out");
  EXPECT_HAS(error_of([&] {
               run(recipe("source: mixture, mixture: [{path: '" + path("rows") + "', weight: 1}], seq_len: 64"),
                   "rows/m");
             }),
             "read as rows");
}

TEST_F(PrepareTest, NothingLeftIsAnError) {
  EXPECT_HAS(error_of([&] { run(local(write("a.jsonl", R"({"messages":[{"role":"user","content":"x"}]})"))); }),
             "no row is left");
  EXPECT_HAS(error_of([&] { run(local(write("b.jsonl", "\n\n"))); }), "holds no rows");
  EXPECT_FALSE(fs::exists(path("out/dataset.json")));
}

// Where data.seq_len is why, it is named with the length that would do.
TEST_F(PrepareTest, NothingLeftOfLongRowsNamesTheLength) {
  const auto tokens = [](size_t prompt, size_t answer) {
    std::vector<int> ids(prompt + answer, 5), labels(prompt, -100);
    labels.resize(ids.size(), 5);
    return Json{{"input_ids", ids}, {"labels", labels}}.dump() + "\n";
  };
  const std::string file = write("long.jsonl", tokens(90, 3) + tokens(80, 3) + tokens(3, 0));
  EXPECT_HAS(
      error_of([&] { run(local(file, "seq_len: 64")); }),
      "3 rows read, 2 have nothing to train on within data.seq_len (64); raise it (the shortest of them needs 81)");
  run(local(file, "seq_len: 81"), "enough");
}

TEST_F(PrepareTest, BytesDoNotDependOnThreads) {
  const std::string file = write("a.jsonl", random_chats(3000));
  const int before = num_threads();
  set_num_threads(1);
  run(local(file, "seq_len: 128, eval_fraction: 0.1, shard: {num_shards: 3}"), "one");
  set_num_threads(4);
  run(local(file, "seq_len: 128, eval_fraction: 0.1, shard: {num_shards: 3}"), "four");
  set_num_threads(before);
  EXPECT_EQ(bytes_of("one"), bytes_of("four"));
  EXPECT_TRUE(fs::exists(path("one/train-00003-of-00003.safetensors")));
  EXPECT_EQ(list_files(path("one")).size(), 7u);  // three shards of each part and the manifest; no leftovers
}

TEST_F(PrepareTest, FinishedFoldersAreKeptUntilAnInputOrAFileChanges) {
  const std::string file = write("a.jsonl", texts({"one", "two"}));
  EXPECT_FALSE(run(local(file)).kept);
  const auto stamp = fs::last_write_time(path("out/dataset.json"));
  const Prepared again = run(local(file));
  EXPECT_TRUE(again.kept);
  EXPECT_EQ(again.train.tokens, 8 + 2 - 2);
  EXPECT_EQ(fs::last_write_time(path("out/dataset.json")), stamp);

  EXPECT_FALSE(run(local(file, "seq_len: 65")).kept);
  write("a.jsonl", texts({"one", "three"}));
  EXPECT_FALSE(run(local(file, "seq_len: 65")).kept);
  EXPECT_EQ(documents(), (std::vector<std::string>{"one<|im_end|>", "three<|im_end|>"}));

  const std::string shard = path("out/train-00001-of-00001.safetensors");
  std::string bytes = read_file(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write("out/train-00001-of-00001.safetensors", bytes);
  EXPECT_HAS(error_of([&] { Dataset::open(path("out"), "train", true); }, Exit::kVerifyFailed), "digest");
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(run(local(file, "seq_len: 65")).kept);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_HAS(said, "preparing again");
  EXPECT_EQ(said.find("preparing again"), said.rfind("preparing again")) << said;
  EXPECT_TRUE(run(local(file, "seq_len: 65")).kept);
  coder_.end = -1;  // another tokenizer
  EXPECT_FALSE(run(local(file, "seq_len: 65")).kept);
}

TEST_F(PrepareTest, OnlyOurFilesAreReplaced) {
  write("out/notes.txt", "mine");
  write("out/train-00009-of-00009.safetensors", "mine too");
  const std::string file = write("a.jsonl", texts({"one", "two"}));
  run(local(file, "seq_len: 64, packing: false, shard: {num_shards: 2}"));
  run(local(file));
  EXPECT_EQ(list_files(path("out")),
            (std::vector<std::string>{"dataset.json", "notes.txt", "train-00001-of-00001.safetensors",
                                      "train-00009-of-00009.safetensors"}));
  write("out/dataset.json", "{}");
  EXPECT_HAS(error_of([&] { run(local(file)); }), "dataset.json");
}

TEST_F(PrepareTest, WhatIsRefusedWhileItIsWrittenLeavesTheOlderOne) {
  const std::string file = write("a.jsonl", texts({std::string(99, 'a'), "five"})),
                    held = write("h.jsonl", texts({"x"}));
  run(local(file));
  const std::string before = bytes_of("out");
  for (const std::string& data : {"seq_len: 64, pack: bos_crop, eval_path: '" + held + "'",
                                  "seq_len: 64, sampling: random_windows, eval_path: '" + held + "'"}) {
    EXPECT_HAS(error_of([&] { run(local(file, data)); }), "data: the eval part has ") << data;
    EXPECT_EQ(bytes_of("out"), before) << data;
    EXPECT_HAS(error_of([&] { run(local(file, data), "new"); }), "data: the eval part has ") << data;
    EXPECT_EQ(bytes_of("new"), "") << data;
    EXPECT_FALSE(std::filesystem::exists(path("new/.work/made"))) << data;
  }
}

TEST_F(PrepareTest, HeldOutDocumentsAreAnExactSeededPartOfTheWhole) {
  std::vector<std::string> words;
  for (int i = 0; i < 100; ++i) words.push_back("w" + std::to_string(i));
  const std::string file = write("a.jsonl", texts(words));
  const Prepared p = run(local(file, "seq_len: 64, eval_fraction: 0.25"));
  EXPECT_EQ(p.train.documents, 75);
  EXPECT_EQ(p.eval.documents, 25);
  auto all = documents("train"), held = documents("eval");
  const auto first_held = sorted(held);
  all.insert(all.end(), held.begin(), held.end());
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 100u);
  run(recipe("source: local, path: '" + file + "', seq_len: 64, eval_fraction: 0.25"), "again");
  EXPECT_EQ(sorted(documents("eval", "again")), first_held);
  EXPECT_HAS(error_of([&] { run(local(write("b.jsonl", texts({"one"})), "seq_len: 64, eval_fraction: 0.5")); }),
             "too few");
}

TEST_F(PrepareTest, EvalPathIsAPartOfItsOwn) {
  const std::string file = write("a.jsonl", texts({"one"})), held = write("h.csv", "text\ntwo\nthree\n");
  const Prepared p = run(local(file, "seq_len: 64, eval_path: '" + held + "'"));
  EXPECT_EQ(p.rows_in, 3);
  EXPECT_EQ(documents("train"), (std::vector<std::string>{"one<|im_end|>"}));
  EXPECT_EQ(documents("eval"), (std::vector<std::string>{"two<|im_end|>", "three<|im_end|>"}));
  EXPECT_TRUE(has_part(path("out"), "eval"));
  EXPECT_HAS(error_of([&] { Dataset::open(path("out"), "test"); }), "no part \"test\"");
}

TEST_F(PrepareTest, SynthTasksBringTheirTestRows) {
  const Prepared p =
      run(recipe("source: synth, seq_len: 512, packing: false, synth: {task: tool_calls, rows: 40, test_rows: 10}"));
  EXPECT_EQ(p.train.rows, 40);
  EXPECT_EQ(p.eval.rows, 10);
  EXPECT_HAS(documents("train")[3], synth_rows("tool_calls", Split::kTrain, 4, 2048)[3].user);
  EXPECT_HAS(documents("eval")[9], synth_rows("tool_calls", Split::kTest, 10, 2048)[9].answer);
}

TEST_F(PrepareTest, SynthRowsOfSeveralTurnsAreConversations) {
  const Prepared p = run(recipe(
      "source: synth, seq_len: 512, packing: false, synth: {task: tool_calls, rows: 10, turns: 3, test_rows: 5}"));
  EXPECT_EQ(p.train.rows, 10);
  EXPECT_EQ(p.eval.rows, 5);
  const auto rows = synth_rows("tool_calls", Split::kTrain, 30, 2048);
  const std::string third = documents("train")[2];
  for (size_t i = 6; i < 9; ++i) {
    EXPECT_HAS(third, rows[i].user);
    EXPECT_HAS(third, rows[i].answer);
  }
  EXPECT_EQ(third.find("Tools: "), third.rfind("Tools: "));
  EXPECT_HAS(documents("eval")[4], synth_rows("tool_calls", Split::kTest, 5, 2048)[4].answer);
}

TEST_F(PrepareTest, MaxSamplesReadsTheFirstRows) {
  run(local(write("a.jsonl", texts({"one", "two", "three"})), "seq_len: 64, max_samples: 2"));
  EXPECT_EQ(documents(), (std::vector<std::string>{"one<|im_end|>", "two<|im_end|>"}));
}

TEST_F(PrepareTest, PlainTextFilesBecomePiecesThatLoseNothing) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i) + " hello world\n";
  const Prepared p = run(local(write("a.txt", text), "seq_len: 100, packing: false"));
  std::string back;
  for (const std::string& d : documents()) back += d;
  EXPECT_EQ(back, text + "<|im_end|>");
  EXPECT_EQ(p.rows_in, 1);
  EXPECT_EQ(p.cut, 0);
  EXPECT_EQ(p.train.rows, (p.train.tokens + 99) / 100);
}

TEST_F(PrepareTest, WindowsSplitTheTextAtItsEndAsNanoGpt) {
  std::string text(1005, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 23);
  const Prepared p = run(local(write("a.txt", text), "seq_len: 64, sampling: random_windows, eval_fraction: 0.1"));
  EXPECT_EQ(p.train.tokens, 904);  // int(1005 · 0.9)
  EXPECT_EQ(p.eval.tokens, 101);
  EXPECT_TRUE(is_windows(path("out")));
  const WindowDataset d = WindowDataset::open(path("out"), "train", true);
  EXPECT_EQ(d.tokens(), 904);
  const auto w = d.window(d.tokens() - d.seq_len() - 1);
  EXPECT_EQ(w.size(), 65u);
  EXPECT_EQ(coder_.decode(w), text.substr(904 - 65, 65));
  EXPECT_EQ(coder_.decode(WindowDataset::open(path("out"), "eval").window(0)), text.substr(904, 65));
  EXPECT_EQ(d.windows(), 13);
  EXPECT_HAS(error_of([&] { Dataset::open(path("out")); }), "random_windows");
  EXPECT_HAS(error_of([&] { run(local(write("b.txt", "short"), "seq_len: 64, sampling: random_windows")); }),
             "one window needs 65");
}

TEST_F(PrepareTest, WindowsOverRowsEndEachText) {
  run(local(write("a.jsonl", texts({std::string(80, 'a'), "b"})), "seq_len: 64, sampling: random_windows"));
  const WindowDataset d = WindowDataset::open(path("out"));
  EXPECT_EQ(d.tokens(), 83);
  EXPECT_EQ(coder_.decode(d.window(18)), std::string(62, 'a') + "<|im_end|>b<|im_end|>");
  EXPECT_HAS(
      error_of([&] {
        run(local(write("c.jsonl", R"({"question":"a","answer":"b"})"), "seq_len: 64, sampling: random_windows"));
      }),
      "reads text only");
}

TEST_F(PrepareTest, TheFirstBadRowIsNamedWhateverTheThreads) {
  std::string rows = texts(std::vector<std::string>(900, "fine"));
  for (int i = 0; i < 100; ++i) rows += "{\"text\": broken}\n";
  for (int k = 0; k < 5; ++k) EXPECT_HAS(error_of([&] { run(local(write("a.jsonl", rows))); }), "a.jsonl:901");
  EXPECT_TRUE(list_files(path("out")).empty());  // no half-made files
}

TEST_F(PrepareTest, PreferenceAndReferenceRowsAreRefusedWithTheWayOut) {
  EXPECT_HAS(
      error_of([&] { run(local(write("a.jsonl", R"({"prompt":"p","chosen":"a","rejected":"b"})"))); }, Exit::kBadInput),
      "chosen: completion");
  EXPECT_HAS(error_of([&] { run(local(write("b.jsonl", R"({"prompt":"p","answer":"a"})"))); }, Exit::kBadInput),
             "answer: completion");
  EXPECT_HAS(error_of([&] { run(local(write("c.jsonl", R"({"prompt":"p","chosen":1,"rejected":"b"})"))); }),
             "a number");
}

// A score is read at a sequence's end: it is the end of the turn, as of a sampled answer, and no pair is cut.
TEST_F(PrepareTest, PairsOfARewardModelEndWithTheirTurnAndStayWhole) {
  const auto pair = [](const std::string& good, const std::string& bad) {
    return R"({"prompt":[{"role":"user","content":"q"}],"chosen":[{"role":"assistant","content":")" + good +
           R"("}],"rejected":[{"role":"assistant","content":")" + bad + "\"}]}\n";
  };
  const std::string file =
      write("a.jsonl", pair("yes", "no") + pair("yes", std::string(400, 'x')) + pair("maybe", "never"));
  const std::string data = "source: local, path: '" + file + "', seq_len: 128, packing: false, shuffle: false";
  const Prepared p = run(recipe(data, "train: {method: {kind: reward}}"));
  EXPECT_EQ(p.dropped_no_target, 1);
  const std::vector<std::string> all = documents();
  ASSERT_EQ(all.size(), 4u);
  for (const std::string& text : all) EXPECT_TRUE(text.ends_with("<|im_end|>")) << text;
  EXPECT_NE(all[1].find("no<|im_end|>"), std::string::npos) << all[1];
  run(recipe(data, "train: {method: {kind: dpo}}"), "dpo");  // other data: an answer is cut at its end
  EXPECT_EQ(documents("train", "dpo").size(), 6u);
}

TEST_F(PrepareTest, HostileManifestsAreRefused) {
  run(local(write("a.jsonl", texts({"one"}))));
  const std::string good = read_file(path("out/dataset.json"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string s = good;
    s.replace(s.find(from), from.size(), to);
    write("out/dataset.json", s);
    return error_of([&] { Dataset::open(path("out")); });
  };
  EXPECT_HAS(with("train-00001-of-00001.safetensors", "../train.safetensors"), "prepare the data again");
  EXPECT_HAS(with("\"rows\": 1", "\"rows\": 2"), "the manifest says 2");
  EXPECT_HAS(with("\"rows\": 1", "\"rows\": \"x\""), "prepare the data again");
  EXPECT_HAS(with("mindxtrain.dataset.1", "mindxtrain.dataset.9"), "not a dataset manifest");
  EXPECT_HAS(error_of([&] { Dataset::open(path("nowhere")); }), "prepare the data first");
}

TEST_F(PrepareTest, CharactersOfTheCorpusComeSorted) {
  EXPECT_EQ(corpus_characters(local(write("a.txt", "hé\nabba"))), "\nabhé");
  EXPECT_HAS(error_of([&] { corpus_characters(local(write("b.jsonl", R"({"prompt":"x","completion":"y"})"))); }),
             "text rows");
}

TEST_F(PrepareTest, PreviewMarksWhatIsTrainedAndDisarmsControlCharacters) {
  run(local(write("a.jsonl", R"({"question":"a\u001b[31mé","answer":"hello"})")));
  const Dataset d = Dataset::open(path("out"));
  EXPECT_EQ(preview_row(d, 0, coder_, Marks::kBrackets),
            "--- row 0, document 1 of 1: 18 tokens, 2 trained\n"
            "<|im_start|>user\na\\x1b[31mé<|im_end|>\n<|im_start|>assistant\n⟦hello<|im_end|>⟧\n");
  EXPECT_HAS(preview_row(d, 0, coder_, Marks::kAnsi), "\x1b[32mhello<|im_end|>\x1b[0m");
  EXPECT_HAS(error_of([&] { preview_row(d, 1, coder_, Marks::kAnsi); }), "rows 0 to 0");
}

TEST_F(PrepareTest, ThePageEscapesWhatTheDataHolds) {
  run(local(write("a.jsonl", R"({"question":"</pre><script>alert('1')</script>&\u0007","answer":"hello\"é"})")));
  const std::string page = preview_page(Dataset::open(path("out")), 0, 5, coder_);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("alert('"), std::string::npos);
  EXPECT_HAS(page, "<span class=\"u\">&amp;</span><span class=\"u\">\\x07</span>");
  EXPECT_HAS(page, "<span class=\"t\">hello</span><span class=\"t\">&quot;</span><span class=\"t\">é</span>");
  EXPECT_HAS(page, "document 1 of 1");
  EXPECT_HAS(error_of([&] { preview_page(Dataset::open(path("out")), 1, 1, coder_); }), "rows 0 to 0");
}

TEST_F(PrepareTest, CurationIsAccountedForInTheManifestAndKept) {
  const std::string file = write("a.jsonl", texts({"one two", "one  two", "three", "x", "write to a.b@c.org now"}));
  const auto r =
      local(file, "seq_len: 64, packing: false, dedupe: {exact: true}, filter: {min_chars: 2, redact: [email, phone]}");
  const Prepared p = run(r);
  EXPECT_EQ(p.rows_in, 5);
  EXPECT_EQ(p.train.documents, 3);
  EXPECT_HAS(p.text(), "1 dropped: exact_copy");
  EXPECT_HAS(p.text(), "1 redacted: email");
  const auto d = documents();
  EXPECT_EQ(d[2], "write to <EMAIL> now<|im_end|>");
  const Json m = read_json_file(path("out/dataset.json"));
  EXPECT_EQ(m["rows_in"], 5);
  EXPECT_EQ(m["dropped"], (Json{{"no_target", 0}, {"exact_copy", 1}, {"min_chars", 1}}));
  EXPECT_EQ(m["curation"]["redacted"], (Json{{"email", 1}, {"phone", 0}}));
  EXPECT_EQ(m["curation"]["groups"], 1);
  ASSERT_EQ(m["curation"]["samples"].size(), 2u);
  EXPECT_HAS(m["curation"]["samples"][0]["stays"].get<std::string>(), "a.jsonl:");
  const Prepared again = run(r);
  EXPECT_TRUE(again.kept);
  EXPECT_EQ(again.text(), p.text());
  EXPECT_EQ(list_files(path("out")).size(), 2u);
  EXPECT_FALSE(run(local(file, "seq_len: 64, packing: false, dedupe: {exact: true}")).kept);
}

TEST_F(PrepareTest, ShowingWithAnotherRecipeIsSaid) {
  const std::string file = write("a.jsonl", texts({"one", "two"})), other = write("b.jsonl", texts({"one", "three"}));
  run(local(file));
  EXPECT_EQ(compare_inputs(path("out"), local(file), coder_), "");
  EXPECT_HAS(compare_inputs(path("out"), local(file, "seq_len: 128, packing: false"), coder_),
             "data.seq_len 64 (the recipe: 128), data.packing true");
  EXPECT_HAS(compare_inputs(path("out"), local(other), coder_), "other files");
  ToyEncoder stranger;
  stranger.end = 3;
  EXPECT_HAS(error_of([&] { compare_inputs(path("out"), local(file), stranger); }), "another tokenizer");
}

TEST_F(PrepareTest, NoRowsSaysWhatIsTrue) {
  const std::string file = write("a.jsonl", texts({"one"})), none = write("b.jsonl", "\n\n");
  EXPECT_HAS(error_of([&] { run(local(none)); }), "b.jsonl: holds no rows");
  bool asks = true;  // where DuckDB is there to ask
  try {
    duckdb::api();
  } catch (const Error& e) {
    asks = false;
    EXPECT_EQ(e.code(), Exit::kMissing);
  }
  if (asks) {
    EXPECT_HAS(error_of([&] { run(local(file, "sql: 'SELECT * FROM rows WHERE false'")); }),
               "data.sql: gives no rows of");
  }
  EXPECT_HAS(error_of([&] { run(local(file, "filter: {decontaminate: ['" + none + "']}")); }), "b.jsonl holds no rows");
  EXPECT_FALSE(fs::exists(path("out/dataset.json")));
}

TEST(EpochOrder, IsAPermutationThatChangesWithSeedAndEpochAndNothingElse) {
  const auto a = epoch_order(1, 0, 1000);
  EXPECT_EQ(std::set<uint32_t>(a.begin(), a.end()).size(), 1000u);
  EXPECT_EQ(*std::max_element(a.begin(), a.end()), 999u);
  EXPECT_EQ(a, epoch_order(1, 0, 1000));
  EXPECT_NE(a, epoch_order(1, 1, 1000));
  EXPECT_NE(a, epoch_order(2, 0, 1000));
  EXPECT_TRUE(epoch_order(1, 0, 0).empty());
}

TEST(WindowPhase, EveryPassCoversTheTextOnAGridOfItsOwn) {
  const int64_t tokens = 1064, seq_len = 64, windows = (tokens - seq_len) / seq_len;
  std::set<int64_t> phases;
  for (int64_t epoch = 0; epoch < 1000; ++epoch) {
    const int64_t phase = window_phase(42, epoch, tokens, seq_len);
    ASSERT_GE(phase, 0);
    ASSERT_LT(phase + (windows - 1) * seq_len, tokens - seq_len);
    phases.insert(phase);
  }
  EXPECT_EQ(phases.size(), 64u);
  EXPECT_EQ(window_phase(42, 7, 1064, 64), window_phase(42, 7, 1064, 64));
  EXPECT_EQ(window_phase(1, 1, 65, 64), 0);
}

}  // namespace
}  // namespace mxt::data
