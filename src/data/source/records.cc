#include "data/source/records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <set>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/source/splits.h"
#include "data/source/table.h"

namespace mxt::data {
namespace {

// Whether a line is one of JSON that is spread over several, as an indented object or an array of rows is.
bool is_spread(std::string_view line) {
  return line == "{" || line == "[" || line == "[{" || (line.starts_with("[{") && line.ends_with("},"));
}

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class Reader : public RecordReader {
 public:
  Reader(const SourceFile& file, const SourceLimits& limits)
      : in_(file.path, limits), kind_(file.kind), path_(std::make_shared<const std::string>(file.path)) {}
  double done() const override { return in_.done(); }

 protected:
  void begin(Record* out) {
    out->kind = kind_;
    out->text.clear();
    out->cells.clear();
    out->header = nullptr;
    out->path = path_;
    out->line = in_.line();
    out->last_piece = true;
    out->alone = false;
  }
  void check_size(size_t bytes, uint64_t line) {
    if (bytes > in_.limits().row_bytes)
      fail_input("{}:{}: the row is longer than {} MiB; split it into smaller documents", *path_, line,
                 in_.limits().row_bytes >> 20);
  }

  Input in_;
  FileKind kind_;
  std::shared_ptr<const std::string> path_;
};

class JsonLines : public Reader {
 public:
  using Reader::Reader;
  bool next(Record* out) override {
    do {
      begin(out);
      if (!in_.append_line(&out->text)) return false;
    } while (trim(out->text).empty());
    if (is_spread(trim(out->text)))
      fail_input(
          "{}:{}: the row goes on in the next line, and such a file has one a line: name it .json, whose rows "
          "may take several",
          *path_, out->line);
    out->alone = std::exchange(first_, false) && is_last();
    return true;
  }

 private:
  // Whether nothing but empty lines is left.
  bool is_last() {
    while (in_.peek() == '\n' || in_.peek() == '\r') in_.get();
    return in_.peek() == Input::kEnd;
  }
  bool first_ = true;
};

// Finds the ends of values by counting brackets outside strings; whether they are valid is for the parser. The file is
// an array of rows, rows one after the other, or an object around such an array: {"version": "1", "data": [{…}, …]}.
// Of an object of splits the wanted one is read; one that holds rows under two other names is refused, since some would
// be left out without a word.
class JsonRows : public Reader {
 public:
  JsonRows(const SourceFile& file, const SourceLimits& limits) : Reader(file, limits), split_(file.split) {}
  const std::string& name() const { return name_; }
  bool next(Record* out) override {
    skip_space();
    if (!started_) {
      started_ = true;
      array_ = in_.peek() == '[';
      if (array_) in_.get();
      if (in_.peek() == '{' && !array_) {
        begin(out);
        if (!(array_ = wrapped_ = open_wrapper(&out->text, out->line))) {
          skip_space();
          out->alone = in_.peek() == Input::kEnd;
          return true;
        }
      }
      skip_space();
      if (array_ && in_.peek() == ']') return close();
    } else if (array_) {
      if (done_) return end();
      const int c = in_.get();
      if (c == Input::kEnd) fail_input("{}:{}: the array is not closed; the file is truncated", *path_, in_.line());
      if (c == ']') return done_ = true, end();
      if (c != ',') fail_input("{}:{}: expected \",\" or \"]\" after a row of the array", *path_, in_.line());
      skip_space();
      if (in_.peek() == ']')
        fail_input("{}:{}: no row stands behind the array's last comma; leave it out", *path_, in_.line());
    }
    if (in_.peek() == Input::kEnd) {
      if (array_) fail_input("{}:{}: the array is not closed; the file is truncated", *path_, in_.line());
      return false;
    }
    begin(out);
    take_value(&out->text, out->line);
    return true;
  }

