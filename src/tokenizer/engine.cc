#include "tokenizer/engine.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "tokenizer/io/byte_level.h"
#include "tokenizer/text/repair.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {

Engine::Engine(Spec spec) : spec_(std::move(spec)) {
  const std::string& source = spec_.source;
  ModelSpec& model = spec_.model;
  vocab_ = std::make_unique<Vocab>(std::move(model.tokens), std::move(model.present), source);
  const auto part = [&](const char* key, const std::string& text) { return parse_json(text, source + ": " + key); };
  const Json pre = part("pre_tokenizer", spec_.pre_tokenizer), decoder = part("decoder", spec_.decoder);
  try {
    normalizer_ = normalizer_from_json(part("normalizer", spec_.normalizer), source);
    pre_ = PreTokenizer(pre, source);
    decoder_ = Decoder(decoder, source);
  } catch (const Json::exception& e) {
    fail_input("{}: normalizer, pre_tokenizer or decoder: {}", source, e.what());
  }
  only_nfc_ = normalizer_.only_nfc();
  scan_ = pre_.scanner();
  cuttable_ = scan_ && model.kind == ModelSpec::Kind::kBpe && normalizer_.local();
  add_tokens();
  switch (model.kind) {
    case ModelSpec::Kind::kBpe:
      bpe_ = std::make_unique<Bpe>(model, *vocab_, pre_.byte_level(), source);
      break;
    case ModelSpec::Kind::kWordPiece:
      if (pre_.byte_level()) fail_missing("{}: WordPiece with a ByteLevel pre_tokenizer is not built in", source);
      wordpiece_ = std::make_unique<WordPiece>(model, *vocab_, source);
      break;
    case ModelSpec::Kind::kCharacters:
      for (int32_t id = 0; id < vocab_->size(); ++id) {
        if (!vocab_->has(id)) continue;
        const std::string& t = vocab_->token(id);
        if (t.empty() || unicode::length_of(static_cast<unsigned char>(t[0])) != t.size())
          fail_input("{}: token \"{}\" of a character tokenizer is not one character", source, t);
        size_t n;
        characters_.emplace(unicode::decode(t.data(), n), id);
      }
      break;
  }
  if (bpe_ && bpe_->exact()) {
    lengths_.resize(static_cast<size_t>(vocab_->size()));
    std::string raw;
    for (int32_t id = 0; id < vocab_->size(); ++id)
      lengths_[static_cast<size_t>(id)] =
          static_cast<uint32_t>(unspell_bytes(vocab_->token(id), raw) ? raw.size() : vocab_->token(id).size());
  }
  // The tables of characters are built when they are first asked: now, not in somebody's first text.
  constexpr std::string_view kWide = "\xC3\xA9";
  unicode::scan_text(kWide, true);
  if (std::vector<uint32_t> ends(kScanWindow + 64); scan_)
    scan_pieces(*scan_, kWide.data(), 0, kWide.size(), ends.data());
  const auto special = [&](const std::string& t) { return t.empty() ? -1 : id_of(t); };
  bos = special(spec_.bos_token);
  eos = special(spec_.eos_token);
  pad = special(spec_.pad_token);
}

void Engine::add_tokens() {
  vocab_size_ = vocab_->size();
  std::vector<AddedToken> raw, normalized;
  for (size_t k = 0; k < spec_.added.size(); ++k) {
    const AddedToken& t = spec_.added[k];
    const int32_t known = vocab_->find(t.content);
    if (known >= 0 && known != t.id)
      fail_input("{}: added token \"{}\" has id {}, but the vocabulary gives it {}", spec_.source, t.content, t.id,
                 known);
    if (vocab_->has(t.id) && vocab_->token(t.id) != t.content)
      fail_input("{}: added token \"{}\" has id {}, which is \"{}\" in the vocabulary", spec_.source, t.content, t.id,
                 vocab_->token(t.id));
    if (!added_ids_.emplace(t.content, t.id).second)
      fail_input("{}: added token \"{}\" stands twice", spec_.source, t.content);
    vocab_size_ = std::max(vocab_size_, t.id + 1);
    if (static_cast<size_t>(t.id) >= added_at_.size()) added_at_.resize(static_cast<size_t>(t.id) + 1, -1);
    if (added_at_[static_cast<size_t>(t.id)] >= 0) fail_input("{}: two added tokens have id {}", spec_.source, t.id);
    added_at_[static_cast<size_t>(t.id)] = static_cast<int32_t>(k);
    if (spec_.split_special && t.special) continue;
    if (t.normalized) {
      normalized.push_back(t);
      std::string storage;
      normalized.back().content = std::string(normalizer_.apply(t.content, storage, nullptr));
    } else {
      raw.push_back(t);
    }
  }
  raw_matcher_ = AddedMatcher(std::move(raw));
  normalized_matcher_ = AddedMatcher(std::move(normalized));
}

