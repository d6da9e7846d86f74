// The formats of JSON Schema that a pattern can hold an answer to; some more narrowly than their RFC.
#include <map>
#include <set>

#include "serve/grammar/json_grammar.h"

namespace mxt::serve {

std::optional<std::string> pattern_of_format(const std::string& format, int64_t most) {
  // No year 0: Python's dates have none.
  static const std::string kYear = R"((\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000))",
                           kLeap = R"((\d\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00))";
  static const std::string kDate =
      "((" + kYear +
      R"(-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])))|)" + kLeap +
      "-02-29)";
  static const std::string kTime = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
  static const std::string kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?",
                           kHost = kLabel + "(\\." + kLabel + ")*";
  // Hosts of mail and URIs end in a name of letters: one that ends in digits would be read as an address.
  static const std::string kShort = "[A-Za-z0-9]{1,12}(-[A-Za-z0-9]{1,11})?",
                           kDomain = kShort + "(\\." + kShort + "){0,2}\\.[A-Za-z]{2,12}";
  static const std::string kByte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)", kIpv4 = kByte + "(\\." + kByte + "){3}",
                           kIpv6 = "[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}",
                           kSafe = "[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}";
  static const auto uri = [](const char* segment, const char* segments, const char* query) {
    return "^https?://" + kDomain + "(:[1-9]\\d{1,3})?(/(" + kSafe + ")" + segment + ")" + segments + "(\\?(" + kSafe +
           "|[/?])" + query + ")?(#(" + kSafe + "|[/?])" + query + ")?$";
  };
  // So many characters at most, and what they take.
  static const std::pair<int64_t, std::string> kUris[] = {{-1, uri("*", "*", "*")},
                                                          {1750, uri("{0,48}", "{0,8}", "{0,80}")},
                                                          {330, uri("{0,16}", "{0,3}", "{0,12}")},
                                                          {0, uri("{0,12}", "{0,2}", "{0,8}")}};
  static const auto uuid = [](const char* version) {
    return "^[0-9a-f]{8}-[0-9a-f]{4}-" + std::string(version) + "[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$";
  };
  static const std::map<std::string, std::string> kKnown{
      {"date", "^" + kDate + "$"},
      {"time", "^" + kTime + "$"},
      {"date-time", "^" + kDate + "T" + kTime + "$"},
      {"duration",
       R"(^P(\d{1,4}W|\d{1,4}Y(\d{1,2}M(\d{1,2}D)?)?|\d{1,4}M(\d{1,2}D)?|\d{1,4}D(T\d{1,4}H(\d{1,2}M(\d{1,2}S)?)?)?|T(\d{1,4}H(\d{1,2}M(\d{1,2}S)?)?|\d{1,4}M(\d{1,2}S)?|\d{1,6}S))$)"},
      {"email", "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,16}){0,2}@" + kDomain + "$"},
      {"hostname", "^" + kHost + "$"},
      {"ipv4", "^" + kIpv4 + "$"},
      {"ipv6", "^" + kIpv6 + "$"},
      {"ipvanyaddress", "^(" + kIpv4 + "|" + kIpv6 + ")$"},
      {"ipv4interface", "^" + kIpv4 + "/([12]?\\d|3[0-2])$"},
      {"ipv6interface", "^" + kIpv6 + "/(\\d{1,2}|1[01]\\d|12[0-8])$"},
      {"json-pointer", "^(/([A-Za-z0-9_.-]|~[01])*)*$"},
      {"byte", "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"},
      {"base64url", "^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?$"},
      {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
      {"uuid1", uuid("1")},
      {"uuid3", uuid("3")},
      {"uuid4", uuid("4")},
      {"uuid5", uuid("5")},
      {"uuid6", uuid("6")},
      {"uuid7", uuid("7")},
      {"uuid8", uuid("8")}};
  // What is said of other names, more narrowly than it could be: an address is a network, too.
  static const std::map<std::string, std::string> kAlike{{"idn-email", "email"},
                                                         {"idn-hostname", "hostname"},
                                                         {"iri", "uri"},
                                                         {"uri-reference", "uri"},
                                                         {"iri-reference", "uri"},
                                                         {"uri-template", "uri"},
                                                         {"url", "uri"},
                                                         {"base64", "byte"},
                                                         {"ip", "ipvanyaddress"},
                                                         {"ipvanyinterface", "ipvanyaddress"},
                                                         {"ipvanynetwork", "ipvanyaddress"},
                                                         {"ipv4network", "ipv4"},
                                                         {"ipv6network", "ipv6"},
                                                         {"datetime", "date-time"}};
  // How a text is shown or what it stands for, not which texts there are.
  static const std::set<std::string> kRemarks{
      "password", "binary", "path",      "file-path",  "directory-path", "textarea", "multiline",
      "markdown", "html",   "text",      "string",     "json",           "int32",    "int64",
      "uint32",   "uint64", "float",     "double",     "decimal",        "regex",    "json-string",
      "phone",    "color",  "unix-time", "time-delta", "currency"};
  if (kRemarks.contains(format)) return "";
  const auto alike = kAlike.find(format);
  const std::string& name = alike == kAlike.end() ? format : alike->second;
  if (name == "uri")
    for (const auto& [characters, pattern] : kUris)
      if (characters < 0 ? most < 0 : most >= characters) return pattern;
  const auto it = kKnown.find(name);
  return it == kKnown.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace mxt::serve
