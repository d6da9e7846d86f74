#include "provenance/identity.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "git_commit.h"  // made at build time

namespace mxt::provenance {

Json build_identity() {
  const std::string_view commit = MXT_GIT_COMMIT;
#if defined(__clang__)
  const char* compiler = "clang " __clang_version__;
#else
  const char* compiler = "gcc " __VERSION__;
#endif
  return {{"program", "mindxtrain"},
          {"version", MXT_VERSION},
          {"git_commit", commit.empty() ? Json(nullptr) : Json(commit)},
          {"compiler", compiler}};
}

}  // namespace mxt::provenance