const AddedToken* Engine::added(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= added_at_.size() || added_at_[static_cast<size_t>(id)] < 0) return nullptr;
  return &spec_.added[static_cast<size_t>(added_at_[static_cast<size_t>(id)])];
}

int32_t Engine::id_of(std::string_view token) const {
  const auto it = added_ids_.find(token);
  return it != added_ids_.end() ? it->second : vocab_->find(token);
}

const std::string& Engine::token(int32_t id) const {
  static const std::string none;
  if (const auto* a = added(id)) return a->content;
  return vocab_->has(id) ? vocab_->token(id) : none;
}

std::string Engine::token_bytes(int32_t id) const {
  if (const auto* a = added(id)) return a->content;
  if (!vocab_->has(id)) return "";
  const std::string& t = vocab_->token(id);
  std::string raw;
  if (pre_.byte_level()) return unspell_bytes(t, raw) ? raw : t;
  if (wordpiece_) return t.starts_with(spec_.model.prefix) ? t.substr(spec_.model.prefix.size()) : t;
  if (spec_.model.kind == ModelSpec::Kind::kCharacters) return t;
  // Sentencepiece's spelling: bytes as <0x0A>, spaces as U+2581.
  if (spec_.model.byte_fallback && t.size() == 6 && t.starts_with("<0x") && t[5] == '>')
    return std::string(1, static_cast<char>(std::stoi(t.substr(3, 2), nullptr, 16)));
  for (size_t i = 0; i < t.size();) {
    if (t.compare(i, 3, "\xE2\x96\x81") == 0) {
      raw += ' ';
      i += 3;
    } else {
      raw += t[i++];
    }
  }
  return raw;
}

std::string Engine::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const auto* a = added(id);
    if (!a && !vocab_->has(id)) continue;
    if (skip_special && a && a->special) continue;
    tokens.push_back(token(id));
  }
  return decoder_.decode(std::move(tokens));
}

// ---- encoding

