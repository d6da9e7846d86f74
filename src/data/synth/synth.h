// Small tasks made from a seed, for runs that need no download: a request and its one right answer, under a system
// message that a task's rows share. Everything is our own wording.
//
//   tool_calls  five tools (weather, timer, convert, event, message) stand in the system message; the answer is one
//   call
//               as compact JSON. Arguments are copied from the request; dates and times come in several spellings and
//               are answered as YYYY-MM-DD and HH:MM.
//   tool_calls_made_up  the same, but three of four names and texts that train are made up of syllables, so that a
//   model
//               from random weights learns to copy what it never met; the test rows are those of tool_calls
//   tool_preference  a request of three of these tools with its call, preferred to an answer in plain text: a pair
//   tool_habits      the same requests answered by a policy with a habit: in plain text where the request ends with
//               thanks (half of them), else by the call. Test rows want the call of both.
//   tool_use         rows with `tools`, for templates that show them, of BFCL's kinds (Yan et al. 2024) in equal parts:
//               simple (one tool, one call), multiple (two or three tools, of which one fits), parallel (two or three
//               calls of one tool), irrelevance (no tool fits: said in words). Training rows go on with the results and
//               what is said of them. tool_use_simple and the like are one kind alone
//   arithmetic  sums and differences of numbers below 100
//   addition    sums of two numbers from 10 to 49, always asked alike
//   sums        sums of two numbers below 100, asked in several ways; the answer has the calculator compute it,
//               <<13+28=41>>41, which is a calculation in nanochat's format
//   spelling    letters of made-up words: spelled, backwards, the n-th, how many of one
//   sorting     three to seven numbers below 1,000, either way
//   shapes      a drawn picture of one shape on a light ground, to be named: "red circle"; a pair of size and place is
//               of one split alone
//
// Rows are a function of (task, split, seed, index): asking for more rows keeps the earlier ones. No user text stands
// twice in a split (of shapes no picture); train and test share neither a user text nor an argument object (tool_calls:
// nor any city, label, title, person or message text).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace mxt::data {

enum class Split { kTrain, kTest };

struct SynthRow {
  std::string system{}, user, answer;  // system may be empty
  std::string rejected{};              // the worse answer of a pair; empty: the row is none
  std::string picture{};               // a data URI: it stands before the request; empty: none
  // Of a row with tools, as JSON lists: functions (name, description, parameters), the calls that are right (name,
  // arguments; none where no tool fits), and what each of them returns. `answer` is what is said then.
  std::string tools{}, calls{}, results{};
};

// The content of its request: a text, or with a picture parts.
OrderedJson content_of(const SynthRow& row);

// {"messages":[…]}: the first row's system message, then every row's request and answer. Of a pair
// {"prompt":[…],"chosen":[…],"rejected":[…]}, of one with tools {"tools":[…],"messages":[…]}, one row alone.
std::string conversation(std::span<const SynthRow> rows);

const std::vector<std::string>& synth_tasks();

// Errors (kBadInput): an unknown task (names the nearest), count beyond what the task has.
std::vector<SynthRow> synth_rows(std::string_view task, Split split, int64_t count, uint64_t seed);

}  // namespace mxt::data
