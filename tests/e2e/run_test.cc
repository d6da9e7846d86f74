// Reproducibility, resume, receipts: what a run promises.
#include <sys/stat.h>

#include <map>

#include "base/text.h"
#include "base/within.h"
#include "e2e/cli.h"
#include "formats/safetensors.h"
#include "formats/weight_source.h"

namespace mxt {
namespace {

std::string checkpoint_digest(const std::string& out) {
  Blake3 h;
  for (const auto& f : list_files(out + "/checkpoint")) h.update(f + hash_file(out + "/checkpoint/" + f).blake3);
  return h.hex();
}

// Runs the binary, interrupts it once `started` holds something, and gives its exit code.
int interrupted(std::vector<std::string> arguments, const std::string& started, int signal = SIGTERM) {
  const pid_t child = cli::start(std::move(arguments));
  within(120, [&] { return fs::exists(started) && fs::file_size(started) > 0; });
  return cli::stop(child, signal);
}

TEST(Reproducible, SameBytesTwiceAndForOneAndTwoThreads) {
  for (const char* method : {"{kind: full}", "{kind: lora, r: 4, dropout: 0.1}"})
    for (const char* precision : {"float32", "bfloat16"}) {
      cli::Folder f("repeat");
      cli::Tiny t;
      t.method = method;
      t.precision = precision;
      t.packing = true;
      write_file_atomic(f / "r.yaml", cli::recipe(t));
      std::string first;
      for (const char* threads : {"2", "1", "2"}) {
        const auto plan = first.empty() ? std::string() : " --plan " + (f / "plan.json");
        const std::string out = f / (std::string("out") + std::to_string(first.size()));
        fs::remove_all(out);
        const auto r = cli::run("train " + (f / "r.yaml") + plan + " --out " + out + " --threads " + threads);
        ASSERT_EQ(r.code, 0) << r.out;
        if (first.empty()) {
          first = checkpoint_digest(out);
          write_file_atomic(f / "plan.json", read_file(out + "/plan.json"));
        }
        EXPECT_EQ(checkpoint_digest(out), first) << method << precision << threads;
      }
    }
}

TEST(Reproducible, KilledAndResumedEqualsNeverStopped) {
  cli::Folder f("kill");
  cli::Tiny t;
  t.method = "{kind: lora, r: 4}";
  t.steps = 60;
  t.extra = "  save_every: 3\n  keep_last: 2\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "whole"));
  ASSERT_EQ(r.code, 0) << r.out;
  const std::string want = checkpoint_digest(f / "whole");
  cli::Kills kills(1, 0.35);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const std::string out = f / ("cut" + std::to_string(attempt));
    kills.one({"train", f / "r.yaml", "--plan", f / "whole/plan.json", "--out", out});
    r = cli::run("train " + (f / "r.yaml") + " --plan " + (f / "whole/plan.json") + " --out " + out + " --resume");
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(checkpoint_digest(out), want) << "attempt " << attempt;
    EXPECT_EQ(cli::lines(out + "/metrics.jsonl").size(), 60u);
  }
  EXPECT_GT(kills.in_time, 0);
}

// A step that training goes back to is the newest one from then on, whenever it is killed.
TEST(Reproducible, KilledAfterResumeFromGoesOnFromThere) {
  cli::Folder f("back");
  cli::Tiny t;
  t.method = "{kind: lora, r: 4}";
  t.steps = 600;
  t.extra = "  save_every: 200\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const std::string out = f / "out", log = out + "/metrics.jsonl", train = "train " + (f / "r.yaml") + " --out " + out;
  auto r = cli::run(train);
  ASSERT_EQ(r.code, 0) << r.out;
  const std::string want = checkpoint_digest(out);
  // Again where the kill came too late.
  EXPECT_TRUE(within(120, [&] {
    const pid_t child = cli::start({"train", f / "r.yaml", "--out", out, "--resume-from", "200"});
    within(60, [&, before = fs::file_size(log)] { return fs::file_size(log) < before; });
    cli::stop(child, SIGKILL);
    return !fs::exists(out + "/checkpoints/step-400");
  }));
  r = cli::run(train + " --resume");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(checkpoint_digest(out), want);
  const auto lines = cli::lines(log);
  ASSERT_EQ(lines.size(), 600u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  // TensorBoard reads the files in the order of their names; each says from which step on it replaces the earlier ones.
  const auto events = list_files(out + "/tensorboard");
  ASSERT_GE(events.size(), 2u);
  const std::string start = ":\x02\x08\x01";  // field 7, a session log: status START
  EXPECT_NE(read_file(out + "/tensorboard/" + events.front()).find("\x10\x01" + start), std::string::npos);
  EXPECT_NE(read_file(out + "/tensorboard/" + events.back()).find("\x10\xc9\x01" + start), std::string::npos);
}

TEST(Reproducible, AResumeThatDoesNotFitLeavesThePlan) {
  cli::Folder f("threads");
  cli::Tiny t;
  t.steps = 600;
  t.extra = "  save_every: 3\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const std::string out = f / "out", train = "train " + (f / "r.yaml") + " --out " + out;
  ASSERT_EQ(interrupted({"train", f / "r.yaml", "--out", out, "--threads", "1"}, out + "/metrics.jsonl"), 4);
  const std::string plan = read_file(out + "/plan.json");
  auto r = cli::run(train + " --resume --threads 2");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("run with --threads 1"), std::string::npos) << r.out;
  Json other = Json::parse(plan);
  other["device"]["threads"] = 2;
  write_file_atomic(f / "other.json", other.dump());
  r = cli::run(train + " --resume --threads 1 --plan " + (f / "other.json"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("resume without --plan"), std::string::npos) << r.out;
  EXPECT_EQ(read_file(out + "/plan.json"), plan);
  r = cli::run(train + " --resume --threads 1");
  EXPECT_EQ(r.code, 0) << r.out;
}

// A write that fails half-way (here by a limit on the size of files, which looks to a program as a full disk does) ends
// the run with one line; what was saved before is whole, and with room again the run ends with the bytes of one that
// was never disturbed.
TEST(Reproducible, FullDiskLeavesTheLastGoodCheckpoint) {
  cli::Folder f("disk");
  cli::Tiny t;
  t.method = "{kind: lora, r: 64}";
  t.steps = 600;
  t.extra = "  save_every: 3\n  keep_last: 2\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const std::string train = "train " + (f / "r.yaml");
  ASSERT_EQ(cli::run(train + " --out " + (f / "whole")).code, 0);
  const std::string out = f / "cut", plan = " --plan " + (f / "whole/plan.json");
  ASSERT_EQ(interrupted({"train", f / "r.yaml", "--plan", f / "whole/plan.json", "--out", out}, out + "/metrics.jsonl"),
            4);
  std::map<std::string, std::string> good;
  for (const auto& file : list_files(out + "/checkpoints")) good[file] = hash_file(out + "/checkpoints/" + file).blake3;
  ASSERT_FALSE(good.empty());
  const auto r = cli::run(train + plan + " --out " + out + " --resume", "trap '' XFSZ; ulimit -f 40;");
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find(out + "/"), std::string::npos) << r.out;
  for (const auto& [file, digest] : good) EXPECT_EQ(hash_file(out + "/checkpoints/" + file).blake3, digest) << file;
  const auto again = cli::run(train + plan + " --out " + out + " --resume");
  ASSERT_EQ(again.code, 0) << again.out;
  EXPECT_EQ(checkpoint_digest(out), checkpoint_digest(f / "whole"));
}

TEST(Reproducible, InterruptSavesAndExitsFour) {
  cli::Folder f("interrupt");
  cli::Tiny t;
  t.steps = 5000;
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  EXPECT_EQ(interrupted({"train", f / "r.yaml", "--out", f / "out"}, f / "out/metrics.jsonl"), 4);
  EXPECT_FALSE(fs::is_empty(f / "out/checkpoints"));
}

// Also by the terminal that was closed, and before there is anything to save.
TEST(Interrupted, AProbeEndsAtOnceAndTheNextRunBeginsAgain) {
  cli::Folder f("probe");
  cli::Tiny t;
  t.probe = true;
  t.steps = 3;
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  for (const int signal : {SIGHUP, SIGINT}) {
    const std::string out = f / std::to_string(signal);
    EXPECT_EQ(interrupted({"run", f / "r.yaml", "--out", out}, out + "/recipe.yaml", signal), 4);
    EXPECT_FALSE(fs::exists(out + "/plan.json"));
    const auto r = cli::run("run " + (f / "r.yaml") + " --out " + out);
    EXPECT_EQ(r.code, 0) << r.out;
  }
}

TEST(Usage, WhatEveryProcessOfARunHasSpentIsInItsReceipt) {
  cli::Folder f("usage");
  cli::Tiny t;
  t.method = "{kind: lora, r: 4}";
  t.steps = 2000;
  std::string recipe = cli::recipe(t);
  recipe.replace(recipe.find("{name: cpu}"), 11, "{name: cpu, usd_per_hour: 3600}");  // a dollar a second
  write_file_atomic(f / "r.yaml", recipe);
  const std::string out = f / "out";
  ASSERT_EQ(interrupted({"run", f / "r.yaml", "--out", out}, out + "/metrics.jsonl"), 4);
  const double first = read_json_file(out + "/usage.json")["run_seconds"];
  EXPECT_GT(first, 0);
  for (int time = 0; time < 2; ++time) {  // the second finds everything done and costs nothing
    const auto r = cli::run("run " + (f / "r.yaml") + " --out " + out);
    ASSERT_EQ(r.code, 0) << r.out;
    const Json spent = read_json_file(out + "/manifest.json")["predicate"]["environment"];
    EXPECT_GT(spent["run_seconds"].get<double>(), first);
    EXPECT_NEAR(spent["cost_usd"].get<double>(), spent["run_seconds"].get<double>(), 1e-9);
    EXPECT_EQ(read_json_file(out + "/receipt.json")["cost_usd"], spent["cost_usd"]);
    EXPECT_EQ(read_json_file(out + "/usage.json")["cost_usd"], spent["cost_usd"]);
  }
}

// Weights are saved in the type that the recipe names, with how the base is sampled.
TEST(Checkpoint, OfFullTrainingHasTheNamedTypeAndTheBasesSampling) {
  cli::Folder f("types");
  const std::string base = f / "base";
  std::filesystem::copy(cli::golden("qwen3_gqa"), base);
  write_file_atomic(base + "/generation_config.json", "{\"temperature\": 0.6}\n");
  for (const auto& [name, type] :
       {std::pair{"float32", DType::kF32}, {"float16", DType::kF16}, {"bfloat16", DType::kBF16}}) {
    cli::Tiny t;
    t.steps = 1;
    std::string recipe = cli::recipe(t);
    const std::string was = "name: \"" + cli::golden(t.model) + "\", torch_dtype: float32";
    recipe.replace(recipe.find(was), was.size(), "name: \"" + base + "\", torch_dtype: " + name);
    write_file_atomic(f / "r.yaml", recipe);
    const std::string out = f / name;
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
    ASSERT_EQ(r.code, 0) << r.out;
    const auto weights = formats::WeightSource::open(out + "/checkpoint");
    for (const std::string& tensor : weights->names()) EXPECT_EQ(weights->stored_type(tensor), type) << tensor;
    EXPECT_EQ(read_file(out + "/checkpoint/generation_config.json"), read_file(base + "/generation_config.json"));
  }
}

// Dropout too is of the step's rows, however they are cut: before A, of the embedding and the residuals, of attention.
TEST(Accumulation, EightTimesOneEqualsOneTimesEight) {
  cli::Folder f("accumulation");
  const std::string dropouts = f / "gpt2";
  std::filesystem::copy(cli::golden("gpt2"), dropouts);
  Json config = read_json_file(dropouts + "/config.json");
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config[key] = 0.3;
  write_file_atomic(dropouts + "/config.json", config.dump());
  struct Case {
    std::string model, method;
  };
  for (const Case& c : {Case{"qwen3_gqa", "{kind: full}"}, Case{"qwen3_gqa", "{kind: lora, r: 4, dropout: 0.4}"},
                        Case{"gpt2", "{kind: full}"}}) {
    SCOPED_TRACE(c.model + " " + c.method);
    std::vector<double> losses[2];
    for (int i = 0; i < 2; ++i) {
      cli::Tiny t;
      t.model = c.model, t.method = c.method;
      t.per_device = i == 0 ? 8 : 1;
      t.grad_accum = i == 0 ? 1 : 8;
      t.steps = 5;
      std::string recipe = cli::recipe(t);
      const std::string folder = "model: {name: \"" + cli::golden("gpt2");
      if (const size_t at = recipe.find(folder); at != std::string::npos)
        recipe.replace(at, folder.size(), "model: {name: \"" + dropouts);
      write_file_atomic(f / "r.yaml", recipe);
      const std::string out = f / (c.model + c.method.substr(7, 4) + std::to_string(i));
      const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
      ASSERT_EQ(r.code, 0) << r.out;
      for (const auto& m : cli::lines(out + "/metrics.jsonl")) losses[i].push_back(m["loss"]);
    }
    ASSERT_EQ(losses[0].size(), losses[1].size());
    for (size_t s = 0; s < losses[0].size(); ++s) EXPECT_NEAR(losses[0][s], losses[1][s], 2e-5 * losses[0][s]);
  }
}

TEST(Receipt, OneFlippedByteIsNamed) {
  cli::Folder f("receipt");
  cli::Tiny t;
  t.steps = 2;
  t.method = "{kind: lora, r: 4}";
  write_file_atomic(f / "r.yaml", cli::recipe(t) + "receipt: {output: \"" + (f / "receipt.json") + "\"}\n");
  auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const std::string manifest = f / "out/manifest.json";
  EXPECT_EQ(cli::run("receipt " + manifest).code, 0);
  size_t flipped = 0;
  for (const std::string name : {"recipe.yaml", "plan.json", "checkpoint/adapter_model.safetensors",
                                 "checkpoint/adapter_config.json", "dataset/dataset.json"}) {
    const std::string path = f / ("out/" + name);
    const std::string good = read_file(path);
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
    write_file_atomic(path, bad);
    r = cli::run("receipt " + manifest);
    EXPECT_EQ(r.code, 2) << name;
    EXPECT_NE(r.out.find(name), std::string::npos) << r.out;
    write_file_atomic(path, good);
    ++flipped;
  }
  EXPECT_EQ(flipped, 5u);
  EXPECT_EQ(cli::run("receipt " + manifest).code, 0);
}

TEST(Run, KeepsWhatIsFinished) {
  cli::Folder f("keep");
  cli::Tiny t;
  t.steps = 4;
  write_file_atomic(f / "r.yaml", cli::recipe(t) + "receipt: {output: \"" + (f / "receipt.json") + "\"}\n");
  auto r = cli::run("run " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  // The last line can be typed where the program is not on the PATH.
  EXPECT_NE(r.out.find(std::string("\n") + kBinary + " chat --model "), std::string::npos) << r.out;
  const std::string digest = checkpoint_digest(f / "out");
  r = cli::run("run " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("already finished"), std::string::npos) << r.out;
  EXPECT_EQ(checkpoint_digest(f / "out"), digest);
  // Nothing that was edited since goes under a new manifest.
  std::string log = read_file(f / "out/metrics.jsonl");
  log[log.find("loss") + 8] ^= 1;
  write_file_atomic(f / "out/metrics.jsonl", log);
  r = cli::run("run " + (f / "r.yaml") + " --out " + (f / "out"));
  EXPECT_EQ(r.code, 2) << r.out;
  EXPECT_NE(r.out.find("metrics.jsonl: was changed"), std::string::npos) << r.out;
}

// The best evaluation's step is kept though it is none of those of save_every.
TEST(Run, KeepsTheBestStep) {
  cli::Folder f("best");
  cli::Tiny t;
  t.steps = 23;
  t.extra = "  save_every: 10\n  keep_last: 1\n  eval_every: 3\n";
  std::string recipe = cli::recipe(t);
  recipe.replace(recipe.find("shuffle: false"), 14, "shuffle: false, eval_fraction: 0.2");
  write_file_atomic(f / "r.yaml", recipe);
  ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --out " + (f / "out")).code, 0);
  int64_t best = -1;
  double least = 1e9;
  for (const std::string log = read_file(f / "out/metrics.jsonl"); std::string_view line : split(log, '\n')) {
    if (line.empty()) continue;
    const Json m = Json::parse(line);
    if (m.contains("eval_loss") && m["step"] != t.steps && m["eval_loss"] < least)
      least = m["eval_loss"], best = m["step"];
  }
  ASSERT_GT(best, 0);
  EXPECT_TRUE(fs::exists(f / ("out/checkpoints/step-" + std::to_string(best)))) << best;
  EXPECT_TRUE(fs::exists(f / "out/checkpoints/step-20"));
  EXPECT_FALSE(fs::exists(f / "out/checkpoints/step-10")) << best;
}

// What a process left that was killed between saving a step and removing an older one, or within either.
TEST(Run, StepsThatAKilledOneLeftAreRemoved) {
  cli::Folder f("left");
  cli::Tiny t;
  t.steps = 8;
  t.extra = "  save_every: 2\n  keep_last: 1\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const std::string train = "train " + (f / "r.yaml") + " --out " + (f / "out"), steps = f / "out/checkpoints";
  ASSERT_EQ(cli::run(train).code, 0);
  fs::remove_all(f / "out/checkpoint");
  fs::remove(f / "out/manifest.json");
  fs::copy(steps + "/step-6", steps + "/step-4");
  for (const char* partial : {"/step-2", "/step-8.tmp"}) {
    make_folders(steps + partial);
    fs::copy(steps + "/step-6/state.safetensors", steps + partial);
  }
  const auto r = cli::run(train + " --resume");
  ASSERT_EQ(r.code, 0) << r.out;
  std::vector<std::string> left;
  for (const auto& e : fs::directory_iterator(steps)) left.push_back(e.path().filename());
  EXPECT_EQ(left, std::vector<std::string>{"step-6"});
}

// The weights that training starts from are a part of what a run is.
TEST(Run, OtherBaseWeightsAreTrainedAnew) {
  cli::Folder f("base");
  fs::copy(cli::golden("qwen3_gqa"), f / "model", fs::copy_options::recursive);
  cli::Tiny t;
  t.method = "{kind: lora, r: 4}";
  t.steps = 600;  // more than pass between the first and a signal
  t.extra = "  save_every: 100\n";
  std::string recipe = cli::recipe(t);
  const std::string from = cli::golden("qwen3_gqa");
  for (size_t at; (at = recipe.find(from)) != std::string::npos;) recipe.replace(at, from.size(), f / "model");
  write_file_atomic(f / "r.yaml", recipe);
  const std::string train = "train " + (f / "r.yaml") + " --out ";
  ASSERT_EQ(cli::run(train + (f / "out")).code, 0);
  const std::string first = checkpoint_digest(f / "out");
  ASSERT_EQ(interrupted({"train", f / "r.yaml", "--out", f / "cut"}, f / "cut/metrics.jsonl"), 4);

  std::string weights = read_file(f / "model/model.safetensors");
  weights[weights.size() - 2] = static_cast<char>(weights[weights.size() - 2] ^ 0x40);
  write_file_atomic(f / "model/model.safetensors", weights);
  auto r = cli::run(train + (f / "cut") + " --resume");
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("another base model"), std::string::npos) << r.out;
  r = cli::run(train + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(r.out.find("already finished"), std::string::npos) << r.out;
  EXPECT_NE(checkpoint_digest(f / "out"), first);
  ASSERT_EQ(cli::run(train + (f / "fresh")).code, 0);
  EXPECT_EQ(checkpoint_digest(f / "out"), checkpoint_digest(f / "fresh"));
}

// Who begins anew without --resume, and is stopped, finds his own state, not the earlier try's.
TEST(Interrupted, TheStateThatIsSaidToBeSavedIsThere) {
  cli::Folder f("anew");
  cli::Tiny t;
  t.steps = 3000;
  t.extra = "  save_every: 1000\n  keep_last: 1\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  make_folders(f / "out/checkpoints");
  ASSERT_EQ(interrupted({"train", f / "r.yaml", "--out", f / "out"}, f / "out/checkpoints/step-1000/state.json"), 4);
  fs::remove(f / "out/metrics.jsonl");
  ASSERT_EQ(interrupted({"train", f / "r.yaml", "--out", f / "out"}, f / "out/metrics.jsonl"), 4);
  const auto done = static_cast<int64_t>(cli::lines(f / "out/metrics.jsonl").size());
  ASSERT_LT(done, 1000);
  EXPECT_TRUE(fs::exists(f / fmt::format("out/checkpoints/step-{}", done)));
  EXPECT_FALSE(fs::exists(f / "out/checkpoints/step-1000"));
  // What was saved is checked before it is gone on from.
  const std::string state = f / fmt::format("out/checkpoints/step-{}/state.safetensors", done);
  std::string bytes = read_file(state);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file_atomic(state, bytes);
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out") + " --resume");
  EXPECT_EQ(r.code, 2) << r.out;
  EXPECT_NE(r.out.find("is not as it was saved"), std::string::npos) << r.out;
}

// LongRoPE has other frequencies for longer texts: a row of 80 tokens beside one of 20 changes nothing for that one.
TEST(Score, ARowsNumbersDoNotDependOnTheOthers) {
  cli::Folder f("score_longrope");
  const auto row = [](int n, int first) {
    Json ids = Json::array();
    for (int i = 0; i < n; ++i) ids.push_back((first + 7 * i) % 96);
    return Json{{"ids", ids}}.dump() + "\n";
  };
  const auto score = [&](const std::string& rows) {
    write_file_atomic(f / "rows.jsonl", rows);
    const auto r = cli::run("score --model " + cli::golden("phi3_longrope") + " --dtype float32 --input " +
                            (f / "rows.jsonl") + " --output " + (f / "out.jsonl"));
    EXPECT_EQ(r.code, 0) << r.out;
    return cli::lines(f / "out.jsonl");
  };
  const std::string brief = row(20, 3), long_one = row(80, 5), at_most = row(64, 11);
  const auto all = score(long_one + brief + at_most + brief);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0], score(long_one).at(0));
  EXPECT_EQ(all[1], score(brief).at(0));
  EXPECT_EQ(all[2], score(at_most).at(0));
  EXPECT_EQ(all[3], all[1]);
  EXPECT_NE(score(row(20, 5)).at(0)["logprobs"][19], all[0]["logprobs"][19]);
}

