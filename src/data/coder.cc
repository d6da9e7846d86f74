#include "data/coder.h"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::data {
namespace {

// A digest of what the tokenizer does, wherever it came from (a folder, a GGUF file, characters): of the tokenizer.json
// that it writes.
std::string tokenizer_digest(const tokenizer::Tokenizer& t) {
  std::string folder = (fs::temp_directory_path() / "mindxtrain-tokenizer-XXXXXX").string();
  if (!::mkdtemp(folder.data())) fail_input("{}: no folder can be made there; free some space", folder);
  struct Remove {
    const std::string& folder;
    ~Remove() {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
  } remove{folder};
  t.save(folder);
  const std::string digest = hash_file((fs::path(folder) / "tokenizer.json").string()).blake3;
  // The one thing of the other file that changes ids.
  const Json config = read_json_file((fs::path(folder) / "tokenizer_config.json").string());
  return config.value("split_special_tokens", false) ? digest + " special tokens are split" : digest;
}

std::string name_of(const OrderedJson& messages, size_t i) {
  const auto role = messages[i].find("role");
  return fmt::format("messages[{}] (role \"{}\")", i,
                     role != messages[i].end() && role->is_string() ? role->get<std::string>() : "");
}

class RealEncoder : public SampleEncoder {
 public:
  explicit RealEncoder(SampleEncoderParts p) : p_(std::move(p)) {
    if (p_.tokenizer) prefix_ = p_.tokenizer->template_prefix();
    if (p_.vocab_size == 0 && p_.tokenizer) p_.vocab_size = p_.tokenizer->vocab_size();
    if (p_.pictures && p_.tokenizer) {
      PictureRules& r = *p_.pictures;
      for (const auto& [id, text] : {std::pair{r.pad, &r.pad_text}, {r.start, &r.start_text}, {r.end, &r.end_text}})
        if (id < p_.tokenizer->vocab_size()) *text = token_bytes(id);
    }
  }

  std::vector<int32_t> encode(std::string_view text, std::span<const ByteSpan> plain,
                              std::vector<ByteSpan>* offsets) const override {
    if (!p_.tokenizer)
      fail_input("the model has no tokenizer: set model.tokenizer, or give rows of input_ids and labels");
    return offsets ? p_.tokenizer->encode_with_offsets(text, plain, *offsets) : p_.tokenizer->encode(text, plain);
  }
  int32_t eos() const override { return p_.tokenizer ? p_.tokenizer->eos() : -1; }
  int32_t bos() const override { return p_.tokenizer ? p_.tokenizer->bos() : -1; }
  std::vector<int32_t> prefix() const override { return prefix_; }
  int64_t vocab_size() const override { return p_.vocab_size; }
  bool has_chat_template() const override { return p_.chat_template != nullptr; }
  RenderedChat render(const OrderedJson& messages, const OrderedJson* tools, size_t trained_from) const override {
    MXT_ASSERT(p_.chat_template);
    tokenizer::ChatInput in;
    in.messages = &messages;
    in.tools = tools;
    in.now = kTemplateTime;
    in.trained_from = trained_from;
    tokenizer::RenderedChat r = p_.chat_template->render(in);
    return {std::move(r.text), std::move(r.assistant), std::move(r.plain), std::move(r.calls),
            notes_of(r, messages, true)};
  }
  RenderedChat render_whole(const OrderedJson& messages, const OrderedJson* tools) const override {
    MXT_ASSERT(p_.chat_template);
    tokenizer::ChatInput in;
    in.messages = &messages;
    in.tools = tools;
    in.now = kTemplateTime;
    tokenizer::RenderedChat r = p_.chat_template->render_prompt(in);
    return {std::move(r.text), {}, std::move(r.plain), {}, notes_of(r, messages, true)};
  }
  RenderedChat render_prompt(const OrderedJson& messages, const OrderedJson* tools) const override {
    MXT_ASSERT(p_.chat_template);
    tokenizer::ChatInput in;
    in.messages = &messages;
    in.tools = tools;
    in.now = kTemplateTime;
    in.add_generation_prompt = true;
    tokenizer::RenderedChat r = p_.chat_template->render_prompt(in);
    return {std::move(r.text), {}, std::move(r.plain), {}, notes_of(r, messages, false)};
  }
  const PictureRules* pictures() const override { return p_.pictures ? &*p_.pictures : nullptr; }
  std::string digest() const override {
    Blake3 h;
    h.update(p_.tokenizer ? tokenizer_digest(*p_.tokenizer) : "none");
    h.update(fmt::format(" {} {} {} ", p_.vocab_size, eos(), kTemplateTime));
    if (!prefix_.empty()) h.update(fmt::format("{} ", fmt::join(prefix_, ",")));
    if (p_.chat_template) h.update(blake3_hex(p_.chat_template_source));
    if (p_.pictures) h.update(" " + p_.pictures->print());
    return h.hex();
  }
  std::string token_bytes(int32_t id) const override {
    return p_.tokenizer ? p_.tokenizer->token_bytes(id) : fmt::format("<{}>", id);
  }

 private:
  std::vector<RenderedChat::Note> notes_of(const tokenizer::RenderedChat& r, const OrderedJson& messages,
                                           bool trained) const {
    std::vector<RenderedChat::Note> notes;
    for (const size_t i : r.left_out) {
      if (trained && messages[i].value("role", "") == "assistant" && !messages[i].contains("tool_calls"))
        fail_input(
            "{}: the template leaves out the content of messages[{}] (role \"assistant\"): an empty answer would be "
            "trained; use a model whose template takes it",
            p_.chat_template->name(), i);
      if (notes.empty()) notes.push_back({"content", "the template leaves out the content of " + name_of(messages, i)});
    }
    for (const auto& [member, i] : r.unread)
      notes.push_back({"member " + member, fmt::format("the template does not read \"{}\" of {}: it is not used",
                                                       member, name_of(messages, i))});
    if (trained && !r.left_out_thoughts.empty())
      notes.push_back({"reasoning",
                       fmt::format("the template leaves out the reasoning of {}: the turn is trained without it; end a "
                                   "row with each answer that reasons, or mark the turns before \"loss\": false",
                                   name_of(messages, r.left_out_thoughts[0]))});
    if (!r.not_taken.empty())
      notes.push_back({"training", fmt::format("{} asks to be trained on, but only what the assistant says is",
                                               name_of(messages, r.not_taken[0]))});
    return notes;
  }

  SampleEncoderParts p_;
  std::vector<int32_t> prefix_;
};

}  // namespace

std::unique_ptr<SampleEncoder> make_coder(SampleEncoderParts parts) {
  return std::make_unique<RealEncoder>(std::move(parts));
}

}  // namespace mxt::data
