// What lm-evaluation-harness makes of the same inputs (tools/golden/eval.py).
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "eval/lm/language_model.h"
#include "eval/python/literal.h"
#include "eval/python/random.h"
#include "eval/score/filters.h"
#include "eval/score/metrics.h"
#include "eval/task/index.h"
#include "eval/task/task.h"
#include "folders.h"
#include "jinja/jinja.h"

namespace mxt::eval {
namespace {

const std::string kFolder = std::string(kSourceDir) + "/tests/golden/eval";

OrderedJson golden(const std::string& name) { return parse_ordered_json(read_file(kFolder + "/" + name), name); }

TEST(EvalGolden, DrawsAsPythonsRandomDoes) {
  for (const OrderedJson all = golden("python.json"); const OrderedJson& d : all["draws"]) {
    PythonRandom r(d["seed"].get<uint64_t>());
    for (const OrderedJson& c : d["sample"])
      EXPECT_EQ(r.sample(c[0], c[1]), c[2].get<std::vector<size_t>>()) << d["seed"] << " " << c[0] << " " << c[1];
    std::vector<size_t> picks(12);
    r.choices(97, picks);
    EXPECT_EQ(picks, d["choices"].get<std::vector<size_t>>());
    for (const OrderedJson& x : d["random"]) EXPECT_EQ(r.real(), x.get<double>());
  }
}

TEST(EvalGolden, ReadsAndPrintsPythonLiterals) {
  for (const OrderedJson all = golden("python.json"); const OrderedJson& l : all["literals"]) {
    const auto v = literal_eval(l[0].get<std::string>());
    ASSERT_EQ(v.has_value(), l.size() > 1) << l[0];
    if (!v) continue;
    EXPECT_EQ(*v, l[1]) << l[0];
    if (l[0].get<std::string>()[0] != '{') {
      EXPECT_EQ(python_str(*v), l[2].get<std::string>()) << l[0];
    }
  }
}

TEST(EvalGolden, CutsRollingWindowsAlike) {
  for (const OrderedJson all = golden("python.json"); const OrderedJson& w : all["windows"]) {
    std::vector<int32_t> tokens(w["tokens"].get<size_t>());
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = 100 + static_cast<int32_t>(i);
    const auto got = rolling_windows(tokens, 7, w["max"]);
    ASSERT_EQ(got.size(), w["windows"].size()) << w;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].context, w["windows"][i][0].get<std::vector<int32_t>>()) << w;
      EXPECT_EQ(got[i].continuation, w["windows"][i][1].get<std::vector<int32_t>>()) << w;
    }
  }
}

TEST(EvalGolden, RendersTemplatesAlike) {
  const OrderedJson g = golden("templates.json");
  for (const OrderedJson& c : g["cases"]) {
    const std::string source = c[0];
    if (c[1].is_null()) {
      EXPECT_THROW(jinja::render(*jinja::Template::compile(source, "t", jinja::Style::plain()), g["doc"]), Error)
          << source;
      continue;
    }
    EXPECT_EQ(jinja::render(*jinja::Template::compile(source, "t", jinja::Style::plain()), g["doc"]),
              c[1].get<std::string>())
        << source;
  }
}

TEST(EvalGolden, FiltersAnswersAlike) {
  const OrderedJson g = golden("filters.json");
  for (const OrderedJson& c : g["cases"]) {
    const FilterChain chain({{"name", "f"}, {"filter", c["filter"]}}, "t");
    EXPECT_EQ(chain.apply(c["responses"].get<std::vector<OrderedJson>>(), g["doc"]), c["result"]) << c;
  }
}

// lm-evaluation-harness 0.4.13: the first group that is not empty, then stripped; the fallback where all are empty.
TEST(Filters, AGroupOfWhiteSpaceIsAnAnswer) {
  const FilterChain chain({{"name", "f"},
                           {"filter",
                            {{{"function", "regex"}, {"regex_pattern", "(\\w)|(\\s)"}, {"group_select", -1}},
                             {{"function", "take_first"}}}}},
                          "t");
  EXPECT_EQ(chain.apply({":: h "}, {}), "");
  EXPECT_EQ(chain.apply({":: h"}, {}), "h");
  EXPECT_EQ(chain.apply({"::"}, {}), "[invalid]");
}

