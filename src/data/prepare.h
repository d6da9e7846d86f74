// `dataset prep`: from a recipe's data section to a prepared folder (data/dataset.h reads it).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "data/coder.h"
#include "data/curate.h"
#include "data/dataset.h"
#include "data/semantic/models.h"
#include "net/hub.h"

namespace mxt::data {

// What prepare() may reach beside the recipe's files. Rooms read no environment: the caller does.
struct Access {
  net::HubSettings hub;   // for data.source: hf; its proxy and authorities are for the other sources too
  std::string cache_dir;  // where content that was fetched by id is kept; needed for lighthouse
  // Where a file or pattern that a recipe names is, if it ships with the program; the path itself otherwise.
  std::function<std::string(const std::string& path)> shipped;
  std::function<std::string(const std::string& name)> variable;  // of the environment ("" = unset)
  // The models of data.dedupe.semdedup and data.filter.max_perplexity, by what the recipe names: the layers above make
  // them. Errors (kMissing): it cannot be had.
  std::function<std::shared_ptr<Embedder>(const std::string& model)> embedder;
  std::function<std::shared_ptr<Scorer>(const std::string& model)> scorer;
  std::function<std::vector<std::string>()> eval_texts;  // texts of the eval tasks' documents, for decontaminate_eval
  const std::atomic<bool>* cancel = nullptr;             // set: kInterrupted at the next piece
};

// One source of a mixture: its documents that were there to train on, and those that are trained on (with repetitions).
struct MixedSource {
  std::string source;
  double weight = 1;
  int64_t rows_in = 0, dropped = 0;  // rows read; of them left out by curation or without a trained token
  int64_t documents = 0, tokens = 0;
  int64_t used_documents = 0, used_tokens = 0;
};

// What happened, as `dataset.json` states it. Counts are over all parts.
struct Prepared {
  bool kept = false;    // a finished folder for the same inputs was already there
  std::string shape;    // "messages", "question/answer", …
  int64_t rows_in = 0;  // rows read (a plain-text file is one)
  int64_t dropped_no_target = 0;
  // Of these the ones that data.seq_len was too short for, and the seq_len that would have kept the shortest of them.
  int64_t too_long = 0, long_enough = 0;
  std::optional<CurationReport> curation;  // of the training rows; rows_in counts what it dropped
  bool cropped = false;                    // by data.pack: bos_crop
  int64_t cut = 0;                         // documents cut at their end: longer than seq_len, or cropped to fill a row
  int64_t cut_tokens = 0;                  // tokens lost by that (cropped: and by a last row that was not filled)
  std::vector<MixedSource> mixture;        // in the recipe's order; empty for one source
  PartInfo train, eval;
  std::string text() const;  // one line for a person
};

// Reads the source, renders, tokenizes (on all threads), masks, cuts, splits, packs and writes shards, the manifest
// last. Bytes depend on the inputs alone: not on threads, time or place. A folder whose manifest names the same inputs
// and whose files still have their digests is kept. Only files of ours in `out` are ever replaced. Memory is bounded:
// rows come in blocks of some MiB, tokens lie in files, and about 60 bytes a document are held. What both readings find
// out about a block is kept in `out`/.work until the manifest is written (work.h), so the same call after a crash goes
// on with the first block that is not there.
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
// Errors: kBadInput names file, line and what to do (data.*); no row left; kMissing for servers, libraries and
// credentials that are not here and methods that this build does not have; kInterrupted.
Prepared prepare(const config::Recipe& recipe, const SampleEncoder& coder, const std::string& out,
                 const Access& access = {});

// One of `jobs` that prepare together; the first is 1.
struct JobShare {
  int job = 1, jobs = 1;
};
struct JobDone {
  int64_t blocks = 0, rows = 0;  // blocks of this job, and rows that were made now
  bool last = false;             // all jobs are done: merge
  bool prepared = false;         // the folder was finished before
};
// The part of one job (data/jobs.h): nothing but files in `out`/.work. Errors: as prepare().
JobDone prepare_job(const config::Recipe& recipe, const SampleEncoder& coder, const std::string& out, JobShare job,
                    const Access& access = {});
// The rest, once all jobs are done: the folder that prepare() alone would have made, byte for byte. Errors: as
// prepare(); kBadInput for a job that has not finished, or whose part is damaged or of other inputs.
Prepared merge_jobs(const config::Recipe& recipe, const SampleEncoder& coder, const std::string& out,
                    const Access& access = {});

// In a folder prepared for train.rollouts.path: the file as it was given.
inline constexpr const char* kRolloutsName = "rollouts.jsonl";

// What prepare() would refuse before it reads a row (kMissing, kBadInput).
void check_supported(const config::Recipe& recipe);

// Every character of the corpus once, sorted by code point: what a character tokenizer is built from. Text rows only.
std::string corpus_characters(const config::Recipe& recipe, const Access& access = {});

// The texts of all rows that are there to train on, held out or not: what a tokenizer is learned from. Texts, questions
// with answers, prompts with completions, conversations of texts.
class Texts {
 public:
  Texts(const config::Recipe& recipe, const Access& access);  // errors: as prepare()
  ~Texts();
  bool next(std::string_view* text);  // valid until the next call
  std::string digest() const;         // equal where the rows are equal
  std::string name() const;           // of where they come from
  // Whether the rows of a prepared folder came from files of these bytes, as they were when digest() was asked for.
  bool are_those_of(const std::string& prepared) const;

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace mxt::data
