#include "data/first_row.h"

#include "base/error.h"
#include "base/files.h"
#include "data/encode/encode.h"

namespace mxt::data {

void require_shape(Answers answers, const Record& first, const Layout& layout) {
  const Shape shape = layout.shape;
  const bool pair = shape == Shape::kPreference || shape == Shape::kTokenPair;
  const bool labelled = shape == Shape::kLabelled || shape == Shape::kTokenAnswer;
  if (answers == Answers::kPairs && !pair)
    fail_input(
        "{}: rows are {}, this method compares two answers: give rows \"prompt\", \"chosen\" and \"rejected\" (name "
        "yours by data.columns)",
        first.where(), name_of(shape));
  if (answers == Answers::kLabelled && !pair && !labelled)
    fail_input(
        "{}: rows are {}, this method judges answers: give rows \"prompt\", \"completion\" and \"label\" (true or "
        "false), or pairs \"chosen\" and \"rejected\"",
        first.where(), name_of(shape));
  if (answers == Answers::kPrompts && (pair || labelled || shape == Shape::kTokens || shape == Shape::kText))
    fail_input(
        "{}: rows are {}, this method samples answers to prompts: give rows \"prompt\" and \"answer\", \"question\" "
        "and "
        "\"answer\", or \"messages\" that end with the answer",
        first.where(), name_of(shape));
  if (answers == Answers::kNone && (pair || shape == Shape::kReference)) {
    read_example(first, layout);  // says what is wrong with it, if anything is
    const auto theirs = [&](std::string_view ours) {
      for (const auto& [our, their] : layout.columns)
        if (our == ours) return their;
      return std::string(ours);
    };
    fail_input(
        "{}: rows are {}, for preference or reinforcement methods (train.method.kind: dpo, orpo, kto, grpo); to train "
        "on answers name them by data.columns, as {{{}: prompt, {}: completion}}",
        first.where(), name_of(shape), theirs("prompt"), theirs(pair ? "chosen" : "answer"));
  }
}

std::string first_row_lacks(const config::Recipe& r) {
  const config::Data& d = r.data;
  std::error_code ec;
  if (d.source != config::DataSource::kLocal || !d.path || d.sql || r.train.rollouts.path) return "";
  if (!fs::exists(*d.path, ec) && glob_files(*d.path).empty()) return "";
  try {
    const SourceFile file = find_source_files(*d.path, d.split).front();
    if (!fs::is_regular_file(file.path, ec)) return "";  // what comes through a pipe comes once
    Record first;
    if (!open_records(file)->next(&first)) return "";
    const Layout layout = find_layout(first, d.columns);
    const Answers answers = answers_of(r.train.method);
    require_shape(answers, first, layout);
    if (answers == Answers::kPrompts) require_answer(read_example(first, layout), first.where());
  } catch (const Error& e) {
    if (e.code() == Exit::kBadInput) return e.what();
  }
  return "";
}

}  // namespace mxt::data
