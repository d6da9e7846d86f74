#include <dlfcn.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "answers.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "data/source/duckdb_api.h"
#include "device/memory.h"
#include "eval/code/sandbox.h"
#include "kernels/api.h"
#include "kernels/backend.h"
#include "machine.h"
#include "verbs.h"

namespace mxt::app {
namespace {

bool can_open(const char* library) {
  void* h = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (h) dlclose(h);
  return h != nullptr;
}

}  // namespace

OrderedJson doctor_answer() {
  const auto f = kernels::cpu_features();
  OrderedJson j;
  j["cpu"] = {{"model", f.model},          {"cores", std::thread::hardware_concurrency()},
              {"vector", f.vector_target}, {"avx512_bf16", f.avx512_bf16},
              {"amx_bf16", f.amx_bf16},    {"onednn", f.onednn_version},
              {"onednn_isa", f.onednn_isa}};
  j["memory_bytes"] = {{"total", device::total_host_bytes()}, {"available", device::available_host_bytes()}};
  j["disk_free_bytes"] = free_disk_bytes(".");
  const bool driver = can_open("libcuda.so.1");
  j["nvidia_driver"] = driver;
  j["rocm"] = can_open("libamdhip64.so");
  OrderedJson missing = OrderedJson::array();
  // What is opened at run time: there, or missing with the opener's own words.
  auto look = [&](const char* key, const char* what, auto&& open) {
    try {
      j[key] = open();
    } catch (const Error& e) {
      j[key] = nullptr;
      missing.push_back({{"what", what}, {"remedy", e.what()}});
    }
  };
  look("duckdb", "DuckDB, for Parquet and data.sql", [] { return data::duckdb::version(); });
  look("python", "python3, for the programs of HumanEval", [] { return eval::find_python(); });
  if (const std::string slow = slow_processor(); !slow.empty())
    missing.push_back({{"what", "AVX2"}, {"remedy", slow}});
  else if (!f.avx512_bf16 && !f.amx_bf16 && !f.vector_target.ends_with("_BF16"))
    missing.push_back({{"what", "bf16 products in the processor"},
                       {"remedy",
                        "none needed: bfloat16 recipes run with fp32 products, slower; train.precision float32 is the "
                        "direct choice"}});
  if (!driver)
    missing.push_back({{"what", "an NVIDIA driver"},
                       {"remedy", "recipes for NVIDIA cards need one; set hardware.name: cpu to train here"}});
  j["cuda"] = nullptr;
  if (driver)
    look("cuda", "training on an NVIDIA GPU", [] { return kernels::cuda_backend().device->properties().name; });
  j["missing"] = missing;
  return j;
}

void add_doctor(CLI::App& app) {
  auto* c = app.add_subcommand(
      "doctor", "what this machine has, what is missing and how to get it\nexample: mindxtrain doctor --json");
  auto json = std::make_shared<bool>(false);
  c->add_flag("--json", *json, "machine-readable answer");
  c->callback([json] {
    const OrderedJson j = doctor_answer();
    if (*json) {
      std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
      return;
    }
    const OrderedJson& cpu = j["cpu"];
    auto flag = [&](const char* key, const char* text) { return cpu[key].get<bool>() ? text : ""; };
    auto text = [&](const char* key) { return cpu[key].get<std::string>(); };
    std::printf("processor   %s, %u cores, %s%s%s, oneDNN %s (%s)\n", text("model").c_str(),
                cpu["cores"].get<unsigned>(), text("vector").c_str(), flag("avx512_bf16", ", AVX-512 bf16"),
                flag("amx_bf16", ", AMX"), text("onednn").c_str(), text("onednn_isa").c_str());
    std::printf("memory      %s, %s free\n", human_bytes(j["memory_bytes"]["total"].get<uint64_t>()).c_str(),
                human_bytes(j["memory_bytes"]["available"].get<uint64_t>()).c_str());
    std::printf("disk        %s free here\n", human_bytes(j["disk_free_bytes"].get<uint64_t>()).c_str());
    auto there = [&](const char* name, const char* key) {
      if (!j[key].is_null()) std::printf("%-11s %s\n", name, j[key].get<std::string>().c_str());
    };
    there("gpu", "cuda");
    there("duckdb", "duckdb");
    there("python", "python");
    for (const auto& m : j["missing"])
      std::printf("missing     %s: %s\n", m["what"].get<std::string>().c_str(), m["remedy"].get<std::string>().c_str());
  });
}

}  // namespace mxt::app
