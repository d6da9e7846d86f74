#include "data/source/absent.h"

#include "base/error.h"
#include "base/files.h"

namespace mxt::data {

std::vector<AbsentFile> absent_files(const config::Data& d,
                                     const std::function<std::string(const std::string&)>& shipped) {
  const auto there = [](const std::string& path) {
    std::error_code ec;
    return fs::exists(path, ec) || !glob_files(path).empty();
  };
  std::vector<AbsentFile> out;
  const auto look = [&](const std::string& key, const std::optional<std::string>& path) {
    if (path && !there(*path)) out.push_back({key, *path});
  };
  if (d.source != config::DataSource::kMixture) look("data.path", d.path);
  look("data.eval_path", d.eval_path);
  std::vector<AbsentFile> optional;
  for (size_t i = 0; i < d.mixture.size(); ++i) {
    const config::MixtureSource& m = d.mixture[i];
    if (!m.path || there(shipped ? shipped(*m.path) : *m.path)) continue;
    (m.optional ? optional : out).push_back({fmt::format("data.mixture[{}].path", i), *m.path});
  }
  if (!optional.empty() && optional.size() == d.mixture.size()) out.insert(out.end(), optional.begin(), optional.end());
  if (d.filter)
    for (const std::string& path : d.filter->decontaminate) look("data.filter.decontaminate", path);
  return out;
}

std::string how_to_get(const std::string& path) {
  // Pages of those who made them.
  static constexpr std::pair<const char*, const char*> kPublic[] = {
      {"tinyshakespeare/input.txt",
       "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"},
      {"gsm8k/train.jsonl",
       "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/train.jsonl"},
      {"gsm8k/test.jsonl",
       "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/test.jsonl"},
      {"humaneval/HumanEval.jsonl.gz",
       "https://raw.githubusercontent.com/openai/human-eval/master/data/HumanEval.jsonl.gz"}};
  for (const auto& [name, url] : kPublic)
    if (path == name || path.ends_with(std::string("/") + name))
      return fmt::format("curl -fL --create-dirs -o {} {}", path, url);
  return "";
}

}  // namespace mxt::data
