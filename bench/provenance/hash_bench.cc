// Digests of a folder's files, as a manifest takes them: hash_bench blake3|both FOLDER [THREADS]
// Prints one JSON object: bytes, wall and processor seconds.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/hash_files.h"
#include "base/threads.h"

namespace {

using namespace mxt;

double processor_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

std::string blake3_of(const std::string& path) {
  const MappedFile f(path);
  Blake3 h;
  h.update(f.text());
  return h.hex();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) fail_input("usage: hash_bench blake3|both FOLDER [THREADS]");
  const std::string folder = argv[2];
  const bool both = argv[1] == std::string("both");
  if (argc > 3) set_num_threads(std::atoi(argv[3]));
  const auto files = list_files(folder);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> paths, digests(files.size());
  for (const auto& f : files) paths.push_back(folder + "/" + f);
  if (both) {
    const auto all = hash_files(paths);
    for (size_t i = 0; i < files.size(); ++i) digests[i] = all[i].blake3;
  } else {
    parallel_for(0, static_cast<int64_t>(files.size()), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) digests[static_cast<size_t>(i)] = blake3_of(paths[static_cast<size_t>(i)]);
    });
  }
  uint64_t bytes = 0;
  for (const auto& f : files) bytes += fs::file_size(folder + "/" + f);
  Blake3 all;
  for (const auto& d : digests) all.update(d);
  std::printf("{\"bytes\": %llu, \"wall_s\": %.3f, \"cpu_s\": %.3f, \"digest\": \"%s\"}\n",
              static_cast<unsigned long long>(bytes),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), processor_seconds(),
              all.hex().c_str());
} catch (const mxt::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
