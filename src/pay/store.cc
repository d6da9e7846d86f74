#include "pay/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace mxt::pay {
namespace {

constexpr int kBusyMs = 10'000;
constexpr const char* kTable =
    "CREATE TABLE IF NOT EXISTS payments(key TEXT PRIMARY KEY, request TEXT NOT NULL, state INTEGER NOT NULL, amount "
    "TEXT "
    "NOT NULL, payment TEXT NOT NULL, attempts TEXT NOT NULL, tx TEXT NOT NULL, identifier TEXT NOT NULL) STRICT;"
    "CREATE INDEX IF NOT EXISTS by_state ON payments(state);"
    "CREATE INDEX IF NOT EXISTS by_identifier ON payments(identifier) WHERE identifier <> '';"
    "CREATE TABLE IF NOT EXISTS answers(identifier TEXT PRIMARY KEY, payment TEXT NOT NULL, request TEXT NOT NULL, "
    "status INTEGER NOT NULL, headers TEXT NOT NULL, body TEXT NOT NULL) STRICT;";
constexpr const char* kColumns = "SELECT key, request, state, amount, payment, attempts, tx, identifier FROM payments ";

}  // namespace

struct Store::Db {
  sqlite3* db = nullptr;
  int lock = -1;
  std::string path;
  ~Db() {
    sqlite3_close(db);
    if (lock >= 0) close(lock);
  }
  [[noreturn]] void fail() const {
    throw StoreFailed(Exit::kBadInput, fmt::format("{}: the store of payments cannot be used: {}", path,
                                                   db ? sqlite3_errmsg(db) : "out of memory"));
  }
  void run(const char* sql) const {
    if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
  }

  class Statement {
   public:
    Statement(const Db& db, const std::string& sql) : db_(db) {
      if (sqlite3_prepare_v2(db.db, sql.c_str(), -1, &s_, nullptr) != SQLITE_OK) db.fail();
    }
    ~Statement() { sqlite3_finalize(s_); }
    Statement(const Statement&) = delete;
    Statement& bind(const std::string& text) {
      if (sqlite3_bind_text(s_, ++n_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT) != SQLITE_OK)
        db_.fail();
      return *this;
    }
    Statement& bind(int n) {
      if (sqlite3_bind_int(s_, ++n_, n) != SQLITE_OK) db_.fail();
      return *this;
    }
    bool step() {
      const int rc = sqlite3_step(s_);
      if (rc != SQLITE_ROW && rc != SQLITE_DONE) db_.fail();
      return rc == SQLITE_ROW;
    }
    std::string text(int column) const {
      const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(s_, column));
      return p ? std::string(p, static_cast<size_t>(sqlite3_column_bytes(s_, column))) : "";
    }
    int number(int column) const { return sqlite3_column_int(s_, column); }

   private:
    const Db& db_;
    sqlite3_stmt* s_ = nullptr;
    int n_ = 0;
  };

  void put(const Record& r) const {
    Statement s(*this, "INSERT OR REPLACE INTO payments VALUES(?, ?, ?, ?, ?, ?, ?, ?)");
    s.bind(r.key).bind(r.request).bind(static_cast<int>(r.state)).bind(r.amount).bind(r.payment.dump());
    s.bind(r.attempts.dump()).bind(r.transaction).bind(r.identifier).step();
  }
  void keep(const KeptAnswer& a) const {
    Statement s(*this, "INSERT OR IGNORE INTO answers VALUES(?, ?, ?, ?, ?, ?)");
    s.bind(a.name).bind(a.payment).bind(a.request).bind(a.status).bind(a.headers.dump()).bind(a.body).step();
    Statement old(*this, "DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?");
    old.bind(kMostAnswers).step();
  }

  static Record record(const Statement& s) {
    Record r;
    r.key = s.text(0);
    r.request = s.text(1);
    r.state = static_cast<State>(s.number(2));
    r.amount = s.text(3);
    r.payment = Json::parse(s.text(4), nullptr, false);
    r.attempts = Json::parse(s.text(5), nullptr, false);
    r.transaction = s.text(6);
    r.identifier = s.text(7);
    return r;
  }
};

