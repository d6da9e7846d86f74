// A tokenizer small enough to check by hand, with SmolLM2's chat layout: a few words, line pairs, the two ChatML
// control tokens, and single bytes for all else.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/coder.h"

namespace mxt::data::testing {

class ToyEncoder : public SampleEncoder {
 public:
  static constexpr int32_t kStart = 256, kEnd = 257, kFirstWord = 258;
  static constexpr std::array<std::string_view, 9> kWords = {"assistant", "system", "user", "hello", " world",
                                                             "\n\n",      "2+",     "=4",   "é"};
  bool chat = true, refuse = false;
  int32_t end = kEnd, begin = kStart;
  std::vector<int32_t> before;

  std::vector<int32_t> encode(std::string_view text, std::span<const ByteSpan> plain,
                              std::vector<ByteSpan>* offsets) const override {
    std::vector<int32_t> ids;
    if (offsets) offsets->clear();
    for (size_t i = 0; i < text.size();) {
      const auto [id, n] = next(text, i, plain);
      ids.push_back(id);
      if (offsets) offsets->push_back({i, i + n});
      i += n;
    }
    return ids;
  }
  int32_t eos() const override { return end; }
  int32_t bos() const override { return begin; }
  std::vector<int32_t> prefix() const override { return before; }
  int64_t vocab_size() const override { return kFirstWord + static_cast<int64_t>(kWords.size()); }
  bool has_chat_template() const override { return chat; }
  RenderedChat render_whole(const OrderedJson& messages, const OrderedJson* tools) const override {
    return render(messages, tools, messages.size());
  }
  RenderedChat render_prompt(const OrderedJson& messages, const OrderedJson* tools) const override {
    RenderedChat r = render(messages, tools, messages.size());
    r.text += "<s>assistant\n";
    r.assistant.clear();
    return r;
  }
  RenderedChat render(const OrderedJson& messages, const OrderedJson*, size_t trained_from) const override {
    if (refuse) fail_input("toy template: refused");
    RenderedChat r;
    for (size_t i = 0; i < messages.size(); ++i) {
      const OrderedJson& m = messages[i];
      const std::string role = m["role"], content = m["content"];
      r.text += "<|im_start|>" + role + "\n";
      const size_t begin = r.text.size();
      r.text += content;
      r.plain.push_back({begin, r.text.size()});
      r.text += "<|im_end|>";
      if (role == "assistant" && i >= trained_from) r.assistant.push_back({begin, r.text.size()});
      r.text += "\n";
    }
    return r;
  }
  std::string digest() const override { return "toy" + std::to_string(end); }
  std::string token_bytes(int32_t id) const override {
    if (id < 256) return std::string(1, static_cast<char>(id));
    if (id == kStart) return "<|im_start|>";
    if (id == kEnd) return "<|im_end|>";
    return std::string(kWords[static_cast<size_t>(id - kFirstWord)]);
  }
  std::string decode(std::span<const int32_t> ids) const {
    std::string s;
    for (int32_t id : ids) s += token_bytes(id);
    return s;
  }

 private:
  static std::pair<int32_t, size_t> next(std::string_view text, size_t i, std::span<const ByteSpan> plain) {
    const std::string_view rest = text.substr(i);
    bool inside = false;
    for (const ByteSpan& p : plain) inside |= i >= p.begin && i < p.end;
    if (!inside && rest.starts_with("<|im_start|>")) return {kStart, 12};
    if (!inside && rest.starts_with("<|im_end|>")) return {kEnd, 10};
    for (size_t w = 0; w < kWords.size(); ++w)
      if (rest.starts_with(kWords[w])) return {kFirstWord + static_cast<int32_t>(w), kWords[w].size()};
    return {static_cast<unsigned char>(rest[0]), 1};
  }
};

}  // namespace mxt::data::testing
