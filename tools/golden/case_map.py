#!/usr/bin/env python3
"""Writes the table of characters whose upper or title case is more than one character (Python's Unicode)."""
import sys
import unicodedata


def cells(text):
    points = [f"0x{ord(c):04x}" for c in text] + ["0"] * (3 - len(text))
    return "{" + ", ".join(points) + "}"


rows = []
for point in range(0x110000):
    c = chr(point)
    if len(c.upper()) > 1 or len(c.title()) > 1:
        rows.append(f"    {{0x{point:04x}, {cells(c.upper())}, {cells(c.title())}}},")
out = sys.argv[1]
with open(out, "w", encoding="utf-8") as f:
    f.write(f"// Written by tools/golden/case_map.py (Unicode {unicodedata.unidata_version}): code point, upper case, title case.\n")
    f.write("\n".join(rows) + "\n")
