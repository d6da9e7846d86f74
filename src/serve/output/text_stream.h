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
  std::string finish();  // what was held back
  bool stopped() const { return stopped_; }
  const std::string& stop() const { return stop_; }  // the one that was met

 private:
  std::vector<std::string> stops_;
  bool keep_stop_;
  std::string bytes_, held_, stop_;  // incomplete character; text that may begin a stop string
  bool stopped_ = false;
  std::string emit();
};

// Bytes of `s` that are whole characters or never will be: the rest is the beginning of one.
size_t whole_characters(std::string_view s);

}  // namespace mxt::serve
