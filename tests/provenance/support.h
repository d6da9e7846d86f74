// A finished run in a temporary folder, with every subject of a manifest.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "config/recipe.h"
#include "provenance/identity.h"
#include "provenance/manifest.h"

namespace mxt::provenance {

class RunFolder {
 public:
  // `commit`: of the program that writes the manifest; null = this one.
  explicit RunFolder(Json commit = {})
      : commit_(std::move(commit)),
        path_(fs::temp_directory_path() /
              ("mxt_provenance_" + std::to_string(getpid()) + "_" + std::to_string(count_++))) {
    fs::remove_all(path_);
    for (const char* dir : {"checkpoint", "dataset", "eval", "quantized"}) make_folders(file(dir));
    put("recipe.yaml", kRecipe);
    put("plan.json", "{\"choices\":[1,2]}\n");
    put("dataset/manifest.json", "{\"rows\":3}\n");
    put("dataset/shard-00000.bin", std::string(3000, 'd'));
    put("checkpoint/adapter_model.safetensors", std::string(70'000, 'w'));
    put("checkpoint/adapter_config.json", "{\"r\":16}");
    put("eval/results.json", "{\"acc\":0.5}");
    put("quantized/model.gguf", "GGUF");
  }
  ~RunFolder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  void put(const std::string& name, std::string_view bytes) const {  // no fsync: thousands of times a test
    std::ofstream(file(name), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string manifest() const { return file("manifest.json"); }

  std::string write(const std::optional<SigningKey>& key = {}) const {
    ManifestBuilder b(path_.string());
    b.set_recipe(config::parse_recipe(kRecipe, "recipe.yaml"));
    b.add_file("recipe", "recipe.yaml");
    b.add_file("plan", "plan.json");
    b.add_value("plan_choices", {{"device", "cpu"}, {"choices", {1, 2}}});
    for (const char* dir : {"dataset", "checkpoint", "eval", "quantized"}) b.add_folder(dir, dir);
    Json identities = build_identity();
    if (!commit_.is_null()) identities["git_commit"] = commit_;
    identities["device"] = {{"name", "cpu"}, {"gfx_arch", "none"}};
    identities["libraries"] = {{"onednn", "2.6.3"}};
    identities["container_digest"] = nullptr;
    b.set("identities", identities);
    b.set("results", {{"eval", {{"tool_calls", {{"exact", 0.96}}}}}, {"final_loss", 0.25}});
    b.set("energy", {{"kwh", 0.125}, {"method", "rapl"}});
    b.set("pointers", {{"hf", nullptr}, {"notes", Json::array()}});
    b.set("environment", {{"started", "2026-05-04T00:00:00Z"}, {"seconds", 12.5}, {"host", "a"}, {"cost_usd", 0.0}});
    return b.write(key);
  }

  static constexpr const char* kRecipe =
      "meta: {project: p, run_name: r}\nmodel: {name: m}\nhardware: {name: cpu}\ndata: {source: synth}\n";

 private:
  static inline int count_ = 0;
  Json commit_;
  fs::path path_;
};

}  // namespace mxt::provenance
