#include <nlohmann/json.hpp>
#include <set>

#include "serve/output/parsers.h"
#include "serve/output/schema_types.h"

namespace mxt::serve {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>",
                           kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>", kSpace = " \t\r\n";

class QwenCoder final : public OutputParser {
 public:
  QwenCoder(std::string prefix, const OrderedJson* tools)
      : prefix_(std::move(prefix)), tools_(tools ? *tools : OrderedJson()) {}

  void push(std::string_view text, Deltas& out) override {
    held_ += text;
    while (step(out)) {
    }
  }
  void finish(Deltas& out, bool) override {
    if (state_ == State::kText)
      say(held_, out);
    else if (state_ == State::kOpened)
      say(std::string(kOpen) + held_, out);
    else if (state_ == State::kInside)
      argue(first_ ? "{}" : "}", out);
    held_.clear();
  }

 private:
  enum class State { kText, kOpened, kInside, kAfter };

  void say(std::string text, Deltas& out) {
    if (after_call_) {  // white space behind a call is no content
      text.erase(0, text.find_first_not_of(kSpace));
      if (text.empty()) return;
      after_call_ = false;
    }
    if (!text.empty()) out.push_back({Delta::Kind::kContent, std::move(text)});
  }
  void argue(std::string text, Deltas& out) {
    out.push_back({Delta::Kind::kToolArguments, std::move(text), index_, {}, {}});
  }
  void drop_space() { held_.erase(0, held_.find_first_not_of(kSpace)); }

  // One step forward; false where more text is wanted.
  bool step(Deltas& out) {
    switch (state_) {
      case State::kText: {
        const size_t open = held_.find(kOpen);
        if (open == std::string::npos) {
          size_t keep = partial_tag(held_, kOpen);
          while (keep < held_.size() && kSpace.find(held_[held_.size() - keep - 1]) != std::string_view::npos) ++keep;
          say(held_.substr(0, held_.size() - keep), out);
          held_.erase(0, held_.size() - keep);
          return false;
        }
        std::string before = held_.substr(0, open);
        before.erase(before.find_last_not_of(kSpace) + 1);
        say(before, out);
        held_.erase(0, open + kOpen.size());
        state_ = State::kOpened;
        return true;
      }
      case State::kOpened: {
        const size_t first = held_.find_first_not_of(kSpace);
        if (first == std::string::npos) return false;
        const std::string_view seen = std::string_view(held_).substr(first);
        if (seen.size() < kFunction.size() && kFunction.starts_with(seen)) return false;
        if (!seen.starts_with(kFunction)) {  // not a call after all
          say(std::string(kOpen), out);
          state_ = State::kText;
          return true;
        }
        const size_t end = seen.find('>');
        if (end == std::string::npos) return false;
        name_ = std::string(seen.substr(kFunction.size(), end - kFunction.size()));
        if (name_.empty()) {
          say(std::string(kOpen), out);
          state_ = State::kText;
          return true;
        }
        seen_.clear();
        held_.erase(0, first + end + 1);
        ++index_;
        first_ = after_call_ = true;
        out.push_back({Delta::Kind::kToolBegin, {}, index_, prefix_ + std::to_string(index_), name_});
        state_ = State::kInside;
        return true;
      }
      case State::kInside: {
        drop_space();
        if (held_.starts_with(kParameter)) {
          const size_t name_end = held_.find('>'), end = held_.find(kParameterEnd);
          if (name_end == std::string::npos || end == std::string::npos || end < name_end) return false;
          const std::string key = held_.substr(kParameter.size(), name_end - kParameter.size());
          std::string value = held_.substr(name_end + 1, end - name_end - 1);
          if (value.starts_with('\n')) value.erase(0, 1);
          if (value.ends_with('\n')) value.pop_back();
          if (seen_.insert(key).second) {  // of two with one name the first
            argue((first_ ? "{" : ", ") + quoted(key) + ": " + spell(key, value), out);
            first_ = false;
          }
          held_.erase(0, end + kParameterEnd.size());
          return true;
        }
        if (held_.starts_with(kFunctionEnd)) {
          held_.erase(0, kFunctionEnd.size());
          argue(first_ ? "{}" : "}", out);
          state_ = State::kAfter;
          return true;
        }
        if (kParameter.starts_with(held_) || kFunctionEnd.starts_with(held_)) return false;
        held_.erase(0, 1);  // what stands between parameters means nothing
        return true;
      }
      case State::kAfter: {
        const size_t close = held_.find(kClose);
        if (close == std::string::npos) return false;
        held_.erase(0, close + kClose.size());
        drop_space();
        state_ = State::kText;
        return true;
      }
    }
    return false;
  }

  static std::string quoted(const std::string& text) {
    return OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  // The value as JSON: by the types that the tool's schema allows, a text where that is what is wanted.
  std::string spell(const std::string& key, const std::string& value) const {
    const OrderedJson* parameters = nullptr;
    for (const auto& t : tools_) {
      if (!t.is_object() || !t.contains("function") || !t["function"].is_object()) continue;
      const auto &f = t["function"], name = f.contains("name") ? f["name"] : OrderedJson();
      if (name == name_ && f.contains("parameters")) parameters = &f["parameters"];
    }
    const JsonTypes allowed = parameters ? types_of_parameter(*parameters, key) : kAnyType;
    if (allowed == kStringType) return quoted(value);
    const size_t first = value.find_first_not_of(kSpace), last = value.find_last_not_of(kSpace);
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
  std::set<std::string> seen_;  // parameters of this call
  OrderedJson tools_;
  State state_ = State::kText;
  int64_t index_ = -1;
  bool first_ = true, after_call_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> qwen_coder_parser(std::string id_prefix, const OrderedJson* tools) {
  return std::make_unique<QwenCoder>(std::move(id_prefix), tools);
}

}  // namespace mxt::serve
