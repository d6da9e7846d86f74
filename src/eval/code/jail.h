// What happens between clone() and Python: the inside of the sandbox is built, then everything that could build is
// given up. Runs in a copy of a process with threads, so nothing here allocates after prepare().
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "eval/code/sandbox.h"

namespace mxt::eval {

struct Jail {
  std::string root;    // a folder to mount on
  std::string python;  // path of the interpreter
  std::string runner;  // its program
  SandboxLimits limits;
  int input = -1, result = -1, errors = -1, go = -1;  // become 0, 3, closed on exec, read before anything else

  void prepare();             // before clone()
  [[noreturn]] void enter();  // in the first process of the new namespaces

 private:
  [[noreturn]] void fail(const char* step) const;
  void end_with_parent() const;
  void build() const;  // a root of its own: tmpfs, read-only system folders, /tmp, /dev/null
  void limit() const;  // rlimits, capabilities, no_new_privs, system calls
  [[noreturn]] void become_python() const;

  struct Folder {
    std::string from, to, link;  // `link`: a symbolic link instead of a mount
  };
  std::vector<Folder> folders_;
  std::string tmp_, dev_, null_, tmp_options_;
};

}  // namespace mxt::eval