TEST(Merge, NeedsNoTokenizerAndNeverWritesOverItsInputs) {
  const cli::Folder f("merge");
  fs::copy(cli::golden("qwen3_gqa"), f / "base", fs::copy_options::recursive);
  const std::string merge = "merge --model " + (f / "base") + " --adapter " + (f / "base/adapter") + " --out ";
  auto r = cli::run(merge + (f / "merged"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("has no tokenizer files"), std::string::npos) << r.out;
  EXPECT_TRUE(fs::exists(f / "merged/model.safetensors"));
  // A tokenizer of a kind that this program does not read goes along all the same.
  write_file_atomic(f / "base/tokenizer.model", "sentencepiece");
  ASSERT_EQ(cli::run(merge + (f / "again")).code, 0);
  EXPECT_EQ(read_file(f / "again/tokenizer.model"), "sentencepiece");
  EXPECT_EQ(read_file(f / "again/model.safetensors"), read_file(f / "merged/model.safetensors"));
  ASSERT_EQ(cli::run(merge + (f / "again")).code, 0);  // made again in its place
  // Another model is no place for it.
  fs::copy(cli::golden("qwen3_tied"), f / "other", fs::copy_options::recursive);
  EXPECT_NE(cli::run(merge + (f / "other")).out.find("holds something else"), std::string::npos);
  EXPECT_EQ(read_file(f / "other/model.safetensors"), read_file(cli::golden("qwen3_tied") + "/model.safetensors"));
  const std::string weights = read_file(f / "base/model.safetensors");
  EXPECT_EQ(cli::run(merge + (f / "base")).code, 1);
  EXPECT_EQ(cli::run(merge + (f / "base/adapter")).code, 1);
  EXPECT_EQ(read_file(f / "base/model.safetensors"), weights);
}

// Norms in float32 and a head in float16 beside matrices in bfloat16, as trainers leave them.
TEST(Merge, LeavesEachTensorTheTypeThatItHasInTheBase) {
  const cli::Folder f("merge_types");
  const std::string golden = cli::golden("qwen3_gqa");
  fs::copy(golden, f / "base", fs::copy_options::recursive);
  const auto plain = formats::Safetensors::open(golden + "/model.safetensors");
  std::vector<formats::TensorSpec> specs;
  for (const auto& t : plain.tensors())
    specs.push_back({t.name,
                     t.shape.size() < 2           ? DType::kF32
                     : t.name == "lm_head.weight" ? DType::kF16
                                                  : DType::kBF16,
                     {t.shape.begin(), t.shape.end()}});
  specs = formats::SafetensorsWriter::usual_order(std::move(specs));
  formats::SafetensorsWriter writer(f / "base/model.safetensors", specs);
  for (const auto& s : specs) {
    const auto from = plain.bytes(plain.at(s.name));
    std::vector<std::byte> bytes(from.size() / 4 * size_of(s.type));
    convert(from.data(), DType::kF32, bytes.data(), s.type, from.size() / 4);
    writer.append(bytes.data(), bytes.size());
  }
  writer.commit();
  const std::string merge = "merge --model " + (f / "base") + " --adapter " + (f / "base/adapter") + " --out ";
  const auto r = cli::run(merge + (f / "merged"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("written as BF16, F16, F32, each tensor as the base has it"), std::string::npos) << r.out;
  const auto base = formats::Safetensors::open(f / "base/model.safetensors"),
             merged = formats::Safetensors::open(f / "merged/model.safetensors");
  for (const auto& t : base.tensors()) {
    ASSERT_EQ(merged.at(t.name).type, t.type) << t.name;
    const auto a = base.bytes(t), b = merged.bytes(merged.at(t.name));
    if (t.shape.size() < 2) {
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << t.name;
    }
  }
  EXPECT_EQ(read_json_file(f / "merged/config.json")["dtype"], read_json_file(f / "base/config.json")["dtype"]);
  ASSERT_EQ(cli::run(merge + (f / "half") + " --dtype bfloat16").code, 0);
  const auto half = formats::Safetensors::open(f / "half/model.safetensors");
  for (const auto& t : half.tensors()) EXPECT_EQ(t.type, DType::kBF16) << t.name;
  // What computes with them says that there are several.
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3]}\n");
  const auto score =
      cli::run("score --model " + (f / "merged") + " --input " + (f / "rows.jsonl") + " --output " + (f / "out.jsonl"));
  EXPECT_NE(score.out.find("the checkpoint being BF16 but for "), std::string::npos) << score.out;
}

