#include "formats/arch/families.h"

#include <algorithm>

namespace mxt::formats {
namespace {

// The first of several families that a GGUF's architecture stands for is the one that it is read as.
constexpr const Family* kFamilies[] = {
    &kLlama,         &kMistral,    &kQwen2,       &kQwen3,   &kQwen3Moe,   &kQwen3Next,      &kQwen35Text, &kQwen35,
    &kQwen35MoeText, &kQwen35Moe,  &kQwen3VlText, &kQwen3Vl, &kQwen3VlMoe, &kQwen3VlMoeText, &kInstella,   &kOlmo2,
    &kPhi3,          &kGemma3Text, &kGemma3,      &kGptOss,  &kGpt2,       &kNanochat,       &kNanochatV2, &kBert};

// Read so that who asks for one is told by its name: models/ has no graph for them.
constexpr const Family* kWithoutGraph[] = {&kQwen3Next, &kQwen3VlMoe, &kQwen3VlMoeText};

}  // namespace

const Family* family_of_type(std::string_view type) {
  for (const Family* f : kFamilies)
    if (f->model_type == type) return f;
  return nullptr;
}

const Family* family_of_architecture(std::string_view architecture) {
  for (const Family* f : kFamilies)
    if (f->architecture == architecture) return f;
  return nullptr;
}

const Family* family_of_gguf(std::string_view architecture) {
  for (const Family* f : kFamilies)
    if (!f->gguf.empty() && f->gguf == architecture) return f;
  return nullptr;
}

std::string known_model_types() {
  std::string out;
  for (const Family* f : kFamilies)
    if (std::ranges::find(kWithoutGraph, f) == std::end(kWithoutGraph))
      out += (out.empty() ? "" : ", ") + std::string(f->model_type);
  return out;
}

std::string known_gguf_architectures() {
  std::string out;
  for (const Family* f : kFamilies)
    if (!f->gguf.empty() && f == family_of_gguf(f->gguf)) out += (out.empty() ? "" : ", ") + std::string(f->gguf);
  return out;
}

int64_t size_of(Extent e, const ModelConfig& c) {
  switch (e) {
    case Extent::kNone:
      return 1;
    case Extent::kVocab:
      return c.vocab_size;
    case Extent::kPositions:
      return c.max_positions;
    case Extent::kWidth:
      return c.hidden_size;
    case Extent::kHeadDim:
      return c.head_dim;
    case Extent::kHeads:
      return c.num_heads;
    case Extent::kQuery:
      return c.num_heads * c.head_dim;
    case Extent::kKeyValue:
      return c.num_kv_heads * c.head_dim;
    case Extent::kQkv:
      return (c.num_heads + 2 * c.num_kv_heads) * c.head_dim;
    case Extent::kInner:
      return c.intermediate_size;
    case Extent::kGateUp:
      return 2 * c.intermediate_size;
    case Extent::kExperts:
      return c.num_experts;
    case Extent::kExpertInner:
      return c.moe_intermediate_size;
    case Extent::kSharedInner:
      return c.shared_expert_intermediate_size;
    case Extent::kOne:
      return 1;
    case Extent::kGatedQuery:
      return 2 * c.num_heads * c.head_dim;
    case Extent::kDeltaQkv:
      return 2 * c.linear_key_heads * c.linear_key_head_dim + c.linear_value_heads * c.linear_value_head_dim;
    case Extent::kDeltaValues:
      return c.linear_value_heads * c.linear_value_head_dim;
    case Extent::kDeltaHeads:
      return c.linear_value_heads;
    case Extent::kDeltaHeadDim:
      return c.linear_value_head_dim;
    case Extent::kDeltaTaps:
      return c.linear_conv_kernel;
  }
  return 0;
}

std::string gguf_lacks_activation(const ModelConfig& c) {
  if (c.activation == "silu" || c.activation == "swish") return "";
  return fmt::format("the activation {} of this architecture", c.activation);
}

}  // namespace mxt::formats
