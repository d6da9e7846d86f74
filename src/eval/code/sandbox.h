// Runs Python programs that nobody trusts. Each gets namespaces of its own (user, mount, process, network, IPC): it
// sees no process but its own, no network, no file but a read-only Python and a scratch folder in memory that goes with
// it; it has no capabilities, cannot gain any, and its time, memory, files and processes are limited. Works as root too
// (the program is then nobody). Never runs a program with less than all of this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/stop.h"

namespace mxt::eval {

struct SandboxLimits {
  double seconds = 10;                          // of the clock; CPU seconds are bounded too
  uint64_t memory_bytes = uint64_t{1} << 30;    // address space of a process
  uint64_t scratch_bytes = uint64_t{32} << 20;  // of the scratch folder
  uint64_t processes = 4;                       // at once, threads included
};

// The python3 that programs run with; kMissing, with how to get one, where there is none.
std::string find_python();

// Whether each program ran to its end without an exception, as the tests of HumanEval and the like say "passed".
// exit(), a crash, a limit or a signal is a failure. As many run side by side as there are threads, fewer where the
// machine's free memory does not hold all that they may take; what each may take and the order of the results do not
// depend on it. A stop (base/stop.h) ends those that run. Errors (kMissing): no python3, or a kernel that forbids these
// namespaces; nothing was run then.
//
// A program can only lie about itself: "passed" is a random word that the runner says after the program's last line, so
// output, exit codes and blind writes to open files say nothing. (A program that searches the memory of its own
// interpreter for the word could say it; tests that run inside the program under test can be deceived in simpler ways,
// by answers that compare equal to everything.)
std::vector<bool> run_python_programs(const std::vector<std::string>& programs, const SandboxLimits& limits = {},
                                      StopFlag stop = nullptr);

// What a program writes to its standard output, which reads `input` and finds `argv` as its arguments; nothing where it
// ends with an exception, another code than 0 or a limit, or writes more than a MiB. Errors as above.
std::optional<std::string> run_python_tool(const std::string& source, const std::vector<std::string>& argv,
                                           const std::string& input, const SandboxLimits& limits = {});

}  // namespace mxt::eval
