#include <sqlite3.h>

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "pytext/unicode.h"
#include "track/track.h"

namespace mxt::track {
namespace {

struct Close {
  void operator()(sqlite3* d) const { sqlite3_close(d); }
};

class Db {
 public:
  explicit Db(const std::string& path) : path_(path) {
    sqlite3* d = nullptr;
    const int code = sqlite3_open(path.c_str(), &d);
    db_.reset(d);
    if (code != SQLITE_OK) fail();
    sqlite3_busy_timeout(d, 10'000);
  }
  void run(const char* sql, const std::vector<std::string>& values = {}) {
    sqlite3_stmt* s = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql, -1, &s, nullptr) != SQLITE_OK) fail();
    for (size_t i = 0; i < values.size(); ++i)
      sqlite3_bind_text(s, static_cast<int>(i + 1), values[i].data(), static_cast<int>(values[i].size()),
                        SQLITE_TRANSIENT);
    const int code = sqlite3_step(s);
    sqlite3_finalize(s);
    if (code != SQLITE_DONE && code != SQLITE_ROW) fail();
  }

 private:
  [[noreturn]] void fail() const {
    fail_input("{}: cannot be written as trackio's file: {}: move it away, or update trackio and open it once", path_,
               sqlite3_errmsg(db_.get()));
  }
  std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
};

std::string iso(double time) {
  const auto seconds = static_cast<time_t>(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:06}+00:00", text, static_cast<int>((time - static_cast<double>(seconds)) * 1e6));
}

// trackio's own rule for the name of a project's file (canonical_project_name of its sqlite_storage.py): what Python's
// str.isalnum() takes, "-" and "_".
std::string file_name(const std::string& project) {
  std::string out;
  for (size_t at = 0; at < project.size();) {
    const uint32_t c = next_code_point(project, at);
    if (pytext::is_alnum(c) || c == '-' || c == '_') append_utf8(out, c);
  }
  return (out.empty() ? "default" : out) + ".db";
}

}  // namespace

std::string write_trackio(const Curves& c, const std::string& folder) {
  make_folders(folder);
  const std::string path = folder + "/" + file_name(c.project);
  Db db(path);
  db.run("BEGIN IMMEDIATE");
  db.run(
      "CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT "
      "NOT "
      "NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)");
  db.run(
      "CREATE TABLE IF NOT EXISTS configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT "
      "NOT "
      "NULL, config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id))");
  db.run("CREATE INDEX IF NOT EXISTS idx_metrics_run_step ON metrics(run_id, step)");
  db.run("DELETE FROM metrics WHERE run_id = ?", {c.id});
  db.run("DELETE FROM configs WHERE run_id = ?", {c.id});
  const auto text = [](const OrderedJson& j) { return j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); };
  db.run("INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)",
         {c.id, c.run_name, text(c.config), iso(c.started)});
  for (const Point& p : c.points) {
    OrderedJson values = OrderedJson::object();
    for (const auto& [key, v] : p.values) values[key] = v;
    db.run("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)",
           {c.id, iso(p.time), c.run_name, std::to_string(p.step), text(values)});
  }
  db.run("COMMIT");
  return path;
}

}  // namespace mxt::track
