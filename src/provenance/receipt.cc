#include "provenance/receipt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "provenance/manifest.h"

namespace mxt::provenance {
namespace {

using Pointer = Json::json_pointer;

OrderedJson at(const Json& j, const char* pointer) {
  const Pointer p(pointer);
  return j.contains(p) ? OrderedJson(j[p]) : OrderedJson(nullptr);
}

// The first of these that is there.
OrderedJson first_of(const Json& j, std::initializer_list<const char*> pointers) {
  for (const char* p : pointers)
    if (OrderedJson v = at(j, p); !v.is_null()) return v;
  return nullptr;
}

OrderedJson value_of(const Json& m, config::ReceiptField field) {
  using F = config::ReceiptField;
  switch (field) {
    case F::kRocmVersion:
      return at(m, "/predicate/identities/libraries/rocm");
    case F::kGfxArch:
      return first_of(m, {"/predicate/identities/device/gfx_arch", "/predicate/identities/device/arch"});
    case F::kContainerDigest:
      return at(m, "/predicate/identities/container_digest");
    case F::kAllGitShas:
      return at(m, "/predicate/identities/git_commit");
    case F::kYamlHash: {
      const std::string d = subject_digest(m, "recipe");
      return d.empty() ? OrderedJson(nullptr) : OrderedJson("blake3:" + d);
    }
    case F::kDatasetCids: {
      const std::string d = subject_digest(m, "dataset");
      OrderedJson v = {{"cid", at(m, "/predicate/pointers/dataset_cid")},
                       {"digest", d.empty() ? OrderedJson(nullptr) : OrderedJson("blake3:" + d)}};
      return v;
    }
    case F::kEvalReport:
      return at(m, "/predicate/results/eval");
    case F::kEnergyKwh:
      return at(m, "/predicate/energy/kwh");
  }
  return nullptr;
}

// "" where it is not known.
std::string shown(const OrderedJson& v) {
  if (v.is_null()) return "";
  if (v.is_string()) return v.get<std::string>();
  if (v.is_number_float()) return fmt::format("{:.6g}", v.get<double>());
  if (v.is_array() || v.is_object()) {
    std::string out;
    for (const auto& [key, value] : v.items()) {
      const std::string text = shown(value);
      if (!text.empty()) out += (out.empty() ? "" : ", ") + (v.is_object() ? key + " " : std::string()) + text;
    }
    return out;
  }
  return v.dump();
}

}  // namespace

OrderedJson make_receipt(const Json& m, const config::Receipt& settings) {
  OrderedJson r;
  r["run"] = at(m, "/predicate/run/run_name");
  r["project"] = at(m, "/predicate/run/project");
  r["manifest"] = at(m, "/predicate/integrity/blake3");
  r["signer"] = at(m, "/predicate/signer");
  for (const Json& s : m.contains("subject") && m["subject"].is_array() ? m["subject"] : Json::array())
    if (s.is_object() && s.contains("name") && s["name"].is_string() && s.contains("/digest/blake3"_json_pointer))
      r["subjects"][s["name"].get<std::string>()] = s["digest"]["blake3"];
  for (const char* input : {"trainer", "init_adapter", "reference", "reward_models"})
    if (const OrderedJson v = at(m, (std::string("/predicate/identities/") + input).c_str()); !v.is_null())
      r[input] = v;
  for (config::ReceiptField f : settings.include) {
    r[std::string(config::text_of(f))] = value_of(m, f);
    if (f == config::ReceiptField::kEnergyKwh) r["energy_method"] = at(m, "/predicate/energy/method");
  }
  r["cost_usd"] = at(m, "/predicate/environment/cost_usd");
  r["price"] = at(m, "/predicate/environment/price");
  r["pointers"] = at(m, "/predicate/pointers");
  return r;
}

std::string receipt_text(const OrderedJson& receipt) {
  std::string out, unknown;
  for (const auto& [key, value] : receipt.items()) {
    if (key == "subjects" && value.is_object()) {
      for (const auto& [name, digest] : value.items()) out += fmt::format("  {:<18}blake3 {}\n", name, shown(digest));
    } else if (key == "signer" && value.is_null()) {
      out += fmt::format("{:<20}none: the manifest is not signed\n", key);
    } else if (const std::string text = shown(value); text.empty()) {
      unknown += (unknown.empty() ? "" : ", ") + key;
    } else {
      out += fmt::format("{:<20}{}\n", key, text);
    }
  }
  // On one line: what a machine does not tell is the same for each of its runs.
  if (!unknown.empty()) out += fmt::format("{:<20}{}\n", "not known here", unknown);
  return out;
}

void check_receipt_place(const config::Receipt& settings) {
  const fs::path parent = fs::path(settings.output).parent_path();
  if (!parent.empty()) make_folders(parent.string());
  if (fs::is_directory(settings.output))
    fail_input("receipt.output: {} is a folder: name a file for the receipt", settings.output);
  if (access(parent.empty() ? "." : parent.c_str(), W_OK) != 0)
    fail_input("receipt.output: {}: nothing can be written there: {}", settings.output, std::strerror(errno));
}

void write_receipt(const OrderedJson& receipt, const config::Receipt& settings) {
  const fs::path parent = fs::path(settings.output).parent_path();
  if (!parent.empty()) make_folders(parent.string());
  write_file_atomic(settings.output, receipt.dump(2) + "\n");
}

}  // namespace mxt::provenance
