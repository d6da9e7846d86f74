// A program that a reward asks, and whatever it starts: all of it ends when the program does, when it is given up, and
// when this process ends, killed or not.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace mxt::train {

class Handle {  // of an open file
 public:
  explicit Handle(int fd = -1) : fd_(fd) {}
  ~Handle() { close(); }
  Handle(const Handle&) = delete;
  int get() const { return fd_; }
  void close();

 private:
  int fd_;
};

class Child {
 public:
  // Throws where the program cannot be started.
  Child(const std::vector<std::string>& command, int input, int output, int errors);
  ~Child();
  Child(const Child&) = delete;
  // Waits for its end until `until`; its exit code, 128 and the signal where one ended it; nothing where it still runs.
  std::optional<int> wait(std::chrono::steady_clock::time_point until);

 private:
  pid_t keeper_ = -1;
  int life_ = -1;            // as long as it is open the program may run
  std::optional<int> code_;  // once it has ended
};

}  // namespace mxt::train
