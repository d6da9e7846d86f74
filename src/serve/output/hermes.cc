#include <nlohmann/json.hpp>

#include "serve/output/parsers.h"

namespace mxt::serve {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";

// Walks the text of one JSON object as it comes and finds its top-level members: where the value of a key begins and
// ends.
class Members {
 public:
  struct Event {
    enum { kNone, kValueBegin, kValueEnd, kObjectEnd, kBroken } what = kNone;
    std::string key;        // of the member
    bool inclusive = true;  // kValueEnd: the character is the value's last, not the one after it
  };
  // Takes the next character. A value that is neither string, object nor array ends at the character after it.
  Event next(char c) {
    if (broken_) return {Event::kBroken, {}};
    if (string_) {
      if (escape_)
        escape_ = false;
      else if (c == '\\')
        escape_ = true;
      else if (c == '"') {
        string_ = false;
        if (depth_ == 1 && !in_value_) return want_key_ ? (want_key_ = false, want_colon_ = true, Event{}) : broken();
        if (depth_ == 1 && in_value_) return in_value_ = false, Event{Event::kValueEnd, key_text()};
      }
      if (depth_ == 1 && !in_value_ && want_key_) key_ += c;
      return {};
    }
    const bool space = kSpace.find(c) != std::string_view::npos;
    if (depth_ == 0) {
      if (space) return {};
      if (c != '{') return broken();
      depth_ = 1;
      want_key_ = true;
      return {};
    }
    if (depth_ == 1 && !in_value_) {
      if (space) return {};
      if (c == '}') return depth_ = 0, Event{Event::kObjectEnd, {}};
      if (c == ',') return want_key_ = true, Event{};
      if (c == ':' && want_colon_) return want_colon_ = false, want_value_ = true, Event{};
      if (want_value_) {
        want_value_ = false;
        in_value_ = true;
        if (c == '"')
          string_ = true;
        else if (c == '{' || c == '[')
          ++depth_;
        else
          scalar_ = true;
        return {Event::kValueBegin, key_text()};
      }
      if (c == '"' && want_key_) {
        key_.clear();
        string_ = true;
        return {};
      }
      return broken();
    }
    if (scalar_) {
      if (!space && c != ',' && c != '}') return {};
      scalar_ = in_value_ = false;
      const std::string key = key_text();
      if (c == ',') want_key_ = true;
      if (c == '}') depth_ = 0;
      return {c == '}' ? Event::kObjectEnd : Event::kValueEnd, key, false};
    }
    if (c == '"')
      string_ = true;
    else if (c == '{' || c == '[')
      ++depth_;
    else if (c == '}' || c == ']') {
      if (--depth_ == 1) return in_value_ = false, Event{Event::kValueEnd, key_text()};
    }
    return {};
  }

 private:
  Event broken() {
    broken_ = true;
    return {Event::kBroken, {}};
  }
  std::string key_text() const { return key_; }
  int depth_ = 0;
  bool string_ = false, escape_ = false, in_value_ = false, scalar_ = false, want_key_ = false, want_colon_ = false,
       want_value_ = false, broken_ = false;
  std::string key_;
};

class Hermes final : public OutputParser {
 public:
  explicit Hermes(std::string prefix) : prefix_(std::move(prefix)) {}

  void push(std::string_view text, Deltas& out) override {
    held_ += text;
    while (true) {
      if (!inside_) {
        const size_t open = held_.find(kOpen);
        if (open == std::string::npos) {
          // White space before a call is no content: it waits.
          size_t keep = partial_tag(held_, kOpen);
          while (keep < held_.size() && kSpace.find(held_[held_.size() - keep - 1]) != std::string_view::npos) ++keep;
          say(held_.substr(0, held_.size() - keep), out);
          held_.erase(0, held_.size() - keep);
          return;
        }
        std::string before = held_.substr(0, open);
        before.erase(before.find_last_not_of(kSpace) + 1);
        say(before, out);
        held_.erase(0, open + kOpen.size());
        begin();
      }
      if (!walk(out)) return;
    }
  }

  void finish(Deltas& out) override {
    if (inside_ && !named_)
      say(std::string(kOpen) + block_ + held_, out);
    else if (!inside_)
      say(held_, out);
    held_.clear();
  }

 private:
  void say(std::string text, Deltas& out) {
    if (after_call_) {
      const size_t first = text.find_first_not_of(kSpace);
      text.erase(0, first);
      if (text.empty()) return;
      after_call_ = false;
    }
    if (!text.empty()) out.push_back({Delta::Kind::kContent, std::move(text)});
  }
  void begin() {
    inside_ = true;
    named_ = complete_ = broken_ = false;
    taking_ = Taking::kNothing;
    members_ = {};
    block_.clear();
    name_.clear();
    arguments_.clear();
  }
  void name_the_call(Deltas& out) {
    const auto parsed = OrderedJson::parse(name_, nullptr, false);
    if (!parsed.is_string() || parsed.get_ref<const std::string&>().empty()) {
      broken_ = true;
      return;
    }
    named_ = true;
    ++index_;
    out.push_back({Delta::Kind::kToolBegin, {}, index_, prefix_ + std::to_string(index_), parsed.get<std::string>()});
    argue(arguments_, out);
  }
  void argue(std::string text, Deltas& out) {
    if (!text.empty()) out.push_back({Delta::Kind::kToolArguments, std::move(text), index_, {}, {}});
  }
  // True when the block is over and there may be more text.
  bool walk(Deltas& out) {
    std::string arguments;
    size_t at = 0;
    while (at < held_.size() && !complete_ && !broken_) {
      const char c = held_[at++];
      block_ += c;
      const auto e = members_.next(c);
      using Event = Members::Event;
      if (e.what == Event::kBroken) broken_ = true;
      if (e.what == Event::kValueBegin)
        taking_ = e.key == "name"                                 ? Taking::kName
                  : e.key == "arguments" || e.key == "parameters" ? Taking::kArguments
                                                                  : Taking::kNothing;
      if (e.what == Event::kNone || e.what == Event::kValueBegin || (e.what == Event::kValueEnd && e.inclusive)) {
        if (taking_ == Taking::kName) name_ += c;
        if (taking_ == Taking::kArguments) (named_ ? arguments : arguments_) += c;
      }
      if (e.what == Event::kValueEnd || e.what == Event::kObjectEnd) {
        if (taking_ == Taking::kName) name_the_call(out);
        taking_ = Taking::kNothing;
      }
      if (e.what == Event::kObjectEnd) complete_ = true;
    }
    held_.erase(0, at);
    argue(std::move(arguments), out);
    if (!complete_ && !broken_) return false;
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) {
      const size_t keep = partial_tag(held_, kClose);
      block_ += held_.substr(0, held_.size() - keep);
      held_.erase(0, held_.size() - keep);
      return false;
    }
    block_ += held_.substr(0, close);
    held_.erase(0, close + kClose.size());
    inside_ = false;
    if (!named_)
      say(std::string(kOpen) + block_ + std::string(kClose), out);
    else
      after_call_ = true;
    return !held_.empty();
  }

  enum class Taking { kNothing, kName, kArguments };
  std::string prefix_, held_, block_, name_, arguments_;
  Members members_;
  Taking taking_ = Taking::kNothing;
  int64_t index_ = -1;
  bool inside_ = false, named_ = false, complete_ = false, broken_ = false, after_call_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> hermes_parser(std::string id_prefix) {
  return std::make_unique<Hermes>(std::move(id_prefix));
}

}  // namespace mxt::serve
