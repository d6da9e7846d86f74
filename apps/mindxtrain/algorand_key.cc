#include "algorand_key.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "model_files.h"
#include "provenance/sign.h"

namespace mxt::app {

bool is_ed25519_key(const std::string& path) {
  constexpr uintmax_t kMost = 4096;
  if (fs::file_size(path) > kMost) return false;
  const Json j = Json::parse(read_file(path), nullptr, false);
  const Json type = j.is_object() ? j.value("type", Json()) : Json();
  return type.is_string() && type.get<std::string>().starts_with("mindxtrain-ed25519-");
}

std::string algorand_seed(const std::string& path) {
  const provenance::SigningKey key = provenance::load_key(path, key_passphrase);
  return {key.secret.begin(), key.secret.begin() + 32};
}

}  // namespace mxt::app
