#include "algorand/node.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/text.h"
#include "net/url.h"

namespace mxt::algorand {
namespace {

constexpr double kAnswerSeconds = 30;
constexpr uint64_t kMaxAnswer = 1 << 20;

std::string said(const net::HttpResponse& r) {
  const Json j = Json::parse(r.body, nullptr, false);
  const std::string text =
      j.is_object() && j.contains("message") && j["message"].is_string() ? j["message"].get<std::string>() : r.body;
  return printable(std::string_view(text).substr(0, 300));
}

}  // namespace

Node::Node(const std::string& url, std::string token, const net::HttpOptions& options)
    : url_(url), token_(std::move(token)), http_(options) {
  while (url_.ends_with('/')) url_.pop_back();
  name_ = "algod at " + net::public_url(url_, "algod").origin();
}

net::HttpResponse Node::ask(const std::string& method, const std::string& path, const std::string& body) {
  net::HttpRequest q;
  q.method = method;
  q.url = url_ + path;
  q.body = body;
  q.leave_origin = false;
  q.max_bytes = kMaxAnswer;
  q.total_seconds = kAnswerSeconds;
  if (!token_.empty()) q.headers.emplace_back("X-Algo-API-Token", token_);
  if (method == "POST") q.headers.emplace_back("Content-Type", "application/x-binary");
  const std::lock_guard lock(mutex_);
  try {
    return http_.send(q);
  } catch (const Error& e) {
    if (e.code() == Exit::kInterrupted) throw;
    fail_input("{}: {}", name_, e.what());
  }
}

Json Node::json(const std::string& path) {
  const net::HttpResponse r = ask("GET", path);
  if (r.status != 200) fail_input("{}: answers {} with {}: {}", name_, path, r.status, said(r));
  return parse_json(r.body, name_);
}

Params Node::params() {
  const Json j = json("/v2/transactions/params");
  const auto number = [&](const char* key) {
    const Json n = j.is_object() ? j.value(key, Json()) : Json();
    if (!n.is_number_unsigned() || n.get<uint64_t>() >> 62 != 0) fail_input("{}: does not say its {}", name_, key);
    return n.get<uint64_t>();
  };
  Params p;
  p.genesis_hash = hash_in(j);
  p.last_round = number("last-round");
  p.min_fee = number("min-fee");
  p.fee_per_byte = number("fee");
  if (const Json id = j.value("genesis-id", Json()); id.is_string()) p.genesis_id = id.get<std::string>().substr(0, 64);
  return p;
}

std::string Node::genesis_hash() { return hash_in(json("/v2/transactions/params")); }

std::string Node::hash_in(const Json& j) const {
  const Json hash = j.is_object() ? j.value("genesis-hash", Json()) : Json();
  const auto bytes = hash.is_string() ? from_base64(hash.get<std::string>()) : std::nullopt;
  if (!bytes || bytes->size() != 32) fail_input("{}: does not say which network it is of", name_);
  return *bytes;
}

Asset Node::asset(uint64_t id) {
  const Json j = json("/v2/assets/" + std::to_string(id));
  const Json p = j.is_object() ? j.value("params", Json()) : Json();
  const Json decimals = p.is_object() ? p.value("decimals", Json()) : Json();
  if (!decimals.is_number_unsigned() || decimals.get<uint64_t>() > 19)
    fail_input("{}: asset {} does not say its decimals", name_, id);
  const auto text = [&](const char* key) {
    const Json v = p.value(key, Json());
    return v.is_string() ? printable(v.get<std::string>().substr(0, 64)) : std::string();
  };
  return {text("name"), text("unit-name"), static_cast<int>(decimals.get<uint64_t>())};
}

void Node::send(const std::string& transactions) {
  const net::HttpResponse r = ask("POST", "/v2/transactions", transactions);
  if (r.status == 200) return;
  const std::string why = fmt::format("{}: {}", name_, said(r));
  const bool busy = r.status == 408 || r.status == 429;  // says nothing of the transaction
  if (r.status >= 400 && r.status < 500 && !busy) throw Refused(why);
  fail_input("{}", why);
}

Pending Node::pending(const std::string& id) {
  const net::HttpResponse r = ask("GET", "/v2/transactions/pending/" + id + "?format=json");
  if (r.status == 404) return {};
  if (r.status != 200) fail_input("{}: answers {} of a transaction: {}", name_, r.status, said(r));
  const Json j = parse_json(r.body, name_);
  if (!j.is_object()) fail_input("{}: answers nonsense of a transaction", name_);
  Pending p;
  p.known = true;
  const Json round = j.value("confirmed-round", Json()), error = j.value("pool-error", Json());
  if (round.is_number_unsigned()) p.round = round.get<uint64_t>();
  if (error.is_string()) p.error = printable(error.get<std::string>().substr(0, 200));
  return p;
}

}  // namespace mxt::algorand
