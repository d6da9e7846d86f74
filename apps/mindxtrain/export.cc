#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "data/inputs.h"
#include "export/rows.h"
#include "export/target.h"
#include "foreign.h"
#include "machine.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {
namespace {

std::string absolute(const std::string& path) { return fs::absolute(path).lexically_normal().string(); }

struct ExportOptions {
  std::string recipe, target, out, data;
};

void export_recipe(const ExportOptions& o) {
  const exporting::Target& target = exporting::target_of(o.target);
  const config::Recipe recipe = load_recipe(o.recipe);
  const std::string out = absolute(o.out);
  const data::Access access = data_access(recipe);
  const exporting::Base base = foreign_base(recipe, target.title);
  exporting::Rows rows;
  if (o.data.empty()) {
    rows = exporting::describe_rows(recipe, access, out + "/data");
  } else {
    const auto coder = coder_of(recipe, Fetch::kNever);
    if (const std::string other = data::compare_settings(o.data, recipe, *coder); !other.empty())
      fail_input("{}: was prepared with other settings than this recipe's: {}", o.data, other);
    rows = exporting::describe_tokens(recipe, out + "/data");
    rows.held_out = data::has_part(o.data, "eval");
  }
  const exporting::Job job{.recipe = recipe, .base = base, .rows = rows, .out = out};
  const exporting::Settings s = target.settings(job);  // refuses before anything is written
  make_folders(out);
  if (o.data.empty())
    exporting::write_rows(recipe, access, rows, target);
  else
    exporting::write_tokens(recipe, o.data, rows, target);
  for (const auto& [name, text] : s.files) write_file_atomic(out + "/" + name, text);
  const std::string path = out + "/" + target.name + ".yaml";
  write_file_atomic(path, exporting::settings_text(target, job, s));
  for (const std::string& line : s.differs) log::warn("{}: {}", target.title, line);
  for (const std::string& line : s.absent) log::info("{}: {}", target.title, line);
  log::info("{} runs it ({})", s.command, target.get);
  std::printf("%s\n", path.c_str());
}

}  // namespace

void add_export(CLI::App& app) {
  auto* c = app.add_subcommand(
      "export",
      "a recipe as another trainer's settings, with its rows in the form that it reads; what differs there is listed\n"
      "example: mindxtrain export recipe.yaml --for trl --out out/trl");
  auto o = std::make_shared<ExportOptions>();
  c->add_option("recipe", o->recipe, "recipe file")->required();
  c->add_option("--for", o->target, "axolotl, trl, unsloth, torchtune, primus or llama_factory")->required();
  c->add_option("--out", o->out, "folder")->required();
  c->add_option("--data", o->data, "a folder that `dataset prep` made: its tokens and masks instead of the rows' text");
  c->callback([o] { export_recipe(*o); });
}

}  // namespace mxt::app
