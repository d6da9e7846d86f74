#include "provenance/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/hash_files.h"
#include "base/text.h"
#include "config/recipe.h"
#include "provenance/integrity.h"
#include "provenance/merkle.h"
#include "provenance/slsa.h"

namespace mxt::provenance {

std::string published_path(const std::string& path) {
  constexpr std::string_view kCheckpoint = "checkpoint/";
  return path.starts_with(kCheckpoint) ? path.substr(kCheckpoint.size()) : std::string(kPublishedFolder) + "/" + path;
}

struct ManifestBuilder::Parts {
  struct Subject {
    std::string name;
    FileDigests digests;
    OrderedJson entry;
  };
  std::vector<Subject> subjects;
  OrderedJson run = OrderedJson::object(), records = OrderedJson::array();
  std::map<std::string, Json> set;

  void add(Subject s) {
    for (const auto& old : subjects)
      if (old.name == s.name) fail_input("manifest: the subject {} was given twice", s.name);
    subjects.push_back(std::move(s));
  }
};

ManifestBuilder::ManifestBuilder(std::string run_folder)
    : folder_(std::move(run_folder)), parts_(std::make_unique<Parts>()) {}
ManifestBuilder::~ManifestBuilder() = default;

void ManifestBuilder::set_recipe(const config::Recipe& recipe) {
  parts_->run = {{"project", recipe.meta.project},
                 {"run_name", recipe.meta.run_name},
                 {"seed", recipe.meta.seed},
                 {"license", recipe.meta.license},
                 {"recipe_hash", config::recipe_hash(recipe)}};
}

void ManifestBuilder::add_file(const std::string& subject, const std::string& path) {
  const FileDigests d = hash_file(folder_ + "/" + path);
  OrderedJson entry = {{"kind", "file"}, {"path", path}, {"bytes", d.bytes}};
  parts_->add({subject, d, std::move(entry)});
}

void ManifestBuilder::add_folder(const std::string& subject, const std::string& path) {
  const std::string root = folder_ + "/" + path;
  if (!fs::is_directory(root)) fail_input("{}: the folder of the manifest's {} is not there", root, subject);
  std::vector<FileRecord> files;
  for (const auto& f : list_entries(root)) {
    if (!fs::is_regular_file(fs::symlink_status(root + "/" + f)) || !is_valid_utf8(f))
      fail_input(
          "{}/{}: stands in the folder of the manifest's {}, which can hold plain files with names in UTF-8 alone: "
          "remove it",
          root, f, subject);
    files.push_back({path + "/" + f, {}});
  }
  std::vector<std::string> paths;
  for (const FileRecord& f : files) paths.push_back(folder_ + "/" + f.path);
  std::vector<FileDigests> digests = hash_files(paths);
  for (size_t i = 0; i < files.size(); ++i) files[i].digests = std::move(digests[i]);
  const FileDigests d = list_digests(files);
  OrderedJson entry = {{"kind", "folder"}, {"path", path}, {"bytes", d.bytes}};
  entry["merkle"] = merkle_root(files);
  OrderedJson& list = entry["files"] = OrderedJson::array();
  for (const auto& f : files)
    list.push_back(
        {{"path", f.path}, {"bytes", f.digests.bytes}, {"blake3", f.digests.blake3}, {"sha256", f.digests.sha256}});
  parts_->add({subject, d, std::move(entry)});
}

void ManifestBuilder::add_value(const std::string& subject, const Json& value) {
  OrderedJson entry = {{"kind", "value"}, {"value", value}};
  parts_->add({subject, value_digests(value), std::move(entry)});
}

void ManifestBuilder::add_record(const std::string& path) {
  const FileDigests d = hash_file(folder_ + "/" + path);
  parts_->records.push_back({{"path", path}, {"bytes", d.bytes}, {"blake3", d.blake3}, {"sha256", d.sha256}});
}

void ManifestBuilder::set(const std::string& part, const Json& value) {
  static const std::set<std::string> kParts = {"identities", "results", "energy", "pointers", "environment"};
  MXT_ASSERT(kParts.contains(part));
  parts_->set[part] = value;
}

std::string ManifestBuilder::write(const std::optional<SigningKey>& key) {
  OrderedJson m;
  m["_type"] = "https://in-toto.io/Statement/v1";
  m["subject"] = OrderedJson::array();
  OrderedJson subjects = OrderedJson::object();
  for (const auto& s : parts_->subjects) {
    m["subject"].push_back(
        {{"name", s.name}, {"digest", {{"blake3", s.digests.blake3}, {"sha256", s.digests.sha256}}}});
    subjects[s.name] = s.entry;
  }
  m["predicateType"] = kPredicateType;
  OrderedJson& p = m["predicate"];
  p["run"] = parts_->run;
  p["subjects"] = std::move(subjects);
  for (const char* part : {"identities", "results", "energy", "pointers", "environment"})
    p[part] = parts_->set.contains(part) ? OrderedJson(parts_->set.at(part)) : OrderedJson(nullptr);
  if (!parts_->records.empty()) p["environment"]["files"] = parts_->records;
  p["buildDefinition"] = build_definition(Json(m));
  p["runDetails"] = run_details(Json(m));
  p["signer"] = key ? OrderedJson(key->public_key) : OrderedJson(nullptr);
  p["integrity"]["fields"] = leaf_digests(Json(m));
  const std::string digest = whole_digest(Json(m));
  p["integrity"]["blake3"] = digest;

  const std::string text = manifest_text(m), path = folder_ + "/manifest.json",
                    envelope = folder_ + "/manifest.dsse.json";
  // What was made of an older manifest must not stay beside the new one.
  std::error_code ec;
  fs::remove(envelope, ec);
  fs::remove(folder_ + "/" + kReceiptName, ec);
  write_file_atomic(path, text);
  if (key) write_file_atomic(envelope, seal(text, *key));
  return digest;
}

std::string subject_digest(const Json& manifest, const std::string& subject) {
  if (!manifest.is_object() || !manifest.contains("subject") || !manifest["subject"].is_array()) return "";
  for (const Json& s : manifest["subject"])
    if (s.is_object() && s.value("name", Json()) == Json(subject) && s.contains("/digest/blake3"_json_pointer) &&
        s["digest"]["blake3"].is_string())
      return s["digest"]["blake3"];
  return "";
}

}  // namespace mxt::provenance
