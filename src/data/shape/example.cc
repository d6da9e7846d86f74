#include "data/shape/example.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/base64.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/shape/row.h"
#include "data/shape/row_text.h"
#include "data/source/picture_name.h"
#include "image/picture.h"

namespace mxt::data {
namespace {

struct ShapeColumns {
  Shape shape;
  const char* name;
  std::vector<const char*> required, optional;
};

const std::vector<ShapeColumns>& all_shapes() {
  static const std::vector<ShapeColumns> shapes = {
      {Shape::kTokens, "input_ids/labels", {"input_ids", "labels"}, {"images", "image", "file_name"}},
      {Shape::kTokenPair, "prompt_ids/chosen_ids/rejected_ids", {"prompt_ids", "chosen_ids", "rejected_ids"}, {}},
      {Shape::kTokenAnswer, "prompt_ids/completion_ids/label", {"prompt_ids", "completion_ids", "label"}, {}},
      {Shape::kMessages, "messages", {"messages"}, {"system", "tools", "images", "image", "file_name"}},
      {Shape::kShareGpt, "conversations", {"conversations"}, {"system", "tools", "images", "image", "file_name"}},
      {Shape::kPreference, "chosen/rejected", {"chosen", "rejected"}, {"prompt", "tools"}},
      {Shape::kLabelled, "prompt/completion/label", {"prompt", "completion", "label"}, {"tools"}},
      {Shape::kCompletion, "prompt/completion", {"prompt", "completion"}, {"tools"}},
      {Shape::kAlpaca,
       "instruction/output",
       {"instruction", "output"},
       {"input", "system", "history", "images", "image", "file_name"}},
      {Shape::kQuestion, "question/answer", {"question", "answer"}, {"images", "image", "file_name"}},
      {Shape::kReference, "prompt/answer", {"prompt", "answer"}, {}},
      {Shape::kText, "text", {"text"}, {}},
      {Shape::kCalls, "query/answers/tools", {"query", "answers", "tools"}, {}},
  };
  return shapes;
}

std::string join(const std::vector<std::string>& v) {
  std::string s;
  for (const std::string& x : v) s += (s.empty() ? "" : ", ") + x;
  return s;
}

std::string known_shapes() {
  std::vector<std::string> names;
  for (const ShapeColumns& s : all_shapes()) names.emplace_back(s.name);
  return join(names);
}

std::string json_type(const OrderedJson& j) {
  if (j.is_null()) return "null";
  return std::string(j.is_string()    ? "a text"
                     : j.is_array()   ? "an array"
                     : j.is_object()  ? "an object"
                     : j.is_boolean() ? "a boolean"
                                      : "a number");
}

void drop_null_members(OrderedJson& j) {
  if (j.is_object()) {
    std::vector<std::string> absent;
    for (const auto& [key, value] : j.items())
      if (value.is_null()) absent.push_back(key);
    for (const std::string& key : absent) j.erase(key);
  }
  if (j.is_structured())
    for (OrderedJson& value : j) drop_null_members(value);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

// Our name → the row's column, by the recipe's map or by equal names.
std::map<std::string, std::string> name_columns(const std::vector<std::string>& there, const std::string& where,
                                                const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> by_ours;
  if (given.empty()) {
    for (const std::string& c : there) by_ours[c] = c;
    return by_ours;
  }
  std::vector<std::string> ours;
  for (const ShapeColumns& s : all_shapes())
    for (const auto* list : {&s.required, &s.optional})
      for (const char* c : *list)
        if (std::find(ours.begin(), ours.end(), c) == ours.end()) ours.emplace_back(c);
  for (const auto& [theirs, our] : given) {
    if (std::find(ours.begin(), ours.end(), our) == ours.end()) {
      const std::string near = nearest(our, ours);
      fail_input("data.columns: \"{}\" is no column of ours{}; there are: {}", our,
                 near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near), join(ours));
    }
    if (std::find(there.begin(), there.end(), theirs) == there.end())
      fail_input("{}: the row has no column \"{}\", which data.columns names; columns here: {}", where, theirs,
                 join(there));
    if (!by_ours.emplace(our, theirs).second)
      fail_input("data.columns: two columns are mapped to \"{}\": {} and {}", our, by_ours[our], theirs);
  }
  return by_ours;
}

// OpenAI's older name for tools, which goes with function_call.
bool is_functions(const OrderedJson& row) {
  const auto v = row.find("functions");
  return v != row.end() && v->is_array() && !v->empty() &&
         std::all_of(v->begin(), v->end(), [](const OrderedJson& f) { return f.is_object() && f.contains("name"); });
}

bool is_openai_preference(const OrderedJson& row) {
  return row.contains("input") && row.contains("preferred_output") && row.contains("non_preferred_output") &&
         is_openai_input(row["input"], &row["preferred_output"]);
}

// What open_row() makes columns of.
void take_input(const OrderedJson& input, Layout& layout) {
  const auto is_tools = [](const auto& c) { return c.first == "tools"; };
  if (std::none_of(layout.columns.begin(), layout.columns.end(), is_tools))
    layout.columns.emplace_back("tools", "tools");
  std::erase(layout.missing, "tools");
  if (!input.contains("tools")) layout.missing.emplace_back("tools");
  for (const auto& [key, value] : input.items())
    if (key != "messages" && key != "tools") layout.unused.push_back(key);
}

// Beside messages a system prompt is a text; other things go by this name too.
bool is_no_prompt(const OrderedJson& row, const std::string& theirs) {
  const auto v = row.find(theirs);
  return v != row.end() && !v->is_null() && !v->is_string();
}

// What sets on the Hub call our columns.
bool is_called(const std::string& theirs, std::string_view ours) {
  using Names = std::vector<std::string_view>;
  static const std::map<std::string_view, Names> names = {
      {"messages", {"conversation", "dialog", "dialogue", "chat", "turns"}},
      {"prompt", {"input", "query", "question"}},
      {"chosen", {"preferred_output", "preferred", "accepted", "chosen_response"}},
      {"rejected", {"non_preferred_output", "dispreferred", "rejected_response"}},
      {"completion", {"response"}},
      {"output", {"response", "answer", "completion"}},
      {"input", {"context"}},
      {"question", {"query", "input", "problem"}},
      {"answer", {"answers", "response", "output", "solution"}},
      {"text", {"content", "body", "document", "code", "raw_content"}}};
  const auto it = names.find(ours);
  return theirs == ours ||
         (it != names.end() && std::find(it->second.begin(), it->second.end(), theirs) != it->second.end());
}

// data.columns for a row without a known shape: of the shapes of which each column stands there by another name the
// first that takes most of the row's columns, else turns as messages, else the longest text.
std::string likely_columns(const OrderedJson& row) {
  std::string best;
  size_t most = 0;
  for (const ShapeColumns& s : all_shapes()) {
    std::vector<std::string> map;
    const auto take = [&](std::string_view ours) {
      for (const auto& [theirs, value] : row.items())
        if (is_called(theirs, ours) && (ours == "messages" ? is_turns(value) : !value.is_number())) {
          map.push_back(fmt::format("{}: {}", theirs, ours));
          return true;
        }
      return false;
    };
    if (!std::all_of(s.required.begin(), s.required.end(), take)) continue;
    for (const char* ours : s.optional) take(ours);
    if (map.size() > most) best = join(map), most = map.size();
  }
  if (most > 0) return best;
  std::string longest = "my_column";
  size_t size = 0;
  for (const auto& [theirs, value] : row.items()) {
    if (is_turns(value)) return theirs + ": messages";
    if (value.is_string() && value.get_ref<const std::string&>().size() >= size)
      longest = theirs, size = value.get_ref<const std::string&>().size();
  }
  return longest + ": text";
}

}  // namespace

std::vector<int32_t> read_numbers(const RowView& row, const char* column, bool negative_ok) {
  const OrderedJson& v = row.need(column);
  if (!v.is_array()) row.wrong_type(column, v, "an array of token ids");
  std::vector<int32_t> out;
  out.reserve(v.size());
  for (const OrderedJson& x : v) {
    const bool fits = x.is_number_integer() && x.get<double>() <= std::numeric_limits<int32_t>::max() &&
                      (x.get<double>() >= 0 || (negative_ok && x == kNoTarget));
    if (!fits)
      fail_input("{}: \"{}\"[{}] is {}, a token id{} is needed", row.where(), column, out.size(), json_text(x),
                 negative_ok ? " or -100" : "");
    out.push_back(x.get<int32_t>());
  }
  return out;
}

std::vector<std::string> read_sources(const RowView& row) {
  std::vector<std::string> out;
  const OrderedJson* v = row.find("images");
  if (v == nullptr) v = row.find("image");
  // Others name files of code and texts so.
  if (v == nullptr) v = row.find("file_name");
  if (v == nullptr ||
      (v == row.find("file_name") && !(v->is_string() && names_picture(v->get_ref<const std::string&>()))))
    return out;
  const auto one = [&](const OrderedJson& x) {
    const OrderedJson* s = &x;
    if (x.is_object())
      for (const char* key :
           {"path", "url", "image", "bytes"})  // the last that is there: a path beside bytes is a name
        if (const auto at = x.find(key); at != x.end() && at->is_string()) s = &*at;
    if (!s->is_string()) row.wrong_type("images", x, "a picture's path or data URI, or a list of them,");
    std::string source = s->get<std::string>();
    if (s != &x && x.contains("bytes") && s == &x["bytes"] && !image::is_data_uri(source))
      source = "data:image/any;base64," + to_base64(source);  // a text: no picture, and its reader says what it is
    out.push_back(std::move(source));
  };
  if (v->is_array())
    for (const OrderedJson& x : *v) one(x);
  else
    one(*v);
  return out;
}

std::string_view name_of(Shape shape) { return all_shapes()[static_cast<size_t>(shape)].name; }

std::string Layout::text() const {
  std::string s = fmt::format("{} (", name_of(shape));
  bool first = true;
  for (const auto& [ours, theirs] : columns) {
    if (std::find(missing.begin(), missing.end(), ours) != missing.end()) continue;
    s += (first ? "" : ", ") + (ours == theirs ? ours : theirs + " as " + ours);
    first = false;
  }
  s += ")";
  if (!unused.empty()) s += "; columns not used: " + join(unused);
  return s;
}

OrderedJson row_object(const Record& record) {
  const std::string where = record.where();
  if (record.header) {
    OrderedJson row = OrderedJson::object();
    for (size_t i = 0; i < record.cells.size(); ++i) {
      for (const std::string* s : {&record.cells[i], &(*record.header)[i]})
        if (!is_valid_utf8(*s))
          fail_input("{}: column {} is not valid UTF-8; convert the file (iconv -t UTF-8)", where, i + 1);
      row[(*record.header)[i]] = record.cells[i];
    }
    return row;
  }
  if (!is_valid_utf8(record.text)) fail_input("{}: is not valid UTF-8; convert the file (iconv -t UTF-8)", where);
  OrderedJson row = parse_ordered_json(record.text, where);
  if (!row.is_object())
    fail_input("{}: is {}, each row must be an object such as {{\"text\": …}}", where, json_type(row));
  // A column of a table has one type: its objects carry every key that any row has. What a row does not have is null.
  if (record.kind == FileKind::kParquet)
    for (auto& [column, value] : row.items()) drop_null_members(value);
  return row;
}

namespace {

bool all_digits(const std::string& s) { return !s.empty() && s.find_first_not_of("0123456789") == std::string::npos; }

// A whole table in one object, as pandas writes it unless told otherwise (column by column, or by the rows' numbers, or
// "split"), and a dictionary of columns. Other values in the file make it a row among rows.
bool is_whole_table(const OrderedJson& row) {
  if (row.empty()) return false;
  // A row may have columns of these names beside its text.
  static const std::set<std::string> kSplit{"columns", "index", "data", "column_names", "index_names"};
  if (row.contains("columns") && row.contains("data") && row["columns"].is_array() && row["data"].is_array() &&
      std::all_of(row.items().begin(), row.items().end(), [](const auto& e) { return kSplit.contains(e.key()); }))
    return true;
  size_t numbered = 0, by_number = 0, lists = 0;
  for (const auto& [key, value] : row.items()) {
    numbered += all_digits(key) && (value.is_object() || value.is_array());
    by_number += value.is_object() && !value.empty() && all_digits(value.begin().key());
    lists += value.is_array() && !value.empty() && value.size() == row.front().size() &&
             std::all_of(value.begin(), value.end(), [](const OrderedJson& v) { return v.is_string(); });
  }
  return numbered == row.size() || by_number == row.size() || (lists == row.size() && lists > 1);
}

}  // namespace

Layout find_layout(const Record& first, const std::map<std::string, std::string>& given) {
  const std::string where = first.where();
  if (first.kind == FileKind::kText) return {Shape::kText, {}, {}, {}};
  const OrderedJson row = row_object(first);
  if (first.alone && is_whole_table(row))
    fail_input(
        "{}: is a whole table and not a row; write a row a line, with pandas: df.to_json(\"rows.jsonl\", "
        "orient=\"records\", lines=True)",
        where);
  std::vector<std::string> there;
  for (const auto& [key, value] : row.items()) there.push_back(key);
  std::map<std::string, std::string> by_ours = name_columns(there, where, given);
  if (given.empty() && is_openai_preference(row))
    by_ours = {{"prompt", "input"}, {"chosen", "preferred_output"}, {"rejected", "non_preferred_output"}};
  for (const ShapeColumns& s : all_shapes()) {
    if (!std::all_of(s.required.begin(), s.required.end(), [&](const char* c) { return by_ours.contains(c); }))
      continue;
    Layout layout{s.shape, {}, {}, {}};
    for (const char* c : s.required) layout.columns.emplace_back(c, by_ours.at(c));
    // An optional column may be missing from the first row and stand in later ones; under a map only what it names.
    for (const char* c : s.optional)
      if (given.empty() && s.shape == Shape::kMessages && c == std::string_view("system") && is_no_prompt(row, c)) {
        continue;
      } else if (by_ours.contains(c)) {
        layout.columns.emplace_back(c, by_ours.at(c));
      } else if (given.empty() && c == std::string_view("tools") && is_functions(row)) {
        layout.columns.emplace_back(c, "functions");
      } else if (given.empty()) {
        layout.columns.emplace_back(c, c);
        layout.missing.emplace_back(c);
      }
    for (const std::string& c : there)
      if (std::none_of(layout.columns.begin(), layout.columns.end(), [&](const auto& p) { return p.second == c; }))
        layout.unused.push_back(c);
    if (const auto prompt = by_ours.find("prompt"); prompt != by_ours.end()) {
      const OrderedJson& input = row[prompt->second];
      if (is_openai_input(input, s.shape == Shape::kPreference ? &row[by_ours.at("chosen")] : nullptr))
        take_input(openai_input(input, fmt::format("{}: \"{}\"", where, prompt->second)), layout);
    }
    return layout;
  }
  if (first.kind == FileKind::kCsv || first.kind == FileKind::kTsv)
    if (const size_t at = there.size() == 1 ? there[0].find_first_of(first.kind == FileKind::kCsv ? ";\t|" : ",;|")
                                            : std::string::npos;
        at != std::string::npos)
      fail_input("{}: one column, \"{}\": its cells seem to be separated by {}; separate them by {}", where,
                 printable(there[0]), there[0][at] == '\t' ? "tabs" : fmt::format("\"{}\"", there[0][at]),
                 first.kind == FileKind::kCsv ? "commas, or name the file .tsv where they are tabs" : "tabs");
  const std::string likely = likely_columns(row);
  if (by_ours.contains("prompt") && likely.ends_with(": text"))
    fail_input(
        "{}: \"prompt\" stands without an answer; columns here: {}. Give \"completion\" to train on, \"chosen\" and "
        "\"rejected\" to compare, \"answer\" to measure samples against (any text where no reward reads it), or name "
        "yours by data.columns",
        where, join(there));
  fail_input("{}: these columns make no known row: {}; known rows: {}. Name yours by data.columns, as {{{}}}", where,
             there.empty() ? "(none)" : join(there), known_shapes(), likely);
}

const OrderedJson* RowView::find(std::string_view ours) const {
  for (const auto& [our, theirs] : layout_.columns)
    if (our == ours) {
      const auto it = row_.find(theirs);
      return it == row_.end() || it->is_null() ? nullptr : &*it;
    }
  return nullptr;
}

const OrderedJson& RowView::need(std::string_view ours) const {
  if (const OrderedJson* v = find(ours)) return *v;
  std::vector<std::string> there;
  for (const auto& [key, value] : row_.items()) there.push_back(key);
  for (const auto& [our, theirs] : layout_.columns)
    if (our == ours && row_.contains(theirs))
      fail_input("{}: \"{}\" is null{}, a value is needed; rows are {}, as in the first row", where_, theirs,
                 where_.find(": row ") == std::string::npos ? "" : " (or bytes that are no UTF-8)",
                 name_of(layout_.shape));
    else if (our == ours)
      fail_input("{}: the row has no \"{}\"; rows are {}, as in the first row; columns here: {}", where_, theirs,
                 name_of(layout_.shape), join(there));
  MXT_ASSERT(false);
}

void RowView::wrong_type(std::string_view ours, const OrderedJson& value, std::string_view wanted) const {
  std::string column(ours);
  for (const auto& [our, theirs] : layout_.columns)
    if (our == ours) column = theirs;
  fail_input("{}: \"{}\" is {}, {} is needed", where_, column, json_type(value), wanted);
}

const std::string& RowView::text(std::string_view ours) const {
  const OrderedJson& v = need(ours);
  if (!v.is_string()) wrong_type(ours, v, "a text");
  return v.get_ref<const std::string&>();
}

std::string RowView::text_or_number(std::string_view ours) const {
  const OrderedJson& v = need(ours);
  return v.is_number() || big_integer(v) ? json_text(v) : text(ours);
}

std::string RowView::optional_text(std::string_view ours) const {
  const OrderedJson* v = find(ours);
  if (v && !v->is_string()) wrong_type(ours, *v, "a text");
  return v ? v->get<std::string>() : std::string();
}

namespace {

// Columns with something in them that neither the layout nor the first row has.
std::vector<RowNote> unknown_columns(const OrderedJson& row, const Layout& layout) {
  std::vector<RowNote> notes;
  for (const auto& [column, value] : row.items()) {
    if (value.is_null() || value == "" || is_known(layout, column)) continue;
    notes.push_back(
        {"column " + column, fmt::format("the column \"{}\", which the first row has not, is not used", column)});
  }
  return notes;
}

Example read_row(const Record& record, const Layout& layout, const RowView& row);

}  // namespace

bool is_known(const Layout& layout, std::string_view column) {
  return std::find(layout.unused.begin(), layout.unused.end(), column) != layout.unused.end() ||
         std::any_of(layout.columns.begin(), layout.columns.end(), [&](const auto& c) { return c.second == column; });
}

Example read_example(const Record& record, const Layout& layout) {
  const std::string where = record.where();
  Example e;
  if (record.kind == FileKind::kText) {
    if (layout.shape != Shape::kText)
      fail_input("{}: is plain text, the rows before it are {}; keep one shape in a data set", where,
                 name_of(layout.shape));
    if (!is_valid_utf8(record.text))
      fail_input("{}: the text from here is not valid UTF-8; convert the file (iconv -t UTF-8)", where);
    e.text = record.text;
    return e;
  }
  if (layout.columns.empty())
    fail_input("{}: is a row, the files before it are plain text; keep one shape in a data set", where);
  if (layout.shape == Shape::kText && read_flat_text(record, layout, &e.text)) return e;
  const OrderedJson object = open_row(record, layout);
  e = read_row(record, layout, RowView(object, layout, where));
  for (RowNote& note : unknown_columns(object, layout)) e.notes.push_back(std::move(note));
  return e;
}

namespace {

Example read_row(const Record& record, const Layout& layout, const RowView& row) {
  const std::string& where = row.where();
  Example e;
  switch (layout.shape) {
    case Shape::kText:
      e.text = row.text("text");
      return e;
    case Shape::kCompletion:
      if (row.need("prompt").is_array() || row.need("completion").is_array()) return read_chat(row, layout.shape);
      if (const OrderedJson* tools = row.find("tools"); tools && !tools->empty() && *tools != "")
        row.wrong_type("prompt", row.need("prompt"), "a list of messages, since the row has \"tools\",");
      e.kind = Example::Kind::kCompletion;
      e.text = row.text("prompt");
      e.completion = row.text("completion");
      return e;
    case Shape::kTokens:
      e.kind = Example::Kind::kTokens;
      e.ids = read_numbers(row, "input_ids", false);
      e.labels = read_numbers(row, "labels", true);
      if (e.ids.size() != e.labels.size())
        fail_input("{}: {} input_ids, {} labels; they must be equally many", where, e.ids.size(), e.labels.size());
      e.pictures = read_sources(row);
      if (record.path) e.beside = folder_of(*record.path);
      return e;
    case Shape::kMessages:
    case Shape::kShareGpt:
    case Shape::kAlpaca:
    case Shape::kQuestion:
    case Shape::kCalls:
      e = read_chat(row, layout.shape);
      if (record.path) e.beside = folder_of(*record.path);
      return e;
    case Shape::kPreference:
      return read_preference(row);
    case Shape::kLabelled:
      return read_labelled(row);
    case Shape::kTokenPair:
    case Shape::kTokenAnswer:
      return read_token_answers(row, layout.shape);
    case Shape::kReference:
      return read_reference(row);
  }
  MXT_ASSERT(false);
}

}  // namespace

Example as_text(Example e, const std::string& where) {
  if (e.kind == Example::Kind::kText || e.kind == Example::Kind::kTokens) return e;
  Example text;
  if (e.kind == Example::Kind::kCompletion) {
    text.text = e.text + e.completion;
  } else {
    for (const OrderedJson& m : *e.messages) {
      const auto content = m.find("content");
      if (content == m.end() || !content->is_string())
        fail_input("{}: is a conversation with more than texts in it, and a text is wanted", where);
      text.text += (text.text.empty() ? "" : "\n") + content->get<std::string>();
    }
  }
  return text;
}

}  // namespace mxt::data
