#include "tokenizer/text/normalize.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {
namespace {

using NormalizeKind = NormalizerStep::Kind;
using unicode::Table;

// Builds the changed text and its map; stretches that stay are copied whole.
class Writer {
 public:
  Writer(std::string_view in, std::string& out, OffsetMap* map) : in_(in), out_(out), map_(map) { out_.clear(); }
  // Everything of the source from the last edit up to `to` stays.
  void keep_until(size_t to) {
    out_.append(in_.substr(at_, to - at_));
    at_ = to;
  }
  // The source [at, from_end) becomes what `put` appends.
  template <typename F>
  void edit(size_t from_end, F&& put) {
    const size_t to = out_.size(), from = at_;
    put(out_);
    at_ = from_end;
    if (map_) map_->add({to, out_.size(), from, from_end});
    changed_ = true;
  }
  bool finish() {
    if (changed_) keep_until(in_.size());
    return changed_;
  }

 private:
  std::string_view in_;
  std::string& out_;
  OffsetMap* map_;
  size_t at_ = 0;
  bool changed_ = false;
};

struct Form {
  bool compose, compat;
  uint16_t inert;
};
Form form_of(NormalizeKind k) {
  const bool compat = k == NormalizeKind::kNfkc || k == NormalizeKind::kNfkd;
  return {k == NormalizeKind::kNfc || k == NormalizeKind::kNfkc, compat,
          compat ? unicode::kInertCompat : unicode::kInert};
}

// Buffers that are used again for every stretch of a text.
struct Scratch {
  std::vector<utf8proc_int32_t> characters, decomposed;
  std::string piece;
};

// Normalises one stretch of code points (`s.characters`) that holds no inert one. utf8proc's own ordering is quadratic
// in the number of marks, so the ordering is done here.
void normalize_run(Scratch& s, const Form& form, std::string& out) {
  if (s.characters.empty()) return;
  const auto ccc = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  auto& d = s.decomposed;
  d.clear();
  const auto flags =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (form.compat ? UTF8PROC_COMPAT : 0));
  constexpr utf8proc_int32_t kFirstSyllable = 0xAC00, kLastSyllable = 0xD7A3;  // Hangul's are decomposed by arithmetic
  for (const auto c : s.characters) {
    if (utf8proc_get_property(c)->decomp_seqindex == UINT16_MAX && !(c >= kFirstSyllable && c <= kLastSyllable)) {
      d.push_back(c);
      continue;
    }
    utf8proc_int32_t buffer[64];
    int boundary = 0;
    const auto n = utf8proc_decompose_char(c, buffer, 64, flags, &boundary);
    MXT_ASSERT(n >= 0 && n <= 64);
    d.insert(d.end(), buffer, buffer + n);
  }
  for (size_t i = 0; i < d.size();) {
    if (ccc(d[i]) == 0) {
      ++i;
      continue;
    }
    size_t e = i;
    while (e < d.size() && ccc(d[e]) != 0) ++e;
    const auto before = [&](auto a, auto b) { return ccc(a) < ccc(b); };
    const auto first = d.begin() + static_cast<ptrdiff_t>(i), last = d.begin() + static_cast<ptrdiff_t>(e);
    if (!std::is_sorted(first, last, before)) std::stable_sort(first, last, before);
    i = e;
  }
  auto n = static_cast<utf8proc_ssize_t>(d.size());
  if (form.compose) {
    n = utf8proc_normalize_utf32(d.data(), n, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    MXT_ASSERT(n >= 0);
  }
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, static_cast<uint32_t>(d[static_cast<size_t>(i)]));
  s.characters.clear();
}

// The stretch's normal form, in scratch.piece.
void normalize_stretch(std::string_view s, const Form& form, Scratch& scratch) {
  const Table& table = Table::get();
  scratch.piece.clear();
  for (size_t i = 0; i < s.size();) {
    size_t n;
    const uint32_t c = unicode::decode(s.data() + i, n);
    if (table[c] & form.inert) {
      normalize_run(scratch, form, scratch.piece);
      scratch.piece.append(s.substr(i, n));
    } else {
      scratch.characters.push_back(static_cast<utf8proc_int32_t>(c));
    }
    i += n;
  }
  normalize_run(scratch, form, scratch.piece);
}

// A stretch that may change reaches from the last safe character before the first unsafe one to the next safe one: safe
// characters are starters that never join what stands before them.

