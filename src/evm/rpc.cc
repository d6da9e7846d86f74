#include "evm/rpc.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "net/url.h"

namespace mxt::evm {
namespace {

constexpr uint64_t kMaxAnswer = 8u << 20;
constexpr double kAnswerSeconds = 30;

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return s;
}

std::string text_at(const Json& j, const char* key) {
  return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "";
}

}  // namespace

Rpc::Rpc(const std::string& url, const net::HttpOptions& options) : url_(url), http_(options) {
  name_ = "the node at " + net::public_url(url, "the node").origin();
}

void Rpc::nonsense(const std::string& method) const {
  fail_input("{}: its answer to {} has not the shape that it should have", name_, method);
}

Json Rpc::call(const std::string& method, Json params) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = ++id_;
  net::HttpRequest q;
  q.method = "POST";
  q.url = url_;
  q.headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}};
  q.body = Json{{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}}.dump();
  q.repeatable = true;  // the same raw transaction twice is one transaction
  q.leave_origin = false;
  q.max_bytes = kMaxAnswer;
  q.total_seconds = kAnswerSeconds;
  net::HttpResponse r;
  try {
    r = http_.send(q);
  } catch (const Error& e) {
    if (e.code() == Exit::kInterrupted) throw;
    std::string why = e.what();  // names the URL, whose path may hold a key
    if (const size_t at = why.find(url_); at != std::string::npos) why.replace(at, url_.size(), name_);
    fail_input("{}: {}: {}", name_, method, why);
  }
  Json j = Json::parse(r.body, nullptr, false);
  if (j.is_object() && j.contains("error") && j["error"].is_object()) {
    const Json& e = j["error"];
    const std::string said = text_at(e, "message");
    const auto data = from_hex(text_at(e, "data"));
    throw NodeError(fmt::format("{}: {}: {}", name_, method, printable(said.substr(0, 300))),
                    e.contains("code") && e["code"].is_number_integer() ? e["code"].get<int64_t>() : 0, lower(said),
                    data.value_or(""));
  }
  if (r.status == 400 || r.status == 413 || r.status == 422)  // of the request itself, without a word in JSON
    throw NodeError(fmt::format("{}: {}: refuses the request ({})", name_, method, r.status), 0, "", "");
  if (r.status < 200 || r.status >= 300) fail_input("{}: answers {} with {}", name_, method, r.status);
  if (!j.is_object() || !j.contains("result") || !j.contains("id") || j["id"] != id) nonsense(method);
  return j["result"];
}

U256 Rpc::number(const std::string& method, const Json& j) const {
  const auto n = j.is_string() ? parse_quantity(j.get_ref<const std::string&>()) : std::nullopt;
  if (!n) nonsense(method);
  return *n;
}

uint64_t Rpc::small(const std::string& method, const Json& j) const {
  const U256 n = number(method, j);
  if (n > std::numeric_limits<int64_t>::max()) nonsense(method);
  return static_cast<uint64_t>(n);
}

std::string Rpc::bytes(const std::string& method, const Json& j) const {
  const auto b = j.is_string() ? from_hex(j.get_ref<const std::string&>()) : std::nullopt;
  if (!b) nonsense(method);
  return *b;
}

uint64_t Rpc::chain_id() { return small("eth_chainId", call("eth_chainId", Json::array())); }

void Rpc::require_chain(uint64_t id) {
  if (const uint64_t is = chain_id(); is != id)
    fail_input("{}: is on chain {}, and {} was asked for: nothing was signed", name_, is, id);
}

uint64_t Rpc::block_number() { return small("eth_blockNumber", call("eth_blockNumber", Json::array())); }

uint64_t Rpc::block_time() {
  const Json b = call("eth_getBlockByNumber", {"latest", false});
  return small("eth_getBlockByNumber", b.is_object() ? b.value("timestamp", Json()) : Json());
}

std::optional<Digest> Rpc::block_hash(uint64_t n) {
  const Json b = call("eth_getBlockByNumber", {quantity(n), false});
  if (b.is_null()) return std::nullopt;
  const auto hash = digest_from_hex(text_at(b, "hash"));
  if (!hash) nonsense("eth_getBlockByNumber");
  return hash;
}

uint64_t Rpc::nonce(const Address& a, const char* block) {
  return small("eth_getTransactionCount", call("eth_getTransactionCount", {text_of(a), block}));
}

U256 Rpc::balance(const Address& a) { return number("eth_getBalance", call("eth_getBalance", {text_of(a), "latest"})); }

Fees Rpc::fees() {
  const Json b = call("eth_getBlockByNumber", {"latest", false});
  if (!b.is_object() || !b.contains("baseFeePerGas"))
    fail_input("{}: its blocks have no base fee: a chain with EIP-1559 is wanted", name_);
  Fees f;
  f.base = small("eth_getBlockByNumber", b["baseFeePerGas"]);
  try {
    f.tip = small("eth_maxPriorityFeePerGas", call("eth_maxPriorityFeePerGas", Json::array()));
  } catch (const NodeError&) {
    f.tip = 1'000'000'000;  // a node that makes no suggestion: 1 gwei
  }
  return f;
}

