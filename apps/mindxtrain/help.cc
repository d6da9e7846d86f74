#include "help.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "kernels/api.h"
#include "kernels/backend.h"
#include "provenance/identity.h"
#include "verbs.h"
#include "version.h"

namespace mxt::app {
namespace {

// What a verb's help says below its options. Words that a newcomer meets there first are explained there.
struct Footer {
  const char* environment = "";
  const char* files = "";
  const char* words = "";
  const char* exits = "";  // beyond 0, 1 and 3
};

constexpr const char* kHub = "HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE (the Hub), HTTPS_PROXY, NO_PROXY";
constexpr const char* kThreads = "OMP_NUM_THREADS";
constexpr const char* kStopped = "4 stopped by a signal, state saved: the same command goes on";

const std::map<std::string, Footer>& footers() {
  static const std::map<std::string, Footer> kFooters = {
      {"run",
       {"HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE (the Hub), HTTPS_PROXY, NO_PROXY, OMP_NUM_THREADS, "
        "MINDXTRAIN_HOME, PIP_INDEX_URL (the quickstart's weights); train.report_to: TRACKIO_DIR, MLFLOW_TRACKING_URI; "
        "train.backend trl: MINDXTRAIN_PYTHON",
        "--out DIR gets recipe.yaml, plan.json, dataset/, checkpoint/, checkpoints/, eval/, quantized/, metrics.jsonl, "
        "loss.svg, tensorboard/, manifest.json, receipt.json; the registry of runs is $MINDXTRAIN_HOME/runs.sqlite, "
        "else ~/.local/share/mindxtrain/runs.sqlite",
        "plan: which kernel and how many rows a pass, measured before training and then fixed; probe: that "
        "measurement; receipt: digests of all that went in and came out, which `mindxtrain receipt` checks",
        "2 a receipt, digest or regression gate did not hold; 4 stopped by a signal, state saved: the same command "
        "goes on"}},
      {"train",
       {"HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE (the Hub), HTTPS_PROXY, NO_PROXY, OMP_NUM_THREADS, "
        "MINDXTRAIN_HOME, PIP_INDEX_URL (the quickstart's weights); train.report_to: TRACKIO_DIR, MLFLOW_TRACKING_URI; "
        "train.backend trl: MINDXTRAIN_PYTHON",
        "--out DIR as `run` fills it, without eval/ and quantized/", "",
        "2 what was saved does not verify; 4 stopped by a signal, state saved: --resume goes on"}},
      {"plan",
       {kHub,
        "prices.yaml in $MINDXTRAIN_HOME, else in ~/.local/share/mindxtrain, says what differs from the price table",
        "packed: weights copied into the order that the processor's kernels read; arena: the one block that holds all "
        "activations; pass: the rows that go through the model at once",
        ""}},
      {"bench",
       {kThreads, "--out: the plan, JSON, good for this kind of machine", "", "2 --against: a choice got slower"}},
      {"init", {"", "NAME.yaml here, or --out", "", ""}},
      {"validate", {"", "reads the recipe alone, or one that ships, by its name", "", ""}},
      {"doctor", {"", "reads what the system says of itself; writes nothing", "", ""}},
      {"models",
       {kHub, "reads the Hub's cache ($HF_HOME/hub, else ~/.cache/huggingface/hub); fetches and writes nothing", "",
        ""}},
      {"dataset",
       {kHub,
        "prep --out DIR: shards, dataset.json (rows in, rows dropped and why, tokens, hashes); synth --out FILE: rows; "
        "show --html FILE: a page; what was fetched is kept in the Hub's cache and in ~/.cache/mindxtrain",
        "", kStopped}},
      {"eval",
       {kHub, "--out DIR: results.json as lm-evaluation-harness writes it", "",
        "2 a score fell below the baseline; 4 stopped by a signal"}},
      {"score",
       {kHub,
        "--input FILE: JSON lines; --output FILE: one line for each, there when all are done; --adapter DIR: a run's "
        "checkpoint/",
        "log-probability: ln of how likely the model held a token, given those before it", kStopped}},
      {"embed",
       {kHub,
        "--input FILE: JSON lines; --output FILE: one line for each, or raw floats (.f32), there when all are done", "",
        kStopped}},
      {"chat",
       {"HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE (the Hub), HTTPS_PROXY, NO_PROXY; --url: OPENAI_API_KEY; "
        "--pay: "
        "MINDXTRAIN_KEY_PASSPHRASE; ALGOD_URL, ALGOD_TOKEN (an Algorand key)",
        "--adapter DIR: a run's checkpoint/; --tools FILE: JSON; --pay FILE: a key; writes nothing", "", ""}},
      {"serve",
       {"HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE (the Hub), HTTPS_PROXY, NO_PROXY; MINDXTRAIN_API_KEY; "
        "MINDXTRAIN_EVM_KEY (or what publish.billing.x402.key_env names); ALGOD_URL, ALGOD_TOKEN, "
        "MINDXTRAIN_ALGORAND_KEY (network "
        "algorand)",
        "--jobs DIR: one folder a job; --api-keys FILE: keys and limits; $MINDXTRAIN_HOME/x402.sqlite: payments", "",
        ""}},
      {"convert", {"", "--out DIR: config.json, model.safetensors, tokenizer", "", ""}},
      {"export",
       {kHub, "--out DIR: NAME.yaml, data/ with the rows (not of the Hub's data sets, which it reads itself)", "", ""}},
      {"merge", {kHub, "--out DIR: config.json, *.safetensors, tokenizer", "", ""}},
      {"quantize", {kHub, "--out: a folder, or one .gguf file; quantization.json says what it cost", "", ""}},
      {"tokenizer",
       {kHub,
        "encode, decode, render: --input FILE, --output FILE (else stdout; .u32: little-endian ids); train --out DIR: "
        "tokenizer.json, tokenizer_config.json, and a chat template with --ties rustbpe",
        "", ""}},
      {"receipt",
       {"--rpc, --replay: HTTPS_PROXY, NO_PROXY; --replay also HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE",
        "reads manifest.json and every file that it names",
        "manifest: what a run was made of and what came of it, each with its digest; subject: one such part",
        "2 a digest, "
        "signature or field does not hold; each is named"}},
      {"publish",
       {"HF_TOKEN, HF_ENDPOINT (hf); LIGHTHOUSE_API_KEY, LIGHTHOUSE_ENDPOINT; MINDXTRAIN_EVM_KEY (or what "
        "publish.evm.key_env names), MINDXTRAIN_KEY_PASSPHRASE, MINDXTRAIN_ERC8004_VALIDATOR (evm); MINDX_API_URL, "
        "AGENTICPLACE_URL, BANKON_ENS_URL, ALGOD_URL, ALGOD_TOKEN; HTTPS_PROXY, NO_PROXY",
        "reads what RUN/manifest.json names; RUN/publish.json: which steps are done",
        "step: one destination that the recipe's publish section writes",
        "2 the run does not hold, or a digest or id that came back is not ours"}},
      {"key",
       {"MINDXTRAIN_KEY_PASSPHRASE: of --encrypt", "new FILE: the key, for its owner alone, and FILE.pub", "", ""}},
      {"cid", {"", "--car FILE: the blocks", "cid: content id, by which IPFS names bytes", ""}},
      {"anchor",
       {"MINDXTRAIN_EVM_KEY (or what publish.evm.key_env names): the key, or its file; MINDXTRAIN_KEY_PASSPHRASE",
        "RUN/publish.json: what was sent",
        "anchor: a run's digest in a contract that keeps it; gas: what the chain takes for that",
        "2 the run does not hold, or is anchored with other bytes"}},
      {"runs",
       {"MINDXTRAIN_HOME; report: TRACKIO_DIR, MLFLOW_TRACKING_URI",
        "$MINDXTRAIN_HOME/runs.sqlite, else ~/.local/share/mindxtrain/runs.sqlite", "", ""}},
  };
  return kFooters;
}

std::string footer_of(const std::string& verb) {
  const auto at = footers().find(verb);
  const Footer f = at == footers().end() ? Footer{} : at->second;
  std::string out;
  const auto line = [&](const char* title, const std::string& text) {
    if (!text.empty()) out += fmt::format("{:<13}{}\n", title, text);
  };
  line("Words:", f.words);
  line("Environment:", f.environment);
  line("Files:", f.files);
  line("Exit codes:",
       std::string("0 done; 1 bad input, one line says which; 3 something is missing here, the line says "
                   "how to get it") +
           (*f.exits ? "; " : "") + f.exits);
  return out;
}

OrderedJson version_answer() {
  const Json id = provenance::build_identity();
  const auto cpu = kernels::cpu_features();
  OrderedJson j;
  j["version"] = kVersion;
  j["commit"] = id.value("git_commit", Json());
  j["compiler"] = id.value("compiler", Json());
  j["backends"] = OrderedJson::array();
  j["backends"].push_back(
      {{"name", "cpu"},
       {"ready", true},
       {"what", fmt::format("{}, oneDNN {} ({})", cpu.vector_target, cpu.onednn_version, cpu.onednn_isa)}});
  for (const kernels::BackendInfo& b : kernels::backends()) {
    if (!b.own_memory) continue;
    OrderedJson there{{"name", b.kind}, {"ready", false}};
    try {
      there["what"] = b.open().device->properties().name;
      there["ready"] = true;
    } catch (const Error& e) {
      there["what"] = e.what();
    }
    j["backends"].push_back(there);
  }
  return j;
}

}  // namespace

std::string version_text() {
  const OrderedJson j = version_answer();
  const auto text = [&](const char* key) { return j[key].is_string() ? j[key].get<std::string>() : "not known"; };
  std::string out =
      fmt::format("mindxtrain {}\ncommit      {}\ncompiler    {}\n", text("version"), text("commit"), text("compiler"));
  for (const auto& b : j["backends"])
    out += fmt::format("{:<12}{}{}\n", b["name"].get<std::string>(),
                       b["ready"].get<bool>() ? "" : "not here: ", b["what"].get<std::string>());
  out.pop_back();  // CLI11 ends the line
  return out;
}

void add_version(CLI::App& app) {
  auto* c = app.add_subcommand("version", "what this binary is, its commit, compiler and backends");
  auto json = std::make_shared<bool>(false);
  c->add_flag("--json", *json, "machine-readable answer");
  c->callback([json] {
    std::printf("%s\n", *json ? version_answer().dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str()
                              : version_text().c_str());
  });
}

void add_help(CLI::App& app) {
  auto* c = app.add_subcommand("help", "the verbs, or one verb's options\nexample: mindxtrain help run");
  auto verb = std::make_shared<std::string>();
  c->add_option("verb", *verb, "which one");
  c->callback([verb, &app] {
    // App::help() would speak of the verb that was parsed, and that is this one.
    const auto print = [](const CLI::App& of, const std::string& name) {
      std::fputs(of.get_formatter()->make_help(&of, name, CLI::AppFormatMode::Normal).c_str(), stdout);
    };
    if (verb->empty()) return print(app, app.get_name());
    std::vector<std::string> verbs;
    for (const CLI::App* v : app.get_subcommands([](const CLI::App*) { return true; })) verbs.push_back(v->get_name());
    if (std::find(verbs.begin(), verbs.end(), *verb) == verbs.end()) {
      const std::string near = nearest(*verb, verbs);
      fail_input("{}: is no verb{} (mindxtrain help lists them)", *verb,
                 near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
    print(*app.get_subcommand(*verb), app.get_name() + " " + *verb);
  });
}

void add_footers(CLI::App& app) {
  for (CLI::App* v : app.get_subcommands([](const CLI::App*) { return true; }))
    if (v->get_name() != "help" && v->get_name() != "version" && v->get_name() != "schema" &&
        v->get_name() != "completion")
      v->footer(footer_of(v->get_name()));
}

}  // namespace mxt::app
