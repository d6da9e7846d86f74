// `dataset prep`: from a recipe's data section to a prepared folder (data/dataset.h reads it).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "config/recipe.h"
#include "data/coder.h"
#include "data/curate.h"
#include "data/dataset.h"
#include "data/filter/redact.h"

namespace mxt::data {

// What happened, as `dataset.json` states it. Counts are over all parts.
struct Prepared {
  bool kept = false;    // a finished folder for the same inputs was already there
  std::string shape;    // "messages", "question/answer", …
  int64_t rows_in = 0;  // rows read (a plain-text file is one)
  int64_t dropped_no_target = 0;
  std::optional<CurationReport> curation;  // of the training rows; rows_in counts what it dropped
  Redacted redacted{};                     // what data.filter.redact replaced, by config::Redact
  int64_t cut = 0;         // documents longer than seq_len, cut at their end
  int64_t cut_tokens = 0;  // tokens lost by that
  PartInfo train, eval;
  std::string text() const;  // one line for a person
};

// Reads the source, renders, tokenizes (on all threads), masks, cuts, splits, packs and writes shards, the manifest
// last. Bytes depend on the inputs alone: not on threads, time or place. A folder whose manifest names the same inputs
// and whose files still have their digests is kept. Only files of ours in `out` are ever replaced.
//
//   documents       a document is a row; of a plain-text file, consecutive pieces of seq_len tokens. Text ends with the
//                   end-of-text token where there is one.
//   random_windows  text rows joined to one array, each ended by the end-of-text token; a plain-text file is taken as
//   it
//                   is, with nothing added.
//   held-out part   synth: the task's test rows; eval_path: those rows; eval_fraction: documents chosen by the seed
//   before
//                   packing, of an array its last part: tokens from floor(n · (1 − fraction)) on.
//
// Errors: kBadInput names file, line and what to do (data.*); no row left; kMissing for sources, cleaning steps and
// methods that this build does not have.
Prepared prepare(const config::Recipe& recipe, const Coder& coder, const std::string& out);

// What prepare() would refuse before it reads a row (kMissing, kBadInput).
void check_supported(const config::Recipe& recipe);

// Every character of the corpus once, sorted by code point: what a character tokenizer is built from. Text rows only.
std::string corpus_characters(const config::Recipe& recipe);

}  // namespace mxt::data
