// Tokens to text while they come: bytes of a character that is not whole yet wait for the rest, text that may be the
// beginning of a stop string waits until it is known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mxt::serve {

class TextStream {
 public:
  // `keep_stop`: a stop string that was met stays in the text.
  explicit TextStream(std::vector<std::string> stops = {}, bool keep_stop = false)
      : stops_(std::move(stops)), keep_stop_(keep_stop) {}
  // Text that is certain now; valid UTF-8 always. After stopped() nothing more comes.
  std::string push(std::string_view bytes);
  // A token that is no text, a control token: it ends the text where it is one of the stop strings.
  std::string push_control(std::string_view token);
  std::string finish();  // what was held back
  bool stopped() const { return stopped_; }
  const std::string& stop() const { return stop_; }                      // the one that was met
  size_t given() const { return given_; }                                // bytes that push() and finish() have returned
  size_t seen() const { return given_ + held_.size() + bytes_.size(); }  // and those that wait

 private:
  std::vector<std::string> stops_;
  bool keep_stop_;
  std::string bytes_, held_, stop_;  // incomplete character; text that may begin a stop string
  bool stopped_ = false;
  size_t given_ = 0;
  std::string emit();
  std::string give(std::string text);
};

// Bytes of `s` that are whole characters or never will be: the rest is the beginning of one.
size_t whole_characters(std::string_view s);

}  // namespace mxt::serve
