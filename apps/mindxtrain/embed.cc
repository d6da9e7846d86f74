#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/stop.h"
#include "json_rows.h"
#include "semantic.h"
#include "verbs.h"

namespace mxt::app {

void add_embed(CLI::App& app) {
  auto* c = app.add_subcommand("embed",
                               "embeddings of texts, as data.dedupe.semdedup compares them\nexample: mindxtrain embed "
                               "--model sentence-transformers/all-MiniLM-L6-v2 --input rows.jsonl --output out.jsonl");
  struct Options {
    std::string model, input, output;
    int threads = 0;
  };
  auto o = std::make_shared<Options>();
  c->add_option("--model", o->model,
                "folder, .gguf file or Hub id: an encoder (BERT), or a decoder, whose last hidden states are averaged")
      ->required();
  c->add_option("--input", o->input, "JSONL rows {\"text\":\"…\"}")->required();
  c->add_option("--output", o->output,
                "JSONL answers {\"embedding\":[…]}, or F.f32 for little-endian floats, row after row")
      ->required();
  c->add_option("--threads", o->threads, "threads");
  c->callback([o] {
    refuse_overwrite(o->input, o->output);
    set_threads(o->threads);
    std::vector<std::string> texts;
    const auto reader = open_json_rows(o->input);
    for (data::Record record; reader->next(&record);) {
      const std::string source = record.where();
      const Json j = parse_json(record.text, source);
      if (!j.is_object() || !j.contains("text") || !j["text"].is_string())
        fail_input("{}: a row is {{\"text\":\"…\"}}", source);
      texts.push_back(j["text"].get<std::string>());
    }
    const auto embedder = make_embedder(o->model, "--model");
    const auto width = static_cast<size_t>(embedder->width());
    const bool floats = o->output.ends_with(".f32");
    AtomicFile out(o->output);
    std::vector<float> e;
    double seconds = 0;
    constexpr size_t kRows = 1024;
    for (size_t i = 0; i < texts.size(); i += kRows) {
      check_stop(&g_stop);
      const auto rows = std::span(texts).subspan(i, std::min(kRows, texts.size() - i));
      e.resize(rows.size() * width);
      const auto begin = std::chrono::steady_clock::now();
      embedder->embed(rows, e.data());
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (floats) out.write(e.data(), e.size() * sizeof(float));
      for (size_t r = 0; r < rows.size() && !floats; ++r)
        out.write(Json{{"embedding", std::vector<float>(e.begin() + static_cast<ptrdiff_t>(r * width),
                                                        e.begin() + static_cast<ptrdiff_t>((r + 1) * width))}}
                      .dump() +
                  "\n");
    }
    out.commit();
    std::fprintf(stderr, "%zu rows of %zu in %.3f s (%.0f rows/s)\n", texts.size(), width, seconds,
                 static_cast<double>(texts.size()) / std::max(seconds, 1e-9));
  });
}

}  // namespace mxt::app
