// JSON as the whole program reads and writes it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// The full header is heavy: a file that builds or takes apart a Json includes <nlohmann/json.hpp> itself.
namespace mxt {

using Json = nlohmann::json;                 // keys sorted: for hashing and comparing
using OrderedJson = nlohmann::ordered_json;  // keys as written: for what a person reads

// Parses text from `source` (a file name for messages). Errors (kBadInput): syntax (with line and column), invalid
// UTF-8, nesting deeper than 256, and duplicate keys in one object.
Json parse_json(std::string_view text, std::string_view source);
OrderedJson parse_ordered_json(std::string_view text, std::string_view source);
Json read_json_file(const std::string& path);

// The one spelling that is hashed: keys sorted, no white space, UTF-8 unescaped, numbers as nlohmann prints them.
std::string canonical_json(const Json& j);

}  // namespace mxt
