// What a tokenizer file says, in memory: readers fill it, save() writes it, the engine is compiled from it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mxt::tokenizer {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false, normalized = false, lstrip = false, rstrip = false, single_word = false;
};

struct ModelSpec {
  enum class Kind { kBpe, kWordPiece, kCharacters };
  Kind kind = Kind::kBpe;
  std::vector<std::string> tokens;                  // by id, as spelled in the file
  std::vector<bool> present;                        // ids without a token are holes
  std::vector<std::pair<int32_t, int32_t>> merges;  // kBpe: ids of the two parts, first merge first
  bool ignore_merges = false, byte_fallback = false, fuse_unk = false;
  std::string unk_token;      // "" where none
  std::string prefix = "##";  // kWordPiece: of a piece inside a word
  int max_characters = 100;   // kWordPiece: longer words are unknown

  void put(int32_t id, std::string token);
};

// Of a model's folder, as transformers keeps named chat templates.
inline constexpr const char* kToolTemplateFile = "additional_chat_templates/tool_use.jinja";

struct Spec {
  std::string source;  // named in errors
  ModelSpec model;
  std::vector<AddedToken> added;  // by rising id
  // Parts of tokenizer.json as JSON text, "null" where absent.
  std::string normalizer = "null", pre_tokenizer = "null", post_processor = "null", decoder = "null";
  // From tokenizer_config.json, special_tokens_map.json, GGUF; "" where none.
  std::string bos_token, eos_token, pad_token, unk_token, chat_template;
  std::string tool_template;   // the one named tool_use, for chats with tools; "" where there is one for all
  bool split_special = false;  // control tokens in a text are text like any other (split_special_tokens)
  std::string config = "{}";   // tokenizer_config.json as it was read
};

}  // namespace mxt::tokenizer
