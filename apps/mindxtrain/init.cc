#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "config/builtin.h"
#include "verbs.h"

namespace mxt::app {

void add_init(CLI::App& app) {
  auto* c = app.add_subcommand(
      "init",
      "start from a recipe that ships with the program\nexample: mindxtrain init quickstart_cpu --out recipe.yaml");
  struct Options {
    bool list = false;
    std::string name, out;
  };
  auto o = std::make_shared<Options>();
  c->add_flag("--list", o->list, "the recipes there are");
  c->add_option("name", o->name, "which recipe");
  c->add_option("--out", o->out, "file to write (default: NAME.yaml)");
  c->callback([o] {
    if (o->list) {
      for (const auto& r : config::builtin_recipes())
        std::printf("%-26.*s %.*s\n", static_cast<int>(r.name.size()), r.name.data(), static_cast<int>(r.head().size()),
                    r.head().data());
      return;
    }
    if (o->name.empty()) fail_input("init: which recipe? (mindxtrain init --list)");
    const auto& r = config::builtin_recipe(o->name);
    const std::string out = o->out.empty() ? o->name + ".yaml" : o->out;
    if (fs::exists(out)) fail_input("{}: is there already: choose another --out", out);
    write_file_atomic(out, r.text);
    std::printf("%s\n", out.c_str());
  });
}

}  // namespace mxt::app
