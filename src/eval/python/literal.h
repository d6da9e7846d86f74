// Python values as JSON: reading a literal (ast.literal_eval), printing one (str, repr), and the text operations of str
// that tasks, filters and metrics use. Tuples and sets become arrays.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace mxt::eval {

// Nothing where the text is no literal (of None, bool, int, float, str, list, tuple, set, dict with text keys).
std::optional<OrderedJson> literal_eval(std::string_view text);

std::string python_str(const OrderedJson& v);  // a string as it is
std::string python_repr(const OrderedJson& v);
// json.dumps(v, indent=2, ensure_ascii=False)
std::string json_dumps_indent(const OrderedJson& v);

bool is_digit_text(std::string_view s);  // str.isdigit
std::string lower(std::string_view s);   // str.lower
std::string upper(std::string_view s);
std::string capitalize(std::string_view s);
std::string strip(std::string_view s, bool left = true, bool right = true);
bool begins_with_space(std::string_view s);
bool ends_with_space(std::string_view s);
size_t characters(std::string_view s);  // len(str)
std::string replace_all(std::string_view s, std::string_view from, std::string_view to);

}  // namespace mxt::eval
