#include "data/source/table.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/source/duckdb_api.h"
#include "data/source/parquet_pages.h"
#include "data/source/table_bytes.h"

namespace mxt::data {
namespace {

using namespace duckdb;

// DuckDB's own limit for what it holds; buffers of the decoders come on top.
constexpr const char* kMemory = "600MB";
// Longest row of a text file under data.sql: DuckDB's buffers are multiples of it.
constexpr uint64_t kMaxRow = uint64_t{16} << 20;

std::string literal(std::string_view s) { return sql_quoted(s, '\''); }
std::string identifier(std::string_view s) { return sql_quoted(s, '"'); }

// The first line, without the caret drawing that follows it; of CSV the reason and the file stand on later ones.
std::string first_line(const char* text) {
  std::string s = text ? text : "no reason given";
  size_t end = s.find('\n');
  std::string file;
  if (const size_t at = s.find("\n  file = "); at != std::string::npos)
    file = s.substr(at + 10, s.find('\n', at + 10) - at - 10) + ": ";
  if (s.find("CSV Error") < end)
    for (int more = 0; more < 2 && end != std::string::npos; ++more) {
      s[end] = ' ';
      end = s.find('\n', end);
    }
  s = (file + s.substr(0, end)).substr(0, 500);
  return replace_invalid_utf8(s);
}

// A connection that can read `files` and nothing else.
class Connection {
 public:
  Connection(std::span<const SourceFile> files, const std::string& temp_folder) : a_(api()) {
    Config config = nullptr;
    a_.create_config(&config);
    // One thread: it keeps the order of rows in every query, and the tokenizer has use for the other cores.
    const std::pair<const char*, std::string> options[] = {{"threads", "1"},
                                                           {"memory_limit", kMemory},
                                                           {"temp_directory", temp_folder},
                                                           {"autoinstall_known_extensions", "false"},
                                                           {"autoload_known_extensions", "false"},
                                                           {"allow_community_extensions", "false"},
                                                           {"allow_unsigned_extensions", "false"}};
    for (const auto& [name, value] : options)
      if (a_.set_config(config, name, value.c_str()) != kOk) {
        a_.destroy_config(&config);
        fail_missing("DuckDB does not know its setting {}: version 1.2 or newer is needed", name);
      }
    char* error = nullptr;
    const int state = a_.open_ext(nullptr, &database_, config, &error);
    a_.destroy_config(&config);
    if (state != kOk) {
      const std::string why = first_line(error);
      if (error) a_.free(error);
      fail_missing("DuckDB cannot be started: {}", why);
    }
    if (a_.connect(database_, &connection_) != kOk) {
      a_.close(&database_);
      fail_missing("DuckDB cannot be started: no connection");
    }
    try {
      std::string paths;
      for (const SourceFile& f : files) paths += (paths.empty() ? "" : ", ") + literal(fs::absolute(f.path).string());
      run("SET TimeZone = 'UTC'");
      run("SET allowed_paths = [" + paths + "]");
      run("SET enable_external_access = false");
      run("SET lock_configuration = true");
    } catch (...) {
      close();
      throw;
    }
  }
  ~Connection() { close(); }
  Connection(const Connection&) = delete;

  // A statement of ours.
  void run(const std::string& sql) {
    Result r;
    const bool bad = a_.query(connection_, sql.c_str(), &r) != kOk;
    const std::string why = bad ? first_line(a_.result_error(&r)) : "";
    a_.destroy_result(&r);
    if (bad) fail_input("{}", why);
  }
  // All rows of text columns (small answers of ours).
  std::vector<std::vector<std::string>> rows(const std::string& sql, size_t columns);

  const Api& a_;
  Database database_ = nullptr;
  duckdb::Connection connection_ = nullptr;

