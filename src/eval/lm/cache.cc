#include "eval/lm/cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace mxt::eval {

namespace {

bool is_finite(const OrderedJson& j) {
  if (j.is_number_float()) return std::isfinite(j.get<double>());
  return !j.is_array() || std::all_of(j.begin(), j.end(), is_finite);
}

}  // namespace

RequestCache::RequestCache(const std::string& path) : path_(path) {
  if (path_.empty()) return;
  size_t good = 0;
  if (fs::exists(path_)) {
    const std::string text = read_file(path_);
    for (size_t at = 0;;) {
      const size_t end = text.find('\n', at);
      if (end == std::string::npos) break;
      const OrderedJson j = OrderedJson::parse(text.begin() + static_cast<ptrdiff_t>(at),
                                               text.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
      if (j.is_discarded() || !j.is_array() || j.size() != 2 || !j[0].is_string()) break;
      answers_[j[0]] = j[1];
      at = good = end + 1;
    }
  }
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(good)) != 0 || ::lseek(fd_, 0, SEEK_END) < 0)
    fail_input("{}: {}", path_, std::strerror(errno));
}

RequestCache::~RequestCache() {
  if (fd_ >= 0) ::close(fd_);
}

const OrderedJson* RequestCache::find(const std::string& key) const {
  const auto it = answers_.find(key);
  return it == answers_.end() ? nullptr : &it->second;
}

void RequestCache::put(const std::string& key, const OrderedJson& answer) {
  answers_[key] = answer;
  if (fd_ < 0 || !is_finite(answer)) return;  // JSON has no words for it
  const std::string line =
      OrderedJson::array({key, answer}).dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + at, line.size() - at);
    if (n < 0 && errno != EINTR) fail_input("{}: {}", path_, std::strerror(errno));
    if (n > 0) at += static_cast<size_t>(n);
  }
}

}  // namespace mxt::eval
