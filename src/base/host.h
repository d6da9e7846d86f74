// The machine and the moment, as records name them.
#pragma once

#include <cstdint>
#include <string>

namespace mxt {

std::string utc_text(int64_t seconds);  // since 1970: 2026-01-31T09:30:00Z
std::string utc_now();
std::string host_name();  // "" where the kernel does not say

// The file whose code this is, and the folder beside which things that ship are looked for: the running program's,
// unless set_program() named others, as a module inside another program does before anything asks. "" where the system
// does not show it.
std::string program_file();
std::string program_folder();
void set_program(std::string file, std::string folder);

}  // namespace mxt
