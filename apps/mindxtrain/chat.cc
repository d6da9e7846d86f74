#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "eval/exact_match.h"
#include "infer/engine.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct Options {
  std::string model, adapter, prompt, system, dtype = "bfloat16", device = "cpu";
  int64_t max_tokens = 512, top_k = 0;
  double temperature = 0.7, top_p = 0.95;
  uint64_t seed = 0;
  int threads = 0;
};

// Prints an answer while it is made; bytes of a character that is not complete yet wait for the rest.
class Stream {
 public:
  explicit Stream(const tokenizer::Tokenizer& tok) : tok_(tok) {}
  void token(int32_t id) {
    if (!tok_.is_special(id)) pending_ += tok_.token_bytes(id);
    size_t whole = pending_.size();
    while (whole > 0 && pending_.size() - whole < 4 && !is_valid_utf8(std::string_view(pending_).substr(0, whole))) --whole;
    if (!is_valid_utf8(std::string_view(pending_).substr(0, whole))) return;
    std::fwrite(pending_.data(), 1, whole, stdout);
    std::fflush(stdout);
    text_ += pending_.substr(0, whole);
    pending_.erase(0, whole);
  }
  const std::string& text() const { return text_; }

 private:
  const tokenizer::Tokenizer& tok_;
  std::string pending_, text_;
};

}  // namespace

void add_chat(CLI::App& app) {
  auto* c = app.add_subcommand("chat", "talk to a model in the terminal\nexample: mindxtrain chat --model DIR --adapter out/run1/checkpoint");
  auto o = std::make_shared<Options>();
  c->add_option("--model", o->model, "folder, .gguf file or Hub id")->required();
  c->add_option("--adapter", o->adapter, "PEFT folder");
  c->add_option("--prompt", o->prompt, "one question, one answer");
  c->add_option("--system", o->system, "system message");
  c->add_option("--max-tokens", o->max_tokens, "longest answer");
  c->add_option("--temperature", o->temperature, "0: the most likely token")->check(CLI::NonNegativeNumber);
  c->add_option("--top-p", o->top_p, "nucleus")->check(CLI::Range(0.0, 1.0));
  c->add_option("--top-k", o->top_k, "0: off");
  c->add_option("--seed", o->seed, "of the sampling");
  c->add_option("--dtype", o->dtype, "bfloat16 or float32");
  c->add_option("--device", o->device, "cpu, h100 or h200");
  c->add_option("--threads", o->threads, "threads");
  c->callback([o] {
    set_threads(o->threads);
    const std::string path = resolve_model(o->model, std::nullopt);
    const TextSide text = load_text_side(path);
    if (!text.chat) fail_input("{}: the model has no chat template", o->model);
    infer::Model model(path, o->adapter, parse_dtype(o->dtype), 4096, ops_on(o->device));
    infer::Engine engine(model, {1, 512});
    OrderedJson messages = OrderedJson::array();
    if (!o->system.empty()) messages.push_back({{"role", "system"}, {"content", o->system}});
    auto answer = [&](const std::string& question) {
      messages.push_back({{"role", "user"}, {"content", question}});
      infer::Request r;
      r.prompt = eval::encode_prompt(*text.tok, *text.chat, messages);
      r.max_tokens = o->max_tokens;
      r.stop = eval::stop_tokens(*text.tok, model.config());
      r.sampling = {o->temperature, o->top_k, o->top_p, 0, o->seed};
      Stream stream(*text.tok);
      engine.generate({r}, [&](size_t, int32_t id) {
        stream.token(id);
        return !g_stop.load();
      });
      std::printf("\n");
      messages.push_back({{"role", "assistant"}, {"content", stream.text()}});
    };
    if (!o->prompt.empty()) {
      answer(o->prompt);
      return;
    }
    std::string line;
    while (!g_stop.load()) {
      if (isatty(0)) {
        std::printf("> ");
        std::fflush(stdout);
      }
      if (!std::getline(std::cin, line)) break;
      if (trim(line).empty()) continue;
      answer(line);
    }
  });
}

}  // namespace mxt::app
