// `dataset prep` as a user runs it: jobs, and bad input.
#include <algorithm>

#include "e2e/cli.h"

namespace mxt {
namespace {

TEST(TokenizerTrain, LearnsFromTextsAndRows) {
  cli::Folder f("tokenizer");
  const std::string line = "the quick brown fox jumps over the lazy dog and the other dogs\n";
  write_file_atomic(f / "a.txt", line + line);
  write_file_atomic(f / "b.jsonl", Json{{"text", line}}.dump() + "\n" + Json{{"text", line}}.dump() + "\n");
  const std::string verb = "tokenizer train --vocab-size 270 ";
  for (const char* input : {"a.txt", "b.jsonl"}) {
    const std::string out = f / (std::string(input) + ".tok");
    auto r = cli::run(verb + "--input " + (f / input) + " --out " + out);
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find("270 tokens"), std::string::npos) << r.out;
    r = cli::run("tokenizer encode --model " + out + " --input " + (f / "a.txt") + " --json --output " + (f / "ids"));
    ASSERT_EQ(r.code, 0) << r.out;
    r = cli::run("tokenizer decode --model " + out + " --input " + (f / "ids") + " --output " + (f / "back"));
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(read_file(f / "back"), line + line + "\n");
    EXPECT_LT(Json::parse(read_file(f / "ids"))["ids"].size(), 2 * line.size());
  }
  // A model's folder is no place for it, rows need the column, and there must be something to learn from.
  write_file_atomic(f / "a.txt.tok/model.safetensors", "x");
  auto r = cli::run(verb + "--input " + (f / "a.txt") + " --out " + (f / "a.txt.tok"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("model.safetensors"), std::string::npos) << r.out;
  EXPECT_EQ(read_file(f / "a.txt.tok/model.safetensors"), "x");
  r = cli::run(verb + "--column body --input " + (f / "b.jsonl") + " --out " + (f / "c"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("b.jsonl:1: the row has no text \"body\""), std::string::npos) << r.out;
  write_file_atomic(f / "null.jsonl", "{\"text\":\"a\"}\n{\"text\":null}\n");
  r = cli::run(verb + "--input " + (f / "null.jsonl") + " --out " + (f / "c"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("null.jsonl:2: \"text\" is no text but null: leave the row out"), std::string::npos) << r.out;
  write_file_atomic(f / "empty.txt", "");
  EXPECT_EQ(cli::run(verb + "--input " + (f / "empty.txt") + " --out " + (f / "c")).code, 1);
  // A vocabulary that the texts cannot fill.
  r = cli::run("tokenizer train --vocab-size 5000 --input " + (f / "a.txt") + " --out " + (f / "c"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("hold no more pairs after"), std::string::npos) << r.out;
  r = cli::run("tokenizer train --vocab-size 300 --min-count 999 --input " + (f / "a.txt") + " --out " + (f / "c"));
  EXPECT_NE(r.out.find("seen 999 times (--min-count)"), std::string::npos) << r.out;
  // A name that is none is no expression to cut by.
  r = cli::run(verb + "--pattern nanochta --input " + (f / "a.txt") + " --out " + (f / "c"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("pattern \"nanochta\" is none of nanochat, gpt2"), std::string::npos) << r.out;
  EXPECT_FALSE(fs::exists(f / "c"));
  // nanochat's numbering: bytes by value, its nine special tokens last.
  r = cli::run("tokenizer train --ties rustbpe --vocab-size 275 --input " + (f / "a.txt") + " --out " + (f / "nano"));
  ASSERT_EQ(r.code, 0) << r.out;
  const Json made = Json::parse(read_file(f / "nano/tokenizer.json"));
  EXPECT_EQ(made["model"]["vocab"]["A"], 65);
  EXPECT_EQ(made["added_tokens"][0]["content"], "<|bos|>");
  EXPECT_EQ(made["added_tokens"][8]["id"], 274);
  EXPECT_EQ(Json::parse(read_file(f / "nano/tokenizer_config.json"))["eos_token"], "<|assistant_end|>");
}

std::string recipe(const std::string& data) {
  return "meta: {project: test, run_name: data}\nhardware: {name: cpu}\n"
         "model: {name: chars, init: random, tokenizer: char, config: {model_type: gpt2, n_layer: 1, n_head: 1, "
         "n_embd: 8, "
         "n_positions: 64}}\ndata: {source: local, seq_len: 64, " +
         data + "}\n";
}

std::string all_of(const std::string& folder) {
  std::string all;
  for (const std::string& f : list_files(folder)) all += f + "\n" + read_file(folder + "/" + f);
  return all;
}

TEST(DatasetPrep, ArrayTasksAndRanksMakeTheSingleRunsFolder) {
  cli::Folder f("jobs");
  for (int k = 0; k < 4; ++k) {
    std::string rows;
    for (int i = 0; i < 50; ++i) rows += fmt::format("{{\"text\":\"row {} of {} copies\"}}\n", i % 30, k % 3);
    make_folders(f / "rows");
    write_file_atomic(f / fmt::format("rows/{}.jsonl", k), rows);
  }
  write_file_atomic(f / "r.yaml", recipe("path: '" + (f / "rows") + "', eval_fraction: 0.1, dedupe: {exact: true}"));
  const std::string prep = "dataset prep " + (f / "r.yaml") + " --out ";
  ASSERT_EQ(cli::run(prep + (f / "single")).code, 0);
  const std::string want = all_of(f / "single");

  for (int id : {14, 10, 12}) {  // an array 10-14:2
    const auto r = cli::run(prep + (f / "array") + " --job auto",
                            fmt::format("SLURM_ARRAY_TASK_ID={} SLURM_ARRAY_TASK_MIN=10 SLURM_ARRAY_TASK_STEP=2 "
                                        "SLURM_ARRAY_TASK_COUNT=3 SLURM_PROCID=0 SLURM_NTASKS=1",
                                        id));
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find(id == 12 ? "exact_copy" : "is done"), std::string::npos) << r.out;  // the last one merges
  }
  EXPECT_EQ(all_of(f / "array"), want);

  for (const auto& [rank, size] : {std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                                   {"PMI_RANK", "PMI_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"}}) {
    const std::string out = f / rank;
    for (int i : {0, 1}) {
      const auto r = cli::run(prep + out + " --job auto --no-merge", fmt::format("{}={} {}=2", rank, i, size));
      ASSERT_EQ(r.code, 0) << r.out;
    }
    EXPECT_FALSE(fs::exists(out + "/dataset.json"));
    const auto merged = cli::run("dataset merge " + (f / "r.yaml") + " --out " + out);
    ASSERT_EQ(merged.code, 0) << merged.out;
    EXPECT_EQ(all_of(out), want);
  }

  // At the same time.
  const std::string job = std::string("'") + kBinary + "' " + prep + (f / "together") + " --job ";
  ASSERT_EQ(std::system(("(" + job + "1/3 & " + job + "2/3 & " + job + "3/3 & wait) >/dev/null 2>&1").c_str()), 0);
  ASSERT_EQ(cli::run("dataset merge " + (f / "r.yaml") + " --out " + (f / "together")).code, 0);
  EXPECT_EQ(all_of(f / "together"), want);

  EXPECT_EQ(cli::run(prep + (f / "no") + " --job auto").code, 1);
  EXPECT_EQ(cli::run(prep + (f / "no") + " --job 4/3").code, 1);
  EXPECT_EQ(cli::run(prep + (f / "no") + " --job x").code, 1);
  const auto none = cli::run("dataset merge " + (f / "r.yaml") + " --out " + (f / "no"));
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.out.find("no job has finished"), std::string::npos) << none.out;
}

TEST(DatasetPrep, BadInputIsOneLineWithFileAndRowAndLeavesNothing) {
  cli::Folder f("bad");
  const std::string good = "{\"text\":\"good\"}\n";
  const struct {
    const char *file, *says, *data;
    std::string bytes;
  } kCases[] = {
      {"torn.jsonl.zst", "torn.jsonl.zst", "", std::string("\x28\xb5\x2f\xfd\x04\x00\x51\x00\x00garbage", 16)},
      {"columns.jsonl", "columns.jsonl:3", "", good + good + "{\"body\":\"no text\"}\n"},
      {"types.jsonl", "types.jsonl:2", "", good + "{\"text\":7}\n"},
      {"kinds.jsonl", "kinds.jsonl:2", "", good + "[1,2]\n"},
      {"utf8.jsonl", "utf8.jsonl:2", "", good + "{\"text\":\"a\xff b\"}\n"},
      {"json.jsonl", "json.jsonl:3", "", good + good + "{\"text\":\n"},
      {"long.jsonl", "long.jsonl:2", "", good + "{\"text\":\"" + std::string(100 << 20, 'x') + "\"}\n"},
      {"empty.jsonl", "empty.jsonl", "", "\n\n"},
      {"none.jsonl", "no row is left", ", filter: {min_words: 100}", good + good},
      {"mapped.jsonl", "mapped.jsonl", ", columns: {body: text}", good},
  };
  for (const auto& c : kCases) {
    write_file_atomic(f / c.file, c.bytes);
    for (const char* more : {"", ", dedupe: {exact: true}"}) {
      write_file_atomic(f / "r.yaml", recipe("path: '" + (f / c.file) + "'" + c.data + more));
      const auto r = cli::run("dataset prep " + (f / "r.yaml") + " --out " + (f / "out"));
      EXPECT_EQ(r.code, 1) << c.file << ": " << r.out;
      EXPECT_NE(r.out.find(c.says), std::string::npos) << c.file << ": " << r.out;
      EXPECT_LT(std::count(r.out.begin(), r.out.end(), '\n'), 4) << r.out;
      if (fs::exists(f / "out")) {
        EXPECT_TRUE(list_files(f / "out").empty()) << c.file;
      }
    }
  }
}

}  // namespace
}  // namespace mxt
