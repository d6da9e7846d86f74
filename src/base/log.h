// Log lines (stderr) and progress. A library room says what happens through these and never prints by itself.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace mxt::log {

enum class Level { kDebug, kInfo, kWarn, kError };

void set_level(Level level);
void line(Level level, std::string_view text);
// True when stderr is a terminal: progress may then rewrite its line, else it prints a plain line now and then.
bool interactive();

template <typename... A>
void debug(fmt::format_string<A...> f, A&&... a) {
  line(Level::kDebug, fmt::format(f, std::forward<A>(a)...));
}
template <typename... A>
void info(fmt::format_string<A...> f, A&&... a) {
  line(Level::kInfo, fmt::format(f, std::forward<A>(a)...));
}
template <typename... A>
void warn(fmt::format_string<A...> f, A&&... a) {
  line(Level::kWarn, fmt::format(f, std::forward<A>(a)...));
}

// Progress of long work: on a terminal one rewritten line, elsewhere a plain line at most every ten seconds.
class Progress {
 public:
  explicit Progress(std::string what, double total = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  // `detail` is shown after the percentage and the time left.
  void update(double done, std::string_view detail = {});

 private:
  std::string what_;
  double total_;
  double start_, last_ = 0;
  bool drawn_ = false;
};

}  // namespace mxt::log
