#include "help.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "kernels/api.h"
#include "kernels/backend.h"
#include "provenance/identity.h"
#include "verbs.h"
#include "version.h"

namespace mxt::app {
namespace {

OrderedJson version_answer() {
  const Json id = provenance::build_identity();
  const auto cpu = kernels::cpu_features();
  OrderedJson j;
  j["version"] = kVersion;
  j["commit"] = id.value("git_commit", Json());
  j["compiler"] = id.value("compiler", Json());
  j["backends"] = OrderedJson::array();
  j["backends"].push_back(
      {{"name", "cpu"},
       {"ready", true},
       {"what", fmt::format("{}, oneDNN {} ({})", cpu.vector_target, cpu.onednn_version, cpu.onednn_isa)}});
  for (const kernels::BackendInfo& b : kernels::backends()) {
    if (!b.own_memory) continue;
    OrderedJson there{{"name", b.kind}, {"ready", false}};
    try {
      there["what"] = b.open().device->properties().name;
      there["ready"] = true;
    } catch (const Error& e) {
      there["what"] = e.what();
    }
    j["backends"].push_back(there);
  }
  return j;
}

}  // namespace

std::string version_text() {
  const OrderedJson j = version_answer();
  const auto text = [&](const char* key) { return j[key].is_string() ? j[key].get<std::string>() : "not known"; };
  std::string out =
      fmt::format("mindxtrain {}\ncommit      {}\ncompiler    {}\n", text("version"), text("commit"), text("compiler"));
  for (const auto& b : j["backends"])
    out += fmt::format("{:<12}{}{}\n", b["name"].get<std::string>(),
                       b["ready"].get<bool>() ? "" : "not here: ", b["what"].get<std::string>());
  out.pop_back();  // CLI11 ends the line
  return out;
}

void require_verb(const CLI::App& app, const std::string& word) {
  std::vector<std::string> verbs;
  for (const CLI::App* v : app.get_subcommands([](const CLI::App*) { return true; })) verbs.push_back(v->get_name());
  if (std::find(verbs.begin(), verbs.end(), word) != verbs.end()) return;
  const std::string near = nearest(word, verbs);
  const std::string of = app.get_parent() ? " " + app.get_name() : "";
  fail_input("{}: is no verb{}{} (mindxtrain help{} lists them)", word, of.empty() ? "" : " of" + of,
             near.empty() ? "" : fmt::format("; did you mean {}?", near), of);
}

void add_version(CLI::App& app) {
  auto* c = app.add_subcommand(
      "version", "what this binary is, its commit, compiler and backends\nexample: mindxtrain version --json");
  auto json = std::make_shared<bool>(false);
  c->add_flag("--json", *json, "machine-readable answer");
  c->callback([json] {
    std::printf("%s\n", *json ? version_answer().dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str()
                              : version_text().c_str());
  });
}

void add_help(CLI::App& app) {
  auto* c = app.add_subcommand("help", "the verbs, or one verb's options\nexample: mindxtrain help run");
  auto verb = std::make_shared<std::string>(), inner = std::make_shared<std::string>();
  c->add_option("verb", *verb, "which one");
  c->add_option("inner", *inner, "which of its verbs, as in `help dataset prep`");
  c->callback([verb, inner, &app] {
    // App::help() would speak of the verb that was parsed, and that is this one.
    const auto print = [](const CLI::App& of, const std::string& name) {
      std::fputs(of.get_formatter()->make_help(&of, name, CLI::AppFormatMode::Normal).c_str(), stdout);
    };
    if (verb->empty()) return print(app, app.get_name());
    require_verb(app, *verb);
    const CLI::App& of = *app.get_subcommand(*verb);
    if (inner->empty()) return print(of, app.get_name() + " " + *verb);
    require_verb(of, *inner);
    print(*of.get_subcommand(*inner), fmt::format("{} {} {}", app.get_name(), *verb, *inner));
  });
}

}  // namespace mxt::app
