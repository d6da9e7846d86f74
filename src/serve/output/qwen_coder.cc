#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "serve/output/object_text.h"
#include "serve/output/parsers.h"
#include "serve/output/schema_types.h"

namespace mxt::serve {
namespace {

constexpr std::string_view kOpenCall = "<tool_call>", kCloseCall = "</tool_call>",
                           kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>", kCallSpace = " \t\r\n";

class QwenCoder final : public OutputParser {
 public:
  QwenCoder(std::string prefix, const OrderedJson* tools)
      : prefix_(std::move(prefix)), tools_(tools ? *tools : OrderedJson()) {}

  void push(std::string_view text, Deltas& out) override {
    held_ += text;
    while (step(out)) {
    }
  }
  void finish(Deltas& out, bool ended) override {
    if (state_ == State::kInside)
      finish_call(ended, out);
    else if (state_ == State::kOpened)
      say(opening_ + held_, out);
    else if (state_ == State::kText || !kCloseCall.starts_with(held_))
      say(held_, out);
    held_.clear();
  }
  bool in_call() const override { return state_ == State::kInside; }

 private:
  enum class State { kText, kOpened, kInside, kAfter };

  void say(std::string text, Deltas& out) {
    if (after_call_) {  // white space behind a call is no content
      text.erase(0, text.find_first_not_of(kCallSpace));
      if (text.empty()) return;
      after_call_ = false;
    }
    if (!text.empty()) out.push_back({Delta::Kind::kContent, std::move(text)});
  }
  // Pieces of the arguments. Members that a value has twice are there once.
  void argue(const std::string& text, Deltas& out) {
    std::string made;
    for (const char c : text) made += object_.push(c);
    give(std::move(made), out);
  }
  void give(std::string arguments, Deltas& out) {
    if (!arguments.empty()) out.push_back({Delta::Kind::kToolArguments, std::move(arguments), index_, {}, {}});
  }
  void drop_space() { held_.erase(0, held_.find_first_not_of(kCallSpace)); }
  // Up to the first of these tags; false where none has come whole: what cannot begin one goes to `before`.
  bool find_tag(std::initializer_list<std::string_view> tags, std::string& before) {
    size_t first = std::string::npos, keep = 0;
    for (const std::string_view tag : tags) {
      first = std::min(first, held_.find(tag));
      keep = std::max(keep, partial_tag(held_, tag));
    }
    const size_t end = std::min(first, held_.size() - keep);
    before += held_.substr(0, end);
    held_.erase(0, end);
    return first != std::string::npos;
  }

