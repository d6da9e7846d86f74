#include "serve/operator.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "coach.h"
#include "config/recipe.h"
#include "formats/peft.h"
#include "infer/end_of_turn.h"
#include "infer/scheduler.h"
#include "jobs.h"
#include "model_files.h"
#include "net/url.h"
#include "serve/http/server.h"
#include "till.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct ServeOptions {
  std::string model, config, upstream, host = "127.0.0.1", api_keys, dtype, device = "cpu", name, chat_template,
                                       reasoning, tools, jobs;
  std::vector<std::string> adapters, roots, cors;
  int port = 0, threads = 0, running_jobs = 1;
  int64_t context = 0, batch = 32, queue = 256, prompt_piece = 128;
  double cache_gib = 0, drain = 30, timeout = 600;
  bool anyone = false, no_coach = false, follow_stdin = false;
};

serve::OperatorSettings settings_of(const ServeOptions& o) {
  serve::OperatorSettings s;
  if (!o.api_keys.empty()) s.keys = serve::read_api_keys(o.api_keys);
  if (const std::string key = environment("MINDXTRAIN_API_KEY"); !key.empty())
    s.keys.push_back({.name = "environment", .key = key, .jobs = true});
  s.local = o.host == "127.0.0.1" || o.host == "::1" || o.host == "localhost";
  if (!s.local && s.keys.empty() && !o.anyone)
    fail_input("--host {} lets others in: give --api-keys FILE or MINDXTRAIN_API_KEY, or say --anyone", o.host);
  s.max_queue = o.queue;
  s.request_seconds = o.timeout;
  if (o.reasoning == "none") s.reasoning = serve::ReasoningStyle::kNone;
  s.always_thinks = o.reasoning == "deepseek_r1";
  if (o.tools == "none") s.tools = serve::ToolStyle::kNone;
  if (o.tools == "qwen3_coder") s.tools = serve::ToolStyle::kQwenCoder;
  return s;
}

// As browsers send them: scheme, host and port, nothing behind.
std::vector<std::string> origins(const std::vector<std::string>& given) {
  for (const std::string& o : given) {
    const auto url = net::parse_url(o);
    if (o != "*" && (!url || o.ends_with('/') || std::count(o.begin(), o.end(), '/') != 2))
      fail_input("--cors {}: an origin is wanted, as http://localhost:5173, or *", o);
  }
  return given;
}

// What clients ask for where --name says nothing: the file's or folder's name; of a Hub id or a short name what was
// written, since its folder is called by a commit.
std::string called(const std::string& model, const std::string& path) {
  std::error_code ec;
  if (fs::exists(model, ec) || model.ends_with(".gguf")) {
    const fs::path whole = fs::absolute(path).lexically_normal();  // of "." and of "folder/" too
    return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  }
  return model.substr(0, model.find('@'));
}

