#!/usr/bin/env python3
"""Writes src/tokenizer/text/unicode_table.inc: what Hugging Face tokenizers think of every code point.

The classes come from the oracle itself (its regex engine, its Rust library and its normalisation crate follow three
different Unicode versions), so our scanners give the same ids whatever Unicode version the system libraries have.
Needs: tokenizers 0.23, and libutf8proc (to find the characters that the oracle's older normalisation tables lack).
"""
import ctypes
import pathlib
import unicodedata

from tokenizers import Regex, normalizers as N, pre_tokenizers as P

CPS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
EVERY = "".join(map(chr, CPS))
APART = "a" + "a".join(map(chr, CPS)) + "a"


def removed_by(pre):
    """Code points that a pre-tokenizer with behaviour `removed` drops."""
    out = set(CPS)
    for _, (a, b) in pre.pre_tokenize_str(EVERY):
        out.difference_update(CPS[a:b])
    return out


def regex(pattern):
    return removed_by(P.Split(Regex(pattern), "removed"))


def digits():
    return {CPS[a // 2] for _, (a, b) in P.Digits(individual_digits=True).pre_tokenize_str(APART)
            if b - a == 1 and a % 2 == 1}


def each(normalizer):
    return {c: normalizer.normalize_str("a" + chr(c) + "a")[1:-1] for c in CPS}


def utf8proc_map():
    lib = ctypes.CDLL("libutf8proc.so.2")
    lib.utf8proc_map.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]
    lib.utf8proc_map.restype = ctypes.c_ssize_t
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]

    def run(text, flags):
        raw, p = text.encode(), ctypes.c_void_p()
        n = lib.utf8proc_map(raw, len(raw), ctypes.byref(p), flags)
        out = ctypes.string_at(p.value, n).decode()
        libc.free(p)
        return out
    return run


def inert():
    """(canonical, compatibility): characters that the oracle's tables do not know: starters without decomposition."""
    run, sets = utf8proc_map(), []
    for forms in ((("NFC", 2 | 8), ("NFD", 2 | 16)), (("NFKC", 2 | 8 | 4), ("NFKD", 2 | 16 | 4))):
        bad = set()
        for name, flags in forms:
            norm = getattr(N, name)()
            for c in CPS:
                if 0xE000 <= c < 0xF900 or 0x32000 < c < 0xE0000 or c >= 0xE1000:
                    continue
                ch = chr(c)
                if any(norm.normalize_str(s) != run(s, flags)
                       for s in (ch, "a\u0315" + ch, "a" + ch + "\u0334\u0301", "a" + ch + "\u0301")):
                    bad.add(c)
        sets.append(bad)
    bad = sets[0] & {c for c in sets[0] if N.NFD().normalize_str(chr(c)) == chr(c)}
    assert bad == sets[0], "a canonical difference that is not an unknown character"
    return sets[0], sets[1] | sets[0]


def nfc_unsafe(inert_set):
    """Characters that NFC may change, move or join with what stands before: all others pass untouched."""
    nfc, second = N.NFC(), set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in CPS:
        d = unicodedata.decomposition(chr(c)).split()
        if len(d) == 2 and not d[0].startswith("<"):
            second.add(int(d[1], 16))
    return {c for c in CPS if c not in inert_set and
            (unicodedata.combining(chr(c)) or c in second or nfc.normalize_str(chr(c)) != chr(c))}


def lower_ranges():
    low = each(N.Lowercase())
    single = {c: ord(s) for c, s in low.items() if s != chr(c) and len(s) == 1}
    multi = {c: s for c, s in low.items() if len(s) != 1}
    out = []  # first, last, stride, delta
    for c, t in sorted(single.items()):
        if out:
            a, b, st, d = out[-1]
            if d == t - c and ((a == b and c - b in (1, 2)) or (a != b and c - b == st)):
                out[-1] = (a, c, c - b, d)
                continue
        out.append((c, c, 1, t - c))
    return out, multi


