// Preference pairs and labelled answers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/shape/row.h"

namespace mxt::data {
namespace {

// Two answers without a prompt of their own: what both begin with. A space before the difference goes to the answers,
// whose first token it is part of.
std::string common_text(const std::string& a, const std::string& b) {
  size_t n = 0;
  while (n < std::min(a.size(), b.size()) && a[n] == b[n]) ++n;
  while (n > 0 && n < a.size() && (static_cast<unsigned char>(a[n]) & 0xc0) == 0x80) --n;  // not inside a character
  if (n > 0 && a[n - 1] == ' ') --n;
  return a.substr(0, n);
}

OrderedJson common_messages(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson all = OrderedJson::array();
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) all.push_back(a[i]);
  return all;
}

OrderedJson after(const OrderedJson& messages, size_t n) {
  OrderedJson rest = OrderedJson::array();
  for (size_t i = n; i < messages.size(); ++i) rest.push_back(messages[i]);
  return rest;
}

bool starts_with_turns(const OrderedJson& messages, const OrderedJson& first) {
  return messages.size() >= first.size() && std::equal(first.begin(), first.end(), messages.begin());
}

// A message alone is a list of one, as LLaMA-Factory has it.
OrderedJson as_list(const OrderedJson& answer) { return answer.is_object() ? OrderedJson::array({answer}) : answer; }

// Whether a message says this text, spaces around it apart.
bool says(const OrderedJson& message, const OrderedJson& text) {
  if (!message.is_object()) return false;
  for (const char* key : {"content", "value"})
    if (const auto content = message.find(key); content != message.end() && content->is_string())
      return trim(content->get_ref<const std::string&>()) == trim(text.get_ref<const std::string&>());
  return false;
}

void need_answer(const RowView& row, bool empty, const char* column) {
  if (empty) fail_input("{}: \"{}\" is empty: there is no answer to prefer; leave the row out", row.where(), column);
}

// Whether a turn holds neither words nor calls.
bool says_nothing(const OrderedJson& message) {
  if (!message.is_object()) return false;
  for (const auto& [key, value] : message.items()) {
    if (key == "role" || key == "from" || key == "name") continue;
    if (value.is_string() ? !value.get_ref<const std::string&>().empty() : value.is_structured() && !value.empty())
      return false;
  }
  return true;
}

void need_turns(const RowView& row, const OrderedJson& turns, const char* column) {
  need_answer(row, turns.empty() || says_nothing(turns.back()), column);
}

void need_prompt(const RowView& row) {
  fail_input(
      "{}: the row has no \"prompt\" and its answers begin differently: give the prompt a column of its own (or "
      "name it by data.columns, beside chosen and rejected), or let both answers begin with it",
      row.where());
}

void differ(const RowView& row) {
  fail_input(
      "{}: \"chosen\" and \"rejected\" are equal: a pair without a preference teaches nothing; leave the row out",
      row.where());
}

Example text_answer(const std::string& prompt, const std::string& completion) {
  Example e;
  e.kind = Example::Kind::kCompletion;
  e.text = prompt;
  e.completion = completion;
  return e;
}

Example read_text_pair(const RowView& row, const std::string& chosen, const std::string& rejected) {
  const OrderedJson* prompt = row.find("prompt");
  if (chosen == rejected) differ(row);
  if (prompt && prompt->is_array() && !prompt->empty()) {  // messages, which texts answer
    const auto answer = [&](const std::string& text, const char* column) {
      need_answer(row, text.empty(), column);
      const OrderedJson last = OrderedJson::array({{{"role", "assistant"}, {"content", text}}});
      return chat_of(row, *prompt, "prompt", last, column);
    };
    Example e = answer(chosen, "chosen");
    e.rejected = std::make_shared<Example>(answer(rejected, "rejected"));
    return e;
  }
  if (prompt && prompt->is_string()) {
    need_answer(row, chosen.empty(), "chosen");
    need_answer(row, rejected.empty(), "rejected");
    const std::string& p = prompt->get_ref<const std::string&>();
    Example e = text_answer(p, chosen);
    e.rejected = std::make_shared<Example>(text_answer(p, rejected));
    return e;
  }
  const std::string p = common_text(chosen, rejected);
  if (p.empty()) need_prompt(row);
  need_answer(row, chosen.size() == p.size(), "chosen");
  need_answer(row, rejected.size() == p.size(), "rejected");
  Example e = text_answer(p, chosen.substr(p.size()));
  e.rejected = std::make_shared<Example>(text_answer(p, rejected.substr(p.size())));
  return e;
}

Example read_chat_pair(const RowView& row, const OrderedJson& chosen, const OrderedJson& rejected) {
  if (chosen == rejected) differ(row);
  const OrderedJson* own = row.find("prompt");
  bool given = own && own->is_array();
  OrderedJson prompt = given ? *own : common_messages(chosen, rejected);
  if (own && own->is_string() && !trim(own->get_ref<const std::string&>()).empty()) {
    // A text beside messages: what the user says, or once more what one of the common messages says.
    if (prompt.empty()) {
      prompt = OrderedJson::array({{{"role", "user"}, {"content", *own}}});
      given = true;
    } else if (std::none_of(prompt.begin(), prompt.end(), [&](const OrderedJson& m) { return says(m, *own); })) {
      fail_input(
          "{}: \"prompt\" is a text that no message says with which both answers begin: give the prompt as messages, "
          "or "
          "leave the column out by data.columns",
          row.where());
    }
  }
  if (prompt.empty()) need_prompt(row);
  // Answers that hold the prompt once more are whole conversations.
  given = given && !(starts_with_turns(chosen, prompt) && starts_with_turns(rejected, prompt));
  const size_t n = given ? 0 : prompt.size();
  const auto answer = [&](const OrderedJson& messages, const char* column) {
    const OrderedJson rest = after(messages, n);
    need_turns(row, rest, column);
    return chat_of(row, prompt, given ? "prompt" : column, rest, column);
  };
  Example e = answer(chosen, "chosen");
  e.rejected = std::make_shared<Example>(answer(rejected, "rejected"));
  e.notes.insert(e.notes.end(), e.rejected->notes.begin(), e.rejected->notes.end());
  return e;
}

int32_t read_label(const RowView& row) {
  const OrderedJson& v = row.need("label");
  if (v.is_boolean()) return v.get<bool>() ? 1 : -1;
  if (v.is_number() && (v == 0 || v == 1)) return v == 1 ? 1 : -1;  // tables hold 1.0 where some are missing
  if (v.is_string()) {                                              // a cell of CSV
    const std::string& said = v.get_ref<const std::string&>();
    for (const char* good : {"true", "True", "TRUE", "1"})
      if (said == good) return 1;
    for (const char* bad : {"false", "False", "FALSE", "0"})
      if (said == bad) return -1;
  }
  row.wrong_type("label", v, "true (a good answer) or false");
}

}  // namespace

