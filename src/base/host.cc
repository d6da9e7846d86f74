#include "base/host.h"

#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace mxt {
namespace {

std::string g_file, g_folder;

}  // namespace

std::string program_file() {
  std::error_code ec;
  return g_file.empty() ? fs::read_symlink("/proc/self/exe", ec).string() : g_file;
}

std::string program_folder() { return g_file.empty() ? fs::path(program_file()).parent_path().string() : g_folder; }

void set_program(std::string file, std::string folder) {
  g_file = std::move(file);
  g_folder = std::move(folder);
}

std::string utc_text(int64_t seconds) {
  const std::time_t t = seconds;
  char buf[64];
  std::tm tm{};
  gmtime_r(&t, &tm);
  std::strftime(buf, sizeof buf, "%Y-%m-%dT%H:%M:%SZ", &tm);
  return buf;
}

std::string utc_now() { return utc_text(std::time(nullptr)); }

std::string host_name() {
  try {
    return std::string(trim(read_file("/proc/sys/kernel/hostname")));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace mxt
