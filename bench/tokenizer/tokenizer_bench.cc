// Encodes one file and says how fast: tokenizer_bench FOLDER FILE [--lines] [--threads N] [--repeat N] [--ids OUT.u32]
// Cold is the first encode of a fresh tokenizer, warm the best of the later ones.
#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
double seconds(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

int run(int argc, char** argv) {
  if (argc < 3) mxt::fail_input("usage: tokenizer_bench FOLDER FILE [--lines] [--threads N] [--repeat N] [--ids OUT]");
  const std::string folder = argv[1], file = argv[2];
  std::string ids_path;
  int threads = 1, repeat = 3;
  bool lines = false;
  for (int i = 3; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--lines")
      lines = true;
    else if (i + 1 >= argc)
      mxt::fail_input("{}: a value or a known option is expected", a);
    else if (a == "--threads")
      threads = std::atoi(argv[++i]);
    else if (a == "--repeat")
      repeat = std::atoi(argv[++i]);
    else if (a == "--ids")
      ids_path = argv[++i];
    else
      mxt::fail_input("{}: not known", a);
  }
  // What a result has used serves the next one, as in the allocator that gigatoken brings: else a warm run would mostly
  // measure how fast the system zeroes pages.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  const std::string text = mxt::read_file(file);
  auto start = std::chrono::steady_clock::now();
  const auto tokenizer = mxt::tokenizer::Tokenizer::from_folder(folder);
  const double load = seconds(start);
  double cold = 0, warm = 1e30, cold_cpu = 0, warm_cpu = 1e30;
  std::vector<int32_t> ids;
  for (int i = 0; i <= repeat; ++i) {
    ids = {};
    start = std::chrono::steady_clock::now();
    const double cpu = cpu_seconds();
    if (lines) {
      for (const auto l : mxt::split(text, '\n')) tokenizer->encode_append(l, ids);
    } else if (threads > 1) {
      ids = tokenizer->encode_parallel(text, threads);
    } else {
      ids = tokenizer->encode(text);
    }
    const double t = seconds(start), c = cpu_seconds() - cpu;
    if (i == 0) {
      cold = t;
      cold_cpu = c;
    } else {
      warm = std::min(warm, t);
      warm_cpu = std::min(warm_cpu, c);
    }
  }
  const double mb = static_cast<double>(text.size()) / 1e6;
  // On a machine that others use too, the figure over processor time is the steadier one.
  fmt::print(
      "{{\"file\":\"{}\",\"mb\":{:.1f},\"ids\":{},\"load_s\":{:.3f},\"cold_mb_s\":{:.1f},\"warm_mb_s\":{:.1f},"
      "\"cold_mb_cpu_s\":{:.1f},\"warm_mb_cpu_s\":{:.1f}}}\n",
      file, mb, ids.size(), load, mb / cold, repeat > 0 ? mb / warm : 0.0, mb / cold_cpu,
      repeat > 0 ? mb / warm_cpu : 0.0);
  if (!ids_path.empty())
    mxt::write_file_atomic(ids_path, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const mxt::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return static_cast<int>(e.code());
  }
}
