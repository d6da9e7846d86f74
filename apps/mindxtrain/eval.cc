#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/text.h"
#include "data/dataset.h"
#include "eval/core/bits_per_byte.h"
#include "eval/core/chat_core.h"
#include "eval/core/core.h"
#include "eval/evaluate.h"
#include "eval/exact_match.h"
#include "harness.h"
#include "infer/scorer.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct EvalOptions {
  HarnessRequest harness;
  std::string tasks, config, text, synth, dtype, baseline, core, chat_core, chat_tasks, bpb, part = "eval";
  std::optional<double> threshold_pct;
  int64_t limit = 0, synth_rows = 60, samples = 0;
  config::Match match = config::Match::kExact;
  std::optional<int64_t> max_tokens;
  std::optional<uint64_t> seed;
  int threads = 0;
  bool json = false;
};

OrderedJson measure_bits(const EvalOptions& o, const TokenizerBundle& text) {
  const HarnessRequest& h = o.harness;
  if (!text.tok) fail_input("{}: the model's folder has no tokenizer", h.model_name);
  const data::Dataset set = data::Dataset::open(o.bpb, o.part);
  infer::Model model(h.model, h.adapter, h.type, set.info().longest, ops_on(h.device), infer::Weights::kForMany);
  const eval::BitsPerByte b = eval::bits_per_byte(model, *text.tok, set, o.limit, &g_stop);
  return {{"data", o.bpb},    {"part", o.part}, {"rows", b.rows},    {"targets", b.targets},
          {"bytes", b.bytes}, {"nats", b.nats}, {"value", b.value()}};
}

// The small measures that need no task file: perplexity of a text, bits per byte of prepared rows, exact match on a
// synth task's held-out rows, CORE over a bundle. Nothing where a signal ended it.
std::optional<OrderedJson> measure_plain(const EvalOptions& o, const TokenizerBundle& text) {
  const HarnessRequest& h = o.harness;
  OrderedJson out = OrderedJson::object();
  if (!o.bpb.empty()) out["bits_per_byte"] = measure_bits(o, text);
  if (!o.core.empty()) {
    const auto core = run_core(h, text, o.core);
    if (!core) return std::nullopt;
    out.update(*core);
  }
  if (!o.chat_core.empty()) {
    std::vector<std::string> names;
    for (const std::string_view name : split(o.chat_tasks, ','))
      if (!trim(name).empty()) names.emplace_back(trim(name));
    const auto core = run_chat_core(h, text, o.chat_core, names);
    if (!core) return std::nullopt;
    out.update(*core);
  }
  infer::Model model(h.model, h.adapter, h.type, 2048, ops_on(h.device), infer::Weights::kForMany);
  if (!o.text.empty()) {
    const auto ids = text.tok->encode(read_file(o.text));
    if (ids.size() < 2) fail_input("{}: too short to score", o.text);
    infer::Scorer scorer(model, 1024);
    out["perplexity"] = {{"file", o.text}, {"tokens", ids.size()}, {"value", scorer.perplexity(ids, 1024, &g_stop)}};
  }
  if (!o.synth.empty()) {
    if (!text.chat) fail_input("{}: the model has no chat template to ask with", h.model_name);
    const auto questions = synth_questions(o.synth, o.limit > 0 ? o.limit : o.synth_rows, o.seed.value_or(2048));
    const eval::AnswerSettings how{o.max_tokens.value_or(128), o.samples, o.seed.value_or(2048),
                                   asks_with_pictures(text)};
    const auto e = eval::exact_match(model, *text.tok, *text.chat, questions, how, &g_stop);
    out.update(exact_match_json(e, o.match));
    out["exact_match"]["task"] = o.synth;
  }
  make_folders(h.out);
  write_file_atomic(h.out + "/results.json", json_text(out, 2) + "\n");
  return out;
}

