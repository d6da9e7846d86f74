#include "registry/registry.h"

#include <sqlite3.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/host.h"
#include "base/text.h"

namespace mxt::registry {
namespace {

constexpr int kSchema = 4;       // 2: jobs, 3: notes of folders, 4: notes of runs
constexpr int kBusyMs = 10'000;  // another process holds the file for milliseconds; a slow disk for seconds

std::string proc_text(const std::string& path) {
  try {
    return std::string(trim(read_file(path)));
  } catch (const Error&) {
    return "";
  }
}

// When the process began, in clock ticks after boot: field 22 of its stat, counted behind the name in brackets. ""
// where there is no such process.
std::string start_time(int64_t pid) {
  const std::string stat = proc_text("/proc/" + std::to_string(pid) + "/stat");
  size_t at = stat.rfind(')');
  if (at == std::string::npos) return "";
  for (int field = 2; field < 22; ++field) {
    at = stat.find(' ', at + 1);
    if (at == std::string::npos) return "";
  }
  return stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
}

std::string boot_id() { return proc_text("/proc/sys/kernel/random/boot_id"); }

constexpr const char* kNames[] = {"running", "finished", "stopped", "failed", "interrupted"};

State state_of(const std::string& name) {
  for (int i = 0; i < 5; ++i)
    if (name == kNames[i]) return static_cast<State>(i);
  return State::kInterrupted;
}

}  // namespace

std::string whole_name(const std::string& folder) {
  std::error_code ec;
  fs::path at = fs::weakly_canonical(fs::absolute(folder), ec);
  if (ec) at = fs::absolute(folder).lexically_normal();
  return (at.has_filename() ? at : at.parent_path()).string();
}

std::string_view name_of(State s) { return kNames[static_cast<int>(s)]; }

struct Registry::Db {
  sqlite3* db = nullptr;
  std::string path;
  ~Db() { sqlite3_close(db); }

  [[noreturn]] void fail() const {
    fail_input("{}: the registry of runs cannot be used: {}", path, sqlite3_errmsg(db));
  }

  void run(const char* sql) const {
    if (patiently([&] { return sqlite3_exec(db, sql, nullptr, nullptr, nullptr); }) != SQLITE_OK) fail();
  }