 private:
  void close() {
    a_.disconnect(&connection_);
    a_.close(&database_);
  }
};

// A streaming result, one text column after another of a chunk.
class Stream {
 public:
  Stream(Connection& c, const std::string& sql) : c_(c), a_(c.a_) {
    if (a_.prepare(c_.connection_, sql.c_str(), &prepared_) != kOk) {
      const std::string why = first_line(a_.prepare_error(prepared_));
      release();
      fail_input("{}", why);
    }
    if (a_.pending_prepared_streaming(prepared_, &pending_) != kOk || a_.execute_pending(pending_, &result_) != kOk) {
      const char* of_result = result_.internal ? a_.result_error(&result_) : nullptr;
      const std::string why = first_line(of_result ? of_result : a_.pending_error(pending_));
      release();
      fail_input("{}", why);
    }
  }
  ~Stream() { release(); }
  Stream(const Stream&) = delete;

  // The next row's first `columns` values; null becomes "". False at the end.
  bool next(std::span<std::string> out) {
    while (at_ == size_) {
      if (ended_) return false;
      if (chunk_) a_.destroy_data_chunk(&chunk_);
      chunk_ = a_.fetch_chunk(result_);
      if (!chunk_) {
        ended_ = true;
        if (const char* e = a_.result_error(&result_); e && *e) fail_input("{}", first_line(e));
        return false;
      }
      at_ = 0;
      size_ = a_.data_chunk_get_size(chunk_);
    }
    for (size_t k = 0; k < out.size(); ++k) {
      const duckdb::Vector v = a_.data_chunk_get_vector(chunk_, k);
      const uint64_t* valid = a_.vector_get_validity(v);
      const Text& t = static_cast<const Text*>(a_.vector_get_data(v))[at_];
      if (valid && !(valid[at_ / 64] >> (at_ % 64) & 1))
        out[k].clear();
      else
        out[k].assign(t.data(), t.length);
    }
    ++at_;
    return true;
  }

 private:
  void release() {
    if (chunk_) a_.destroy_data_chunk(&chunk_);
    if (result_.internal) a_.destroy_result(&result_);
    if (pending_) a_.destroy_pending(&pending_);
    if (prepared_) a_.destroy_prepare(&prepared_);
  }
  Connection& c_;
  const Api& a_;
  Prepared prepared_ = nullptr;
  Pending pending_ = nullptr;
  Result result_;
  Chunk chunk_ = nullptr;
  uint64_t at_ = 0, size_ = 0;
  bool ended_ = false;
};

std::vector<std::vector<std::string>> Connection::rows(const std::string& sql, size_t columns) {
  Stream s(*this, sql);
  std::vector<std::vector<std::string>> out;
  for (std::vector<std::string> row(columns); s.next(row);) out.push_back(row);
  return out;
}

// Names and types of a query's columns.
std::vector<std::vector<std::string>> columns_of(Connection& c, const std::string& from) {
  return c.rows("SELECT column_name, column_type FROM (DESCRIBE " + from + "\n)", 2);
}

// The rows of `query` as JSON, one text a row. JSON has no NaN and no infinity, and no bytes (table_bytes.h).
std::string as_json(Connection& c, const std::string& query) {
  std::string replace;
  for (const auto& column : columns_of(c, query)) {
    const std::string name = identifier(column[0]);
    std::string value;
    if (column[1] == "DOUBLE" || column[1] == "FLOAT")
      value = fmt::format("CASE WHEN isfinite({}) THEN {} END", name, name);
    if (value.empty()) value = bytes_as_text(column[1], name);
    if (!value.empty()) replace += fmt::format("{}{} AS {}", replace.empty() ? "" : ", ", value, name);
  }
  return fmt::format("SELECT to_json(r)::VARCHAR FROM (SELECT *{} FROM ({}\n)) r",
                     replace.empty() ? "" : " REPLACE (" + replace + ")", query);
}

// A Parquet file's row groups, each looked at before its first row is given away.
class Checksums {
 public:
  Checksums(Connection& c, const std::string& path) : file_(path) {
    // A dictionary stands before the pages that use it; some writers say 0 where there is none.
    for (const auto& r : c.rows(fmt::format("SELECT row_group_id::VARCHAR, row_group_num_rows::VARCHAR, "
                                            "CASE WHEN dictionary_page_offset > 0 THEN "
                                            "least(dictionary_page_offset, data_page_offset) ELSE data_page_offset "
                                            "END::VARCHAR, total_compressed_size::VARCHAR, path_in_schema "
                                            "FROM parquet_metadata({})",
                                            literal(fs::absolute(path).string())),
                                5)) {
      const auto number = [&](int k) { return std::strtoull(r[static_cast<size_t>(k)].c_str(), nullptr, 10); };
      const Chunk chunk{number(2), number(3), r[4]};
      if (groups_.empty() || groups_.back().id != number(0)) groups_.push_back({number(0), number(1), {}});
      groups_.back().chunks.push_back(chunk);
    }
  }
  // Of the groups that hold rows below `rows`. Errors (kBadInput): a page that is not what it was.
  void check(uint64_t rows) {
    for (; next_ < groups_.size() && checked_ < rows; ++next_) {
      for (const Chunk& c : groups_[next_].chunks) check(c);
      checked_ += groups_[next_].rows;
      file_.drop_pages();
    }
  }

