#include "tokenizer/tokenizer.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/shape/example.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct TokenizerOptions {
  std::string model, input, output;
  bool lines = false, json = false;
  int threads = 0;
};

void emit(const TokenizerOptions& o, const std::string& text) {
  if (o.output.empty())
    std::fwrite(text.data(), 1, text.size(), stdout);
  else
    write_file_atomic(o.output, text);
}

// Pieces of the input: the whole file, or its lines without their ends (a last line without one counts).
std::vector<std::string_view> pieces(const TokenizerOptions& o, const std::string& text) {
  if (!o.lines) return {text};
  auto all = split(text, '\n');
  if (!all.empty() && all.back().empty()) all.pop_back();
  return all;
}

void encode(const TokenizerOptions& o) {
  const auto side = load_text_side(resolve_model(o.model, std::nullopt, Fetch::kAllowed, Parts::kNoWeights));
  const std::string text = read_file(o.input);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::vector<int32_t>> ids;
  for (const auto piece : pieces(o, text)) ids.push_back(side.tok->encode_parallel(piece, num_threads()));
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  log::info("{:.1f} MB in {:.3f} s: {:.1f} MB/s", static_cast<double>(text.size()) / 1e6, s,
            static_cast<double>(text.size()) / 1e6 / std::max(s, 1e-9));
  if (o.output.ends_with(".u32")) {
    AtomicFile f(o.output);
    for (const auto& row : ids) f.write(row.data(), row.size() * 4);
    f.commit();
    return;
  }
  std::string out;
  for (const auto& row : ids) {
    if (o.json) {
      out += "{\"ids\":[";
      for (size_t i = 0; i < row.size(); ++i) out += (i ? "," : "") + std::to_string(row[i]);
      out += "]}\n";
    } else {
      for (size_t i = 0; i < row.size(); ++i) out += (i ? " " : "") + std::to_string(row[i]);
      out += "\n";
    }
  }
  emit(o, out);
}