  // SQLite's busy handler is not asked where waiting could be for ever: on the change to WAL, and while another process
  // recovers or removes the log. Those are over in milliseconds.
  template <typename F>
  static int patiently(F step) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kBusyMs);
    for (;;) {
      const int rc = step();
      if ((rc & 0xff) != SQLITE_BUSY || std::chrono::steady_clock::now() > end) return rc;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  // A statement with its values bound in order; columns are read by next().
  class Statement {
   public:
    template <typename... T>
    Statement(const Db& owner, const char* sql, const T&... values) : owner_(owner) {
      if (patiently([&] { return sqlite3_prepare_v2(owner.db, sql, -1, &s_, nullptr); }) != SQLITE_OK) owner.fail();
      int i = 0;
      (bind(++i, values), ...);
    }
    ~Statement() { sqlite3_finalize(s_); }
    Statement(const Statement&) = delete;
    bool next() {
      const int rc = patiently([&] {
        const int r = sqlite3_step(s_);
        if ((r & 0xff) == SQLITE_BUSY) sqlite3_reset(s_);  // a busy statement has given no row yet
        return r;
      });
      if (rc != SQLITE_ROW && rc != SQLITE_DONE) owner_.fail();
      return rc == SQLITE_ROW;
    }
    std::string text(int column) const {
      const auto* t = reinterpret_cast<const char*>(sqlite3_column_text(s_, column));
      return t ? std::string(t, static_cast<size_t>(sqlite3_column_bytes(s_, column))) : std::string();
    }
    int64_t integer(int column) const { return sqlite3_column_int64(s_, column); }

   private:
    void bind(int i, int64_t v) { sqlite3_bind_int64(s_, i, v); }
    void bind(int i, const std::string& v) {
      sqlite3_bind_text(s_, i, v.data(), static_cast<int>(v.size()), SQLITE_TRANSIENT);
    }
    const Db& owner_;
    sqlite3_stmt* s_ = nullptr;
  };
};

Registry::Registry(std::unique_ptr<Db> db) : db_(std::move(db)) {}
Registry::~Registry() = default;
Registry::Registry(Registry&&) noexcept = default;
Registry& Registry::operator=(Registry&&) noexcept = default;

Registry Registry::open(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) make_folders(parent.string());
  auto db = std::make_unique<Db>();
  db->path = path;
  if (sqlite3_open_v2(path.c_str(), &db->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr) != SQLITE_OK)
    db->fail();
  sqlite3_busy_timeout(db->db, kBusyMs);
  db->run("PRAGMA journal_mode=WAL");
  db->run("PRAGMA synchronous=NORMAL");  // with WAL a crash loses no more than the last row written, never the file
  // One writer makes the tables; the rest finds them.
  db->run("BEGIN IMMEDIATE");
  int64_t version = 0;
  {
    Db::Statement s(*db, "PRAGMA user_version");
    if (s.next()) version = s.integer(0);
  }
  if (version == 0) {
    db->run(
        "CREATE TABLE IF NOT EXISTS runs("
        "id INTEGER PRIMARY KEY AUTOINCREMENT, folder TEXT NOT NULL, project TEXT NOT NULL, run_name TEXT NOT NULL,"
        "recipe_hash TEXT NOT NULL, verb TEXT NOT NULL, started TEXT NOT NULL, ended TEXT NOT NULL DEFAULT '',"
        "attempts INTEGER NOT NULL DEFAULT 1, state TEXT NOT NULL, stage TEXT NOT NULL DEFAULT '', message TEXT NOT "
        "NULL DEFAULT '',"
        "host TEXT NOT NULL, pid INTEGER NOT NULL, process TEXT NOT NULL, metrics TEXT NOT NULL DEFAULT '{}',"
        "digests TEXT NOT NULL DEFAULT '{}', UNIQUE(folder, recipe_hash))");
  }
  if (version < 2)
    db->run(
        "CREATE TABLE IF NOT EXISTS jobs("
        "folder TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, created INTEGER NOT NULL, "
        "started INTEGER NOT NULL,"
        "ended INTEGER NOT NULL, attempts INTEGER NOT NULL, pid INTEGER NOT NULL, process_start INTEGER NOT NULL, "
        "exit_code INTEGER NOT NULL,"
        "PRIMARY KEY(folder, id))");
  if (version < 3)
    db->run(
        "CREATE TABLE IF NOT EXISTS notes(folder TEXT PRIMARY KEY, name TEXT NOT NULL, tags TEXT NOT NULL, archived "
        "INTEGER NOT NULL)");
  if (version < 4)  // what was said of a folder was said of its runs; notes of folders are left to those without one
    db->run(
        "CREATE TABLE IF NOT EXISTS run_notes(run INTEGER PRIMARY KEY, name TEXT NOT NULL, tags TEXT NOT NULL, "
        "archived INTEGER NOT NULL);"
        "INSERT OR IGNORE INTO run_notes SELECT runs.id, name, tags, archived FROM runs JOIN notes USING(folder);"
        "DELETE FROM notes WHERE folder IN (SELECT folder FROM runs)");
  if (version < kSchema) db->run(fmt::format("PRAGMA user_version={}", kSchema).c_str());
  db->run("COMMIT");
  if (version > kSchema) fail_input("{}: the registry of runs is of a newer version of this program", path);
  return Registry(std::move(db));
}

