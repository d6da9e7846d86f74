// Declaration of data.
#include "config/field.h"

namespace mxt::config {

Section declare(const MinHash*) {
  Declaration<MinHash> d("Near copies by MinHash.");
  d.field("threshold", &MinHash::threshold, "Jaccard similarity of two rows' shingles from which they are copies.")
      .range(0, 1);
  d.field("permutations", &MinHash::permutations, "Hash functions of a signature; more find more of the copies.")
      .range(16, 1024)
      .plus();
  d.field("shingles", &MinHash::shingles, "What is compared: runs of words or of characters.").plus();
  d.field("ngram", &MinHash::ngram, "Words or characters in one shingle.").range(1, 64).plus();
  return d.take();
}

Section declare(const SemDedup*) {
  Declaration<SemDedup> d("Copies in meaning by embeddings.");
  d.field("threshold", &SemDedup::threshold, "Cosine similarity from which a row is a copy.").range(0, 1);
  d.field("model", &SemDedup::model,
          "Embedding model: Hub id, folder or `.gguf` file; an encoder (BERT), or a decoder, whose last "
          "hidden states are averaged.")
      .non_empty();
  d.field("keep", &SemDedup::keep,
          "Which of a cluster's copies stays: the one farthest from its centroid, or the nearest.")
      .plus();
  d.field("clusters", &SemDedup::clusters, "Clusters within which rows are compared.")
      .range(1, 1'000'000)
      .plus()
      .default_is("the square root of the number of rows");
  return d.take();
}

Section declare(const Dedupe*) {
  Declaration<Dedupe> d("Removal of copies. Exact copies go whenever one of the two is on.");
  d.field("exact", &Dedupe::exact, "Exact copies alone: equal text but for white space.").plus();
  d.field("minhash", &Dedupe::minhash, "Near copies by MinHash. Absent = off.");
  d.field("semdedup", &Dedupe::semdedup, "Copies in meaning by embeddings. Absent = off.");
  return d.take();
}

Section declare(const Filter*) {
  Declaration<Filter> d("Rows that are left out.");
  d.field("min_chars", &Filter::min_chars, "Shorter rows are dropped, in characters of all text.").min(0).plus();
  d.field("max_chars", &Filter::max_chars, "Longer rows are dropped.").min(1).plus();
  d.field("min_words", &Filter::min_words, "Rows of fewer words are dropped; a word is a run of letters and digits.")
      .min(0)
      .plus();
  d.field("max_words", &Filter::max_words, "Rows of more words are dropped.").min(1).plus();
  d.field("max_repeated_lines", &Filter::max_repeated_lines,
          "Rows are dropped of whose lines a larger part repeats an earlier line; blank lines are not counted.")
      .range(0, 1)
      .plus();
  d.field("max_repeated_ngrams", &Filter::max_repeated_ngrams,
          "Rows are dropped of whose words a larger part stands in a run of five words that was there before.")
      .range(0, 1)
      .plus();
  d.field("min_letters", &Filter::min_letters,
          "Rows are dropped of whose characters, white space not counted, a smaller part is letters.")
      .range(0, 1)
      .plus();
  d.field("max_symbols", &Filter::max_symbols,
          "Rows are dropped of whose characters, white space not counted, a larger part is neither letters nor digits.")
      .range(0, 1)
      .plus();
  d.field(
       "decontaminate", &Filter::decontaminate,
       "Benchmarks: files, folders or globs of rows of any shape. Rows that share a run of words with one are dropped.")
      .plus();
  d.field("decontaminate_ngram", &Filter::decontaminate_ngram,
          "Words in that run; a benchmark's row of fewer words counts where a row is just that.")
      .range(1, 64)
      .plus();
  d.field("decontaminate_eval", &Filter::decontaminate_eval,
          "Also the documents of `eval.harness.tasks` that are asked, from their local files.")
      .plus();
  d.field("languages", &Filter::languages,
          "ISO codes, as `[en, de]`: rows of whose text less than `min_language_part` is in them are dropped.")
      .plus()
      .default_is("all");
  d.field("min_language_part", &Filter::min_language_part, "That part, by bytes of the text.").range(0, 1).plus();
  d.field("drop_unknown_language", &Filter::drop_unknown_language,
          "Drop rows whose language cannot be told (short texts, code) too.")
      .plus();
  d.field("redact", &Filter::redact, "What is replaced by <EMAIL>, <PHONE> and <KEY> in the rows that stay.").plus();
  d.field("max_perplexity", &Filter::max_perplexity, "Rows that a model finds less likely are dropped.")
      .above(1)
      .plus();
  d.field("perplexity_model", &Filter::perplexity_model, "That model: Hub id, folder or `.gguf` file.")
      .non_empty()
      .plus()
      .default_is("the base model");
  return d.take();
}

Section declare(const LossWeights*) {
  Declaration<LossWeights> d("Weights of target tokens inside tool calls.");
  d.field("structure", &LossWeights::structure, "Tags, braces, keys and what else is the call's form.").above(0).plus();
  d.field("name", &LossWeights::name, "The function's name.").above(0).plus();
  d.field("arguments", &LossWeights::arguments, "The arguments' names and values.").above(0).plus();
  return d.take();
}

Section declare(const Shard*) {
  Declaration<Shard> d("Output files.");
  d.field("num_shards", &Shard::num_shards, "Files that the tokens are written to.").range(1, 65536);
  return d.take();
}

Section declare(const Pictures*) {
  Declaration<Pictures> d("How large the model sees pictures: each is resized to between so many pixels in all.");
  constexpr int64_t kMost = int64_t{1} << 28;
  d.field("min_pixels", &Pictures::min_pixels, "Pixels of a picture at least.")
      .range(1, kMost)
      .plus()
      .default_is("as the model's preprocessor_config.json");
  d.field("max_pixels", &Pictures::max_pixels,
          "Pixels of a picture at most: fewer make fewer tokens of it, which costs less memory and detail.")
      .range(1, kMost)
      .plus()
      .default_is("as the model's preprocessor_config.json");
  return d.take();
}

Section declare(const Teacher*) {
  Declaration<Teacher> d("A teacher model behind an OpenAI-compatible endpoint that answers prompts.");
  d.field("endpoint", &Teacher::endpoint, "Its base URL, e.g. `https://api.openai.com/v1`.").required().plus();
  d.field("model", &Teacher::model, "The model's name there.").required().plus();
  d.field("prompts", &Teacher::prompts, "Rows with a `prompt`, `question` or `text`: file, folder or glob.")
      .required()
      .plus();
  d.field("api_key_env", &Teacher::api_key_env, "Environment variable that holds the key.").plus();
  d.field("system", &Teacher::system, "System message of every request; it becomes part of the rows.").plus();
  d.field("max_tokens", &Teacher::max_tokens, "Longest answer.").min(1).plus();
  d.field("temperature", &Teacher::temperature, "Sampling temperature of the teacher.").range(0, 2).plus();
  d.field("requests_per_minute", &Teacher::requests_per_minute, "Rate that is not exceeded.").above(0).plus();
  d.field("max_requests", &Teacher::max_requests, "Requests at most, retries counted. Absent = no cap.").min(1).plus();
  d.field("max_cost_usd", &Teacher::max_cost_usd, "No request that could pass this cost is sent. Absent = no cap.")
      .above(0)
      .plus();
  d.field("input_usd_per_1m", &Teacher::input_usd_per_1m, "Price of a million prompt tokens, US dollars.")
      .min(0)
      .plus();
  d.field("output_usd_per_1m", &Teacher::output_usd_per_1m, "Price of a million answer tokens, US dollars.")
      .min(0)
      .plus();
  return d.take();
}

Section declare(const Synth*) {
  Declaration<Synth> d("Rows made by the program itself, from a seed.");
  d.field(
       "task", &Synth::task,
       "What the rows teach: tool_calls = answer a request with one of five tools' calls; tool_calls_made_up = the "
       "same, with names and texts that are mostly made up, so that a model from random weights learns to copy what it "
       "never met; tool_preference = pairs, a call preferred to plain text; tool_habits = calls, but plain text where "
       "a "
       "request ends with thanks; tool_use = rows with `tools`, calls and results (one, one of several, parallel, none "
       "that fits); arithmetic, addition, spelling and sorting = short questions with one right answer; sums = "
       "questions "
       "for sums, computed by the calculator of nanochat's format; shapes = drawn pictures of a coloured shape, to be "
       "named.")
      .plus();
  d.field("rows", &Synth::rows, "Rows to train on.").range(1, 10'000'000).plus();
  d.field("turns", &Synth::turns,
          "Requests of a row to train on, each with its answer: a conversation, whose system message is read once.")
      .range(1, 64)
      .plus();
  d.field("test_rows", &Synth::test_rows, "Held-out rows of one request each, none of which is trained on.")
      .range(0, 1'000'000)
      .plus();
  d.field("seed", &Synth::seed, "Seed of the rows.").min(0).plus().default_is("meta.seed");
  d.field("teacher", &Synth::teacher, "Answers of a teacher model instead of a task's rows.").plus();
  return d.take();
}

Section declare(const MixtureSource*) {
  Declaration<MixtureSource> d("One source of a mixture: `path`, `hf_id` or `synth`.");
  d.field("path", &MixtureSource::path, "File, folder or glob.").non_empty().plus();
  d.field("hf_id", &MixtureSource::hf_id, "Dataset id on the Hub.").non_empty().plus();
  d.field("hf_config", &MixtureSource::hf_config, "Configuration of that dataset.")
      .non_empty()
      .plus()
      .default_is("its default");
  d.field("hf_revision", &MixtureSource::hf_revision, "Branch, tag or commit of that dataset.")
      .non_empty()
      .plus()
      .default_is("main");
  d.field("split", &MixtureSource::split, "Split of it.").non_empty().plus();
  d.field("max_samples", &MixtureSource::max_samples, "Rows to read of it at most.").min(1).plus();
  d.field("columns", &MixtureSource::columns, "Its rows' columns and what they are to us.")
      .plus()
      .default_is("detected");
  d.field("synth", &MixtureSource::synth, "Rows made by the program itself, in the place of files.").later();
  d.field("optional", &MixtureSource::optional,
          "true = a `path` of which no file is there is left out, and this said; one source must be there.")
      .later();
  d.field("weight", &MixtureSource::weight,
          "Its share of the tokens trained on is this, divided by the sum of all weights.")
      .above(0)
      .plus();
  return d.take();
}

Section declare(const Data*) {
  Declaration<Data> d("Rows, their cleaning, and how they become token sequences.");
  d.field("source", &Data::source,
          "hf = a dataset of the Hub; local = files; lighthouse = a content id; mindx_dreams = the consolidation logs "
          "of mindX; synth = rows made here; mixture = several sources by weight.");
  d.field("hf_id", &Data::hf_id, "Dataset id; required by hf.");
  d.field("hf_config", &Data::hf_config, "Configuration of that dataset, e.g. `main`.")
      .non_empty()
      .plus()
      .default_is("its default");
  d.field("hf_revision", &Data::hf_revision, "Branch, tag or commit of that dataset.")
      .non_empty()
      .plus()
      .default_is("main");
  d.field("path", &Data::path, "File, folder or glob; required by local and mindx_dreams.").non_empty();
  d.field("cid", &Data::cid, "Content id; required by lighthouse.").non_empty().plus();
  d.field("gateway", &Data::gateway, "HTTP gateway that `cid` is read through; the bytes are checked against the id.")
      .non_empty()
      .plus();
  d.field("split", &Data::split, "Split of a Hub dataset.").non_empty();
  d.field("streaming", &Data::streaming, "Read rows as they come instead of all files first.");
  d.field("max_samples", &Data::max_samples, "Rows to use at most.").min(1);
  d.field("include_evolutions", &Data::include_evolutions,
          "mindx_dreams: also the `*_evolutions.jsonl` beside `*_training.jsonl`.");
  d.field("sql", &Data::sql, "Filter over the rows: a SELECT from the table `rows`.").non_empty().plus();
  d.field("columns", &Data::columns,
          "The row's columns and what they are to us, e.g. `{question: prompt, answer: completion}`.")
      .plus()
      .default_is("detected");
  d.field("filter", &Data::filter, "Rows that are left out. Absent = off.").plus();
  d.field("dedupe", &Data::dedupe, "Removal of copies.");
  d.field("shard", &Data::shard, "Output files.");
  d.field("pictures", &Data::pictures, "How large the model sees pictures.").later();
  d.field("seq_len", &Data::seq_len, "Longest sequence in tokens; a longer document is cut at its end.")
      .range(64, 1'048'576);
  d.field("packing", &Data::packing,
          "Several documents in one sequence; attention does not cross them, but for `boundaries: row`.");
  d.field(
       "pack", &Data::pack,
       "whole = every document whole, in as few rows as can be; bos_crop = nanochat's: each text begins with the BOS, "
       "rows are full, the longest text of a buffer that fits comes next, and where none fits the shortest is cropped "
       "and its rest thrown away; best_fit = nanochat's for conversations: the longest of a buffer that fits comes "
       "next, "
       "whole, and where none fits a new row begins.")
      .later();
  d.field(
       "boundaries", &Data::boundaries,
       "Where attention and positions begin anew: at each document, or at each row (nanochat's), whose documents then "
       "see those before them.")
      .later();
  d.field("sampling", &Data::sampling,
          "random_windows = sequences of `seq_len` tokens at seeded random offsets of the whole text.")
      .plus();
  d.field("shuffle", &Data::shuffle, "Seeded order, new in each epoch; false = the file's order.").plus();
  d.field("train_on", &Data::train_on, "Which tokens of a conversation are trained.").plus();
  d.field("loss_weights", &Data::loss_weights,
          "Weights of target tokens inside tool calls; every other target weighs 1. Absent = all weigh 1.")
      .later();
  d.field("tools_in", &Data::tools_in,
          "Who writes a conversation's tools, calls and results: the model's template, or the system message as text "
          "(for templates that know none); the same in training, chat, serve and eval.")
      .later();
  d.field("eval_fraction", &Data::eval_fraction,
          "Part of the rows (of the text, for random_windows: its end) held out.")
      .min(0)
      .below(1)
      .plus();
  d.field("eval_path", &Data::eval_path, "Held-out rows: file, folder or glob.").non_empty().plus();
  d.field("mixture", &Data::mixture, "Sources that are mixed by weight; only with `source: mixture`.").plus();
  d.field(
       "mixture_stop", &Data::mixture_stop,
       "How large the mixture is: first_exhausted = until one source is used up, no row twice; all_exhausted = until "
       "every source is used up, rows of the others repeated; once = every row once, whatever the weights.")
      .plus();
  d.field("synth", &Data::synth, "Rows made by the program itself; only with `source: synth`.")
      .plus()
      .derived("its defaults for synth", [](const Recipe& r) -> std::optional<Synth> {
        if (r.data.source == DataSource::kSynth) return Synth{};
        return {};
      });
  return d.take();
}

}  // namespace mxt::config
