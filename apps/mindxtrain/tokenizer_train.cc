#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/stop.h"
#include "data/source/records.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct Options {
  std::vector<std::string> inputs, special = {"<|endoftext|>"};
  std::string column = "text", out, eos, bos, pad;
  tokenizer::TrainOptions train;
};

// The texts of all inputs, one after another.
class Texts {
 public:
  explicit Texts(const Options& o) : o_(o) {
    for (const std::string& path : o.inputs)
      for (const data::SourceFile& f : data::find_source_files(path, "train")) files_.push_back(f);
  }

  bool next(std::string_view& text) {
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
    bytes_ += text_.size();
    text = text_;
    return true;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::string cell() const {
    if (record_.header) {
      for (size_t i = 0; i < record_.header->size(); ++i)
        if ((*record_.header)[i] == o_.column) return record_.cells[i];
    } else {
      const Json row = parse_json(record_.text, record_.where());
      if (row.is_object() && row.contains(o_.column) && row[o_.column].is_string()) return row[o_.column];
    }
    fail_input("{}: the row has no text \"{}\": name its column with --column", record_.where(), o_.column);
  }

  const Options& o_;
  std::vector<data::SourceFile> files_;
  std::unique_ptr<data::RecordReader> reader_;
  data::Record record_;
  std::string text_;
  size_t at_ = 0, bytes_ = 0;
};

void train(Options& o) {
  o.train.special_tokens = o.special;
  // A text ends with the first special token where nothing else is said.
  o.train.eos_token = !o.eos.empty() ? o.eos : o.special.empty() ? "" : o.special.front();
  o.train.bos_token = o.bos, o.train.pad_token = o.pad;
  const UnfinishedFolder folder(o.out);
  if (fs::exists(o.out))
    for (const std::string& f : list_files(o.out))
      if (f != "tokenizer.json" && f != "tokenizer_config.json" && f != "special_tokens_map.json")
        fail_input("{}: holds {}, not a tokenizer alone: choose another --out", o.out, f);
  Texts texts(o);
  const auto made = tokenizer::Tokenizer::from_spec(
      train_byte_level_bpe(o.train, [&](std::string_view& t) { return texts.next(t); }));
  if (texts.bytes() == 0) fail_input("{}: holds no text to learn from", o.inputs.front());
  made->save(folder.path());
  replace_folder(folder.path(), o.out);
  std::printf("%s: %lld tokens from %.1f MB\n", o.out.c_str(), static_cast<long long>(made->vocab_size()),
              static_cast<double>(texts.bytes()) / 1e6);
  if (made->vocab_size() < o.train.vocab_size)
    log::warn("{} tokens, not {}: the texts hold no more pairs", made->vocab_size(), o.train.vocab_size);
}

}  // namespace

void add_tokenizer_train(CLI::App& tokenizer) {
  auto* c = tokenizer.add_subcommand("train",
                                     "a new byte-level BPE vocabulary from texts\nexample: mindxtrain tokenizer train "
                                     "--input corpus --vocab-size 32768 --out tok");
  auto o = std::make_shared<Options>();
  c->add_option("--input", o->inputs, "files, folders or globs: text, or rows of JSON lines, JSON, CSV, Parquet")
      ->required();
  c->add_option("--vocab-size", o->train.vocab_size, "tokens, the 256 bytes and the special ones among them")
      ->required()
      ->check(CLI::Range(256, 1 << 24));
  c->add_option("--out", o->out, "folder for tokenizer.json and tokenizer_config.json")->required();
  c->add_option("--column", o->column, "of rows: where the text is")->capture_default_str();
  c->add_option("--pattern", o->train.pattern,
                "how text is cut: nanochat, gpt2, qwen, cl100k, smollm or a regular expression")
      ->capture_default_str();
  c->add_option("--special", o->special, "special tokens, which get the first ids")->capture_default_str();
  c->add_option("--eos", o->eos, "the special token that ends a text (default: the first)");
  c->add_option("--bos", o->bos, "the special token that begins one");
  c->add_option("--pad", o->pad, "the special token that fills rows");
  c->add_option("--min-count", o->train.min_count, "a pair must be seen this often to become a token")
      ->check(CLI::NonNegativeNumber);
  c->add_flag("--nfc", o->train.nfc, "normalise to NFC, now and when encoding");
  c->callback([o] { train(*o); });
}

}  // namespace mxt::app
