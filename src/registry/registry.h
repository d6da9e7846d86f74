// The registry of runs and of servers' jobs: one row for a run's folder and recipe, in a SQLite file that many
// processes share (WAL, busy timeout). A run that was killed says "running" in the file; readers show it as
// interrupted, because the process that wrote it, named by id, start time and boot, lives no more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::registry {

// Of a process that began a run and ended without saying how: interrupted. `kStopped` ended itself on a signal, its
// state saved.
enum class State { kRunning, kFinished, kStopped, kFailed, kInterrupted };
std::string_view name_of(State state);

// A run's folder as everything that outlives a command names it: DIR, DIR/ and a link to DIR are one.
std::string whole_name(const std::string& folder);

// What a person says of a run; it outlives its attempts. Of a job whose run has not begun: the run takes it over.
struct Note {
  std::string name;  // instead of the recipe's run_name; "" none
  static constexpr size_t kMostTags = 20;
  std::vector<std::string> tags;
  bool archived = false;  // left out of lists unless asked for
  bool operator==(const Note&) const = default;
};

struct Run {
  int64_t id = 0;
  std::string folder;  // absolute
  std::string project, run_name, recipe_hash, verb;
  std::string started, ended;  // UTC, ISO 8601; of the last attempt, "" while it lasts
  int64_t attempts = 1;
  State state = State::kRunning;
  std::string stage;    // the last one that was begun: plan, dataset, train …
  std::string message;  // of a failure
  std::string host;
  int64_t pid = 0;               // of the last attempt
  std::string metrics, digests;  // JSON objects as text, "{}" where there are none yet
  int64_t replaced_by = 0;       // the run that began later in its folder, whose files lie there now; 0: none
  Note note;
  const std::string& name() const { return note.name.empty() ? run_name : note.name; }
};

// A training job that a server started: `mindxtrain run` in FOLDER/ID. The run itself has a row of its own.
struct JobRow {
  std::string folder, id;                       // the server's folder of jobs, absolute; the job's name in it
  std::string name, state;                      // queued running cancelling finished failed cancelled
  int64_t created = 0, started = 0, ended = 0;  // Unix time, 0: not yet
  int64_t attempts = 0, pid = 0;
  uint64_t process_start = 0;  // with the pid it names a process for good
  std::optional<int> exit_code;
};

class Registry {
 public:
  // Makes the file and its folders where need be. kBadInput where it cannot be opened or is no registry.
  static Registry open(const std::string& path);
  ~Registry();
  Registry(Registry&&) noexcept;
  Registry& operator=(Registry&&) noexcept;

  // A process begins (or goes on with) the run of `folder`: the row of this folder and recipe, or a new one. It is
  // archived no more. Returns its id.
  int64_t begin(const std::string& folder, const std::string& project, const std::string& run_name,
                const std::string& recipe_hash, const std::string& verb);
  void set_stage(int64_t id, const std::string& stage);
  // The attempt is over. Metrics and digests are kept as they were where null.
  void end(int64_t id, State state, const std::string& message, const Json& metrics, const Json& digests);

  // Adds the job or writes over what is there of (folder, id).
  void save_job(const JobRow& job);
  std::vector<JobRow> jobs(const std::string& folder) const;  // by id
  void remove_job(const std::string& folder, const std::string& id);

  // An empty note is none.
  void set_note(int64_t id, const Note& note);
  // What is there, changed, and what it is then. No other process changes it between; where `change` throws, it stays.
  Note change_note(int64_t id, const std::function<void(Note&)>& change);
  // Of the run that will begin in `folder` (absolute), where a job waits to begin it.
  void set_waiting_note(const std::string& folder, const Note& note);
  std::map<std::string, Note> waiting_notes() const;  // by folder
  // Takes a run and its note out of the registry. Its files stay. kBadInput while it runs.
  void remove(const Run& run);

  // Newest first; at most `limit` (0: all).
  std::vector<Run> list(int64_t limit = 0) const;
  // By id, by folder, or by name (a person's before the recipes'; the newest of that name); empty where there is none.
  std::optional<Run> find(const std::string& id_folder_or_name) const;

 private:
  struct Db;
  explicit Registry(std::unique_ptr<Db> db);
  std::unique_ptr<Db> db_;
};

}  // namespace mxt::registry