void decode(const TokenizerOptions& o) {
  const auto side = load_text_side(resolve_model(o.model, std::nullopt, Fetch::kAllowed, Parts::kNoWeights));
  std::string out;
  int64_t line = 0;
  const std::string text = read_file(o.input);
  for (std::string_view row : split(text, '\n')) {
    ++line;
    if (trim(row).empty()) continue;
    std::vector<int32_t> ids;
    if (trim(row).front() == '{' || trim(row).front() == '[') {
      const Json j = parse_json(row, fmt::format("{}:{}", o.input, line));
      const Json& list = j.is_object() && j.contains("ids") ? j["ids"] : j;
      if (!list.is_array()) fail_input("{}:{}: a row is {{\"ids\":[…]}} or numbers", o.input, line);
      for (const auto& v : list) {
        if (!v.is_number_unsigned() || v.get<uint64_t>() > INT32_MAX)
          fail_input("{}:{}: {} is not a token id", o.input, line, v.dump());
        ids.push_back(v.get<int32_t>());
      }
    } else {
      for (std::string_view w : split(trim(row), ' ')) {
        if (w.empty()) continue;
        if (w.find_first_not_of("0123456789") != std::string_view::npos || w.size() > 9)
          fail_input("{}:{}: \"{}\" is not a token id", o.input, line, w);
        ids.push_back(std::stoi(std::string(w)));
      }
    }
    const std::string s = side.tok->decode(ids);
    out += o.json ? Json{{"text", s}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n" : s + "\n";
  }
  emit(o, out);
}

// A row as training reads it, with the same checks.
data::Example read_chat_row(const std::string& file, int64_t line, std::string_view text) {
  data::Record r;
  r.text = text;
  r.path = std::make_shared<const std::string>(file);
  r.line = line;
  data::Example e = data::read_example(r, data::find_layout(r, {}));
  if (e.kind != data::Example::Kind::kChat || !e.pictures.empty())
    fail_input("{}: a conversation of texts is wanted", r.where());
  return e;
}

void render(const TokenizerOptions& o) {
  const auto side = load_text_side(resolve_model(o.model, std::nullopt, Fetch::kAllowed, Parts::kNoWeights));
  if (!side.chat) fail_input("{}: has no chat template", o.model);
  std::string out;
  int64_t line = 0;
  const std::string text = read_file(o.input);
  for (std::string_view row : split(text, '\n')) {
    ++line;
    if (trim(row).empty()) continue;
    const OrderedJson j = parse_ordered_json(row, fmt::format("{}:{}", o.input, line));
    if (!j.is_object() || !(j.contains("messages") || j.contains("conversations")))
      fail_input("{}:{}: a row is {{\"messages\":[…],\"tools\":…,\"add_generation_prompt\":…}}", o.input, line);
    tokenizer::ChatInput in;
    if (j.contains("chat_template_kwargs") && !j["chat_template_kwargs"].is_null())
      in.kwargs = &j["chat_template_kwargs"];
    if (const auto it = j.find("add_generation_prompt"); it != j.end() && !it->is_null()) {
      if (!it->is_boolean()) fail_input("{}:{}: add_generation_prompt is true or false", o.input, line);
      in.add_generation_prompt = *it;
    }
    OrderedJson answer;
    try {
      const data::Example e = read_chat_row(o.input, line, row);
      in.messages = e.messages.get();
      in.tools = e.tools.get();
      // Where text alone is wanted, nothing need be told about what would be trained.
      const auto r = o.json ? side.chat->render(in) : side.chat->render_prompt(in);
      answer["text"] = r.text;
      answer["assistant"] = OrderedJson::array();
      for (const auto& s : r.assistant) answer["assistant"].push_back({s.begin, s.end});
    } catch (const Error& e) {
      answer["error"] = e.what();
    }
    out += o.json ? json_text(answer) + "\n"
                  : (answer.contains("text") ? answer["text"] : answer["error"]).get<std::string>() + "\n";
  }
  emit(o, out);
}

}  // namespace

void add_tokenizer(CLI::App& app) {
  auto* t = app.add_subcommand("tokenizer",
                               "encode, decode and render chats with a model's tokenizer; train a new one\n"
                               "example: mindxtrain tokenizer encode --model DIR --input text.txt --json");
  t->require_subcommand(1);
  auto o = std::make_shared<TokenizerOptions>();
  auto common = [&](CLI::App* c) {
    c->add_option("--model", o->model, "folder, .gguf file or Hub id (or ID@REVISION)")->required();
    c->add_option("--input", o->input, "file")->required();
    c->add_option("--output", o->output, "file (default: stdout; .u32 writes little-endian ids)");
    c->add_flag("--lines", o->lines, "line by line");
    c->add_flag("--json", o->json, "JSON lines");
    c->add_option("--threads", o->threads, "threads");
  };
  auto* e = t->add_subcommand("encode",
                              "text → ids\nexample: mindxtrain tokenizer encode --model DIR --input text.txt --json");
  common(e);
  e->callback([o] {
    set_threads(o->threads);
    refuse_overwrite(o->input, o->output);
    encode(*o);
  });
  auto* d =
      t->add_subcommand("decode", "ids → text\nexample: mindxtrain tokenizer decode --model DIR --input ids.jsonl");
  common(d);
  d->callback([o] {
    set_threads(o->threads);
    refuse_overwrite(o->input, o->output);
    decode(*o);
  });
  auto* r = t->add_subcommand("render",
                              "messages → text and what is trained of it\nexample: mindxtrain tokenizer render --model "
                              "DIR --input rows.jsonl --json");
  common(r);
  r->callback([o] {
    set_threads(o->threads);
    refuse_overwrite(o->input, o->output);
    render(*o);
  });
  add_tokenizer_train(*t);
}

}  // namespace mxt::app
