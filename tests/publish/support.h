// A folder of the test's own, and a finished run in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "base/json.h"
#include "config/recipe.h"
#include "provenance/manifest.h"

namespace mxt::publish {

class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = testing::TempDir() + "mxt_publish_" + std::to_string(getpid()) + "_" + std::to_string(count++);
    fs::remove_all(path_);
    make_folders(path_);
  }
  ~TempFolder() {
    std::error_code ec;
    fs::remove_all(path_, ec);
  }
  TempFolder(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A run of a recipe that ends with these lines of its publish section, signed where a key is given.
class FinishedRun {
 public:
  explicit FinishedRun(const std::string& publish, const std::string& more = "",
                       const std::optional<provenance::SigningKey>& key = {}) {
    const std::string recipe =
        "meta: {project: p, run_name: tiny, license: MIT, description: \"A test: nothing *more*\"}\n"
        "model: {name: org/base}\nhardware: {name: cpu}\ndata: {source: synth}\n" +
        more + publish;
    put("recipe.yaml", recipe);
    put("plan.json", "{\"choices\":[1,2]}\n");
    put("dataset/dataset.json", "{\"train\":{\"documents\":3,\"tokens\":40,\"targets\":12,\"files\":[]}}\n");
    put("checkpoint/adapter_model.safetensors", std::string(300'000, 'w'));
    put("checkpoint/adapter_config.json", "{\"r\":16}");
    put("eval/after.json", "{\"exact\":2}");
    put("metrics.jsonl", "{\"step\":1}\n");
    put("not_of_the_run.txt", "private");
    provenance::ManifestBuilder b(path());
    b.set_recipe(config::parse_recipe(recipe, "recipe.yaml"));
    b.add_file("recipe", "recipe.yaml");
    b.add_file("plan", "plan.json");
    b.add_value("plan_choices", {{"choices", {1, 2}}});
    for (const char* dir : {"dataset", "checkpoint", "eval"}) b.add_folder(dir, dir);
    b.set("identities", {{"version", "0.1.0"}, {"device", {{"name", "cpu"}}}});
    b.set("results", {{"eval", {{"exact_match", {{"before", 1}, {"after", 3}, {"rows", 4}}}}}});
    b.set("environment", {{"finished", "2026-05-04T00:00:00Z"}, {"run_seconds", 12.5}});
    b.add_record("metrics.jsonl");
    b.write(key);
  }
  std::string path() const { return folder_.path() + "/run"; }
  std::string place() const { return folder_.path(); }
  void put(const std::string& name, std::string_view bytes) const {
    const std::string file = path() + "/" + name;
    make_folders(fs::path(file).parent_path().string());
    write_file_atomic(file, bytes);
  }

 private:
  TempFolder folder_;
};

}  // namespace mxt::publish
