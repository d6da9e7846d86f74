#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/text.h"
#include "chat_remote.h"
#include "infer/calculator.h"
#include "infer/end_of_turn.h"
#include "infer/engine.h"
#include "model_files.h"
#include "serve/output/parsers.h"
#include "serve/output/text_stream.h"
#include "tokenizer/chat/input/conversation.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct ChatOptions {
  std::string model, adapter, prompt, system, tools, tool_parser = "hermes", dtype, device = "cpu";
  int64_t max_tokens = 512, top_k = 0;
  double temperature = 0.7, top_p = 0.95;
  std::vector<std::string> images;
  uint64_t seed = 0;
  int threads = 0;
  bool show_thinking = false;
  RemoteOptions remote;
};

constexpr const char* kHelp =
    "/system TEXT   another system message, and a new conversation\n"
    "/reset         a new conversation\n"
    "/history       the conversation so far\n"
    "/result TEXT   what the tool that was called answers\n"
    "/quit          (or the end of input)\n";

// Prints an answer while it is made: content as it is, thinking folded into a counter, tool calls on lines of their
// own.
class Printer {
 public:
  Printer(bool terminal, bool show_thinking) : terminal_(terminal), show_(show_thinking) {}
  void take(const serve::Deltas& deltas) {
    using Kind = serve::Delta::Kind;
    for (const auto& d : deltas) {
      switch (d.kind) {
        case Kind::kReasoning:
          think(d.text);
          break;
        case Kind::kContent:
          unfold();
          put(d.text);
          content += d.text;
          break;
        case Kind::kNoReasoning:
          reasoning.clear();
          break;
        case Kind::kToolBegin:
          unfold();
          put((content.empty() && calls.empty() ? "" : "\n") + std::string("→ ") + d.name + " ");
          calls.push_back({{"type", "function"}, {"id", d.id}, {"function", {{"name", d.name}, {"arguments", ""}}}});
          break;
        case Kind::kToolArguments: {
          put(d.text);
          auto& a = calls.back()["function"]["arguments"];
          a = a.get<std::string>() + d.text;
          break;
        }
      }
    }
  }
  void end() {
    unfold();
    put("\n");
  }
  std::string content, reasoning;
  OrderedJson calls = OrderedJson::array();

 private:
  static void put(const std::string& s) {
    std::fwrite(s.data(), 1, s.size(), stdout);
    std::fflush(stdout);
  }
  void think(const std::string& text) {
    reasoning += text;
    if (show_) {
      put((folded_ ? "" : terminal_ ? "\033[2m" : "[thinking] ") + text);
    } else if (terminal_) {
      put(fmt::format("\r\033[2m[thinking: {} characters]\033[0m", reasoning.size()));
    }
    folded_ = true;
  }
  void unfold() {
    if (!folded_) return;
    folded_ = false;
    if (show_)
      put(terminal_ ? "\033[0m\n\n" : "\n\n");
    else if (terminal_)
      put("\n");
  }
  bool terminal_, show_, folded_ = false;
};

class Conversation {
 public:
  Conversation(const ChatOptions& o, const std::string& path)
      : o_(o),
        path_(path),
        text_(load_text_side(path, o.adapter)),
        model_(path, o.adapter, compute_type(o.dtype, path, o.device), 4096, ops_on(o.device),
               infer::Weights::kAsStored),
        engine_(model_, {1, 512}) {
    if (!text_.chat) fail_input("{}: the model has no chat template", o.model);
    if (!o.tools.empty()) {
      tools_ = parse_ordered_json(read_file(o.tools), o.tools);
      if (!tools_.is_array() || tools_.empty())
        fail_input("{}: a list of tools is wanted, as OpenAI's API has it", o.tools);
      tools_ = tokenizer::normalize_tools(std::move(tools_), o.tools);
    }
    ends_ = infer::end_of_turn(*text_.tok, text_.chat.get(), model_.config());
    for (const std::string& image : o.images) seen_.push_back(see(image));
    reset(o.system);
  }
  void reset(const std::string& system) {
    messages_ = OrderedJson::array();
    pictures_in_ = 0;
    if (!system.empty()) messages_.push_back({{"role", "system"}, {"content", system}});
  }
  const OrderedJson& messages() const { return messages_; }

