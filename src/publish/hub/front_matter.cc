#include "publish/hub/front_matter.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/text.h"
#include "net/hub.h"

namespace mxt::publish {
namespace {

// Licences that the Hub knows by these ids (huggingface.co/docs/hub/repositories-licenses).
constexpr std::array kLicenses = {"afl-3.0",
                                  "agpl-3.0",
                                  "apache-2.0",
                                  "apple-amlr",
                                  "apple-ascl",
                                  "artistic-2.0",
                                  "bigcode-openrail-m",
                                  "bigscience-bloom-rail-1.0",
                                  "bigscience-openrail-m",
                                  "bsd",
                                  "bsd-2-clause",
                                  "bsd-3-clause",
                                  "bsd-3-clause-clear",
                                  "bsl-1.0",
                                  "c-uda",
                                  "cc",
                                  "cc-by-2.0",
                                  "cc-by-2.5",
                                  "cc-by-3.0",
                                  "cc-by-4.0",
                                  "cc-by-nc-2.0",
                                  "cc-by-nc-3.0",
                                  "cc-by-nc-4.0",
                                  "cc-by-nc-nd-3.0",
                                  "cc-by-nc-nd-4.0",
                                  "cc-by-nc-sa-2.0",
                                  "cc-by-nc-sa-3.0",
                                  "cc-by-nc-sa-4.0",
                                  "cc-by-nd-4.0",
                                  "cc-by-sa-3.0",
                                  "cc-by-sa-4.0",
                                  "cc0-1.0",
                                  "cdla-permissive-1.0",
                                  "cdla-permissive-2.0",
                                  "cdla-sharing-1.0",
                                  "creativeml-openrail-m",
                                  "deepfloyd-if-license",
                                  "ecl-2.0",
                                  "epl-1.0",
                                  "epl-2.0",
                                  "etalab-2.0",
                                  "eupl-1.1",
                                  "eupl-1.2",
                                  "gemma",
                                  "gfdl",
                                  "gpl",
                                  "gpl-2.0",
                                  "gpl-3.0",
                                  "intel-research",
                                  "isc",
                                  "lgpl",
                                  "lgpl-2.1",
                                  "lgpl-3.0",
                                  "lgpl-lr",
                                  "llama2",
                                  "llama3",
                                  "llama3.1",
                                  "llama3.2",
                                  "llama3.3",
                                  "llama4",
                                  "lppl-1.3c",
                                  "mit",
                                  "mpl-2.0",
                                  "ms-pl",
                                  "ncsa",
                                  "odbl",
                                  "odc-by",
                                  "ofl-1.1",
                                  "openrail",
                                  "openrail++",
                                  "osl-3.0",
                                  "pddl",
                                  "postgresql",
                                  "unknown",
                                  "unlicense",
                                  "wtfpl",
                                  "zlib"};

std::string lower(std::string s) {
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return s;
}

// A repository of the Hub, not a folder here that is spelled like one.
bool is_hub_id(const std::string& name) {
  return net::is_repo_id(name) && name.find('/') != std::string::npos && !name.ends_with(".gguf") && !fs::exists(name);
}

void add_unique(OrderedJson& list, const std::string& value) {
  if (std::find(list.begin(), list.end(), OrderedJson(value)) == list.end()) list.push_back(value);
}

OrderedJson datasets_of(const config::Data& d) {
  OrderedJson out = OrderedJson::array();
  if (d.hf_id && is_hub_id(*d.hf_id)) add_unique(out, *d.hf_id);
  for (const config::MixtureSource& m : d.mixture)
    if (m.hf_id && is_hub_id(*m.hf_id)) add_unique(out, *m.hf_id);
  return out;
}

OrderedJson model_index(const Run& run) {
  std::map<std::string, OrderedJson> metrics;  // by dataset
  for (const Measure& m : measures_of(run))
    if (m.after.is_number())
      metrics[m.dataset].push_back({{"type", m.metric}, {"value", OrderedJson(m.after)}, {"name", m.metric}});
  OrderedJson results = OrderedJson::array();
  for (auto& [dataset, list] : metrics)
    results.push_back({{"task", {{"type", "text-generation"}, {"name", "Text Generation"}}},
                       {"dataset", {{"name", dataset}, {"type", dataset}}},
                       {"metrics", std::move(list)}});
  if (results.empty()) return nullptr;
  return OrderedJson::array({{{"name", run.recipe.meta.run_name}, {"results", std::move(results)}}});
}

bool is_plain(const OrderedJson& v) { return !v.is_structured() || v.empty(); }

std::string scalar(const OrderedJson& v) { return v.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

void put(std::string& out, const OrderedJson& v, const std::string& indent) {
  if (v.is_object()) {
    bool first = true;
    for (const auto& [key, value] : v.items()) {
      if (!first) out += indent;
      first = false;
      out += key + ":";
      if (is_plain(value)) {
        out += " " + scalar(value) + "\n";
      } else {
        out += "\n" + indent + (value.is_object() ? "  " : "");
        put(out, value, indent + (value.is_object() ? "  " : ""));
      }
    }
    return;
  }
  bool first = true;
  for (const OrderedJson& item : v) {
    if (!first) out += indent;
    first = false;
    out += "- ";
    if (is_plain(item))
      out += scalar(item) + "\n";
    else
      put(out, item, indent + "  ");
  }
}

}  // namespace

std::string base_model_id(const Run& run) {
  return run.recipe.model.init == config::Init::kPretrained && is_hub_id(run.recipe.model.name) ? run.recipe.model.name
                                                                                                : "";
}

std::vector<Measure> measures_of(const Run& run) {
  std::vector<Measure> out;
  const auto at = "/predicate/results/eval"_json_pointer;
  if (!run.manifest.contains(at)) return out;
  const Json& eval = run.manifest.at(at);
  if (eval.contains("exact_match")) {
    const Json& e = eval["exact_match"];
    const double rows = e.value("rows", 0.0);
    const auto share = [&](const Json& v) { return v.is_number() && rows > 0 ? Json(v.get<double>() / rows) : Json(); };
    const std::string task = run.recipe.data.synth ? std::string(config::text_of(run.recipe.data.synth->task))
                                                   : std::string("held-out rows");
    out.push_back({task, "exact_match", true, share(e.value("before", Json())), share(e.value("after", Json()))});
  }
  if (eval.contains("perplexity")) {
    const Json& p = eval["perplexity"];
    const std::string text = run.recipe.eval && run.recipe.eval->perplexity_path
                                 ? fs::path(*run.recipe.eval->perplexity_path).filename().string()
                                 : std::string("text");
    out.push_back({text, "perplexity", false, p.value("before", Json()), p.value("after", Json())});
  }
  if (const auto after = "/harness/after"_json_pointer; eval.contains(after) && eval.at(after).is_object())
    for (const auto& [task, scores] : eval.at(after).items()) {
      if (!scores.is_object()) continue;
      for (const auto& [key, value] : scores.items()) {
        if (!value.is_number() || key.find("_stderr") != std::string::npos) continue;
        const auto before = Json::json_pointer("/harness/before") / task / key;
        out.push_back(
            {task, key.substr(0, key.find(',')), false, eval.contains(before) ? eval.at(before) : Json(), value});
      }
    }
  return out;
}

OrderedJson front_matter(const Run& run) {
  const config::Recipe& r = run.recipe;
  OrderedJson m;
  const std::string license = lower(r.meta.license);
  if (std::find(kLicenses.begin(), kLicenses.end(), license) != kLicenses.end()) {
    m["license"] = license;
  } else {
    m["license"] = "other";
    m["license_name"] = r.meta.license;
  }
  const bool adapter = r.train.method.lora.has_value();
  if (const std::string base = base_model_id(run); !base.empty()) {
    m["base_model"] = base;
    m["base_model_relation"] = adapter ? "adapter" : "finetune";
  }
  if (OrderedJson d = datasets_of(r.data); !d.empty()) m["datasets"] = std::move(d);
  if (r.data.filter && !r.data.filter->languages.empty()) m["language"] = r.data.filter->languages;
  m["library_name"] = adapter ? "peft" : "transformers";
  m["pipeline_tag"] = "text-generation";
  m["tags"] = {"mindxtrain", config::text_of(r.train.method.kind)};
  if (OrderedJson index = model_index(run); !index.is_null()) m["model-index"] = std::move(index);
  return m;
}

std::string yaml_of(const OrderedJson& map) {
  std::string out;
  put(out, map, "");
  return out;
}

}  // namespace mxt::publish
