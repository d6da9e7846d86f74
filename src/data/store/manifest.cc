#include "data/store/manifest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"

namespace mxt::data {
namespace {

constexpr const char* kFormat = "mindxtrain.dataset.1";

OrderedJson part_json(const Part& p) {
  OrderedJson files = OrderedJson::array();
  for (const ShardFile& f : p.files)
    files.push_back(OrderedJson{{"file", f.name}, {"bytes", f.bytes}, {"blake3", f.blake3}});
  return OrderedJson{{"rows", p.info.rows},       {"documents", p.info.documents}, {"tokens", p.info.tokens},
                     {"targets", p.info.targets}, {"longest", p.info.longest},     {"files", std::move(files)}};
}

Part read_part(const Json& j) {
  Part p;
  p.info = {j.at("rows"), j.at("documents"), j.at("tokens"), j.at("targets"), j.at("longest")};
  for (const Json& f : j.at("files")) p.files.push_back({f.at("file"), f.at("bytes"), f.at("blake3")});
  // Names come from a file that may have travelled: they stay inside the folder.
  for (const ShardFile& f : p.files)
    if (f.name.empty() || f.name.find('/') != std::string::npos || f.name[0] == '.')
      fail_input("file name \"{}\" is not one of a prepared folder", f.name);
  return p;
}

OrderedJson dropped_json(const Prepared& p) {
  OrderedJson j = {{"no_target", p.dropped_no_target}};
  if (p.curation)
    for (const auto& [reason, rows] : p.curation->dropped) j[reason] = rows;
  return j;
}

OrderedJson curation_json(const CurationReport& r) {
  OrderedJson samples = OrderedJson::array();
  for (const CurationReport::Sample& s : r.samples) {
    OrderedJson j = {{"reason", s.reason}, {"row", s.where}, {"text", s.text}};
    if (!s.stays_where.empty()) j.update({{"stays", s.stays_where}, {"stays_text", s.stays_text}});
    if (s.similarity > 0) j["similarity"] = s.similarity;
    samples.push_back(std::move(j));
  }
  OrderedJson j = {{"rows_in", r.rows_in}, {"groups", r.groups}, {"largest_group", r.largest_group}};
  if (r.semantic)
    j["semantic"] = {{"rows", r.semantic->rows},
                     {"clusters", r.semantic->clusters},
                     {"largest_cluster", r.semantic->largest_cluster},
                     {"groups", r.semantic->groups},
                     {"largest_group", r.semantic->largest_group}};
  j.update({{"redacted", r.redacted}, {"samples", std::move(samples)}});
  return j;
}

OrderedJson mixture_json(const Prepared& p) {
  OrderedJson j = OrderedJson::array();
  for (const MixedSource& m : p.mixture)
    j.push_back({{"source", m.source},
                 {"weight", m.weight},
                 {"rows_in", m.rows_in},
                 {"dropped", m.dropped},
                 {"documents", m.documents},
                 {"tokens", m.tokens},
                 {"used_documents", m.used_documents},
                 {"used_tokens", m.used_tokens}});
  return j;
}

std::vector<MixedSource> read_mixture(const Json& j) {
  std::vector<MixedSource> all;
  for (const Json& m : j)
    all.push_back({m.at("source"), m.at("weight"), m.at("rows_in"), m.at("dropped"), m.at("documents"), m.at("tokens"),
                   m.at("used_documents"), m.at("used_tokens")});
  return all;
}

CurationReport read_curation(const Json& manifest) {
  const Json& j = manifest.at("curation");
  CurationReport r;
  r.rows_in = j.at("rows_in");
  r.groups = j.at("groups");
  r.largest_group = j.at("largest_group");
  if (j.contains("semantic")) {
    const Json& s = j["semantic"];
    r.semantic = {s.at("rows"), s.at("clusters"), s.at("largest_cluster"), s.at("groups"), s.at("largest_group")};
  }
  r.redacted = j.at("redacted").get<std::map<std::string, int64_t>>();
  for (const auto& [reason, rows] : manifest.at("dropped").items())
    if (reason != "no_target") r.dropped[reason] = rows;
  for (const Json& s : j.at("samples"))
    r.samples.push_back({s.at("reason"), s.at("row"), s.at("text"), s.value("stays", ""), s.value("stays_text", ""),
                         s.value("similarity", 0.0)});
  return r;
}

std::string path_of(const std::string& folder) { return (fs::path(folder) / kManifestName).string(); }

}  // namespace

const Part* Manifest::part(std::string_view name) const {
  if (name == "train") return &train;
  return name == "eval" && eval ? &*eval : nullptr;
}

std::string part_file_name(std::string_view part, size_t i, size_t n) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", part, i + 1, n);
}

