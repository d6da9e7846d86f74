// The base and the tuned model of one run, served by processes of their own (`mindxtrain serve` on loopback, behind a
// key that nobody else has), so that trying them costs the server neither memory nor its life. They end with this
// process, however it ends.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::app {

class Playground {
 public:
  explicit Playground(std::string scratch) : scratch_(std::move(scratch)) {}
  ~Playground() { stop(); }
  Playground(const Playground&) = delete;

  // Ends the one before. `base` may be "" (the run began with random weights). An adapter and its base share a process.
  void start(const std::string& run, const std::string& base, const std::string& checkpoint);
  void stop();
  // {"run","state":"none|starting|ready|failed","models":["base","tuned"],"message"}
  OrderedJson describe();
  std::string address(const std::string& model, std::string& api_key);

 private:
  struct Server {
    pid_t pid = 0;
    int port = 0;
    int life = -1;  // our end of its standard input
    std::vector<std::string> models;
    std::string log;
    bool ready = false;
  };
  void spawn(const std::vector<std::string>& arguments, std::vector<std::string> models);
  void stop_locked();
  std::string failure_of(Server& s);  // "" while it lives

  std::string scratch_, run_, key_, failed_;
  std::vector<Server> servers_;
  std::mutex mutex_;
};

}  // namespace mxt::app
