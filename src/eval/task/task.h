// One task: its documents, the requests they become, and what answers are worth. Follows lm-evaluation-harness's
// ConfigurableTask.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/python/random.h"
#include "eval/score/filters.h"
#include "eval/score/metrics.h"
#include "eval/task/documents.h"
#include "eval/task/field.h"
#include "eval/task/functions.h"

namespace mxt::eval {

enum class OutputType { kLoglikelihood, kMultipleChoice, kRolling, kGenerate };

// One thing to ask the model. Answers: kLoglikelihood [sum of ln p, whether greedy decoding gives the same], kRolling a
// number, kGenerate text.
struct Request {
  OutputType type = OutputType::kLoglikelihood;  // never kMultipleChoice
  int64_t doc_id = 0, index = 0;                 // index among the document's requests
  std::string context, continuation;             // kRolling: the text is `continuation`
  OrderedJson generation;                        // generation_kwargs
  std::vector<OrderedJson> responses;            // `repeats` of them once run
};

struct Message {
  std::string role, content, delimiter;
};

// How contexts are written.
struct ContextStyle {
  // Turns messages into text where a chat template is applied. `continues`: the last message is the beginning of the
  // answer.
  std::function<std::string(const std::vector<Message>& messages, bool continues)> chat;
  // The same for a task that shows tools (a JSON list), whatever is set for others; null: no template that could.
  std::function<std::string(const std::vector<Message>& messages, const OrderedJson& tools)> with_tools;
  bool fewshot_as_multiturn = true;
  std::string system_instruction;
};

// Runs programs for pass@k: source text → whether it passed.
using ProgramRunner = std::function<std::vector<bool>(const std::vector<std::string>& programs)>;

class Task {
 public:
  // Reads the documents. Errors name the task and the key.
  Task(OrderedJson config, const std::vector<std::string>& data_folders);

  const std::string& name() const { return name_; }
  const OrderedJson& config() const { return config_; }  // with every default written out
  OrderedJson shown_config() const;                      // as results files show it: without nulls, functions by name
  OutputType type() const { return type_; }
  int64_t num_fewshot() const { return fewshot_; }
  // A task that says 0 itself stays at 0 unless `always`.
  void set_fewshot(int64_t n, bool always);
  int64_t repeats() const { return repeats_; }
  const std::vector<OrderedJson>& docs() const { return docs_; }
  const std::vector<FilterChain>& filters() const { return filters_; }
  bool runs_programs() const { return !pass_at_.empty(); }
  // doc_to_tools, a key of our own: the functions that a document's question is asked with, always in a chat.
  bool shows_tools() const { return tools_.set(); }

  // Requests of the first `limit` documents (0: all), in order. Few-shot examples are drawn with `seed`, as they would
  // be there.
  std::vector<Request> requests(int64_t limit, const ContextStyle& style, uint64_t seed = 1234);
  // `results`: of a document's requests, after one chain of filters.
  DocMetrics score(const OrderedJson& doc, const std::vector<OrderedJson>& results, const ProgramRunner& run) const;
  OrderedJson target(const OrderedJson& doc) const;
  const Aggregation& aggregation_of(const std::string& metric) const;
  OrderedJson higher_is_better() const;
  OrderedJson version() const;

 private:
  struct Metric {
    std::string name;
    Aggregation aggregation;
    OrderedJson higher_is_better;
    ExactMatchOptions exact;
  };
  void read_metrics();
  void read_documents(const std::vector<std::string>& folders);
  void read_fields();
  std::vector<OrderedJson> sample(size_t n, const OrderedJson* doc, PythonRandom& random);

  OrderedJson text_of(const OrderedJson& doc, const Field& f) const;
  OrderedJson target_of(const OrderedJson& doc, const Field& f) const;
  std::vector<std::string> choices_of(const OrderedJson& doc, const Field& f) const;
  std::string resolve(const OrderedJson& doc, const Field& f) const;

  // context.cc
  std::vector<std::string> contexts(const OrderedJson& doc, const ContextStyle& style, PythonRandom& random);
  OrderedJson tools_of(const OrderedJson& doc) const;
  std::string write(std::vector<Message> messages, const ContextStyle& style, bool gen_prefix) const;
  std::vector<Message> turn(const OrderedJson& question, const std::vector<std::string>* choices,
                            const OrderedJson* answer, const std::string& gen_prefix,
                            const std::string& target_delimiter, const std::string& fewshot_delimiter) const;
  // process.cc
  DocMetrics score_choices(const OrderedJson& doc, const std::vector<OrderedJson>& results) const;
  DocMetrics score_text(const OrderedJson& doc, const OrderedJson& result, const ProgramRunner& run) const;
  bool has(const std::string& metric) const;

  [[noreturn]] void fail(const std::string& what) const;
  std::string text_key(const char* key, const std::string& otherwise) const;

  OrderedJson config_;
  std::string name_;
  OutputType type_ = OutputType::kGenerate;
  std::vector<OrderedJson> docs_, fewshot_docs_;
  std::string fewshot_missing_;  // why there are none
  std::vector<std::string> columns_;
  int64_t fewshot_ = 0, repeats_ = 1;
  bool fewshot_is_zero_ = false, exclude_doc_ = false, multiple_input_ = false, multiple_target_ = false,
       first_n_ = false;
  Field text_, target_, choice_, description_, gen_prefix_, tools_;
  struct {
    Field text, target, choice, gen_prefix;
    std::string target_delimiter, delimiter;
  } shot_;
  std::string target_delimiter_, fewshot_delimiter_;
  std::vector<Metric> metrics_;
  std::vector<FilterChain> filters_;
  const TaskFunction* process_results_ = nullptr;
  std::vector<int64_t> pass_at_;
  std::map<std::string, Aggregation> expanded_;  // pass@1 …
};

std::string output_type_name(OutputType t);

}  // namespace mxt::eval
