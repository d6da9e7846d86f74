#include "eval/task/index.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "eval/task/builtin.h"
#include "eval/task/yaml.h"

namespace mxt::eval {
namespace {

const std::set<std::string> kGroupKeys = {"group", "group_alias", "task", "aggregate_metric_list", "metadata"};

std::vector<std::string> strings(const OrderedJson& j) {
  std::vector<std::string> out;
  if (j.is_string()) out.push_back(j);
  if (j.is_array())
    for (const OrderedJson& s : j)
      if (s.is_string()) out.push_back(s);
  return out;
}

std::vector<std::string> yaml_files(const std::string& folder) {
  std::vector<std::string> out;
  for (const std::string& f : list_files(folder))
    if (f.ends_with(".yaml") && f.find("__pycache__") == std::string::npos) out.push_back(folder + "/" + f);
  return out;
}

}  // namespace

TaskIndex::TaskIndex(const std::vector<std::string>& folders) {
  for (const BuiltinTask& b : builtin_tasks())
    for (OrderedJson& t : parse_builtin_tasks(std::string(b.text), std::string(b.name)))
      add(std::move(t), "", entries_);
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    if (!fs::is_directory(folder)) fail_input("{}: no such folder of tasks", folder);
    std::map<std::string, Entry> here;
    for (const std::string& path : yaml_files(folder)) {
      try {
        add(load_task_yaml(path), path, here);
      } catch (const Error& e) {
        // A folder may hold templates and other YAML; why one was passed over is said where it is asked for.
        unread_.emplace(fs::path(path).stem().string(), e.what());
      }
    }
    for (auto& [name, entry] : here) entries_[name] = std::move(entry);
  }
  for (auto& [name, entry] : entries_) {
    std::sort(entry.tasks.begin(), entry.tasks.end());
    entry.tasks.erase(std::unique(entry.tasks.begin(), entry.tasks.end()), entry.tasks.end());
  }
}

void TaskIndex::add(OrderedJson config, const std::string& path, std::map<std::string, Entry>& to) const {
  Entry e;
  e.path = path;
  std::string name;
  if (config.contains("class")) {
    e.kind = Entry::Kind::kPython;
    name = config.value("task", "");
  } else if (config.contains("group") && config["group"].is_string()) {
    e.kind = Entry::Kind::kGroup;
    name = config["group"];
  } else if (config.contains("task") && config["task"].is_string()) {
    name = config["task"];
  }
  if (name.empty()) return;
  const std::vector<std::string> tags = strings(config.value("tag", OrderedJson()));
  e.config = std::move(config);
  if (!to.emplace(name, std::move(e)).second) return log::debug("{}: the name {} is taken already", path, name);
  for (const std::string& tag : tags) {
    Entry& t = to[tag];
    if (t.config.is_null() && t.tasks.empty()) t.kind = Entry::Kind::kTag;
    t.tasks.push_back(name);
  }
}

