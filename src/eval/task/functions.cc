#include "eval/task/functions.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "eval/python/literal.h"
#include "eval/score/ifeval.h"
#include "eval/task/yaml.h"
#include "infer/calls.h"
#include "pytext/python_regex.h"

namespace mxt::eval {
namespace {

using pytext::PythonRegex;

std::string text(const OrderedJson& doc, const char* key) {
  const auto it = doc.find(key);
  if (it == doc.end() || !it->is_string()) fail_input("a document lacks the text \"{}\" that its task works on", key);
  return *it;
}

std::string regex_sub(const char* pattern, const char* with, const std::string& s) {
  return pytext::PythonRegex(pattern, "task function").sub(with, s);
}

void each(Table& t, const std::vector<std::string>& columns, const std::function<void(OrderedJson&)>& f) {
  for (OrderedJson& row : t.rows) f(row);
  for (const std::string& c : columns)
    if (std::find(t.columns.begin(), t.columns.end(), c) == t.columns.end()) t.columns.push_back(c);
}

// HellaSwag: WikiHow's brackets go, the second half of the context is capitalised.
std::string hellaswag_text(std::string s) {
  s = replace_all(strip(s), " [title]", ". ");
  return replace_all(regex_sub("\\[.*?\\]", "", s), "  ", " ");
}
void hellaswag_docs(Table& t) {
  each(t, {"query", "choices", "gold"}, [](OrderedJson& d) {
    const std::string context = text(d, "ctx_a") + " " + capitalize(text(d, "ctx_b"));
    d["query"] = hellaswag_text(text(d, "activity_label") + ": " + context);
    OrderedJson choices = OrderedJson::array();
    for (const OrderedJson& e : d.at("endings")) choices.push_back(hellaswag_text(e.get<std::string>()));
    d["choices"] = choices;
    const OrderedJson& label = d.at("label");
    d["gold"] = label.is_string() ? std::stoll(label.get<std::string>()) : label.get<int64_t>();
  });
}

void arithmetic_docs(Table& t) {
  each(t, {"context", "completion"}, [](OrderedJson& d) {
    d["context"] = replace_all(replace_all(replace_all(strip(text(d, "context")), "\n\n", "\n"), "Q:", "Question:"),
                               "A:", "Answer:");
  });
}

// WikiText's tokenization undone.
OrderedJson wikitext_text(const OrderedJson& doc) {
  std::string s = replace_all(text(doc, "page"), "s '", "s'");
  s = regex_sub("/' [0-9]/", "/'[0-9]/", s);
  for (const auto& [from, to] : {std::pair{" @-@ ", "-"},
                                 {" @,@ ", ","},
                                 {" @.@ ", "."},
                                 {" : ", ": "},
                                 {" ; ", "; "},
                                 {" . ", ". "},
                                 {" ! ", "! "},
                                 {" ? ", "? "},
                                 {" , ", ", "}})
    s = replace_all(s, from, to);
  s = regex_sub("\\(\\s*([^\\)]*?)\\s*\\)", "(\\1)", s);
  s = regex_sub("\\[\\s*([^\\]]*?)\\s*\\]", "[\\1]", s);
  s = regex_sub("{\\s*([^}]*?)\\s*}", "{\\1}", s);
  s = regex_sub("\\\"\\s*([^\\\"]*?)\\s*\\\"", "\"\\1\"", s);
  s = regex_sub("'\\s*([^']*?)\\s*'", "'\\1'", s);
  for (const auto& [from, to] : {std::pair{"= = = =", "===="},
                                 {"= = =", "==="},
                                 {"= =", "=="},
                                 {" \u00b0 ", "\u00b0"},
                                 {" \n", "\n"},
                                 {"\n ", "\n"},
                                 {" N ", " 1 "},
                                 {" 's", "'s"}})
    s = replace_all(s, from, to);
  return s;
}
DocMetrics wikitext_results(const OrderedJson& doc, const std::vector<OrderedJson>& results) {
  const std::string page = text(doc, "page");  // words and bytes are counted before the detokenizing
  const OrderedJson ll = results[0], words = pytext::PythonRegex("\\s+", "wikitext").split(page).size(),
                    bytes = page.size();
  return {{"word_perplexity", {ll, words}}, {"byte_perplexity", {ll, bytes}}, {"bits_per_byte", {ll, bytes}}};
}

// WinoGrande: the blank is filled in the context, what follows it is scored.
size_t blank(const OrderedJson& doc) {
  const size_t at = text(doc, "sentence").find('_');
  if (at == std::string::npos) fail_input("a WinoGrande sentence without a blank: {}", text(doc, "sentence"));
  return at;
}
OrderedJson winogrande_text(const OrderedJson& doc) {
  const std::string answer = python_str(doc.at("answer"));
  if (answer != "1" && answer != "2") fail_input("a WinoGrande answer is \"1\" or \"2\", not \"{}\"", answer);
  return answer == "1" ? 0 : 1;
}
OrderedJson winogrande_target(const OrderedJson& doc) { return strip(text(doc, "sentence").substr(blank(doc) + 1)); }
OrderedJson winogrande_choice(const OrderedJson& doc) {
  const std::string before = text(doc, "sentence").substr(0, blank(doc));
  return OrderedJson::array({before + text(doc, "option1"), before + text(doc, "option2")});
}

OrderedJson programs(const std::vector<OrderedJson>& responses, const OrderedJson& doc, bool fenced) {
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& r : responses) {
    std::string s = r.get<std::string>();
    if (fenced) s = s.substr(0, s.find("```"));
    out.push_back(text(doc, "prompt") + s);
  }
  return out;
}

// TruthfulQA, all true answers: their share of the probability of all choices.
DocMetrics truthfulqa_share(const OrderedJson& doc, const std::vector<OrderedJson>& results) {
  const OrderedJson& labels = doc.at("mc2_targets").at("labels");
  if (labels.size() != results.size())
    fail_input("a TruthfulQA document has {} labels and {} choices", labels.size(), results.size());
  double right = 0, all = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const double p = std::exp(results[i][0].get<double>());
    all += p;
    if (labels[i] == 1) right += p;
  }
  return {{"acc", right / all}};
}

