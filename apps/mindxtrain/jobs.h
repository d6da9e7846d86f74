// Training jobs for /v1/training/jobs: each is `mindxtrain run` as a process of its own in a folder of its own. They
// stand in the registry and outlive the server: what still runs is found again, what was interrupted goes on, what
// waited waits.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/files.h"
#include "base/json.h"
#include "recipe_paths.h"
#include "registry/registry.h"
#include "serve/operator.h"

namespace mxt::app {

class Jobs final : public serve::TrainingJobs {
 public:
  // FOLDER/ID/{recipe.yaml, log.txt, run/}. `running`: so many at once, the others wait in order. Recipes may name
  // files in `roots` alone.
  Jobs(std::string folder, int running, Roots roots);
  ~Jobs() override;  // jobs go on

  std::string create(const std::string& body) override;
  std::string list() override;
  std::string get(const std::string& id) override;
  std::string cancel(const std::string& id) override;
  std::string resume(const std::string& id) override;
  std::pair<std::vector<std::string>, bool> events(const std::string& id, size_t line) override;

  const std::string& folder() const { return folder_; }
  std::vector<registry::JobRow> rows();  // newest first
  void forget(const std::string& id);    // one that has ended; its folder stays

 private:
  struct Job;
  Job& find(const std::string& id);
  void save(const Job& job);
  OrderedJson describe(const Job& job) const;
  void start(Job& job);
  void look(Job& job);  // has its process ended?
  void loop();

  std::string folder_;
  int most_;
  Roots roots_;
  FolderLock lock_;
  registry::Registry registry_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;  // ids begin with the time: in the order of their making
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mxt::app
