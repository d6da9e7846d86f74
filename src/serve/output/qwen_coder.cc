#include <nlohmann/json.hpp>

#include "serve/output/parsers.h"

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
  void finish(Deltas& out) override {
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
    if (index_ >= 0 && text.find_first_not_of(kSpace) == std::string::npos) return;
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
        held_.erase(0, first + end + 1);
        ++index_;
        first_ = true;
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
          argue((first_ ? "{" : ", ") + OrderedJson(key).dump(-1, ' ', false, OrderedJson::error_handler_t::replace) +
                    ": " + spell(key, value),
                out);
          first_ = false;
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

  // The value as JSON: by the schema where there is one.
  std::string spell(const std::string& key, const std::string& value) const {
    std::string type;
    for (const auto& t : tools_) {
      if (!t.is_object() || !t.contains("function") || t["function"].value("name", "") != name_) continue;
      const auto& f = t["function"];
      const auto path = OrderedJson::json_pointer("/parameters/properties");
      if (f.contains(path) && f[path].is_object() && f[path].contains(key) && f[path][key].is_object() &&
          f[path][key].contains("type") && f[path][key]["type"].is_string())
        type = f[path][key]["type"].get<std::string>();
    }
    if (type != "string") {
      const auto parsed = OrderedJson::parse(value, nullptr, false);
      if (!parsed.is_discarded() && (!type.empty() || !parsed.is_string()))
        return parsed.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
      if (type == "boolean" && (value == "True" || value == "False")) return value == "True" ? "true" : "false";
    }
    return OrderedJson(value).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }

  std::string prefix_, held_, name_;
  OrderedJson tools_;
  State state_ = State::kText;
  int64_t index_ = -1;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<OutputParser> qwen_coder_parser(std::string id_prefix, const OrderedJson* tools) {
  return std::make_unique<QwenCoder>(std::move(id_prefix), tools);
}

}  // namespace mxt::serve
