#pragma once

#include <string>
#include <string_view>

namespace mxt::net {

// Git's id of a file with these bytes: SHA-1 over "blob SIZE\0" and them, 40 hex digits.
std::string git_blob_oid(std::string_view bytes);

}  // namespace mxt::net