Selection TaskIndex::select(const std::vector<std::string>& names) const {
  Selection out;
  for (const std::string& name : names) {
    const auto it = entries_.find(name);
    if (it != entries_.end()) {
      build(it->second, name, OrderedJson::object(), out, nullptr);
      continue;
    }
    if (name.ends_with(".yaml") && fs::exists(name)) {
      Entry e;
      e.config = load_task_yaml(name);
      e.path = name;
      e.kind = e.config.contains("class")   ? Entry::Kind::kPython
               : e.config.contains("group") ? Entry::Kind::kGroup
                                            : Entry::Kind::kTask;
      build(e, e.config.value(e.kind == Entry::Kind::kGroup ? "group" : "task", name), OrderedJson::object(), out,
            nullptr);
      continue;
    }
    if (const auto it = unread_.find(name); it != unread_.end()) fail_input("{}", it->second);
    std::vector<std::string> known;
    for (const auto& [k, v] : entries_) known.push_back(k);
    const std::string near = nearest(name, known);
    fail_input("no task is named {}{}; give the folder of its YAML with --task-path", name,
               near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
  }
  std::set<std::string> seen;
  std::vector<OrderedJson> once;
  for (OrderedJson& t : out.tasks)
    if (seen.insert(t["task"]).second) once.push_back(std::move(t));
  out.tasks = std::move(once);
  return out;
}

void TaskIndex::build(const Entry& e, const std::string& name, const OrderedJson& overrides, Selection& out,
                      Group* parent) const {
  switch (e.kind) {
    case Entry::Kind::kPython:
      fail_missing("{}: the task {} is a Python class; tasks here are YAML", e.path, name);
    case Entry::Kind::kGroup:
      return build_group(name, e.config, overrides, out, parent);
    case Entry::Kind::kTag:
      for (const std::string& t : e.tasks) build(entries_.at(t), t, overrides, out, parent);
      return;
    case Entry::Kind::kTask:
      return build_task(e.config, e.path, overrides, out, parent);
  }
}

void TaskIndex::build_task(OrderedJson config, const std::string& path, const OrderedJson& overrides, Selection& out,
                           Group* parent) const {
  for (const char* key : {"tag", "group", "task_list"}) config.erase(key);
  for (const auto& [k, v] : overrides.items()) config[k] = v;
  if (!config.contains("metadata") || config["metadata"].is_null()) config["metadata"] = OrderedJson::object();
  config["metadata"]["config_source"] = path.empty() ? "built in" : path;
  const std::string name = config["task"];
  if (parent) {
    parent->children.push_back(name);
    parent->leaves.push_back(name);
  }
  out.tasks.push_back(std::move(config));
}

void TaskIndex::build_group(const std::string& name, const OrderedJson& config, const OrderedJson& overrides,
                            Selection& out, Group* parent) const {
  if (out.groups.size() > 10'000) fail_input("the group {} contains itself", name);
  static thread_local int depth = 0;
  struct Depth {
    Depth() { ++depth; }
    ~Depth() { --depth; }
  } guard;
  if (depth > 32) fail_input("the group {} contains itself", name);
  Group g;
  g.name = name;
  g.alias = config.value("group_alias", name);
  if (config.contains("metadata") && config["metadata"].is_object() && config["metadata"].contains("version")) {
    const OrderedJson& v = config["metadata"]["version"];
    g.version = v.is_string() ? v.get<std::string>() : v.dump();
  }
  OrderedJson aggregates = config.value("aggregate_metric_list", OrderedJson());
  if (aggregates.is_object()) aggregates = OrderedJson::array({aggregates});
  if (aggregates.is_array())
    for (const OrderedJson& a : aggregates) {
      if (!a.is_object() || !a.contains("metric"))
        fail_input("group {}: an entry of aggregate_metric_list names a metric", name);
      if (a.contains("aggregation") && a["aggregation"] != "mean")
        fail_input("group {}: aggregation of a group is mean, not {}", name, a["aggregation"].dump());
      g.aggregates.push_back({a["metric"], strings(a.value("filter_list", OrderedJson())),
                              !a.contains("weight_by_size") || a["weight_by_size"] != false});
    }
  OrderedJson merged = OrderedJson::object();
  for (const auto& [k, v] : config.items())
    if (!kGroupKeys.contains(k) && k != "tag") merged[k] = v;
  merged.update(overrides);
  merged.erase("task");
  OrderedJson members = config.value("task", OrderedJson::array());
  if (members.is_string()) members = OrderedJson::array({members});
  for (const OrderedJson& m : members) {
    OrderedJson with = merged;
    std::string child;
    if (m.is_string()) {
      child = m;
    } else if (m.is_object() && m.contains("group")) {
      child = m["group"];
      if (!entries_.contains(child)) {
        build_group(name + "::" + child, m, merged, out, &g);
        continue;
      }
      for (const auto& [k, v] : m.items())
        if (k != "group") with[k] = v;
    } else if (m.is_object() && m.contains("task") && m["task"].is_string()) {
      child = m["task"];
      for (const auto& [k, v] : m.items())
        if (k != "task") with[k] = v;
    } else {
      fail_input("group {}: a member is a name, or a map with `task` or `group`", name);
    }
    const auto it = entries_.find(child);
    if (it != entries_.end()) {
      build(it->second, child, with, out, &g);
    } else if (m.is_object()) {
      OrderedJson inline_task = with;
      inline_task["task"] = name + "::" + child;
      build_task(inline_task, "", OrderedJson::object(), out, &g);
    } else {
      fail_input("group {}: no task is named {}", name, child);
    }
  }
  if (parent) {
    parent->children.push_back(name);
    parent->leaves.insert(parent->leaves.end(), g.leaves.begin(), g.leaves.end());
  }
  out.groups.push_back(std::move(g));
}

}  // namespace mxt::eval
