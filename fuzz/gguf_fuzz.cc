// Whatever the bytes, a GGUF is read or refused: header, tensors, tokenizer, model config, names, and the decoders.
#include <cstring>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/gguf_hf.h"
#include "formats/gguf_tokenizer.h"
#include "formats/model_config.h"

namespace {

template <typename F>
void may_refuse(F&& f) {
  try {
    f();
  } catch (const mxt::Error& e) {
    MXT_ASSERT(std::strchr(e.what(), '\n') == nullptr);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mxt::formats;
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  may_refuse([&] {
    const Gguf g = Gguf::parse(file, "fuzz");
    for (const GgufTensor& t : g.tensors()) {
      if (t.rows() > 64 || t.columns() > 4096) continue;
      std::vector<float> out(static_cast<size_t>(t.rows() * t.columns()));
      may_refuse([&] { g.dequantize(t, out.data()); });
    }
    may_refuse([&] { gguf_tokenizer(g); });
    may_refuse([&] {
      const ModelConfig c = model_config_from_gguf(g);
      for (const GgufView& v : gguf_hf_views(g, c)) {
        int64_t width = 1;
        for (size_t i = 1; i < v.shape.size(); ++i) width *= v.shape[i];
        const int64_t rows = v.shape.empty() ? 1 : v.shape[0];
        if (rows > 64 || width > 4096) continue;
        std::vector<float> out(static_cast<size_t>(rows * width));
        may_refuse([&] { read_gguf_view(g, v, 0, rows, out.data()); });
      }
    });
  });
  return 0;
}
