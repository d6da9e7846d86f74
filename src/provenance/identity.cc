#include "provenance/identity.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "base/host.h"
#include "git_commit.h"  // made at build time

namespace mxt::provenance {
namespace {

// Of this very program; null where the system does not show it.
Json program_digest() {
  try {
    const FileDigests d = hash_file(program_file());
    return {{"blake3", d.blake3}, {"sha256", d.sha256}};
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

Json build_identity() {
  const std::string_view commit = MXT_GIT_COMMIT;
#if defined(__clang__)
  const char* compiler = "clang " __clang_version__;
#else
  const char* compiler = "gcc " __VERSION__;
#endif
  return {{"program", "mindxtrain"},
          {"program_digest", program_digest()},
          {"version", MXT_VERSION},
          {"git_commit", commit.empty() ? Json(nullptr) : Json(commit)},
          {"compiler", compiler}};
}

}  // namespace mxt::provenance
