// A model of random weights with a tokenizer of bytes, for servers under test.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "checkpoint/weights.h"
#include "models/model.h"
#include "runtime/params.h"

namespace mxt::serve {

inline constexpr const char* kTinyChat =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<s>{{ m.role }}:{{ m.content }}{% if "
    "m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% if enable_thinking is defined and enable_thinking %}<think>{% endif "
    "%}{% endif %}";

struct TinyTokenizer {
  std::vector<std::string> merged;  // "a b": further tokens of several bytes, as byte-level BPE spells them
  bool special_end = true;          // whether </s> is said to be a control token
};

// All bytes have ids 0 to 255 (GPT-2's printable stand-ins), then come <s>, </s> and the merged ones.
inline std::string make_tiny_model(const std::string& folder, const TinyTokenizer& kind = {}) {
  using Object = nlohmann::ordered_json;
  make_folders(folder);
  Object vocab;
  int next = 0;
  for (int b = 0, n = 0; b < 256; ++b) {
    const bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    const int cp = plain ? b : 256 + n++;
    std::string s;
    if (cp < 0x80)
      s = static_cast<char>(cp);
    else
      s = {static_cast<char>(0xC0 | cp >> 6), static_cast<char>(0x80 | (cp & 63))};
    vocab[s] = next++;
  }
  Object t, merges = Object::array();
  t["version"] = "1.0";
  t["truncation"] = t["padding"] = t["normalizer"] = nullptr;
  t["added_tokens"] = Object::array();
  for (const char* name : {"<s>", "</s>"}) {
    vocab[name] = next;
    t["added_tokens"].push_back({{"id", next++},
                                 {"content", name},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", name == std::string("<s>") || kind.special_end}});
  }
  for (const auto& m : kind.merged) {
    merges.push_back(m);
    std::string whole = m;
    whole.erase(whole.find(' '), 1);
    vocab[whole] = next++;
  }
  t["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  t["post_processor"] = nullptr;
  t["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  t["model"] = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", vocab},
                {"merges", merges}};
  write_file_atomic(folder + "/tokenizer.json", t.dump());
  write_file_atomic(folder + "/tokenizer_config.json",
                    nlohmann::json{{"eos_token", "</s>"}, {"tokenizer_class", "PreTrainedTokenizerFast"}}.dump());
  auto config = Object::parse(
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":258,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":512,"rms_norm_eps":1e-6,"rope_theta":10000.0,"tie_word_embeddings":true,"hidden_act":"silu","initializer_range":0.3,"torch_dtype":"float32","eos_token_id":257})");
  config["vocab_size"] = next;
  write_file_atomic(folder + "/config.json", config.dump());
  const auto c = formats::read_model_config(folder);
  models::BuildOptions o;
  o.type = DType::kF32;
  o.purpose = models::Purpose::kGenerate;
  o.positions = 64;
  const graph::Graph g = models::build(c, o);
  runtime::ParamStore params(g, false);
  checkpoint::init_random(g, params, 5);
  checkpoint::save_model(folder, g, params, c, DType::kF32);
  return folder;
}

}  // namespace mxt::serve
