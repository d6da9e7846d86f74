#include <nlohmann/json.hpp>

#include "answers.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/recipe.h"

namespace mxt::app {
namespace {

using registry::Run;

// The effective recipes of both folders, leaf by leaf.
void recipe_differences(const Json& a, const Json& b, const std::string& at, OrderedJson& out) {
  if (a == b) return;
  if (a.is_object() && b.is_object()) {
    for (const auto& [k, v] : a.items())
      recipe_differences(v, b.contains(k) ? b[k] : Json(), at.empty() ? k : at + "." + k, out);
    for (const auto& [k, v] : b.items())
      if (!a.contains(k)) recipe_differences(Json(), v, at.empty() ? k : at + "." + k, out);
    return;
  }
  out[at] = {a, b};
}

Json recipe_of(const Run& r) {
  try {
    return Json::parse(config::canonical(config::load_recipe(r.folder + "/recipe.yaml")));
  } catch (const Error&) {
    return nullptr;  // moved or removed since
  }
}

OrderedJson pairs(const std::string& a, const std::string& b) {
  const OrderedJson x = OrderedJson::parse(a, nullptr, false), y = OrderedJson::parse(b, nullptr, false);
  OrderedJson out = OrderedJson::object();
  if (!x.is_object() || !y.is_object()) return out;
  for (const auto& [k, v] : x.items()) out[k] = {v, y.contains(k) ? y[k] : OrderedJson(nullptr)};
  for (const auto& [k, v] : y.items())
    if (!x.contains(k)) out[k] = {nullptr, v};
  return out;
}

}  // namespace

// What a run that ended early got to: the last line of its metrics.
OrderedJson last_step(const Run& r) {
  const std::string path = r.folder + "/metrics.jsonl";
  if (r.replaced_by != 0 || !fs::exists(path)) return nullptr;
  std::string text = read_file(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const OrderedJson j = OrderedJson::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  return j.is_object() ? j : OrderedJson(nullptr);
}

OrderedJson run_answer(const Run& r) {
  OrderedJson j;
  j["id"] = r.id;
  j["run"] = r.run_name;
  j["name"] = r.name();
  j["tags"] = r.note.tags;
  j["archived"] = r.note.archived;
  j["project"] = r.project;
  j["state"] = registry::name_of(r.state);
  j["stage"] = r.stage;
  j["verb"] = r.verb;
  j["folder"] = replace_invalid_utf8(r.folder);
  j["recipe_hash"] = r.recipe_hash;
  j["started"] = r.started;
  j["ended"] = r.ended.empty() ? OrderedJson(nullptr) : OrderedJson(r.ended);
  j["attempts"] = r.attempts;
  j["host"] = r.host;
  if (!r.message.empty()) j["message"] = r.message;
  if (r.replaced_by != 0) j["folder_holds"] = r.replaced_by;
  j["metrics"] = OrderedJson::parse(r.metrics, nullptr, false);
  j["digests"] = OrderedJson::parse(r.digests, nullptr, false);
  return j;
}

OrderedJson compare_answer(const Run& a, const Run& b) {
  OrderedJson j;
  j["runs"] = {a.id, b.id};
  j["recipe"] = OrderedJson::object();
  const Json ra = recipe_of(a), rb = recipe_of(b);
  const Run& lost = a.replaced_by != 0 ? a : b;
  if (lost.replaced_by != 0)
    j["not_compared"] = fmt::format("the folder of run {} now holds run {}", lost.id, lost.replaced_by);
  else if (ra.is_null() || rb.is_null())
    j["not_compared"] = fmt::format("the folder of run {} is gone", ra.is_null() ? a.id : b.id);
  if (j.contains("not_compared"))
    j["recipe"] = nullptr;
  else
    recipe_differences(ra, rb, "", j["recipe"]);
  j["metrics"] = pairs(a.metrics, b.metrics);
  j["digests"] = pairs(a.digests, b.digests);
  return j;
}

}  // namespace mxt::app