namespace {

constexpr size_t kStretch = size_t{1} << 16;

// A place at or after `from` where every scanner starts a piece whatever stands around: before the blank between two
// ASCII letters. Normalisers that look at characters and their marks do not look across it.
size_t safe_cut(std::string_view s, size_t from) {
  const auto letter = [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
  for (size_t i = from; i + 1 < s.size(); ++i)
    if (s[i] == ' ' && i > 0 && letter(s[i - 1]) && letter(s[i + 1])) return i;
  return s.size();
}

unicode::TextScan scan_text_parallel(std::string_view text, bool nfc, size_t grain) {
  // Cut where characters begin: then the parts are valid where the whole is.
  std::vector<size_t> cuts{0};
  while (text.size() - cuts.back() > grain) {
    size_t at = cuts.back() + grain;
    for (int k = 0; k < 3 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; ++k) --at;
    cuts.push_back(at);
  }
  cuts.push_back(text.size());
  std::vector<unicode::TextScan> parts(cuts.size() - 1);
  parallel_for(0, static_cast<int64_t>(parts.size()), 1, [&](int64_t b, int64_t e) {
    for (auto i = static_cast<size_t>(b); i < static_cast<size_t>(e); ++i)
      parts[i] = unicode::scan_text(text.substr(cuts[i], cuts[i + 1] - cuts[i]), nfc);
  });
  unicode::TextScan all;
  for (size_t i = 0; i < parts.size(); ++i) {
    all.valid &= parts[i].valid;
    all.ascii &= parts[i].ascii;
    for (const size_t at : parts[i].unsafe) all.unsafe.push_back(cuts[i] + at);
  }
  return all;
}

}  // namespace

void Engine::put_source(Span s, size_t base, Output& out) const {
  for (auto m = out.maps.rbegin(); m != out.maps.rend(); ++m) s = (*m)->to_source(s);
  s = {s.begin + base, s.end + base};
  out.offsets->push_back(out.repair ? out.repair->to_source(s) : s);
}

void Engine::put_symbols(const std::vector<Symbol>& symbols, const Piece& piece, size_t shift, size_t base,
                         Output& out) const {
  size_t at = 0;
  for (const auto& s : symbols) {
    out.put(s.id);
    if (out.offsets) {
      const Span t = piece.source(at, at + s.length);
      put_source({t.begin + shift, t.end + shift}, base, out);
    }
    at += s.length;
  }
}

void Engine::encode_characters(std::string_view text, size_t shift, size_t base, Output& out) const {
  for (size_t i = 0; i < text.size();) {
    size_t n;
    const uint32_t c = unicode::decode(text.data() + i, n);
    const auto it = characters_.find(c);
    if (it == characters_.end())
      fail_input("{}: character \"{}\" (U+{:04X}) at byte {} is not in the vocabulary: build it from data that has it",
                 spec_.source, text.substr(i, n), c, base + shift + i);
    out.put(it->second);
    if (out.offsets) put_source({shift + i, shift + i + n}, base, out);
    i += n;
  }
}

// Pieces whose tokens' bytes add up to them: the ids at once, the spans from the tokens' lengths.
void Engine::encode_run(const char* text, size_t readable, const uint32_t* ends, size_t count, size_t shift,
                        size_t base, Output& out) const {
  const size_t first = out.used;
  bpe_->encode_pieces(text, readable, ends, count, out.loan->fresh(), out.loan->space(), out.ids, out.used);
  if (!out.offsets) return;
  size_t at = shift;
  for (size_t k = first; k < out.used; ++k) {
    const size_t n = lengths_[static_cast<size_t>(out.ids[k])];
    put_source({at, at + n}, base, out);
    at += n;
  }
}

void Engine::encode_ordinary(std::string_view text, size_t shift, size_t base, Output& out) const {
  if (text.empty()) return;
  if (spec_.model.kind == ModelSpec::Kind::kCharacters) return encode_characters(text, shift, base, out);
  const bool fast = bpe_ && pre_.byte_level() && (bpe_->exact() || !out.offsets);
  std::vector<uint32_t> ends;
  if (scan_ && fast) {
    ends.resize(kScanWindow + 64);
    for (size_t p = 0; p < text.size();) {
      const size_t n = scan_pieces(*scan_, text.data(), p, text.size(), ends.data());
      encode_run(text.data() + p, text.size() - p, ends.data(), n, shift + p, base, out);
      p += ends[n - 1];
    }
    return;
  }
  PreTokenizer::Storage storage;
  const auto pieces = pre_.split(text, base == 0 && shift == 0, storage);
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < pieces.size();) {
    const Piece& p = pieces[i];
    if (fast && !p.map && p.text.size() < UINT32_MAX / 2) {
      // Neighbours that touch go together.
      ends.clear();
      size_t size = 0;
      for (; i < pieces.size() && ends.size() < kScanWindow && !pieces[i].map &&
             pieces[i].text.data() == p.text.data() + size && size + pieces[i].text.size() < UINT32_MAX / 2;
           ++i)
        ends.push_back(static_cast<uint32_t>(size += pieces[i].text.size()));
      encode_run(p.text.data(), size, ends.data(), ends.size(), shift + p.base + p.shift, base, out);
      continue;
    }
    symbols.clear();
    if (bpe_)
      bpe_->encode(p.text, symbols);
    else
      wordpiece_->encode(p.text, symbols);
    put_symbols(symbols, p, shift, base, out);
    ++i;
  }
}

std::string_view Engine::normalize(std::string_view text, size_t base, const unicode::TextScan* scan,
                                   std::string& storage, std::vector<OffsetMap>* maps) const {
  if (only_nfc_ && scan) return normalizer_.apply_nfc(text, scan->unsafe, base, storage, maps);
  return normalizer_.apply(text, storage, maps);
}

