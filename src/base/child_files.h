// The open files of a process that was forked for somebody else's program.
#pragma once

#include <span>

namespace mxt {

// Closes every file from number `first` on, but those in `keep`, which it sorts. For a copy of a process with threads:
// calls the kernel alone and allocates nothing.
void close_files_but(int first, std::span<int> keep) noexcept;

}  // namespace mxt
