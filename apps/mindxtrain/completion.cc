// Shell completion, out of the command line's own declarations.
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "help.h"

namespace mxt::app {
namespace {

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* v) { return !v->get_name().empty(); });
}

// "--out --plan …": the long names; what has none is not completed.
std::string options_of(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& name : o->get_lnames()) out += (out.empty() ? "--" : " --") + name;
  return out;
}

std::string names_of(const CLI::App& app) {
  std::string out;
  for (const CLI::App* v : verbs_of(app)) out += (out.empty() ? "" : " ") + v->get_name();
  return out;
}

// The first word decides; verbs of verbs (dataset prep) come after it. Files complete where a word is no option.
std::string bash(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* v : verbs_of(app)) {
    std::string words = names_of(*v), options = options_of(*v);
    for (const CLI::App* inner : verbs_of(*v)) options += " " + options_of(*inner);
    cases += fmt::format("    {}) words=\"{}\" options=\"{}\" ;;\n", v->get_name(), words, options);
  }
  return fmt::format(
      "_mindxtrain() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} words=\"\" options=\"\"\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${{COMP_WORDS[1]}} in\n"
      "{}"
      "  esac\n"
      "  case $word in\n"
      "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$word\") $(compgen -f -- \"$word\")) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _mindxtrain mindxtrain\n",
      names_of(app) + " " + options_of(app), cases);
}

// Inside single quotes.
std::string quoted(std::string s) {
  s = s.substr(0, s.find('\n'));
  for (size_t at = 0; (at = s.find('\'', at)) != std::string::npos; at += 4) s.replace(at, 1, "'\\''");
  return s;
}

std::string fish(const CLI::App& app) {
  std::string out;
  for (const CLI::App* v : verbs_of(app)) {
    out += fmt::format("complete -c mindxtrain -n __fish_use_subcommand -a {} -d '{}'\n", v->get_name(),
                       quoted(v->get_description()));
    const auto inside = [&](const CLI::App& a) {
      for (const CLI::Option* o : a.get_options())
        for (const std::string& name : o->get_lnames())
          out += fmt::format("complete -c mindxtrain -n '__fish_seen_subcommand_from {}' -l {} -d '{}'\n",
                             v->get_name(), name, quoted(o->get_description()));
    };
    inside(*v);
    for (const CLI::App* inner : verbs_of(*v)) {
      out += fmt::format("complete -c mindxtrain -n '__fish_seen_subcommand_from {}' -a {} -d '{}'\n", v->get_name(),
                         inner->get_name(), quoted(inner->get_description()));
      inside(*inner);
    }
  }
  return out;
}

}  // namespace

void add_completion(CLI::App& app) {
  auto* c = app.add_subcommand("completion",
                               "completion for a shell\nexample: mindxtrain completion bash > "
                               "~/.local/share/bash-completion/completions/mindxtrain");
  auto shell = std::make_shared<std::string>();
  c->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  c->callback([shell, &app] {
    const std::string text = *shell == "fish"  ? fish(app)
                             : *shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" + bash(app)
                                               : bash(app);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace mxt::app