TEST(EvalGolden, MetricsAndStandardErrorsAreEqual) {
  const OrderedJson g = golden("metrics.json");
  for (const OrderedJson& c : g["exact_match"])
    EXPECT_EQ(exact_match(c[0], c[1], exact_match_options(c[2], "t")) ? 1.0 : 0.0, c[3].get<double>()) << c;
  for (const OrderedJson& c : g["aggregations"]) {
    const Aggregation a = aggregation(c["name"], "t");
    const auto items = c["items"].get<std::vector<OrderedJson>>();
    EXPECT_NEAR(a.compute(items), c["value"].get<double>(), 1e-12 * (1 + std::fabs(c["value"].get<double>())))
        << c["name"];
    const OrderedJson e = standard_error(a, items, c["iterations"]);
    ASSERT_EQ(e.is_null(), c["stderr"].is_null()) << c["name"];
    if (!e.is_null()) {
      EXPECT_NEAR(e.get<double>(), c["stderr"].get<double>(), 1e-9) << c["name"];
    }
  }
  const auto errors = g["pooled"][0].get<std::vector<double>>(), sizes = g["pooled"][1].get<std::vector<double>>();
  EXPECT_NEAR(pooled_standard_error(errors, sizes), g["pooled"][2].get<double>(), 1e-12);
  EXPECT_NEAR(unweighted_standard_error(errors), g["pooled"][3].get<double>(), 1e-12);
}

TEST(EvalGolden, RequestsOfTasksAreEqual) {
  const OrderedJson g = golden("requests.json");
  const Selection s = TaskIndex({kFolder + "/tasks"}).select({"quiz_all", "quiz_generate", "quiz_text"});
  ASSERT_EQ(s.tasks.size(), g.size());
  for (const OrderedJson& config : s.tasks) {
    Task task(config, {kFolder + "/data"});
    const OrderedJson& want = g.at(task.name());
    const auto got = task.requests(5, {});
    ASSERT_EQ(got.size(), want.size()) << task.name();
    for (size_t i = 0; i < got.size(); ++i) {
      const OrderedJson& args = want[i]["arguments"];
      const OrderedJson& doc = task.docs()[static_cast<size_t>(got[i].doc_id)];
      EXPECT_EQ(got[i].doc_id, want[i]["doc_id"].get<int64_t>());
      EXPECT_EQ(got[i].index, want[i]["index"].get<int64_t>());
      if (got[i].type == OutputType::kRolling) {
        EXPECT_EQ(got[i].continuation, args[0].get<std::string>());
      } else {
        EXPECT_EQ(got[i].context, args[0].get<std::string>()) << task.name() << " " << i;
        if (got[i].type == OutputType::kLoglikelihood)
          EXPECT_EQ(got[i].continuation, args[1].get<std::string>());
        else
          EXPECT_EQ(got[i].generation, args[1]);
      }
      EXPECT_EQ(sha256_hex(json_dumps_indent(doc)), want[i]["doc_hash"].get<std::string>()) << json_dumps_indent(doc);
      EXPECT_EQ(python_str(task.target(doc)), want[i]["target"].get<std::string>());
    }
  }
}

TEST(EvalGolden, GroupsHoldTheirTasks) {
  const Selection s = TaskIndex({kFolder + "/tasks"}).select({"quiz_all"});
  ASSERT_EQ(s.groups.size(), 2u);
  EXPECT_EQ(s.groups[0].name, "quiz_all::inner");
  EXPECT_FALSE(s.groups[0].aggregates[0].weight_by_size);
  EXPECT_EQ(s.groups[1].alias, "Quiz");
  EXPECT_EQ(s.groups[1].leaves, (std::vector<std::string>{"quiz_choice", "quiz_first", "quiz_last"}));
  EXPECT_EQ(s.groups[1].version, "1");
}

}  // namespace
}  // namespace mxt::eval