def main():
    canonical, compat = inert()
    clean = each(N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False))
    chinese = each(N.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False))
    accents = each(N.StripAccents())
    bert_accents = each(N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False))
    sets = [
        ("kLetter", "\\p{L} of the regex engine", regex(r"\p{L}")),
        ("kNumber", "\\p{N} of the regex engine", regex(r"\p{N}")),
        ("kSpace", "\\s of the regex engine", regex(r"\s")),
        ("kWord", "\\w of the regex engine", regex(r"\w")),
        # Of the pre-tokenizer Whitespace and of an added token's single_word: what stays one piece with its neighbours.
        ("kRustWord", "\\w of Rust's regular expressions", {c for c in CPS if len(P.Whitespace().pre_tokenize_str(f"a{chr(c)}a")) == 1}),
        ("kNumeric", "Rust's char::is_numeric", digits()),
        ("kWhite", "Rust's char::is_whitespace", removed_by(P.WhitespaceSplit())),
        ("kPunctuation", "BERT's punctuation", removed_by(P.Punctuation("removed"))),
        ("kBertDrop", "dropped by BERT's clean_text", {c for c in CPS if clean[c] == ""}),
        ("kBertSpace", "made a space by BERT's clean_text", {c for c in CPS if c != 32 and clean[c] == " "}),
        ("kMark", "dropped by StripAccents", {c for c in CPS if accents[c] == ""}),
        ("kBertMark", "dropped by BERT's strip_accents", {c for c in CPS if bert_accents[c] == ""}),
        ("kChinese", "BERT's Chinese characters", {c for c in CPS if chinese[c] != chr(c)}),
        ("kNfcUnsafe", "NFC may change it", nfc_unsafe(canonical)),
        ("kInert", "unknown to the oracle's NFC and NFD", canonical),
        ("kInertCompat", "unknown to the oracle's NFKC and NFKD", compat),
    ]
    flags = [0] * 0x110000
    for bit, (_, _, members) in enumerate(sets):
        for c in members:
            flags[c] |= 1 << bit
    runs, last = [], None
    for c in range(0x110000):
        if flags[c] != last:
            runs.append((c, flags[c]))
            last = flags[c]
    lower, multi = lower_ranges()
    known = set(CPS) - {c for c in CPS if unicodedata.category(chr(c)) == "Cn"}
    out = ["// Made by tools/golden/unicode_table.py from Hugging Face tokenizers. Do not edit.", ""]
    for bit, (name, what, _) in enumerate(sets):
        out.append(f"constexpr uint16_t {name} = 1u << {bit};  // {what}")
    out += ["", "constexpr Run kRuns[] = {  // first code point, classes; until the next run"]
    line = "   "
    for c, f in runs:
        item = f" {{{c:#x},{f}}},"
        if len(line) + len(item) > 118:
            out.append(line)
            line = "   "
        line += item
    out += [line, "};", "", "constexpr Lower kLower[] = {  // first, last, stride, delta"]
    line = "   "
    for a, b, st, d in lower:
        item = f" {{{a:#x},{b:#x},{st},{d}}},"
        if len(line) + len(item) > 118:
            out.append(line)
            line = "   "
        line += item
    out += [line, "};"]
    assert list(multi) == [0x130], multi
    out += ["", "// Letters, numbers and white space newer than Unicode 14: added to \\p{L}, \\p{N} of an older regex library."]
    for name, bit in (("kNewLetters", 0), ("kNewNumbers", 1)):
        new, spans = sorted(c for c in sets[bit][2] if c not in known), []
        for c in new:
            if spans and spans[-1][1] == c - 1:
                spans[-1][1] = c
            else:
                spans.append([c, c])
        out.append(f"constexpr std::string_view {name} =")
        line = '    R"('
        for a, b in spans:
            item = f"\\x{{{a:x}}}-\\x{{{b:x}}}"
            if len(line) + len(item) > 116:
                out.append(line + ')"')
                line = '    R"('
            line += item
        out.append(line + ')";')
    where = pathlib.Path(__file__).resolve().parents[2] / "src/tokenizer/text/unicode_table.inc"
    where.write_text("\n".join(out) + "\n")
    print(len(runs), "runs,", len(lower), "case ranges,", where.stat().st_size, "bytes")


main()
