#include "publish/run.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "provenance/manifest.h"
#include "publish/hub/card.h"

namespace mxt::publish {
namespace {

// The files that the manifest names: nothing else of the folder is sent, whatever lies there.
void add_named_files(const Json& manifest, const std::string& folder, bool copy, std::vector<TreeEntry>& out) {
  const auto add = [&](const std::string& path) {
    const std::string published = provenance::published_path(path);
    out.push_back({TreeEntry::Kind::kFile, published, folder + "/" + (copy ? published : path)});
  };
  const Json& predicate = manifest.at("predicate");
  for (const auto& [name, subject] : predicate.at("subjects").items()) {
    if (name == provenance::kLeftOutSubject) continue;
    const std::string kind = subject.at("kind");
    if (kind == "file") add(subject.at("path"));
    if (kind == "folder")
      for (const Json& f : subject.at("files")) add(f.at("path"));
  }
  if (const auto at = "/predicate/environment/files"_json_pointer; manifest.contains(at))
    for (const Json& f : manifest.at(at)) add(f.at("path"));
  for (const char* name : {"manifest.json", "manifest.dsse.json", provenance::kReceiptName})
    if (fs::exists(folder + "/" + (copy ? provenance::published_path(name) : name))) add(name);
}

void sort_files(std::vector<TreeEntry>& files) {
  std::sort(files.begin(), files.end(), [](const TreeEntry& a, const TreeEntry& b) { return a.path < b.path; });
}

}  // namespace

Run open_run(const std::string& given, StopFlag stop) {
  Run run;
  run.folder = given;
  while (run.folder.size() > 1 && run.folder.ends_with('/')) run.folder.pop_back();
  const std::string path = run.folder + "/manifest.json";
  if (!fs::is_regular_file(path))
    fail_input("{}: holds no manifest.json: finish the run first (mindxtrain run RECIPE --out {})", run.folder,
               run.folder);
  provenance::require_verified(provenance::verify(path, {.of_a_run = true, .stop = stop}), path);
  run.manifest = read_json_file(path);
  run.manifest_digest = run.manifest.at("/predicate/integrity/blake3"_json_pointer).get<std::string>();
  run.recipe = config::load_recipe(run.folder + "/recipe.yaml");
  add_named_files(run.manifest, run.folder, false, run.files);
  run.files.push_back({TreeEntry::Kind::kText, "README.md", model_card(run)});
  sort_files(run.files);
  for (size_t i = 1; i < run.files.size(); ++i)
    if (run.files[i].path == run.files[i - 1].path)
      fail_input("{}: two files of the run would be published as {}: rename the checkpoint's", run.folder,
                 run.files[i].path);
  return run;
}

std::string manifest_sha256(const Run& run) { return sha256_hex(read_file(run.folder + "/manifest.json")); }

std::vector<TreeEntry> published_files(const std::string& manifest_path, StopFlag stop) {
  const fs::path here = fs::absolute(manifest_path).lexically_normal().parent_path();
  if (here.filename() != provenance::kPublishedFolder || fs::exists(here / "checkpoint"))
    return open_run(here.string(), stop).files;
  const std::string folder = here.parent_path().string();
  std::vector<TreeEntry> files;
  add_named_files(read_json_file(manifest_path), folder, true, files);
  if (fs::exists(folder + "/README.md")) files.push_back({TreeEntry::Kind::kFile, "README.md", folder + "/README.md"});
  sort_files(files);
  return files;
}

}  // namespace mxt::publish