int64_t Registry::begin(const std::string& folder, const std::string& project, const std::string& run_name,
                        const std::string& recipe_hash, const std::string& verb) {
  const std::string where = whole_name(folder);
  const auto pid = static_cast<int64_t>(getpid());
  Db::Statement s(*db_,
                  "INSERT INTO runs(folder, project, run_name, recipe_hash, verb, started, state, host, pid, process)"
                  " VALUES(?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7, ?8, ?9)"
                  " ON CONFLICT(folder, recipe_hash) DO UPDATE SET project=?2, run_name=?3, verb=?5, started=?6, "
                  "ended='', attempts=attempts+1,"
                  " state='running', stage='', message='', host=?7, pid=?8, process=?9 RETURNING id",
                  where, project, run_name, recipe_hash, verb, utc_now(), host_name(), pid,
                  boot_id() + " " + start_time(pid));
  if (!s.next()) db_->fail();
  const int64_t id = s.integer(0);
  s.next();
  Db::Statement(*db_, "UPDATE run_notes SET archived=0 WHERE run=?", id).next();
  Db::Statement(*db_, "INSERT OR IGNORE INTO run_notes SELECT ?1, name, tags, archived FROM notes WHERE folder=?2", id,
                where)
      .next();
  Db::Statement(*db_, "DELETE FROM notes WHERE folder=?", where).next();
  return id;
}

void Registry::set_stage(int64_t id, const std::string& stage) {
  Db::Statement(*db_, "UPDATE runs SET stage=?1 WHERE id=?2", stage, id).next();
}

