// Shell completion, out of the command line's own declarations.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "config/builtin.h"
#include "config/model_table.h"
#include "config/prices.h"
#include "config/recipe.h"
#include "export/target.h"
#include "help.h"
#include "kernels/backend.h"

namespace mxt::app {
namespace {

// What may follow a verb, or a verb of a verb (dataset prep).
struct Level {
  std::string verb, inner;
  std::vector<const CLI::App*> verbs;
  std::vector<std::string> words;  // verbs and the choices of what stands by itself, beside files
  std::vector<const CLI::Option*> options;
  bool closed = false;  // words alone: no file's name
};

// "{a,b}" in what CLI11 says of a type; none where any value will do.
std::vector<std::string> choices_of(const CLI::Option& o) {
  std::vector<std::string> out;
  const std::string type = o.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return out;
  const std::string list = type.substr(begin + 1, end - begin - 1);
  for (const std::string_view v : split(list, ',')) out.emplace_back(v);
  return out;
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> out;
  for (const config::BuiltinRecipe& r : config::builtin_recipes()) out.emplace_back(r.name);
  return out;
}

std::vector<std::string> device_names() {
  std::vector<std::string> out;
  for (size_t i = 0; i < config::enum_names(config::GpuName{}).size(); ++i) {
    const auto name = static_cast<config::GpuName>(i);
    if (kernels::backend_for(config::text_of(config::arch_of(name)))) out.emplace_back(config::text_of(name));
  }
  return out;
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> out;
  for (size_t i = 0; i < config::enum_names(config::QuantScheme{}).size(); ++i)
    if (const auto s = static_cast<config::QuantScheme>(i); s != config::QuantScheme::kNone)
      out.emplace_back(config::text_of(s));
  return out;
}

std::vector<std::string> trainer_names() {
  std::vector<std::string> out;
  for (const exporting::Target& t : exporting::targets()) out.emplace_back(t.name);
  return out;
}

std::vector<std::string> model_names() {
  std::vector<std::string> out;
  for (const config::KnownModel& m : config::known_models()) out.emplace_back(m.name);
  return out;
}

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* v) { return !v->get_name().empty(); });
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& verbs) {
  std::vector<std::string> out;
  for (const CLI::App* v : verbs) out.push_back(v->get_name());
  return out;
}

// Of an option, by its first long name, or of an argument.
std::vector<std::string> values_of(const CLI::Option& o, const std::string& verb, const CLI::App& app) {
  const std::string name = o.get_lnames().empty() ? o.get_name() : o.get_lnames()[0];
  if (name == "device") return verb == "plan" ? config::builtin_prices().names() : device_names();
  if (name == "model") return model_names();
  if (name == "recipe" || (verb == "init" && name == "name")) return recipe_names();
  if (name == "verb") return names_of(verbs_of(app));
  if (name == "scheme") return scheme_names();
  if (verb == "export" && name == "for") return trainer_names();
  return choices_of(o);
}

// Whether a file's name will do as well as the words that values_of() gives.
bool takes_files(const CLI::Option& o) { return o.get_lnames()[0] == "model"; }

// Whether no file's name can stand where the level's words do: verbs and fixed choices alone, or options alone.
bool is_closed(const CLI::App& v) {
  return std::ranges::all_of(v.get_options(), [](const CLI::Option* o) {
    return !o->get_lnames().empty() || o->get_name() == "verb" || !choices_of(*o).empty();
  });
}

