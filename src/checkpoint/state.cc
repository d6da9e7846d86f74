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

// How to go on from a step whose files are damaged.
std::string way_on(const std::string& folder) {
  return fmt::format("remove {} to go on from what was saved before it, or choose another --out", folder);
}

// The members of a saved step's state.json, each of one type.
class StateFile {
 public:
  explicit StateFile(const std::string& folder) : folder_(folder), path_(folder + "/state.json") {
    try {
      json_ = read_json_file(path_);
    } catch (const Error& e) {
      if (e.code() != Exit::kBadInput) throw;
      fail_input("{}: {}", e.what(), way_on(folder_));
    }
    if (!json_.is_object()) wrong("it is no object");
  }
  [[noreturn]] void wrong(std::string_view what) const {
    fail_input("{}: is no trainer's state ({}): {}", path_, what, way_on(folder_));
  }
  int64_t whole(const char* key) const {
    if (!at(key).is_number_integer()) wrong(fmt::format("\"{}\" is no whole number", key));
    return at(key).get<int64_t>();
  }
  double number(const char* key) const {
    if (!at(key).is_number()) wrong(fmt::format("\"{}\" is no number", key));
    return at(key).get<double>();
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) wrong(fmt::format("\"{}\" is no text", key));
    return at(key).get<std::string>();
  }
  std::string text_if_there(const char* key) const { return json_.contains(key) ? text(key) : ""; }

 private:
  const Json& at(const char* key) const {
    if (!json_.contains(key)) wrong(fmt::format("\"{}\" is missing", key));
    return json_.at(key);
  }
  std::string folder_, path_;
  Json json_;
};

// `digest` is the tensors'.
TrainState read_state(const std::string& folder, std::string* digest) {
  const StateFile file(folder);
  TrainState s;
  s.step = file.whole("step");
  s.tokens = file.whole("tokens");
  s.best_eval = file.number("best_eval");
  s.best_step = file.whole("best_step");
  s.method = file.text_if_there("method");
  s.recipe = file.text("recipe");
  s.plan_choices = file.text("plan_choices");
  s.dataset = file.text("dataset");
  s.base = file.text("base");
  *digest = file.text("state");
  s.device = file.text_if_there("device");
  if (fs::path(folder).filename() != fs::path(step_folder("", s.step)).filename())
    file.wrong(fmt::format("it is of step {}", s.step));
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
  const std::string tensors = folder + "/state.safetensors";
  if (!fs::is_regular_file(tensors) || hash_file(tensors).blake3 != digest)
    fail_verify("{}: is not as it was saved: {}", tensors, way_on(folder));
  const formats::Safetensors file = formats::Safetensors::open(tensors);
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
