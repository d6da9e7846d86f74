#include "eval/evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "eval/python/literal.h"
#include "eval/task/index.h"

namespace mxt::eval {
namespace {

struct Running {
  std::unique_ptr<Task> task;
  std::vector<Request> requests;
  size_t documents = 0;
};

// Values of one metric under one filter, in the order of the documents.
using Values = std::vector<std::pair<std::pair<std::string, std::string>, std::vector<OrderedJson>>>;

OrderedJson finite(double v) { return std::isfinite(v) ? OrderedJson(v) : OrderedJson(python_repr(v)); }

std::string argument_text(const Request& r) { return r.type == OutputType::kRolling ? r.continuation : r.context; }

// Response values as text, as the harness writes them.
OrderedJson as_text(const OrderedJson& v) {
  if (!v.is_array()) return python_str(v);
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& x : v) out.push_back(as_text(x));
  return out;
}

OrderedJson arguments_of(const std::vector<const Request*>& requests) {
  OrderedJson out = OrderedJson::object();
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& r = *requests[i];
    OrderedJson& a = out["gen_args_" + std::to_string(i)];
    a["arg_0"] = argument_text(r);
    if (r.type == OutputType::kGenerate)
      a["arg_1"] = r.generation;
    else if (r.type == OutputType::kLoglikelihood)
      a["arg_1"] = r.continuation;
  }
  return out;
}

// One line of a samples file.
OrderedJson sample(const Task& task, int64_t doc_id, const OrderedJson& doc,
                   const std::vector<const Request*>& requests, const std::vector<OrderedJson>& filtered,
                   const std::string& filter, const DocMetrics& metrics) {
  const std::string target = python_str(task.target(doc));
  OrderedJson s = {{"doc_id", doc_id}, {"doc", doc}, {"target", target}, {"arguments", arguments_of(requests)}};
  OrderedJson resps = OrderedJson::array(), kept = OrderedJson::array(), names = OrderedJson::array();
  for (const Request* r : requests) resps.push_back(as_text(r->responses));
  for (const OrderedJson& f : filtered) kept.push_back(as_text(f));
  for (const auto& [name, value] : metrics) names.push_back(name);
  s["resps"] = resps;
  s["filtered_resps"] = kept;
  s["filter"] = filter;
  s["metrics"] = names;
  s["doc_hash"] = sha256_hex(json_dumps_indent(doc));
  s["prompt_hash"] = sha256_hex(argument_text(*requests[0]));
  s["target_hash"] = sha256_hex(target);
  for (const auto& [name, value] : metrics) s[name] = value;
  return s;
}

Values score(const Running& r, const ProgramRunner& run, TaskSamples& samples) {
  const Task& task = *r.task;
  std::vector<std::vector<const Request*>> by_doc(r.documents);
  for (const Request& q : r.requests) by_doc[static_cast<size_t>(q.doc_id)].push_back(&q);
  Values values;
  auto slot = [&](const std::string& metric, const std::string& filter) -> std::vector<OrderedJson>& {
    for (auto& [key, list] : values)
      if (key.first == metric && key.second == filter) return list;
    return values.emplace_back(std::pair{metric, filter}, std::vector<OrderedJson>{}).second;
  };
  for (const FilterChain& f : task.filters())
    for (size_t d = 0; d < r.documents; ++d) {
      const OrderedJson& doc = task.docs()[d];
      std::vector<OrderedJson> filtered;
      for (const Request* q : by_doc[d]) filtered.push_back(f.apply(q->responses, doc));
      const DocMetrics metrics = task.score(doc, filtered, run);
      samples.samples.push_back(sample(task, static_cast<int64_t>(d), doc, by_doc[d], filtered, f.name(), metrics));
      for (const auto& [name, value] : metrics) slot(name, f.name()).push_back(value);
    }
  return values;
}

OrderedJson aggregate(const Task& task, const Values& values, int64_t bootstrap) {
  OrderedJson out = {{"name", task.name()},
                     {"alias", task.config()["task_alias"].is_string() ? task.config()["task_alias"].get<std::string>()
                                                                       : task.name()}};
  size_t most = 0;
  for (const auto& [key, list] : values) most = std::max(most, list.size());
  out["sample_len"] = most;
  for (const auto& [key, list] : values) {
    const Aggregation& a = task.aggregation_of(key.first);
    out[key.first + "," + key.second] = finite(a.compute(list));
    const OrderedJson e = standard_error(a, list, bootstrap);
    out[key.first + "_stderr," + key.second] = e.is_null() ? OrderedJson("N/A") : finite(e.get<double>());
  }
  return out;
}

OrderedJson aggregate_group(const Group& g, const OrderedJson& tasks) {
  OrderedJson out = {{"alias", g.alias}, {"name", g.name}};
  if (g.aggregates.empty()) return out;
  int64_t total = 0;
  for (const std::string& t : g.leaves) total += tasks[t].value("sample_len", int64_t{0});
  out["sample_len"] = total;
  OrderedJson counts = OrderedJson::object();
  for (const Group::Aggregate& a : g.aggregates) {
    std::set<std::string> filters(a.filters.begin(), a.filters.end());
    if (filters.empty())
      for (const std::string& t : g.leaves)
        for (const auto& [k, v] : tasks[t].items())
          if (k.starts_with(a.metric + ",")) filters.insert(k.substr(a.metric.size() + 1));
    for (const std::string& f : filters) {
      const std::string key = a.metric + "," + f, error_key = a.metric + "_stderr," + f;
      std::vector<double> values, errors, sizes;
      for (const std::string& t : g.leaves) {
        if (!tasks[t].contains(key) || !tasks[t][key].is_number()) continue;
        values.push_back(tasks[t][key]);
        sizes.push_back(tasks[t]["sample_len"]);
        if (tasks[t][error_key].is_number()) errors.push_back(tasks[t][error_key]);
      }
      if (values.empty()) continue;
      double sum = 0, weight = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double w = a.weight_by_size ? sizes[i] : 1;
        sum += values[i] * w;
        weight += w;
      }
      out[key] = finite(sum / weight);
      int64_t n = 0;
      for (double s : sizes) n += static_cast<int64_t>(s);
      counts[key] = n;
      const bool known = errors.size() == values.size();
      out[error_key] =
          known ? finite(a.weight_by_size ? pooled_standard_error(errors, sizes) : unweighted_standard_error(errors))
                : OrderedJson("N/A");
    }
  }
  if (!counts.empty()) out["sample_count"] = counts;
  return out;
}

