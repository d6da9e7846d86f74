#include "tokenizer_train.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/text.h"
#include "data/source/records.h"
#include "device/memory.h"
#include "model_files.h"
#include "tokenizer/chat/nanochat.h"
#include "tokenizer/tokenizer.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct TokenizerTrainOptions {
  std::vector<std::string> inputs, special;
  std::string column = "text", out, eos, bos, pad, ties = "hf";
  int64_t most_bytes = 0, most_characters = 0;
  int threads = 0;
  tokenizer::TrainOptions train;
};

// The texts of all inputs, one after another.
class Texts {
 public:
  explicit Texts(const TokenizerTrainOptions& o) : o_(o) {
    for (const std::string& path : o.inputs)
      for (const data::SourceFile& f : data::find_source_files(path, "train")) files_.push_back(f);
  }

  bool next(std::string_view& text) {
    if (o_.most_bytes > 0 && bytes_ >= o_.most_bytes) return false;
    while (true) {
      check_stop(&g_stop);
      if (!reader_) {
        if (at_ == files_.size()) return false;
        reader_ = data::open_records(files_[at_++]);
      }
      if (reader_->next(&record_)) break;
      reader_.reset();
    }
    text_ = record_.kind == data::FileKind::kText ? std::move(record_.text) : cell();
    if (o_.most_characters > 0) crop();
    bytes_ += static_cast<int64_t>(text_.size());
    text = text_;
    return true;
  }

 private:
  void crop() {
    size_t at = 0;
    for (int64_t n = 0; n < o_.most_characters && at < text_.size(); ++n) do
        ++at;
      while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80);
    text_.resize(at);
  }

  std::string cell() const {
    if (record_.header) {
      for (size_t i = 0; i < record_.header->size(); ++i)
        if ((*record_.header)[i] == o_.column) return record_.cells[i];
    } else {
      const Json row = parse_json(record_.text, record_.where());
      if (row.is_object() && row.contains(o_.column)) {
        if (row[o_.column].is_string()) return row[o_.column];
        fail_input("{}: \"{}\" is no text but {}: leave the row out, or name another column with --column",
                   record_.where(), o_.column, row[o_.column].is_null() ? "null" : row[o_.column].type_name());
      }
    }
    fail_input("{}: the row has no text \"{}\": name its column with --column", record_.where(), o_.column);
  }

  const TokenizerTrainOptions& o_;
  std::vector<data::SourceFile> files_;
  std::unique_ptr<data::RecordReader> reader_;
  data::Record record_;
  std::string text_;
  size_t at_ = 0;
  int64_t bytes_ = 0;
};

void name_specials(TokenizerTrainOptions& o) {
  const bool rust = o.ties == "rustbpe";
  o.train.ties = rust ? tokenizer::Ties::kRustBpe : tokenizer::Ties::kHuggingFace;
  const bool own = o.special.empty() && rust;
  o.train.special_tokens = !o.special.empty() ? o.special
                           : rust             ? tokenizer::nanochat_specials()
                                              : std::vector<std::string>{"<|endoftext|>"};
  // A text ends with the first special token where nothing else is said; nanochat's begin with it, and a turn ends.
  const std::string& first = o.train.special_tokens.front();
  o.train.bos_token = !o.bos.empty() ? o.bos : own ? first : "";
  o.train.eos_token = !o.eos.empty() ? o.eos : own ? "<|assistant_end|>" : first;
  o.train.pad_token = !o.pad.empty() ? o.pad : own ? first : "";
  if (own) o.train.chat_template = tokenizer::kNanochatTemplate;
}