void Registry::end(int64_t id, State state, const std::string& message, const Json& metrics, const Json& digests) {
  const auto dumped = [](const Json& j) {
    return j.is_null() ? std::string() : j.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  Db::Statement(*db_,
                "UPDATE runs SET state=?1, message=?2, ended=?3, metrics=CASE ?4 WHEN '' THEN metrics ELSE ?4 END,"
                " digests=CASE ?5 WHEN '' THEN digests ELSE ?5 END WHERE id=?6",
                std::string(name_of(state)), message, utc_now(), dumped(metrics), dumped(digests), id)
      .next();
}

void Registry::save_job(const JobRow& j) {
  Db::Statement(*db_,
                "INSERT OR REPLACE INTO jobs(folder, id, name, state, created, started, ended, attempts, pid, "
                "process_start, exit_code) VALUES(?,?,?,?,?,?,?,?,?,?,?)",
                j.folder, j.id, j.name, j.state, j.created, j.started, j.ended, j.attempts, j.pid,
                static_cast<int64_t>(j.process_start), int64_t{j.exit_code.value_or(-1)})
      .next();
}

std::vector<JobRow> Registry::jobs(const std::string& folder) const {
  std::vector<JobRow> out;
  Db::Statement s(*db_,
                  "SELECT id, name, state, created, started, ended, attempts, pid, process_start, exit_code FROM jobs "
                  "WHERE folder=? ORDER BY id",
                  folder);
  while (s.next()) {
    JobRow j{folder,
             s.text(0),
             s.text(1),
             s.text(2),
             s.integer(3),
             s.integer(4),
             s.integer(5),
             s.integer(6),
             s.integer(7),
             static_cast<uint64_t>(s.integer(8)),
             {}};
    if (s.integer(9) >= 0) j.exit_code = static_cast<int>(s.integer(9));
    out.push_back(std::move(j));
  }
  return out;
}

void Registry::remove_job(const std::string& folder, const std::string& id) {
  Db::Statement(*db_, "DELETE FROM jobs WHERE folder=? AND id=?", folder, id).next();
}

namespace {

std::string tags_text(const Note& note) {
  return OrderedJson(note.tags).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Note note_of(const std::string& name, const std::string& tags, int64_t archived) {
  Note n{name, {}, archived != 0};
  for (const auto& t : OrderedJson::parse(tags, nullptr, false))
    if (t.is_string()) n.tags.push_back(t.get<std::string>());
  return n;
}

}  // namespace

void Registry::set_note(int64_t id, const Note& note) {
  if (note == Note{})
    Db::Statement(*db_, "DELETE FROM run_notes WHERE run=?", id).next();
  else
    Db::Statement(*db_, "INSERT OR REPLACE INTO run_notes(run, name, tags, archived) VALUES(?,?,?,?)", id, note.name,
                  tags_text(note), int64_t{note.archived})
        .next();
}

Note Registry::change_note(int64_t id, const std::function<void(Note&)>& change) {
  db_->run("BEGIN IMMEDIATE");
  try {
    Note note;
    {
      Db::Statement s(*db_, "SELECT name, tags, archived FROM run_notes WHERE run=?", id);
      if (s.next()) note = note_of(s.text(0), s.text(1), s.integer(2));
    }
    change(note);
    set_note(id, note);
    db_->run("COMMIT");
    return note;
  } catch (...) {
    db_->run("ROLLBACK");
    throw;
  }
}

void Registry::set_waiting_note(const std::string& folder, const Note& note) {
  if (note == Note{})
    Db::Statement(*db_, "DELETE FROM notes WHERE folder=?", folder).next();
  else
    Db::Statement(*db_, "INSERT OR REPLACE INTO notes(folder, name, tags, archived) VALUES(?,?,?,?)", folder, note.name,
                  tags_text(note), int64_t{note.archived})
        .next();
}

std::map<std::string, Note> Registry::waiting_notes() const {
  std::map<std::string, Note> out;
  Db::Statement s(*db_, "SELECT folder, name, tags, archived FROM notes");
  while (s.next()) out.emplace(s.text(0), note_of(s.text(1), s.text(2), s.integer(3)));
  return out;
}

void Registry::remove(const Run& run) {
  if (run.state == State::kRunning) fail_input("run {} is still running: stop it first", run.id);
  Db::Statement(*db_, "DELETE FROM runs WHERE id=?", run.id).next();
  set_note(run.id, {});
}

namespace {
constexpr const char* kColumns =
    "SELECT id, folder, project, run_name, recipe_hash, verb, started, ended, attempts, state, stage, message, host, "
    "pid, process, metrics, digests, name, tags, archived FROM runs LEFT JOIN run_notes ON run = runs.id ";
}

std::vector<Run> Registry::list(int64_t limit) const {
  std::vector<Run> out;
  Db::Statement s(*db_, (std::string(kColumns) + "ORDER BY started DESC, id DESC LIMIT ?1").c_str(),
                  limit > 0 ? limit : int64_t{-1});
  const std::string host = host_name(), boot = boot_id();
  std::map<std::string, int64_t> newest;  // of each folder
  while (s.next()) {
    Run r;
    r.id = s.integer(0);
    r.folder = s.text(1);
    r.project = s.text(2);
    r.run_name = s.text(3);
    r.recipe_hash = s.text(4);
    r.verb = s.text(5);
    r.started = s.text(6);
    r.ended = s.text(7);
    r.attempts = s.integer(8);
    r.state = state_of(s.text(9));
    r.stage = s.text(10);
    r.message = s.text(11);
    r.host = s.text(12);
    r.pid = s.integer(13);
    // Only the machine that it ran on can tell whether it still does.
    if (r.state == State::kRunning && r.host == host && s.text(14) != boot + " " + start_time(r.pid))
      r.state = State::kInterrupted;
    r.metrics = s.text(15);
    r.digests = s.text(16);
    r.note = note_of(s.text(17), s.text(18), s.integer(19));
    const auto [holder, first] = newest.emplace(r.folder, r.id);
    if (!first) r.replaced_by = holder->second;
    out.push_back(std::move(r));
  }
  return out;
}

std::optional<Run> Registry::find(const std::string& key) const {
  int64_t id = -1;
  const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool is_id = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
  if (key.empty()) return std::nullopt;
  const std::string folder = whole_name(key);
  std::optional<Run> by_folder, by_note, by_name;
  for (Run& r : list()) {
    if (is_id && r.id == id) return std::move(r);
    if (!by_folder && (r.folder == folder || r.folder + "/" == folder)) by_folder = r;
    if (!by_note && r.note.name == key) by_note = r;
    if (!by_name && r.run_name == key) by_name = r;
  }
  return by_folder ? by_folder : by_note ? by_note : by_name;
}

}  // namespace mxt::registry