  void answer(const std::string& role, const std::string& said) {
    // The pictures stand before what is said of them first.
    std::string text = said;
    if (role == "user" && !seen_.empty() && pictures_in_ == 0)
      for (; pictures_in_ < seen_.size(); ++pictures_in_) text.insert(0, data::kPictureMark);
    OrderedJson message{{"role", role}, {"content", std::move(text)}};
    if (role == "tool" && !last_call_.empty()) message["tool_call_id"] = last_call_;
    messages_.push_back(std::move(message));
    tokenizer::ChatInput in;
    in.messages = &messages_;
    in.tools = tools_.is_null() ? nullptr : &tools_;
    in.add_generation_prompt = true;
    const auto rendered = text_.chat->render_prompt(in);
    infer::Request r;
    if (pictures_in_ == 0) {
      r.prompt = text_.tok->encode(rendered.text, rendered.plain);
    } else {
      auto shown = show_prompt(*text_.tok, *text_.pictures, rendered.text, rendered.plain, seen_, "--image");
      r.prompt = std::move(shown.ids), r.shown = std::move(shown.shown);
    }
    r.max_tokens = o_.max_tokens;
    r.stop = ends_;
    r.logprobs = -1;
    r.tool = infer::make_calculator(*text_.tok);
    r.sampling = {o_.temperature, o_.top_k, o_.top_p, 0, o_.seed};
    serve::ParserSettings parser;
    parser.reasoning = serve::ReasoningStyle::kThinkTags;
    parser.starts_thinking = trim(rendered.text).ends_with("<think>");
    // Shown even where none were offered: a model tuned to call tools does.
    parser.tools = o_.tool_parser == "hermes"        ? serve::ToolStyle::kHermes
                   : o_.tool_parser == "qwen3_coder" ? serve::ToolStyle::kQwenCoder
                                                     : serve::ToolStyle::kNone;
    parser.tool_list = tools_.is_null() ? nullptr : &tools_;
    parser.id_prefix = fmt::format("call_{}_", messages_.size());
    const auto parse = serve::make_parser(parser);
    serve::TextStream stream;
    Printer printer(isatty(1), o_.show_thinking);
    auto push = [&](const std::string& t) {
      serve::Deltas deltas;
      parse->push(t, deltas);
      printer.take(deltas);
    };
    infer::CalculationMarks marks(*text_.tok);
    int64_t made = 0;
    engine_.generate({r}, [&](size_t, int32_t id) {
      ++made;
      const std::string bytes = text_.tok->token_bytes(id);
      if (const std::string mark = marks.before(id); !mark.empty()) push(stream.push(mark));
      // Control tokens are not shown, but tags are some models' control tokens and the parser wants them.
      push(stream.push(text_.tok->is_special(id) && !serve::is_tag(bytes) ? std::string() : bytes));
      return !g_stop.load();
    });
    push(stream.push(marks.finish()));
    push(stream.finish());
    serve::Deltas rest;
    parse->finish(rest, made < o_.max_tokens && !g_stop.load());
    printer.take(rest);
    printer.end();
    OrderedJson reply{{"role", "assistant"}, {"content", printer.content}};
    if (!printer.calls.empty() && !tools_.is_null()) {
      last_call_ = printer.calls.back()["id"].get<std::string>();
      reply["tool_calls"] = std::move(printer.calls);
      if (const std::string why = broken(reply); !why.empty()) {
        std::printf("(a call that is no JSON is left out of the conversation: %s)\n", why.c_str());
        reply.erase("tool_calls");
      }
    }
    messages_.push_back(std::move(reply));
  }

 private:
  data::SeenPicture see(const std::string& image) const {
    if (!text_.pictures) fail_input("--image: {} sees no pictures{}", o_.model, picture_remedy(path_));
    return data::see_picture(*text_.pictures, image, "", "--image");
  }
  // Why no template would take this answer back; nothing where it would.
  static std::string broken(const OrderedJson& reply) {
    try {
      tokenizer::normalize_messages(OrderedJson::array({reply}));
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }

  const ChatOptions& o_;
  std::string path_;
  TokenizerBundle text_;
  infer::Model model_;
  infer::Engine engine_;
  std::vector<int32_t> ends_;  // of a turn
  std::vector<data::SeenPicture> seen_;
  size_t pictures_in_ = 0;  // of the conversation's messages
  OrderedJson messages_, tools_;
  std::string last_call_;
};

template <typename Talk>
void converse(Talk& talk, ChatOptions& o) {
  talk.reset(o.system);
  if (!o.prompt.empty()) return talk.answer("user", o.prompt);
  for (std::string line; !g_stop.load();) {
    if (isatty(0)) {
      std::printf("> ");
      std::fflush(stdout);
    }
    if (!std::getline(std::cin, line)) break;
    const std::string said(trim(line));
    if (said.empty()) continue;
    if (!is_valid_utf8(said)) {
      std::printf("(this line is not valid UTF-8 and was not taken: set the terminal to UTF-8)\n");
      continue;
    }
    const std::string word = said.substr(0, said.find(' ')), rest(trim(std::string_view(said).substr(word.size())));
    if (word == "/quit") break;
    if (word == "/help")
      std::printf("%s", kHelp);
    else if (word == "/reset")
      talk.reset(o.system);
    else if (word == "/system")
      talk.reset(o.system = rest);
    else if (word == "/history") {
      for (const auto& m : talk.messages()) std::printf("%s\n", json_text(m).c_str());
    } else if (word == "/result")
      talk.answer("tool", rest);
    else
      talk.answer("user", said);
  }
}

void converse_with_a_server(ChatOptions& o) {
  if (!o.images.empty()) fail_missing("--image with --url is not built in: run the model here");
  if (!o.adapter.empty() || !o.tools.empty())
    fail_input(
        "--url: the server has its model and adapters (--model names one); --adapter and --tools are for a model "
        "that is here");
  o.remote.model = o.model;
  o.remote.api_key = environment("OPENAI_API_KEY");
  o.remote.max_tokens = o.max_tokens;
  o.remote.temperature = o.temperature;
  o.remote.top_p = o.top_p;
  RemoteChat talk(o.remote);
  converse(talk, o);
}

}  // namespace

