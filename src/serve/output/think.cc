#include <algorithm>

#include "serve/output/parsers.h"

namespace mxt::serve {

size_t partial_tag(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(tag.size() - 1, text.size()); n > 0; --n)
    if (text.substr(text.size() - n) == tag.substr(0, n)) return n;
  return 0;
}

bool is_tag(std::string_view token) {
  for (const std::string_view tag : {"<tool_call", "</tool_call", "<think", "</think"})
    if (token.starts_with(tag)) return true;
  return false;
}

namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>", kThinkSpace = " \t\r\n";

class Plain final : public OutputParser {
 public:
  void push(std::string_view text, Deltas& out) override {
    if (!text.empty()) out.push_back({Delta::Kind::kContent, std::string(text)});
  }
  void finish(Deltas&, bool) override {}
};

class Think final : public OutputParser {
 public:
  Think(bool starts_thinking, std::unique_ptr<OutputParser> content)
      : content_(std::move(content)), starts_thinking_(starts_thinking) {}

  void push(std::string_view text, Deltas& out) override {
    held_ += text;
    if (state_ == State::kStart) {
      const size_t first = held_.find_first_not_of(kThinkSpace);
      const std::string_view seen =
          first == std::string::npos ? std::string_view() : std::string_view(held_).substr(first);
      if (seen.size() < kOpen.size() && kOpen.starts_with(seen)) return;
      if (seen.starts_with(kOpen)) {
        held_.erase(0, first + kOpen.size());
        state_ = State::kThinking;
      } else {
        state_ = starts_thinking_ ? State::kThinking : State::kContent;
        untagged_ = starts_thinking_;
      }
      trim_ = state_ == State::kThinking;
    }
    if (state_ == State::kThinking) think(false, out);
    if (state_ == State::kContent) say(out);
  }
  void finish(Deltas& out, bool ended) override {
    if (state_ == State::kStart) state_ = starts_thinking_ ? State::kThinking : State::kContent;
    if (state_ == State::kThinking) {
      think(true, out);
      if (ended && untagged_) {
        out.push_back({Delta::Kind::kNoReasoning, ""});
        content_->push(said_, out);
      }
    }
    if (state_ == State::kContent) say(out);
    content_->finish(out, ended);
  }
  bool in_call() const override { return content_->in_call(); }

 private:
  enum class State { kStart, kThinking, kContent };
  bool trim_left() {  // newlines after a tag; false while there may be more
    if (!trim_) return true;
    const size_t first = held_.find_first_not_of("\r\n");
    held_.erase(0, first);
    trim_ = held_.empty();
    return !trim_;
  }
  void think(bool last, Deltas& out) {
    if (!trim_left()) return;
    const size_t end = held_.find(kClose);
    std::string reasoning;
    if (end != std::string::npos) {
      reasoning = held_.substr(0, end);
      held_.erase(0, end + kClose.size());
      state_ = State::kContent;
      trim_ = true;
    } else {
      // Newlines wait: before the closing tag they belong to neither.
      size_t keep = last ? 0 : partial_tag(held_, kClose);
      while (keep < held_.size() && (held_[held_.size() - keep - 1] == '\n' || held_[held_.size() - keep - 1] == '\r'))
        ++keep;
      reasoning = held_.substr(0, held_.size() - keep);
      held_.erase(0, held_.size() - keep);
    }
    if (state_ == State::kContent)
      while (!reasoning.empty() && (reasoning.back() == '\n' || reasoning.back() == '\r')) reasoning.pop_back();
    if (untagged_) said_ += reasoning;
    if (last && state_ == State::kThinking) {
      if (untagged_) said_ += held_;  // its newlines too
      held_.clear();
    }
    if (reasoning.empty()) return;
    out.push_back({Delta::Kind::kReasoning, std::move(reasoning)});
  }
  void say(Deltas& out) {
    if (!trim_left()) return;
    content_->push(held_, out);
    held_.clear();
  }

  std::unique_ptr<OutputParser> content_;
  bool starts_thinking_, untagged_ = false, trim_ = false;
  State state_ = State::kStart;
  std::string held_, said_;
};

}  // namespace

std::unique_ptr<OutputParser> think_parser(bool starts_thinking, std::unique_ptr<OutputParser> content) {
  return std::make_unique<Think>(starts_thinking, std::move(content));
}

std::unique_ptr<OutputParser> make_parser(const ParserSettings& s) {
  std::unique_ptr<OutputParser> p;
  switch (s.tools) {
    case ToolStyle::kNone:
      p = std::make_unique<Plain>();
      break;
    case ToolStyle::kHermes:
      p = hermes_parser(s.id_prefix);
      break;
    case ToolStyle::kQwenCoder:
      p = qwen_coder_parser(s.id_prefix, s.tool_list);
      break;
  }
  if (s.reasoning == ReasoningStyle::kThinkTags) p = think_parser(s.starts_thinking, std::move(p));
  return p;
}

}  // namespace mxt::serve