Example read_preference(const RowView& row) {
  const OrderedJson chosen = as_list(row.need("chosen")), rejected = as_list(row.need("rejected"));
  if (const OrderedJson* prompt = row.find("prompt"); prompt && !prompt->is_string() && !prompt->is_array())
    row.wrong_type("prompt", *prompt, "a text or a list of messages");
  if (chosen.is_string() && rejected.is_string())
    return read_text_pair(row, chosen.get_ref<const std::string&>(), rejected.get_ref<const std::string&>());
  if (!chosen.is_array()) row.wrong_type("chosen", chosen, rejected.is_array() ? "a list of messages" : "a text");
  if (!rejected.is_array()) row.wrong_type("rejected", rejected, "a list of messages, as chosen is,");
  return read_chat_pair(row, chosen, rejected);
}

Example read_labelled(const RowView& row) {
  const OrderedJson &prompt = row.need("prompt"), &completion = row.need("completion");
  Example e;
  if (prompt.is_array() || completion.is_array()) {
    if (!prompt.is_array()) row.wrong_type("prompt", prompt, "a list of messages, as completion is,");
    if (!completion.is_array()) row.wrong_type("completion", completion, "a list of messages, as prompt is,");
    need_turns(row, completion, "completion");
    e = chat_of(row, prompt, "prompt", completion, "completion");
  } else {
    need_answer(row, row.text("completion").empty(), "completion");
    e = text_answer(row.text("prompt"), row.text("completion"));
  }
  e.mark = read_label(row);
  return e;
}

Example read_reference(const RowView& row) {
  const OrderedJson& prompt = row.need("prompt");
  const std::string answer = row.text_or_number("answer");
  if (!prompt.is_array()) return text_answer(row.text("prompt"), answer);
  const OrderedJson last = OrderedJson::array({{{"role", "assistant"}, {"content", answer}}});
  return chat_of(row, prompt, "prompt", last, "answer");
}

Example read_token_answers(const RowView& row, Shape shape) {
  const std::vector<int32_t> prompt = read_numbers(row, "prompt_ids", false);
  if (prompt.empty()) fail_input("{}: \"prompt_ids\" is empty: an answer needs a prompt to answer", row.where());
  const auto answer = [&](const char* column) {
    const std::vector<int32_t> ids = read_numbers(row, column, false);
    need_answer(row, ids.empty(), column);
    Example e;
    e.kind = Example::Kind::kTokens;
    e.ids = prompt;
    e.ids.insert(e.ids.end(), ids.begin(), ids.end());
    e.labels.assign(prompt.size(), kNoTarget);
    e.labels.insert(e.labels.end(), ids.begin(), ids.end());
    return e;
  };
  if (shape == Shape::kTokenAnswer) {
    Example e = answer("completion_ids");
    e.mark = read_label(row);
    return e;
  }
  Example e = answer("chosen_ids");
  e.rejected = std::make_shared<Example>(answer("rejected_ids"));
  if (e.ids == e.rejected->ids) differ(row);
  return e;
}

}  // namespace mxt::data
