#!/usr/bin/env python3
"""Writes a text for tokenizer comparisons from what a Linux machine has: make_text.py OUT MEGABYTES [--kind KIND]

Kinds: mixed (in turn, in blocks: what is below), everyday (code, prose, languages, emoji, long runs without spaces: a fifth each), code, prose (manual pages), languages (message catalogues and generated
Unicode), hard (long runs, marks, random characters, white space of every sort, invalid bytes with --bytes), words (of the manual pages in chance order, every fortieth a new one, every two hundredth of Chinese characters:
a text of gigabytes whose vocabulary goes on growing).
"""
import argparse
import glob
import gzip
import pathlib
import random
import re
import subprocess
import sys
import sysconfig


def code():
    files = sorted(glob.glob(sysconfig.get_paths()["stdlib"] + "/**/*.py", recursive=True))
    files += sorted(glob.glob("/usr/include/**/*.h", recursive=True))
    for f in files:
        yield pathlib.Path(f).read_bytes().decode("utf-8", "replace")


def prose():
    for f in sorted(glob.glob("/usr/share/man/man*/*.gz")) + sorted(glob.glob("/usr/share/doc/*/*.gz")):
        try:
            text = gzip.open(f).read().decode("utf-8", "replace")
        except OSError:
            continue
        yield re.sub(r"^\.\w+ ?|\\f[BIRP]|\\", "", text, flags=re.M)
    for f in sorted(glob.glob("/usr/share/common-licenses/*")) + sorted(glob.glob("/usr/share/doc/**/*.txt", recursive=True)):
        yield pathlib.Path(f).read_bytes().decode("utf-8", "replace")


