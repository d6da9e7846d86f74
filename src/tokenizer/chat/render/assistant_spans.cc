#include "tokenizer/chat/render/assistant_spans.h"

#include <algorithm>
#include <map>

#include "pytext/unicode.h"

namespace mxt::tokenizer {

using jinja::Rendered;
using jinja::Run;

namespace {

// A private character that no template writes: it shows where plain content would stand.
constexpr std::string_view kProbe = "\uF8FFprobe\uF8FF";

uint32_t turn_of(const Run& run) { return run.tag.turn & ~jinja::Tag::kGeneration; }

class Locator {
 public:
  Locator(ChatRun& run, const Rendered& r) : run_(run), r_(r) {}

  std::vector<Span> all(const std::vector<bool>& trained) {
    std::vector<Span> spans;
    for (size_t i = 0; i < run_.messages().size(); ++i) {
      if (!trained[i] || !run_.is_assistant(i)) continue;
      const Span turn = locate(run_.whole(), r_, i);
      const size_t begin = after_header(turn, i);
      spans.push_back({begin, after_end_token(turn, begin, i)});
      if (spans.size() > 1 && spans[spans.size() - 2].end > begin) fail(i, "it overlaps the turn before");
    }
    return spans;
  }

 private:
  [[noreturn]] void fail(size_t i, std::string_view why) const {
    throw TurnNotLocated(
        fmt::format("{}: cannot tell what to train on in messages[{}]: {}; mark it with "
                    "{{% generation %}} in the template",
                    run_.chat_template().name(), i, why));
  }

  // Content of message i, as against its role or the template's own text.
  bool is_content(const Run& run, size_t i) const {
    const Origin& o = run_.origin(run.tag.origin);
    return o.message == static_cast<int32_t>(i) && o.part != Origin::Part::kRole;
  }
  bool is_own(const Run& run) const {  // the template's text, or a role
    const Origin& o = run_.origin(run.tag.origin);
    return o.part == Origin::Part::kTemplate || (o.part == Origin::Part::kRole && !o.plain);
  }

  template <typename F>
  static void each(const Rendered& r, F f) {  // f(begin, run)
    size_t begin = 0;
    for (const Run& run : r.runs) {
      f(begin, run);
      begin = run.end;
    }
  }

  // Whether [begin, end) holds only the template's own text.
  bool own_text(const Rendered& r, size_t begin, size_t end) const {
    bool ok = true;
    each(r, [&](size_t at, const Run& run) { ok &= run.end <= begin || at >= end || is_own(run); });
    return ok;
  }

  bool starts(const Rendered& r, const Span& turn, std::string_view header) const {
    return turn.end - turn.begin >= header.size() && r.text.compare(turn.begin, header.size(), header) == 0 &&
           own_text(r, turn.begin, turn.begin + header.size());
  }

  // First and last byte of message i's content in the turn; begin == end where it has none.
  Span content(const Rendered& r, const Span& turn, size_t i) const {
    Span span;
    each(r, [&](size_t at, const Run& run) {
      if (!is_content(run, i) || run.end <= turn.begin || at >= turn.end) return;
      if (span.begin == span.end) span.begin = at;
      span.end = run.end;
    });
    return span;
  }

  // --- The turn: all that the template writes for message i.

  // What loop iterations over message i wrote: one piece, with all of the message's content in it.
  std::optional<Span> by_iteration(const Rendered& r, size_t i) const {
    Span span;
    bool whole = true, any = false;
    each(r, [&](size_t at, const Run& run) {
      const bool mine = turn_of(run) == i + 1;
      if (!mine) {
        whole &= !is_content(run, i);
        return;
      }
      whole &= !any || span.end == at;
      if (!any) span.begin = at;
      any = true;
      span.end = run.end;
    });
    if (!any || !whole) return std::nullopt;
    return span;
  }

  // Where no loop goes over the messages: what the chat up to message i adds to the chat before it.
  std::optional<Span> by_prefix(const Variant& v, const Rendered& r, size_t i) {
    const auto upto = [&](size_t n) {
      Variant p = v;
      p.messages.resize(n);
      p.add_generation_prompt = false;
      return run_.try_render(p);
    };
    const auto before = upto(i), with = upto(i + 1);
    if (!before || !with || with->text.size() <= before->text.size()) return std::nullopt;
    if (!with->text.starts_with(before->text) || !r.text.starts_with(with->text)) return std::nullopt;
    const Span span{before->text.size(), with->text.size()};
    bool inside = true;
    each(r, [&](size_t at, const Run& run) {
      if (is_content(run, i)) inside &= at >= span.begin && run.end <= span.end;
    });
    return inside ? std::optional(span) : std::nullopt;
  }