void Engine::encode_text(std::string_view text, size_t base, std::span<const Span> plain, const unicode::TextScan* scan,
                         Output& out) const {
  if (cuttable_ && normalized_matcher_.empty() && !out.offsets && text.size() > 2 * kStretch) {
    // Stretch by stretch, so that what the normaliser writes stays in the cache and unchanged stretches are not copied.
    std::string storage;
    for (size_t b = 0, e; b < text.size(); b = e) {
      e = text.size() - b <= 2 * kStretch ? text.size() : safe_cut(text, b + kStretch);
      encode_ordinary(normalize(text.substr(b, e - b), base + b, scan, storage, nullptr), 0, base + b, out);
    }
    return;
  }
  std::string storage;
  std::vector<OffsetMap> maps;
  const bool tracked = out.offsets || (!plain.empty() && !normalized_matcher_.empty());
  const std::string_view now = normalize(text, base, scan, storage, tracked ? &maps : nullptr);
  for (const auto& m : maps) out.maps.push_back(&m);
  if (normalized_matcher_.empty()) {
    encode_ordinary(now, 0, base, out);
  } else {
    std::vector<Span> here;  // the plain spans in the normalised text
    for (const Span& s : plain)
      if (s.end > base && s.begin < base + text.size())
        here.push_back({std::max(s.begin, base) - base, std::min(s.end, base + text.size()) - base});
    for (const auto& m : maps) here = carry_spans(here, m);
    normalized_matcher_.split(now, here, [&](const Part& p) {
      if (p.id < 0) return encode_ordinary(now.substr(p.begin, p.end - p.begin), p.begin, base, out);
      out.put(p.id);
      if (out.offsets) put_source({p.begin, p.end}, base, out);
    });
  }
  out.maps.clear();
}

// A large text goes task by task on one thread too: then ids are made in memory that stays in the caches, and what is
// large is written once.
void Engine::encode(std::string_view text, std::span<const Span> plain, std::vector<int32_t>& ids,
                    std::vector<Span>* offsets) const {
  if (offsets) return encode_whole(text, plain, ids, offsets);
  encode_parallel(text, plain, 1, ids);
}

void Engine::encode_whole(std::string_view text, std::span<const Span> plain, std::vector<int32_t>& ids,
                          std::vector<Span>* offsets) const {
  const auto scan = unicode::scan_text(text, only_nfc_);
  std::string repaired;
  OffsetMap repair;
  std::vector<Span> carried;
  Output out{ids, offsets};
  out.used = ids.size();
  if (!scan.valid) {
    repaired = repair_utf8(text, repair);
    carried = carry_spans(plain, repair);
    text = repaired;
    plain = carried;
    out.repair = &repair;
  }
  CachePool::Loan loan(caches_);
  out.loan = &loan;
  // Memory is only touched when used, so what the worst text wants may be asked for (of a large one: what mixed scripts
  // want); by doubling, so that many short calls stay linear.
  constexpr size_t kLarge = size_t{1} << 26;
  if (const size_t need = ids.size() + (text.size() <= kLarge ? text.size() : text.size() / 8 * 5) + 64;
      need > ids.capacity())
    ids.reserve(std::max(need, ids.capacity() * 2));
  // A failure in the middle leaves the caller's ids as they were.
  const size_t before = ids.size(), spans_before = offsets ? offsets->size() : 0;
  try {
    raw_matcher_.split(text, plain, [&](const Part& p) {
      if (p.id < 0)
        return encode_text(text.substr(p.begin, p.end - p.begin), p.begin, plain, scan.valid ? &scan : nullptr, out);
      out.put(p.id);
      if (offsets) put_source({p.begin, p.end}, 0, out);
    });
  } catch (...) {
    ids.resize(before);
    if (offsets) offsets->resize(spans_before);
    throw;
  }
  ids.resize(out.used);
}

