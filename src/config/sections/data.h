// Section `data`: rows, their cleaning, and how they become token sequences.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/enums.h"

namespace mxt::config {

struct MinHash {
  double threshold = 0.85;  // Jaccard similarity of two rows' shingles from which one is a copy
  int64_t permutations = 128;
  ShingleUnit shingles = ShingleUnit::kWords;
  int64_t ngram = 3;  // units in one shingle
};
struct SemDedup {
  double threshold = 0.95;  // cosine similarity from which a row counts as a copy
  std::string model = "sentence-transformers/all-MiniLM-L6-v2";
  Keep keep = Keep::kFarthest;      // which of its copies stays, by the distance from the centroid
  std::optional<int64_t> clusters;  // absent = the square root of the number of rows
};
struct Dedupe {
  bool exact = false;                // on its own; minhash and semdedup bring it
  std::optional<MinHash> minhash;    // absent = off
  std::optional<SemDedup> semdedup;  // absent = off
};
struct Filter {
  std::optional<int64_t> min_chars, max_chars, min_words, max_words;
  std::optional<double> max_repeated_lines, max_repeated_ngrams;  // parts, 0–1
  std::optional<double> min_letters, max_symbols;                 // parts, 0–1
  std::vector<std::string> decontaminate;                         // files, folders or globs of benchmark rows
  bool decontaminate_eval = false;                                // also the documents of eval.harness.tasks
  int64_t decontaminate_ngram = 13;
  std::vector<std::string> languages;  // ISO codes; empty = all
  double min_language_part = 0.5;      // of the text, in those languages
  bool drop_unknown_language = false;
  std::vector<Redact> redact;
  std::optional<double> max_perplexity;
  std::optional<std::string> perplexity_model;  // absent = the base model
};
// Weights of target tokens inside a tool call: its tags, braces and keys; the function's name; the arguments' values.
// All other targets weigh 1.
struct LossWeights {
  double structure = 1, name = 1, arguments = 1;
};
// How large the model sees pictures; absent = as its preprocessor_config.json says.
struct Pictures {
  std::optional<int64_t> min_pixels, max_pixels;
};

struct Shard {
  int64_t num_shards = 1;
};
struct Teacher {
  std::string endpoint, model, prompts;
  std::string api_key_env = "OPENAI_API_KEY";
  std::optional<std::string> system;
  int64_t max_tokens = 1024;
  double temperature = 0.7;
  double requests_per_minute = 60;
  std::optional<int64_t> max_requests;
  std::optional<double> max_cost_usd;
  double input_usd_per_1m = 0, output_usd_per_1m = 0;
};
struct Synth {
  SynthTask task = SynthTask::kToolCalls;
  int64_t rows = 1200, turns = 1, test_rows = 60;
  std::optional<int64_t> seed;     // absent = meta.seed
  std::optional<Teacher> teacher;  // present = its answers instead of the task's rows
};

// One source of a mixture: `path`, `hf_id` or `synth`.
struct MixtureSource {
  std::optional<std::string> path, hf_id, hf_config, hf_revision;
  std::string split = "train";
  std::optional<int64_t> max_samples;
  std::map<std::string, std::string> columns;
  std::optional<Synth> synth;
  bool optional = false;  // left out where its files are not there
  double weight = 1;      // share of the tokens trained on, with the others' weights
};

struct Data {
  DataSource source = DataSource::kHf;
  std::optional<std::string> hf_id, hf_config, hf_revision, path, cid;
  std::string gateway = "https://gateway.lighthouse.storage/ipfs";
  std::string split = "train";
  bool streaming = true;
  std::optional<int64_t> max_samples;
  bool include_evolutions = false;
  std::optional<std::string> sql;
  std::map<std::string, std::string> columns;  // the row's column -> ours; empty = detected
  std::optional<Filter> filter;
  Dedupe dedupe;
  Shard shard;
  Pictures pictures;
  int64_t seq_len = 4096;
  bool packing = true;
  Pack pack = Pack::kWhole;
  Boundaries boundaries = Boundaries::kDocument;
  Sampling sampling = Sampling::kDocuments;
  bool shuffle = true;
  TrainOn train_on = TrainOn::kAssistant;
  std::optional<LossWeights> loss_weights;  // absent = every target weighs 1
  ToolsIn tools_in = ToolsIn::kTemplate;
  double eval_fraction = 0;
  std::optional<std::string> eval_path;
  std::vector<MixtureSource> mixture;
  MixtureStop mixture_stop = MixtureStop::kFirstExhausted;
  std::optional<Synth> synth;  // filled with its defaults for source synth

  // The rows made here, alone or in the mixture (the first such source's): null where there are none.
  const Synth* made() const {
    if (synth) return &*synth;
    for (const MixtureSource& m : mixture)
      if (m.synth) return &*m.synth;
    return nullptr;
  }
};

}  // namespace mxt::config