Store::Store(const std::string& path) : db_(std::make_unique<Db>()) {
  db_->path = path;
  if (const auto parent = fs::path(path).parent_path(); !parent.empty()) make_folders(parent.string());
  db_->lock = open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (db_->lock < 0 || flock(db_->lock, LOCK_EX | LOCK_NB) != 0)
    fail_input("{}: another server takes payments with this store: give each its own (publish.billing.x402.store)",
               path);
  if (sqlite3_open(path.c_str(), &db_->db) != SQLITE_OK) db_->fail();
  sqlite3_busy_timeout(db_->db, kBusyMs);
  db_->run("PRAGMA journal_mode=WAL");
  db_->run("PRAGMA synchronous=FULL");  // what was said to be kept is kept, whatever stops the machine
  db_->run(kTable);
}

Store::~Store() = default;

std::optional<Record> Store::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  Db::Statement s(*db_, std::string(kColumns) + "WHERE key = ?");
  return s.bind(key).step() ? std::optional(Db::record(s)) : std::nullopt;
}

std::optional<Record> Store::find_identifier(const std::string& identifier) {
  const std::lock_guard lock(mutex_);
  Db::Statement s(*db_, std::string(kColumns) + "WHERE identifier = ?");
  return s.bind(identifier).step() ? std::optional(Db::record(s)) : std::nullopt;
}

bool Store::has_transaction(const std::string& hash, const std::string& but_of) {
  const std::lock_guard lock(mutex_);
  Db::Statement s(*db_, "SELECT 1 FROM payments WHERE tx = ? AND key <> ?");
  return s.bind(hash).bind(but_of).step();
}

void Store::put(const Record& r) {
  const std::lock_guard lock(mutex_);
  db_->put(r);
}

void Store::keep_answer(const KeptAnswer& a) {
  const std::lock_guard lock(mutex_);
  db_->keep(a);
}

void Store::put_answered(const Record& r, const KeptAnswer& a) {
  const std::lock_guard lock(mutex_);
  db_->run("BEGIN IMMEDIATE");
  try {
    db_->keep(a);
    db_->put(r);
    db_->run("COMMIT");
  } catch (const Error&) {
    sqlite3_exec(db_->db, "ROLLBACK", nullptr, nullptr, nullptr);  // the first failure is the one to be told
    throw;
  }
}

void Store::put_served(const Record& r) {
  const std::lock_guard lock(mutex_);
  const struct Unsynced {
    const Db& db;
    ~Unsynced() { sqlite3_exec(db.db, "PRAGMA synchronous=FULL", nullptr, nullptr, nullptr); }
  } unsynced{*db_};
  db_->run("PRAGMA synchronous=OFF");
  db_->put(r);
  if (!r.identifier.empty()) return;
  Db::Statement s(*db_, "DELETE FROM answers WHERE identifier = ?");
  s.bind(r.key).step();
}

std::optional<KeptAnswer> Store::answer_of(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Db::Statement s(*db_, "SELECT payment, request, status, headers, body FROM answers WHERE identifier = ?");
  if (!s.bind(name).step()) return std::nullopt;
  return KeptAnswer{name, s.text(0), s.text(1), s.number(2), Json::parse(s.text(3), nullptr, false), s.text(4)};
}

std::vector<Record> Store::in(State state) {
  const std::lock_guard lock(mutex_);
  Db::Statement s(*db_, std::string(kColumns) + "WHERE state = ? ORDER BY rowid");
  s.bind(static_cast<int>(state));
  std::vector<Record> out;
  while (s.step()) out.push_back(Db::record(s));
  return out;
}

std::vector<Record> Store::under_way(const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  Db::Statement s(*db_, std::string(kColumns) + "WHERE state IN (?, ?, ?) AND substr(key, 1, length(?)) = ?");
  for (const State one : {State::kGranted, State::kOwed, State::kSent}) s.bind(static_cast<int>(one));
  s.bind(prefix).bind(prefix);
  std::vector<Record> out;
  while (s.step()) out.push_back(Db::record(s));
  return out;
}

}  // namespace mxt::pay
