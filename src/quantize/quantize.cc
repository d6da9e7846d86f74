#include "quantize/quantize.h"

#include "base/error.h"
#include "formats/family.h"
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

Written write_quantized(const formats::WeightSource& source, const tokenizer::Tokenizer* tok,
                        const config::Quantize& settings, const std::string& name, const std::string& folder,
                        StopFlag stop) {
  check_scheme(settings.scheme);
  if (settings.scheme == QuantScheme::kNone) fail_input("quantize: scheme none writes nothing");
  if (source.config().family->turned_experts && !is_gguf_scheme(settings.scheme))
    fail_missing(
        "quantize: {} is a model of type {}, whose stacked experts have layouts of their own that are not written "
        "here but in GGUF: "
        "its MXFP4 files are read and trained beside as they are (method qlora)",
        source.path(), source.config().model_type);
  if (!is_gguf_scheme(settings.scheme)) return write_hf_folder(source, settings, folder, stop);
  if (!tok) fail_input("{}: a .gguf file holds its tokenizer, and this model has none", source.path());
  Written w = write_gguf(source, *tok, settings.scheme, name, folder + "/model.gguf", stop);
  if (has_tower(source)) w.bytes += write_gguf_tower(source, settings.scheme, folder + "/mmproj.gguf", stop);
  return w;
}

}  // namespace mxt::quantize