// A number, or words with commas between them: no file's name.
bool is_no_file(const CLI::Option& o) {
  const std::string type = o.get_type_name();
  return o.get_delimiter() != '\0' || type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

Level level_of(const CLI::App& v, const std::string& verb, const std::string& inner, const CLI::App& app) {
  Level l{verb, inner, verbs_of(v), {}, {}};
  l.words = names_of(l.verbs);
  for (const CLI::Option* o : v.get_options()) {
    if (!o->get_lnames().empty()) {
      l.options.push_back(o);
      continue;
    }
    for (std::string& value : values_of(*o, verb, app)) l.words.push_back(std::move(value));
  }
  l.closed = is_closed(v);
  return l;
}

std::vector<Level> levels_of(const CLI::App& app) {
  std::vector<Level> out;
  for (const CLI::App* v : verbs_of(app)) {
    for (const CLI::App* inner : verbs_of(*v)) out.push_back(level_of(*inner, v->get_name(), inner->get_name(), app));
    out.push_back(level_of(*v, v->get_name(), "", app));
  }
  return out;
}

// "--out --plan …": the long names; what has none is not completed.
std::string long_names(const std::vector<const CLI::Option*>& options) {
  std::string out;
  for (const CLI::Option* o : options)
    for (const std::string& name : o->get_lnames()) out += (out.empty() ? "--" : " --") + name;
  return out;
}

// The same words in bash and zsh: $names, $options, $closed, $values and $files for $verb, $inner and $prev.
std::string cases_of(const CLI::App& app) {
  std::string levels, values;
  for (const Level& l : levels_of(app)) {
    levels +=
        fmt::format("    \"{} {}\"{}) names=\"{}\" options=\"{}\"{} ;;\n", l.verb, l.inner, l.inner.empty() ? "*" : "",
                    l.closed && l.words.empty() ? long_names(l.options) : fmt::to_string(fmt::join(l.words, " ")),
                    long_names(l.options), l.closed ? " closed=yes" : "");
    for (const CLI::Option* o : l.options)
      if (const auto all = values_of(*o, l.verb, app); !all.empty() || is_no_file(*o))
        values += fmt::format("    \"{} {}{} --{}\") values=\"{}\"{} ;;\n", l.verb, l.inner,
                              l.inner.empty() ? "\"*\"" : "", o->get_lnames()[0],
                              all.empty() ? " " : fmt::to_string(fmt::join(all, " ")),  // " ": nothing to offer
                              takes_files(*o) ? " files=too" : "");
  }
  return fmt::format("  case \"$verb $inner\" in\n{}  esac\n  case \"$verb $inner $prev\" in\n{}  esac\n", levels,
                     values);
}

std::string first_words(const CLI::App& app) {
  return fmt::format("{} {}", fmt::join(names_of(verbs_of(app)), " "), long_names(app.get_options()));
}

// What stands before the verb (--quiet, help) is passed over. Names of files come without the backslashes that readline
// puts before blanks, and get them again by -o filenames.
std::string bash(const CLI::App& app) {
  return fmt::format(
      "_mindxtrain() {{\n"
      "  local at=$COMP_CWORD\n"
      "  local -a said=(\"${{COMP_WORDS[@]}}\")\n"
      "  while [ \"$at\" -gt 1 ] && [[ ${{said[1]}} == -* || ${{said[1]}} == help ]]; do\n"
      "    said=(\"${{said[0]}}\" \"${{said[@]:2}}\")\n"
      "    at=$((at-1))\n"
      "  done\n"
      "  local word=${{said[at]}} prev=${{said[at-1]}} verb=${{said[1]}} inner=\"\"\n"
      "  local names=\"\" options=\"\" values=\"\" files=\"\" closed=\"\" plain\n"
      "  if [ \"$word\" = \"=\" ]; then\n"
      "    word=\"\"\n"
      "  elif [ \"$prev\" = \"=\" ]; then\n"
      "    prev=${{said[at-2]}}\n"
      "  fi\n"
      "  COMPREPLY=()\n"
      "  if [ \"$at\" = 1 ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"{}\" -- \"$word\")\n"
      "    return\n"
      "  fi\n"
      "  if [ \"$at\" -gt 2 ]; then inner=${{said[2]}}; fi\n"
      "{}"
      "  plain=${{word#[\\\"\\']}}\n"
      "  plain=${{plain//\\\\/}}\n"
      "  if [ -n \"$values\" ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\"; [ -z \"$files\" ] || compgen -f -- "
      "\"$plain\")\n"
      "  elif [ \"${{word#-}}\" != \"$word\" ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
      "  elif [ \"${{prev#--}}\" != \"$prev\" ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$plain\")\n"
      "  else\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$word\"; [ -n \"$closed\" ] || compgen -f -- "
      "\"$plain\")\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F _mindxtrain mindxtrain\n",
      first_words(app), cases_of(app));
}

// As a file of $fpath (site-functions/_mindxtrain) and as something to source.
std::string zsh(const CLI::App& app) {
  return fmt::format(
      "#compdef mindxtrain\n"
      "_mindxtrain() {{\n"
      "  while (( CURRENT > 2 )) && [[ ${{words[2]}} == -* || ${{words[2]}} == help ]]; do\n"
      "    words=(\"${{words[1]}}\" \"${{words[@]:2}}\")\n"
      "    (( CURRENT-- ))\n"
      "  done\n"
      "  local word=${{words[CURRENT]}} prev=${{words[CURRENT-1]}} verb=${{words[2]}} inner=\"\"\n"
      "  local names=\"\" options=\"\" values=\"\" files=\"\" closed=\"\"\n"
      "  if (( CURRENT == 2 )); then\n"
      "    compadd -- ${{=:-\"{}\"}}\n"
      "    return\n"
      "  fi\n"
      "  if (( CURRENT > 3 )); then inner=${{words[3]}}; fi\n"
      "  if [[ $word == --*=* ]]; then\n"
      "    prev=${{word%%=*}}\n"
      "    compset -P '*='\n"
      "  fi\n"
      "{}"
      "  if [[ -n $values ]]; then\n"
      "    compadd -- ${{=values}}\n"
      "    [[ -z $files ]] || _files\n"
      "  elif [[ $word == -* && $word != *=* ]]; then\n"
      "    compadd -- ${{=options}}\n"
      "  else\n"
      "    [[ $prev == --* ]] || compadd -- ${{=names}}\n"
      "    [[ -n $closed && $prev != --* ]] || _files\n"
      "  fi\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _mindxtrain ]; then\n"
      "  _mindxtrain \"$@\"\n"
      "else\n"
      "  compdef _mindxtrain mindxtrain\n"
      "fi\n",
      first_words(app), cases_of(app));
}

// Inside single quotes.
std::string quoted(std::string s) {
  s = s.substr(0, s.find('\n'));
  for (size_t at = 0; (at = s.find('\'', at)) != std::string::npos; at += 4) s.replace(at, 1, "'\\''");
  return s;
}

std::string fish(const CLI::App& app) {
  std::string out = "complete -c mindxtrain -n __fish_use_subcommand -f\n";
  for (const CLI::Option* o : app.get_options())
    for (const std::string& name : o->get_lnames())
      out += fmt::format("complete -c mindxtrain -n __fish_use_subcommand -l {} -d '{}'\n", name,
                         quoted(o->get_description()));
  for (const CLI::App* v : verbs_of(app))
    out += fmt::format("complete -c mindxtrain -n __fish_use_subcommand -a {} -d '{}'\n", v->get_name(),
                       quoted(v->get_description()));
  for (const Level& l : levels_of(app)) {
    const std::string inside = l.inner.empty() ? fmt::format("'__fish_seen_subcommand_from {}'", l.verb)
                                               : fmt::format(
                                                     "'__fish_seen_subcommand_from {}; and "
                                                     "__fish_seen_subcommand_from {}'",
                                                     l.verb, l.inner);
    for (const CLI::App* v : l.verbs)
      out += fmt::format("complete -c mindxtrain -n {} -a {} -d '{}'\n", inside, v->get_name(),
                         quoted(v->get_description()));
    if (l.closed) {
      const std::string further = fmt::to_string(fmt::join(names_of(l.verbs), " "));
      out += fmt::format("complete -c mindxtrain -n '__fish_seen_subcommand_from {}{}' -f\n", l.verb,
                         !l.inner.empty()   ? "; and __fish_seen_subcommand_from " + l.inner
                         : !further.empty() ? "; and not __fish_seen_subcommand_from " + further
                                            : "");
    }
    std::vector<std::string> words(l.words.begin() + static_cast<std::ptrdiff_t>(l.verbs.size()), l.words.end());
    if (!words.empty()) out += fmt::format("complete -c mindxtrain -n {} -a '{}'\n", inside, fmt::join(words, " "));
    for (const CLI::Option* o : l.options) {
      const auto values = values_of(*o, l.verb, app);
      const std::string takes = !values.empty()
                                    ? fmt::format(" -{} -a '{}'", takes_files(*o) ? 'r' : 'x', fmt::join(values, " "))
                                : is_no_file(*o)              ? " -x"
                                : o->get_items_expected() > 0 ? " -r"
                                                              : "";
      for (const std::string& name : o->get_lnames())
        out += fmt::format("complete -c mindxtrain -n {} -l {}{} -d '{}'\n", inside, name, takes,
                           quoted(o->get_description()));
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
    std::fputs((*shell == "fish" ? fish(app) : *shell == "zsh" ? zsh(app) : bash(app)).c_str(), stdout);
  });
}

}  // namespace mxt::app
