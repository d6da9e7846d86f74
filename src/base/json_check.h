// nlohmann's own checks, on in every build and thrown: a key that a constant value has not is an error of what was
// read, not undefined behaviour. The build includes this before all else (CMakeLists.txt of this room), since all
// of a program must read nlohmann's headers alike.
#pragma once

namespace mxt {
// Throws std::logic_error that names the check.
[[noreturn]] void json_check_failed(const char* check);
}  // namespace mxt

#define JSON_ASSERT(x) ((x) ? void(0) : ::mxt::json_check_failed(#x))