// What a recipe says, where the command line does not.
void take_from_recipe(EvalOptions& o, const config::Recipe& recipe) {
  if (!recipe.eval) fail_input("{}: the recipe has no section eval", o.config);
  const config::Harness& h = recipe.eval->harness;
  if (o.harness.tasks.empty()) o.harness.tasks = h.tasks;
  if (o.harness.task_path.empty()) o.harness.task_path = h.task_path.value_or("");
  if (!o.harness.fewshot) o.harness.fewshot = h.fewshot;
  if (o.baseline.empty()) o.baseline = recipe.eval->regression.baseline;
  if (!o.threshold_pct) o.threshold_pct = recipe.eval->regression.threshold_pct;
  if (o.text.empty()) o.text = recipe.eval->perplexity_path.value_or("");
  if (o.core.empty()) o.core = recipe.eval->core.value_or("");
  if (o.chat_core.empty()) o.chat_core = recipe.eval->chat_core.value_or("");
  if (const auto& answers = recipe.eval->generation; o.synth.empty() && answers && recipe.data.made()) {
    const config::Synth& s = *recipe.data.made();
    o.synth = config::text_of(s.task);
    o.synth_rows = std::min(s.test_rows, answers->limit);
    if (!o.seed) o.seed = static_cast<uint64_t>(s.seed.value_or(recipe.meta.seed));
    if (!o.max_tokens) o.max_tokens = answers->max_tokens;
    o.match = answers->match;
    o.samples = answers->samples;
  }
  if (o.harness.limit == 0) o.harness.limit = h.limit.value_or(0);  // of tasks' documents
}

