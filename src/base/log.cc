#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>

namespace mxt::log {
namespace {

spdlog::logger& logger() {
  static std::shared_ptr<spdlog::logger> l = [] {
    auto p = std::make_shared<spdlog::logger>("mindxtrain", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    p->set_pattern("%^%v%$");
    return p;
  }();
  return *l;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string duration(double s) {
  if (s < 60) return fmt::format("{:.0f}s", s);
  if (s < 3600)
    return fmt::format("{:.0f}m{:02.0f}s", static_cast<double>(static_cast<int>(s / 60)),
                       s - 60.0 * static_cast<int>(s / 60));
  return fmt::format("{}h{:02d}m", static_cast<int>(s / 3600), static_cast<int>(s / 60) % 60);
}

}  // namespace

void set_level(Level level) {
  static constexpr spdlog::level::level_enum kMap[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                       spdlog::level::err};
  logger().set_level(kMap[static_cast<int>(level)]);
}

void line(Level level, std::string_view text) {
  static constexpr spdlog::level::level_enum kMap[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                       spdlog::level::err};
  logger().log(kMap[static_cast<int>(level)], spdlog::string_view_t(text.data(), text.size()));
}

bool interactive() {
  static const bool tty = isatty(2) == 1;
  return tty;
}

Progress::Progress(std::string what, double total) : what_(std::move(what)), total_(total), start_(now()) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\n", stderr);
}

void Progress::update(double done, std::string_view detail) {
  const double t = now();
  const bool tty = interactive();
  const bool finished = total_ > 0 && done >= total_;
  if (t - last_ < (tty ? 0.1 : 10.0) && !(tty && finished)) return;
  if (!tty && last_ == 0 && t - start_ < 10.0) return;
  last_ = t;
  std::string s = what_;
  if (total_ > 0) {
    s += fmt::format(" {:3.0f}%", 100.0 * done / total_);
    if (done > 0 && !finished) s += fmt::format(" ({} left)", duration((t - start_) * (total_ - done) / done));
  }
  if (!detail.empty()) s += fmt::format("  {}", detail);
  if (tty) {
    std::fprintf(stderr, "\r\033[K%s", s.c_str());
    std::fflush(stderr);
    drawn_ = true;
  } else {
    line(Level::kInfo, s);
  }
}

}  // namespace mxt::log
