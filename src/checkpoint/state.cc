#include "checkpoint/state.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace mxt::checkpoint {
namespace {

// What a resume needs of a parameter: its arrays but the gradient.
struct Item {
  std::string name;  // in the file
  graph::ParamId param;
  runtime::StateArray array;
};

std::vector<Item> items_of(const graph::Graph& g, const runtime::ParamStore& params) {
  std::vector<Item> out;
  for (size_t i = 0; i < g.params.size(); ++i) {
    const auto id = static_cast<graph::ParamId>(i);
    for (const runtime::StateArray& a : params.arrays(id))
      if (a.name != "grad") out.push_back({g.params[i].name + "." + a.name, id, a});
  }
  return out;
}

}  // namespace

std::string step_folder(const std::string& checkpoints, int64_t step) {
  return fmt::format("{}/step-{}", checkpoints, step);
}

std::vector<int64_t> saved_steps(const std::string& checkpoints) {
  std::vector<int64_t> out;
  std::error_code ec;
  for (auto it = fs::directory_iterator(checkpoints, ec); !ec && it != fs::directory_iterator(); it.increment(ec)) {
    const std::string name = it->path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    const auto r = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (r.ec == std::errc() && r.ptr == name.data() + name.size() && fs::exists(it->path() / "state.json"))
      out.push_back(step);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void remove_step(const std::string& checkpoints, int64_t step) {
  const std::string folder = step_folder(checkpoints, step);
  std::error_code ec;
  fs::remove(folder + "/state.json", ec);  // without it no step is saved here
  fs::remove_all(folder, ec);
}

void remove_partial_steps(const std::string& checkpoints) {
  std::vector<fs::path> partial;
  std::error_code ec;
  for (auto it = fs::directory_iterator(checkpoints, ec); !ec && it != fs::directory_iterator(); it.increment(ec))
    if (it->path().filename().string().starts_with("step-") &&
        (it->path().extension() == ".tmp" || !fs::exists(it->path() / "state.json")))
      partial.push_back(it->path());
  for (const fs::path& folder : partial) fs::remove_all(folder, ec);
}

void keep_steps(const std::string& checkpoints, int64_t n, int64_t best_step) {
  auto saved = saved_steps(checkpoints);
  std::erase(saved, best_step);
  const auto keep = static_cast<size_t>(std::max<int64_t>(1, n));
  for (size_t i = 0; i + keep < saved.size(); ++i) remove_step(checkpoints, saved[i]);
  remove_partial_steps(checkpoints);
}

void save_state(const std::string& folder, const graph::Graph& g, const runtime::ParamStore& params,
                const TrainState& state) {
  const std::string temp = folder + ".tmp";
  std::error_code ec;
  fs::remove_all(temp, ec);
  make_folders(temp);
  std::vector<formats::TensorSpec> specs;
  std::vector<Item> items = items_of(g, params);
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.name < b.name; });
  for (const Item& i : items) specs.push_back({i.name, i.array.type, {i.array.count}});
  {
    formats::SafetensorsWriter w(temp + "/state.safetensors", specs);
    for (const Item& i : items) {
      const auto array = params.read_array(i.param, i.array.name);
      w.append_tensor(i.name, array.data, array.bytes);
    }
    w.commit();
  }
  OrderedJson j;
  j["step"] = state.step;
  j["tokens"] = state.tokens;
  j["best_eval"] = state.best_eval;
  j["best_step"] = state.best_step;
  j["recipe"] = state.recipe;
  j["plan_choices"] = state.plan_choices;
  j["dataset"] = state.dataset;
  j["base"] = state.base;
  j["device"] = state.device;
  if (!state.method.empty()) j["method"] = state.method;
  j["state"] = hash_file(temp + "/state.safetensors").blake3;
  write_file_atomic(temp + "/state.json", j.dump(2) + "\n");
  replace_folder(temp, folder);
}

namespace {

// A saved step's state.json; `digest` is the tensors'.
TrainState read_state(const std::string& folder, std::string* digest) {
  const std::string path = folder + "/state.json";
  const Json j = read_json_file(path);
  TrainState s;
  try {
    s.step = j.at("step");
    s.tokens = j.at("tokens");
    s.best_eval = j.at("best_eval");
    s.best_step = j.at("best_step");
    s.method = j.value("method", "");
    s.recipe = j.at("recipe");
    s.plan_choices = j.at("plan_choices");
    s.dataset = j.at("dataset");
    s.base = j.at("base");
    *digest = j.at("state");
    s.device = j.value("device", std::string());
  } catch (const Json::exception& e) {
    fail_input("{}: not a trainer's state: {}", path, e.what());
  }
  if (fs::path(folder).filename() != fs::path(step_folder("", s.step)).filename())
    fail_input("{}: is the state of step {}, which this folder is not of: resume from another step, or begin anew",
               path, s.step);
  return s;
}

std::string other_than(const TrainState& s, const TrainState& expected) {
  if (s.recipe != expected.recipe) return "recipe";
  if ((s.device.empty() || s.device == expected.device) && s.plan_choices != expected.plan_choices) return "plan";
  if (s.dataset != expected.dataset) return "dataset";
  if (s.base != expected.base) return "base model or init_adapter";
  return "";
}

}  // namespace

std::string other_than(const std::string& folder, const TrainState& expected) {
  std::string digest;
  return other_than(read_state(folder, &digest), expected);
}

TrainState load_state(const std::string& folder, const graph::Graph& g, runtime::ParamStore& params,
                      const TrainState& expected) {
  std::string digest;
  TrainState s = read_state(folder, &digest);
  if (const std::string other = other_than(s, expected); !other.empty())
    fail_input("{}: was saved by a run with another {}: resume with the same one, or choose another --out", folder,
               other);
  if (hash_file(folder + "/state.safetensors").blake3 != digest)
    fail_verify("{}/state.safetensors: is not as it was saved: resume from another step, or begin anew", folder);
  const formats::Safetensors file = formats::Safetensors::open(folder + "/state.safetensors");
  for (const Item& i : items_of(g, params)) {
    const auto& t = file.at(i.name);
    if (t.type != i.array.type || t.count() != i.array.count)
      fail_input("{}: tensor {} does not fit this run", folder, i.name);
    const auto array = params.write_array(i.param, i.array.name);
    std::memcpy(array.data, file.bytes(t).data(), t.bytes);
    file.drop_pages();  // read once: they do not count as this program's memory
  }
  for (size_t i = 0; i < g.params.size(); ++i) params.sync_weights(static_cast<graph::ParamId>(i));
  s.device = expected.device, s.plan_choices = expected.plan_choices;  // what goes on is this device's
  return s;
}

}  // namespace mxt::checkpoint
