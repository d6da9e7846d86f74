// What the help of each verb says below its options: words that a newcomer meets there first, environment, files, exit
// codes.
#include <fmt/format.h>

#include <map>

#include "help.h"

namespace mxt::app {
namespace {

struct Footer {
  std::string environment, files, words;
  std::string exits;  // beyond 0, 1 and 3
};

const std::string kProxies = "HTTPS_PROXY, HTTP_PROXY, NO_PROXY, SSL_CERT_FILE",
                  kHub = "HF_TOKEN or HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE (the Hub), " +
                         kProxies;
// Of a run: where its machine's devices and what it says of itself come from.
const std::string kRun =
    kHub +
    ", OMP_NUM_THREADS, MINDXTRAIN_HOME, XDG_DATA_HOME (the registry of runs), XDG_CACHE_HOME (what is fetched), "
    "PIP_INDEX_URL, else UV_DEFAULT_INDEX (the quickstart's weights), CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES (whose "
    "energy is counted), MINDXTRAIN_CUDA_CAPABILITY, MINDXTRAIN_CONTAINER_DIGEST (of the image, for the receipt); "
    "train.report_to: TRACKIO_DIR, MLFLOW_TRACKING_URI, MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, "
    "MLFLOW_TRACKING_TOKEN; train.backend trl: MINDXTRAIN_PYTHON";
constexpr const char* kHome = "MINDXTRAIN_HOME, XDG_DATA_HOME (where the registry lies)";
constexpr const char* kRegistry =
    "$MINDXTRAIN_HOME/runs.sqlite, else $XDG_DATA_HOME/mindxtrain/runs.sqlite, else "
    "~/.local/share/mindxtrain/runs.sqlite; "
    "the folders of runs are read";
constexpr const char* kThreads = "OMP_NUM_THREADS";
const std::string kWork = kHub + ", " + kThreads;  // of a verb that computes on what it may fetch
constexpr const char* kStopped = "4 stopped by a signal, state saved: the same command goes on";

const std::map<std::string, Footer>& footers() {
  static const std::map<std::string, Footer> kFooters = {
      {"run",
       {kRun,
        "--out DIR gets recipe.yaml, plan.json, dataset/, checkpoint/, checkpoints/, eval/, quantized/, metrics.jsonl, "
        "loss.svg, tensorboard/, manifest.json, receipt.json; the registry of runs is $MINDXTRAIN_HOME/runs.sqlite, "
        "else ~/.local/share/mindxtrain/runs.sqlite",
        "plan: which kernel and how many rows a pass, measured before training and then fixed; probe: that "
        "measurement; receipt: digests of all that went in and came out, which `mindxtrain receipt` checks",
        "2 a receipt, digest or regression gate did not hold; 4 stopped by a signal, state saved: the same command "
        "goes on"}},
      {"train",
       {kRun, "--out DIR as `run` fills it, without eval/ and quantized/", "",
        "2 what was saved does not verify; 4 stopped by a signal, state saved: --resume goes on"}},
      {"plan",
       {kHub + ", MINDXTRAIN_HOME, OMP_NUM_THREADS",
        "prices.yaml in $MINDXTRAIN_HOME, else in ~/.local/share/mindxtrain, says what differs from the price table",
        "packed: weights copied into the order that the processor's kernels read; arena: the one block that holds all "
        "activations; pass: the rows that go through the model at once",
        ""}},
      {"bench",
       {kWork, "--out: the plan, JSON, good for this kind of machine", "", "2 --against: a choice got slower"}},
      {"init",
       {"PIP_INDEX_URL, UV_DEFAULT_INDEX, HF_HUB_OFFLINE (--list: whether a base can be fetched)",
        "NAME.yaml here, or --out", "", ""}},
      {"validate", {"", "reads the recipe alone, or one that ships, by its name", "", ""}},
      {"schema", {"", "writes nothing but its answer", "", ""}},
      {"completion",
       {"",
        "writes nothing but its answer: bash reads ~/.local/share/bash-completion/completions/mindxtrain, zsh a "
        "folder of $fpath that holds _mindxtrain, fish ~/.config/fish/completions/mindxtrain.fish",
        "", ""}},
      {"version",
       {"MINDXTRAIN_CUDA_CAPABILITY=8.6: a newer card is treated as such a one", "reads and writes nothing", "", ""}},
      {"help", {"COLUMNS: no line is wider", "reads and writes nothing", "", ""}},
      {"doctor", {"", "reads what the system says of itself; writes nothing", "", ""}},
      {"models",
       {kHub, "reads the Hub's cache ($HF_HOME/hub, else ~/.cache/huggingface/hub); fetches and writes nothing", "",
        ""}},
      {"dataset", {kHub, "those of its verbs: mindxtrain dataset prep --help", "", kStopped}},
      {"dataset prep",
       {kWork,
        "--out DIR: shards, dataset.json (rows in, rows dropped and why, tokens, hashes); what was fetched is kept in "
        "the "
        "Hub's cache and in $XDG_CACHE_HOME/mindxtrain, else ~/.cache/mindxtrain",
        "shard: a file of tokens ready to train on; packed: several short rows fill one of data.seq_len", kStopped}},
      {"dataset merge",
       {kWork, "--out DIR: jobs/ of `dataset prep --job` becomes shards and dataset.json", "", kStopped}},
      {"dataset synth", {"", "--out FILE: JSON lines, the same bytes for the same seed", "", ""}},
      {"dataset show", {kHub, "reads the recipe and --data DIR; --html FILE: a page", "", ""}},
      {"eval",
       {kWork, "--out DIR: results.json as lm-evaluation-harness writes it", "",
        "2 a score fell below the baseline; 4 stopped by a signal"}},
      {"score",
       {kWork,
        "--input FILE: JSON lines; --output FILE: one line for each, there when all are done; --adapter DIR: a run's "
        "checkpoint/",
        "log-probability: ln of how likely the model held a token, given those before it", kStopped}},
      {"embed",
       {kWork,
        "--input FILE: JSON lines; --output FILE: one line for each, or raw floats (.f32), there when all are done", "",
        kStopped}},
      {"chat",
       {kWork + "; --url: OPENAI_API_KEY; --pay: MINDXTRAIN_KEY_PASSPHRASE; ALGOD_URL, ALGOD_TOKEN (an Algorand key)",
        "--adapter DIR: a run's checkpoint/; --tools FILE: JSON; --pay FILE: a key; writes nothing", "", ""}},
      {"serve",
       {kWork + "; MINDXTRAIN_API_KEY; MINDXTRAIN_UPSTREAM_KEY (--upstream); "
                "MINDXTRAIN_EVM_KEY (or what publish.billing.x402.key_env names); ALGOD_URL, ALGOD_TOKEN, "
                "MINDXTRAIN_ALGORAND_KEY (network "
                "algorand)",
        "--jobs DIR: one folder a job; --api-keys FILE: keys and limits; $MINDXTRAIN_HOME/x402.sqlite: payments", "",
        ""}},
      {"convert", {"", "--out DIR: config.json, model.safetensors, tokenizer", "", ""}},
      {"export",
       {kHub, "--out DIR: NAME.yaml, data/ with the rows (not of the Hub's data sets, which it reads itself)", "", ""}},
      {"merge", {kWork, "--out DIR: config.json, *.safetensors, tokenizer", "", ""}},
      {"quantize",
       {kWork,
        "--out: a folder; with gguf_* model.gguf in it (and mmproj.gguf of a model that sees); quantization.json says "
        "what it cost",
        "", ""}},
      {"tokenizer", {kHub, "those of its verbs: mindxtrain tokenizer encode --help", "", ""}},
      {"tokenizer encode", {kWork, "--input FILE: text; --output FILE (else stdout; .u32: little-endian ids)", "", ""}},
      {"tokenizer decode",
       {kWork, "--input FILE: ids (.u32, JSON lines or numbers); --output FILE (else stdout)", "", ""}},
      {"tokenizer render",
       {kWork, "--input FILE: lines as {\"messages\": [...], \"tools\": [...]}; --output FILE (else stdout)",
        "chat template: how a model wants a conversation written", ""}},
      {"tokenizer train",
       {kThreads, "--out DIR: tokenizer.json, tokenizer_config.json, and a chat template with --ties rustbpe",
        "BPE: byte pairs that are often seen together become one token", kStopped}},
      {"receipt",
       {"--rpc: " + kProxies + "; --replay: " + kWork, "reads manifest.json and every file that it names",
        "manifest: what a run was made of and what came of it, each with its digest; subject: one such part",
        "2 a digest, "
        "signature or field does not hold; each is named"}},
      {"receipt keygen",
       {"MINDXTRAIN_KEY_PASSPHRASE: of --encrypt", "FILE: the key, for its owner alone, and FILE.pub", "", ""}},
      {"publish",
       {"HF_TOKEN, HF_ENDPOINT (hf); LIGHTHOUSE_API_KEY, LIGHTHOUSE_ENDPOINT; MINDXTRAIN_EVM_KEY (or what "
        "publish.evm.key_env names), MINDXTRAIN_KEY_PASSPHRASE, MINDXTRAIN_ERC8004_VALIDATOR, MINDXTRAIN_AGENT_URL "
        "(evm); MINDX_API_URL, "
        "AGENTICPLACE_URL, BANKON_ENS_URL, ALGOD_URL, ALGOD_TOKEN; HTTPS_PROXY, HTTP_PROXY, NO_PROXY, SSL_CERT_FILE",
        "reads what RUN/manifest.json names; RUN/publish.json: which steps are done; RUN/agent-registration.json: what "
        "an "
        "agent's domain is to serve",
        "step: one destination that the recipe's publish section writes",
        "2 the run does not hold, or a digest or id that came back is not ours"}},
      {"key",
       {"MINDXTRAIN_KEY_PASSPHRASE: of an encrypted key", "those of its verbs: mindxtrain key new --help", "", ""}},
      {"key new",
       {"MINDXTRAIN_KEY_PASSPHRASE: of --encrypt", "FILE: the key, for its owner alone, and FILE.pub", "", ""}},
      {"key sign",
       {"MINDXTRAIN_KEY_PASSPHRASE: of an encrypted key", "reads every file of the folder; --out FILE: the signature",
        "", ""}},
      {"cid", {kThreads, "--car FILE: the blocks", "cid: content id, by which IPFS names bytes", ""}},
      {"anchor",
       {"MINDXTRAIN_EVM_KEY (or what publish.evm.key_env names): the key, or its file; MINDXTRAIN_KEY_PASSPHRASE",
        "RUN/publish.json: what was sent",
        "anchor: a run's digest in a contract that keeps it; gas: what the chain takes for that",
        "2 the run does not hold, or is anchored with other bytes"}},
      {"runs", {kHome, kRegistry, "", ""}},
      {"runs report",
       {"MINDXTRAIN_HOME; TRACKIO_DIR (trackio), MLFLOW_TRACKING_URI, MLFLOW_TRACKING_USERNAME, "
        "MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN, SSL_CERT_FILE (mlflow)",
        "reads RUN/metrics.jsonl; wandb: RUN/wandb/ or --out; trackio: its own PROJECT.db or --out", "", ""}},
  };
  return kFooters;
}

// A verb of a verb without words of its own has those of the verb.
const Footer& footer_of(const std::string& verb, const std::string& inner) {
  static const Footer kNone;
  const auto own = footers().find(inner.empty() ? verb : verb + " " + inner);
  const auto at = own == footers().end() ? footers().find(verb) : own;
  return at == footers().end() ? kNone : at->second;
}

std::string text_of(const Footer& f) {
  std::string out;
  const auto line = [&](const char* title, const std::string& text) { out += fmt::format("{:<13}{}\n", title, text); };
  if (!f.words.empty()) line("Words:", f.words);
  line("Environment:", !f.environment.empty() ? f.environment : "nothing of it is read");
  line("Files:", !f.files.empty() ? f.files : "none");
  line("Exit codes:",
       std::string("0 done; 1 bad input, one line says which; 3 something is missing here, the line says "
                   "how to get it") +
           (!f.exits.empty() ? "; " : "") + f.exits);
  return out;
}

}  // namespace

void add_footers(CLI::App& app) {
  const auto all = [](const CLI::App*) { return true; };
  for (CLI::App* v : app.get_subcommands(all)) {
    v->footer(text_of(footer_of(v->get_name(), "")));
    for (CLI::App* inner : v->get_subcommands(all)) inner->footer(text_of(footer_of(v->get_name(), inner->get_name())));
  }
}

}  // namespace mxt::app