void train(TokenizerTrainOptions& o) {
  set_threads(o.threads);
  name_specials(o);
  o.train.stop = &g_stop;
  o.train.memory_limit = device::available_host_bytes() / 2;
  const UnfinishedFolder folder(o.out);
  if (fs::exists(o.out))
    for (const std::string& f : list_files(o.out))
      if (f != "tokenizer.json" && f != "tokenizer_config.json" && f != "special_tokens_map.json" &&
          f != "chat_template.jinja")
        fail_input("{}: holds {}, not a tokenizer alone: choose another --out", o.out, f);
  Texts texts(o);
  tokenizer::Trained made = train_byte_level_bpe(o.train, [&](std::string_view& t) { return texts.next(t); });
  check_filled(o.train, made,
               o.inputs.size() == 1 ? o.inputs[0] : fmt::format("{} (and {} more)", o.inputs[0], o.inputs.size() - 1),
               "--vocab-size");
  const auto result = tokenizer::Tokenizer::from_spec(std::move(made.spec));
  result->save(folder.path());
  replace_folder(folder.path(), o.out);
  std::printf("%s: %lld tokens from %.1f MB (%lld distinct pieces; tables %s, process %s at most)\n", o.out.c_str(),
              static_cast<long long>(result->vocab_size()), static_cast<double>(made.text_bytes) / 1e6,
              static_cast<long long>(made.distinct_pieces), human_bytes(made.table_bytes).c_str(),
              human_bytes(device::peak_resident_bytes()).c_str());
}

}  // namespace

tokenizer::TrainOptions nanochat_tokenizer(int64_t vocab_size) {
  TokenizerTrainOptions o;
  o.ties = "rustbpe";
  name_specials(o);
  o.train.vocab_size = static_cast<int32_t>(vocab_size);
  return o.train;
}

// Nothing is written where the texts cannot fill the vocabulary.
void check_filled(const tokenizer::TrainOptions& o, const tokenizer::Trained& made, const std::string& texts,
                  const std::string& setting) {
  if (made.text_bytes == 0) fail_input("{}: holds no text to learn from", texts);
  const auto there =
      static_cast<int64_t>(std::count(made.spec.model.present.begin(), made.spec.model.present.end(), true));
  const auto size = static_cast<int64_t>(made.spec.model.tokens.size());
  if (size < o.vocab_size)
    fail_input("{}: the texts ({} bytes) hold no more pairs{} after {} tokens: give {} {} or more text", texts,
               made.text_bytes,
               o.min_count > 1 ? fmt::format(" that are seen {} times (--min-count)", o.min_count) : "", there, setting,
               size);
}

void add_tokenizer_train(CLI::App& tokenizer) {
  auto* c = tokenizer.add_subcommand("train",
                                     "a new byte-level BPE vocabulary from texts\nexample: mindxtrain tokenizer train "
                                     "--input corpus --vocab-size 32768 --out tok");
  auto o = std::make_shared<TokenizerTrainOptions>();
  c->add_option("--input", o->inputs, "files, folders or globs: text, or rows of JSON lines, JSON, CSV, Parquet")
      ->required();
  c->add_option("--vocab-size", o->train.vocab_size, "tokens, the 256 bytes and the special ones among them")
      ->required()
      ->check(CLI::Range(256, 1 << 24));
  c->add_option("--out", o->out, "folder for tokenizer.json and tokenizer_config.json")->required();
  c->add_option("--column", o->column, "of rows: where the text is")->capture_default_str();
  c->add_option("--pattern", o->train.pattern,
                "how text is cut: nanochat, gpt2, qwen3, cl100k, smollm or a regular expression")
      ->capture_default_str();
  c->add_option("--special", o->special,
                "special tokens (default: <|endoftext|>; with --ties rustbpe nanochat's nine, and its chat template)");
  c->add_option(
       "--ties", o->ties,
       "whose ids: hf (Hugging Face's trainer: special tokens, bytes by spelling, merges) or rustbpe (nanochat's: "
       "bytes by value, merges, special tokens)")
      ->check(CLI::IsMember({"hf", "rustbpe"}))
      ->capture_default_str();
  c->add_option("--eos", o->eos, "the special token that ends a text (default: the first)");
  c->add_option("--bos", o->bos, "the special token that begins one");
  c->add_option("--pad", o->pad, "the special token that fills rows");
  c->add_option("--min-count", o->train.min_count, "a pair must be seen this often to become a token")
      ->check(CLI::NonNegativeNumber);
  c->add_option("--max-bytes", o->most_bytes, "no more text is read after so many bytes")->check(CLI::PositiveNumber);
  c->add_option("--crop", o->most_characters, "characters of each row that are read (nanochat: 10000)")
      ->check(CLI::PositiveNumber);
  c->add_option("--threads", o->threads, "threads");
  c->add_flag("--nfc", o->train.nfc, "normalise to NFC, now and when encoding");
  c->callback([o] { train(*o); });
}

}  // namespace mxt::app
