#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "config/builtin.h"
#include "machine.h"
#include "verbs.h"

namespace mxt::app {

namespace {

void list_recipes(bool json) {
  OrderedJson all = OrderedJson::array();
  for (const auto& r : config::builtin_recipes()) {
    const Trainable t = trainable_here(config::parse_recipe(r.text, r.name));
    all.push_back({{"name", r.name},
                   {"head", r.head()},
                   {"build", t.build},
                   {"machine", t.machine},
                   {"files", t.files},
                   {"reason", t.reason}});
  }
  if (json) {
    std::printf("%s\n", all.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
    return;
  }
  bool first = true;
  const auto group = [&](const char* title, const auto& belongs) {
    bool any = false;
    for (const auto& r : all) {
      if (!belongs(r)) continue;
      if (!any) std::printf("%s%s\n", first ? "" : "\n", title);
      any = true, first = false;
      std::printf("  %-27s %s\n", r["name"].get<std::string>().c_str(), r["head"].get<std::string>().c_str());
      if (const auto why = r["reason"].get<std::string>(); !why.empty()) std::printf("  %-27s - %s\n", "", why.c_str());
    }
  };
  group("Can be trained here:", [](const auto& r) { return r["build"] && r["machine"] && r["files"]; });
  group("Need files that are not here:", [](const auto& r) { return r["build"] && r["machine"] && !r["files"]; });
  group("Need another machine:", [](const auto& r) { return r["build"] && !r["machine"]; });
  group("Need what this build does not have:", [](const auto& r) { return !r["build"]; });
}

}  // namespace

void add_init(CLI::App& app) {
  auto* c = app.add_subcommand(
      "init",
      "start from a recipe that ships with the program\nexample: mindxtrain init quickstart_cpu --out recipe.yaml");
  struct Options {
    bool list = false, json = false;
    std::string name, out;
  };
  auto o = std::make_shared<Options>();
  c->add_flag("--list", o->list, "the recipes there are, and which of them can be trained here");
  c->add_flag("--json", o->json, "with --list: a machine-readable answer");
  c->add_option("name", o->name, "which recipe");
  c->add_option("--out", o->out, "file to write (default: NAME.yaml)");
  c->callback([o] {
    if (o->list) return list_recipes(o->json);
    if (o->name.empty()) fail_input("init: which recipe? (mindxtrain init --list)");
    const auto& r = config::builtin_recipe(o->name);
    const std::string out = o->out.empty() ? o->name + ".yaml" : o->out;
    if (fs::exists(out)) fail_input("{}: is there already: choose another --out", out);
    write_file_atomic(out, r.text);
    std::printf("%s\n", out.c_str());
  });
}

}  // namespace mxt::app
