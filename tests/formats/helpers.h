// What the tests of this room share: temporary folders, refused input, hand-made files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <span>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "folders.h"

namespace mxt::formats {

inline std::string golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/formats/" + name; }

// A folder of this test's own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "mxt_formats_" + info->test_suite_name() + "_" + info->name() + "_" +
            std::to_string(getpid());
    fs::remove_all(path_);
    make_folders(path_);
  }
  ~TempFolder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::span<const std::byte> as_bytes(const std::string& s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

template <typename T>
void put(std::string& out, T v) {
  char b[sizeof v];
  std::memcpy(b, &v, sizeof v);
  out.append(b, sizeof b);
}

// Runs f and wants an Error with this exit code whose message is one line and holds `part`.
inline void expect_refused(const std::function<void()>& f, Exit code, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "accepted; wanted: " << part;
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << what;
    EXPECT_NE(what.find(part), std::string::npos) << "got: " << what << "\nwanted: " << part;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

}  // namespace mxt::formats
