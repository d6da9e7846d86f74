// Verification: every file hashed again, every field of the manifest checked against its digest.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "config/recipe.h"
#include "provenance/identity.h"
#include "provenance/integrity.h"
#include "provenance/merkle.h"
#include "provenance/receipt.h"

namespace mxt::provenance {
namespace {

// A link that leads in a circle, or into what cannot be read, is a finding of the run's and no error of the program's.
bool is_file(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec);
}
bool is_there(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

// A path from a manifest may be anything: it must stay inside the run's folder.
bool is_inside(const std::string& path) {
  const fs::path p(path);
  if (path.empty() || p.is_absolute() || path.find('\0') != std::string::npos) return false;
  for (const auto& part : p)
    if (part == "..") return false;
  return true;
}

std::string text_at(const Json& j, const char* key) {
  return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

uint64_t bytes_at(const Json& j) {
  return j.is_object() && j.contains("bytes") && j["bytes"].is_number_unsigned() ? j["bytes"].get<uint64_t>() : 0;
}

class Verifier {
 public:
  Verifier(std::string folder, const Json& manifest, const VerifyOptions& options, VerifyReport& report)
      : folder_(std::move(folder)),
        manifest_(manifest),
        published_(options.published),
        stop_(options.stop),
        report_(report) {}

  void check_subjects() {
    const auto at = "/predicate/subjects"_json_pointer;
    if (!manifest_.contains(at) || !manifest_[at].is_object()) return find("/predicate/subjects", "is missing");
    for (const auto& [name, entry] : manifest_[at].items()) check_subject(name, entry);
    if (!manifest_.contains("subject") || !manifest_["subject"].is_array()) return find("/subject", "is missing");
    check_records();
    std::set<std::string> seen;
    for (const Json& s : manifest_["subject"]) {
      const std::string name = text_at(s, "name");
      if (!manifest_[at].contains(name)) find("/subject " + name, "is no subject of the predicate");
      if (!seen.insert(name).second) find("/subject " + name, "stands twice");
    }
    for (const auto& [name, entry] : manifest_[at].items())
      if (!seen.contains(name)) find("/subject " + name, "is missing");
  }

  // A published copy holds what its manifest names and what stands beside it for a reason; nothing else of provenance/
  // is vouched for by anybody.
  void check_copy() {
    if (!published_) return;
    std::set<std::string> known = {published_path("manifest.json"), published_path("manifest.dsse.json"),
                                   published_path(kReceiptName)};
    std::vector<std::string> folders;  // whose entries their subjects have looked at
    for (const auto& [name, entry] : manifest_["/predicate/subjects"_json_pointer].items()) {
      known.insert(published_path(text_at(entry, "path")));
      if (text_at(entry, "kind") == "folder") folders.push_back(published_path(text_at(entry, "path")) + "/");
    }
    const auto at = "/predicate/environment/files"_json_pointer;
    if (manifest_.contains(at) && manifest_[at].is_array())
      for (const Json& f : manifest_[at]) known.insert(published_path(text_at(f, "path")));
    for (const std::string& f : list_entries((folder_ / kPublishedFolder).string())) {
      const std::string path = kPublishedFolder + ("/" + f);
      if (!known.contains(path) && std::none_of(folders.begin(), folders.end(),
                                                [&](const std::string& folder) { return path.starts_with(folder); }))
        find(path, "is not in the manifest");
    }
    report_.subjects.push_back(
        is_there(folder_ / "README.md")
            ? "README.md: no part of the manifest, not checked; an anchor's CID covers it (--rpc)"
            : "README.md: not here; it is no part of the manifest");
  }

  // What two of them say of one thing must agree, whoever sealed them; each has been found whole.
  void check_agreement() {
    const Json& subjects = manifest_["/predicate/subjects"_json_pointer];
    for (const std::string name : {"recipe", "plan", "plan_choices", "dataset", "checkpoint"})
      if (!subjects.contains(name)) find("/predicate/subjects/" + name, "is missing: no run leaves it out");
    try {
      if (subjects.contains("plan") && subjects.contains("plan_choices")) {
        const Json plan = read_json_file(path_of(subjects["plan"])),
                   choices = subjects["plan_choices"].value("value", Json());
        for (const char* key : {"choices", "shapes"})
          if (!choices.is_object() || choices.value(key, Json()) != plan.value(key, Json()))
            find("/predicate/subjects/plan_choices", fmt::format("are not plan.json's ({})", key));
      }
      const auto hash = "/predicate/run/recipe_hash"_json_pointer;
      if (subjects.contains("recipe") && manifest_.contains(hash) &&
          manifest_[hash] != Json(config::recipe_hash(config::load_recipe(path_of(subjects["recipe"])))))
        find(hash.to_string(), "is not recipe.yaml's");
      if (subjects.contains("dataset") && !is_left_out("dataset", text_at(subjects["dataset"], "path")))
        check_shards(subjects["dataset"]);
    } catch (const Error& e) {
      find("/predicate/subjects", e.what());
    } catch (const Json::exception& e) {
      find("/predicate/subjects", e.what());
    }
  }

 private:
  // Where a path of the run lies, relative to the folder.
  std::string place(const std::string& path) const { return published_ ? published_path(path) : path; }
  std::string path_of(const Json& entry) const { return (folder_ / place(text_at(entry, "path"))).string(); }
  // Not published, on purpose; a copy that has some of it all the same must have it whole.
  bool is_left_out(const std::string& subject, const std::string& path) const {
    return published_ && subject == kLeftOutSubject && !fs::exists(fs::symlink_status(folder_ / place(path)));
  }

  // dataset.json states the digests of its shards too.
  void check_shards(const Json& entry) {
    const std::string folder = text_at(entry, "path");
    std::map<std::string, std::string> there;
    for (const Json& f : entry["files"]) there[text_at(f, "path")] = text_at(f, "blake3");
    const Json stated = read_json_file((folder_ / place(folder + "/dataset.json")).string());
    for (const char* part : {"train", "eval"}) {
      if (!stated.contains(part) || !stated[part].is_object()) continue;
      for (const Json& f : stated[part].value("files", Json::array())) {
        const auto it = there.find(folder + "/" + text_at(f, "file"));
        if (it == there.end() || it->second != text_at(f, "blake3"))
          find(folder + "/" + text_at(f, "file"), "is not what dataset.json says of it");
      }
    }
  }

  void find(std::string field, std::string what) { report_.findings.push_back({std::move(field), std::move(what)}); }

  // The digests that the statement gives for this subject.
  FileDigests stated(const std::string& name) const {
    if (manifest_.contains("subject") && manifest_["subject"].is_array())
      for (const Json& s : manifest_["subject"])
        if (text_at(s, "name") == name && s.contains("digest"))
          return {text_at(s["digest"], "blake3"), text_at(s["digest"], "sha256"), 0};
    return {};
  }

  void check_subject(const std::string& name, const Json& entry) {
    const size_t before = report_.findings.size();
    const std::string kind = text_at(entry, "kind"), path = text_at(entry, "path");
    const FileDigests want = stated(name);
    std::string summary;
    if (kind == "value") {
      const FileDigests d = value_digests(entry.contains("value") ? entry["value"] : Json());
      if (d.blake3 != want.blake3 || d.sha256 != want.sha256)
        find("/predicate/subjects/" + name + "/value", "does not have the digest of subject " + name);
      summary = fmt::format("{}: {} bytes of canonical JSON", name, d.bytes);
    } else if ((kind == "file" || kind == "folder") && !is_inside(path)) {
      find("/predicate/subjects/" + name + "/path", "leaves the run's folder");
    } else if (kind == "file") {
      check_file(path, {want.blake3, want.sha256, bytes_at(entry)}, name);
      summary = fmt::format("{}: {}, {}", name, path, human_bytes(bytes_at(entry)));
    } else if (kind == "folder") {
      summary = check_folder(name, path, entry, want);
    } else {
      find("/predicate/subjects/" + name + "/kind", "is none of file, folder, value");
    }
    if (report_.findings.size() == before) report_.subjects.push_back(summary);
  }

  // Everything in a subject's folder, relative to it. A published checkpoint shares its folder with what is no part of
  // it: the card, what git and the Hub's tools keep, and provenance/.
  std::vector<std::string> entries_of(const std::string& path) const {
    if (!published_ || path != "checkpoint") {
      const std::string folder = (folder_ / place(path)).string();
      std::error_code ec;
      return fs::is_directory(folder, ec) ? list_entries(folder) : std::vector<std::string>();
    }
    std::vector<std::string> out;
    for (const std::string& f : list_entries(folder_.string())) {
      const std::string top = f.substr(0, f.find('/'));
      if (top != kPublishedFolder && top != ".cache" && top != ".git" && f != "README.md" && f != ".gitattributes")
        out.push_back(f);
    }
    return out;
  }

  // The first symbolic link on the way from the run's folder to this path; "" = none.
  std::string link_on(const std::string& path) const {
    fs::path at;
    std::error_code ec;
    for (const auto& part : fs::path(path)) {
      at /= part;
      if (fs::is_symlink(fs::symlink_status(folder_ / at, ec))) return at.generic_string();
    }
    return "";
  }

  // Files beside the subjects.
  void check_records() {
    const auto at = "/predicate/environment/files"_json_pointer;
    if (!manifest_.contains(at) || !manifest_[at].is_array()) return;
    for (const Json& f : manifest_[at]) {
      const std::string path = text_at(f, "path");
      if (!is_inside(path)) {
        find(at.to_string(), fmt::format("names {}, which is not in the run's folder", path));
        continue;
      }
      const std::string d = difference(path, {text_at(f, "blake3"), text_at(f, "sha256"), bytes_at(f)});
      if (!d.empty()) find(path, d);
    }
  }

  // Says how a file differs, or "" where it does not.
  std::string difference(const std::string& path, const FileDigests& want) const {
    const std::string at = place(path), full = (folder_ / at).string();
    // The Hub's tools keep a copy as links to files elsewhere; what is read is hashed all the same.
    std::error_code ec;
    const bool linked = published_ && fs::is_regular_file(full, ec);
    if (const std::string link = link_on(at); !link.empty() && !linked)
      return link == at ? "was replaced by a symbolic link" : fmt::format("stands behind the symbolic link {}", link);
    const auto kind = fs::symlink_status(full).type();
    if (kind == fs::file_type::not_found) return "is missing";
    if (kind != fs::file_type::regular && !linked) return "is no file any more";
    const auto other_size = [&](uint64_t bytes) {
      return fmt::format("was changed: it has {} bytes, the manifest says {}", bytes, want.bytes);
    };
    check_stop(stop_);  // one that is not read, too
    // What has another size need not be read, however long it is.
    if (const uint64_t bytes = fs::file_size(full, ec); !ec && bytes != want.bytes) return other_size(bytes);
    try {
      const FileDigests d = hash_file(full, stop_);
      if (d.blake3 == want.blake3 && d.sha256 == want.sha256 && d.bytes == want.bytes) return "";
      if (d.bytes != want.bytes) return other_size(d.bytes);
      return fmt::format("was changed: its BLAKE3 is {}…, the manifest says {}…", d.blake3.substr(0, 16),
                         want.blake3.substr(0, 16));
    } catch (const Error& e) {
      if (e.code() == Exit::kInterrupted) throw;
      return fmt::format("cannot be read: {}", e.what());
    }
  }

  void check_file(const std::string& path, const FileDigests& want, const std::string& subject) {
    const std::string d = difference(path, want);
    if (!d.empty()) find(path, fmt::format("{} (subject {})", d, subject));
  }

  std::string check_folder(const std::string& name, const std::string& path, const Json& entry,
                           const FileDigests& want) {
    const std::string at = "/predicate/subjects/" + name + "/files";
    if (!entry.contains("files") || !entry["files"].is_array()) {
      find(at, "is missing");
      return "";
    }
    std::vector<FileRecord> files;
    std::set<std::string> listed;
    for (const Json& f : entry["files"]) {
      files.push_back({text_at(f, "path"), {text_at(f, "blake3"), text_at(f, "sha256"), bytes_at(f)}});
      const std::string& p = files.back().path;
      if (!is_inside(p) || !p.starts_with(path + "/")) {
        find(at, fmt::format("names {}, which is not in {}", p, path));
        return "";
      }
      listed.insert(p);
    }
    const FileDigests d = list_digests(files);
    if (d.blake3 != want.blake3 || d.sha256 != want.sha256) find(at, "do not have the digest of subject " + name);
    if (entry.contains("merkle") &&
        entry["merkle"] != Json(merkle_root(files)))  // manifests of older versions have none
      find("/predicate/subjects/" + name + "/merkle", "is not that of the files");
    if (is_left_out(name, path)) return fmt::format("{}: not here, not checked", name);
    std::vector<std::string> differences(files.size());
    parallel_for(0, static_cast<int64_t>(files.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const FileRecord& f = files[static_cast<size_t>(i)];
        differences[static_cast<size_t>(i)] = difference(f.path, f.digests);
      }
    });
    for (size_t i = 0; i < files.size(); ++i)
      if (!differences[i].empty()) find(files[i].path, fmt::format("{} (subject {})", differences[i], name));
    try {
      for (const auto& f : entries_of(path))
        if (!listed.contains(path + "/" + f))
          find(path + "/" + f, fmt::format("is not in the manifest (subject {})", name));
    } catch (const Error& e) {
      find(path, e.what());
    }
    return fmt::format("{}: {} files, {}", name, files.size(), human_bytes(d.bytes));
  }

  fs::path folder_;
  const Json& manifest_;
  bool published_;
  StopFlag stop_;
  VerifyReport& report_;
};

// RUN/receipt.json says nothing of its own: it must follow from the manifest. It may be absent, and that of a run is
// said.
void check_receipt(const std::string& folder, const Json& manifest, const VerifyOptions& options,
                   VerifyReport& report) {
  const std::string path = folder + "/" + kReceiptName;
  std::error_code ec;
  const auto kind = (options.published ? fs::status(path, ec) : fs::symlink_status(path, ec)).type();
  if (kind == fs::file_type::not_found) {
    if (options.of_a_run) report.subjects.push_back(fmt::format("{}: not here, not checked", kReceiptName));
    return;
  }
  const auto find = [&](std::string what) { report.findings.push_back({kReceiptName, std::move(what)}); };
  if (kind != fs::file_type::regular) return find("is no file");
  config::Receipt settings;
  try {
    if (is_file(folder + "/recipe.yaml")) settings = config::load_recipe(folder + "/recipe.yaml").receipt;
  } catch (const Error&) {
    // Reported by its subject; the receipt then holds what it can.
  }
  try {
    OrderedJson want = make_receipt(manifest, settings);
    const std::string text = read_file(path);
    if (text == want.dump(2) + "\n") return;
    const OrderedJson is = parse_ordered_json(text, path);
    const size_t before = report.findings.size();
    if (!is.is_object()) return find("is no receipt");
    const auto commit = "/predicate/identities/git_commit"_json_pointer;
    if (manifest.contains(commit) && manifest[commit] != build_identity()["git_commit"]) {
      // Another version's may say less: no line of what that version did not tell.
      for (auto it = want.begin(); it != want.end();) it = is.contains(it.key()) ? std::next(it) : want.erase(it);
      if (text == want.dump(2) + "\n") return;
    }
    for (const auto& [key, value] : want.items())
      if (!is.contains(key))
        find(key + " is missing");
      else if (is[key] != value)
        find(key + " was edited: the manifest says otherwise");
    for (const auto& [key, value] : is.items())
      if (!want.contains(key)) find(key + " was added");
    if (report.findings.size() == before)
      find("was rewritten: every value holds, but spacing, spelling or order do not");
  } catch (const Error& e) {
    find(e.what());
  }
}

void check_signature(const std::string& manifest_path, std::string_view text, const Json& manifest,
                     const VerifyOptions& options, VerifyReport& report) {
  const std::string envelope = fs::path(manifest_path).replace_extension("dsse.json").string();
  const std::string name = fs::path(envelope).filename().string();
  const Json signer = manifest["predicate"].value("signer", Json());
  const bool there = is_file(envelope);
  if (options.trusted_key && !signer.is_string() && !there) {
    report.findings.push_back(
        {"/predicate/signer",
         fmt::format("is absent: the manifest is not signed, and {} was asked for", *options.trusted_key)});
    return;
  }
  if (!signer.is_string() && !there) return;
  if (!there) {
    report.findings.push_back({name, "is missing: the manifest says that it is signed"});
    return;
  }
  const std::string key = options.trusted_key  ? *options.trusted_key
                          : signer.is_string() ? signer.get<std::string>()
                                               : "";
  if (key.empty()) {
    report.findings.push_back({name, "is there, but the manifest names no signer"});
    return;
  }
  const std::string why = check_seal(read_file(envelope), text, key);
  if (why.empty())
    report.signer = key;
  else
    report.findings.push_back({name, why});
}

// The first fields in which two canonical recipes differ.
void compare_recipes(const Json& was, const Json& is, const std::string& at, std::vector<std::string>& out) {
  if (was == is || out.size() > 8) return;
  if (was.is_object() && is.is_object()) {
    for (const auto& [key, value] : was.items())
      compare_recipes(value, is.contains(key) ? is[key] : Json(), at.empty() ? key : at + "." + key, out);
    for (const auto& [key, value] : is.items())
      if (!was.contains(key)) compare_recipes(Json(), value, at.empty() ? key : at + "." + key, out);
    return;
  }
  out.push_back(
      fmt::format("{}: the run had {}, this recipe has {}", at, was.dump().substr(0, 60), is.dump().substr(0, 60)));
}

void check_recipe_of_run(const std::string& folder, const Json& manifest, const config::Recipe& recipe,
                         VerifyReport& report) {
  const auto at = "/predicate/run/recipe_hash"_json_pointer;
  const std::string stored = manifest.contains(at) && manifest[at].is_string() ? manifest[at].get<std::string>() : "";
  if (stored == config::recipe_hash(recipe)) return;
  // Name the fields, from the run's own copy of its recipe where that is whole.
  std::vector<std::string> differences;
  try {
    const std::string path = folder + "/recipe.yaml";
    const config::Recipe own = is_file(path) ? config::load_recipe(path) : config::Recipe();
    if (config::recipe_hash(own) == stored)
      compare_recipes(Json::parse(config::canonical(own)), Json::parse(config::canonical(recipe)), "", differences);
  } catch (const Error&) {
    // Reported by its subject already; the hash alone speaks here.
  }
  if (differences.empty()) differences.push_back("is another recipe's hash: the manifest is not of this recipe");
  for (const auto& d : differences) report.findings.push_back({"recipe", d});
}

}  // namespace

std::string manifest_of(const std::string& folder) {
  const std::string own = folder + "/manifest.json", published = folder + "/" + kPublishedFolder + "/manifest.json";
  return !is_there(own) && is_there(published) ? published : own;
}

VerifyReport verify(const std::string& manifest_path, const VerifyOptions& options) {
  const fs::path parent = fs::path(manifest_path).parent_path(), here = parent.empty() ? "." : parent;
  // "provenance" itself may be the working directory.
  const fs::path named = fs::absolute(manifest_path).lexically_normal().parent_path();
  VerifyOptions o = options;
  o.published = named.filename() == kPublishedFolder && !is_there(here / "checkpoint");
  return verify_text(read_file(manifest_path), manifest_path, (o.published ? named.parent_path() : here).string(), o);
}

VerifyReport verify_text(std::string_view text, const std::string& manifest_path, const std::string& folder,
                         const VerifyOptions& options) {
  Json manifest;
  OrderedJson ordered;
  try {
    manifest = parse_json(text, manifest_path);
    ordered = parse_ordered_json(text, manifest_path);
  } catch (const Error& e) {
    fail_verify("{}", e.what());
  }
  if (manifest.is_object() && manifest.contains("manifest") && manifest.contains("subjects"))
    fail_verify("{}: this is a receipt, which says what a manifest holds: give the run's folder or its manifest.json",
                manifest_path);
  if (!manifest.is_object() || text_at(manifest, "_type") != "https://in-toto.io/Statement/v1")
    fail_verify("{}: /_type is not in-toto's Statement v1: this is no manifest of a run", manifest_path);
  if (text_at(manifest, "predicateType") != kPredicateType || !manifest.contains("predicate") ||
      !manifest["predicate"].is_object())
    fail_verify("{}: /predicateType is not {}: this is no manifest of a run", manifest_path, kPredicateType);

  VerifyReport report;
  const auto digest_at = "/predicate/integrity/blake3"_json_pointer;
  if (manifest.contains(digest_at) && manifest[digest_at].is_string()) report.manifest_digest = manifest[digest_at];
  report.findings = check_integrity(manifest);
  if (!folder.empty()) {
    const std::string records = options.published ? folder + "/" + kPublishedFolder : folder;
    Verifier verifier(folder, manifest, options, report);
    verifier.check_subjects();
    if (report.ok()) verifier.check_copy();
    if (options.of_a_run && report.ok()) verifier.check_agreement();
    check_receipt(records, manifest, options, report);
    check_signature(records + "/" + fs::path(manifest_path).filename().string(), text, manifest, options, report);
  }
  if (options.recipe)
    check_recipe_of_run(options.published ? folder + "/" + kPublishedFolder : folder, manifest, *options.recipe,
                        report);
  if (report.ok() && manifest_text(ordered) != text)
    report.findings.push_back(
        {"manifest.json", "was rewritten: every value holds, but spacing, spelling or order do not"});
  return report;
}

VerifyReport verify_statement(const std::string& manifest_path, const VerifyOptions& options) {
  const std::string text = read_file(manifest_path);
  VerifyReport report = verify_text(text, manifest_path, "", options);
  if (options.trusted_key || is_file(fs::path(manifest_path).replace_extension("dsse.json")))
    check_signature(manifest_path, text, parse_json(text, manifest_path), options, report);
  return report;
}

void require_verified(const VerifyReport& report, const std::string& manifest_path) {
  if (report.ok()) return;
  const Finding& f = report.findings.front();
  if (report.findings.size() == 1) fail_verify("{}: {}: {}", manifest_path, f.field, f.what);
  fail_verify("{}: {}: {} (and {} more)", manifest_path, f.field, f.what, report.findings.size() - 1);
}

}  // namespace mxt::provenance
