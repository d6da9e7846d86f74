#include "recipe_paths.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model_files.h"

namespace mxt::app {

Roots::Roots(const std::vector<std::string>& folders) {
  auto add = [&](const std::string& f) {
    std::string root = fs::absolute(f).lexically_normal().string();
    if (!root.ends_with('/')) root += '/';
    roots_.push_back(std::move(root));
  };
  add(".");
  for (const auto& f : folders) add(f);
}

bool Roots::holds(const std::string& path) const {
  const std::string full = fs::absolute(path).lexically_normal().string() + "/";
  return std::any_of(roots_.begin(), roots_.end(),
                     [&](const std::string& root) { return full.starts_with(root) || root + "/" == full; });
}

std::vector<config::Issue> Roots::outside(const config::Recipe& recipe) const {
  std::vector<config::Issue> out;
  // Every text of the recipe is looked at, so that no field that names a file can be forgotten; meta's are for people.
  const std::function<void(const Json&, const std::string&)> look = [&](const Json& v, const std::string& key) {
    if (v.is_structured()) {
      for (const auto& [k, inner] : v.items())
        if (!key.empty() || k != "meta") look(inner, key.empty() ? k : key + "." + k);
      return;
    }
    if (!v.is_string()) return;
    auto text = v.get<std::string>();
    if (text.starts_with(kMadeBefore)) text.erase(0, kMadeBefore.size());  // a file, too
    const fs::path path(text);
    const bool climbs = std::any_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
    if ((!path.is_absolute() && !climbs) || holds(text)) return;
    config::Issue issue;
    issue.source = recipe.source;
    issue.key = key;
    issue.what = text + " lies outside the folders that this server may use; start it there, or with --root FOLDER";
    if (const size_t at = recipe.text.find(text); at != std::string::npos) {
      const size_t line_begin = recipe.text.rfind('\n', at);
      issue.line = 1 + static_cast<int>(std::count(recipe.text.begin(),
                                                   recipe.text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
      issue.column = static_cast<int>(at - (line_begin == std::string::npos ? 0 : line_begin + 1)) + 1;
    }
    out.push_back(std::move(issue));
  };
  look(Json::parse(config::canonical(recipe)), "");
  return out;
}

}  // namespace mxt::app
