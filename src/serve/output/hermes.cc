#include <algorithm>
#include <nlohmann/json.hpp>

#include "serve/output/object_text.h"
#include "serve/output/parsers.h"

namespace mxt::serve {
namespace {

constexpr std::string_view kOpenTag = "<tool_call>", kCloseTag = "</tool_call>", kSpace = " \t\r\n",
                           kSlips = " \t\r\n,;}])";  // what models write behind a call by mistake

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
    while (step(out)) {
    }
  }

  void finish(Deltas& out, bool ended) override {
    if (state_ == State::kCall)
      end_call(false, ended, out);
    else if (state_ == State::kText || !kCloseTag.starts_with(held_))
      say(held_, out);
    held_.clear();
  }
  bool in_call() const override {
    return state_ == State::kCall && call_.begun && call_.first == '{' && !call_.object.done();
  }

 private:
  // Outside of a block, in a call of one, behind a call of one.
  enum class State { kText, kCall, kBehind };
  enum class Taking { kNothing, kName, kArguments };
  // What is known of the call that is being read.
  struct Call {
    Members members;
    Taking taking = Taking::kNothing;
    std::string opening;          // the tag before it, if any
    std::string name_text, name;  // as written; what it says
    char first = 0;               // of the arguments: '{', '"', or that of something else
    std::string text;             // arguments that are no object
    std::string certain;          // of the arguments as an object, not given out yet
    ObjectText object;
    bool settled = false;  // the arguments are an object beyond doubt
    bool no_call = false, begun = false, complete = false, broken = false;
  };

  void say(std::string text, Deltas& out) {
    if (after_call_) {
      const size_t first = text.find_first_not_of(kSpace);
      text.erase(0, first);
      if (text.empty()) return;
      after_call_ = false;
    }
    if (!text.empty()) out.push_back({Delta::Kind::kContent, std::move(text)});
  }
  void read_name() {
    const auto parsed = OrderedJson::parse(call_.name_text, nullptr, false);
    if (parsed.is_string()) call_.name = parsed.get<std::string>();
    call_.no_call |= call_.name.empty();
  }
  // Arguments that were not written as an object: as a text that holds one (OpenAI's own form), as nothing, or no call.
  void read_text() {
    if (call_.first == '{') return;
    const auto outer = OrderedJson::parse(call_.text, nullptr, false);
    std::string inner = outer.is_string() ? outer.get<std::string>() : "";
    if (outer.is_null() || (outer.is_string() && inner.find_first_not_of(kSpace) == std::string::npos)) inner = "{}";
    ObjectText object;
    std::string text;
    for (char c : inner) text += object.push(c);
    call_.settled = object.done();
    call_.no_call |= !object.done();
    call_.certain = std::move(text);
  }
  void take(char c) {
    if (call_.taking == Taking::kName) call_.name_text += c;
    if (call_.taking != Taking::kArguments) return;
    if (call_.first == '{') {
      call_.certain += call_.object.push(c);
      call_.settled = call_.object.begun();
    } else {
      call_.text += c;
    }
  }
  // Gives out what is certain, once it is certain that this is a call.
  void tell(Deltas& out) {
    if (call_.name.empty() || call_.no_call || !call_.settled) return;
    if (!call_.begun) {
      call_.begun = true;
      ++index_;
      out.push_back({Delta::Kind::kToolBegin, {}, index_, prefix_ + std::to_string(index_), call_.name});
    }
    if (!call_.certain.empty()) out.push_back({Delta::Kind::kToolArguments, std::move(call_.certain), index_, {}, {}});
    call_.certain.clear();
  }
  // `closed`: a tag has come; else the answer ended in it, by the model itself where it `ended`.
  void end_call(bool closed, bool ended, Deltas& out) {
    if (call_.first == 0 && (closed || call_.complete)) {  // a call without arguments
      call_.certain = "{}";
      call_.settled = true;
    } else if (call_.first == '{' && call_.settled && !call_.object.done()) {
      call_.certain += call_.object.close(ended);
    }
    tell(out);
    after_call_ |= call_.begun;
    if (!call_.begun) say(call_.opening + block_ + (closed ? std::string() : held_), out);
  }
  void begin_call(std::string opening) {
    state_ = State::kCall;
    block_.clear();
    call_ = {};
    call_.opening = std::move(opening);
  }
  bool is_call() const { return !call_.name.empty() && !call_.no_call && (call_.settled || call_.first == 0); }

