// Columns of bytes (BLOB), at any depth of lists and structs, as texts: JSON has no bytes.
#pragma once

#include <string>
#include <string_view>

namespace mxt::data {

// `s` as SQL writes it: '…' a text, "…" a name.
std::string sql_quoted(std::string_view s, char q);

// The SQL expression of `value`, whose DuckDB type is `type`, in which bytes are texts; "" where the type has none.
// Bytes that are UTF-8, as older writers leave texts, are texts. A picture's are a data URI: those that begin as one
// does, and whatever a struct calls "bytes" (the datasets library's Image: {"bytes", "path"}). Any others are null.
std::string bytes_as_text(std::string_view type, const std::string& value);

}  // namespace mxt::data