void write_manifest(const std::string& folder, const Manifest& m) {
  OrderedJson j = {{"format", kFormat},
                   {"key", m.key},
                   {"seq_len", m.seq_len},
                   {"windows", m.windows},
                   {"inputs", parse_ordered_json(m.inputs, "inputs")},
                   {"shape", m.counts.shape},
                   {"rows_in", m.counts.rows_in},
                   {"dropped", dropped_json(m.counts)},
                   {"cut", {{"documents", m.counts.cut}, {"tokens", m.counts.cut_tokens}}},
                   {"train", part_json(m.train)}};
  if (m.counts.curation) j["curation"] = curation_json(*m.counts.curation);
  if (!m.counts.mixture.empty()) j["mixture"] = mixture_json(m.counts);
  if (m.eval) j["eval"] = part_json(*m.eval);
  write_file_atomic(path_of(folder), j.dump(2) + "\n");
}

bool has_manifest(const std::string& folder) { return fs::is_regular_file(path_of(folder)); }

Manifest read_manifest(const std::string& folder) {
  const std::string path = path_of(folder);
  if (!has_manifest(folder))
    fail_input("{}: no {} here; prepare the data first (mindxtrain dataset prep)", folder, kManifestName);
  const Json j = read_json_file(path);
  if (!j.is_object() || j.value("format", Json()) != kFormat)
    fail_input("{}: is not a dataset manifest of this version ({}); prepare the data again", path, kFormat);
  try {
    Manifest m;
    m.key = j.at("key");
    m.inputs = j.at("inputs").dump();
    m.windows = j.at("windows");
    m.seq_len = j.at("seq_len");
    m.counts.shape = j.at("shape");
    m.counts.rows_in = j.at("rows_in");
    m.counts.dropped_no_target = j.at("dropped").at("no_target");
    if (j.contains("curation")) m.counts.curation = read_curation(j);
    if (j.contains("mixture")) m.counts.mixture = read_mixture(j.at("mixture"));
    m.counts.cut = j.at("cut").at("documents");
    m.counts.cropped = j.at("inputs").value("pack", "") == "bos_crop";
    m.overlaps = m.counts.cropped || j.at("inputs").value("pack", "") == "best_fit";
    m.joined = j.at("inputs").value("boundaries", "") == "row";
    m.counts.cut_tokens = j.at("cut").at("tokens");
    m.train = read_part(j.at("train"));
    m.counts.train = m.train.info;
    if (j.contains("eval")) {
      m.eval = read_part(j.at("eval"));
      m.counts.eval = m.eval->info;
    }
    return m;
  } catch (const std::exception& e) {  // the JSON library's own, for a missing key or a wrong type
    fail_input("{}: {}; prepare the data again", path, e.what());
  }
}

std::string check_files(const std::string& folder, const Part& part, bool digests) {
  for (const ShardFile& f : part.files) {
    const std::string path = (fs::path(folder) / f.name).string();
    std::error_code ec;
    const uint64_t size = fs::file_size(path, ec);
    if (ec) return fmt::format("{}: is missing", path);
    if (size != f.bytes) return fmt::format("{}: has {} bytes, the manifest says {}", path, size, f.bytes);
    if (digests && hash_file(path).blake3 != f.blake3) return fmt::format("{}: its digest is not the manifest's", path);
  }
  return "";
}

}  // namespace mxt::data