  Span locate(const Variant& v, const Rendered& r, size_t i) {
    if (const auto span = by_iteration(r, i)) return *span;
    if (const auto span = by_prefix(v, r, i)) return *span;
    const bool any = std::any_of(r.runs.begin(), r.runs.end(), [&](const Run& run) { return turn_of(run) == i + 1; });
    fail(i, any ? "the template writes it in more than one place" : "the template writes nothing for it");
  }

  // --- The header.

  // The first n messages with the generation prompt: what the model would be asked to go on from.
  std::optional<std::string> prompted(size_t n, bool with_kwargs) {
    const auto [it, fresh] = prompted_.try_emplace({n, with_kwargs});
    if (!fresh) return it->second;
    Variant v = run_.whole();
    v.messages.resize(n);
    v.with_kwargs = with_kwargs;
    v.add_generation_prompt = true;
    if (auto r = run_.try_render(v)) it->second = std::move(r->text);
    return it->second;
  }

  // What add_generation_prompt adds after the first n messages; nothing where it cannot be told.
  std::optional<std::string> generation_prompt(size_t n, bool with_kwargs) {
    if (!run_.reads_generation_prompt()) return "";
    const auto [it, fresh] = prompts_.try_emplace({n, with_kwargs});
    if (!fresh) return it->second;
    Variant v = run_.whole();
    v.messages.resize(n);
    v.with_kwargs = with_kwargs;
    v.add_generation_prompt = false;
    const auto with = prompted(n, with_kwargs);
    const auto without = with ? run_.try_render(v) : std::nullopt;
    if (without && with->starts_with(without->text)) it->second = with->substr(without->text.size());
    return it->second;
  }

  size_t after_header(const Span& turn, size_t i) {
    const Span mine = content(r_, turn, i);
    const size_t n = run_.messages().size();
    // The prompt that the whole chat would get, directly before the content: no other can stand there.
    const auto whole = generation_prompt(n, true);
    if (whole && !whole->empty() && starts(r_, turn, *whole) && mine.begin == turn.begin + whole->size() &&
        mine.end > mine.begin)
      return mine.begin;
    // The chat up to here with its prompt is how the text begins: training starts where it ends.
    if (const auto asked = prompted(i, true); asked && asked->size() >= turn.begin && asked->size() <= turn.end &&
                                              r_.text.starts_with(*asked) && own_text(r_, turn.begin, asked->size()))
      return asked->size();
    std::optional<std::string> prompt = generation_prompt(i, true);
    if (!prompt && whole && !whole->empty()) prompt = whole;
    if (prompt && prompt->empty() && run_.reads_generation_prompt()) return after_unprompted(turn, i);
    if (prompt && starts(r_, turn, *prompt)) return turn.begin + prompt->size();
    const auto plain = generation_prompt(i, false);
    if (plain && !plain->empty() && starts(r_, turn, *plain)) return turn.begin + plain->size();
    // A prompt that goes on (think text) where this turn's content already begins.
    if (prompt && mine.end > mine.begin) {
      const std::string_view own = std::string_view(r_.text).substr(turn.begin, mine.begin - turn.begin);
      if (prompt->starts_with(own) && own_text(r_, turn.begin, mine.begin)) return mine.begin;
    }
    return after_probe(turn, i, prompt);
  }

  // The template with plain content in message i: what it writes before and after that content.
  struct Probe {
    std::string before, after;
  };
  std::optional<Probe> probe(size_t i) {
    Variant v = run_.whole();
    v.messages[i] = run_.plain_assistant(i, std::string(kProbe));
    const auto r = run_.try_render(v);
    if (!r) return std::nullopt;
    Span turn;
    try {
      turn = locate(v, *r, i);
    } catch (const TurnNotLocated&) {
      return std::nullopt;
    }
    const size_t at = r->text.find(kProbe, turn.begin);
    if (at == std::string::npos || at + kProbe.size() > turn.end) return std::nullopt;
    return Probe{r->text.substr(turn.begin, at - turn.begin),
                 r->text.substr(at + kProbe.size(), turn.end - at - kProbe.size())};
  }

