#include "serve/output/text_stream.h"

#include <algorithm>

#include "base/text.h"

namespace mxt::serve {

size_t whole_characters(std::string_view s) {
  const size_t n = s.size();
  for (size_t back = 1; back <= std::min<size_t>(3, n); ++back) {
    const auto c = static_cast<unsigned char>(s[n - back]);
    if ((c & 0xC0) == 0x80) continue;
    const size_t need = c >= 0xF0 && c <= 0xF4 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 1;
    return c >= 0xC2 && c <= 0xF4 && need > back ? n - back : n;
  }
  return n;
}

std::string TextStream::emit() {
  // The first stop string that is met ends the text; of several at one place the longest.
  size_t at = std::string::npos;
  for (const auto& s : stops_)
    if (const size_t p = held_.find(s); p != std::string::npos && (p < at || (p == at && s.size() > stop_.size()))) {
      at = p;
      stop_ = s;
    }
  std::string out;
  if (at != std::string::npos) {
    stopped_ = true;
    out = held_.substr(0, at + (keep_stop_ ? stop_.size() : 0));
    held_.clear();
    return out;
  }
  size_t hold = 0;
  for (const auto& s : stops_)
    for (size_t n = std::min(s.size() - 1, held_.size()); n > hold; --n)
      if (held_.compare(held_.size() - n, n, s, 0, n) == 0) hold = n;
  out = held_.substr(0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  // A stop string may end inside a character's bytes only if it is no UTF-8 itself: it came as JSON, so it is.
  return out;
}

std::string TextStream::give(std::string text) {
  given_ += text.size();
  return text;
}

std::string TextStream::push_control(std::string_view token) {
  if (stopped_ || std::find(stops_.begin(), stops_.end(), token) == stops_.end()) return {};
  std::string out = held_ + replace_invalid_utf8(bytes_);  // no stop string began there: another has come
  held_.clear();
  bytes_.clear();
  stopped_ = true;
  stop_ = token;
  if (keep_stop_) out += token;
  return give(std::move(out));
}

std::string TextStream::push(std::string_view bytes) {
  if (stopped_) return {};
  bytes_ += bytes;
  const size_t whole = whole_characters(bytes_);
  held_ += replace_invalid_utf8(std::string_view(bytes_).substr(0, whole));
  bytes_.erase(0, whole);
  return give(emit());
}

std::string TextStream::finish() {
  if (stopped_) return {};
  held_ += replace_invalid_utf8(bytes_);
  bytes_.clear();
  std::string out = emit();
  out += held_;
  held_.clear();
  return give(std::move(out));
}

}  // namespace mxt::serve