TEST(Threads, AnImpossibleNumberIsRefused) {
  const cli::Folder f("threads");
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3]}\n");
  const std::string score =
      "score --model " + cli::golden("gpt2") + " --input " + (f / "rows.jsonl") + " --output " + (f / "o.jsonl");
  EXPECT_EQ(cli::run(score + " --threads 2").code, 0);
  for (const char* n : {"-3", "100000", "x"}) EXPECT_EQ(cli::run(score + " --threads " + n).code, 1) << n;
  for (const char* n : {"abc", "-1", "0", "100000", "99999999999999999999"})
    EXPECT_EQ(cli::run(score, std::string("OMP_NUM_THREADS=") + n).code, 1) << n;
}

TEST(Answers, ThatDoNotReachTheirFileAreNoSuccess) {
  const cli::Folder f("answers");
  const auto code = [](const std::string& command) {
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string binary = std::string("'") + kBinary + "' ";
  EXPECT_EQ(code(binary + "schema > /dev/full 2> /dev/null"), 1);
  EXPECT_EQ(code(binary + "init --list > /dev/full 2> /dev/null"), 1);
  EXPECT_EQ(code(binary + "schema >&- 2> /dev/null"), 0);
  EXPECT_EQ(code("sh -c \"" + binary + "schema; echo \\$? > " + (f / "rc") + "\" | head -c 1 > /dev/null"), 0);
  within(60, [&] { return fs::exists(f / "rc"); });
  EXPECT_EQ(read_file(f / "rc"), "0\n");  // the reader had what it wanted
  // A pipe is not replaced by a file, and not waited for without end.
  ASSERT_EQ(mkfifo((f / "pipe").c_str(), 0600), 0);
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3]}\n");
  const auto r =
      cli::run("score --model " + cli::golden("gpt2") + " --input " + (f / "rows.jsonl") + " --output " + (f / "pipe"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("is a pipe that nobody reads"), std::string::npos) << r.out;
  EXPECT_TRUE(fs::is_fifo(f / "pipe"));
  EXPECT_EQ(
      code("cat " + (f / "pipe") + " > " + (f / "read") + " & " + binary + "score --model " + cli::golden("gpt2") +
           " --input " + (f / "rows.jsonl") + " --output " + (f / "pipe") + " 2> /dev/null; r=$?; wait; exit $r"),
      0);
  EXPECT_NE(read_file(f / "read").find("logprobs"), std::string::npos);
  const auto limit = cli::run("runs list --limit -1");
  EXPECT_EQ(limit.code, 1);
  EXPECT_LT(limit.out.size(), 200u) << limit.out;
}

}  // namespace
}  // namespace mxt
