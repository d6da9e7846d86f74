// Other trainers, and a recipe as the settings of one. What a target cannot express (a method, a family of models, rows
// of a shape that it does not read) is an error (kMissing) that names it; what differs there is listed.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "config/recipe.h"
#include "data/shape/example.h"
#include "formats/model_config.h"

namespace mxt::exporting {

// What the rows are once they are written: one document, a prompt and its answer, a conversation …
enum class Form { kText, kCompletion, kChat, kPair, kLabelled, kReference, kTokens };
std::string_view name_of(Form form);  // "plain text", "prompt and completion", …

// Where a target finds its rows: a data set of the Hub, which it reads itself, or a folder of ours.
struct Rows {
  Form form = Form::kChat;
  bool chat = true;    // prompts and answers are messages, not texts
  bool tools = false;  // the first row has tools
  std::string hub_id;  // else `folder`
  std::string folder;  // absolute: train.jsonl and, with `held_out`, test.jsonl
  bool held_out = false;
};

// A base as another program finds it.
struct Base {
  std::string name;                            // Hub id, or an absolute folder
  std::string revision;                        // "" = the newest
  std::string family;                          // model_type; "" where it is not known without fetching
  std::optional<formats::ModelConfig> config;  // where its config.json is on this machine
};

struct Job {
  const config::Recipe& recipe;
  Base base;
  Rows rows;
  std::string out;        // absolute: the folder that the settings are written to
  bool launched = false;  // by this program, which sees to what settings cannot say: schedule, order, init_adapter
};

struct Settings {
  OrderedJson yaml = OrderedJson::object();
  std::string command;                                     // that takes them, run anywhere
  std::vector<std::string> differs;                        // one line each: what trains differently there
  std::vector<std::string> absent;                         // what the recipe has and training does not feel
  std::vector<std::pair<std::string, std::string>> files;  // name, content: beside the settings
};

struct Target {
  std::string name, title;  // "trl", "TRL"
  std::string get;          // how it is installed
  std::function<Settings(const Job&)> settings;
  // One row in the form that the target reads.
  std::function<OrderedJson(const data::Example&, const config::Recipe&)> row;
  std::string train_file = "train.jsonl", test_file = "test.jsonl";  // what it calls its files of rows
};

const std::vector<Target>& targets();
// Errors (kBadInput): no such target (names the nearest).
const Target& target_of(std::string_view name);

// The file of the settings: what differs and what is absent as comments over them.
std::string settings_text(const Target& target, const Job& job, const Settings& s);

}  // namespace mxt::exporting
