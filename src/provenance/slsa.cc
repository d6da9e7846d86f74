#include "provenance/slsa.h"

#include <nlohmann/json.hpp>
#include <string>

#include "base/hash.h"

namespace mxt::provenance {
namespace {

constexpr const char* kBuildType = "urn:mindxtrain:run:v1";

Json field_at(const Json& j, const char* pointer) {
  const Json::json_pointer p(pointer);
  return j.contains(p) ? j.at(p) : Json();
}

// Digests of a subject, or null where there is none of the name.
Json digest_set(const Json& manifest, const std::string& subject) {
  for (const Json& s : manifest.at("subject"))
    if (s.at("name") == Json(subject)) return s.at("digest");
  return nullptr;
}

void add_dependency(OrderedJson& list, const std::string& name, const Json& digest) {
  if (digest.is_object() && !digest.empty()) list.push_back({{"name", name}, {"digest", OrderedJson(digest)}});
}

}  // namespace

OrderedJson build_definition(const Json& m) {
  OrderedJson dependencies = OrderedJson::array();
  for (const char* subject : {"recipe", "plan", "dataset"})
    add_dependency(dependencies, subject, digest_set(m, subject));
  add_dependency(dependencies, "program", field_at(m, "/predicate/identities/program_digest"));
  if (const Json name = field_at(m, "/predicate/identities/base_model/name"); name.is_string())
    dependencies.push_back(
        {{"name", "base_model"},
         {"digest", {{"weights", blake3_hex(field_at(m, "/predicate/identities/base_model/weights").dump())}}},
         {"annotations",
          {{"name", name}, {"digest", "weights: BLAKE3 over predicate.identities.base_model.weights as JSON"}}}});
  OrderedJson external = {{"recipe_hash", field_at(m, "/predicate/run/recipe_hash")},
                          {"project", field_at(m, "/predicate/run/project")},
                          {"run_name", field_at(m, "/predicate/run/run_name")},
                          {"seed", field_at(m, "/predicate/run/seed")}};
  OrderedJson internal = OrderedJson::object();
  if (const Json d = digest_set(m, "plan_choices"); d.is_object()) internal["plan_choices"] = d;
  return {{"buildType", kBuildType},
          {"externalParameters", std::move(external)},
          {"internalParameters", std::move(internal)},
          {"resolvedDependencies", std::move(dependencies)}};
}

OrderedJson run_details(const Json& m) {
  OrderedJson builder = {{"id", "urn:mindxtrain:builder"}};
  for (const char* key : {"version", "git_commit", "compiler"})
    if (const Json v = field_at(m, (std::string("/predicate/identities/") + key).c_str()); v.is_string())
      builder["version"][key] = v;
  OrderedJson metadata = {{"invocationId", field_at(m, "/predicate/run/recipe_hash")}};
  if (metadata["invocationId"].is_null()) metadata = OrderedJson::object();
  for (const auto& [theirs, ours] : {std::pair("startedOn", "/predicate/environment/started"),
                                     std::pair("finishedOn", "/predicate/environment/finished")})
    if (const Json v = field_at(m, ours); v.is_string()) metadata[theirs] = v;
  OrderedJson byproducts = OrderedJson::array();
  for (const char* subject : {"eval", "quantized"}) add_dependency(byproducts, subject, digest_set(m, subject));
  return {{"builder", std::move(builder)}, {"metadata", std::move(metadata)}, {"byproducts", std::move(byproducts)}};
}

}  // namespace mxt::provenance
