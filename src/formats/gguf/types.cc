#include <array>
#include <cctype>

#include "formats/gguf.h"

namespace mxt::formats {
namespace {

using T = GgmlType;

// Block sizes: ggml's type traits.
constexpr GgmlTypeInfo kTypes[] = {
    {T::kF32, "F32", 1, 4, true, true},
    {T::kF16, "F16", 1, 2, true, true},
    {T::kBF16, "BF16", 1, 2, true, true},
    {T::kF64, "F64", 1, 8, true, false},
    {T::kQ4_0, "Q4_0", 32, 18, true, true},
    {T::kQ4_1, "Q4_1", 32, 20, true, true},
    {T::kQ5_0, "Q5_0", 32, 22, true, true},
    {T::kQ5_1, "Q5_1", 32, 24, true, true},
    {T::kQ8_0, "Q8_0", 32, 34, true, true},
    {T::kQ8_1, "Q8_1", 32, 40, false, false},
    {T::kQ2_K, "Q2_K", 256, 84, true, false},
    {T::kQ3_K, "Q3_K", 256, 110, true, false},
    {T::kQ4_K, "Q4_K", 256, 144, true, true},
    {T::kQ5_K, "Q5_K", 256, 176, true, true},
    {T::kQ6_K, "Q6_K", 256, 210, true, true},
    {T::kQ8_K, "Q8_K", 256, 292, false, false},
    {T::kIQ2_XXS, "IQ2_XXS", 256, 66, false, false},
    {T::kIQ2_XS, "IQ2_XS", 256, 74, false, false},
    {T::kIQ3_XXS, "IQ3_XXS", 256, 98, false, false},
    {T::kIQ1_S, "IQ1_S", 256, 50, false, false},
    {T::kIQ4_NL, "IQ4_NL", 32, 18, true, false},
    {T::kIQ3_S, "IQ3_S", 256, 110, false, false},
    {T::kIQ2_S, "IQ2_S", 256, 82, false, false},
    {T::kIQ4_XS, "IQ4_XS", 256, 136, true, false},
    {T::kI8, "I8", 1, 1, false, false},
    {T::kI16, "I16", 1, 2, false, false},
    {T::kI32, "I32", 1, 4, false, false},
    {T::kI64, "I64", 1, 8, false, false},
    {T::kIQ1_M, "IQ1_M", 256, 56, false, false},
    {T::kTQ1_0, "TQ1_0", 256, 54, false, false},
    {T::kTQ2_0, "TQ2_0", 256, 66, true, false},
    {T::kMXFP4, "MXFP4", 32, 17, true, true},
    {T::kNVFP4, "NVFP4", 64, 36, false, false},
};

}  // namespace

const GgmlTypeInfo* ggml_type_info(GgmlType type) {
  for (const auto& t : kTypes)
    if (t.type == type) return &t;
  return nullptr;
}

const GgmlTypeInfo* ggml_type_info(std::string_view name) {
  for (const auto& t : kTypes) {
    if (t.name.size() != name.size()) continue;
    bool same = true;
    for (size_t i = 0; i < name.size(); ++i)
      same = same &&
             std::toupper(static_cast<unsigned char>(name[i])) == std::toupper(static_cast<unsigned char>(t.name[i]));
    if (same) return &t;
  }
  return nullptr;
}

}  // namespace mxt::formats
