// Tokenizers: byte-level BPE (and BPE over characters), WordPiece, single characters. The ids are those of Hugging Face
// tokenizers for the same tokenizer.json; what is not supported is refused when loading, never encoded differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/span.h"

namespace mxt::tokenizer {

// What the tokenizer.ggml.* keys of a GGUF file say.
struct GgufTokenizerData {
  std::string model;  // "gpt2" (byte-level BPE) or "bert" (WordPiece)
  std::string pre;    // "qwen2", "smollm", "llama-bpe", "gpt-2", …
  std::vector<std::string> tokens;
  std::vector<int32_t> token_type;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;  // "left right"
  int32_t bos_id = -1, eos_id = -1, pad_id = -1, unk_id = -1;  // -1 where the key is absent
  bool add_bos = false;                                        // kept for save(); encode never adds one
  std::string chat_template;                                   // "" where absent
  std::string tool_template;                                   // the one named tool_use, likewise
  std::string source = "GGUF";                                 // named in errors
};

struct Spec;   // what a tokenizer file says (tokenizer/spec.h)
class Engine;  // the compiled form

// Immutable and thread-safe. All encode functions take any bytes: invalid UTF-8 counts as U+FFFD, one for each maximal
// invalid part, as Python's errors='replace' does. No BOS or other template token is added.
class Tokenizer {
 public:
  // tokenizer.json, with tokenizer_config.json, special_tokens_map.json and chat_template.jinja where they exist, or
  // vocab.json + merges.txt of old GPT-2 folders, or vocab.txt of BERT. Errors: kBadInput names file and key.
  static std::shared_ptr<const Tokenizer> from_folder(const std::string& dir);
  static std::shared_ptr<const Tokenizer> from_json(std::string_view tokenizer_json, std::string_view source);
  static std::shared_ptr<const Tokenizer> from_gguf(const GgufTokenizerData& data);
  // nanoGPT's character level: the sorted distinct code points of `data`; any other character is an error on encode.
  static std::shared_ptr<const Tokenizer> characters(std::string_view data);
  static std::shared_ptr<const Tokenizer> from_spec(Spec spec);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;

  // Added tokens in the text are recognised as Hugging Face does, except control (special) tokens that start inside one
  // of `plain` (sorted, disjoint): there their text is ordinary text.
  std::vector<int32_t> encode(std::string_view text, std::span<const Span> plain = {}) const;
  void encode_append(std::string_view text, std::vector<int32_t>& out, std::span<const Span> plain = {}) const;
  // The same, with the bytes of `text` that every token stands for; offsets.size() == ids.size(). Bytes that several
  // tokens share (a character split into byte tokens keeps its own bytes; text changed by a normaliser does not) are
  // given to each of them.
  std::vector<int32_t> encode_with_offsets(std::string_view text, std::span<const Span> plain,
                                           std::vector<Span>& offsets) const;
  // The same ids as encode, the work spread over up to `threads` threads.
  std::vector<int32_t> encode_parallel(std::string_view text, int threads, std::span<const Span> plain = {}) const;

  // A text as a model is trained on it and reads it where no chat template is used: template_prefix() before it, unless
  // it begins so already. For training rows, evaluation, completions, scores.
  std::vector<int32_t> encode_with_prefix(std::string_view text) const;

  // As Hugging Face's decode: invalid bytes become U+FFFD, unknown ids are left out.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  // Raw bytes of one token ("" for an unknown id): for streaming and logprobs; may be a part of a character.
  std::string token_bytes(int32_t id) const;
  // The token as the vocabulary spells it ("Ġthe"); "" for an unknown id.
  const std::string& token(int32_t id) const;

  int32_t id_of(std::string_view token) const;  // as the vocabulary spells it; -1 if absent
  bool is_special(int32_t id) const;
  bool is_added(int32_t id) const;  // found as a whole in the text, special or not
  int32_t vocab_size() const;       // largest id + 1
  int32_t bos() const;              // -1 where none
  int32_t eos() const;
  int32_t pad() const;
  // What Hugging Face's encode(text) puts before the ids of the text (the post-processor's template): a BOS, mostly
  // nothing.
  const std::vector<int32_t>& template_prefix() const { return prefix_; }
  // And what it puts after them: BERT's [SEP].
  std::vector<int32_t> template_suffix() const;
  std::string chat_template() const;  // "" where none
  // The template named tool_use, which transformers takes instead wherever a chat comes with tools; "" where none.
  std::string tool_template() const;

  // tokenizer.json, tokenizer_config.json and, where there are any, the chat templates, for transformers: equal ids.
  void save(const std::string& dir) const;

  // For a GGUF file. `pre` is the one of llama.cpp's pre-tokenizers that cuts a probing text as this tokenizer does;
  // kMissing where none does, or for WordPiece and characters.
  GgufTokenizerData to_gguf() const;

 private:
  explicit Tokenizer(std::unique_ptr<const Engine> engine);
  std::unique_ptr<const Engine> engine_;
  std::vector<int32_t> prefix_;
};

}  // namespace mxt::tokenizer