OrderedJson mnli_text(const OrderedJson& doc) {
  const std::string hypothesis = strip(text(doc, "hypothesis"));
  return text(doc, "premise") + "\nQuestion: " + hypothesis + (hypothesis.ends_with('.') ? "" : ".") +
         " True, False or Neither?\nAnswer:";
}

// COPA: premise and choice become one sentence.
OrderedJson copa_text(const OrderedJson& doc) {
  const std::string question = text(doc, "question");
  if (question != "cause" && question != "effect")
    fail_input("a COPA question is cause or effect, not \"{}\"", question);
  std::string premise = strip(text(doc, "premise"));
  while (!premise.empty() && (premise.back() & 0xc0) == 0x80) premise.pop_back();  // one character, not one byte
  if (!premise.empty()) premise.pop_back();
  return premise + (question == "cause" ? " because" : " therefore");
}
std::string copa_choice(const OrderedJson& doc, const char* key) {
  const std::string s = text(doc, key);
  size_t first = std::min<size_t>(s.size(), 1);
  while (first < s.size() && (s[first] & 0xc0) == 0x80) ++first;
  return " " + lower(s.substr(0, first)) + s.substr(first);
}
OrderedJson copa_choices(const OrderedJson& doc) {
  return OrderedJson::array({copa_choice(doc, "choice1"), copa_choice(doc, "choice2")});
}
OrderedJson copa_target(const OrderedJson& doc) {
  return copa_choice(doc, doc.at("label") == 0 ? "choice1" : "choice2");
}

// MMLU-Pro: up to ten options, answers with their reasoning.
OrderedJson mmlu_pro_text(const OrderedJson& doc) {
  std::string s = "Question:\n" + text(doc, "question") + "\nOptions:\n";
  char letter = 'A';
  for (const OrderedJson& option : doc.at("options")) {
    if (letter > 'J') break;
    s += std::string(1, letter++) + ". " + strip(option.get<std::string>()) + "\n";
  }
  return s + "Answer: Let's think step by step.";
}
OrderedJson mmlu_pro_reasoning(const OrderedJson& doc) {
  return replace_all(text(doc, "cot_content"), "A: Let's think step by step. ", "");
}

// Calls by structure. doc.calls: a list of calls (infer/calls.h), or its JSON text; empty where no tool fits.
DocMetrics tool_call_results(const OrderedJson& doc, const std::vector<OrderedJson>& results) {
  const auto it = doc.find("calls");
  if (it == doc.end()) fail_input("a document lacks the list \"calls\" that its task compares with");
  const std::vector<infer::WantedCall> want =
      infer::wanted_calls(it->is_string() ? parse_ordered_json(it->get_ref<const std::string&>(), "calls") : *it);
  const auto got = infer::calls_of(results.at(0).get<std::string>());
  std::vector<std::string> said, right;
  for (const infer::Call& c : got.value_or(std::vector<infer::Call>())) said.push_back(c.name);
  for (const infer::WantedCall& c : want) right.push_back(c.name);
  std::sort(said.begin(), said.end()), std::sort(right.begin(), right.end());
  return {{"acc", got && infer::are_right(*got, want) ? 1 : 0}, {"name_acc", got && said == right ? 1 : 0}};
}

struct Known {
  const char* file;
  const char* sha256;
  TaskFunction function;
};