void Engine::encode_parallel(std::string_view text, std::span<const Span> plain, int threads,
                             std::vector<int32_t>& ids) const {
  constexpr size_t kGrain = size_t{1} << 20;
  const bool cuttable = cuttable_ && (normalized_matcher_.empty() || normalizer_.none());
  if (!cuttable || text.size() <= 2 * kGrain) return encode_whole(text, plain, ids, nullptr);
  const int threads_before = num_threads();
  if (threads > 1) set_num_threads(threads);
  const auto restore = std::unique_ptr<const int, void (*)(const int*)>(threads > 1 ? &threads_before : nullptr,
                                                                        [](const int* n) { set_num_threads(*n); });
  const auto scan = threads > 1 ? scan_text_parallel(text, only_nfc_, 4 * kGrain) : unicode::scan_text(text, only_nfc_);
  if (!scan.valid) return encode_whole(text, plain, ids, nullptr);

  struct Task {
    std::vector<Part> parts;
    std::vector<int32_t> ids;
    size_t bytes = 0, used = 0;
    bool done = false;
  };
  std::vector<Task> tasks(1);
  const auto add = [&](const Part& p) {
    if (tasks.back().bytes >= kGrain) tasks.emplace_back();
    tasks.back().parts.push_back(p);
    tasks.back().bytes += p.end - p.begin;
  };
  const auto add_text = [&](size_t begin, size_t end) {
    while (begin < end) {
      const size_t e = end - begin <= kGrain + kGrain / 2
                           ? end
                           : begin + kGrain + safe_cut(text.substr(begin + kGrain, end - begin - kGrain), 0);
      add({-1, begin, e});
      begin = e;
    }
  };
  raw_matcher_.split(text, plain, [&](const Part& p) {
    if (p.id >= 0) return add(p);
    if (normalized_matcher_.empty()) return add_text(p.begin, p.end);
    std::vector<Span> here;
    for (const Span& s : plain)
      if (s.end > p.begin && s.begin < p.end)
        here.push_back({std::max(s.begin, p.begin) - p.begin, std::min(s.end, p.end) - p.begin});
    normalized_matcher_.split(text.substr(p.begin, p.end - p.begin), here, [&](const Part& q) {
      if (q.id >= 0)
        add({q.id, p.begin + q.begin, p.begin + q.end});
      else
        add_text(p.begin + q.begin, p.begin + q.end);
    });
  });

  // Tasks are taken in order, and what is done is appended as soon as all before it is: few buffers, which stay in the
  // caches. One thread at a time appends, without the lock: memory written for the first time is cleared meanwhile, and
  // the others go on.
  std::mutex mutex;
  bool appending = false;
  std::vector<std::vector<int32_t>> buffers;
  size_t taken = 0, appended = 0;
  // By doubling, so that many calls stay linear. Large pages would be cleared far from the caches, and in a
  // virtual machine by its host as well: small ones are written while they lie there.
  if (const size_t need = ids.size() + text.size() / 8 * 5; need > ids.capacity())
    ids.reserve(std::max(need, ids.capacity() * 2));
  const auto work = [&](int64_t, int64_t) {
    CachePool::Loan loan(caches_);
    std::unique_lock lock(mutex);
    while (taken < tasks.size()) {
      Task& task = tasks[taken++];
      if (!buffers.empty()) {
        task.ids = std::move(buffers.back());
        buffers.pop_back();
      }
      lock.unlock();
      Output out{task.ids, nullptr};
      out.loan = &loan;
      for (const Part& p : task.parts) {
        if (p.id >= 0) {
          out.put(p.id);
          continue;
        }
        std::string storage;
        const std::string_view raw = text.substr(p.begin, p.end - p.begin);
        encode_ordinary(normalize(raw, p.begin, &scan, storage, nullptr), 0, p.begin, out);
      }
      lock.lock();
      task.used = out.used;
      task.done = true;
      if (appending) continue;
      appending = true;
      for (; appended < tasks.size() && tasks[appended].done; ++appended) {
        auto& made = tasks[appended].ids;
        lock.unlock();
        ids.insert(ids.end(), made.begin(), made.begin() + static_cast<ptrdiff_t>(tasks[appended].used));
        lock.lock();
        buffers.push_back(std::move(made));
      }
      appending = false;
    }
  };
  const size_t before = ids.size();
  try {
    if (threads > 1)
      parallel_for(0, threads, 1, work);
    else
      work(0, 1);
  } catch (...) {
    ids.resize(before);
    throw;
  }
}

}  // namespace mxt::tokenizer