 private:
  void skip_space() {
    while (is_space(in_.peek())) in_.get();
  }
  bool close() {
    in_.get();
    done_ = true;
    return end();
  }
  bool end() {
    skip_space();
    if (wrapped_) {
      if (in_.peek() != ',' && in_.peek() != '}')
        fail_input("{}:{}: expected \",\" or \"}}\" after the rows", *path_, in_.line());
      pass_members();
      wrapped_ = false;
      skip_space();
    }
    if (in_.peek() != Input::kEnd) fail_input("{}:{}: text after the end of the array", *path_, in_.line());
    return false;
  }
  // The members behind the rows, and the object's end.
  void pass_members() {
    int c;
    while ((c = in_.get()) == ',') {
      const uint64_t line = in_.line();
      std::string key;
      take_key(&key);
      if (in_.peek() == ':') in_.get();
      skip_space();
      const bool list = in_.peek() == '[';
      if (list) in_.get();
      skip_space();
      const bool rows = list && in_.peek() == '{' && names_rows(key);
      if (rows && is_other_split(key) && is_split(name_))
        others_.push_back(key);
      else if (rows)
        refuse_two(line, name_, key);
      pass_value(list ? 1 : 0);
      skip_space();
    }
    if (c != '}') fail_input("{}:{}: the object around the rows is not closed", *path_, in_.line());
    say_others();
  }
  [[noreturn]] void refuse_two(uint64_t line, const std::string& a, const std::string& b) const {
    fail_input(
        "{}:{}: holds rows as \"{}\" and as \"{}\": write them to two files (train.json and test.json in one folder, "
        "where data.split chooses one)",
        *path_, line, a, b);
  }
  void say_others() const {
    static std::mutex mutex;
    static std::set<std::string> said;
    const std::lock_guard lock(mutex);
    if (!others_.empty() && said.insert(*path_ + "\n" + name_).second)
      log::info("{}: the list \"{}\" is read, and not {}", *path_, name_, fmt::join(others_, ", "));
  }
  // Reads the beginning of an object. True where the rows' array stands in it, and its first row or its end is next;
  // else the whole object is in `out`: a row.
  bool open_wrapper(std::string* out, uint64_t line) {
    const auto space = [&] {
      while (is_space(in_.peek())) out->push_back(static_cast<char>(in_.get()));
    };
    do {
      out->push_back(static_cast<char>(in_.get()));  // '{' or ','
      space();
      if (in_.peek() != '"') break;
      std::string key;
      in_.get();
      take_string(&key, line);
      *out += '"' + key;
      key.pop_back();
      space();
      if (in_.peek() != ':') break;
      out->push_back(static_cast<char>(in_.get()));
      space();
      if (in_.peek() == '[' && names_rows(key)) {
        out->push_back(static_cast<char>(in_.get()));
        space();
        if (in_.peek() == '{' || in_.peek() == ']') {
          out->clear();
          if (!others_.empty() && !is_split(key)) refuse_two(in_.line(), others_[0], key);
          if (!is_other_split(key)) return name_ = key, true;
          others_.push_back(key);
          pass_value(1);
          skip_space();
          continue;
        }
        take_value(out, line, 2);
        return false;
      }
      if (!others_.empty()) {
        pass_value(0);
        skip_space();
        continue;
      }
      if (!one_of(kNotes, key)) break;
      if (const int n = in_.peek(); n == '"' || n == '{' || n == '[')
        take_value(out, line);
      else
        while (in_.peek() != Input::kEnd && in_.peek() != ',' && in_.peek() != '}' && !is_space(in_.peek()))
          out->push_back(static_cast<char>(in_.get()));
      space();
    } while (in_.peek() == ',');
    if (!others_.empty())
      fail_input("{}: has no list of split \"{}\" (it has: {}): set data.split, or name another file", *path_, split_,
                 fmt::join(others_, ", "));
    take_value(out, line, 1);
    return false;
  }
  static bool one_of(std::span<const std::string_view> names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  bool is_split(std::string_view name) const { return name == split_ || !known_split(name).empty(); }
  bool names_rows(std::string_view name) const { return one_of(kRowNames, name) || is_split(name); }
  bool is_other_split(std::string_view name) const {
    if (one_of(kRowNames, name) || name == split_) return false;
    return known_split(name) != known_split(split_);
  }
  // What such files call their rows, but for splits, and what may stand before them.
  static constexpr std::string_view kRowNames[] = {"data", "rows", "examples"};
  static constexpr std::string_view kNotes[] = {
      "version", "name",    "description", "license", "licenses", "info", "meta",    "metadata", "schema", "features",
      "source",  "dataset", "url",         "author",  "citation", "date", "created", "count",    "total",  "config"};

  void take_value(std::string* out, uint64_t line, int depth = 0) {
    for (;;) {
      const int c = in_.get();
      if (c == Input::kEnd) fail_input("{}:{}: the row is not closed; the file is truncated", *path_, line);
      out->push_back(static_cast<char>(c));
      check_size(out->size(), line);
      if (c == '"') take_string(out, line);
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (depth > 0) continue;
      const int n = in_.peek();
      if (c == '}' || c == ']' || c == '"' || n == Input::kEnd || n == ',' || n == ']' || is_space(n)) return;
    }
  }
  void take_key(std::string* out) {
    skip_space();
    const uint64_t line = in_.line();
    if (in_.peek() != '"') return;
    in_.get();
    take_string(out, line);
    out->pop_back();
    skip_space();
  }
  // Over a value, from within `depth` brackets.
  void pass_value(int depth) {
    const uint64_t line = in_.line();
    bool text = false;
    for (;;) {
      const int n = in_.peek();
      if (depth == 0 && !text && (n == ',' || n == '}' || n == ']')) return;
      const int c = in_.get();
      if (c == Input::kEnd) fail_input("{}:{}: a value is not closed; the file is truncated", *path_, line);
      if (text) {
        if (c == '\\') in_.get();
        text = c != '"';
      } else {
        text = c == '"';
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
      }
    }
  }
  void take_string(std::string* out, uint64_t line) {
    for (;;) {
      int c = in_.get();
      if (c == Input::kEnd) fail_input("{}:{}: a string is not closed; the file is truncated", *path_, line);
      out->push_back(static_cast<char>(c));
      check_size(out->size(), line);
      if (c == '"') return;
      if (c == '\\' && (c = in_.get()) != Input::kEnd) out->push_back(static_cast<char>(c));
    }
  }
  bool started_ = false, array_ = false, wrapped_ = false, done_ = false;
  std::string split_, name_;         // the wanted one; of the rows' list, where one stands in an object
  std::vector<std::string> others_;  // lists of other splits
};

class Csv : public Reader {
 public:
  Csv(const SourceFile& file, const SourceLimits& limits)
      : Reader(file, limits), separator_(file.kind == FileKind::kTsv ? '\t' : ',') {
    std::vector<std::string> names;
    if (!take_row(&names)) fail_input("{}: is empty; a header line with the column names is needed", *path_);
    if (names.size() == 1 && names[0].empty())
      fail_input("{}:1: is blank; a header line with the column names is needed", *path_);
    std::unordered_set<std::string> seen;
    for (size_t i = 0; i < names.size(); ++i) {
      std::string& n = names[i];
      if (n.empty()) n = fmt::format("Unnamed: {}", i);  // pandas writes its index so, and reads it under this name
      if (!is_valid_utf8(n))
        fail_input("{}:1: a column's name is not valid UTF-8; convert the file (iconv -t UTF-8)", *path_);
      if (!seen.insert(n).second) fail_input("{}:1: column \"{}\" stands twice", *path_, n);
    }
    header_ = std::make_shared<const std::vector<std::string>>(std::move(names));
  }
  bool next(Record* out) override {
    for (;;) {
      begin(out);
      if (!take_row(&out->cells)) return false;
      // A blank line is no row, except in a file of one column, where RFC 4180 has no way to tell: there too it is
      // none.
      if (out->cells.size() == 1 && out->cells[0].empty()) continue;
      if (out->cells.size() != header_->size())
        fail_input("{}:{}: {} cells, the header has {}; quote cells that hold a separator", *path_, out->line,
                   out->cells.size(), header_->size());
      out->header = header_;
      return true;
    }
  }