  size_t after_probe(const Span& turn, size_t i, const std::optional<std::string>& prompt) {
    const auto p = probe(i);
    if (p && !p->before.empty() && starts(r_, turn, p->before)) {
      if (prompt && prompt->starts_with(p->before)) return turn.begin + p->before.size();
      // Something stands before the header, such as a default system prompt in the first message's iteration.
      if (prompt && !prompt->empty() && p->before.ends_with(*prompt)) return turn.begin + p->before.size();
      if (const auto asked = prompted(i, true); asked && asked->ends_with(p->before))
        return turn.begin + p->before.size();
    }
    fail(i, "it does not begin with the generation prompt");
  }

  // After these messages the template adds no prompt (a tool's answer, another assistant turn). Then all it writes is
  // the turn's, unless it writes the very header that it would add elsewhere.
  size_t after_unprompted(const Span& turn, size_t i) {
    const Span mine = content(r_, turn, i);
    if (mine.end > mine.begin && mine.begin == turn.begin) return turn.begin;
    const auto p = probe(i);
    if (p && p->before.empty()) return turn.begin;
    if (p && starts(r_, turn, p->before))
      if (const auto asked = prompted(i, true); asked && asked->ends_with(p->before))
        return turn.begin + p->before.size();
    for (size_t n = 1; n <= run_.messages().size(); ++n) {
      const auto prompt = generation_prompt(n, true);
      if (prompt && !prompt->empty() && starts(r_, turn, *prompt)) return turn.begin + prompt->size();
    }
    if (!p) fail(i, "it does not begin with the generation prompt");
    return turn.begin;
  }

  // --- The end.

  size_t after_end_token(const Span& turn, size_t begin, size_t i) {
    const Span mine = content(r_, turn, i);
    const size_t tail = std::max(begin, mine.end > mine.begin ? mine.end : begin);
    if (!own_text(r_, tail, turn.end)) fail(i, "other messages' text stands after its own");
    const std::string_view text = std::string_view(r_.text).substr(tail, turn.end - tail);
    const size_t end = pytext::rskip_space(text, text.size());
    const std::string_view trimmed = text.substr(0, end);
    if (trimmed.empty()) fail(i, "no end-of-turn token follows it");
    const auto& special = run_.chat_template().special_tokens();
    if (const auto eos = special.find("eos_token"); eos != special.end() && !eos->second.empty())
      if (const size_t at = trimmed.rfind(eos->second); at != std::string_view::npos)
        return tail + at + eos->second.size();
    for (const auto& [name, token] : special)
      if (!token.empty() && trimmed.ends_with(token)) return tail + end;
    for (const std::string& token : run_.chat_template().control_tokens())
      if (!token.empty() && trimmed.ends_with(token)) return tail + end;
    // No known token: then what the template writes after plain content is its mark, and it must stand here.
    if (const auto p = probe(i)) {
      const std::string_view mark =
          std::string_view(p->after).substr(0, pytext::rskip_space(p->after, p->after.size()));
      if (!mark.empty() && trimmed.ends_with(mark)) return tail + end;
    }
    fail(i, "no end-of-turn token follows it");
  }

  ChatRun& run_;
  const Rendered& r_;
  std::map<std::pair<size_t, bool>, std::optional<std::string>> prompts_, prompted_;
};

std::vector<Span> marked_spans(const ChatRun& run_of, const Rendered& r, const std::vector<bool>& trained) {
  const bool all = std::find(trained.begin(), trained.end(), false) == trained.end();
  std::vector<Span> spans;
  size_t begin = 0;
  for (const Run& run : r.runs) {
    const bool marked = run.tag.turn & jinja::Tag::kGeneration;
    const uint32_t turn = turn_of(run);
    if (marked && !all && turn == 0)
      throw TurnNotLocated(fmt::format(
          "{}: cannot tell which message a {{% generation %}} block is of: it stands in no loop over the messages",
          run_of.chat_template().name()));
    if (marked && (all || trained[turn - 1])) {
      if (!spans.empty() && spans.back().end == begin)
        spans.back().end = run.end;
      else
        spans.push_back({begin, run.end});
    }
    begin = run.end;
  }
  return spans;
}

}  // namespace

std::vector<Span> assistant_spans(ChatRun& run, const Rendered& r, const std::vector<bool>& trained) {
  bool any = false;
  for (size_t i = 0; i < run.messages().size(); ++i) any |= trained[i] && run.is_assistant(i);
  if (run.chat_template().jinja().has_generation()) {
    auto spans = marked_spans(run, r, trained);
    if (any && spans.empty())
      throw TurnNotLocated(fmt::format("{}: the template has a {{% generation %}} block, but it wrote nothing in it",
                                       run.chat_template().name()));
    return spans;
  }
  return any ? Locator(run, r).all(trained) : std::vector<Span>{};
}

}  // namespace mxt::tokenizer