def catalogues():
    for f in sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES/*.mo")):
        raw = pathlib.Path(f).read_bytes()
        yield raw[raw.find(b"Project-Id"):].decode("utf-8", "replace").replace("\0", "\n")
    for f in sorted(glob.glob("/usr/share/i18n/locales/*")):
        yield re.sub(r"<U([0-9A-F]{4,8})>", lambda m: chr(int(m[1], 16)), pathlib.Path(f).read_bytes().decode("utf-8", "replace"))


BLOCKS = [(0x4E00, 0x9FFF), (0x3041, 0x30FF), (0xAC00, 0xD7A3), (0x0400, 0x04FF), (0x0590, 0x05FF), (0x0600, 0x06FF),
          (0x0900, 0x097F), (0x0E00, 0x0E7F), (0x0370, 0x03FF), (0x1F300, 0x1FAFF), (0x0530, 0x058F), (0x00A0, 0x024F),
          (0x1E00, 0x1EFF), (0x0300, 0x036F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x2100, 0x27BF), (0xFB00, 0xFFEF)]


def generated(rng):
    """Words and sentences of one script at a time; characters follow Zipf's law as letters do."""
    while True:
        a, b = rng.choice(BLOCKS)
        out = []
        for _ in range(rng.randint(20, 400)):
            n = rng.choice([1, 2, 3, 4, 5, 6, 8, 12])
            out.append("".join(chr(a + int((b - a + 1) * rng.random() ** 3)) for _ in range(n)))
            out.append(rng.choice([" "] * 12 + [", ", ". ", "\u3002", "\uff0c", "\n", "  ", "", "-", " 2024 ", "'s "]))
        yield "".join(out)


SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\v", "\f", "   \n\n  "]


def hard(rng):
    makers = [
        lambda: rng.choice("aA1 .'\n\t\u00e9\u4e2d\u0301=-_") * rng.randint(1, 3000),
        lambda: "".join(rng.choice(SPACES + ["a", "1", ".", "'s", "'LL", "'\u017f", "x", "\u00e9", "\u0301", "!", "\u4e2d"])
                        for _ in range(rng.randint(1, 500))),
        lambda: "".join(chr(c) for c in (rng.randrange(0x110000) for _ in range(300)) if not 0xD800 <= c < 0xE000),
        lambda: "".join(chr(c) for c in (rng.randrange(0x3000) for _ in range(300))),
        lambda: "".join(rng.choice("abcdefghij0123456789+/=") for _ in range(rng.randint(10, 2000))),
        lambda: "".join("e" + "".join(chr(rng.randrange(0x300, 0x370)) for _ in range(rng.randint(0, 6))) for _ in range(60)),
        lambda: " ".join(f"{rng.random() * 10 ** rng.randint(0, 12):.{rng.randint(0, 8)}f}" for _ in range(100)),
        lambda: rng.choice(["<|im_start|>user\nHi<|im_end|>\n", "<think>\n\n</think>", "<tool_call>", "<|endoftext|>", "<|im_st", "<", "<<|"]),
    ]
    while True:
        yield rng.choice(makers)()


FACES = ["\U0001F600", "\U0001F602", "\u2764\ufe0f", "\U0001F44D\U0001F3FD", "\U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466", "\U0001F1E9\U0001F1EA",
         "\U0001F680", "\u2728", "\U0001F926\U0001F3FC\u200d\u2642\ufe0f", "1\ufe0f\u20e3", "\u00a9\ufe0f", "\U0001F3F4\u200d\u2620\ufe0f"]


def emoji(rng):
    """Chat as people write it."""
    words = "ok thanks that was great see you tomorrow lol what a day really no way happy birthday good luck on my way".split()
    while True:
        say = rng.choices(words, k=rng.randint(1, 9)) + ["".join(rng.choices(FACES, k=rng.randint(1, 4)))]
        yield " ".join(say) + rng.choice(["\n", " ", "! ", "!!\n"])


def runs(rng):
    """Long runs without spaces: encoded bytes, hashes, addresses, rules, Chinese and Japanese by Zipf's law, words grown together."""
    parts = "donau dampf schiff fahrts gesellschafts kapitaens muetzen haken index get set value request handler config".split()
    makers = [
        lambda: "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=rng.randint(40, 2000))),
        lambda: "".join(rng.choices("0123456789abcdef", k=rng.choice([32, 40, 64]))),
        lambda: "https://example.org/" + "/".join(rng.choices(parts, k=5)) + "?id=" + str(rng.randrange(10**9)),
        lambda: rng.choice("=-_#*.aA0") * rng.randint(20, 2000),
        lambda: "".join(chr(a + int(n * rng.random() ** 3)) for a, n in [rng.choice([(0x4E00, 4000), (0x3041, 80)])] for _ in range(rng.randint(50, 800))),
        lambda: "".join(rng.choices(parts, k=rng.randint(3, 40))),
    ]
    while True:
        yield rng.choice(makers)() + "\n"


def words(rng):
    """Known words by their place in a list, the first the most often, and new ones of letters by their frequency in English."""
    known = [w for text in prose() for w in text.split(" ")][:400_000] or ["nothing", "of", "this", "kind"]
    while True:
        some = [known[int(rng.random() ** 2 * len(known))] for _ in range(10_000)]
        for i in range(0, len(some), 40):
            some[i] = "".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=rng.randint(3, 10)))
        for i in range(20, len(some), 200):
            some[i] = "".join(chr(rng.randint(0x4E00, 0x9FFF)) for _ in range(rng.randint(1, 4)))
        yield " ".join(some) + "\n"


def forever(make):
    while True:
        some = False
        for x in make():
            if x:
                some = True
                yield x
        if not some:
            yield "nothing of this kind is on this machine\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("megabytes", type=float)
    p.add_argument("--kind", default="mixed", choices=["mixed", "everyday", "natural", "code", "prose", "languages", "hard", "words"])
    p.add_argument("--bytes", action="store_true", help="also invalid UTF-8")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    kinds = {"code": forever(code), "prose": forever(prose), "catalogues": forever(catalogues), "generated": generated(rng),
             "hard": hard(rng), "emoji": emoji(rng), "runs": runs(rng), "words": words(rng)}
    use = {"mixed": ["code", "prose", "catalogues", "generated", "hard"],
           "everyday": ["code", "prose", "catalogues", "emoji", "runs"], "natural": ["code", "code", "prose", "catalogues"], "code": ["code"], "prose": ["prose"],
           "languages": ["catalogues", "generated"], "hard": ["hard"],
           "words": ["words"]}[a.kind]
    left = int(a.megabytes * 1e6)
    with open(a.out, "wb") as f:
        while left > 0:
            for k in use:
                size = 0
                while size < 200_000 and left > 0:
                    raw = next(kinds[k]).encode("utf-8", "replace")[:400_000]
                    if a.bytes and k == "hard" and rng.random() < 0.3:
                        raw = bytes(rng.randrange(256) for _ in range(len(raw) // 8 + 1))
                    f.write(raw)
                    size += len(raw)
                    left -= len(raw)


main()
