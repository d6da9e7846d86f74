#include "harness.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "base/log.h"
#include "data/synth/synth.h"
#include "eval/code/sandbox.h"
#include "eval/core/chat_core.h"
#include "eval/core/core.h"
#include "eval/evaluate.h"
#include "eval/gate.h"
#include "eval/task/index.h"
#include "eval/task/task.h"
#include "exit.h"
#include "version.h"

namespace mxt::app {
namespace {

// 2026-01-31T23-59-59.123456, as the harness names its files.
std::string stamp() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t t = std::chrono::system_clock::to_time_t(now);
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  std::tm tm{};
  localtime_r(&t, &tm);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H-%M-%S", &tm);
  return fmt::format("{}.{:06}", text, us);
}

// Messages through the model's template; a begun answer stays open (nothing after it is rendered).
std::function<std::string(const std::vector<eval::Message>&, bool)> chat_renderer(
    std::shared_ptr<const tokenizer::ChatTemplate> chat) {
  return [chat](const std::vector<eval::Message>& messages, bool continues) {
    OrderedJson list = OrderedJson::array();
    for (const eval::Message& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
    tokenizer::ChatInput in;
    in.messages = &list;
    in.add_generation_prompt = !continues;
    in.continue_final_message = continues;
    return chat->render_prompt(in).text;
  };
}

std::function<std::string(const std::vector<eval::Message>&, const OrderedJson&)> tool_renderer(
    std::shared_ptr<const tokenizer::ChatTemplate> chat) {
  return [chat](const std::vector<eval::Message>& messages, const OrderedJson& tools) {
    OrderedJson list = OrderedJson::array();
    for (const eval::Message& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
    tokenizer::ChatInput in;
    in.messages = &list;
    in.tools = &tools;
    in.add_generation_prompt = true;
    return chat->render_prompt(in).text;
  };
}

eval::EvaluateOptions options_of(const HarnessRequest& r) {
  eval::EvaluateOptions o;
  o.tasks = r.tasks;
  o.task_folders = {r.task_path};
  for (const std::string& folder : {r.data_path, r.task_path})
    if (!folder.empty()) o.data_folders.push_back(folder);
  o.fewshot = r.fewshot;
  o.fewshot_always = r.fewshot_always;
  o.limit = r.limit;
  o.bootstrap_iterations = r.bootstrap;
  o.style.system_instruction = r.system_instruction;
  o.style.fewshot_as_multiturn = r.multiturn;
  o.run_programs = [](const std::vector<std::string>& programs) { return eval::run_python_programs(programs); };
  return o;
}

}  // namespace

void check_harness(const HarnessRequest& r) { eval::check_tasks(options_of(r)); }

std::string harness_digest(const HarnessRequest& r) {
  const eval::EvaluateOptions o = options_of(r);
  Blake3 h;
  const eval::Selection selection = eval::TaskIndex(o.task_folders).select(o.tasks);
  for (const OrderedJson& config : selection.tasks) {
    h.update(json_text(config) + "\n");
    const eval::Task task(config, o.data_folders);
    for (const OrderedJson& doc : task.docs()) h.update(json_text(doc) + "\n");
  }
  return h.hex();
}

namespace {

eval::LanguageModel language_model(const HarnessRequest& r, const TokenizerBundle& text) {
  if (!text.tok) fail_input("{}: the model's folder has no tokenizer", r.model_name);
  eval::ModelChoice choice;
  choice.path = r.model;
  choice.adapter = r.adapter;
  choice.type = r.type;
  choice.batch = r.batch;
  choice.tokenizer = text.tok;
  choice.chat = text.chat;
  choice.rendered = r.chat_template;
  choice.ops = &ops_on(r.device);
  return {choice, &g_stop};
}

std::string cache_of(const HarnessRequest& r) { return r.cache.empty() ? r.out + "/requests.jsonl" : r.cache; }

}  // namespace

std::optional<OrderedJson> run_core(const HarnessRequest& r, const TokenizerBundle& text, const std::string& bundle) {
  const std::vector<eval::CoreTask> tasks = eval::read_core_bundle(bundle, r.limit);
  eval::LanguageModel model = language_model(r, text);
  make_folders(r.out);
  eval::RequestCache cache(cache_of(r));
  const eval::Evaluation e = eval::evaluate_core(
      tasks, [&](const std::string& prompt) { return model.encode_plain(prompt); },
      [&](const std::vector<infer::Continuation>& rows, std::vector<infer::ContinuationScore>* out) {
        return model.score(rows, cache, out);
      });
  if (!e.finished) {
    log::info("stopped, finished requests are kept: the same command goes on");
    return std::nullopt;
  }
  eval::write_samples(e, r.out, "_core");
  return e.results;
}

std::optional<OrderedJson> run_chat_core(const HarnessRequest& r, const TokenizerBundle& text,
                                         const std::string& folder, const std::vector<std::string>& names) {
  constexpr int64_t kAnswer = 512;  // tokens; less where that leaves no room for what is asked
  const std::vector<eval::ChatTask> tasks = eval::read_chat_tasks(folder, names, r.limit);
  if (!text.chat) fail_input("{}: the model has no chat template, and ChatCORE asks in chats", r.model_name);
  eval::LanguageModel model = language_model(r, text);
  make_folders(r.out);
  eval::RequestCache cache(cache_of(r));
  const auto asks = chat_renderer(text.chat);
  const int64_t longest = std::min(kAnswer, model.max_length() / 2);
  eval::ChatModel m;
  m.prompt = [&](const std::string& asked) {
    return eval::encode_prompt(*text.tok, *text.chat,
                               OrderedJson::array({OrderedJson{{"role", "user"}, {"content", asked}}}));
  };
  m.encode = [&](const std::string& letter) { return text.tok->encode(letter); };
  m.score = [&](const std::vector<infer::Continuation>& rows, std::vector<infer::ContinuationScore>* out) {
    return model.score(rows, cache, out);
  };
  m.answer = [&](const std::vector<std::string>& asked, std::vector<std::string>* answers) {
    std::vector<eval::Request> requests(asked.size());
    std::vector<eval::Request*> all;
    for (size_t i = 0; i < asked.size(); ++i) {
      requests[i].type = eval::OutputType::kGenerate;
      requests[i].context = asks({{"user", asked[i], ""}}, false);
      requests[i].generation = {{"max_gen_toks", longest}, {"do_sample", false}};
      all.push_back(&requests[i]);
    }
    if (!model.run(all, 1, cache)) return false;
    for (const eval::Request& q : requests) answers->push_back(q.responses.at(0).get<std::string>());
    return true;
  };
  m.run_programs = [](const std::vector<std::string>& programs) {
    return eval::run_python_programs(programs, {.seconds = 5, .memory_bytes = uint64_t{256} << 20});
  };
  const eval::Evaluation e = eval::evaluate_chat_core(tasks, m);
  if (!e.finished) {
    log::info("stopped, finished requests are kept: the same command goes on");
    return std::nullopt;
  }
  eval::write_samples(e, r.out, "_chat_core");
  return e.results;
}

std::optional<OrderedJson> run_harness(const HarnessRequest& r, const TokenizerBundle& text) {
  const std::string kept = r.out + "/results.json";
  if (!r.inputs.empty() && !r.stamped && fs::exists(kept)) {
    const OrderedJson before = parse_ordered_json(read_file(kept), kept);
    if (before.value("inputs", "") == r.inputs) return before;
  }
  eval::LanguageModel model = language_model(r, text);
  make_folders(r.out);

  eval::EvaluateOptions o = options_of(r);
  if (r.chat_template) {
    if (!text.chat) fail_input("{}: the model has no chat template", r.model_name);
    o.style.chat = chat_renderer(text.chat);
  }
  if (text.chat) o.style.with_tools = tool_renderer(text.chat);
  o.cache = cache_of(r);

  const auto begin = std::chrono::steady_clock::now();
  eval::Evaluation e = eval::evaluate(model, o);
  if (!e.finished) {
    log::info("stopped, finished requests are kept: the same command goes on");
    return std::nullopt;
  }
  OrderedJson config = {
      {"model", "mindxtrain"},
      {"model_args", {{"pretrained", r.model_name}, {"dtype", r.type == DType::kF32 ? "float32" : "bfloat16"}}}};
  // Of a run its name inside the run's folder: results are the same bytes wherever that stands.
  if (!r.adapter.empty())
    config["model_args"]["peft"] = r.stamped ? r.adapter : fs::path(r.adapter).filename().string();
  config["limit"] = r.limit > 0 ? OrderedJson(r.limit) : OrderedJson();
  config["bootstrap_iters"] = r.bootstrap;
  config["fewshot_seed"] = 1234;
  if (r.stamped) config["batch_size"] = r.batch;  // changes no score
  e.results["config"] = config;
  if (!r.inputs.empty()) e.results["inputs"] = r.inputs;
  e.results["mindxtrain_version"] = kVersion;
  e.results["model_name"] = r.model_name;
  e.results["model_digest"] = model.identity();
  e.results["max_length"] = model.max_length();
  e.results["system_instruction"] = r.system_instruction.empty() ? OrderedJson() : OrderedJson(r.system_instruction);
  e.results["fewshot_as_multiturn"] = r.chat_template && r.multiturn;
  e.results["chat_template"] = r.chat_template ? OrderedJson(text.chat_source) : OrderedJson();
  e.results["chat_template_sha"] = r.chat_template ? OrderedJson(sha256_hex(text.chat_source)) : OrderedJson();
  if (r.stamped) {
    e.results["date"] = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    e.results["total_evaluation_time_seconds"] =
        std::to_string(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const std::string path = eval::write_results(e, r.out, r.stamped ? stamp() : "");
  log::info("written: {}", path);
  return e.results;
}

std::function<eval::Asked(const OrderedJson&)> asks_with_pictures(const TokenizerBundle& text) {
  if (!text.pictures) return {};
  return [&text](OrderedJson messages) {
    const std::string where = "held-out row";
    std::vector<data::SeenPicture> seen;
    for (const std::string& source : data::take_pictures(messages, {}, where))
      seen.push_back(data::see_picture(*text.pictures, source, "", where));
    if (seen.empty()) return eval::Asked{eval::encode_prompt(*text.tok, *text.chat, messages), nullptr};
    tokenizer::ChatInput in;
    in.messages = &messages;
    in.add_generation_prompt = true;
    const tokenizer::RenderedChat r = text.chat->render_prompt(in);
    PicturePrompt p = show_prompt(*text.tok, *text.pictures, r.text, r.plain, seen, where);
    return eval::Asked{std::move(p.ids), std::move(p.shown)};
  };
}

std::vector<eval::Question> synth_questions(const std::string& task, int64_t rows, uint64_t seed) {
  std::vector<eval::Question> out;
  for (const data::SynthRow& row : data::synth_rows(task, data::Split::kTest, rows, seed)) {
    if (!row.tools.empty())
      fail_input("synth task {}: its answers are calls, which are compared by structure: --tasks tool_calls", task);
    OrderedJson m = OrderedJson::array();
    if (!row.system.empty()) m.push_back({{"role", "system"}, {"content", row.system}});
    m.push_back({{"role", "user"}, {"content", data::content_of(row)}});
    out.push_back({m.dump(), row.answer});
  }
  return out;
}

OrderedJson exact_match_json(const eval::ExactMatch& e, config::Match match) {
  const auto write = [&](const eval::Tally& t) {
    OrderedJson j{{"rows", t.rows}, {"exact", t.exact}, {"share", t.share()}};
    if (match == config::Match::kAnswer) j["right"] = t.right;
    return j;
  };
  OrderedJson out{{"exact_match", write(e)}};
  if (e.sampled.rows > 0) out["sampled"] = write(e.sampled);
  return out;
}

std::vector<std::string> eval_texts(const config::Eval& e) {
  const std::string path = e.harness.task_path.value_or("");
  const eval::Selection all = eval::TaskIndex({path}).select(e.harness.tasks);
  std::vector<std::string> texts, folders;
  if (!path.empty()) folders.push_back(path);
  const auto collect = [&](const auto& self, const OrderedJson& j) -> void {
    if (j.is_string()) texts.back() += (texts.back().empty() ? "" : "\n") + j.get<std::string>();
    if (j.is_structured())
      for (const OrderedJson& part : j) self(self, part);
  };
  for (const OrderedJson& config : all.tasks) {
    const eval::Task task(config, folders);
    for (const OrderedJson& doc : task.docs()) {
      texts.emplace_back();
      collect(collect, doc);
    }
    log::info("decontamination: {} documents of task {}", task.docs().size(), task.name());
  }
  return texts;
}

namespace {

bool is_results_file(const std::string& baseline) { return baseline.ends_with(".json"); }

}  // namespace

void check_baseline(const std::string& baseline) {
  if (is_results_file(baseline))
    parse_ordered_json(read_file(baseline), baseline);
  else
    resolve_model(baseline, std::nullopt);
}

bool regression_gate(const HarnessRequest& r, const OrderedJson& results, const std::string& baseline,
                     double threshold_pct) {
  OrderedJson before;
  if (is_results_file(baseline)) {
    before = parse_ordered_json(read_file(baseline), baseline);
  } else {
    HarnessRequest b = r;
    b.model = resolve_model(baseline, std::nullopt);
    b.model_name = baseline;
    b.adapter.clear();
    b.out = r.out + "/baseline";
    if (!r.cache.empty()) b.cache = r.cache + ".baseline";
    if (!r.inputs.empty()) b.inputs = blake3_hex(r.inputs + baseline);
    log::info("the baseline {} is evaluated in the same way", baseline);
    const auto measured = run_harness(b, load_text_side(b.model));
    if (!measured) return true;  // interrupted: the caller sees the signal
    before = *measured;
  }
  const auto rows = eval::compare_results(before, results, threshold_pct);
  std::printf("%s", eval::gate_table(rows, threshold_pct).c_str());
  return eval::passed(rows);
}

}  // namespace mxt::app