// NFC: a scan has found the unsafe characters (`unsafe`, as positions in a text where `in` begins at `base`).
bool compose(std::string_view in, std::span<const size_t> unsafe, size_t base, std::string& out, OffsetMap* map) {
  const Form form = form_of(NormalizeKind::kNfc);
  const Table& table = Table::get();
  Writer w(in, out, map);
  Scratch scratch;
  const std::string& piece = scratch.piece;
  for (size_t k = 0, done = 0; k < unsafe.size();) {
    size_t e = unsafe[k] - base;
    const size_t begin = e > done ? unicode::back(in, e) : e;
    for (size_t n; e < in.size() && (table[unicode::decode(in.data() + e, n)] & unicode::kNfcUnsafe); e += n) ++k;
    normalize_stretch(in.substr(begin, e - begin), form, scratch);
    if (piece != in.substr(begin, e - begin)) {
      w.keep_until(begin);
      w.edit(e, [&](std::string& o) { o += piece; });
    }
    done = e;
  }
  return w.finish();
}

// The other forms: only ASCII is safe.
bool unicode_form(NormalizeKind kind, std::string_view in, std::string& out, OffsetMap* map) {
  const Form form = form_of(kind);
  Writer w(in, out, map);
  Scratch scratch;
  const std::string& piece = scratch.piece;
  for (size_t i = unicode::ascii_run(in.data(), in.size()); i < in.size();
       i += unicode::ascii_run(in.data() + i, in.size() - i)) {
    const size_t begin = i > 0 && static_cast<signed char>(in[i - 1]) >= 0 ? i - 1 : i;
    while (i < in.size() && static_cast<signed char>(in[i]) < 0) ++i;
    normalize_stretch(in.substr(begin, i - begin), form, scratch);
    if (piece != in.substr(begin, i - begin)) {
      w.keep_until(begin);
      w.edit(i, [&](std::string& o) { o += piece; });
    }
  }
  return w.finish();
}

// f(code point, out) appends what the character becomes and returns true, or returns false where it stays.
template <typename F>
bool map_characters(std::string_view in, std::string& out, OffsetMap* map, F&& f) {
  Writer w(in, out, map);
  std::string piece;
  for (size_t i = 0; i < in.size();) {
    size_t n;
    const uint32_t c = unicode::decode(in.data() + i, n);
    piece.clear();
    if (f(c, piece)) {
      w.keep_until(i);
      w.edit(i + n, [&](std::string& o) { o += piece; });
    }
    i += n;
  }
  return w.finish();
}

bool lowercase(uint32_t c, std::string& out) {
  if (c < 0x80) {
    if (c < 'A' || c > 'Z') return false;
    out += static_cast<char>(c + 32);
    return true;
  }
  if (c == 0x130) return out += "i\xCC\x87", true;
  const uint32_t l = unicode::to_lower(c);
  if (l == c) return false;
  append_utf8(out, l);
  return true;
}

bool strip_ends(std::string_view in, bool left, bool right, std::string& out, OffsetMap* map) {
  const Table& table = Table::get();
  size_t b = 0, e = in.size(), n;
  while (left && b < e && (table[unicode::decode(in.data() + b, n)] & unicode::kWhite)) b += n;
  while (right && e > b) {
    const size_t p = unicode::back(in, e);
    if (!(table[unicode::decode(in.data() + p, n)] & unicode::kWhite)) break;
    e = p;
  }
  if (b == 0 && e == in.size()) return false;
  out = std::string(in.substr(b, e - b));
  if (map && b > 0) map->add({0, 0, 0, b});
  return true;
}

bool replace(const NormalizerStep& step, std::string_view in, std::string& out, OffsetMap* map) {
  Writer w(in, out, map);
  size_t from = 0;
  while (from <= in.size()) {
    size_t b, e;
    if (step.regex) {
      if (!step.regex->find(in, from, b, e)) break;
    } else {
      b = in.find(step.pattern, from);
      if (b == std::string_view::npos) break;
      e = b + step.pattern.size();
    }
    w.keep_until(b);
    w.edit(e, [&](std::string& o) { o += step.content; });
    from = e;
  }
  return w.finish();
}

