#include "export/target.h"

#include "base/error.h"
#include "base/text.h"
#include "export/limits.h"
#include "export/rows.h"
#include "export/trainers.h"
#include "export/yaml.h"

namespace mxt::exporting {

std::string_view name_of(Form form) {
  switch (form) {
    case Form::kText:
      return "plain text";
    case Form::kCompletion:
      return "prompt and completion";
    case Form::kChat:
      return "messages";
    case Form::kPair:
      return "chosen and rejected";
    case Form::kLabelled:
      return "an answer with a label";
    case Form::kReference:
      return "a prompt to sample answers to";
    case Form::kTokens:
      return "token ids";
  }
  MXT_ASSERT(false);
}

const std::vector<Target>& targets() {
  static const std::vector<Target> kTargets = {
      {"axolotl", "axolotl", "pip install axolotl", axolotl_settings, axolotl_row},
      {"trl", "TRL", "pip install trl peft", trl_settings, trl_row},
      {"unsloth", "Unsloth", "pip install unsloth", unsloth_settings, trl_row},
      {"torchtune", "torchtune", "pip install torchtune torchao", torchtune_settings, torchtune_row},
      {"primus", "Primus", "git clone https://github.com/AMD-AGI/Primus", primus_settings, primus_row, "training.jsonl",
       "validation.jsonl"},
      {"llama_factory", "LLaMA-Factory", "pip install llamafactory", llama_factory_settings, llama_factory_row}};
  return kTargets;
}

const Target& target_of(std::string_view name) {
  std::vector<std::string> names;
  for (const Target& t : targets()) {
    if (t.name == name) return t;
    names.push_back(t.name);
  }
  const std::string near = nearest(name, names);
  fail_input(
      "--for {}: is no trainer that this program writes for{} (axolotl, trl, unsloth, torchtune, primus, "
      "llama_factory)",
      printable(name), near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

std::string settings_text(const Target& target, const Job& job, const Settings& s) {
  const config::Recipe& r = job.recipe;
  std::string head = yaml_comment(fmt::format("{}: {} for {}, written by mindxtrain export", r.meta.run_name,
                                              config::text_of(r.train.method.kind), target.title));
  head += yaml_comment("run: " + s.command);
  const auto list = [&](const char* title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    head += yaml_comment(title);
    for (const std::string& line : lines) head += yaml_comment("  " + line);
  };
  list("What trains differently there:", s.differs);
  list("What is not there, and changes no weight:", s.absent);
  return head + yaml_text(s.yaml);
}

}  // namespace mxt::exporting
