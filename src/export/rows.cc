#include "export/rows.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "data/curate.h"
#include "data/dataset.h"
#include "data/settings.h"

namespace mxt::exporting {
namespace {

using data::Example;
using Kind = Example::Kind;

// What a method asks of rows that nobody here has looked at.
Form asked_form(const config::Recipe& r) {
  using K = config::MethodKind;
  switch (r.train.method.kind) {
    case K::kDpo:
    case K::kOrpo:
    case K::kReward:
      return Form::kPair;
    case K::kKto:
      return Form::kLabelled;
    case K::kGrpo:
    case K::kGspo:
    case K::kRloo:
    case K::kPpo:
      return Form::kReference;
    case K::kCpt:
    case K::kPretrain:
      return Form::kText;
    default:
      return r.data.columns.contains("text") ? Form::kText : Form::kChat;
  }
}

Form form_for(const Example& e, data::Answers answers) {
  if (answers == data::Answers::kPrompts) return Form::kReference;
  return form_of(e);
}

// All rows of a source as examples, in their order.
void each_example(data::RecordReader& reader, const std::map<std::string, std::string>& columns,
                  const std::function<bool(const Example&, const std::string& where)>& take) {
  data::Record record;
  std::optional<data::Layout> layout;
  while (reader.next(&record)) {
    if (!layout) layout = data::find_layout(record, columns);
    if (!take(data::read_example(record, *layout), record.where())) return;
  }
}

void write_source(const config::Recipe& r, data::RecordReader& reader, const data::RowSource& source, const Rows& rows,
                  data::Answers answers, const Target& target, const std::string& path,
                  const std::atomic<bool>* cancel) {
  AtomicFile out(path);
  each_example(reader, source.columns, [&](const Example& e, const std::string& where) {
    if (form_for(e, answers) != rows.form)
      fail_input("{}: is a row of {}, the ones before it are {}: keep one shape in a data set", where,
                 name_of(form_for(e, answers)), name_of(rows.form));
    if (cancel && cancel->load()) throw Error(Exit::kInterrupted, "stopped while the rows were written");
    out.write(json_text(target.row(e, r)) + "\n");
    return true;
  });
  if (out.size() == 0) fail_input("{}: no row is left to write", source.text());
  out.commit();
}

OrderedJson list_from(const OrderedJson& messages, size_t begin, size_t end) {
  OrderedJson out = OrderedJson::array();
  for (size_t i = begin; i < end; ++i) out.push_back(messages[i]);
  return out;
}

}  // namespace

Form form_of(const Example& e) {
  if (e.rejected) return Form::kPair;
  if (e.mark != 0) return Form::kLabelled;
  switch (e.kind) {
    case Kind::kText:
      return Form::kText;
    case Kind::kCompletion:
      return Form::kCompletion;
    case Kind::kChat:
      return Form::kChat;
    case Kind::kTokens:
      return Form::kTokens;
  }
  MXT_ASSERT(false);
}

Turns turns_of(const Example& e) {
  const OrderedJson& all = *e.messages;
  const size_t at = e.trained_from > 0 ? e.trained_from : all.size() - 1;
  return {list_from(all, 0, at), list_from(all, at, all.size())};
}

OrderedJson trl_row(const Example& e, const config::Recipe&) {
  if (e.kind == Kind::kTokens) {
    if (e.rejected || e.mark != 0)
      fail_missing("rows of token ids in pairs or with a label: no other trainer reads them; write them as text");
    return {{"input_ids", e.ids}, {"labels", e.labels.empty() ? e.ids : e.labels}};
  }
  if (e.kind == Kind::kText) return {{"text", e.text}};
  OrderedJson row;
  const bool chat = e.kind == Kind::kChat;
  if (chat && !e.rejected && e.mark == 0 && e.trained_from == 0) {
    row["messages"] = *e.messages;
  } else {
    const Turns turns = chat ? turns_of(e) : Turns{e.text, e.completion};
    row["prompt"] = turns.prompt;
    row[e.rejected ? "chosen" : "completion"] = turns.answer;
    if (e.rejected) row["rejected"] = chat ? turns_of(*e.rejected).answer : OrderedJson(e.rejected->completion);
    if (e.mark != 0) row["label"] = e.mark > 0;
  }
  if (e.tools) row["tools"] = *e.tools;
  return row;
}

Rows describe_rows(const config::Recipe& r, const data::Access& access, const std::string& folder) {
  Rows rows;
  rows.form = asked_form(r);
  if (r.data.source == config::DataSource::kHf) {
    rows.hub_id = *r.data.hf_id;
    rows.chat = rows.form != Form::kText;
    return rows;
  }
  rows.folder = folder;
  const data::Settings s = data::read_settings(r, access, "");
  rows.held_out = s.eval.has_value();
  bool any = false;
  each_example(*s.train.open(), s.train.columns, [&](const Example& e, const std::string&) {
    rows.form = form_for(e, s.answers);
    rows.chat = e.kind == Kind::kChat;
    rows.tools = e.tools != nullptr;
    any = true;
    return false;
  });
  if (!any) fail_input("{}: has no rows", s.train.text());
  return rows;
}

void write_rows(const config::Recipe& r, const data::Access& access, const Rows& rows, const Target& target) {
  if (rows.folder.empty()) return;
  make_folders(rows.folder);
  const data::Settings s = data::read_settings(r, access, "");
  data::Curation curation = data::curate(s.train, r.data, rows.folder, &s);
  const auto train =
      curation.active() || (r.data.filter && !r.data.filter->redact.empty()) ? curation.stay(s.train) : s.train.open();
  write_source(r, *train, s.train, rows, s.answers, target, rows.folder + "/" + target.train_file, access.cancel);
  if (s.eval)
    write_source(r, *s.eval->open(), *s.eval, rows, s.answers, target, rows.folder + "/" + target.test_file,
                 access.cancel);
}

Rows describe_tokens(const config::Recipe& r, const std::string& folder) {
  if (r.train.method.is_preference() || r.train.method.is_rl())
    fail_missing(
        "--data: finished tokens of {} are more than documents, and no other trainer reads them: leave --data out",
        config::text_of(r.train.method.kind));
  Rows rows;
  rows.form = Form::kTokens;
  rows.chat = false;
  rows.folder = folder;
  return rows;
}

void write_tokens(const config::Recipe& r, const std::string& prepared, const Rows& rows, const Target& target) {
  make_folders(rows.folder);
  for (const char* part : {"train", "eval"}) {
    if (!data::has_part(prepared, part)) continue;
    const data::Dataset set = data::Dataset::open(prepared, part);
    AtomicFile out(rows.folder + "/" + (std::string_view(part) == "train" ? target.train_file : target.test_file));
    for (int64_t i = 0; i < set.rows(); ++i) {
      const data::Row row = set.row(i);
      for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
        const auto b = static_cast<size_t>(row.cu_seqlens[d]), n = static_cast<size_t>(row.cu_seqlens[d + 1]) - b;
        const auto ids = row.ids.subspan(b, n), labels = row.labels.subspan(b, n);
        Example e;
        e.kind = Kind::kTokens;
        e.ids.assign(ids.begin(), ids.end());
        e.labels.assign(labels.begin(), labels.end());
        out.write(json_text(target.row(e, r)) + "\n");
      }
    }
    out.commit();
  }
}

}  // namespace mxt::exporting
