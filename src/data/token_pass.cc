#include "data/token_pass.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "data/dataset.h"
#include "data/encode/encode.h"
#include "data/first_row.h"

namespace mxt::data {
namespace {

// Of pairs whose answers are judged one by one, as TRL takes them apart: so many chosen answers, then their rejected
// ones. Side by side a row's mismatched answer (train/methods/kto.cc) would be one to its own prompt.
constexpr size_t kUnpaired = 1000;

constexpr int kTokensRevision = 5;  // changes with what equal rows become

// Tokens up to the first target, of a pair in the sequence that has more of them; 0: one has no target.
int64_t tokens_to_target(const Document& d) {
  if (d.labels.empty()) return 2;
  const auto first = [&](size_t begin, size_t end) -> int64_t {
    for (size_t t = begin + 1; t < end; ++t)
      if (d.labels[t] != kNoTarget) return static_cast<int64_t>(t - begin) + 1;
    return 0;
  };
  const int64_t last = first(d.second, d.ids.size());
  if (d.second == 0 || last == 0) return last;
  const int64_t before = first(0, d.second);
  return before == 0 ? 0 : std::max(before, last);
}

bool lacks(const TokenBlock& b, const std::vector<bool>& make) {
  for (size_t i = 0; i < b.rows.size(); ++i)
    if (make[i] && !b.rows[i].made) return true;
  return false;
}

}  // namespace

TokenPass::TokenPass(const Settings& s, const SampleEncoder& coder, const config::Recipe& recipe, const BlockWork& work,
                     Prepared* counts)
    : s_(s),
      coder_(coder),
      whole_pairs_(recipe.train.method.kind == config::MethodKind::kReward),
      work_(work),
      kept_(work.folder + "/tokens"),
      pictures_(work.folder + "/pictures"),
      counts_(counts) {
  if (recipe.data.filter) redact_ = recipe.data.filter->redact;
  settings_ = fmt::format("tokens {} {} {} {}", kTokensRevision, coder.digest(), s.train_all, s.windows);
  if (coder.pictures() && s.answers == Answers::kNone)
    settings_ += s.train.pictures().dump() + (s.eval ? s.eval->pictures().dump() : "");
  if (s.parts) settings_ += " parts";
  if (s.crop) settings_ += " bos " + std::to_string(coder.bos());
  if (s.answers != Answers::kNone)
    settings_ += s.answers == Answers::kPrompts ? " prompts" : s.alone ? " answers alone" : " answers";
}

std::string TokenPass::name(const RowStream& stream, size_t block) {
  // Held-out rows are left as they are.
  std::string settings = settings_;
  if (!s_.eval || stream.source != &*s_.eval)
    for (const config::Redact r : redact_) settings += fmt::format(" {}", config::text_of(r));
  return block_name(stream, block, settings, &layouts_);
}

void TokenPass::run(const RowSource& source, Curation* curation, Spill* out) {
  const std::vector<RowStream> streams = source.streams();
  double bytes = 0, before_bytes = 0;
  for (const RowStream& s : streams) bytes += static_cast<double>(s.bytes());
  const int64_t rows_before = counts_->rows_in;
  int64_t tokens = 0, found = 0;
  size_t row = 0;
  std::vector<bool> make;
  log::Progress progress("data: " + source.text(), 1);
  for (const RowStream& stream : streams) {
    MixedSource* mixed = source.mixture.empty()
                             ? nullptr
                             : &counts_->mixture[static_cast<size_t>(stream.source - source.mixture.data())];
    const size_t first_row = row, documents = out->documents();
    BlockReader reader(stream);
    std::vector<Record> rows;
    for (size_t b = 0;; ++b) {
      const std::string key = name(stream, b);
      std::optional<TokenBlock> block = find_tokens(kept_, key);
      const auto stays = [&](size_t n) {
        make.assign(n, true);
        if (!curation) return;
        curation->check_rows(source, row + n);
        for (size_t i = 0; i < n; ++i) make[i] = curation->stays(row + i);
      };
      if (block) stays(block->rows.size());
      const bool whole = block && !lacks(*block, make);
      found += whole;
      if (!whole && work_.missing) work_.missing(stream, b);
      if (!whole || (curation && curation->wants(row, block->rows.size()))) {
        bool last = false;
        reader.read(b, &rows, &last);
        if (!block) stays(rows.size());
        if (block && block->rows.size() != rows.size()) block.reset();
        if (curation)
          for (size_t i = 0; i < rows.size(); ++i)
            curation->sample(row + i, rows[i], set_layout(stream, reader.first()));
        if (!whole) {
          if (!block) block.emplace();
          block->last = last;
          if (!rows.empty()) {
            const Layout& layout = set_layout(stream, reader.first());
            block->shape = layout.shape;
            fill(rows, layout, make, curation != nullptr, &*block);
          }
          put_tokens(kept_, key, *block);
        }
      }
      if (!block->rows.empty()) counts_->shape = name_of(block->shape);
      for (size_t i = 0; i < block->rows.size(); ++i) {
        if (!make[i]) continue;
        if (curation && !block->redacted.empty()) curation->add_redacted(block->redacted[i]);
        tokens += static_cast<int64_t>(block->rows[i].document.ids.size());
        collect(std::move(block->rows[i]), out);
      }
      row += block->rows.size();
      progress.update(bytes > 0 ? (before_bytes + reader.done() * static_cast<double>(stream.bytes())) / bytes : 0,
                      fmt::format("{} rows, {} tokens", counts_->rows_in - rows_before, tokens));
      work_.check_cancel();
      if (block->last) break;
    }
    add_rejected(out);
    if (mixed) {
      mixed->rows_in += static_cast<int64_t>(row - first_row);
      mixed->documents += static_cast<int64_t>(out->documents() - documents);
      mixed->dropped =
          std::max<int64_t>(0, mixed->rows_in - mixed->documents);  // plain text has more documents than rows
    }
    before_bytes += static_cast<double>(stream.bytes());
  }
  if (s_.parts && !calls_)
    coder_.warn_once("loss_weights", "data.loss_weights: no row's trained turns hold a call: every token weighs 1");
  coder_.say_more();
  if (found) log::info("data: {} blocks were tokenized before", found);
  if (row == 0) fail_no_rows(source);
}

std::optional<bool> TokenPass::has(const RowStream& stream, size_t block, const std::vector<bool>& make) {
  const std::optional<TokenBlock> b = find_tokens(kept_, name(stream, block));
  if (!b || (!make.empty() && b->rows.size() != make.size()) ||
      lacks(*b, make.empty() ? std::vector<bool>(b->rows.size(), true) : make))
    return std::nullopt;
  return b->last;
}

void TokenPass::encode(const RowStream& stream, size_t block, const std::vector<Record>& rows, const Record& first,
                       bool last, const std::vector<bool>& make, bool redact) {
  TokenBlock b;
  b.last = last;
  if (!rows.empty()) {
    const Layout& layout = set_layout(stream, first);
    b.shape = layout.shape;
    fill(rows, layout, make, redact, &b);
  }
  put_tokens(kept_, name(stream, block), b);
}

const Layout& TokenPass::set_layout(const RowStream& stream, const Record& first) {
  if (!stream.file) layouts_.offer(*stream.source, first);
  const Layout& layout = layouts_.of(*stream.source);
  refuse_shape(first, layout);
  if (said_.insert(stream.source).second)
    log::info("data: rows are {}", first.kind == FileKind::kText ? "plain text" : layout.text());
  return layout;
}

void TokenPass::refuse_shape(const Record& first, const Layout& layout) const {
  const Shape shape = layout.shape;
  require_shape(s_.answers, first, layout);
  const bool labelled = shape == Shape::kLabelled || shape == Shape::kTokenAnswer;
  if (s_.answers == Answers::kNone && labelled)
    coder_.warn_once("label",
                     fmt::format("{}: every answer is trained on, whatever its \"label\" says", first.where()));
  const bool text = shape == Shape::kText || shape == Shape::kCompletion || shape == Shape::kQuestion;
  if (s_.crop && !text && shape != Shape::kTokens)
    fail_input("{}: rows are {}; data.pack: bos_crop crops texts, use whole", first.where(), name_of(shape));
  if (s_.crop && text && coder_.bos() < 0)
    fail_input(
        "{}: data.pack: bos_crop begins every text with the BOS, and the tokenizer has none: name one in its "
        "tokenizer_config.json (bos_token), or use pack: whole",
        first.where());
  if (s_.windows && shape != Shape::kText)
    fail_input("{}: rows are {}; data.sampling: random_windows reads text only, use documents", first.where(),
               name_of(shape));
}

void TokenPass::fill(const std::vector<Record>& rows, const Layout& layout, const std::vector<bool>& make, bool redact,
                     TokenBlock* block) const {
  redact = redact && !redact_.empty();
  block->rows.resize(rows.size());
  if (redact) block->redacted.resize(rows.size(), Redacted{});
  std::vector<std::exception_ptr> errors(rows.size());
  parallel_for(0, static_cast<int64_t>(rows.size()), 4, [&](int64_t b, int64_t e) {
    for (size_t i = static_cast<size_t>(b); i < static_cast<size_t>(e); ++i) {
      const Record& r = rows[i];
      TokenBlock::Row& out = block->rows[i];
      out.text = r.kind == FileKind::kText;
      out.last_piece = r.last_piece;
      if (!make[i] || out.made) continue;
      const bool begin_text = !out.text || (r.line == 1 && !s_.windows);
      const bool end_text = !out.text || (r.last_piece && !s_.windows);
      try {
        const EncodeRules rules{s_.train_all,
                                begin_text && !s_.crop,
                                end_text && !s_.crop,
                                s_.crop && !out.text,
                                s_.parts,
                                s_.crop || s_.answers != Answers::kNone ? nullptr : &pictures_,
                                s_.alone};
        const auto encode = [&](const Record& record) {
          Example e = read_example(record, layout);
          for (const RowNote& note : e.notes) warn_row(coder_, note.kind, note.text, r.where());
          if (s_.crop) e = as_text(std::move(e), record.where());
          return s_.answers == Answers::kNone      ? encode_example(e, coder_, rules, r.where())
                 : s_.answers == Answers::kPrompts ? encode_prompt(e, coder_, rules, r.where())
                                                   : encode_answers(e, coder_, rules, r.where());
        };
        if (redact) {
          Record clean = r;
          block->redacted[i] = redact_record(&clean, layout, redact_);
          out.document = encode(clean);
        } else {
          out.document = encode(r);
        }
        out.made = true;
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  });
  for (const auto& e : errors)  // the first bad row is named, whichever thread met one first
    if (e) std::rethrow_exception(e);
}

void TokenPass::collect(TokenBlock::Row r, Spill* out) {
  counts_->rows_in += r.last_piece;
  Document& d = r.document;
  if (s_.parts && !calls_)
    calls_ = std::any_of(d.labels.begin(), d.labels.end(), [](int32_t label) { return part_of(label) > 0; });
  if (s_.windows) {
    if (!d.ids.empty()) out->add(d);
  } else if (r.text) {
    add_text(d.ids, r.last_piece, out);
  } else {
    if (s_.answers == Answers::kPrompts) {  // a prompt is never cut: one that leaves no room for an answer is left out
      if (static_cast<int64_t>(d.second) >= s_.seq_len) {
        coder_.warn_once("long prompts",
                         fmt::format("row {}: its prompt has {} tokens, and data.seq_len ({}) leaves no room for an "
                                     "answer: it and others like it are left out; raise data.seq_len to keep them",
                                     counts_->rows_in, d.second, s_.seq_len));
        drop(static_cast<int64_t>(d.second) + 1);
      } else {
        out->add(d);
      }
    } else if (whole_pairs_) {
      add_whole(d, out);
    } else if (s_.answers != Answers::kLabelled) {
      const int64_t needs = tokens_to_target(d);
      if (!s_.crop) count_cut(cut(d, s_.seq_len));
      if (s_.crop && d.labels == d.ids) d.labels.clear();
      if (s_.crop && !d.labels.empty())
        fail_input("data.pack: bos_crop trains every token: rows of input_ids have labels equal to them, or use whole");
      add(d, needs, out);
    } else if (d.second == 0) {
      add_answer(d, out);
    } else {
      auto [good, bad] = unpair(d);
      add_answer(std::move(good), out);
      rejected_.push_back(std::move(bad));
      if (rejected_.size() == kUnpaired) add_rejected(out);
    }
  }
}

// A file of plain text has no rows of its own: consecutive pieces of seq_len tokens are its documents.
void TokenPass::add_text(const std::vector<int32_t>& ids, bool last, Spill* out) {
  text_.insert(text_.end(), ids.begin(), ids.end());
  const size_t n = static_cast<size_t>(s_.seq_len);
  size_t at = 0;
  for (; text_.size() - at >= n || (last && at < text_.size()); at += std::min(n, text_.size() - at)) {
    const auto from = text_.begin() + static_cast<ptrdiff_t>(at);
    Document piece{{from, from + static_cast<ptrdiff_t>(std::min(n, text_.size() - at))}, {}};
    if (s_.crop) piece.ids.insert(piece.ids.begin(), coder_.bos());
    add(piece, 2, out);
  }
  text_.erase(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at));
}

// A row that has nothing to train on; where data.seq_len is why, that is kept.
void TokenPass::drop(int64_t needs) {
  ++counts_->dropped_no_target;
  if (needs <= s_.seq_len) return;
  counts_->long_enough = counts_->too_long++ > 0 ? std::min(counts_->long_enough, needs) : needs;
}

void TokenPass::count_cut(int64_t lost) {
  if (lost == 0) return;
  ++counts_->cut;
  counts_->cut_tokens += lost;
}

// An answer is also put after another row's prompt (KTO's mismatched pairs), so it is kept as far as the shortest
// prompt would let it stand; the trainer cuts the sequence that it makes.
void TokenPass::add_answer(Document d, Spill* out) {
  Document whole = d;
  const int64_t needs = tokens_to_target(d);
  count_cut(cut(d, s_.seq_len));
  size_t prompt = 0;
  while (prompt < whole.labels.size() && whole.labels[prompt] == kNoTarget) ++prompt;
  cut(whole, static_cast<int64_t>(prompt) + s_.seq_len - 1);
  if (count_targets(d) == 0)
    drop(needs);
  else
    out->add(whole);
}

void TokenPass::add_rejected(Spill* out) {
  for (Document& d : rejected_) add_answer(std::move(d), out);
  rejected_.clear();
}

void TokenPass::add_whole(Document d, Spill* out) {
  end_at_targets(d);
  const auto longest = static_cast<int64_t>(std::max(d.second, d.ids.size() - d.second));
  if (longest <= s_.seq_len) return add(d, longest, out);
  coder_.warn_once("whole pairs", fmt::format("pairs longer than data.seq_len ({}) are left out: a reward model reads "
                                              "the end of a sequence, so none is cut",
                                              s_.seq_len));
  drop(longest);
}

void TokenPass::add(const Document& d, int64_t needs, Spill* out) {
  // Of a pair each answer must have some: one cut away has nothing to compare.
  bool targets = count_targets(d) > 0;
  if (d.second > 0) {
    const auto [a, b] = unpair(d);
    targets = count_targets(a) > 0 && count_targets(b) > 0;
  }
  if (!targets && !(s_.crop && !d.ids.empty()))  // cropped rows train what follows a BOS alone
    drop(needs);
  else
    out->add(d);
}

}  // namespace mxt::data