uint64_t Rpc::estimate_gas(const Address& from, const std::optional<Address>& to, const std::string& data) {
  Json q = {{"from", text_of(from)}, {"data", hex(data)}};
  if (to) q["to"] = text_of(*to);
  return small("eth_estimateGas", call("eth_estimateGas", Json::array({q})));
}

std::string Rpc::eth_call(const Address& to, const std::string& data, const std::optional<Address>& from) {
  Json q = {{"to", text_of(to)}, {"data", hex(data)}};
  if (from) q["from"] = text_of(*from);
  return bytes("eth_call", call("eth_call", Json::array({q, "latest"})));
}

bool Rpc::has_code(const Address& a) {
  return !bytes("eth_getCode", call("eth_getCode", {text_of(a), "latest"})).empty();
}

void Rpc::send_raw(const std::string& raw) { call("eth_sendRawTransaction", Json::array({hex(raw)})); }

bool Rpc::knows(const Digest& t) { return call("eth_getTransactionByHash", Json::array({hex(t)})).is_object(); }

Log Rpc::log_of(const Json& j) const {
  const char* method = "logs";
  Log l;
  const auto address = parse_address(lower(text_at(j, "address")));
  const auto transaction = digest_from_hex(text_at(j, "transactionHash"));
  if (!address || !transaction || !j.contains("topics") || !j["topics"].is_array()) nonsense(method);
  l.address = *address;
  l.transaction = *transaction;
  for (const Json& t : j["topics"]) {
    const auto d = t.is_string() ? digest_from_hex(t.get_ref<const std::string&>()) : std::nullopt;
    if (!d) nonsense(method);
    l.topics.push_back(*d);
  }
  l.data = bytes(method, j.value("data", Json()));
  l.block = small(method, j.value("blockNumber", Json()));
  return l;
}

std::optional<Receipt> Rpc::receipt(const Digest& t) {
  const char* method = "eth_getTransactionReceipt";
  const Json j = call(method, Json::array({hex(t)}));
  if (j.is_null()) return std::nullopt;
  if (!j.is_object() || digest_from_hex(text_at(j, "transactionHash")) != t) nonsense(method);
  Receipt r;
  r.transaction = t;
  r.succeeded = number(method, j.value("status", Json())) == 1;
  r.block = small(method, j.value("blockNumber", Json()));
  const auto hash = digest_from_hex(text_at(j, "blockHash"));
  if (!hash || !j.contains("logs") || !j["logs"].is_array()) nonsense(method);
  r.block_hash = *hash;
  for (const Json& l : j["logs"]) r.logs.push_back(log_of(l));
  r.contract = parse_address(lower(text_at(j, "contractAddress")));
  return r;
}

std::vector<Log> Rpc::logs_in(const Address& contract, const std::vector<std::optional<Digest>>& topics,
                              const Json& from, const Json& to) {
  Json wanted = Json::array();
  for (const auto& t : topics) wanted.push_back(t ? Json(hex(*t)) : Json());
  const Json j =
      call("eth_getLogs",
           Json::array({{{"address", text_of(contract)}, {"fromBlock", from}, {"toBlock", to}, {"topics", wanted}}}));
  if (!j.is_array()) nonsense("eth_getLogs");
  std::vector<Log> out;
  for (const Json& l : j) {
    Log log = log_of(l);
    bool ours = log.address == contract && log.topics.size() >= topics.size();
    for (size_t i = 0; ours && i < topics.size(); ++i) ours = !topics[i] || log.topics[i] == *topics[i];
    if (!ours) nonsense("eth_getLogs");
    out.push_back(std::move(log));
  }
  return out;
}

uint64_t Rpc::time_of(uint64_t block) {
  const Json b = call("eth_getBlockByNumber", {quantity(block), false});
  if (b.is_null()) throw NodeError(fmt::format("{}: keeps no block {}", name_, block), 0, "", "");
  return small("eth_getBlockByNumber", b.is_object() ? b.value("timestamp", Json()) : Json());
}

uint64_t Rpc::first_block_since(int64_t time, uint64_t head) {
  uint64_t low = 0, high = head + 1;  // blocks below `low` are older, those from `high` on are not
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (static_cast<int64_t>(time_of(middle)) < time)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

std::vector<Log> Rpc::logs(const Address& contract, const std::vector<std::optional<Digest>>& topics, int64_t since) {
  constexpr uint64_t kWidest = 10'000;  // blocks that most public nodes answer for at once; some take ten
  constexpr int kMostCalls = 5'000;
  try {
    return logs_in(contract, topics, "earliest", "latest");
  } catch (const NodeError&) {  // too many blocks for it
  }
  const uint64_t head = block_number();
  uint64_t width = kWidest;
  std::vector<Log> out;
  for (uint64_t from = first_block_since(since, head); from <= head;) {
    const uint64_t to = std::min(head, from + width - 1);
    try {
      for (Log& l : logs_in(contract, topics, quantity(from), quantity(to))) out.push_back(std::move(l));
      from = to + 1;
    } catch (const NodeError&) {
      if (to == from) throw;
      width = (to - from + 1) / 2;
    }
    if (from <= head && (head - from) / width > kMostCalls)
      throw NodeError(fmt::format("{}: eth_getLogs: takes {} blocks at once, and {} are to be searched", name_, width,
                                  head - from + 1),
                      0, "", "");
  }
  return out;
}

}  // namespace mxt::evm
