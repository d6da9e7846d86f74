#include "config/model_table.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"
#include "config/field.h"
#include "config/yaml.h"

namespace mxt::config {

extern const std::string_view kBuiltinModels;  // generated from the file

namespace {

struct Table {
  std::vector<KnownModel> models;
};

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

}  // namespace

Section declare(const KnownModel*) {
  Declaration<KnownModel> d("One model.");
  d.field("name", &KnownModel::name, "What a recipe may say.").required();
  d.field("id", &KnownModel::id, "Its id on the Hub.").required();
  d.field("revision", &KnownModel::revision, "Branch, tag or commit.");
  d.field("license", &KnownModel::license, "As SPDX spells it, or the Hub's word.").required();
  d.field("architecture", &KnownModel::architecture, "model_type of its config.json.").required();
  d.field("parameters", &KnownModel::parameters, "How many, 1e9.").above(0).required();
  d.field("gated", &KnownModel::gated, "The Hub asks for a token of who accepted its terms.");
  return d.take();
}

const std::vector<KnownModel>& known_models() {
  static const std::vector<KnownModel> kModels = [] {
    constexpr const char* kFile = "recipes/assumptions/models.yaml";
    Reader reader{kFile};
    const YamlResult yaml = parse_yaml(kBuiltinModels);
    for (const auto& p : yaml.problems) reader.issue(p.mark, p.key, p.what);
    Table t;
    if (yaml.parsed) {
      Declaration<Table> d("Models that people name.");
      d.field("models", &Table::models, "The models.").required();
      d.take().read(&t, yaml.root, "", reader);
    }
    if (!reader.issues().empty()) fail_input("{}", reader.issues().front().text());
    return t.models;
  }();
  return kModels;
}

const KnownModel* model_of_name(std::string_view name) {
  for (const KnownModel& m : known_models())
    if (same(m.name, name)) return &m;
  return nullptr;
}

std::string nearest_model(std::string_view name) {
  std::vector<std::string> names;
  for (const KnownModel& m : known_models()) names.push_back(m.name);
  return nearest(name, names);
}

const KnownModel* model_of_id(std::string_view id) {
  for (const KnownModel& m : known_models())
    if (same(m.id, id)) return &m;
  return nullptr;
}

}  // namespace mxt::config