 private:
  bool take_row(std::vector<std::string>* cells) {
    if (in_.peek() == Input::kEnd) return false;
    const uint64_t line = in_.line();
    size_t bytes = 0;
    for (;;) {
      std::string cell;
      const bool more = in_.peek() == '"' ? take_quoted(&cell, line) : take_bare(&cell, line);
      bytes += cell.size() + 1;
      check_size(bytes, line);
      cells->push_back(std::move(cell));
      if (!more) return true;
    }
  }
  // Both return true where a separator follows, false at the end of the row.
  bool take_bare(std::string* cell, uint64_t line) {
    for (;;) {
      const int c = in_.get();
      if (c == separator_) return true;
      if (c == '\n' || c == Input::kEnd) return false;
      if (c == '\r' && in_.peek() == '\n') continue;
      if (c == '"')
        fail_input("{}:{}: a quote inside an unquoted cell; quote the cell and double the quotes in it", *path_,
                   in_.line());
      cell->push_back(static_cast<char>(c));
      check_size(cell->size(), line);
    }
  }
  bool take_quoted(std::string* cell, uint64_t line) {
    const uint64_t opened = in_.line();
    in_.get();
    for (;;) {
      int c = in_.get();
      if (c == Input::kEnd) fail_input("{}:{}: a quoted cell is not closed", *path_, opened);
      if (c == '"') {
        if (in_.peek() == '"') {
          in_.get();
        } else {
          c = in_.get();
          if (c == '\r' && in_.peek() == '\n') c = in_.get();
          if (c == separator_) return true;
          if (c == '\n' || c == Input::kEnd) return false;
          fail_input("{}:{}: text after the closing quote of a cell; double the quotes inside a cell", *path_,
                     in_.line());
        }
      }
      cell->push_back(static_cast<char>(c));
      check_size(cell->size(), line);
    }
  }

