#include "kernels/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace mxt::kernels {
namespace {

std::string lower_name(DType t) {
  std::string s(name_of(t));
  for (char& c : s) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return s;
}

template <typename A>
std::string attention_shape(std::string_view what, const A& a) {
  std::string key =
      fmt::format("{} {} h{} kv{} d{} t{}", what, lower_name(a.q.type), a.heads, a.kv_heads, a.head_dim, a.q.rows);
  if (a.window > 0) key += fmt::format(" w{}", a.window);
  if (a.dropout > 0) key += " dropout";
  if (!a.causal) key += " bidirectional";
  return key;
}

// An object whose keys must all be known and all be there; `path` names it in messages.
class Section {
 public:
  Section(const Json& j, std::string_view source, std::string path) : j_(j), source_(source), path_(std::move(path)) {
    if (!j.is_object()) fail_input("{}: {} must be an object, is {}", source_, name(""), j.type_name());
  }
  void only(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : j_.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        fail_input("{}: unknown key \"{}\" in the plan; make the plan again with `mindxtrain bench`", source_,
                   name(key));
    for (std::string_view key : keys)
      if (!j_.contains(key))
        fail_input("{}: key \"{}\" is missing in the plan; make the plan again with `mindxtrain bench`", source_,
                   name(key));
  }
  Section section(std::string_view key) const { return {at(key), source_, name(key)}; }
  std::string text(std::string_view key) const {
    if (!at(key).is_string()) wrong(key, "a string");
    return at(key).get<std::string>();
  }
  bool flag(std::string_view key) const {
    if (!at(key).is_boolean()) wrong(key, "true or false");
    return at(key).get<bool>();
  }
  double number(std::string_view key) const {  // finite, ≥ 0
    const bool ok = at(key).is_number() && std::isfinite(at(key).get<double>()) && at(key).get<double>() >= 0;
    if (!ok) wrong(key, "a number that is not negative");
    return at(key).get<double>();
  }
  int64_t integer(std::string_view key, int64_t least, int64_t most) const {
    const Json& v = at(key);
    const bool big = v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (!v.is_number_integer() || big || v.get<int64_t>() < least || v.get<int64_t>() > most)
      wrong(key, fmt::format("an integer from {} to {}", least, most));
    return v.get<int64_t>();
  }
  std::map<std::string, std::string> texts() const {
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : j_.items()) out[key] = text(key);
    return out;
  }
  const Json& at(std::string_view key) const { return j_.at(std::string(key)); }
  std::string name(std::string_view key) const {
    if (key.empty()) return path_.empty() ? "the plan" : path_;
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  }
  const Json& json() const { return j_; }

 private:
  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const {
    fail_input("{}: key \"{}\" must be {}, is {}", source_, name(key), expected, canonical_json(at(key)));
  }
  const Json& j_;
  std::string_view source_;
  std::string path_;
};

Json identity_json(const DeviceIdentity& d) {
  return {{"kind", d.kind},     {"name", d.name},           {"arch", d.arch},
          {"driver", d.driver}, {"libraries", d.libraries}, {"threads", d.threads}};
}

DeviceIdentity read_identity(const Section& s) {
  s.only({"kind", "name", "arch", "driver", "libraries", "threads"});
  DeviceIdentity d;
  d.kind = s.text("kind");
  d.name = s.text("name");
  d.arch = s.text("arch");
  d.driver = s.text("driver");
  d.libraries = s.section("libraries").texts();
  d.threads = static_cast<int>(s.integer("threads", 1, 1 << 16));
  return d;
}

std::vector<Candidate> read_candidates(const Section& parent, const std::string& key, std::string_view source) {
  const Json& list = parent.at(key);
  if (!list.is_array()) fail_input("{}: key \"{}\" must be a list", source, parent.name(key));
  std::vector<Candidate> out;
  for (size_t i = 0; i < list.size(); ++i) {
    const Section s(list[i], source, fmt::format("{}[{}]", parent.name(key), i));
    s.only({"algorithm", "median_us", "spread_us"});
    out.push_back({s.text("algorithm"), s.number("median_us"), s.number("spread_us")});
  }
  return out;
}

}  // namespace

std::string gemm_key(const Gemm& g) {
  const int64_t k = g.trans_a ? g.a.rows : g.a.cols;
  std::string key = fmt::format("gemm {}{} {} m{} n{} k{}", g.trans_a ? 't' : 'n', g.trans_b ? 't' : 'n',
                                lower_name(g.a.type), g.c.rows, g.c.cols, k);
  if (g.c.type != g.a.type) key += " out " + lower_name(g.c.type);
  if (g.tail_a.cols > 0) key += fmt::format(" tail {}{}", g.tail_a.cols, g.tail_trans_b ? 't' : 'n');
  if (g.accumulate) key += " acc";
  if (g.ends_in_relu2()) key += g.relu2 ? " relu2" : " relu2_of";
  if (g.bias) key += " bias " + lower_name(g.bias_type);
  return key;
}
std::string attention_key(const Attention& a) { return attention_shape("attention", a); }
std::string attention_key(const AttentionGrad& a) { return attention_shape("attention_grad", a); }

