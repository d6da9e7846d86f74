// Every command that README and docs/ show: its verb and options are there, and it is run by newcomer.sh or not_run.txt
// says why not.
#include <map>

#include "base/text.h"
#include "e2e/cli.h"
#include "folders.h"

namespace mxt::cli {
namespace {

struct Command {
  std::string where, text;
};

// Lines of blocks that are shell: fenced without a language, or as sh, bash or console.
std::vector<Command> commands_of(const std::string& file) {
  std::vector<Command> out;
  bool inside = false, shell = false;
  int n = 0;
  const std::string text = read_file(file);
  for (std::string_view line : split(text, '\n')) {
    ++n;
    if (line.starts_with("```")) {
      inside = !inside;
      const std::string_view language = trim(line.substr(3));
      shell = inside && (language.empty() || language == "sh" || language == "bash" || language == "console");
    } else if (shell) {
      std::string command(trim(line.substr(0, line.find("  #"))));
      if (const size_t at = command.find(" # "); at != std::string::npos) command.resize(at);
      static const char* kPrograms[] = {"mindxtrain ", "./dev ",  "uv ",   "sudo ",   "tar ",
                                        "git ",        "export ", "curl ", "sbatch ", "mpirun "};
      for (const char* p : kPrograms)
        if (command.starts_with(p)) {
          out.push_back({fmt::format("{}:{}", fs::path(file).filename().string(), n), std::string(trim(command))});
          break;
        }
    }
  }
  return out;
}

std::vector<Command> all_commands() {
  const std::string root = kSourceDir;
  std::vector<std::string> files{root + "/README.md"};
  for (const std::string& f : list_files(root + "/docs"))
    if (f.ends_with(".md")) files.push_back(root + "/docs/" + f);
  std::vector<Command> all;
  for (const std::string& f : files)
    for (Command& c : commands_of(f)) all.push_back(std::move(c));
  return all;
}

// What the files of ops/ start: a container's args, a service's program, a job's step.
std::vector<Command> commands_of_ops() {
  std::vector<Command> out;
  for (const char* file : {"kubernetes.yaml", "mindxtrain.service", "slurm.sbatch"}) {
    int n = 0;
    const std::string text = read_file(std::string(kSourceDir) + "/ops/" + file);
    for (std::string_view line : split(text, '\n')) {
      ++n;
      std::string command(trim(line));
      for (const char* begin : {"args: [", "ExecStart=/usr/bin/mindxtrain ", "srun mindxtrain "})
        if (command.starts_with(begin)) {
          command = command.substr(std::string_view(begin).size());
          std::erase_if(command, [](char c) { return c == ',' || c == ']'; });
          out.push_back({fmt::format("{}:{}", file, n), "mindxtrain " + command});
          break;
        }
    }
  }
  return out;
}

TEST(DocumentedCommands, AreRunOrSaidWhyNot) {
  const std::string folder = std::string(kSourceDir) + "/tests/newcomer", script = read_file(folder + "/newcomer.sh");
  std::map<std::string, std::string> reasons;
  const std::string list = read_file(folder + "/not_run.txt");
  for (std::string_view line : split(list, '\n')) {
    if (line.empty() || line.starts_with("#")) continue;
    const size_t bar = line.find(" | ");
    ASSERT_NE(bar, std::string_view::npos) << line;
    reasons.emplace(line.substr(0, bar), line.substr(bar + 3));
  }
  std::map<std::string, int> used;
  const auto all = all_commands();
  ASSERT_GT(all.size(), 50u);
  for (const Command& c : all) {
    bool known = script.find(c.text) != std::string::npos;
    for (const auto& [begin, why] : reasons)
      if (c.text.starts_with(begin)) known = true, ++used[begin];
    EXPECT_TRUE(known) << c.where << ": \"" << c.text << "\" is in neither newcomer.sh nor not_run.txt";
  }
  for (const auto& [begin, why] : reasons)
    EXPECT_GT(used[begin], 0) << "not_run.txt: no command begins with \"" << begin << "\"";
}

TEST(DocumentedCommands, NameVerbsAndOptionsThatAreThere) {
  std::map<std::string, std::string> help;  // by verb, or "verb inner"
  const auto help_of = [&](const std::string& verb) {
    auto [at, fresh] = help.try_emplace(verb);
    if (fresh) {
      const Result r = run(verb + " --help");
      if (r.code == 0) at->second = r.out;
    }
    return at->second;
  };
  auto all = all_commands();
  const auto ops = commands_of_ops();
  ASSERT_EQ(ops.size(), 4u);
  all.insert(all.end(), ops.begin(), ops.end());
  for (const Command& c : all) {
    const size_t at = c.text.find("mindxtrain ");
    if (at == std::string::npos || (at > 0 && c.text[at - 1] != ' ' && c.text[at - 1] != '\'')) continue;
    if (c.text.starts_with("git ") || c.text.starts_with("uv ")) continue;
    std::vector<std::string> words;
    const std::string rest = c.text.substr(at + 11);
    for (std::string_view w : split(rest, ' '))
      if (!w.empty()) words.emplace_back(w);
    ASSERT_FALSE(words.empty()) << c.where;
    std::string text = help_of(words[0]);
    EXPECT_FALSE(text.empty()) << c.where << ": no verb " << words[0];
    for (const char* grouped : {"dataset", "tokenizer", "runs", "key"})
      if (words[0] == grouped && words.size() > 1) text = help_of(words[0] + " " + words[1]);
    EXPECT_FALSE(text.empty()) << c.where << ": " << c.text;
    for (const std::string& w : words) {
      if (!w.starts_with("--")) continue;
      std::string option = w.substr(0, w.find('='));
      while (option.ends_with('\'') || option.ends_with(';')) option.pop_back();
      EXPECT_NE(text.find(option), std::string::npos) << c.where << ": " << words[0] << " has no " << option;
    }
  }
}

// A recipe, or sections of one, that the pages show is read as it stands; planning.md's table of prices is none.
TEST(DocumentedRecipes, AreValid) {
  Folder f("documented");
  const std::pair<const char*, const char*> required[] = {
      {"meta:", "meta: {project: p, run_name: r}\n"},
      {"model:", "model: smollm2-135m-instruct\n"},
      {"data:", "data: {source: local, path: rows.jsonl, seq_len: 512}\n"}};
  size_t recipes = 0;
  std::vector<std::string> files{"README.md"};
  for (const std::string& name : list_files(std::string(kSourceDir) + "/docs"))
    if (name.ends_with(".md")) files.push_back("docs/" + name);
  for (const std::string& name : files) {
    const std::string text = read_file(std::string(kSourceDir) + "/" + name), fence = "\n```yaml\n";
    for (size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at + 1)) {
      const size_t begin = at + fence.size();
      std::string recipe = text.substr(begin, text.find("\n```", begin) + 1 - begin);
      const auto has = [&](const std::string& key) { return ("\n" + recipe).find("\n" + key) != std::string::npos; };
      if (has("devices:")) continue;
      for (const auto& [key, line] : required)
        if (!has(key)) recipe.insert(0, line);
      const std::string yours = "0x…";  // an address that the reader is to write
      if (const size_t open = recipe.find(yours); open != std::string::npos)
        recipe.replace(open, yours.size(), "0x" + std::string(40, '1'));
      write_file_atomic(f / "r.yaml", recipe);
      const Result r = run("validate " + (f / "r.yaml"));
      EXPECT_EQ(r.code, 0) << name << ": " << r.out << recipe;
      ++recipes;
    }
  }
  EXPECT_GE(recipes, 10u);
}

}  // namespace
}  // namespace mxt::cli
