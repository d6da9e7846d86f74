#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "config/enums.h"
#include "quantize_model.h"
#include "verbs.h"

namespace mxt::app {
namespace {

config::QuantScheme scheme_of(const std::string& name) {
  config::QuantScheme s{};
  if (config::enum_from_text(name, &s) && s != config::QuantScheme::kNone) return s;
  std::string all;
  for (const std::string_view n : config::enum_names(config::QuantScheme{})) {
    const std::string_view plain = n.front() == '+' ? n.substr(1) : n;
    if (plain != "none") all += (all.empty() ? "" : ", ") + std::string(plain);
  }
  fail_input("--scheme {}: one of {}", name, all);
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto* c = app.add_subcommand("quantize",
                               "a smaller copy of a model, for vLLM, transformers or llama.cpp\nexample: mindxtrain "
                               "quantize --model DIR --scheme fp8_dynamic --out small");
  struct Options {
    QuantizeJob job;
    std::string model, scheme, dtype;
    bool per_tensor = false, no_report = false, json = false;
    int threads = 0;
  };
  auto o = std::make_shared<Options>();
  c->add_option("--model", o->model, "folder, .gguf file or Hub id (or ID@REVISION)")->required();
  c->add_option("--adapter", o->job.adapter, "PEFT folder, merged while reading");
  c->add_option("--scheme", o->scheme,
                "quark_fp8 quark_mxfp4 fp8_dynamic fp8_block mxfp4 bnb_nf4 bnb_nf4_dq gguf_f16 gguf_bf16 gguf_q8_0 "
                "gguf_q4_0 gguf_q4_k_m")
      ->required();
  c->add_flag("--per-tensor", o->per_tensor, "quark_fp8: one scale for a whole matrix (a recipe's ptpc: false)");
  c->add_option("--out", o->job.out, "folder to write")->required();
  c->add_option("--text", o->job.text, "held-out text for the report (default: one that is built in)");
  c->add_option("--window", o->job.window, "tokens of context in the report")->check(CLI::Range(2, 1 << 20));
  c->add_option("--dtype", o->dtype,
                "the report runs both models in bfloat16 or float32 (default: the checkpoint's own; float32 for gguf_* "
                "up to a billion parameters, so that the KL is the format's and not that of rounded activations)");
  c->add_flag("--no-report", o->no_report, "do not run the models");
  c->add_flag("--json", o->json, "machine-readable answer");
  c->add_option("--threads", o->threads, "threads (default: OMP_NUM_THREADS, else all cores)");
  c->callback([o] {
    set_threads(o->threads);
    QuantizeJob& job = o->job;
    job.settings.scheme = scheme_of(o->scheme);
    job.settings.ptpc = !o->per_tensor;
    if (o->per_tensor && job.settings.scheme != config::QuantScheme::kQuarkFp8)
      fail_input("--per-tensor: is for quark_fp8; {} has its own scales", o->scheme);
    job.report = !o->no_report;
    if (!o->dtype.empty()) job.type = parse_dtype(o->dtype);
    job.model = resolve_model(o->model, std::nullopt);
    job.name = fs::path(o->model + "/").lexically_normal().parent_path().filename().string();
    const TokenizerBundle side = has_tokenizer(job.model) ? load_text_side(job.model) : TokenizerBundle{};
    const OrderedJson report = quantize_model(job, side);
    std::printf("%s", o->json ? (report.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n").c_str()
                              : report_text(report).c_str());
    if (!o->json) std::printf("%s\n", job.out.c_str());
  });
}

}  // namespace mxt::app
