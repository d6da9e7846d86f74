#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "data/synth/synth.h"
#include "eval/exact_match.h"
#include "infer/scorer.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {

void add_eval(CLI::App& app) {
  auto* c = app.add_subcommand("eval", "perplexity of a text, or exact match on a synth task's held-out rows\nexample: mindxtrain eval --model DIR --text data/text/general.txt --out out/eval");
  struct Options {
    std::string model, adapter, text, synth, out, dtype = "bfloat16", device = "cpu";
    int64_t limit = 60, max_tokens = 128;
    uint64_t seed = 2048;
    int threads = 0;
  };
  auto o = std::make_shared<Options>();
  c->add_option("--model", o->model, "folder, .gguf file or Hub id")->required();
  c->add_option("--adapter", o->adapter, "PEFT folder");
  c->add_option("--text", o->text, "text file whose perplexity to measure");
  c->add_option("--synth", o->synth, "task whose held-out rows to answer: tool_calls or arithmetic");
  c->add_option("--seed", o->seed, "of the task's rows");
  c->add_option("--limit", o->limit, "rows");
  c->add_option("--max-tokens", o->max_tokens, "longest answer");
  c->add_option("--dtype", o->dtype, "bfloat16 or float32");
  c->add_option("--device", o->device, "cpu, h100 or h200");
  c->add_option("--threads", o->threads, "threads");
  c->add_option("--out", o->out, "folder for results.json")->required();
  c->callback([o] {
    if (o->text.empty() && o->synth.empty()) fail_input("eval: name what to measure: --text FILE, --synth TASK");
    set_threads(o->threads);
    const std::string path = resolve_model(o->model, std::nullopt);
    const TextSide text = load_text_side(path);
    infer::Model model(path, o->adapter, parse_dtype(o->dtype), 2048, ops_on(o->device));
    OrderedJson out;
    if (!o->text.empty()) {
      const auto ids = text.tok->encode(read_file(o->text));
      if (ids.size() < 2) fail_input("{}: too short to score", o->text);
      infer::Scorer scorer(model, 1024);
      out["perplexity"] = {{"file", o->text}, {"tokens", ids.size()}, {"value", scorer.perplexity(ids, 1024)}};
    }
    if (!o->synth.empty()) {
      if (!text.chat) fail_input("{}: the model has no chat template to ask with", o->model);
      std::vector<eval::Question> questions;
      for (const auto& row : data::synth_rows(o->synth, data::Split::kTest, o->limit, o->seed)) {
        OrderedJson m = OrderedJson::array();
        if (!row.system.empty()) m.push_back({{"role", "system"}, {"content", row.system}});
        m.push_back({{"role", "user"}, {"content", row.user}});
        questions.push_back({m.dump(), row.answer});
      }
      const auto e = eval::exact_match(model, *text.tok, *text.chat, questions, o->max_tokens);
      out["exact_match"] = {{"task", o->synth}, {"rows", e.rows}, {"exact", e.exact}, {"share", e.share()}};
    }
    make_folders(o->out);
    write_file_atomic(o->out + "/results.json", out.dump(2) + "\n");
    std::printf("%s\n", out.dump(2).c_str());
  });
}

}  // namespace mxt::app
