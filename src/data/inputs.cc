#include "data/inputs.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/hash.h"
#include "data/jobs.h"

namespace mxt::data {
namespace {

constexpr int kRevision = 2;  // counts changes of this code that change the prepared bytes

OrderedJson without_sources(const Settings& s, const Coder& coder) {
  OrderedJson j = {{"revision", kRevision},
                   {"sources", nullptr},
                   {"tokenizer", coder.digest()},
                   {"columns", s.train.columns},
                   {"seq_len", s.seq_len},
                   {"packing", s.packing},
                   {"sampling", s.windows ? "random_windows" : "documents"},
                   {"train_on", s.train_all ? "all" : "assistant"},
                   {"num_shards", s.num_shards},
                   {"eval_fraction", s.eval_fraction}};
  if (!s.train.sql.empty()) j["sql"] = s.train.sql;
  j.update(parse_ordered_json(s.curation, "curation"));
  if (s.eval) j["eval_sources"] = nullptr;
  if (s.train.max_rows != INT64_MAX) j["max_samples"] = s.train.max_rows;
  if (!s.train.mixture.empty()) {
    j["mixture"] = {{"stop", config::text_of(s.mixture_stop)}, {"sources", OrderedJson::array()}};
    for (const RowSource& m : s.train.mixture)
      j["mixture"]["sources"].push_back({{"files", m.files.size()},
                                         {"weight", m.weight},
                                         {"columns", m.columns},
                                         {"max_samples", m.max_rows == INT64_MAX ? OrderedJson() : OrderedJson(m.max_rows)}});
  }
  if (s.eval_fraction > 0 || !s.train.mixture.empty()) j["seed"] = s.seed;
  return j;
}

}  // namespace

OrderedJson inputs_of(const Settings& s, const Coder& coder) {
  OrderedJson j = without_sources(s, coder);
  j["sources"] = s.train.describe();
  if (s.eval) j["eval_sources"] = s.eval->describe();
  return j;
}

std::string key_of(OrderedJson inputs) {
  for (const char* list : {"sources", "eval_sources"})
    if (inputs.contains(list))
      for (OrderedJson& source : inputs[list]) source.erase("path");
  return blake3_hex(canonical_json(Json::parse(inputs.dump())));
}

std::string jobs_key(const Settings& s, const Coder& coder) {
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
    }
  }
  j["sources"] = std::move(sizes);
  return blake3_hex(canonical_json(Json::parse(j.dump())));
}

}  // namespace mxt::data
