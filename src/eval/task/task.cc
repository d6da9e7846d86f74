#include "eval/task/task.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "eval/python/literal.h"
#include "eval/task/yaml.h"

namespace mxt::eval {
namespace {

// Keys of a task and what stands where a file says nothing (null: not shown).
const OrderedJson& defaults() {
  static const OrderedJson d = {{"task", nullptr},
                                {"task_alias", nullptr},
                                {"tag", nullptr},
                                {"custom_dataset", nullptr},
                                {"dataset_path", nullptr},
                                {"dataset_name", nullptr},
                                {"dataset_kwargs", nullptr},
                                {"training_split", nullptr},
                                {"validation_split", nullptr},
                                {"test_split", nullptr},
                                {"fewshot_split", nullptr},
                                {"process_docs", nullptr},
                                {"doc_to_text", nullptr},
                                {"doc_to_target", nullptr},
                                {"doc_to_image", nullptr},
                                {"doc_to_audio", nullptr},
                                {"unsafe_code", false},
                                {"doc_to_choice", nullptr},
                                {"doc_to_tools", nullptr},
                                {"process_results", nullptr},
                                {"use_prompt", nullptr},
                                {"description", ""},
                                {"target_delimiter", " "},
                                {"fewshot_delimiter", "\n\n"},
                                {"fewshot_config", nullptr},
                                {"num_fewshot", nullptr},
                                {"metric_list", nullptr},
                                {"output_type", "generate_until"},
                                {"generation_kwargs", nullptr},
                                {"repeats", 1},
                                {"filter_list", nullptr},
                                {"should_decontaminate", false},
                                {"doc_to_decontamination_query", nullptr},
                                {"gen_prefix", nullptr},
                                {"metadata", nullptr}};
  return d;
}

const std::set<std::string> kFewshotKeys = {
    "sampler",       "split",         "process_docs", "fewshot_indices",   "samples",         "doc_to_text",
    "doc_to_choice", "doc_to_target", "gen_prefix",   "fewshot_delimiter", "target_delimiter"};

// Functions are shown by name.
OrderedJson shown(const OrderedJson& v) {
  if (is_function(v)) return function_name(v);
  if (!v.is_structured()) return v;
  OrderedJson out = v.is_array() ? OrderedJson::array() : OrderedJson::object();
  if (v.is_array())
    for (const OrderedJson& x : v) out.push_back(shown(x));
  else
    for (const auto& [k, x] : v.items()) out[k] = shown(x);
  return out;
}

}  // namespace

std::string output_type_name(OutputType t) {
  switch (t) {
    case OutputType::kLoglikelihood:
      return "loglikelihood";
    case OutputType::kMultipleChoice:
      return "multiple_choice";
    case OutputType::kRolling:
      return "loglikelihood_rolling";
    case OutputType::kGenerate:
      return "generate_until";
  }
  return "";
}

void Task::fail(const std::string& what) const { fail_input("task {}: {}", name_, what); }

std::string Task::text_key(const char* key, const std::string& otherwise) const {
  const OrderedJson& v = config_.at(key);
  if (v.is_null()) return otherwise;
  if (!v.is_string()) fail(fmt::format("{} is text", key));
  return v;
}

Task::Task(OrderedJson given, const std::vector<std::string>& folders) : config_(defaults()) {
  name_ = given.value("task", std::string("?"));
  std::vector<std::string> keys;
  for (const auto& [k, v] : defaults().items()) keys.push_back(k);
  for (const auto& [k, v] : given.items()) {
    if (!config_.contains(k)) {
      const std::string near = nearest(k, keys);
      fail(fmt::format("the key {} is not known{}", k, near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
    }
    config_[k] = v;
  }
  for (const char* absent : {"doc_to_image", "doc_to_audio", "use_prompt"})
    if (!config_[absent].is_null()) fail_missing("task {}: {} is not supported here", name_, absent);
  const std::string type = text_key("output_type", "generate_until");
  if (type == "loglikelihood")
    type_ = OutputType::kLoglikelihood;
  else if (type == "multiple_choice")
    type_ = OutputType::kMultipleChoice;
  else if (type == "loglikelihood_rolling")
    type_ = OutputType::kRolling;
  else if (type == "generate_until")
    type_ = OutputType::kGenerate;
  else
    fail(fmt::format("output_type {} is none of loglikelihood, multiple_choice, loglikelihood_rolling, generate_until",
                     type));
  target_delimiter_ = text_key("target_delimiter", "");
  fewshot_delimiter_ = text_key("fewshot_delimiter", "");
  if (!config_["num_fewshot"].is_null()) {
    if (!config_["num_fewshot"].is_number_integer() || config_["num_fewshot"] < 0)
      fail("num_fewshot is a whole number from 0");
    fewshot_ = config_["num_fewshot"];
    fewshot_is_zero_ = fewshot_ == 0;
  }
  if (!config_["repeats"].is_number_integer() || config_["repeats"] < 1 || config_["repeats"] > 10'000)
    fail("repeats is a whole number from 1 to 10000");
  repeats_ = config_["repeats"];
  if (type_ == OutputType::kGenerate) {
    OrderedJson& g = config_["generation_kwargs"];
    if (g.is_null())
      g = {{"until", OrderedJson::array({fewshot_delimiter_})}, {"do_sample", false}, {"temperature", 0}};
    if (!g.is_object()) fail("generation_kwargs is a map");
    if (!g.contains("until")) g["until"] = OrderedJson::array({fewshot_delimiter_});
  }
  if (config_["fewshot_config"].is_null()) config_["fewshot_config"] = OrderedJson::object();
  if (!config_["fewshot_config"].is_object()) fail("fewshot_config is a map");
  for (const auto& [k, v] : config_["fewshot_config"].items())
    if (!kFewshotKeys.contains(k)) fail(fmt::format("fewshot_config has no key {}", k));
  read_metrics();
  read_documents(folders);
  read_fields();
}

void Task::set_fewshot(int64_t n, bool always) {
  if (fewshot_is_zero_ && !always) {
    if (n != 0) log::info("task {}: stays at 0 examples, as its own file says", name_);
    return;
  }
  fewshot_ = n;
  config_["num_fewshot"] = n;
}

void Task::read_metrics() {
  if (is_function(config_["process_results"])) {
    process_results_ = &known_function(config_["process_results"], "task " + name_ + ": process_results");
    if (!process_results_->results) fail("process_results names a function that scores no results");
  } else if (!config_["process_results"].is_null()) {
    fail("process_results names a function (!function module.name)");
  }
  OrderedJson list = config_["metric_list"];
  if (list.is_null()) {
    list = OrderedJson::array();
    for (const std::string& m : default_metrics(text_key("output_type", ""))) list.push_back({{"metric", m}});
  }
  if (!list.is_array()) fail("metric_list is a list");
  for (const OrderedJson& m : list) {
    if (!m.is_object() || !m.contains("metric")) fail("an entry of metric_list names a metric");
    Metric metric;
    const OrderedJson& name = m["metric"];
    std::string by_default = "mean";
    metric.higher_is_better = true;
    if (is_function(name)) {
      if (!known_function(name, "task " + name_ + ": metric_list").pass_at_k)
        fail(fmt::format("{} is no metric", function_name(name)));
      metric.name = "pass_at_k";
      const OrderedJson k = m.value("k", OrderedJson::array({1}));
      for (const OrderedJson& x : k.is_array() ? k : OrderedJson::array({k})) pass_at_.push_back(x.get<int64_t>());
    } else {
      if (!name.is_string()) fail("metric is a name");
      metric.name = name;
      const std::string where = "task " + name_ + ": " + metric.name;
      if (m.contains("hf_evaluate") && m["hf_evaluate"] == true)
        fail_missing("{}: metrics of the evaluate library are not supported here", where);
      if (!process_results_) {
        const MetricInfo info = metric_info(metric.name, where);
        by_default = info.aggregation;
        metric.higher_is_better = info.higher_is_better;
        if (metric.name == "exact_match") metric.exact = exact_match_options(m, where);
        const bool from_text = metric.name == "exact_match" || metric.name == "bypass" || metric.name == "bleu" ||
                               metric.name == "chrf" || metric.name == "ter";
        if (type_ == OutputType::kGenerate && !from_text)
          fail_missing("{}: not a metric of generated text here", where);
      } else {
        try {
          const MetricInfo info = metric_info(metric.name, where);
          by_default = info.aggregation;
          metric.higher_is_better = info.higher_is_better;
        } catch (const Error&) {  // a name of process_results' own
        }
      }
    }
    const OrderedJson agg = m.value("aggregation", OrderedJson(by_default));
    const std::string where = "task " + name_ + ": " + metric.name + ": aggregation";
    if (is_function(agg)) {
      metric.aggregation.name = function_name(agg);
      metric.aggregation.compute = known_function(agg, where).aggregate;
      if (!metric.aggregation.compute) fail(fmt::format("{} is no aggregation", function_name(agg)));
    } else {
      metric.aggregation = aggregation(agg.is_string() ? agg.get<std::string>() : agg.dump(), where);
    }
    if (m.contains("higher_is_better") && !m["higher_is_better"].is_boolean())
      fail("higher_is_better is true or false");
    if (m.contains("higher_is_better")) metric.higher_is_better = m["higher_is_better"];
    if (metric.name == "pass_at_k")
      for (int64_t k : pass_at_) expanded_[fmt::format("pass@{}", k)] = metric.aggregation;
    // The last of a name counts, as in a dict.
    const auto same =
        std::find_if(metrics_.begin(), metrics_.end(), [&](const Metric& o) { return o.name == metric.name; });
    same == metrics_.end() ? metrics_.push_back(std::move(metric)) : void(*same = std::move(metric));
  }
  if (config_["filter_list"].is_null()) {
    filters_.emplace_back(OrderedJson(), "task " + name_);
  } else {
    if (!config_["filter_list"].is_array() || config_["filter_list"].empty()) fail("filter_list is a list");
    for (const OrderedJson& f : config_["filter_list"]) filters_.emplace_back(f, "task " + name_);
  }
}

void Task::read_documents(const std::vector<std::string>& folders) {
  Dataset data(config_, folders);
  const OrderedJson& fs = config_["fewshot_config"];
  const std::string train = text_key("training_split", ""), valid = text_key("validation_split", ""),
                    test = text_key("test_split", "");
  auto load = [&](const std::string& split, const OrderedJson& process) {
    Table t = data.split(split);
    if (!process.is_null()) {
      const std::string where = "task " + name_ + ": process_docs";
      if (!is_function(process)) fail_input("{} names a function (!function module.name)", where);
      const auto& f = known_function(process, where).process_docs;
      if (!f) fail_input("{}: {} does not change documents", where, function_name(process));
      f(t);
    }
    return t;
  };
  const std::string eval_split = !test.empty() ? test : valid;
  if (eval_split.empty()) fail("names neither a test_split nor a validation_split");
  Table t = load(eval_split, config_["process_docs"]);
  docs_ = t.rows;
  columns_ = t.columns;
  // Where examples come from, in the order of lm-evaluation-harness's rule.
  std::string split =
      fs.contains("split") && fs["split"].is_string() ? fs["split"].get<std::string>() : text_key("fewshot_split", "");
  exclude_doc_ = split == test;  // both may be absent
  const std::string sampler =
      fs.value("sampler", OrderedJson("default")).is_string() ? fs.value("sampler", std::string("default")) : "?";
  if (sampler != "default" && sampler != "first_n")
    fail(fmt::format("fewshot_config.sampler is default or first_n, not {}", sampler));
  first_n_ = sampler == "first_n";
  try {
    if (!split.empty()) {
      fewshot_docs_ = load(split, fs.contains("process_docs") ? fs["process_docs"] : config_["process_docs"]).rows;
    } else if (fs.contains("samples") && !fs["samples"].is_null()) {
      if (!fs["samples"].is_array())
        fail_missing("task {}: fewshot_config.samples from Python code is not supported here", name_);
      fewshot_docs_ = fs["samples"].get<std::vector<OrderedJson>>();
    } else if (const std::string& from = !train.empty() ? train : !valid.empty() ? valid : test; from == eval_split) {
      fewshot_docs_ = docs_;
    } else {
      fewshot_docs_ = load(from, config_["process_docs"]).rows;
    }
  } catch (const Error& e) {
    // Examples that nobody asks for need not be there.
    if (e.code() != Exit::kMissing) throw;
    fewshot_missing_ = e.what();
  }
}

void Task::read_fields() {
  const OrderedJson& fs = config_["fewshot_config"];
  auto field = [&](const char* key) { return Field(config_.at(key), "task " + name_ + ": " + key, columns_); };
  auto shot = [&](const char* key) {
    const bool own = fs.contains(key);
    return Field(own ? fs[key] : config_.at(key), "task " + name_ + ": " + (own ? "fewshot_config." : "") + key,
                 columns_);
  };
  text_ = field("doc_to_text");
  target_ = field("doc_to_target");
  choice_ = field("doc_to_choice");
  description_ = field("description");
  gen_prefix_ = field("gen_prefix");
  tools_ = field("doc_to_tools");
  if (tools_.set() && (type_ != OutputType::kGenerate || gen_prefix_.set()))
    fail("doc_to_tools is for output_type generate_until, without a gen_prefix");
  shot_.text = shot("doc_to_text");
  shot_.target = shot("doc_to_target");
  shot_.choice = shot("doc_to_choice");
  shot_.gen_prefix = shot("gen_prefix");
  auto delimiter = [&](const char* key, const std::string& otherwise) {
    return fs.contains(key) && fs[key].is_string() ? fs[key].get<std::string>() : otherwise;
  };
  shot_.target_delimiter = delimiter("target_delimiter", target_delimiter_);
  shot_.delimiter = delimiter("fewshot_delimiter", fewshot_delimiter_);
  if (!text_.set() || !target_.set()) fail(text_.set() ? "doc_to_target is missing" : "doc_to_text is missing");
  if (type_ == OutputType::kMultipleChoice && !choice_.set()) fail("doc_to_choice is missing");
  multiple_input_ = choice_.set() && text_of(docs_[0], text_).is_number_integer();
  multiple_target_ = target_of(docs_[0], target_).is_array();
}

OrderedJson Task::text_of(const OrderedJson& doc, const Field& f) const {
  const OrderedJson v = f.of(doc);
  if (f.is_text() && !f.is_column() && choice_.set() && is_digit_text(v.get_ref<const std::string&>()))
    if (const auto n = literal_eval(v.get_ref<const std::string&>())) return *n;
  return v;
}

OrderedJson Task::target_of(const OrderedJson& doc, const Field& f) const {
  const OrderedJson v = f.of(doc);
  if (!f.is_text() || f.is_column()) return v;
  const std::string& s = v.get_ref<const std::string&>();
  if (choice_.set() && is_digit_text(s))
    if (const auto n = literal_eval(s)) return *n;
  if (s.size() >= 2 && s.front() == '[' && s.back() == ']')
    if (const auto list = literal_eval(s)) return *list;
  return v;
}

std::vector<std::string> Task::choices_of(const OrderedJson& doc, const Field& f) const {
  OrderedJson v = f.of(doc);
  if (f.is_text() && !f.is_column()) {
    const auto list = literal_eval(v.get_ref<const std::string&>());
    if (!list) fail(fmt::format("doc_to_choice gives no list: {}", json_text(v).substr(0, 200)));
    v = *list;
  }
  std::vector<std::string> out;
  if (!v.is_structured()) fail("doc_to_choice gives no list");
  for (const OrderedJson& c : v) {  // the values of a map
    if (!c.is_string()) fail(fmt::format("a choice is text, not {}", json_text(c).substr(0, 200)));
    out.push_back(c);
  }
  if (out.empty()) fail("doc_to_choice gives an empty list");
  return out;
}

std::string Task::resolve(const OrderedJson& doc, const Field& f) const {
  if (!f.set() || (f.is_text() && !f.is_column() && f.of(doc) == "")) return "";
  const OrderedJson v = f.of(doc);
  return v.is_null() ? "" : python_str(v);
}

OrderedJson Task::target(const OrderedJson& doc) const { return target_of(doc, target_); }

const Aggregation& Task::aggregation_of(const std::string& metric) const {
  for (const Metric& m : metrics_)
    if (m.name == metric) return m.aggregation;
  if (const auto it = expanded_.find(metric); it != expanded_.end()) return it->second;
  static const Aggregation plain = aggregation("mean", "");
  return plain;
}

OrderedJson Task::higher_is_better() const {
  OrderedJson out = OrderedJson::object();
  for (const Metric& m : metrics_) out[m.name] = m.higher_is_better;
  for (const auto& [name, a] : expanded_) out[name] = true;
  return out;
}

OrderedJson Task::shown_config() const {
  OrderedJson out = OrderedJson::object();
  for (const auto& [k, v] : config_.items())
    if (!v.is_null()) out[k] = shown(v);
  return out;
}

OrderedJson Task::version() const {
  const OrderedJson& m = config_["metadata"];
  return m.is_object() && m.contains("version") ? m["version"] : OrderedJson("Yaml");
}

bool Task::has(const std::string& metric) const {
  return std::any_of(metrics_.begin(), metrics_.end(), [&](const Metric& m) { return m.name == metric; });
}

}  // namespace mxt::eval