OrderedJson sorted(const OrderedJson& j) {
  std::map<std::string, OrderedJson> m;
  for (const auto& [k, v] : j.items()) m[k] = v;
  OrderedJson out = OrderedJson::object();
  for (const auto& [k, v] : m) out[k] = v;
  return out;
}

}  // namespace

namespace {

std::vector<Running> prepare(const Selection& selection, const EvaluateOptions& o) {
  std::vector<Running> running;
  bool programs = false;
  for (const OrderedJson& config : selection.tasks) {
    Running r;
    try {
      r.task = std::make_unique<Task>(config, o.data_folders);
      if (o.fewshot) r.task->set_fewshot(*o.fewshot, o.fewshot_always);
      programs |= r.task->runs_programs();
      r.requests = r.task->requests(o.limit, o.style);
    } catch (const OrderedJson::type_error& e) {
      const std::string what = e.what();  // "[json.exception.type_error.302] type must be string, but is number"
      fail_input("task {}: a value is of the wrong kind: {}", config.value("task", std::string("?")),
                 what.substr(std::min(what.size(), what.find("] ") + 2)));
    }
    r.documents = static_cast<size_t>(r.requests.back().doc_id) + 1;
    running.push_back(std::move(r));
  }
  if (programs) o.run_programs({});  // says now where there is no sandbox
  return running;
}

}  // namespace

void check_tasks(const EvaluateOptions& o) { prepare(TaskIndex(o.task_folders).select(o.tasks), o); }

Evaluation evaluate(LanguageModel& model, const EvaluateOptions& o) {
  const Selection selection = TaskIndex(o.task_folders).select(o.tasks);
  std::vector<Running> running = prepare(selection, o);
  std::map<int64_t, std::vector<Request*>> by_repeats;
  for (const Running& r : running)
    if (r.task->shows_tools() && !o.style.with_tools)
      fail_input("task {}: shows tools, and the model has no chat template to show them in", r.task->name());
  for (const Running& r : running)
    log::info("task {}: {} of {} documents, {} requests, {} examples", r.task->name(), r.documents,
              r.task->docs().size(), r.requests.size(), r.task->num_fewshot());
  for (Running& r : running)
    for (Request& q : r.requests) by_repeats[r.task->repeats()].push_back(&q);
  Evaluation e;
  RequestCache cache(o.cache);
  for (auto& [repeats, requests] : by_repeats)
    if (!model.run(requests, repeats, cache)) {
      e.finished = false;
      return e;
    }
  OrderedJson results = OrderedJson::object(), configs = OrderedJson::object(), versions = OrderedJson::object(),
              shots = OrderedJson::object(), better = OrderedJson::object(), counts = OrderedJson::object(),
              hashes = OrderedJson::object();
  for (const Running& r : running) {
    const Task& t = *r.task;
    TaskSamples samples{t.name(), {}};
    results[t.name()] = aggregate(t, score(r, o.run_programs, samples), o.bootstrap_iterations);
    configs[t.name()] = t.shown_config();
    versions[t.name()] = t.version();
    shots[t.name()] = t.num_fewshot();
    better[t.name()] = t.higher_is_better();
    counts[t.name()] = {{"original", t.docs().size()}, {"effective", results[t.name()]["sample_len"]}};
    std::string all;
    for (const OrderedJson& s : samples.samples)
      all +=
          s["doc_hash"].get<std::string>() + s["prompt_hash"].get<std::string>() + s["target_hash"].get<std::string>();
    hashes[t.name()] = sha256_hex(all);
    e.samples.push_back(std::move(samples));
  }
  OrderedJson groups = OrderedJson::object(), subtasks = OrderedJson::object();
  for (const Group& g : selection.groups) {
    results[g.name] = aggregate_group(g, results);
    versions[g.name] = g.version;
    if (!g.aggregates.empty()) groups[g.name] = results[g.name];
    subtasks[g.name] = g.children;
    OrderedJson merged = OrderedJson::object();
    std::set<int64_t> fewshot;
    for (const std::string& t : g.leaves) {
      if (better.contains(t)) merged.update(better[t]);
      fewshot.insert(shots[t].get<int64_t>());
    }
    better[g.name] = merged;
    if (fewshot.size() == 1) shots[g.name] = *fewshot.begin();
  }
  e.results["results"] = results;
  if (!groups.empty()) e.results["groups"] = groups;
  e.results["group_subtasks"] = subtasks;
  e.results["configs"] = sorted(configs);
  e.results["versions"] = sorted(versions);
  e.results["n-shot"] = sorted(shots);
  e.results["higher_is_better"] = sorted(better);
  e.results["n-samples"] = counts;
  e.results["task_hashes"] = hashes;
  return e;
}

}  // namespace mxt::eval
