// Errors of the whole program. Bad input throws one of these; a bug asserts; an expected failure is a return value.
// Only apps/ turns them into a printed line and an exit code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace mxt {

// Exit codes of the command line (SPEC 2). An Error carries the one it will end the program with.
enum class Exit : int {
  kOk = 0,
  kBadInput = 1,      // recipe, data or file is wrong
  kVerifyFailed = 2,  // a digest, gate or comparison did not hold
  kMissing = 3,       // device, library, service or credential is not here; the message says how to get it
  kInterrupted = 4,   // stopped by a signal, state saved
};

class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

// The usual throws: one line that names file, line, key and value, then what to do.
template <typename... A>
[[noreturn]] void fail_input(fmt::format_string<A...> f, A&&... a) {
  throw Error(Exit::kBadInput, fmt::format(f, std::forward<A>(a)...));
}
template <typename... A>
[[noreturn]] void fail_verify(fmt::format_string<A...> f, A&&... a) {
  throw Error(Exit::kVerifyFailed, fmt::format(f, std::forward<A>(a)...));
}
template <typename... A>
[[noreturn]] void fail_missing(fmt::format_string<A...> f, A&&... a) {
  throw Error(Exit::kMissing, fmt::format(f, std::forward<A>(a)...));
}

// A broken invariant of ours, never of the input. On in every build: a wrong result is worse than a stop.
[[noreturn]] void assert_failed(const char* expr, const char* file, int line);
#define MXT_ASSERT(x) ((x) ? void(0) : ::mxt::assert_failed(#x, __FILE__, __LINE__))

}  // namespace mxt
