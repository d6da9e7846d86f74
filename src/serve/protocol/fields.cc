#include "serve/protocol/fields.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "serve/api_error.h"

namespace mxt::serve {

OrderedJson parse_body(const std::string& body) {
  OrderedJson j;
  try {
    j = parse_ordered_json(body, "the request body");
  } catch (const Error& e) {
    refuse("", "{}", e.what());
  }
  if (!j.is_object()) refuse("", "the request body must be a JSON object");
  return j;
}

const OrderedJson* Fields::get(std::string_view name) const {
  const auto it = j_.find(name);
  return it == j_.end() || it->is_null() ? nullptr : &*it;
}

int64_t Fields::integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const {
  const OrderedJson* v = get(name);
  if (!v) return otherwise;
  if (!v->is_number_integer() || (v->is_number_unsigned() && v->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)))
    refuse(path(name), "{} must be a whole number from {} to {}", path(name), least, most);
  const auto x = v->get<int64_t>();
  if (x < least || x > most) refuse(path(name), "{} must lie between {} and {}, not {}", path(name), least, most, x);
  return x;
}

double Fields::number(std::string_view name, double otherwise, double least, double most) const {
  const OrderedJson* v = get(name);
  if (!v) return otherwise;
  if (!v->is_number()) refuse(path(name), "{} must be a number", path(name));
  const auto x = v->get<double>();
  if (!std::isfinite(x) || x < least || x > most)
    refuse(path(name), "{} must lie between {} and {}", path(name), least, most);
  return x;
}

bool Fields::flag(std::string_view name, bool otherwise) const {
  const OrderedJson* v = get(name);
  if (!v) return otherwise;
  if (!v->is_boolean()) refuse(path(name), "{} must be true or false", path(name));
  return v->get<bool>();
}

std::string Fields::text(std::string_view name, std::string otherwise) const {
  const OrderedJson* v = get(name);
  if (!v) return otherwise;
  if (!v->is_string()) refuse(path(name), "{} must be a text", path(name));
  return v->get<std::string>();
}

namespace {

// What other servers, and older interfaces, call fields that are here.
std::string_view named_here(std::string_view theirs) {
  static const std::map<std::string_view, std::string_view> names = {{"functions", "tools"},
                                                                     {"function_call", "tool_choice"},
                                                                     {"guided_json", "response_format"},
                                                                     {"guided_choice", "response_format"},
                                                                     {"guided_grammar", "response_format"},
                                                                     {"structured_outputs", "response_format"},
                                                                     {"json_schema", "response_format"},
                                                                     {"grammar", "response_format"},
                                                                     {"format", "response_format"},
                                                                     {"n_predict", "max_tokens"},
                                                                     {"num_predict", "max_tokens"},
                                                                     {"max_new_tokens", "max_tokens"},
                                                                     {"max_output_tokens", "max_tokens"},
                                                                     {"stop_sequences", "stop"},
                                                                     {"repeat_penalty", "repetition_penalty"},
                                                                     {"enable_thinking", "chat_template_kwargs"},
                                                                     {"thinking", "chat_template_kwargs"},
                                                                     {"reasoning", "reasoning_effort"},
                                                                     {"input", "messages"},
                                                                     {"inputs", "prompt"}};
  const auto it = names.find(theirs);
  return it == names.end() ? std::string_view() : it->second;
}

}  // namespace

void Fields::only(std::initializer_list<std::string_view> known, std::span<const std::string_view> also) const {
  std::vector<std::string> names(known.begin(), known.end());
  names.insert(names.end(), also.begin(), also.end());
  for (const auto& [key, value] : j_.items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    const std::string here(named_here(key));
    const bool known_here = std::find(names.begin(), names.end(), here) != names.end();
    const std::string near = known_here ? here : nearest(key, names);
    const std::string shown = path(replace_invalid_utf8(std::string_view(key).substr(0, 100)));
    refuse(shown, "unrecognized request argument: {}{}", shown,
           near.empty() ? "" : (known_here ? " (here: " : " (nearest: ") + near + ")");
  }
}

std::vector<int32_t> read_ids(const OrderedJson& list, const std::string& name) {
  if (!list.is_array()) refuse(name, "{} must be a list of token ids", name);
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const auto& v : list) {
    if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() > INT32_MAX ||
        (v.is_number_unsigned() && v.get<uint64_t>() > INT32_MAX))
      refuse(name, "{} holds something that is no token id", name);
    ids.push_back(v.get<int32_t>());
  }
  return ids;
}

std::vector<Prompt> read_prompts(const OrderedJson& value, const std::string& name, size_t most) {
  std::vector<Prompt> out;
  auto ids = [&](const OrderedJson& v) {
    Prompt p;
    p.ids = read_ids(v, name);
    if (p.ids.empty()) refuse(name, "{} must not be empty", name);
    out.push_back(std::move(p));
  };
  if (value.is_string()) {
    out.push_back({value.get<std::string>(), {}});
  } else if (value.is_array() && !value.empty()) {
    if (value[0].is_number()) {
      ids(value);
    } else {
      if (value.size() > most) refuse(name, "{} holds {} prompts, at most {} are taken", name, value.size(), most);
      for (const auto& v : value) {
        if (v.is_string())
          out.push_back({v.get<std::string>(), {}});
        else
          ids(v);
      }
    }
  } else {
    refuse(name, "{} must be a text, a list of texts, a list of token ids or a list of such lists", name);
  }
  return out;
}

}  // namespace mxt::serve
