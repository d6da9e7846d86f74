#include "quantize/quantize.h"

#include "base/error.h"
#include "formats/family.h"
#include "formats/gguf_hf.h"
#include "quantize/internal.h"

namespace mxt::quantize {

using config::QuantScheme;

bool is_gguf_scheme(QuantScheme s) {
  return s == QuantScheme::kGgufF16 || s == QuantScheme::kGgufBf16 || s == QuantScheme::kGgufQ8_0 ||
         s == QuantScheme::kGgufQ4_0 || s == QuantScheme::kGgufQ4KM;
}

std::string_view leaf_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return name;
  const std::string_view module = name.substr(0, dot);
  return module.substr(module.rfind('.') + 1);  // npos + 1 = 0
}

void check_scheme(QuantScheme scheme) {
  if (scheme == QuantScheme::kGptqRocm)
    fail_missing(
        "quantize: scheme gptq_rocm is not built in: quark_fp8, quark_mxfp4, fp8_dynamic, fp8_block, mxfp4, bnb_nf4, "
        "bnb_nf4_dq and gguf_* are");
}

void check_layout(QuantScheme scheme, const formats::ModelConfig& model, bool has_tokenizer, const std::string& name) {
  check_scheme(scheme);
  if (is_gguf_scheme(scheme)) {
    formats::check_gguf_family(model);
    if (!has_tokenizer) fail_input("{}: a .gguf file holds its tokenizer, and this model has none", name);
    return;
  }
  if (model.family->turned_experts)
    fail_missing(
        "quantize: {} is a model of type {}, whose stacked experts have layouts of their own that are not written "
        "here but in GGUF: "
        "its MXFP4 files are read and trained beside as they are (method qlora)",
        name, model.model_type);
  if (model.family->conv1d || model.family->encoder)
    fail_missing("{}: {} keeps matrices that no loader of this layout takes: a gguf_* scheme holds GPT-2", name,
                 model.model_type);
}

Written write_quantized(const formats::WeightSource& source, const tokenizer::Tokenizer* tok,
                        const config::Quantize& settings, const std::string& name, const std::string& folder,
                        StopFlag stop) {
  if (settings.scheme == QuantScheme::kNone) fail_input("quantize: scheme none writes nothing");
  check_layout(settings.scheme, source.config(), tok != nullptr, source.path());
  if (!is_gguf_scheme(settings.scheme)) return write_hf_folder(source, settings, folder, stop);
  Written w = write_gguf(source, *tok, settings.scheme, name, folder + "/model.gguf", stop);
  if (has_tower(source)) w.bytes += write_gguf_tower(source, settings.scheme, folder + "/mmproj.gguf", stop);
  return w;
}

}  // namespace mxt::quantize
