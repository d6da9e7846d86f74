#include "provenance/merkle.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/hash.h"

namespace mxt::provenance {
namespace {

std::optional<Digest> digest_of(const std::string& hex) {
  Digest d{};
  if (hex.size() != 2 * d.size() || hex.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return d;
}

Digest leaf_of(const Digest& file, uint64_t bytes, const std::string& path) {
  Blake3 h;
  h.update("\0", 1);
  h.update(file.data(), file.size());
  for (int i = 0; i < 8; ++i, bytes >>= 8) {
    const char byte = static_cast<char>(bytes);
    h.update(&byte, 1);
  }
  h.update(path);
  return h.digest();
}

Digest node_of(const Digest& left, const Digest& right) {
  Blake3 h;
  h.update("\1", 1);
  h.update(left.data(), left.size());
  h.update(right.data(), right.size());
  return h.digest();
}

size_t split_of(size_t n) { return std::bit_floor(n - 1); }

Digest root_of(std::span<const Digest> leaves) {
  if (leaves.empty()) return Blake3().digest();
  if (leaves.size() == 1) return leaves[0];
  const size_t k = split_of(leaves.size());
  return node_of(root_of(leaves.first(k)), root_of(leaves.subspan(k)));
}

// Siblings from the leaf up.
void siblings_of(std::span<const Digest> leaves, size_t index, std::vector<Digest>& out) {
  if (leaves.size() == 1) return;
  const size_t k = split_of(leaves.size());
  if (index < k) {
    siblings_of(leaves.first(k), index, out);
    out.push_back(root_of(leaves.subspan(k)));
  } else {
    siblings_of(leaves.subspan(k), index - k, out);
    out.push_back(root_of(leaves.first(k)));
  }
}

// Takes the siblings from the end, as the way down meets them; nothing where there are too few.
std::optional<Digest> climb(const Digest& leaf, size_t index, size_t n, std::span<const Digest> siblings) {
  if (n == 1) return siblings.empty() ? std::optional(leaf) : std::nullopt;
  if (siblings.empty()) return std::nullopt;
  const size_t k = split_of(n);
  const bool left = index < k;
  const auto below = climb(leaf, left ? index : index - k, left ? k : n - k, siblings.first(siblings.size() - 1));
  if (!below) return std::nullopt;
  return left ? node_of(*below, siblings.back()) : node_of(siblings.back(), *below);
}

std::vector<const FileRecord*> sorted(const std::vector<FileRecord>& files) {
  std::vector<const FileRecord*> out;
  for (const FileRecord& f : files) out.push_back(&f);
  std::sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return a->path < b->path; });
  return out;
}

std::vector<Digest> leaves_of(const std::vector<const FileRecord*>& files) {
  std::vector<Digest> out;
  for (const FileRecord* f : files)
    out.push_back(leaf_of(digest_of(f->digests.blake3).value_or(Digest{}), f->digests.bytes, f->path));
  return out;
}

}  // namespace

std::string merkle_root(const std::vector<FileRecord>& files) { return to_hex(root_of(leaves_of(sorted(files)))); }

OrderedJson merkle_proof(const std::vector<FileRecord>& files, const std::string& path) {
  const auto all = sorted(files);
  const auto it = std::find_if(all.begin(), all.end(), [&](const FileRecord* f) { return f->path == path; });
  if (it == all.end()) fail_input("{}: is no file of the manifest's folders", path);
  const auto index = static_cast<size_t>(it - all.begin());
  std::vector<Digest> siblings;
  siblings_of(leaves_of(all), index, siblings);
  OrderedJson list = OrderedJson::array();
  for (const Digest& d : siblings) list.push_back(to_hex(d));
  return {{"path", path},        {"blake3", (*it)->digests.blake3}, {"bytes", (*it)->digests.bytes}, {"index", index},
          {"files", all.size()}, {"siblings", std::move(list)}};
}

std::string check_merkle_proof(const Json& proof, const std::string& root) {
  const auto number = [&](const char* key) {
    return proof.is_object() && proof.contains(key) && proof[key].is_number_unsigned()
               ? std::optional(proof[key].get<uint64_t>())
               : std::nullopt;
  };
  const auto text = [](const Json& v) { return v.is_string() ? v.get<std::string>() : std::string(); };
  const auto bytes = number("bytes"), index = number("index"), files = number("files");
  if (!bytes || !index || !files || *index >= *files || *files > (1u << 30)) return "is no proof";
  if (proof.contains("root") && proof["root"] != root) return "is of another folder than the manifest's";
  const auto file = digest_of(text(proof.value("blake3", Json())));
  const std::string path = text(proof.value("path", Json()));
  if (!file || path.empty() || !proof.contains("siblings") || !proof["siblings"].is_array() ||
      proof["siblings"].size() > 64)
    return "is no proof";
  std::vector<Digest> siblings;
  for (const Json& s : proof["siblings"]) {
    const auto d = digest_of(text(s));
    if (!d) return "is no proof";
    siblings.push_back(*d);
  }
  const auto got = climb(leaf_of(*file, *bytes, path), *index, *files, siblings);
  if (!got) return "has the wrong number of siblings";
  return to_hex(*got) == root ? "" : "does not lead to the folder's digest";
}

OrderedJson prove_file(const Json& manifest, const std::string& path) {
  const auto subjects = "/predicate/subjects"_json_pointer;
  for (const auto& [name, entry] : manifest.at(subjects).items()) {
    if (!entry.is_object() || !entry.contains("merkle") || !entry.contains("files")) continue;
    std::vector<FileRecord> files;
    for (const Json& f : entry["files"])
      files.push_back({f.at("path"), {f.at("blake3"), f.at("sha256"), f.at("bytes")}});
    if (std::none_of(files.begin(), files.end(), [&](const FileRecord& f) { return f.path == path; })) continue;
    OrderedJson out = {{"subject", name}, {"root", entry["merkle"]}};
    out.update(merkle_proof(files, path));
    return out;
  }
  fail_input("{}: is no file of the manifest's folders", path);
}

std::string check_file_proof(const Json& manifest, const Json& proof) {
  const Json subject = proof.is_object() ? proof.value("subject", Json()) : Json();
  if (!subject.is_string()) return "names no subject";
  const auto at = "/predicate/subjects"_json_pointer / subject.get<std::string>() / "merkle";
  if (!manifest.contains(at) || !manifest.at(at).is_string()) return "is of a subject that the manifest has no tree of";
  return check_merkle_proof(proof, manifest.at(at));
}

}  // namespace mxt::provenance