 private:
  struct Chunk {
    uint64_t begin, bytes;
    std::string column;
  };
  struct Group {
    uint64_t id, rows;
    std::vector<Chunk> chunks;
  };
  void check(const Chunk& c) const {
    const auto bytes = file_.bytes();
    if (c.begin > bytes.size() || c.bytes > bytes.size() - c.begin) return;  // DuckDB says what it is
    if (const auto at = damaged_page(bytes.subspan(c.begin, c.bytes)))
      fail_input(
          "column {}: the page at byte {} is not what its checksum was taken of: the file is damaged; fetch or "
          "write it again",
          c.column, c.begin + *at);
  }
  MappedFile file_;
  std::vector<Group> groups_;
  size_t next_ = 0;
  uint64_t checked_ = 0;  // rows
};

// For a query, which takes rows from anywhere.
void check_whole(Connection& c, const std::string& path) {
  try {
    Checksums(c, path).check(UINT64_MAX);
  } catch (const Error& e) {
    throw Error(e.code(), path + ": " + e.what());
  }
}

class TableRows : public RecordReader {
 public:
  TableRows(std::span<const SourceFile> files, const std::string& name, FileKind kind, const std::string& temp_folder,
            const SourceLimits& limits)
      : limits_(limits), kind_(kind), name_(std::make_shared<const std::string>(name)), c_(files, temp_folder) {}

  void start(const std::string& query) {
    guarded([&] { stream_ = std::make_unique<Stream>(c_, as_json(c_, query)); });
  }
  // What DuckDB says, after the file (or the statement) that it says it of.
  template <typename F>
  void guarded(F&& f) {
    try {
      f();
    } catch (const Error& e) {
      if (e.code() != Exit::kBadInput) throw;
      fail_input("{}: after {} rows: {}", *name_, row_, e.what());
    }
  }
  bool next(Record* out) override {
    *out = Record();
    out->kind = kind_;
    out->path = name_;
    out->line = row_ + 1;
    bool any = false;
    guarded([&] {
      if (checksums_) checksums_->check(row_ + 1);
      any = stream_->next({&out->text, 1});
    });
    if (!any) return false;
    if (out->text.size() > limits_.row_bytes)
      fail_input("{}: the row is longer than {} MiB; split it into smaller documents", out->where(),
                 limits_.row_bytes >> 20);
    ++row_;
    return true;
  }
  double done() const override {
    if (total_ > 0) return static_cast<double>(row_) / total_;
    return std::clamp(c_.a_.query_progress(c_.connection_).percentage / 100, 0.0, 1.0);
  }