  // One step forward; false where more text is wanted.
  bool step(Deltas& out) {
    switch (state_) {
      case State::kText:
        return read_text(out);
      case State::kOpened:
        return read_name(out);
      case State::kInside:
        return read_parameter(out);
      case State::kAfter:
        return read_behind();
    }
    return false;
  }
  bool read_text(Deltas& out) {
    const bool tag = still_open_ ? find_tag({kOpenCall, kCloseCall}, text_) : find_tag({kOpenCall}, text_);
    // White space before a tag is no content: it waits.
    const size_t last = text_.find_last_not_of(kCallSpace) + 1;
    say(text_.substr(0, last), out);
    text_.erase(0, last);
    if (!tag) return false;
    if (held_.starts_with(kCloseCall)) {
      say(text_, out);
      held_.erase(0, kCloseCall.size());
      after_call_ = true;
    } else {
      held_.erase(0, kOpenCall.size());
      opening_ = kOpenCall;
      state_ = State::kOpened;
    }
    text_.clear();
    still_open_ = false;
    return true;
  }
  bool read_name(Deltas& out) {
    const size_t first = held_.find_first_not_of(kCallSpace);
    if (first == std::string::npos) return false;
    const std::string_view seen = std::string_view(held_).substr(first);
    if (seen.size() < kFunction.size() && kFunction.starts_with(seen)) return false;
    const size_t end = seen.find('>');
    if (seen.starts_with(kFunction) && end == std::string::npos) return false;
    if (!seen.starts_with(kFunction) || end == kFunction.size()) {  // not a call after all
      say(opening_, out);
      state_ = State::kText;
      return true;
    }
    name_ = plain(seen.substr(kFunction.size(), end - kFunction.size()));
    held_.erase(0, first + end + 1);
    object_ = {};
    first_ = after_call_ = true;
    out.push_back({Delta::Kind::kToolBegin, {}, ++index_, prefix_ + std::to_string(index_), name_});
    state_ = State::kInside;
    return true;
  }
  bool read_parameter(Deltas& out) {
    if (!find_tag({kParameter, kFunctionEnd, kCloseCall, kOpenCall, kFunction}, junk_)) return false;
    if (!held_.starts_with(kParameter)) {
      if (held_.starts_with(kFunctionEnd)) held_.erase(0, kFunctionEnd.size());
      end_call(out);
      return true;
    }
    const size_t name_end = held_.find('>'), end = name_end == std::string::npos ? name_end : value_end(name_end);
    if (end == std::string::npos) return false;
    take_parameter(name_end, end, true, out);
    held_.erase(0, held_.find(kParameterEnd) == end ? end + kParameterEnd.size() : end);
    return true;
  }
  // Where the value behind `from` ends: at its tag, or where the next parameter or the end of the call shows that the
  // tag is missing.
  size_t value_end(size_t from) const {
    size_t end = std::min(held_.find(kParameterEnd, from), held_.find("\n" + std::string(kParameter), from));
    for (const auto& [tag, follows] : {std::pair(kFunctionEnd, kCloseCall), std::pair(kCloseCall, kOpenCall)})
      for (size_t at = held_.find(tag, from); at < end; at = held_.find(tag, at + 1)) {
        const size_t next = held_.find_first_not_of(kCallSpace, at + tag.size());
        if (next != std::string::npos && std::string_view(held_).substr(next).starts_with(follows)) end = at;
      }
    return end;
  }
  // `whole`: its end has been seen; of a value that is cut off nothing but its text is known.
  void take_parameter(size_t name_end, size_t end, bool whole, Deltas& out) {
    const std::string key = plain(held_.substr(kParameter.size(), name_end - kParameter.size()));
    std::string value = held_.substr(name_end + 1, end - name_end - 1);
    if (value.starts_with('\n')) value.erase(0, 1);
    if (value.ends_with('\n')) value.pop_back();
    argue((first_ ? "{" : ", ") + quoted(key) + ": " + (whole ? spell(key, value) : quoted(value)), out);
    first_ = false;
  }
  void end_call(Deltas& out) {
    argue(first_ ? "{}" : "}", out);
    if (!object_.done()) give(object_.close(), out);
    after_call_ = true;
    say(std::move(junk_), out);
    junk_.clear();
    after_call_ = true;
    state_ = State::kAfter;
  }
  // The answer ended in a call. An argument without its tag: all of it where the model `ended` so, of a text what there
  // is.
  void finish_call(bool ended, Deltas& out) {
    const size_t name_end = held_.starts_with(kParameter) ? held_.find('>') : std::string::npos;
    if (name_end != std::string::npos) {
      size_t end = held_.size();
      for (const std::string_view tag : {kCloseCall, kFunctionEnd, kParameterEnd}) {
        end -= partial_tag(std::string_view(held_).substr(0, end), tag);
        const size_t last = std::string_view(held_).substr(0, end).find_last_not_of(kCallSpace) + 1;
        if (std::string_view(held_).substr(0, last).ends_with(tag)) end = last - tag.size();
      }
      end = std::max(end, name_end + 1);
      const std::string key = plain(held_.substr(kParameter.size(), name_end - kParameter.size()));
      if (ended || (types_of(key) & kStringType)) take_parameter(name_end, end, ended, out);
    } else if (!held_.starts_with(kParameter)) {  // all else is the beginning of a tag
      junk_ += held_.starts_with('<') ? "" : held_;
    }
    end_call(out);
  }
  // The end of the block, a further call in it or a block of its own; else what a model says there is content.
  bool read_behind() {
    drop_space();
    if (held_.empty()) return false;
    if (held_.starts_with(kFunction)) {
      opening_.clear();
      state_ = State::kOpened;
      return true;
    }
    if (held_.starts_with(kCloseCall)) {
      held_.erase(0, kCloseCall.size());
    } else if (!held_.starts_with(kOpenCall)) {
      for (const std::string_view tag : {kFunction, kCloseCall, kOpenCall})
        if (tag.starts_with(held_)) return false;
      still_open_ = true;
    }
    state_ = State::kText;
    return true;
  }

  // A name without spaces and quotation marks around it.
  static std::string plain(std::string_view name) {
    name = trim(name);
    if (name.size() > 2 && (name[0] == '"' || name[0] == '\'') && name.back() == name[0])
      name = name.substr(1, name.size() - 2);
    return std::string(name);
  }
  static std::string quoted(const std::string& text) {
    return OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  JsonTypes types_of(const std::string& key) const {
    const OrderedJson* parameters = nullptr;
    for (const auto& t : tools_) {
      if (!t.is_object() || !t.contains("function") || !t["function"].is_object()) continue;
      const auto &f = t["function"], name = f.contains("name") ? f["name"] : OrderedJson();
      if (name == name_ && f.contains("parameters")) parameters = &f["parameters"];
    }
    return parameters ? types_of_parameter(*parameters, key) : kAnyType;
  }
  // The value as JSON: by the types that the tool's schema allows, a text where that is what is wanted.
  std::string spell(const std::string& key, const std::string& value) const {
    const JsonTypes allowed = types_of(key);
    if (allowed == kStringType) return quoted(value);
    const size_t first = value.find_first_not_of(kCallSpace), last = value.find_last_not_of(kCallSpace);
    std::string text = first == std::string::npos ? "" : value.substr(first, last - first + 1);
    if (text == "True") text = "true";
    if (text == "False") text = "false";
    if (text == "None") text = "null";
    const auto parsed =
        OrderedJson::parse(text, nullptr, false);  // its text is what is given: numbers keep their digits
    const JsonTypes is = parsed.is_discarded() ? 0 : type_of(parsed);
    if (is == kStringType) return allowed & kStringType ? quoted(value) : text;
    // A schema that says nothing of a type may mean any; one that names others is met as far as it can be.
    if (is & allowed || (is != 0 && !(allowed & kStringType))) return text;
    return quoted(value);
  }

  std::string prefix_, held_, name_;
  std::string text_, opening_, junk_;  // space that waits; the tag before a call; what stands between parameters
  ObjectText object_;                  // the arguments of this call
  OrderedJson tools_;
  State state_ = State::kText;
  int64_t index_ = -1;
  bool first_ = true, after_call_ = false, still_open_ = false;  // still_open_: a closing tag has not come yet
};

}  // namespace

std::unique_ptr<OutputParser> qwen_coder_parser(std::string id_prefix, const OrderedJson* tools) {
  return std::make_unique<QwenCoder>(std::move(id_prefix), tools);
}

}  // namespace mxt::serve
