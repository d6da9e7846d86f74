// How a document becomes the text that the model reads: description, examples, question.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "eval/python/literal.h"
#include "eval/task/task.h"

namespace mxt::eval {
namespace {

bool needs_delimiter(const std::string& before, const std::string& after) {
  return !before.empty() && !ends_with_space(before) && !begins_with_space(after);
}
std::string join(const std::string& before, const std::string& after, const std::string& delimiter) {
  if (before.empty() || after.empty()) return before + after;
  return before + (needs_delimiter(before, after) ? delimiter : "") + after;
}

}  // namespace

std::vector<OrderedJson> Task::sample(size_t n, const OrderedJson* doc, PythonRandom& random) {
  if (!fewshot_missing_.empty()) fail_missing("{}", fewshot_missing_);
  std::vector<const OrderedJson*> pool;
  for (const OrderedJson& d : fewshot_docs_) pool.push_back(&d);
  auto without = [&](const std::vector<const OrderedJson*>& from) {
    std::vector<const OrderedJson*> out;
    for (const OrderedJson* d : from)
      if (!doc || *d != *doc) out.push_back(d);
    return out;
  };
  auto draw = [&](const std::vector<const OrderedJson*>& from, size_t k) {
    if (k > from.size()) fail(fmt::format("{} examples are asked for, there are {}", k, from.size()));
    std::vector<const OrderedJson*> out;
    for (size_t i : random.sample(from.size(), k)) out.push_back(from[i]);
    return out;
  };
  std::vector<const OrderedJson*> picked;
  if (first_n_) {
    picked = without(pool);
    if (n > picked.size()) fail(fmt::format("{} examples are asked for, there are {}", n, picked.size()));
    picked.resize(n);
  } else if (!doc) {
    picked = draw(pool, n);
  } else {
    picked = without(draw(pool, n + 1));
    if (picked.size() < n) picked = draw(without(pool), n);  // rows that equal the document were drawn
    picked.resize(n);
  }
  std::vector<OrderedJson> out;
  for (const OrderedJson* d : picked) out.push_back(*d);
  return out;
}

// A question and, for an example, its answer.
std::vector<Message> Task::turn(const OrderedJson& question, const std::vector<std::string>* choices,
                                const OrderedJson* answer, const std::string& gen_prefix,
                                const std::string& target_delimiter, const std::string& fewshot_delimiter) const {
  if (!question.is_string()) fail(fmt::format("doc_to_text gives {}, not text", json_text(question).substr(0, 100)));
  const std::string q = question;
  const bool answered = answer && !answer->is_null() && *answer != "";
  const bool delimited = gen_prefix.empty() ? answered : needs_delimiter(q, gen_prefix);
  std::vector<Message> out = {{"user", q, delimited ? target_delimiter : ""}};
  if (answered) {
    OrderedJson a = *answer;
    if (choices && (a.is_number_integer() || a.is_boolean())) {  // Python's true is 1
      int64_t i = a.is_boolean() ? int64_t{a.get<bool>()} : a.get<int64_t>();
      if (i < 0) i += static_cast<int64_t>(choices->size());
      if (i < 0 || i >= static_cast<int64_t>(choices->size()))
        fail(fmt::format("an example's answer {} is none of its {} choices", json_text(a), choices->size()));
      a = (*choices)[static_cast<size_t>(i)];
    } else if (a.is_array() && !a.empty()) {
      a = OrderedJson(a[0]);
    }
    if (!a.is_string()) fail(fmt::format("an example's answer is {}, not text", json_text(a).substr(0, 100)));
    out.push_back({"assistant", join(gen_prefix, a.get<std::string>(), " "), fewshot_delimiter});
  } else if (!gen_prefix.empty()) {
    out.push_back({"assistant", gen_prefix, ""});
  }
  return out;
}

std::string Task::write(std::vector<Message> messages, const ContextStyle& style, bool gen_prefix) const {
  std::string text;
  if (!style.chat) {
    for (const Message& m : messages) text += m.content + m.delimiter;
    return text;
  }
  if (style.fewshot_as_multiturn) return style.chat(messages, gen_prefix);
  // Everything but a system message and a begun answer is one user message.
  std::vector<Message> one;
  size_t first = 0, end = messages.size();
  if (messages[0].role == "system") one.push_back(messages[first++]);
  const bool begun = messages.back().role == "assistant";
  if (begun) --end;
  for (size_t i = first; i < end; ++i) text += messages[i].content + (i + 1 < end ? messages[i].delimiter : "");
  one.push_back({"user", text, ""});
  if (begun) one.push_back(messages.back());
  return style.chat(one, gen_prefix);
}

// A list of functions, or its JSON text: columns of JSON files have one type in all rows, which tools have not.
OrderedJson Task::tools_of(const OrderedJson& doc) const {
  OrderedJson tools = tools_.of(doc);
  if (tools.is_string()) tools = read_ordered_json(tools.get_ref<const std::string&>()).value_or(OrderedJson());
  if (!tools.is_array() || tools.empty()) fail("doc_to_tools gives no list of functions (nor one as JSON text)");
  for (OrderedJson& tool : tools)
    if (tool.is_object() && !tool.contains("function")) tool = {{"type", "function"}, {"function", tool}};
  return tools;
}

std::vector<std::string> Task::contexts(const OrderedJson& doc, const ContextStyle& style, PythonRandom& random) {
  std::vector<Message> messages;
  const std::string gen_prefix = gen_prefix_.set() ? resolve(doc, gen_prefix_) : "";
  const std::string system = join(style.system_instruction, resolve(doc, description_), fewshot_delimiter_);
  if (!system.empty()) messages.push_back({"system", system, ""});
  if (tools_.set()) {
    if (fewshot_ > 0) fail("has doc_to_tools, and examples are not shown with tools: num_fewshot is 0");
    messages.push_back({"user", resolve(doc, text_), ""});
    const OrderedJson tools = tools_of(doc);
    return {style.with_tools ? style.with_tools(messages, tools) : ""};  // nothing is written before a model is there
  }
  if (fewshot_ > 0)
    for (const OrderedJson& shot : sample(static_cast<size_t>(fewshot_), exclude_doc_ ? &doc : nullptr, random)) {
      OrderedJson q = text_of(shot, shot_.text);
      const OrderedJson a = target_of(shot, shot_.target);
      std::vector<std::string> choices;
      if (shot_.choice.set()) choices = choices_of(shot, shot_.choice);
      bool use = shot_.choice.set();
      if (multiple_input_) {  // the right choice is the question
        const int64_t i = q.is_number_integer() ? q.get<int64_t>() : -1;
        if (i < 0 || i >= static_cast<int64_t>(choices.size())) fail("an example's doc_to_text is none of its choices");
        q = choices[static_cast<size_t>(i)];
        use = false;
      }
      for (Message& m :
           turn(q, use ? &choices : nullptr, &a, shot_.gen_prefix.set() ? resolve(shot, shot_.gen_prefix) : "",
                shot_.target_delimiter, shot_.delimiter))
        messages.push_back(std::move(m));
    }
  std::vector<std::string> out;
  if (multiple_input_) {
    for (const std::string& c : choices_of(doc, choice_)) {
      std::vector<Message> with = messages;
      for (Message& m : turn(c, nullptr, nullptr, gen_prefix, "", fewshot_delimiter_)) with.push_back(std::move(m));
      out.push_back(write(std::move(with), style, !gen_prefix.empty()));
    }
    return out;
  }
  for (Message& m : turn(text_of(doc, text_), nullptr, nullptr, gen_prefix, target_delimiter_, ""))
    messages.push_back(std::move(m));
  out.push_back(write(std::move(messages), style, !gen_prefix.empty()));
  return out;
}

std::vector<Request> Task::requests(int64_t limit, const ContextStyle& style, uint64_t seed) {
  PythonRandom random(seed);
  std::vector<Request> out;
  const size_t n = limit > 0 ? std::min<size_t>(static_cast<size_t>(limit), docs_.size()) : docs_.size();
  for (size_t d = 0; d < n; ++d) {
    const OrderedJson& doc = docs_[d];
    try {
      const std::vector<std::string> context = contexts(doc, style, random);
      auto add = [&](OutputType type, const std::string& c, const std::string& continuation) {
        Request r;
        r.type = type;
        r.doc_id = static_cast<int64_t>(d);
        r.index = static_cast<int64_t>(out.empty() || out.back().doc_id != r.doc_id ? 0 : out.back().index + 1);
        r.context = c;
        r.continuation = continuation;
        out.push_back(std::move(r));
      };
      auto target_text = [&] {
        const OrderedJson t = target(doc);
        if (!t.is_string()) fail(fmt::format("doc_to_target gives {}, not text", json_text(t).substr(0, 100)));
        return t.get<std::string>();
      };
      switch (type_) {
        case OutputType::kLoglikelihood:
          add(type_, context[0], target_text());
          break;
        case OutputType::kRolling:
          add(type_, "", target_text());
          break;
        case OutputType::kGenerate:
          add(type_, context[0], "");
          out.back().generation = config_["generation_kwargs"];
          break;
        case OutputType::kMultipleChoice: {
          std::string delimiter = target_delimiter_;
          if (style.chat) {
            const std::string prefix = gen_prefix_.set() ? config_["gen_prefix"].dump() : "";
            if (prefix.empty() || ends_with_space(config_["gen_prefix"].get<std::string>())) delimiter.clear();
          }
          const std::vector<std::string> choices = choices_of(doc, choice_);
          if (multiple_input_)
            for (const std::string& c : context) add(OutputType::kLoglikelihood, c, delimiter + target_text());
          else
            for (const std::string& c : choices) add(OutputType::kLoglikelihood, context[0], delimiter + c);
          if (has("acc_mutual_info"))
            for (const std::string& c : choices) add(OutputType::kLoglikelihood, "", delimiter + c);
          break;
        }
      }
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{} (document {})", e.what(), d));
    }
  }
  return out;
}

}  // namespace mxt::eval
