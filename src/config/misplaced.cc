#include "config/misplaced.h"

#include <algorithm>
#include <map>
#include <vector>

#include "config/field.h"

namespace mxt::config {
namespace {

struct Place {
  std::string path;
  size_t depth;
};

void find(const Section& s, std::string_view key, const std::string& prefix, size_t depth, std::vector<Place>& out) {
  for (const Field& f : s.fields) {
    const std::string path = prefix + f.key;
    if (f.key == key) out.push_back({path, depth});
    if (f.section && f.shape != Shape::kSectionList) find(*f.section, key, path + ".", depth + 1, out);
    for (const auto& [kind, section] : f.variants) find(*section, key, path + ".", depth + 1, out);
  }
}

// transformers', PEFT's, TRL's, Axolotl's and LLaMA-Factory's words.
std::string_view own_word(std::string_view key) {
  static const std::map<std::string_view, std::string_view> kWords{
      {"base_model", "model.name"},
      {"batch_size", "train.batch.per_device"},
      {"cutoff_len", "data.seq_len"},
      {"eval_steps", "train.eval_every"},
      {"gradient_accumulation_steps", "train.batch.grad_accum"},
      {"gradient_clipping", "train.optimizer.grad_clip"},
      {"learning_rate", "train.optimizer.lr"},
      {"logging_steps", "train.log_every"},
      {"lora_alpha", "train.method.alpha"},
      {"lora_dropout", "train.method.dropout"},
      {"lora_r", "train.method.r"},
      {"lora_rank", "train.method.r"},
      {"lora_target", "train.method.target_modules"},
      {"lora_target_modules", "train.method.target_modules"},
      {"lr_scheduler", "train.schedule.type"},
      {"lr_scheduler_type", "train.schedule.type"},
      {"max_grad_norm", "train.optimizer.grad_clip"},
      {"max_length", "data.seq_len"},
      {"max_seq_length", "data.seq_len"},
      {"micro_batch_size", "train.batch.per_device"},
      {"model_name_or_path", "model.name"},
      {"num_epochs", "train.schedule.epochs"},
      {"num_train_epochs", "train.schedule.epochs"},
      {"optim", "train.optimizer.name"},
      {"per_device_train_batch_size", "train.batch.per_device"},
      {"sample_packing", "data.packing"},
      {"save_steps", "train.save_every"},
      {"save_total_limit", "train.keep_last"},
      {"sequence_len", "data.seq_len"},
      {"val_set_size", "data.eval_fraction"},
      {"warmup", "train.schedule.warmup_steps"},
  };
  const auto at = kWords.find(key);
  return at == kWords.end() ? std::string_view{} : at->second;
}

}  // namespace

std::string place_of(std::string_view key, std::string_view path) {
  std::vector<Place> all;
  find(declare_recipe(), key, "", 0, all);
  std::erase_if(all, [&](const Place& p) { return p.path == path; });
  if (all.empty()) return std::string(own_word(key));
  const auto by_depth = [](const Place& a, const Place& b) { return a.depth < b.depth; };
  const size_t least = std::min_element(all.begin(), all.end(), by_depth)->depth;
  std::string out;
  for (const Place& p : all) {
    if (p.depth != least || p.path == out) continue;  // every kind of method has its own
    if (!out.empty()) return "";
    out = p.path;
  }
  return out;
}

}  // namespace mxt::config