namespace {
std::atomic<uint64_t> g_decisions{0};
}
uint64_t decisions() { return g_decisions; }
void count_decision() { ++g_decisions; }

int chosen(const KernelPlan& plan, std::string_view key, const std::vector<std::string>& algorithms) {
  count_decision();
  const auto choice = plan.choices.find(std::string(key));
  if (choice == plan.choices.end()) return 0;
  const auto at = std::find(algorithms.begin(), algorithms.end(), choice->second);
  if (at == algorithms.end())
    fail_input("{}: \"{}\" chooses algorithm \"{}\", which this build does not have; it has {}", plan.source, key,
               choice->second, fmt::join(algorithms, ", "));
  return static_cast<int>(at - algorithms.begin());
}

std::string to_json(const KernelPlan& plan) {
  Json candidates = Json::object();
  for (const auto& [key, list] : plan.candidates) {
    Json& out = candidates[key] = Json::array();
    for (const Candidate& c : list)
      out.push_back({{"algorithm", c.algorithm}, {"median_us", c.median_us}, {"spread_us", c.spread_us}});
  }
  const Json j{{"schema_version", KernelPlan::kSchemaVersion},
               {"device", identity_json(plan.device)},
               {"shapes", plan.shapes},
               {"choices", plan.choices},
               {"candidates", candidates},
               {"env", plan.env},
               {"measured", plan.measured},
               {"budget_s", plan.budget_s}};
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

KernelPlan plan_from_json(std::string_view text, std::string_view source) {
  const Json j = parse_json(text, source);
  const Section s(j, source, "");
  s.only({"schema_version", "device", "shapes", "choices", "candidates", "env", "measured", "budget_s"});
  const int64_t version = s.integer("schema_version", 0, INT32_MAX);
  if (version != KernelPlan::kSchemaVersion)
    fail_input("{}: key \"schema_version\" is {}, this build reads {}; make the plan again with `mindxtrain bench`",
               source, version, KernelPlan::kSchemaVersion);
  KernelPlan plan;
  plan.source = source;
  plan.device = read_identity(s.section("device"));
  const Section shapes = s.section("shapes");
  for (const auto& [key, value] : shapes.json().items()) plan.shapes[key] = shapes.integer(key, INT64_MIN, INT64_MAX);
  plan.choices = s.section("choices").texts();
  const Section candidates = s.section("candidates");
  for (const auto& [key, value] : candidates.json().items())
    plan.candidates[key] = read_candidates(candidates, key, source);
  plan.env = s.section("env").texts();
  plan.measured = s.flag("measured");
  plan.budget_s = s.number("budget_s");
  return plan;
}

std::string plan_choices(const KernelPlan& plan) {
  return canonical_json({{"device", identity_json(plan.device)}, {"shapes", plan.shapes}, {"choices", plan.choices}});
}

std::vector<std::string> compare(const KernelPlan& plan, const DeviceIdentity& device,
                                 const std::map<std::string, int64_t>& shapes) {
  std::vector<std::string> out;
  auto differs = [&](std::string_view what, const auto& planned, const auto& here) {
    if (planned != here) out.push_back(fmt::format("{}: the plan was made for {}, here it is {}", what, planned, here));
  };
  auto maps = [&](std::string_view what, const auto& planned, const auto& here) {
    std::set<std::string> keys;
    for (const auto& [key, value] : planned) keys.insert(key);
    for (const auto& [key, value] : here) keys.insert(key);
    for (const std::string& key : keys) {
      auto show = [&](const auto& map) {
        const auto at = map.find(key);
        return at == map.end() ? std::string("absent") : fmt::format("{}", at->second);
      };
      differs(fmt::format("{} {}", what, key), show(planned), show(here));
    }
  };
  differs("device kind", plan.device.kind, device.kind);
  differs("device name", plan.device.name, device.name);
  differs("device arch", plan.device.arch, device.arch);
  differs("driver", plan.device.driver, device.driver);
  maps("library", plan.device.libraries, device.libraries);
  if (device.threads > plan.device.threads)
    out.push_back(fmt::format("threads: the plan was made for {}, here are {}; run with --threads {}",
                              plan.device.threads, device.threads, plan.device.threads));
  maps("shape", plan.shapes, shapes);
  return out;
}

}  // namespace mxt::kernels