const std::map<std::string, Known>& table() {
  static const std::map<std::string, Known> t = [] {
    std::map<std::string, Known> m;
    auto add = [&](const std::string& name, const char* file, const char* sha256) -> TaskFunction& {
      return m.emplace(name, Known{file, sha256, {}}).first->second.function;
    };
    constexpr const char* kHellaswag = "07d23b60b28f2a4f658dcf8440623a63fe6644854ce9b846a114dde980dc1214";
    constexpr const char* kArithmetic = "55c93da7005300ce496a18bce8251febab8acd36b8c4d8875679ff432c2031f9";
    constexpr const char* kWikitext = "a44020374b172159bf5be80a64d2c4194c9d5c77284f696ac666361338c8da7d";
    constexpr const char* kWinogrande = "e55327629264a98f1d383fda24645b6779afb53fa0bce2150042b9416b1ae006";
    constexpr const char* kHumaneval = "5f77adbf75b4342a6113fea30168ea57b4e5c3877ffd3b4942cb338b3edb2c95";
    constexpr const char* kIfeval = "1ab8f14808c826f93f2364883487ed63cf4267980bf4761fda8053899c013632";
    add("hellaswag/utils.process_docs", "utils.py", kHellaswag).process_docs = hellaswag_docs;
    add("arithmetic/utils.process_docs", "utils.py", kArithmetic).process_docs = arithmetic_docs;
    add("wikitext/preprocess_wikitext.wikitext_detokenizer", "preprocess_wikitext.py", kWikitext).of_doc =
        wikitext_text;
    add("wikitext/preprocess_wikitext.process_results", "preprocess_wikitext.py", kWikitext).results = wikitext_results;
    add("winogrande/preprocess_winogrande.doc_to_text", "preprocess_winogrande.py", kWinogrande).of_doc =
        winogrande_text;
    add("winogrande/preprocess_winogrande.doc_to_target", "preprocess_winogrande.py", kWinogrande).of_doc =
        winogrande_target;
    add("winogrande/preprocess_winogrande.doc_to_choice", "preprocess_winogrande.py", kWinogrande).of_doc =
        winogrande_choice;
    add("humaneval/utils.pass_at_k", "utils.py", kHumaneval).pass_at_k = true;
    add("humaneval/utils.build_predictions", "utils.py", kHumaneval).filter = [](const auto& r, const auto& d) {
      return programs(r, d, false);
    };
    add("humaneval/utils.build_predictions_instruct", "utils.py", kHumaneval).filter =
        [](const auto& r, const auto& d) { return programs(r, d, true); };
    add("ifeval/utils.process_results", "utils.py", kIfeval).results = ifeval_results;
    add("tool_calls/utils.process_results", "utils.py", "").results = tool_call_results;
    add("ifeval/utils.agg_inst_level_acc", "utils.py", kIfeval).aggregate = ifeval_instruction_accuracy;
    constexpr const char* kTruthfulqa = "d3c827d1e2cd442a1e4738b527a18effd48cbb2aed478c12a652311b5ea4dbc8";
    constexpr const char* kMnli = "db3099bba72b47a29018221bbca9a9d44f043b5bf4fbc9df93b8081687ba895e";
    constexpr const char* kCopa = "0be98a907db647a518c42c916a61385b64f394cf9d0171b5cb86b7a036282de7";
    constexpr const char* kMmluPro = "d47eae06ecf1e9535b033394de62185327a1dca977cb29049003699adeb92801";
    add("truthfulqa/utils.process_results_mc2", "utils.py", kTruthfulqa).results = truthfulqa_share;
    add("mnli/utils.doc_to_text", "utils.py", kMnli).of_doc = mnli_text;
    add("copa/utils.doc_to_text", "utils.py", kCopa).of_doc = copa_text;
    add("copa/utils.doc_to_target", "utils.py", kCopa).of_doc = copa_target;
    add("copa/utils.doc_to_choice", "utils.py", kCopa).of_doc = copa_choices;
    add("mmlu_pro/utils.doc_to_text", "utils.py", kMmluPro).of_doc = mmlu_pro_text;
    add("mmlu_pro/utils.fewshot_to_text", "utils.py", kMmluPro).of_doc = mmlu_pro_text;
    add("mmlu_pro/utils.fewshot_to_target", "utils.py", kMmluPro).of_doc = mmlu_pro_reasoning;
    for (const char* subject : {"biology", "business", "chemistry", "computer science", "economics", "engineering",
                                "health", "history", "law", "math", "other", "philosophy", "physics", "psychology"})
      add(fmt::format("mmlu_pro/utils.process_{}", replace_all(subject, " ", "_")), "utils.py", kMmluPro).process_docs =
          [subject](Table& t) {
            std::erase_if(t.rows, [&](const OrderedJson& d) { return text(d, "category") != subject; });
          };
    return m;
  }();
  return t;
}

}  // namespace

const TaskFunction& known_function(const OrderedJson& function, const std::string& where) {
  const std::string name = function_name(function);
  const auto it = table().find(name);
  if (it == table().end())
    fail_missing(
        "{}: the Python function {} is not one of those that this program has natively; tasks that need it cannot be "
        "run",
        where, name);
  const std::string folder = function["folder"];
  const std::string file = folder + "/" + it->second.file;
  if (!folder.empty() && fs::exists(file) && sha256_hex(read_file(file)) != it->second.sha256)
    fail_missing("{}: {} is not the version of {} that this program's own code follows (lm-evaluation-harness 0.4.13)",
                 where, file, name);
  return it->second.function;
}

}  // namespace mxt::eval