  int separator_;
  std::shared_ptr<const std::vector<std::string>> header_;
};

class TextLines : public Reader {
 public:
  using Reader::Reader;
  bool next(Record* out) override {
    constexpr size_t kPiece = size_t{1} << 20;
    begin(out);
    while (in_.append_line(&out->text))
      if (out->text.size() >= kPiece && out->text.back() == '\n' && !is_space(in_.peek()) &&
          static_cast<signed char>(in_.peek()) > 0)  // ASCII: no wide space, no mark that composes with the line before
        break;
    out->last_piece = in_.peek() == Input::kEnd;
    return !out->text.empty();
  }
};

}  // namespace

const char* name_of(FileKind kind) {
  constexpr const char* kNames[] = {"JSON lines", "JSON", "CSV", "TSV", "text", "Parquet"};
  return kNames[static_cast<int>(kind)];
}

std::string Record::where() const {
  return fmt::format("{}:{}{}", *path, kind == FileKind::kParquet || *path == "data.sql" ? " row " : "", line);
}

std::string rows_name(const SourceFile& file) {
  if (file.kind != FileKind::kJson) return "";
  JsonRows rows(file, {});
  Record first;
  rows.next(&first);
  return rows.name();
}

std::unique_ptr<RecordReader> open_records(const SourceFile& file, const SourceLimits& limits) {
  switch (file.kind) {
    case FileKind::kJsonLines:
      return std::make_unique<JsonLines>(file, limits);
    case FileKind::kJson:
      return std::make_unique<JsonRows>(file, limits);
    case FileKind::kCsv:
    case FileKind::kTsv:
      return std::make_unique<Csv>(file, limits);
    case FileKind::kText:
      return std::make_unique<TextLines>(file, limits);
    case FileKind::kParquet:
      return open_parquet(file, limits);
  }
  MXT_ASSERT(false);
}

}  // namespace mxt::data
