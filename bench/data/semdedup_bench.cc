// Clusters embeddings and finds copies in meaning, as `data.dedupe.semdedup` does once they are made.
//   semdedup_bench EMBEDDINGS.f32 WIDTH [--threads N] [--threshold T] [--stays FILE.u32]
// Prints one line of JSON. FILE.u32 gets for each row the row that stays for it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "base/threads.h"
#include "data/semantic/semdedup.h"

int main(int argc, char** argv) {
  using namespace mxt;
  if (argc < 3)
    return std::fprintf(
               stderr, "usage: semdedup_bench EMBEDDINGS.f32 WIDTH [--threads N] [--threshold T] [--stays FILE.u32]\n"),
           1;
  config::SemDedup settings;
  std::string stays;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    if (key == "--threads") set_num_threads(std::atoi(argv[i + 1]));
    if (key == "--threshold") settings.threshold = std::atof(argv[i + 1]);
    if (key == "--stays") stays = argv[i + 1];
  }
  const std::string bytes = read_file(argv[1]);
  const auto width = static_cast<size_t>(std::atoi(argv[2]));
  const size_t n = bytes.size() / sizeof(float) / width;
  std::vector<float> row(width);
  const auto begin = std::chrono::steady_clock::now();
  data::SemDedup dedup(settings, width, std::filesystem::temp_directory_path().string());
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(row.data(), bytes.data() + i * width * sizeof(float), width * sizeof(float));
    if (!dedup.add(i * 0x9E3779B97F4A7C15ull, row)) return std::fprintf(stderr, "row %zu is not finite\n", i), 1;
  }
  const data::SemanticCopies c = dedup.find();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  size_t dropped = 0;
  for (size_t i = 0; i < n; ++i) dropped += c.stays[i] != i;
  if (!stays.empty())
    write_file_atomic(stays, std::string(reinterpret_cast<const char*>(c.stays.data()), n * sizeof(uint32_t)));
  std::printf("{\"rows\": %zu, \"seconds\": %.3f, \"clusters\": %lld, \"largest_cluster\": %lld, \"dropped\": %zu}\n",
              n, seconds, static_cast<long long>(c.clusters), static_cast<long long>(c.largest_cluster), dropped);
}
