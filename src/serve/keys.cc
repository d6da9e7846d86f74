#include "serve/keys.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "serve/api_error.h"

namespace mxt::serve {
namespace {

Digest digest_of(std::string_view key) {
  Sha256 h;
  h.update(key);
  return h.digest();
}

}  // namespace

std::vector<ApiKey> read_api_keys(const std::string& file) {
  const Json j = read_json_file(file);
  if (!j.is_object() || !j.contains("keys") || !j["keys"].is_array() || j["keys"].empty())
    fail_input("{}: {{\"keys\":[{{\"name\":…,\"key\":…}}]}} is wanted", file);
  std::vector<ApiKey> out;
  for (const auto& k : j["keys"]) {
    ApiKey a;
    if (!k.is_object()) fail_input("{}: keys: an object is wanted", file);
    for (const auto& [name, v] : k.items()) {
      auto number = [&](int64_t& to) {
        if (!v.is_number_integer() || v.get<int64_t>() < 0)
          fail_input("{}: keys: {} must be a whole number", file, name);
        to = v.get<int64_t>();
      };
      auto text = [&](std::string& to) {
        if (!v.is_string() || v.get<std::string>().empty()) fail_input("{}: keys: {} must be a text", file, name);
        to = v.get<std::string>();
      };
      if (name == "name")
        text(a.name);
      else if (name == "key")
        text(a.key);
      else if (name == "max_concurrent")
        number(a.max_concurrent);
      else if (name == "requests_per_minute")
        number(a.requests_per_minute);
      else if (name == "tokens_per_minute")
        number(a.tokens_per_minute);
      else if (name == "jobs" && v.is_boolean())
        a.jobs = v.get<bool>();
      else
        fail_input("{}: keys: \"{}\" is not known", file, name);
    }
    if (a.key.size() < 16) fail_input("{}: keys: \"{}\" has a key of fewer than 16 characters", file, a.name);
    out.push_back(std::move(a));
  }
  return out;
}

KeyRing::KeyRing(std::vector<ApiKey> keys) {
  for (auto& k : keys) {
    State s;
    s.digest = digest_of(k.key);
    s.requests = static_cast<double>(k.requests_per_minute);
    s.tokens = static_cast<double>(k.tokens_per_minute);
    s.filled = std::chrono::steady_clock::now();
    s.key = std::move(k);
    s.key.key.clear();
    keys_.push_back(std::move(s));
  }
}

int KeyRing::find(const std::string* authorization) const {
  std::string_view given;
  if (authorization && authorization->size() > 7 &&
      (authorization->starts_with("Bearer ") || authorization->starts_with("bearer ")))
    given = std::string_view(*authorization).substr(7);
  // Digests are compared, all of them and whole.
  const Digest d = digest_of(given);
  int found = -1;
  for (size_t i = 0; i < keys_.size(); ++i) {
    uint8_t differs = 0;
    for (size_t b = 0; b < d.size(); ++b) differs |= static_cast<uint8_t>(d[b] ^ keys_[i].digest[b]);
    if (differs == 0) found = static_cast<int>(i);
  }
  return found;
}

std::unique_ptr<KeyRing::Ticket> KeyRing::enter(int key) {
  if (key < 0) return std::make_unique<Ticket>(*this, key);
  std::lock_guard lock(mutex_);
  State& s = keys_[static_cast<size_t>(key)];
  const auto now = std::chrono::steady_clock::now();
  const double minutes = std::chrono::duration<double>(now - s.filled).count() / 60;
  s.filled = now;
  auto fill = [&](double& left, int64_t limit) {
    left = std::min(static_cast<double>(limit), left + minutes * static_cast<double>(limit));
  };
  fill(s.requests, s.key.requests_per_minute);
  fill(s.tokens, s.key.tokens_per_minute);
  auto wait = [](double missing, int64_t per_minute) {
    return std::max(1, static_cast<int>(std::ceil(60 * missing / static_cast<double>(per_minute))));
  };
  if (s.key.max_concurrent > 0 && s.under_way >= s.key.max_concurrent)
    refuse_status(429, "rate_limit_error", "rate_limit_exceeded",
                  fmt::format("{} requests of this key are under way, its limit", s.under_way), 1);
  if (s.key.requests_per_minute > 0 && s.requests < 1)
    refuse_status(429, "rate_limit_error", "rate_limit_exceeded",
                  fmt::format("this key may make {} requests a minute", s.key.requests_per_minute),
                  wait(1 - s.requests, s.key.requests_per_minute));
  if (s.key.tokens_per_minute > 0 && s.tokens <= 0)
    refuse_status(429, "rate_limit_error", "rate_limit_exceeded",
                  fmt::format("this key may use {} tokens a minute", s.key.tokens_per_minute),
                  wait(1 - s.tokens, s.key.tokens_per_minute));
  s.requests -= 1;
  ++s.under_way;
  return std::make_unique<Ticket>(*this, key);
}

KeyRing::Ticket::~Ticket() {
  if (key_ < 0) return;
  std::lock_guard lock(ring_.mutex_);
  State& s = ring_.keys_[static_cast<size_t>(key_)];
  --s.under_way;
  s.tokens -= static_cast<double>(tokens);
}

}  // namespace mxt::serve