  SourceLimits limits_;
  FileKind kind_;
  std::shared_ptr<const std::string> name_;
  Connection c_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Checksums> checksums_;  // of a file that is read from its first row on
  uint64_t row_ = 0;
  double total_ = 0;
};

std::string path_list(std::span<const SourceFile> files) {
  std::string s;
  for (const SourceFile& f : files) s += (s.empty() ? "[" : ", ") + literal(fs::absolute(f.path).string());
  return s + "]";
}

// Files of one kind and one packing as a FROM clause.
std::string scan(Connection& c, std::span<const SourceFile> files) {
  const FileKind kind = files[0].kind;
  const std::string& path = files[0].path;
  const char* packing = path.ends_with(".gz") ? "gzip" : path.ends_with(".zst") ? "zstd" : "uncompressed";
  const std::string list = path_list(files);
  if (kind == FileKind::kParquet) return fmt::format("read_parquet({}, union_by_name = true)", list);
  if (kind == FileKind::kCsv || kind == FileKind::kTsv)
    // No text stands for null: an empty cell is an empty text, as without SQL.
    return fmt::format(
        "read_csv({}, all_varchar = true, header = true, delim = {}, quote = '\"', escape = '\"', nullstr = "
        "'\x1f', max_line_size = {}, buffer_size = {}, compression = '{}', union_by_name = true)",
        list, kind == FileKind::kTsv ? "'\t'" : "','", kMaxRow, 2 * kMaxRow, packing);
  const std::string options =
      fmt::format("format = '{}', compression = '{}', maximum_object_size = {}, union_by_name = true",
                  kind == FileKind::kJsonLines ? "newline_delimited" : "auto", packing, kMaxRow);
  // Types are detected, then only those of plain values are kept: what DuckDB makes of dates and of nested values would
  // come out in another spelling, or with keys that the row does not have.
  std::string columns;
  for (const auto& column :
       columns_of(c, fmt::format("SELECT * FROM read_json({}, {}, maximum_depth = 2)", list, options))) {
    const std::string& t = column[1];
    const bool plain = t == "BIGINT" || t == "UBIGINT" || t == "HUGEINT" || t == "DOUBLE" || t == "BOOLEAN";
    const bool text = t == "VARCHAR" || t == "UUID" || t == "DATE" || t.starts_with("TIME");
    columns += fmt::format("{}{}: '{}'", columns.empty() ? "" : ", ", identifier(column[0]),
                           plain  ? t
                           : text ? "VARCHAR"
                                  : "JSON");
  }
  return fmt::format("read_json({}, {}, columns = {{{}}})", list, options, columns);
}

// One SELECT, and nothing that DuckDB does not let us prepare.
void check_select(Connection& c, const std::string& sql) {
  Statements list = nullptr;
  const uint64_t n = c.a_.extract_statements(c.connection_, sql.c_str(), &list);
  std::string wrong;
  Prepared p = nullptr;
  if (n == 0) {
    const char* e = c.a_.extract_statements_error(list);
    wrong = e ? first_line(e) : "is empty";
  } else if (n > 1) {
    wrong = fmt::format("holds {} statements; write one SELECT", n);
  } else if (c.a_.prepare_extracted_statement(c.connection_, list, 0, &p) != kOk) {
    wrong = first_line(c.a_.prepare_error(p));
  } else if (c.a_.prepared_statement_type(p) != kSelect) {
    wrong = "is no SELECT; write one SELECT over the table `rows`";
  }
  if (p) c.a_.destroy_prepare(&p);
  c.a_.destroy_extracted(&list);
  if (!wrong.empty()) fail_input("data.sql: {}", wrong);
}

// Rows are read twice, to decide which stay and to take them, and the same recipe gives the same bytes: a query that
// answers otherwise each time would keep the wrong rows. Words in quotes and comments are none.
void check_stable(const std::string& sql) {
  constexpr std::string_view kCalls[] = {"random",
                                         "uuid",
                                         "gen_random_uuid",
                                         "uuidv4",
                                         "uuidv7",
                                         "setseed",
                                         "nextval",
                                         "currval",
                                         "now",
                                         "today",
                                         "getenv",
                                         "txid_current",
                                         "get_current_time",
                                         "get_current_timestamp",
                                         "transaction_timestamp"};
  constexpr std::string_view kWords[] = {"current_timestamp", "current_date", "current_time", "localtimestamp",
                                         "localtime"};
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string before;
  bool sampled = false, repeatable = false;
  for (size_t i = 0; i < sql.size();) {
    if (sql[i] == '\'' || sql[i] == '"') {
      const size_t end = sql.find(sql[i], i + 1);
      i = end == std::string::npos ? sql.size() : end + 1;
    } else if (sql.compare(i, 2, "--") == 0) {
      i = std::min(sql.size(), sql.find('\n', i));
    } else if (sql.compare(i, 2, "/*") == 0) {
      const size_t end = sql.find("*/", i + 2);
      i = end == std::string::npos ? sql.size() : end + 2;
    } else if (!is_word(sql[i])) {
      ++i;
    } else {
      std::string word;
      for (; i < sql.size() && is_word(sql[i]); ++i) word += static_cast<char>(std::tolower(sql[i]));
      size_t next = i;
      while (next < sql.size() && std::isspace(static_cast<unsigned char>(sql[next]))) ++next;
      const bool call = next < sql.size() && sql[next] == '(';
      if ((call && std::find(std::begin(kCalls), std::end(kCalls), word) != std::end(kCalls)) ||
          std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords))
        fail_input("data.sql: {} is another value each time, and the rows are read twice: take hash(…) of a column",
                   word);
      sampled |= word == "tablesample" || (word == "sample" && before == "using");
      repeatable |= word == "repeatable";
      before = word;
    }
  }
  if (sampled && !repeatable)
    fail_input("data.sql: a sample without REPEATABLE (seed) is another one each time, and the rows are read twice");
}

}  // namespace