void add_chat(CLI::App& app) {
  auto* c = app.add_subcommand("chat",
                               "talk to a model in the terminal (/help lists its commands)\nexample: mindxtrain chat "
                               "--model DIR --adapter out/run1/checkpoint");
  auto o = std::make_shared<ChatOptions>();
  // CLI11's ranges let "nan" through: no comparison holds for it.
  const CLI::Validator kNumber(
      [](std::string& s) {
        return CLI::detail::to_lower(s).find("nan") == std::string::npos ? "" : "a number is wanted";
      },
      "", "number");
  c->add_option("--model", o->model,
                "folder, .gguf file or Hub id (or ID@REVISION); with --url the server's name of one");
  auto* url =
      c->add_option("--url", o->remote.url,
                    "a server with OpenAI's API in the place of a model that is here; its key in OPENAI_API_KEY");
  auto* pay_file =
      c->add_option(
           "--pay", o->remote.pay_file,
           "key file (key new FILE --kind evm, or algorand) that pays a server which asks for it by x402, in USDC")
          ->needs(url);
  c->add_option("--max-usd", o->remote.max_usd, "most that may be paid in all, in dollars")->needs(pay_file);
  c->add_option("--adapter", o->adapter, "PEFT folder");
  c->add_option("--image", o->images, "a picture for the first message (repeatable): JPEG, PNG or WebP, or a data URI");
  const auto* prompt = c->add_option("--prompt", o->prompt, "one question, one answer");
  c->add_option("--system", o->system, "system message");
  c->add_option("--tools", o->tools, "JSON file: tools that the model may call, as in OpenAI's API");
  c->add_option("--tool-call-parser", o->tool_parser, "how the model writes calls")
      ->check(CLI::IsMember({"hermes", "qwen3_coder", "none"}));
  c->add_flag("--show-thinking", o->show_thinking, "print the reasoning too");
  c->add_option("--max-tokens", o->max_tokens, "longest answer")->check(CLI::Range(1, 1 << 20));
  c->add_option("--temperature", o->temperature, "0: the most likely token")->check(CLI::NonNegativeNumber & kNumber);
  c->add_option("--top-p", o->top_p, "nucleus")->check(CLI::Range(0.0, 1.0) & kNumber);
  c->add_option("--top-k", o->top_k, "0: off")->check(CLI::NonNegativeNumber);
  c->add_option("--seed", o->seed, "of the sampling")->check(CLI::NonNegativeNumber);
  c->add_option("--dtype", o->dtype, kDtypeHelp);
  c->add_option("--device", o->device,
                "cpu, or cuda for the NVIDIA card of this machine (or its name: h100, rtx4090, ...)");
  c->add_option("--threads", o->threads, "threads");
  c->callback([o, prompt] {
    if (prompt->count() > 0 && trim(o->prompt).empty()) fail_input("--prompt: is empty: ask something");
    for (const auto& [option, text] : {std::pair("--prompt", &o->prompt), std::pair("--system", &o->system)})
      if (!is_valid_utf8(*text)) fail_input("{}: is not valid UTF-8: set the terminal to UTF-8", option);
    if (!o->remote.url.empty()) return converse_with_a_server(*o);
    if (o->model.empty()) fail_input("--model is wanted, or --url for a server that has one");
    set_threads(o->threads);
    Conversation talk(*o, resolve_model(o->model, std::nullopt));
    converse(talk, *o);
  });
}

}  // namespace mxt::app
