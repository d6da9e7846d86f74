// The rows of a recipe as texts, for who learns a tokenizer from them.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/stop.h"
#include "data/prepare.h"
#include "data/settings.h"
#include "data/shape/example.h"
#include "data/store/manifest.h"

namespace mxt::data {

struct Texts::State {
  Settings settings;
  StopFlag cancel = nullptr;
  std::vector<const RowSource*> sources;
  size_t at = 0;
  std::unique_ptr<RecordReader> rows;
  std::optional<Layout> layout;
  Record record;
  std::string text;
};

Texts::Texts(const config::Recipe& recipe, const Access& access)
    : s_(new State{read_settings(recipe, access, ""), access.cancel, {}, 0, {}, {}, {}, {}}) {
  if (s_->settings.train.mixture.empty()) s_->sources = {&s_->settings.train};
  for (const RowSource& m : s_->settings.train.mixture) s_->sources.push_back(&m);
}

Texts::~Texts() = default;

bool Texts::next(std::string_view* text) {
  State& s = *s_;
  for (;; s.rows.reset(), ++s.at) {
    check_stop(s.cancel);
    if (s.at == s.sources.size()) return false;
    if (!s.rows) {
      s.rows = s.sources[s.at]->open();
      s.layout.reset();
    }
    if (!s.rows->next(&s.record)) continue;
    if (!s.layout) s.layout = find_layout(s.record, s.sources[s.at]->columns);
    s.text = as_text(read_example(s.record, *s.layout), s.record.where()).text;
    *text = s.text;
    return true;
  }
}

std::string Texts::digest() const {
  Blake3 h;
  for (const RowSource* source : s_->sources) {
    OrderedJson files = source->describe();
    for (OrderedJson& f : files) f.erase("path");
    h.update(OrderedJson{{"files", std::move(files)}, {"rows", source->max_rows}, {"columns", source->columns}}.dump());
  }
  return h.hex();
}

std::string Texts::name() const { return s_->settings.train.text(); }

bool Texts::are_those_of(const std::string& prepared) const {
  const auto content = [](OrderedJson files) {
    for (OrderedJson& f : files) f.erase("path");
    return canonical_json(Json::parse(files.dump()));
  };
  const OrderedJson made = parse_ordered_json(read_manifest(prepared).inputs, prepared);
  if (!made.contains("sources")) return true;  // given rollouts: finished ids
  return content(made["sources"]) == content(s_->settings.train.describe());
}

}  // namespace mxt::data