bool apply_step(const NormalizerStep& step, std::string_view in, std::string& out, OffsetMap* map) {
  const Table& table = Table::get();
  switch (step.kind) {
    case NormalizeKind::kNfc:
    case NormalizeKind::kNfd:
    case NormalizeKind::kNfkc:
    case NormalizeKind::kNfkd: {
      const auto s = unicode::scan_text(in, step.kind == NormalizeKind::kNfc);
      if (s.ascii) return false;
      if (step.kind == NormalizeKind::kNfc) return compose(in, s.unsafe, 0, out, map);
      return unicode_form(step.kind, in, out, map);
    }
    case NormalizeKind::kLowercase:
      return map_characters(in, out, map, lowercase);
    case NormalizeKind::kStripAccents:
      return map_characters(in, out, map, [&](uint32_t c, std::string&) { return (table[c] & unicode::kMark) != 0; });
    case NormalizeKind::kBertAccents:
      return map_characters(in, out, map,
                            [&](uint32_t c, std::string&) { return (table[c] & unicode::kBertMark) != 0; });
    case NormalizeKind::kBertClean:
      return map_characters(in, out, map, [&](uint32_t c, std::string& o) {
        if (table[c] & unicode::kBertDrop) return true;
        if (!(table[c] & unicode::kBertSpace)) return false;
        o += ' ';
        return true;
      });
    case NormalizeKind::kBertChinese:
      return map_characters(in, out, map, [&](uint32_t c, std::string& o) {
        if (!(table[c] & unicode::kChinese)) return false;
        o += ' ';
        append_utf8(o, c);
        o += ' ';
        return true;
      });
    case NormalizeKind::kStrip:
      return strip_ends(in, step.left, step.right, out, map);
    case NormalizeKind::kPrepend: {
      if (in.empty() || step.content.empty()) return false;
      out = step.content + std::string(in);
      if (map) map->add({0, step.content.size(), 0, 0});
      return true;
    }
    case NormalizeKind::kReplace:
      return replace(step, in, out, map);
  }
  return false;
}

}  // namespace

Span OffsetMap::to_source(Span s) const {
  // The last edit that begins at or before p, if any.
  const auto last = [&](size_t p) {
    return std::upper_bound(edits_.begin(), edits_.end(), p, [](size_t v, const Edit& e) { return v < e.to_begin; });
  };
  Span out{s.begin, s.end};
  if (auto it = last(s.begin); it != edits_.begin()) {
    --it;
    out.begin = s.begin < it->to_end ? it->from_begin : it->from_end + (s.begin - it->to_end);
  }
  if (s.end == s.begin) return {out.begin, out.begin};
  if (auto it = last(s.end - 1); it != edits_.begin()) {
    --it;
    out.end = s.end - 1 < it->to_end ? it->from_end : it->from_end + (s.end - it->to_end);
  }
  return out;
}

size_t OffsetMap::from_source(size_t p, bool to_end) const {
  auto it = std::upper_bound(edits_.begin(), edits_.end(), p, [](size_t v, const Edit& e) { return v < e.from_begin; });
  if (it == edits_.begin()) return p;
  --it;
  if (p < it->from_end) return p == it->from_begin || !to_end ? it->to_begin : it->to_end;
  return it->to_end + (p - it->from_end);
}

bool Normalizer::local() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const NormalizerStep& s) {
    return s.kind != NormalizeKind::kStrip && s.kind != NormalizeKind::kPrepend && s.kind != NormalizeKind::kReplace;
  });
}

std::string_view Normalizer::apply_nfc(std::string_view in, std::span<const size_t> unsafe, size_t base,
                                       std::string& storage, std::vector<OffsetMap>* maps) const {
  const auto first = std::lower_bound(unsafe.begin(), unsafe.end(), base);
  const auto last = std::lower_bound(first, unsafe.end(), base + in.size());
  OffsetMap map;
  if (first == last || !compose(in, {first, last}, base, storage, maps ? &map : nullptr)) return in;
  if (maps) maps->push_back(std::move(map));
  return storage;
}

std::string_view Normalizer::apply(std::string_view in, std::string& storage, std::vector<OffsetMap>* maps) const {
  std::string_view now = in;
  std::string other;
  for (const auto& step : steps_) {
    OffsetMap map;
    if (!apply_step(step, now, other, maps ? &map : nullptr)) continue;
    storage.swap(other);
    now = storage;
    if (maps) maps->push_back(std::move(map));
  }
  return now;
}

}  // namespace mxt::tokenizer
