// Any bytes as a manifest: a report or a typed error, never a crash.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "provenance/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string folder = [] {
    const std::string f = (mxt::fs::temp_directory_path() / ("manifest_fuzz_" + std::to_string(getpid()))).string();
    mxt::make_folders(f);
    return f;
  }();
  const std::string path = folder + "/manifest.json";
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    mxt::provenance::verify(path);
  } catch (const mxt::Error&) {
  }
  return 0;
}