// Answers until a signal says stop, then lets what is under way finish.
void listen(const ServeOptions& o, serve::Operator& op, const serve::HttpSettings& http, const std::string& what) {
  serve::HttpServer server(
      http, [&](const auto& r) { return op.gate(r); },
      [&](const auto& r, auto reply) { op.handle(r, std::move(reply)); });
  op.set_connections([&] { return server.connections(); });
  server.start();
  log::info("serving {} at http://{}:{}/v1", what, o.host, server.port());
  if (!o.no_coach) log::info("Coach: http://{}:{}/coach/", o.host, server.port());
  while (!g_stop.load()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  log::info("finishing what is under way (a second signal ends at once)");
  op.set_draining();
  server.drain(o.drain);
}

// A program that dies, however it does, closes the pipe that is our standard input.
void stop_when_stdin_ends() {
  std::thread([] {
    char c[64];
    ssize_t n;
    while ((n = ::read(0, c, sizeof c)) > 0 || (n < 0 && errno == EINTR)) {
    }
    ::kill(::getpid(), SIGTERM);
  }).detach();
}

// Of the recipe's publish.billing; null where answers are free.
std::unique_ptr<Till> open_till(const config::Recipe& r, const ServeOptions& o) {
  auto till = Till::open(r, o.timeout);
  if (till && !o.upstream.empty())
    fail_missing("publish.billing: answers of another server (serve.upstream) are not sold by this build");
  if (till) log::info("paid: {}", till->text());
  return till;
}

// What the recipe says where the command line does not; `context_key`: who asked for a length of context. Returns the
// till of the recipe's answers, or null.
std::unique_ptr<Till> read_recipe(ServeOptions& o, std::string& context_key) {
  const config::Recipe r = config::load_recipe(o.config);
  const config::Serve s = r.serve.value_or(config::Serve{});
  if (o.model.empty()) o.model = r.model.name;
  if (o.port == 0) o.port = static_cast<int>(s.port);
  if (s.backend != config::ServeBackend::kNative && o.upstream.empty()) {
    if (!s.upstream)
      fail_missing("serve.backend: {} runs apart: start it and give its address as serve.upstream or --upstream",
                   s.backend == config::ServeBackend::kSglang ? "sglang" : "vllm-rocm");
    o.upstream = *s.upstream;
  }
  auto till = open_till(r, o);
  if (o.context == 0 && r.is_given("serve.max_model_len")) context_key = "serve.max_model_len";
  if (o.context == 0) o.context = s.max_model_len;
  if (o.host.empty()) o.host = s.host;
  if (o.reasoning.empty())
    o.reasoning = s.reasoning_parser == config::ReasoningParser::kNone         ? "none"
                  : s.reasoning_parser == config::ReasoningParser::kDeepseekR1 ? "deepseek_r1"
                                                                               : "qwen3";
  if (o.tools.empty())
    o.tools = s.tool_call_parser == config::ToolCallParser::kNone         ? "none"
              : s.tool_call_parser == config::ToolCallParser::kQwen3Coder ? "qwen3_coder"
                                                                          : "hermes";
  if (s.tensor_parallel > 1)
    fail_missing("serve.tensor_parallel: {}: this build serves on one device", s.tensor_parallel);
  return till;
}

// As the operator writes it behind its own /v1.
std::string upstream_of(std::string address) {
  while (address.ends_with('/')) address.pop_back();
  if (address.ends_with("/v1")) address.resize(address.size() - 3);
  net::public_url(address, "--upstream");
  return address;
}

using Adapters = std::vector<std::pair<std::string, std::string>>;  // name, folder

Adapters adapters_named(const ServeOptions& o) {
  Adapters adapters;
  for (const std::string& a : o.adapters) {
    const size_t eq = a.find('=');
    if (eq == std::string::npos || eq == 0) fail_input("--adapter {}: NAME=FOLDER is wanted", a);
    adapters.emplace_back(a.substr(0, eq), a.substr(eq + 1));
  }
  return adapters;
}

// One template serves all requests: the adapter's, where there is one adapter.
TokenizerBundle text_side(const ServeOptions& o, const std::string& path, const Adapters& adapters) {
  TokenizerBundle text = load_text_side(path, adapters.size() == 1 ? adapters[0].second : std::string());
  if (adapters.size() > 1)
    for (const auto& [name, folder] : adapters)
      if (fs::exists(folder + "/chat_template.jinja"))
        log::warn(
            "{}: was trained with a chat template of its own, and several adapters share the model's: serve it "
            "alone, or name the template by --chat-template",
            folder);
  if (!text.tok) fail_input("{}: has no tokenizer", o.model);
  return o.chat_template.empty() ? text : with_template(text, o.chat_template);
}

infer::SchedulerSettings scheduling_of(const ServeOptions& o, const infer::Model& model) {
  infer::SchedulerSettings s;
  s.batch = o.batch;
  s.prompt_piece = o.prompt_piece;
  // Room for the whole context of every request at once, or what the memory limit leaves.
  const int64_t full = (model.positions() + infer::PagedCache::kPage - 1) / infer::PagedCache::kPage;
  const double page = static_cast<double>(infer::PagedCache::bytes(model.config(), model.type(), 1));
  s.cache_pages = std::max(
      full, std::min(full * o.batch, static_cast<int64_t>((o.cache_gib > 0 ? o.cache_gib : 2.0) * (1 << 30) / page)));
  return s;
}

void add_text_side(serve::ServedModel& served, const TokenizerBundle& text, const formats::ModelConfig& config,
                   const std::string& path) {
  served.tok = text.tok;
  served.chat = text.chat;
  served.chat_source = text.chat_source;
  served.stop = infer::end_of_turn(*text.tok, text.chat.get(), config);
  served.picture_remedy = picture_remedy(path);
  if (!text.pictures) return;
  served.picture_mark = data::kPictureMark;
  served.show = [tok = text.tok, rules = *text.pictures](std::string said, std::vector<tokenizer::Span> plain,
                                                         const std::vector<std::string>& uris) {
    std::vector<data::SeenPicture> seen;
    for (const std::string& uri : uris) seen.push_back(data::see_picture(rules, uri, "", "image_url"));
    auto p = show_prompt(*tok, rules, std::move(said), std::move(plain), seen, "messages");
    return serve::ShownPrompt{std::move(p.ids), std::move(p.shown)};
  };
}

// What stands around whatever is served.
struct Around {
  Around(const ServeOptions& o, const std::vector<std::string>& folders) : settings(settings_of(o)), roots(folders) {}
  serve::OperatorSettings settings;
  serve::HttpSettings http;
  Roots roots;
  std::unique_ptr<Jobs> jobs;
  std::unique_ptr<CoachDesk> coach(const ServeOptions& o, std::vector<std::string> models) const {
    return o.no_coach ? nullptr : std::make_unique<CoachDesk>(roots, jobs.get(), std::move(models));
  }
};

void serve_model(const ServeOptions& o, const std::string& context_key, Around& around) {
  const std::string path = resolve_model(o.model, std::nullopt);
  const Adapters adapters = adapters_named(o);
  const TokenizerBundle text = text_side(o, path, adapters);
  // What changes more than the layers' products cannot stand beside the base: it becomes part of it, and is alone.
  const bool alone = adapters.size() == 1 && !formats::Adapter::open(adapters[0].second).beyond_layers().empty();
  infer::Model model(path, alone ? adapters[0].second : "", compute_type(o.dtype, path, o.device), o.context,
                     ops_on(o.device), infer::Weights::kAsStored);
  if (!context_key.empty() && o.context > model.positions())
    log::warn("{} {}: the model has places for {} tokens, and so many are served", context_key, o.context,
              model.positions());
  serve::ServedModel served;
  if (alone) {
    served.names.emplace_back(adapters[0].first, -1);
    log::info("{}: changes the base itself (embeddings, head, magnitudes, biases): the base is not served beside it",
              adapters[0].second);
  } else {
    served.names.emplace_back(o.name.empty() ? called(o.model, path) : o.name, -1);
    for (const auto& [name, folder] : adapters) served.names.emplace_back(name, model.add_adapter(folder));
  }
  infer::Scheduler scheduler(model, scheduling_of(o, model));
  served.model = &model;
  served.scheduler = &scheduler;
  add_text_side(served, text, model.config(), path);

  std::vector<std::string> names;
  for (const auto& [name, adapter] : served.names) names.push_back(name);
  const auto coach = around.coach(o, names);
  serve::Operator op(std::move(served), around.settings, around.jobs.get(), coach.get());
  scheduler.start();
  listen(o, op, around.http,
         fmt::format("{} ({} tokens of context, cache for {} tokens)", names.front(), model.positions(),
                     scheduler.stats().cache_pages * infer::PagedCache::kPage));
  scheduler.stop();
  if (around.settings.meter != nullptr) around.settings.meter->stop();
}

void serve(ServeOptions o) {
  if (o.follow_stdin) stop_when_stdin_ends();
  set_threads(o.threads);
  std::string context_key = o.context > 0 ? "--max-model-len" : "";  // where it was asked for
  const std::unique_ptr<Till> till = o.config.empty() ? nullptr : read_recipe(o, context_key);
  if (o.host.empty()) o.host = "127.0.0.1";
  if (o.port == 0) o.port = 8000;
  std::vector<std::string> folders = o.roots;
  for (const std::string& f : {o.jobs, o.model})
    if (!f.empty()) folders.push_back(f);
  Around around(o, folders);
  if (till) around.settings.meter = &till->meter();
  if (!o.jobs.empty()) {
    if (around.settings.keys.empty() && !around.settings.local)
      fail_input("--jobs needs a key: --api-keys FILE or MINDXTRAIN_API_KEY");
    around.jobs = std::make_unique<Jobs>(o.jobs, o.running_jobs, around.roots);
  }
  around.http.host = o.host;
  around.http.port = static_cast<uint16_t>(o.port);
  around.http.cors = origins(o.cors);
  if (o.upstream.empty() && !o.model.empty()) return serve_model(o, context_key, around);
  if (!o.upstream.empty()) {
    around.settings.upstream = upstream_of(o.upstream);
    around.settings.upstream_key = environment("MINDXTRAIN_UPSTREAM_KEY");
    around.http.handler_threads = 128;  // one waits for each request
  } else if (!around.jobs) {
    fail_input("--model, --config or --upstream is wanted; --jobs FOLDER alone serves Coach and training jobs");
  }
  const auto coach = around.coach(o, {});
  serve::Operator op({}, around.settings, around.jobs.get(), coach.get());
  listen(o, op, around.http, o.upstream.empty() ? "training jobs" : around.settings.upstream);
}

}  // namespace

