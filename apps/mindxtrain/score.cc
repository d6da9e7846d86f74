#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "infer/scorer.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {

void add_score(CLI::App& app) {
  auto* c = app.add_subcommand("score",
                               "log-probability of every token of given rows\nexample: mindxtrain score --model DIR "
                               "--input rows.jsonl --output out.jsonl");
  struct Options {
    std::string model, adapter, input, output, dtype, device = "cpu";
    int threads = 0;
  };
  auto o = std::make_shared<Options>();
  c->add_option("--model", o->model, "folder, .gguf file or Hub id (or ID@REVISION)")->required();
  c->add_option("--adapter", o->adapter, "PEFT folder");
  c->add_option("--input", o->input, "JSONL rows {\"ids\":[…]} or {\"text\":\"…\"}")->required();
  c->add_option("--output", o->output, "JSONL answers {\"logprobs\":[null,…]}")->required();
  c->add_option("--dtype", o->dtype, kDtypeHelp);
  c->add_option("--device", o->device, "cpu, h100 or h200");
  c->add_option("--threads", o->threads, "threads");
  c->callback([o] {
    refuse_overwrite(o->input, o->output);
    set_threads(o->threads);
    const std::string path = resolve_model(o->model, std::nullopt);
    std::shared_ptr<const tokenizer::Tokenizer> tok;
    std::vector<std::vector<int32_t>> rows;
    std::vector<std::string> sources;
    int64_t longest = 1;
    const std::string text = read_file(o->input);
    int64_t line = 0;
    for (size_t at = 0; at < text.size();) {
      ++line;
      size_t end = text.find('\n', at);
      if (end == std::string::npos) end = text.size();
      const std::string source = o->input + ":" + std::to_string(line);
      const std::string_view piece = std::string_view(text).substr(at, end - at);
      at = end + 1;
      if (piece.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const Json j = parse_json(piece, source);
      if (j.is_object() && j.contains("ids") && j["ids"].is_array()) {
        std::vector<int32_t> ids;
        for (const auto& v : j["ids"]) {
          if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() > INT32_MAX)
            fail_input("{}: ids: {} is not a token id", source, v.dump());
          ids.push_back(v.get<int32_t>());
        }
        rows.push_back(std::move(ids));
      } else if (j.is_object() && j.contains("text") && j["text"].is_string()) {
        if (!tok) tok = load_text_side(path).tok;
        rows.push_back(tok->encode_with_prefix(j["text"].get<std::string>()));
      } else {
        fail_input("{}: a row is {{\"ids\":[…]}} or {{\"text\":\"…\"}}", source);
      }
      sources.push_back(source);
      longest = std::max(longest, static_cast<int64_t>(rows.back().size()));
    }
    const DType type = compute_type(o->dtype, path, o->device);
    infer::Model model(path, o->adapter, type, longest, ops_on(o->device), infer::Weights::kForMany);
    for (size_t r = 0; r < rows.size(); ++r)
      for (const int32_t id : rows[r])
        if (id >= model.vocab())
          fail_input("{}: token id {} is outside the model's vocabulary of {}", sources[r], id, model.vocab());
    infer::Scorer scorer(model, std::min<int64_t>(std::max<int64_t>(longest, 2048), 8192));
    AtomicFile out(o->output);
    size_t row = 0;
    for (const auto& lp : scorer.score(rows, &g_stop)) {
      ++row;
      Json j = Json::array();
      for (size_t t = 0; t < lp.size(); ++t) {
        if (t > 0 && std::isnan(lp[t]))
          fail_input("{}: token {}: no log-probability: {} holds weights that are not numbers, or overflows in {}",
                     sources[row - 1], t + 1, path, type == DType::kF32 ? "float32" : "bfloat16");
        j.push_back(t == 0 ? Json(nullptr) : Json(lp[t]));
      }
      out.write(Json{{"logprobs", j}}.dump() + "\n");
    }
    out.commit();
  });
}

}  // namespace mxt::app
