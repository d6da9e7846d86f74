#include "data/inputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/jobs.h"
#include "data/store/manifest.h"

namespace mxt::data {
namespace {

constexpr int kInputsRevision = 2;  // counts changes of this code that change the prepared bytes

OrderedJson without_sources(const Settings& s, const SampleEncoder& coder) {
  OrderedJson j = {{"revision", kInputsRevision},
                   {"sources", nullptr},
                   {"tokenizer", coder.digest()},
                   {"columns", s.train.columns},
                   {"seq_len", s.seq_len},
                   {"packing", s.packing},
                   {"sampling", s.windows ? "random_windows" : "documents"},
                   {"train_on", s.train_all ? "all" : "assistant"},
                   {"num_shards", s.num_shards},
                   {"eval_fraction", s.eval_fraction}};
  if (s.answers != Answers::kNone)
    j["answers"] = s.answers == Answers::kPairs      ? "pairs"
                   : s.answers == Answers::kLabelled ? "labelled, chosen first"
                                                     : "prompts";
  if (s.alone) j["answers"] = j["answers"].get<std::string>() + ", each alone";
  if (s.parts) j["loss_weights"] = "parts of tool calls";
  if (s.crop) j["pack"] = "bos_crop";
  if (s.best_fit) j["pack"] = "best_fit";
  if (s.join_row) j["boundaries"] = "row";
  if (!s.train.sql.empty()) j["sql"] = s.train.sql;
  j.update(parse_ordered_json(s.curation, "curation"));
  if (s.eval) j["eval_sources"] = nullptr;
  if (s.train.max_rows != INT64_MAX) j["max_samples"] = s.train.max_rows;
  if (!s.train.mixture.empty()) {
    j["mixture"] = {{"stop", config::text_of(s.mixture_stop)}, {"sources", OrderedJson::array()}};
    for (const RowSource& m : s.train.mixture)
      j["mixture"]["sources"].push_back(
          {{"files", m.files.size()},
           {"weight", m.weight},
           {"columns", m.columns},
           {"max_samples", m.max_rows == INT64_MAX ? OrderedJson() : OrderedJson(m.max_rows)}});
  }
  if (s.eval_fraction > 0 || !s.train.mixture.empty()) j["seed"] = s.seed;
  return j;
}

}  // namespace

OrderedJson inputs_of(const Settings& s, const SampleEncoder& coder) {
  OrderedJson j = without_sources(s, coder);
  j["sources"] = s.train.describe();
  if (s.eval) j["eval_sources"] = s.eval->describe();
  if (coder.pictures() && s.answers == Answers::kNone) {
    j["picture_files"] = s.train.pictures();
    if (s.eval) j["eval_picture_files"] = s.eval->pictures();
  }
  return j;
}

std::string key_of(OrderedJson inputs) {
  for (const char* list : {"sources", "eval_sources"})
    if (inputs.contains(list))
      for (OrderedJson& source : inputs[list]) source.erase("path");
  return blake3_hex(canonical_json(Json::parse(inputs.dump())));
}

std::string compare_settings(const std::string& folder, const config::Recipe& r, const SampleEncoder& coder) {
  const config::Data& d = r.data;
  const OrderedJson made = parse_ordered_json(read_manifest(folder).inputs, folder);
  if (r.train.rollouts.path) return "";  // finished ids
  if (made.value("tokenizer", "") != coder.digest())
    fail_input(
        "{}: was prepared with another tokenizer or chat template than this recipe's: use it with the recipe that made "
        "it",
        folder);
  std::string all;
  const auto compare = [&](const char* name, const OrderedJson& was, const OrderedJson& is) {
    if (was != is)
      all += fmt::format("{}data.{} {} (the recipe: {})", all.empty() ? "" : ", ", name, was.dump(), is.dump());
  };
  const auto was = [&](const char* name) { return made.contains(name) ? made[name] : OrderedJson(); };
  compare("seq_len", was("seq_len"), d.seq_len);
  compare("packing", was("packing"), d.packing);
  const auto default_is = [&](const char* name, std::string_view text) {
    return made.contains(name) ? made[name] : OrderedJson(text);
  };
  compare("pack", default_is("pack", "whole"), config::text_of(d.pack));
  compare("boundaries", default_is("boundaries", "document"), config::text_of(d.boundaries));
  compare("sampling", was("sampling"), config::text_of(d.sampling));
  compare("train_on", was("train_on"), config::text_of(d.train_on));
  if (made.contains("loss_weights") != d.loss_weights.has_value())
    compare("loss_weights", made.contains("loss_weights"), d.loss_weights.has_value());
  compare("columns", was("columns"), OrderedJson(d.columns));
  compare("sql", was("sql"), d.sql ? OrderedJson(*d.sql) : OrderedJson());
  compare("eval_fraction", was("eval_fraction"), d.eval_fraction);
  compare("max_samples", was("max_samples"), d.max_samples ? OrderedJson(*d.max_samples) : OrderedJson());
  return all;
}

OrderedJson inputs_of_rollouts(const config::Recipe& r) {
  return {{"revision", 1}, {"rollouts", hash_file(*r.train.rollouts.path).blake3}, {"seq_len", r.data.seq_len}};
}

std::string compare_rows(const std::string& folder, const config::Recipe& r, const SampleEncoder& coder,
                         const Access& access) {
  using S = config::DataSource;
  const config::Data& d = r.data;
  if (r.train.rollouts.path) {
    if (!fs::exists(*r.train.rollouts.path)) return "";
    const OrderedJson was = parse_ordered_json(read_manifest(folder).inputs, folder);
    return key_of(was) == key_of(inputs_of_rollouts(r)) ? "" : "train.rollouts.path holds other rollouts";
  }
  const bool fetched =
      std::any_of(d.mixture.begin(), d.mixture.end(), [](const auto& m) { return m.hf_id.has_value(); });
  if (fetched || d.source == S::kHf || d.source == S::kLighthouse || (d.synth && d.synth->teacher)) return "";
  OrderedJson now;
  try {
    now = inputs_of(read_settings(r, access, ""), coder);
  } catch (const Error& e) {  // prepared elsewhere, as a rule
    log::warn("{}: is not compared with what its rows came from: {}", folder, e.what());
    return "";
  }
  const OrderedJson made = parse_ordered_json(read_manifest(folder).inputs, folder);
  if (key_of(now) == key_of(made)) return "";
  std::string all;
  const auto name = [&](const std::string& what) { all += (all.empty() ? "" : ", ") + what; };
  for (const char* list : {"sources", "eval_sources"}) {
    const OrderedJson was = made.value(list, OrderedJson::array()), is = now.value(list, OrderedJson::array());
    const auto at = [](const OrderedJson& files, size_t i) { return i < files.size() ? files[i] : OrderedJson(); };
    const auto content = [](OrderedJson file) {
      if (file.is_object()) file.erase("path");
      return canonical_json(Json::parse(file.dump()));  // whatever order its keys stand in
    };
    const auto file = [](const OrderedJson& f) {
      return f.is_object() ? f.value("path", "synth " + f.value("synth", std::string("rows"))) : std::string("nothing");
    };
    for (size_t i = 0; i < std::max(was.size(), is.size()); ++i)
      if (content(at(was, i)) != content(at(is, i))) {
        name(fmt::format("{} (the recipe: {})", file(at(was, i)), file(at(is, i))));
        break;
      }
  }
  const auto canonical = [](const OrderedJson& j, const std::string& key) {
    return canonical_json(Json::parse(j.value(key, OrderedJson()).dump()));
  };
  for (const OrderedJson& side : {made, now})
    for (const auto& [key, value] : side.items()) {
      const std::string said = key.ends_with("picture_files") ? "the picture files that its rows name" : "data." + key;
      if (!key.ends_with("sources") && canonical(made, key) != canonical(now, key) &&
          all.find(said) == std::string::npos)
        name(said);
    }
  return all;
}

std::string compare_inputs(const std::string& folder, const config::Recipe& r, const SampleEncoder& coder) {
  const config::Data& d = r.data;
  const OrderedJson made = parse_ordered_json(read_manifest(folder).inputs, folder);
  std::string all = compare_settings(folder, r, coder);
  OrderedJson there = OrderedJson::array(), now = OrderedJson::array();
  if (d.source == config::DataSource::kLocal) {
    std::error_code ec;
    for (const OrderedJson& f : made.value("sources", OrderedJson::array()))
      there.push_back({f.value("path", f.value("synth", "")), f.value("bytes", 0)});
    for (const SourceFile& f : find_source_files(*d.path, d.split)) now.push_back({f.path, fs::file_size(f.path, ec)});
    if (there != now)
      all += fmt::format("{}other files ({} and {} in all; the recipe: {} and {})", all.empty() ? "" : ", ",
                         there.empty() ? "none" : there[0][0].dump(), there.size(), now[0][0].dump(), now.size());
  }
  return all.empty() ? ""
                     : fmt::format("{}: was prepared from other inputs than this recipe's, and is shown as it is: {}",
                                   folder, all);
}

std::string jobs_key(const Settings& s, const SampleEncoder& coder) {
  OrderedJson j = without_sources(s, coder);
  OrderedJson sizes = OrderedJson::array();
  std::vector<const RowSource*> all = {&s.train};
  for (const RowSource& m : s.train.mixture) all.push_back(&m);
  if (s.eval) all.push_back(&*s.eval);
  for (const RowSource* source : all) {
    if (source->task) sizes.push_back(source->describe());
    for (const SourceFile& f : source->files) {
      std::error_code ec;
      sizes.push_back({name_of(f.kind), fs::file_size(f.path, ec)});
      if (f.kind == FileKind::kJson) sizes.back().push_back(f.split);
    }
  }
  j["sources"] = std::move(sizes);
  return blake3_hex(canonical_json(Json::parse(j.dump())));
}

}  // namespace mxt::data
