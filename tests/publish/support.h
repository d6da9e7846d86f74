// A folder of the test's own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/files.h"

namespace mxt::publish {

class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = testing::TempDir() + "mxt_publish_" + std::to_string(getpid()) + "_" + std::to_string(count++);
    fs::remove_all(path_);
    make_folders(path_);
  }
  ~TempFolder() {
    std::error_code ec;
    fs::remove_all(path_, ec);
  }
  TempFolder(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace mxt::publish
