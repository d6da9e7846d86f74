// The formats of JSON Schema that a pattern can hold an answer to; some more narrowly than their RFC.
#include <map>
#include <set>

#include "serve/grammar/json_grammar.h"

namespace mxt::serve {

std::optional<std::string> pattern_of_format(const std::string& format) {
  static const std::string kDate =
      R"(((\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])))|(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29))";
  static const std::string kTime = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
  static const std::string kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?",
                           kHost = kLabel + "(\\." + kLabel + ")*";
  static const std::string kByte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)",
                           kSafe = "[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}";
  static const std::map<std::string, std::string> kKnown{
      {"date", "^" + kDate + "$"},
      {"time", "^" + kTime + "$"},
      {"date-time", "^" + kDate + "T" + kTime + "$"},
      {"duration",
       R"(^P(\d{1,4}W|\d{1,4}Y(\d{1,2}M(\d{1,2}D)?)?|\d{1,4}M(\d{1,2}D)?|\d{1,4}D(T\d{1,4}H(\d{1,2}M(\d{1,2}S)?)?)?|T(\d{1,4}H(\d{1,2}M(\d{1,2}S)?)?|\d{1,4}M(\d{1,2}S)?|\d{1,6}S))$)"},
      {"email", "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,16}){0,2}@" + kLabel + "(\\." + kLabel + ")+$"},
      {"hostname", "^" + kHost + "$"},
      {"ipv4", "^" + kByte + "(\\." + kByte + "){3}$"},
      {"ipv6", "^[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}$"},
      {"uri", "^(https?|ftp)://" + kHost + "(:[1-9]\\d{1,3})?(/(" + kSafe + ")*)*(\\?(" + kSafe + "|[/?])*)?(#(" +
                  kSafe + "|[/?])*)?$"},
      {"byte", "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
      {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}};
  // How a text is shown or what it stands for, not which texts there are.
  static const std::set<std::string> kRemarks{"password", "binary",    "path",     "file-path", "directory-path",
                                              "textarea", "multiline", "markdown", "html",      "text",
                                              "string",   "json",      "int32",    "int64",     "uint32",
                                              "uint64",   "float",     "double",   "decimal"};
  if (kRemarks.contains(format)) return "";
  const auto it = kKnown.find(format);
  return it == kKnown.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace mxt::serve
