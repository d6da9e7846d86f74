// Recipes for other trainers: written, and run by TRL where it is installed for MINDXTRAIN_PYTHON (else python3).
#include "e2e/cli.h"
#include "folders.h"

namespace mxt::cli {
namespace {

bool says(const Result& r, const std::string& part) { return r.out.find(part) != std::string::npos; }

TEST(ExportVerb, WritesSettingsAndRowsAndSaysWhatDiffers) {
  Folder f("export_verb");
  const Result r = run("export quickstart_cpu --for trl --out " + (f / "trl"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(says(r, f / "trl/trl.yaml") && says(r, "data.packing")) << r.out;
  const std::string yaml = read_file(f / "trl/trl.yaml");
  EXPECT_NE(yaml.find("model_name_or_path: HuggingFaceTB/SmolLM2-135M-Instruct\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("# run: trl sft --config "), std::string::npos);
  EXPECT_EQ(lines(f / "trl/data/train.jsonl").size(), 110u);
  EXPECT_EQ(lines(f / "trl/data/test.jsonl").size(), 60u);
  const Result no = run("export quickstart_cpu --for torchtune --out " + (f / "torchtune"));
  EXPECT_EQ(no.code, 3) << no.out;
  EXPECT_FALSE(fs::exists(f / "torchtune"));
  const Result grpo = run("export qwen3_32b_grpo --for axolotl --out " + (f / "grpo"));
  EXPECT_EQ(grpo.code, 3) << grpo.out;
  EXPECT_TRUE(says(grpo, "train.method.kind: axolotl cannot train by grpo")) << grpo.out;
  const Result wrong = run("export quickstart_cpu --for axolotol --out " + (f / "x"));
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(says(wrong, "did you mean axolotl?")) << wrong.out;
}

TEST(ExportVerb, PreparedTokensStandInForTheRows) {
  Folder f("export_tokens");
  write_file_atomic(f / "r.yaml", recipe({}));
  ASSERT_EQ(run("dataset prep " + (f / "r.yaml") + " --out " + (f / "data")).code, 0);
  const Result r = run("export " + (f / "r.yaml") + " --for axolotl --data " + (f / "data") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto rows = lines(f / "out/data/train.jsonl");
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0]["input_ids"].size(), rows[0]["labels"].size());
  EXPECT_EQ(rows[0]["input_ids"].size(), rows[0]["attention_mask"].size());
}

TEST(Backend, WithoutTrlOrForAnotherTrainerTheRemedyIsNamed) {
  Folder f("backend_none");
  write_file_atomic(f / "r.yaml", recipe({.extra = "  backend: trl\n"}));
  const Result r = run("run " + (f / "r.yaml") + " --out " + (f / "out"), "MINDXTRAIN_PYTHON=/bin/false");
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_TRUE(says(r, "pip install trl peft") && says(r, "MINDXTRAIN_PYTHON=")) << r.out;
  write_file_atomic(f / "a.yaml", recipe({.extra = "  backend: axolotl\n"}));
  const Result a = run("run " + (f / "a.yaml") + " --out " + (f / "a"));
  EXPECT_EQ(a.code, 3) << a.out;
  EXPECT_TRUE(says(a, "mindxtrain export ")) << a.out;
}

// What qlora wants of TRL's side is asked before rows are prepared.
TEST(Backend, QLoraWithoutBitsandbytesIsRefusedBeforeRowsArePrepared) {
  Folder f("backend_bnb");
  const std::string fake = f / "python";
  write_file_atomic(fake, "#!/bin/sh\necho '{\"python\":\"3\",\"trl\":\"1\",\"peft\":\"1\"}'\n");
  fs::permissions(fake, fs::perms::owner_all);
  write_file_atomic(f / "r.yaml", recipe({.method = "{kind: qlora}", .extra = "  backend: trl\n"}));
  const Result r = run("run " + (f / "r.yaml") + " --out " + (f / "out"), "MINDXTRAIN_PYTHON=" + fake);
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_TRUE(says(r, "it wants bitsandbytes") && says(r, fake + " -m pip install bitsandbytes")) << r.out;
  EXPECT_FALSE(fs::exists(f / "out/dataset"));
}

// A full disk under the trainer, say: the line names it, whatever the libraries made of it and write at their end.
TEST(Backend, WhatTrlFailsOfIsNamed) {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  Folder f("backend_cause");
  make_folders(f / "fake");
  write_file_atomic(f / "fake/torch.py", R"(import atexit, sys
atexit.register(lambda: print("100%|####| 8/8", file=sys.stderr))
try:
    raise OSError(28, "No space left on device")
except OSError as full:
    raise RuntimeError("An error occurred") from full
)");
  const std::string fake = f / "python";
  write_file_atomic(fake, fmt::format(R"sh(#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in */launch.py)
    exec python3 -c "import sys; sys.path.insert(0, '{}'); sys.argv = sys.argv[1:]; exec(open(sys.argv[0]).read())" "$@";;
  esac
  shift
done
echo '{{"python":"3","trl":"1","peft":"1"}}'
)sh",
                                      f / "fake"));
  fs::permissions(fake, fs::perms::owner_all);
  write_file_atomic(f / "r.yaml", recipe({.extra = "  backend: trl\n"}));
  const Result r = run("train " + (f / "r.yaml") + " --out " + (f / "out"), "MINDXTRAIN_PYTHON=" + fake);
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_TRUE(says(r, "its last line: OSError: [Errno 28] No space left on device (all of it: ")) << r.out;
}

// A trl.py of somebody's own, say.
TEST(Backend, ProgramsInTheWorkingDirectoryAreNotTakenForPackages) {
  Folder f("backend_own");
  make_folders(f / "work");
  for (const char* name : {"trl", "transformers", "peft", "torch", "datasets"})
    write_file_atomic(f / (std::string("work/") + name + ".py"), "__version__ = 'own'\n");
  write_file_atomic(f / "r.yaml", recipe({.extra = "  backend: trl\n"}));
  const Result r = run("run " + (f / "r.yaml") + " --out " + (f / "out"),
                       "cd " + (f / "work") + "; MINDXTRAIN_PYTHON=/usr/bin/python3");
  EXPECT_FALSE(says(r, "trl own")) << r.out;
}

TEST(Backend, WhatTrlCannotExpressIsRefusedBeforeAnythingIsPrepared) {
  const std::pair<const char*, const char*> bad[] = {
      {"{kind: dpo, loss: simpo}", "train.method.loss: TRL cannot train by simpo"},
      {"{kind: lora, lora_plus: 4}", "train.method.lora_plus"},
      {"{kind: rloo}", "full, lora, qlora, cpt, dpo, orpo, kto and reward"},
  };
  for (const auto& [method, message] : bad) {
    Folder f("backend_cannot");
    write_file_atomic(f / "r.yaml", recipe({.method = method, .extra = "  backend: trl\n", .per_device = 4}));
    const Result r = run("run " + (f / "r.yaml") + " --out " + (f / "out"));
    EXPECT_EQ(r.code, 3) << r.out;
    EXPECT_TRUE(says(r, message)) << r.out;
    EXPECT_FALSE(fs::exists(f / "out/dataset"));
  }
}

// The same rows in the same order at the same rates: what TRL trains is what this program trains, to rounding; its
// checkpoint passes the receipt, which says who trained.
TEST(Backend, TrlTrainsOurRowsAndItsCheckpointPassesOurReceipt) {
  if (!has_trl()) GTEST_SKIP() << "trl and peft are not installed for " << python();
  for (const bool packing : {false, true}) {
    Folder f(packing ? "backend_packed" : "backend_trl");
    Tiny t{.method = "{kind: full}", .grad_accum = 2, .steps = packing ? 4 : 12, .packing = packing};
    const auto shuffled = [](std::string text) {
      const std::string was = "shuffle: false";
      return text.replace(text.find(was), was.size(), "shuffle: true");
    };
    write_file_atomic(f / "native.yaml", shuffled(recipe(t)));
    t.extra = "  backend: trl\n";
    write_file_atomic(f / "trl.yaml", shuffled(recipe(t)));
    ASSERT_EQ(run("run " + (f / "native.yaml") + " --out " + (f / "native")).code, 0);
    const Result r = run("run " + (f / "trl.yaml") + " --out " + (f / "trl"));
    ASSERT_EQ(r.code, 0) << r.out
                         << (fs::exists(f / "trl/trainer/log.txt") ? read_file(f / "trl/trainer/log.txt") : "");
    const auto ours = lines(f / "native/metrics.jsonl"), theirs = lines(f / "trl/metrics.jsonl");
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i)
      for (const char* key : {"loss", "grad_norm", "lr", "tokens"})
        EXPECT_NEAR(ours[i][key].get<double>(), theirs[i][key].get<double>(), 1e-4 * ours[i][key].get<double>())
            << key << " of step " << i + 1;
    EXPECT_TRUE(says(r, "not bit for bit")) << r.out;
    const Result checked = run("receipt " + (f / "trl/manifest.json"));
    EXPECT_EQ(checked.code, 0) << checked.out;
    const Json manifest = read_json_file(f / "trl/manifest.json");
    EXPECT_EQ(manifest["predicate"]["identities"]["trainer"]["name"], "trl");
    EXPECT_TRUE(manifest["predicate"]["identities"]["trainer"]["versions"]["trl"].is_string());
    const Result replayed = run("receipt " + (f / "trl/manifest.json") + " --replay");
    EXPECT_EQ(replayed.code, 1) << replayed.out;
    EXPECT_TRUE(says(replayed, "cannot be replayed bit for bit")) << replayed.out;
  }
}

// On a busy machine importing torch takes minutes.
TEST(Backend, IsStoppedWhilePythonIsAskedForItsPackages) {
  Folder f("backend_asked");
  const std::string slow = f / "python", asked = f / "asked";
  write_file_atomic(slow, "#!/bin/sh\ntouch '" + asked + "'\nsleep 100\n");
  fs::permissions(slow, fs::perms::owner_all);
  write_file_atomic(f / "r.yaml", recipe({.extra = "  backend: trl\n"}));
  const std::string before = python();
  setenv("MINDXTRAIN_PYTHON", slow.c_str(), 1);
  const pid_t child = start({"run", f / "r.yaml", "--out", f / "out"});
  setenv("MINDXTRAIN_PYTHON", before.c_str(), 1);
  for (int i = 0; i < 600 && !fs::exists(asked); ++i) usleep(100'000);
  const auto since = std::chrono::steady_clock::now();
  EXPECT_EQ(stop(child, SIGINT), 4);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(50));
}

TEST(Backend, TrlIsStoppedSafelyAndGoesOn) {
  if (!has_trl()) GTEST_SKIP() << "trl and peft are not installed for " << python();
  Folder f("backend_stop");
  write_file_atomic(f / "r.yaml",
                    recipe({.method = "{kind: lora, r: 4, alpha: 8}", .extra = "  backend: trl\n", .steps = 4000}));
  const pid_t child = start({"run", f / "r.yaml", "--out", f / "out"});
  for (int i = 0; i < 1200 && (!fs::exists(f / "out/metrics.jsonl") || read_file(f / "out/metrics.jsonl").empty()); ++i)
    usleep(100'000);
  ASSERT_EQ(stop(child, SIGTERM), 4);
  const auto before = lines(f / "out/metrics.jsonl");
  ASSERT_FALSE(before.empty());
  ASSERT_LT(before.size(), 4000u);
  // It goes on with the step after the last one, in the middle of an epoch; not with what a killed one left half
  // written.
  for (const auto& e : fs::recursive_directory_iterator(f / "out/trainer"))
    if (e.path().filename().string().starts_with("checkpoint-")) {
      make_folders((e.path().parent_path() / "checkpoint-3999").string());
      break;
    }
  const pid_t again = start({"run", f / "r.yaml", "--out", f / "out"});
  for (int i = 0; i < 1200 && lines(f / "out/metrics.jsonl").size() < before.size() + 2; ++i) usleep(100'000);
  EXPECT_EQ(stop(again, SIGTERM), 4);
  const auto after = lines(f / "out/metrics.jsonl");
  ASSERT_GT(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i]["step"], i + 1);
  EXPECT_EQ(after[before.size() - 1]["loss"], before.back()["loss"]);
}

// What the trackers' own readers see of a run that they followed.
TEST(Trackers, ShowTheCurvesThatTensorBoardHas) {
  Folder f("trackers");
  write_file_atomic(f / "r.yaml",
                    recipe({.extra = "  report_to: [tensorboard, wandb, trackio, mlflow]\n", .steps = 6}));
  const std::string answer = f / "answer.txt";
  const int status = std::system(fmt::format("'{}' '{}/tests/track/readers.py' '{}' '{}' > '{}' 2>&1", python(),
                                             kSourceDir, kBinary, f / "r.yaml", answer)
                                     .c_str());
  const std::string said = read_file(answer);
  if (status != 0 && (said.find("absent: ") != std::string::npos || said.find("not found") != std::string::npos))
    GTEST_SKIP() << "the trackers' readers are not installed for " << python() << ": " << said;
  EXPECT_EQ(status, 0) << said;
}

TEST(Trackers, AnMlflowServerThatIsNotNamedIsSaidBeforeTheWork) {
  Folder f("trackers_mlflow");
  write_file_atomic(f / "r.yaml", recipe({.extra = "  report_to: [mlflow]\n"}));
  const Result r = run("run " + (f / "r.yaml") + " --out " + (f / "out"), "MLFLOW_TRACKING_URI=");
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_TRUE(says(r, "MLFLOW_TRACKING_URI=http://HOST:PORT")) << r.out;
  const Result none = run("run " + (f / "r.yaml") + " --out " + (f / "out"), "MLFLOW_TRACKING_URI=http://127.0.0.1:9");
  EXPECT_EQ(none.code, 3) << none.out;
  EXPECT_FALSE(fs::exists(f / "out/dataset") || fs::exists(f / "out/checkpoint"));
}

}  // namespace
}  // namespace mxt::cli