std::unique_ptr<RecordReader> open_parquet(const SourceFile& file, const SourceLimits& limits) {
  auto t = std::make_unique<TableRows>(std::span(&file, 1), file.path, FileKind::kParquet, "", limits);
  const std::string list = path_list({&file, 1});
  t->guarded([&] {
    const auto n = t->c_.rows("SELECT sum(num_rows)::VARCHAR FROM parquet_file_metadata(" + list + ")", 1);
    t->total_ = n.empty() ? 0 : std::strtod(n[0][0].c_str(), nullptr);
    t->checksums_ = std::make_unique<Checksums>(t->c_, file.path);
  });
  t->start("SELECT * FROM read_parquet(" + list + ")");
  return t;
}

std::unique_ptr<RecordReader> open_query(const std::string& sql, std::span<const SourceFile> files,
                                         const std::string& temp_folder, const SourceLimits& limits) {
  bool parquet = false;
  for (const SourceFile& f : files) {
    parquet |= f.kind == FileKind::kParquet;
    if (f.kind == FileKind::kText)
      fail_input("{}: is plain text, which has no columns; data.sql reads JSONL, JSON, CSV, TSV and Parquet", f.path);
  }
  auto t = std::make_unique<TableRows>(files, "data.sql", parquet ? FileKind::kParquet : FileKind::kJsonLines,
                                       temp_folder, limits);
  for (const SourceFile& f : files)
    if (f.kind == FileKind::kParquet) check_whole(t->c_, f.path);
  // Files of one kind and packing next to each other are one scan; the scans follow each other in the order of the
  // files.
  const auto packing = [](const SourceFile& f) {
    return f.path.ends_with(".gz") ? 1 : f.path.ends_with(".zst") ? 2 : 0;
  };
  std::string from;
  for (size_t b = 0; b < files.size();) {
    size_t e = b + 1;
    while (e < files.size() && files[e].kind == files[b].kind && packing(files[e]) == packing(files[b])) ++e;
    t->guarded([&] {
      from += (from.empty() ? "" : " UNION ALL BY NAME ") +
              fmt::format("SELECT * FROM {}", scan(t->c_, files.subspan(b, e - b)));
    });
    b = e;
  }
  t->guarded([&] { t->c_.run("CREATE VIEW rows AS " + from); });
  std::string one(trim(sql));
  check_select(t->c_, one);
  check_stable(one);
  while (one.ends_with(';')) one = std::string(trim(std::string_view(one).substr(0, one.size() - 1)));
  t->start(one);
  return t;
}

}  // namespace mxt::data