void evaluate_model(EvalOptions& o) {
  HarnessRequest& h = o.harness;
  if (!o.tasks.empty())
    for (const std::string_view name : split(o.tasks, ',')) {
      if (trim(name).empty()) fail_input("--tasks {}: a name is missing between the commas", o.tasks);
      h.tasks.emplace_back(trim(name));
    }
  h.fewshot_always = h.fewshot.has_value();
  h.limit = o.limit;
  std::optional<config::Recipe> recipe;
  if (!o.config.empty()) take_from_recipe(o, recipe.emplace(config::load_recipe(o.config)));
  const bool plain = !o.text.empty() || !o.synth.empty() || !o.core.empty() || !o.chat_core.empty() || !o.bpb.empty();
  if (h.tasks.empty() && !plain)
    fail_input(
        "eval: name what to measure: --tasks a,b or --config RECIPE with some (or --text FILE, --synth TASK, --bpb "
        "DATA, --core BUNDLE, --chat-core FOLDER)");
  if (!o.baseline.empty() && h.tasks.empty() && o.config.empty())
    fail_input("--baseline {}: is compared with the scores of --tasks; --text and --synth have none", o.baseline);
  if (!o.baseline.empty() && !h.tasks.empty()) check_baseline(o.baseline);  // before the scores are measured, not after
  set_threads(o.threads);
  h.model = resolve_model(h.model_name, std::nullopt);
  h.type = compute_type(o.dtype, h.model, h.device);
  TokenizerBundle text = load_text_side(h.model, h.adapter);
  if (recipe) take_tools_in(*recipe, &text);  // as its rows have them
  OrderedJson measured = OrderedJson::object();
  if (plain) {
    const auto plainly = measure_plain(o, text);
    if (!plainly) {
      g_exit = static_cast<int>(Exit::kInterrupted);
      return;
    }
    measured = *plainly;
  }
  // One document on stdout, of whatever was measured.
  if (!o.core.empty() && !o.json) std::printf("%s", eval::core_table(measured).c_str());
  if (!o.chat_core.empty() && !o.json) std::printf("%s", eval::chat_core_table(measured).c_str());
  if (plain && (h.tasks.empty() || !o.json)) std::printf("%s\n", json_text(measured, 2).c_str());
  if (h.tasks.empty()) return;
  const auto results = run_harness(h, text);
  if (!results) {
    g_exit = static_cast<int>(Exit::kInterrupted);
    return;
  }
  if (o.json) {
    OrderedJson all = *results;
    for (const auto& [key, value] : measured.items()) all[key] = value;
    std::printf("%s\n", json_text(all, 2).c_str());
  } else {
    std::printf("%s", eval::results_table(*results).c_str());
  }
  if (!o.baseline.empty() && !regression_gate(h, *results, o.baseline, o.threshold_pct.value_or(-1))) {
    std::fflush(stdout);
    fail_verify("the regression gate failed: a score fell below {} by more than is allowed", o.baseline);
  }
  if (g_stop) g_exit = static_cast<int>(Exit::kInterrupted);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto* c = app.add_subcommand(
      "eval",
      "scores on tasks in lm-evaluation-harness's format, with standard errors and a regression gate\n"
      "example: mindxtrain eval --model DIR --tasks gsm8k --data-dir data --limit 50 --out out/eval");
  auto o = std::make_shared<EvalOptions>();
  HarnessRequest& h = o->harness;
  c->add_option("--model", h.model_name, "folder, .gguf file or Hub id (or ID@REVISION)")->required();
  c->add_option("--adapter", h.adapter, "PEFT folder");
  c->add_option("--config", o->config, "recipe whose section eval says what to measure");
  c->add_option("--tasks", o->tasks, "tasks, groups, tags or YAML files, with commas between them");
  c->add_option("--task-path", h.task_path, "folder of task YAML");
  c->add_option("--data-dir", h.data_path,
                "folder that holds the tasks' datasets (DIR/openai/gsm8k or DIR/gsm8k); --task-path is searched too");
  c->add_option("--fewshot", h.fewshot,
                "examples before each question, of every task (else the recipe's, else each task's own)")
      ->check(CLI::Range(0, 1000));
  c->add_option("--limit", o->limit, "documents of each task at most")->check(CLI::NonNegativeNumber);
  c->add_option("--batch-size", h.batch, "requests in one pass; never changes a score")->check(CLI::Range(1, 4096));
  c->add_option("--dtype", o->dtype, kDtypeHelp);
  c->add_option("--bootstrap-iters", h.bootstrap, "rounds for bootstrapped standard errors; 0 = no standard errors")
      ->check(CLI::NonNegativeNumber);
  c->add_flag("--apply-chat-template", h.chat_template, "ask through the model's chat template");
  c->add_flag("--fewshot-as-multiturn,!--no-fewshot-as-multiturn", h.multiturn,
              "examples as turns of the chat (else one message)");
  c->add_option("--system-instruction", h.system_instruction, "what stands before every question");
  c->add_option("--baseline", o->baseline, "results file, model folder or Hub id that the scores are compared with");
  c->add_option("--threshold-pct", o->threshold_pct,
                "change allowed against the baseline, in percent (-1: a drop of 1 % fails)");
  c->add_option("--text", o->text, "text file whose perplexity to measure");
  c->add_option("--synth", o->synth,
                "synth task whose held-out rows to answer: tool_calls, arithmetic, sums, spelling, sorting or shapes");
  c->add_option("--core", o->core, "CORE over this bundle folder, as nanochat lays it out (core.yaml, eval_data/)");
  auto* chat_core = c->add_option("--chat-core", o->chat_core,
                                  "ChatCORE over this folder: ai2_arc/ARC-Easy, ai2_arc/ARC-Challenge, mmlu, gsm8k and "
                                  "humaneval, each with its split test");
  c->add_option("--chat-tasks", o->chat_tasks, "of ChatCORE's tasks these, with commas between them (default: all)")
      ->needs(chat_core);
  c->add_option("--bpb", o->bpb, "folder that `dataset prep` made, whose bits per byte to measure (--limit: rows)");
  c->add_option("--part", o->part, "which part of --bpb")
      ->check(CLI::IsMember({"eval", "train"}))
      ->capture_default_str();
  c->add_option("--seed", o->seed, "of the synth task's rows");
  c->add_option("--max-tokens", o->max_tokens, "longest answer to a synth row")->check(CLI::PositiveNumber);
  c->add_option("--device", h.device,
                "cpu, or cuda for the NVIDIA card of this machine (or its name: h100, rtx4090, ...)");
  c->add_option("--threads", o->threads, "threads");
  c->add_flag("--json", o->json, "results on stdout as JSON");
  c->add_option("--out", h.out, "folder for results, samples and finished requests")->required();
  c->callback([o] { evaluate_model(*o); });
}

}  // namespace mxt::app