void add_serve(CLI::App& app) {
  auto* c = app.add_subcommand(
      "serve",
      "a model behind OpenAI's API\nexample: mindxtrain serve --model DIR --adapter tuned=out/run1/checkpoint");
  auto o = std::make_shared<ServeOptions>();
  o->host.clear();
  c->add_option("--model", o->model, "folder, .gguf file or Hub id (or ID@REVISION)");
  c->add_option("--adapter", o->adapters, "NAME=FOLDER: a PEFT adapter, served as the model NAME; may be repeated")
      ->allow_extra_args(false);
  c->add_option("--config", o->config, "recipe whose model and serve section to use");
  c->add_option("--upstream", o->upstream,
                "address of an OpenAI-compatible server that has the model; its key in MINDXTRAIN_UPSTREAM_KEY");
  c->add_option("--host", o->host, "address to listen on (127.0.0.1)");
  c->add_option("--port", o->port, "port (8000)")->check(CLI::Range(1, 65535));
  c->add_option("--api-keys", o->api_keys, "JSON file of keys and their limits; MINDXTRAIN_API_KEY holds a single one");
  c->add_flag("--anyone", o->anyone, "listen beyond this machine without keys");
  c->add_option("--name", o->name, "what the model is called");
  c->add_option("--chat-template", o->chat_template, "Jinja file instead of the model's own");
  c->add_option("--reasoning-parser", o->reasoning, "qwen3, deepseek_r1 or none")
      ->check(CLI::IsMember({"qwen3", "deepseek_r1", "none"}));
  c->add_option("--tool-call-parser", o->tools, "hermes, qwen3_coder or none")
      ->check(CLI::IsMember({"hermes", "qwen3_coder", "none"}));
  c->add_option("--max-model-len", o->context, "longest prompt and answer together")->check(CLI::PositiveNumber);
  c->add_option("--batch", o->batch, "requests answered at once")->check(CLI::Range(1, 1024));
  c->add_option("--queue", o->queue, "requests that may wait; more are answered 429")->check(CLI::NonNegativeNumber);
  c->add_option("--prompt-piece", o->prompt_piece, "prompt tokens read between two tokens of others")
      ->check(CLI::Range(1, 8192));
  c->add_option("--cache-gib", o->cache_gib, "most memory for keys and values (2)")->check(CLI::PositiveNumber);
  c->add_option("--timeout", o->timeout, "longest life of a request in seconds")->check(CLI::PositiveNumber);
  c->add_option("--drain", o->drain, "seconds for answers under way when asked to stop")->check(CLI::NonNegativeNumber);
  c->add_option("--jobs", o->jobs,
                "folder for training jobs: /v1/training/jobs for keys that may, and Coach; alone it serves no model");
  c->add_option(
       "--root", o->roots,
       "a further folder whose files the recipes of jobs may name (the working directory always); may be repeated")
      ->allow_extra_args(false);
  c->add_option("--cors", o->cors,
                "origin of pages that may use /v1 from a browser (http://localhost:5173), or *; may be repeated")
      ->allow_extra_args(false);
  c->add_flag("--no-coach", o->no_coach, "without the page at /coach/");
  c->add_flag("--until-stdin-ends", o->follow_stdin,
              "stop when standard input ends: with the program that started this one");
  c->add_option("--running-jobs", o->running_jobs, "jobs at once")->check(CLI::Range(1, 64));
  c->add_option("--dtype", o->dtype, kDtypeHelp);
  c->add_option("--device", o->device,
                "cpu, or cuda for the NVIDIA card of this machine (or its name: h100, rtx4090, ...)");
  c->add_option("--threads", o->threads, "threads");
  c->callback([o] { serve(*o); });
}

}  // namespace mxt::app
