#include "provenance/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mxt::provenance {
namespace {

std::string escaped(std::string_view key) {  // RFC 6901
  std::string out;
  for (char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

void add_leaves(const Json& j, const std::string& at, std::map<std::string, std::string>& out) {
  if (at == "/predicate/integrity") return;
  if (j.is_object() && !j.empty()) {
    for (const auto& [key, value] : j.items()) add_leaves(value, at + "/" + escaped(key), out);
  } else if (j.is_array() && !j.empty()) {
    for (size_t i = 0; i < j.size(); ++i) add_leaves(j[i], fmt::format("{}/{}", at, i), out);
  } else {
    out[at] = blake3_hex(canonical_json(j)).substr(0, 16);
  }
}

}  // namespace

FileDigests list_digests(const std::vector<FileRecord>& files) {
  std::vector<const FileRecord*> sorted;
  for (const auto& f : files) sorted.push_back(&f);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->path < b->path; });
  Json list = Json::array();
  uint64_t bytes = 0;
  for (const auto* f : sorted) {
    list.push_back(
        {{"path", f->path}, {"bytes", f->digests.bytes}, {"blake3", f->digests.blake3}, {"sha256", f->digests.sha256}});
    bytes += f->digests.bytes;
  }
  FileDigests d = value_digests(list);
  d.bytes = bytes;
  return d;
}

FileDigests value_digests(const Json& value) {
  const std::string text = canonical_json(value);
  return {blake3_hex(text), sha256_hex(text), text.size()};
}

std::map<std::string, std::string> leaf_digests(const Json& manifest) {
  std::map<std::string, std::string> out;
  add_leaves(manifest, "", out);
  return out;
}

std::string whole_digest(Json manifest) {
  if (manifest.contains("/predicate/integrity/blake3"_json_pointer)) manifest["predicate"]["integrity"].erase("blake3");
  return blake3_hex(canonical_json(manifest));
}

std::vector<Finding> check_integrity(const Json& manifest) {
  const auto fields = "/predicate/integrity/fields"_json_pointer, whole = "/predicate/integrity/blake3"_json_pointer;
  if (!manifest.contains(fields) || !manifest[fields].is_object() || !manifest.contains(whole) ||
      !manifest[whole].is_string())
    return {{"/predicate/integrity", "is missing: the manifest cannot show that it is as it was written"}};
  const std::string stored = manifest[whole];
  if (whole_digest(manifest) == stored) return {};

  // Something was edited. Which? Compare leaf by leaf.
  const auto now = leaf_digests(manifest);
  std::vector<Finding> found;
  for (const auto& [at, digest] : now) {
    const auto it = manifest[fields].find(at);
    if (it == manifest[fields].end())
      found.push_back({at, "was added to the manifest"});
    else if (*it != digest)
      found.push_back({at, "was edited in the manifest"});
  }
  for (const auto& [at, digest] : manifest[fields].items())
    if (!now.contains(at)) found.push_back({at, "was removed from the manifest"});
  if (found.empty()) {
    // Every leaf holds, so the edit is in predicate.integrity itself.
    return {{"/predicate/integrity", "was edited in the manifest (its blake3 does not hold, though every field does)"}};
  }
  // Or only the digests of the leaves were edited: with the right ones, the whole holds again.
  Json repaired = manifest;
  repaired[fields] = now;
  if (whole_digest(repaired) == stored)
    for (Finding& f : found) f = {"/predicate/integrity/fields " + f.field, "was edited in the manifest"};
  return found;
}

std::string manifest_text(const OrderedJson& manifest) { return manifest.dump(2) + "\n"; }

}  // namespace mxt::provenance