  // One step forward; false where more text is wanted.
  bool step(Deltas& out) {
    switch (state_) {
      case State::kText:
        return read_text_before(out);
      case State::kCall:
        return read_call(out);
      case State::kBehind:
        return read_behind();
    }
    return false;
  }
  bool read_text_before(Deltas& out) {
    const size_t open = held_.find(kOpenTag), close = still_open_ ? held_.find(kCloseTag) : std::string::npos;
    if (close < open) {
      say(held_.substr(0, close), out);
      held_.erase(0, close + kCloseTag.size());
      still_open_ = false;
      after_call_ = true;
      return true;
    }
    if (open == std::string::npos) {
      // White space before a call is no content: it waits.
      size_t keep = std::max(partial_tag(held_, kOpenTag), still_open_ ? partial_tag(held_, kCloseTag) : 0);
      while (keep < held_.size() && kSpace.find(held_[held_.size() - keep - 1]) != std::string_view::npos) ++keep;
      say(held_.substr(0, held_.size() - keep), out);
      held_.erase(0, held_.size() - keep);
      return false;
    }
    std::string before = held_.substr(0, open);
    before.erase(before.find_last_not_of(kSpace) + 1);
    say(before, out);
    held_.erase(0, open + kOpenTag.size());
    still_open_ = false;
    begin_call(std::string(kOpenTag));
    return true;
  }
  bool read_call(Deltas& out) {
    size_t at = 0;
    while (at < held_.size() && !call_.complete && !call_.broken) {
      take_character(held_[at]);
      if (call_.broken) break;  // it may be the beginning of a tag
      block_ += held_[at++];
    }
    held_.erase(0, at);
    tell(out);
    if (!call_.complete && !call_.broken) return false;
    if (is_call() && (call_.complete || call_.first != 0)) {
      end_call(true, true, out);
      state_ = State::kBehind;
      return true;
    }
    // What is no call, or not yet: all up to the next tag. More than slips behind a name alone may be its arguments: no
    // call then.
    const auto pass = [&](size_t n) {
      const std::string text = held_.substr(0, n);
      call_.no_call |= text.find_first_not_of(kSlips) != std::string::npos;
      block_ += text;
      held_.erase(0, n);
    };
    const size_t tag = std::min(held_.find(kOpenTag), held_.find(kCloseTag));
    pass(std::min(tag, held_.size() - std::max(partial_tag(held_, kOpenTag), partial_tag(held_, kCloseTag))));
    if (tag == std::string::npos) return false;
    if (held_.starts_with(kCloseTag) && !is_call()) {
      if (!call_.opening.empty()) block_ += kCloseTag;
      held_.erase(0, kCloseTag.size());
    }
    end_call(true, true, out);
    if (call_.begun) return state_ = State::kBehind, true;
    state_ = State::kText;
    return true;
  }
  // The end of the block, a further call in it or a block of its own; else what a model says there is content.
  bool read_behind() {
    held_.erase(0, held_.find_first_not_of(kSlips));
    if (held_.empty()) return false;
    if (held_[0] == '{') return begin_call(""), true;
    if (held_.starts_with(kCloseTag)) {
      held_.erase(0, kCloseTag.size());
    } else if (!held_.starts_with(kOpenTag)) {
      if (kCloseTag.starts_with(held_) || kOpenTag.starts_with(held_)) return false;
      still_open_ = true;
    }
    state_ = State::kText;
    return true;
  }
  void take_character(char c) {
    using Event = Members::Event;
    const auto e = call_.members.next(c);
    if (e.what == Event::kBroken) call_.broken = true;
    if (e.what == Event::kValueBegin) {
      const bool arguments = e.key == "arguments" || e.key == "parameters";
      if (e.key == "name" && call_.name_text.empty()) call_.taking = Taking::kName;
      if (arguments && call_.first == 0) call_.taking = Taking::kArguments, call_.first = c;
    }
    if (e.what == Event::kNone || e.what == Event::kValueBegin || (e.what == Event::kValueEnd && e.inclusive)) take(c);
    if (e.what == Event::kValueEnd || e.what == Event::kObjectEnd) {
      if (call_.taking == Taking::kName) read_name();
      if (call_.taking == Taking::kArguments) read_text();
      call_.taking = Taking::kNothing;
    }
    if (e.what == Event::kObjectEnd) call_.complete = true;
  }
  std::string prefix_, held_, block_;
  Call call_;
  int64_t index_ = -1;
  State state_ = State::kText;
  bool after_call_ = false, still_open_ = false;  // still_open_: a block whose closing tag has not come yet
};

}  // namespace

std::unique_ptr<OutputParser> hermes_parser(std::string id_prefix) {
  return std::make_unique<Hermes>(std::move(id_prefix));
}

}  // namespace mxt::serve
