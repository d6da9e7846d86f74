// Tasks, groups and tags by name: the files below some folders, and the tasks that are in the binary (recipes/tasks).
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::eval {

// A group's scores are its tasks' scores, averaged as it says.
struct Group {
  struct Aggregate {
    std::string metric;
    std::vector<std::string> filters;  // empty: every filter that the tasks have
    bool weight_by_size = true;
  };
  std::string name, alias;
  std::vector<Aggregate> aggregates;
  std::vector<std::string> children;  // names of tasks and groups
  std::vector<std::string> leaves;    // names of all tasks below
  OrderedJson version = "N/A";
};

struct Selection {
  std::vector<OrderedJson> tasks;  // configurations, each with "task"
  std::vector<Group> groups;       // children before parents
};

class TaskIndex {
 public:
  // Later folders win over earlier ones and over what is in the binary; "" is passed over.
  explicit TaskIndex(const std::vector<std::string>& folders);

  // The tasks that `names` stand for: tasks, groups, tags or paths of YAML files. Errors (kBadInput): an unknown name,
  // with the nearest.
  Selection select(const std::vector<std::string>& names) const;

 private:
  struct Entry {
    enum class Kind { kTask, kGroup, kTag, kPython } kind = Kind::kTask;
    OrderedJson config;
    std::string path;                // "" in the binary
    std::vector<std::string> tasks;  // of a tag
  };
  void add(OrderedJson config, const std::string& path, std::map<std::string, Entry>& to) const;
  void build(const Entry& e, const std::string& name, const OrderedJson& overrides, Selection& out,
             Group* parent) const;
  void build_group(const std::string& name, const OrderedJson& config, const OrderedJson& overrides, Selection& out,
                   Group* parent) const;
  void build_task(OrderedJson config, const std::string& path, const OrderedJson& overrides, Selection& out,
                  Group* parent) const;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> unread_;  // a file's name without its ending → why it holds no task
};

}  // namespace mxt::eval
