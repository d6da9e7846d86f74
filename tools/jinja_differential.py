#!/usr/bin/env python3
"""Compares our Jinja interpreter with transformers' own on many small templates, written and random.

Run by hand, with transformers installed:
  ninja -C build/release chat_eval
  python tools/jinja_differential.py build/release/tests/tokenizer_chat/chat_eval [--count N] [--seed S]
Both must give the same text, or both must fail. Prints each difference and the counts.
"""
import argparse
import itertools
import json
import random
import re
import subprocess
import sys
import time

from transformers.utils.chat_template_utils import _compile_jinja_template, _plain_template_data

VARS = {
    "s": "Hello, wörld! ", "t": "a-b_c d\te\nf  g", "empty": "", "n": 7, "neg": -3, "f": 2.5, "big": 1e20, "tiny": 1.5e-7,
    "yes": True, "no": False, "nil": None, "u": "ÀÉßΣΑΣ ǆ 東京 😀", "html": "<a href=\"x\">'&'</a>",
    "xs": [3, 1, 2], "ws": ["b", "A", "c", "a"], "mixed": [1, "two", 3.0, None, True, [1, 2], {"k": "v"}], "none_list": [],
    "d": {"b": 1, "a": 2, "C": 3}, "nested": {"x": {"y": [1, {"z": "deep"}]}, "items": 5, "get": "shadow", "_p": 1},
    "rows": [{"name": "bob", "age": 30, "city": {"n": "X"}}, {"name": "Al", "age": 25}, {"name": "cy", "age": 30, "city": {"n": "x"}}],
    "msgs": [{"role": "system", "content": "S"}, {"role": "user", "content": " hi "}, {"role": "assistant", "content": "yo", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": [True, None]}}}]}],
    "q": "it's \"quoted\" \\ back\u0000\u200b\u00ad", "js": "{\"a\": 1}", "num": " 42 ", "fl": "4.5e1", "lines": "one\r\ntwo\nthree\n", "xml": "<b>bold</b>",
}

ATOMS = ["s", "t", "empty", "n", "neg", "f", "big", "tiny", "yes", "no", "nil", "u", "html", "xs", "ws", "mixed", "none_list", "d",
         "nested", "rows", "msgs", "q", "num", "fl", "lines", "missing", "1", "0", "-1", "2", "10", "3.0", "0.1", "1e3", "'a'", "'b'", "''",
         "' '", "', '", "'%s'", "'%5.2f|%d'", "'{}-{}'", "'\\n'", "true", "false", "none", "[]", "[1,2,3]", "(1,2)", "()", "('x',)", "{}",
         "{'k': 1}", "[[1,2],[3]]", "range(4)", "range(5,0,-2)", "xs[0]", "d.a", "d['b']", "nested.x.y[1].z", "rows[0].name", "msgs[-1]",
         "s[1:4]", "xs[::-1]", "t[::2]", "msgs[1].content", "nested.x", "\"it's\"", "'Σ'", "loop", "rows[1].city", "xs|list", "1_000", "0x1f"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "count", "first", "last", "list", "string", "int", "float", "abs", "sum",
           "min", "max", "sort", "unique|list", "reverse|list", "tojson", "tojson(indent=2)", "join", "join(', ')", "join('-', attribute='name')",
           "default('D')", "d('E', true)", "replace('a', 'Z')", "replace('l', '', 1)", "round", "round(1)", "round(2, 'floor')", "round(method='ceil')",
           "batch(2)|list", "slice(2)|list", "batch(3, 'x')|list", "slice(3, 0)|list", "items|list", "dictsort", "dictsort(by='value')",
           "dictsort(reverse=true)", "indent", "indent(2, true)", "indent('> ', blank=true)", "wordcount", "escape", "e", "safe", "safe|upper",
           "map('upper')|list", "map(attribute='name')|list", "map(attribute='city.n', default='-')|list", "select|list", "reject|list",
           "select('string')|list", "reject('none')|list", "selectattr('name')|list", "selectattr('age', 'gt', 26)|list",
           "rejectattr('city', 'defined')|list", "selectattr('role', 'equalto', 'user')|list", "groupby('age')", "groupby('city.n', default='q')",
           "center(20)", "truncate(8)", "truncate(5, true)", "truncate(7, false, '!', 0)", "format(1, 2)", "format(n)", "trim('a')", "trim(' !')",
           "sum(attribute='age')", "sort(attribute='age,name')", "sort(reverse=true)", "sort(case_sensitive=true)", "unique(attribute='age')|list",
           "min(attribute='age')", "max(attribute='name')", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))",
           "attr('upper')", "urlencode", "forceescape", "filesizeformat", "xmlattr", "int(5)", "int(base=16)", "float(1.5)", "first|default('x')",
           "string|length", "map('int')|list", "map('default', 'q')|list", "map('length')|list", "tojson|safe", "last|tojson", "count|float",
           "map('join', '+')|list", "selectattr('tool_calls', 'defined')|list|length", "map(attribute='content')|join('|')", "pprint2", "batch(2)", "nosuch"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "false",
         "even", "odd", "divisibleby 3", "divisibleby(2)", "equalto 7", "eq('a')", "ne 1", "gt 2", "lt(5)", "ge 7", "le 7", "sameas true",
         "sameas none", "lower", "upper", "callable", "in [1,2,3,'a']", "in 'abc'", "escaped", "filter", "test", "nosuch", "not none", "not defined"]
METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip()", "strip('a ')", "lstrip('Ha')", "rstrip('\\n!')", "split()", "split(' ')", "split('-')",
           "split(None, 1)", "rsplit('-', 1)", "rsplit(None, 1)", "split('\\n')", "splitlines()", "splitlines(true)", "startswith('H')", "endswith('!')",
           "startswith(('a','H'))", "replace('l', 'L')", "replace('', '.')", "replace('o', '0', 1)", "find('l')", "rfind('l')", "find('zz')", "count('l')", "count('')",
           "index('l')", "title()", "capitalize()", "swapcase()", "casefold()", "isdigit()", "isalpha()", "isalnum()", "isspace()", "islower()", "isupper()",
           "istitle()", "isnumeric()", "isdecimal()", "isascii()", "isidentifier()", "isprintable()", "zfill(10)", "center(20, '*')", "ljust(12)", "rjust(12, '.')",
           "partition('l')", "rpartition('-')", "removeprefix('He')", "removesuffix('! ')", "expandtabs(4)", "join(['x','y'])", "join(ws)", "format(1, 2)",
           "format(n, s)", "format(f)", "items()", "keys()", "values()", "get('a')", "get('zz', 9)", "items()|list", "keys()|list", "values()|list|length",
           "append(1)", "pop()", "update({})", "copy()", "index(1)", "count(1)", "encode()", "items", "a", "name", "x.y", "__class__", "_p", "real", "find('l', 3, 5)"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in", "not in"]


def expression(r, depth):
    k = r.random()
    if depth <= 0 or k < 0.12:
        return r.choice(ATOMS)
    sub = lambda: expression(r, depth - 1)
    if k < 0.40:
        return f"{sub() if r.random() < 0.4 else r.choice(ATOMS)}|{r.choice(FILTERS)}"
    if k < 0.55:
        a = r.choice(ATOMS)
        return f"({a}).{r.choice(METHODS)}"
    if k < 0.62:
        return f"({sub()}) is {r.choice(TESTS)}"
    if k < 0.82:
        return f"({sub()}) {r.choice(BINARY)} ({sub()})"
    if k < 0.86:
        return f"({sub()}) if ({sub()}) else ({sub()})"
    if k < 0.90:
        return f"not ({sub()})"
    if k < 0.94:
        parts = [r.choice(["", "0", "1", "-1", "2", "-2", "5"]) for _ in range(3)]
        return f"({sub()})[{parts[0]}:{parts[1]}:{parts[2] or '1'}]"
    if k < 0.97:
        return f"({sub()})[{r.choice(ATOMS)}]"
    return f"-({sub()})"


def block(r, depth):
    ws = lambda: r.choice(["", "", "-", "+"])
    text = lambda: r.choice(["x", "\n", "  \n", "  ", "a\n\n", "<b>\n  ", "", " y "])
    tag = lambda body: f"{{%{ws()} {body} {ws()}%}}"
    e = lambda: expression(r, r.randint(0, 2))
    out = ""
    for _ in range(r.randint(1, 4)):
        k = r.random()
        inner = lambda: block(r, depth - 1) if depth > 0 else text()
        if k < 0.30:
            out += f"{text()}{{{{{r.choice(['', '-'])} {e()} {r.choice(['', '-'])}}}}}{text()}"
        elif k < 0.42:
            out += text() + tag(f"if {e()}") + inner() + (tag(f"elif {e()}") + inner() if r.random() < .3 else "") + (tag("else") + inner() if r.random() < .5 else "") + tag("endif")
        elif k < 0.58:
            target = r.choice(["i", "i", "(a, b)", "a, b"])
            it = r.choice(["xs", "ws", "d", "d.items()", "d|dictsort", "rows", "msgs", "range(3)", "'abc'", "mixed", "none_list", "missing", "xs|select('gt', 1)", "nil", "nested|items", e()])
            body = r.choice(["{{ i }}", "{{ a }}={{ b }}", "{{ loop.index }}/{{ loop.length }}", "{{ loop.first }}{{ loop.last }}{{ loop.revindex }}", "{{ loop.previtem }}>{{ loop.nextitem }}",
                             "{{ loop.cycle('p','q') }}", "{% if loop.index > 1 %}{% break %}{% endif %}", "{% if loop.first %}{% continue %}{% endif %}{{ i }}", "{{ loop.changed(i) }}", "{% set n = loop.index %}{{ n }}", "{% set ns.c = ns.c + 1 %}{{ ns.c }}", inner()])
            out += "{% set ns = namespace(c=0) %}" + tag(f"for {target} in {it}" + (r.choice([" if i", " if i != 2", " if loop.first"]) if r.random() < .2 else "")) + body + text() + (tag("else") + "none" if r.random() < .3 else "") + tag("endfor") + "{{ ns.c }}"
        elif k < 0.66:
            out += tag(f"set {r.choice(['v', 'n', 'x, y', 's'])} = {e()}") + "{{ v }}{{ n }}{{ x }}"
        elif k < 0.72:
            out += tag("set v") + inner() + tag("endset") + "[{{ v }}]"
        elif k < 0.80:
            out += tag("macro m(a, b=2, c=n)") + "{{ a }},{{ b }},{{ c }}" + r.choice(["", "{{ caller() }}", "{{ varargs }}", "{{ kwargs }}", inner()]) + tag("endmacro") + r.choice(["{{ m(1) }}", "{{ m(1, b=3) }}", "{{ m() }}", "{{ m(1,2,3,4) }}", "{{ m(1, z=2) }}", "{% call m(5) %}body{% endcall %}", "{{ m(*xs) }}", "{{ m(**{'a': 9}) }}", "{{ m.name }}"])
        elif k < 0.84:
            name = r.choice(["upper", "trim", "replace('x', '_')", "indent(2)", "tojson", "trim|upper"])
            out += tag("filter " + name) + inner() + tag("endfilter")
        elif k < 0.88:
            out += "{#" + ws() + " c " + r.choice(["", "-", "+"]) + "#}" + text()
        elif k < 0.91:
            out += tag("raw") + "{{ x }}\n  {% if %}" + tag("endraw") + text()
        elif k < 0.95:
            out += tag(f"with v = {e()}, w = 3") + "{{ v }}{{ w }}" + tag("endwith") + "{{ w }}"
        else:
            out += tag("generation") + inner() + tag("endgeneration")
    return out


WRITTEN = """
{{ 'a' 'b' }}|{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 2 ** 3 ** 2 }}|{{ -2 ** 2 }}|{{ 7 // -2 }}|{{ -7 % 3 }}|{{ 7.5 // 2 }}|{{ 1 / 3 }}|{{ 2 ** -1 }}
{{ 1e16 }}|{{ 1e15 }}|{{ 123456789012345680.0 }}|{{ 0.0001 }}|{{ 0.00001 }}|{{ 1e22 }}|{{ 5e-324 }}|{{ 1.0 }}|{{ 100.0 }}|{{ -0.0 }}
{{ [1, 'a', "it's", 'q"', none, true, 1.5, (1,), (), {}, {'a': [1]}] }}
{{ {'a': 1, 1: 'b', none: 2, true: 3} }}|{{ {1: 'a', true: 'b', 1.0: 'c'} }}
{{ q }}|{{ [q] }}|{{ q|tojson }}|{{ u|upper }}|{{ u|lower }}|{{ u|title }}|{{ u.title() }}|{{ u.swapcase() }}|{{ u.casefold() }}|{{ u|capitalize }}|{{ u|length }}|{{ u[::-1] }}
{{ "%s and %r" % ('a', 'b') }}|{{ "%(a)s" % {'a': 1} }}|{{ "%05d|%-5d|%+d|%x|%X|%o|%e|%g|%%" % (42, 42, 42, 255, 255, 8, 12345.678, 0.00001) }}|{{ "%.3s|%10s|%-10s|" % ('abcdef', 'r', 'l') }}|{{ '%c' % 65 }}
{{ "{} {1}".format(1, 2) }}
{{ "{0} {1} {0}".format(1, 2) }}|{{ "{a} {b[0]} {c.x}".format(a=1, b=[2], c={'x': 3}) }}|{{ "{:>5}|{:<5}|{:^5}|{:*^7}|".format('a', 'b', 'c', 'd') }}|{{ "{:05d}|{:+}|{:,}|{:.2f}|{:e}|{:%}|{:x}|{:#x}|{:b}".format(42, 3, 1234567, 3.14159, 12345.6789, 0.25, 255, 255, 5) }}|{{ "{!r}|{!s}|{{}}".format('a', 'b') }}
{{ "{:{}}".format('a', 5) }}|{{ '{:10.3}|'.format('abcdef') }}|{{ '{:g}'.format(1e10) }}|{{ '{}'.format(none) }}|{{ '{0.__class__}'.format(1) }}
{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}|{{ ns }}|{{ ns.b }}|{{ ns.b is defined }}
{% set ns._x = 2 %}
{{ namespace(_x=1) }}
{{ ''.__class__ }}|{{ ''.__class__.__mro__ }}
{{ d.update({'z': 1}) }}
{{ d.pop }}|{{ d.pop is defined }}|{{ xs.append is defined }}
{{ x.y.z }}
{{ nested.items }}
{{ nested.get('items') }}|{{ nested['items'] }}|{{ nested['get'] }}|{{ nested._p }}
{{ missing|length }}|{{ missing|join }}|{{ missing ~ 'a' }}|{{ missing|default(3) }}|{% for x in missing %}x{% else %}e{% endfor %}|{{ missing is defined }}|{{ missing == missing2 }}
{{ missing + 'a' }}
{{ 'a' + 1 }}
{{ range(3) }}|{{ range(3)|list }}|{{ range(10)[2:8:2] }}|{{ range(3)[1] }}|{{ range(1, 4)|sum }}|{{ range(5)|last }}
{{ range(1000000) }}
{{ dict(a=1, b=2) }}|{{ dict([('a', 1)]) }}|{{ dict({'q': 1}, z=2) }}
{{ cycler('a', 'b').next() }}|{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}|{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b
{{ d }}|{{ d.items() }}|{{ d.keys() }}|{{ d.values()|list }}|{{ d|items|list }}|{{ d|list }}|{{ d|first }}|{{ d|length }}|{{ 'a' in d }}|{{ d|tojson }}
{{ xs|map('string')|join }}|{{ xs|select('odd')|list }}|{{ xs|sort|first }}|{{ ws|sort }}|{{ ws|sort(case_sensitive=true) }}|{{ ws|unique|list }}|{{ ws|max }}|{{ ws|min }}
{{ (xs|map('string'))|length }}
{{ xs|map('nosuch')|list }}
{% if false %}{{ x|nosuch }}{% endif %}ok
{{ 'a' if x|nosuch }}
{{ ('a' if false) is defined }}|{{ 'a' if false }}|{{ ('x' if no else 'y') ~ 'z' }}
{% for a, b in [[1,2],[3,4]] %}{{ a }}{{ b }}{% endfor %}|{% for a, b in [[1]] %}{% endfor %}
{% for i in [1,2,3] if i > 1 %}{{ loop.index }}{{ loop.length }}{{ i }}{% endfor %}
{% for i in [[1,[2,[]]]] recursive %}{{ i[0] }}{{ loop(i[1:]) if i[1] }}{{ loop.depth }}{% endfor %}
{% for i in xs %}{% for j in ws %}{{ loop.index }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}{% endfor %}
{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(5) }}
{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 1 %}{{ m() }}
{% for i in [1] %}{{ n }}{% endfor %}{% set n = 1 %}{{ n }}
{{ n }}{% for i in [1] %}{{ n }}{% endfor %}{% set n = 1 %}{{ n }}
{% for i in [1] %}{{ n }}{% endfor %}{% if no %}{% set n = 1 %}{% endif %}{{ n }}
{% for i in [1] %}{{ n }}{% endfor %}{% if no %}{% set n = 1 %}{% elif no %}{% set n = 2 %}{% else %}{% set n = 3 %}{% endif %}{{ n }}
{% for i in [1,2] %}{% for j in [1] %}{{ n }}{% endfor %}{% set n = i %}{% for j in [1] %}{{ n }}{% endfor %}{% endfor %}{{ n }}
{% for i in [1,2] %}{{ n }}{% for j in [1] %}{{ n }}{% endfor %}{% set n = i %}{% endfor %}
{% set q %}{{ n }}{% endset %}{% with z = n %}{{ n }}{{ z }}{% endwith %}{% set n = 1 %}{{ q }}
{% macro t() %}<{{ caller(1) }}>{% endmacro %}{% call(x) t() %}b{{ x }}{% endcall %}
{% macro a(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ a(1) }}{{ a() }}
{% set v | upper | trim %} abc {% endset %}[{{ v }}]
{% filter upper | trim %} abc {% endfilter %}
{{ '<a>'|safe + '<b>' }}|{{ '<a>' + '<b>'|safe }}|{{ '<a>'|e ~ '<b>' }}|{{ ('<a>'|safe).replace('a', '<') }}|{{ '%s'|safe % '<x>' }}|{{ ['<'|safe, '<'] }}|{{ ('<'|safe) * 2 }}|{{ ('<'|safe)|length }}|{{ '<'|safe|escape }}|{{ '<'|escape|escape }}|{{ '<'|escape|forceescape }}
  {% if true %}
  a
  {% endif %}
 b
  {%- if true -%}   c   {%- endif %}
{{ 'x' }}
{# a #}
 {#- b -#} c
{% raw %} {{ a }} {% endraw %}|{%- raw -%} x {%- endraw -%} |
{{ "\\n\\t\\x41\\u00e9\\101\\d\\'" }}|{{ 'é\\é' }}
{{ 1_000 }}|{{ 0x_ff }}|{{ 0b11 }}|{{ 0o17 }}|{{ 1.5e3 }}|{{ 1e-3 }}|{{ 00 }}
{{ 12345678901234567890123 }}
{{ 9223372036854775807 + 1 }}|{{ 2 ** 100 }}|{{ 10 ** 30 // 7 }}
{{ 'abc'[1] }}|{{ 'abc'[-1] }}|{{ 'abc'[5] }}|{{ 'abc'[5] is defined }}|{{ 'abc'.5 }}|{{ xs.0 }}|{{ 'abc'[::-2] }}|{{ 'abcdef'[4:1:-1] }}|{{ xs[10:] }}|{{ xs[-100:2] }}
{{ xs[::0] }}
{{ xs['a'] }}|{{ none.x }}|{{ 5 .x }}|{{ xs.foo is undefined }}
{{ none.x.y }}
{{ [1,2] + [3] }}|{{ (1,) + (2,) }}|{{ [1] * 2 }}|{{ 2 * 'ab' }}|{{ 'ab' * -1 }}|{{ true + 1 }}|{{ [1,2] == [1,2] }}|{{ [1] < [2] }}|{{ (1,2) < (1,3) }}|{{ 'a' < 'b' }}|{{ 1 == 1.0 }}|{{ true == 1 }}
{{ 1 < 'a' }}
{{ [1] + (2,) }}
{{ 1 / 0 }}
{{ 1 in 'abc' }}
{{ 1 in xs }}|{{ 5 not in xs }}|{{ 'a' in 'abc' }}|{{ none in [none] }}|{{ 'b' in d }}
{{ 1 in 5 }}
{{ not true }}|{{ not '' }}|{{ 1 and 2 }}|{{ 0 or 'x' }}|{{ none or false }}|{{ not 1 == 2 }}
{{ raise_exception('no') }}
{{ strftime_now('%Y-%m-%d %H') }}
{{ messages }}{{ loop }}
{% for i in xs %}{{ loop.last }}{{ loop.nextitem }}{{ loop.previtem is defined }}{{ loop.depth0 }}{% endfor %}{{ loop is defined }}
{% for k, v in nested.items() %}{{ k }}{% endfor %}|{% for k in nested %}{{ k }}{% endfor %}
{% for c in 'añ😀' %}[{{ c }}]{% endfor %}
{{ 42.55|round }}|{{ 42|round }}|{{ 42.55|round(1, 'floor') }}|{{ 2.5|round }}|{{ 3.5|round }}|{{ 2.675|round(2) }}|{{ 1234.5|round(-2) }}|{{ 1250|round(-2) }}|{{ 0.5|round|int }}
{{ '42'|int }}|{{ '4.7'|int }}|{{ 'x'|int }}|{{ 'x'|int(9) }}|{{ '0x1f'|int(base=16) }}|{{ none|int }}|{{ true|int }}|{{ [1]|int }}|{{ ' 1_000 '|int }}|{{ '1e3'|int }}|{{ '1e3'|float }}|{{ 'inf'|float }}|{{ 'nan'|float }}|{{ '1_0.5'|float }}|{{ 'x'|float(2) }}
{{ 'foo bar baz qux'|truncate(9) }}|{{ 'foo bar baz qux'|truncate(9, true) }}|{{ 'foo bar baz qux'|truncate(11) }}|{{ 'foo bar baz qux'|truncate(11, false, '...', 0) }}
{{ rows|groupby('age')|map('list')|list }}|{% for g in rows|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{% endfor %}|{{ rows|map(attribute='city')|list }}
{{ rows|sum(attribute='age') }}|{{ rows|map(attribute='age')|sum }}|{{ rows|sort(attribute='name')|map(attribute='name')|list }}|{{ rows|max(attribute='age') }}|{{ [[1],[2]]|sum(start=[]) }}
{{ {'a': {'b': [1, 2, {}], 'c': []}}|tojson(indent=2) }}|{{ [1.0, 1e100, none, true]|tojson }}|{{ '</script>'|tojson }}|{{ 'é\\u2028'|tojson }}|{{ 'é😀'|tojson(ensure_ascii=true) }}|{{ {1: 2, none: 3, true: 4, 1.5: 6}|tojson }}|{{ (1, 2)|tojson }}|{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}|{{ [1, [2]]|tojson(indent='\\t') }}|{{ {'a': 1}|tojson(separators=(',', ':')) }}|{{ []|tojson(indent=4) }}
{{ missing|tojson }}
{{ range(3)|tojson }}
{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a b c'.rsplit(' ', 1) }}|{{ 'abc'.split('') }}
{{ 'x'.join(['a', 1]) }}
{{ range is callable }}|{{ 'a' is callable }}|{{ xs is sequence }}|{{ d is sequence }}|{{ (xs|map('int')) is sequence }}|{{ (xs|map('int')) is iterable }}|{{ missing is sequence }}|{{ none is iterable }}
{{ 3 is divisibleby 3 }}|{{ 3 is odd }}|{{ 'a' is in 'abc' }}|{{ 3 is not even }}|{{ 3 is eq 3 and 4 is gt 3 }}|{{ 'upper' is filter }}|{{ 'odd' is test }}|{{ 1.0 is integer }}|{{ true is integer }}|{{ true is number }}|{{ none is none }}|{{ 'A' is upper }}
{{ a is b is c }}
{% include 'x' %}
{% unknown %}
{% if %}x{% endif %}
{{ }}
{{ 'a }}
{% for %}{% endfor %}
{% break %}
{% set loop = 1 %}
{% set none = 1 %}
{{ a b }}
{{ f(a=1, 2) }}
{{ [1, 2 }}
{{ (1, 2] }}
{% if true %}
{% print 1, 2 %}
{{ 1,2 }}|{{ (1,) }}|{{ 1, }}
{{ {'a': 1}['a'] }}|{{ {'a': {'b': 2}}.a.b }}|{{ [1,2,3][1:] }}|{{ 'abc'|first }}|{{ 'abc'|last }}|{{ 'abc'|list }}|{{ 'abc'|reverse }}|{{ []|first }}|{{ []|last is defined }}|{{ [1,2]|reverse|list }}
{{ 1.5 % 1 }}|{{ -1.5 // 1 }}|{{ 5 % -3 }}|{{ -5.5 % 2 }}|{{ 1e308 * 10 }}|{{ -(1e308 * 10) }}|{{ 0.1 + 0.2 }}|{{ 3 * 1.1 }}|{{ 10 / 2 }}|{{ 2 ** 0.5 }}|{{ 7 // 2.0 }}
{{ (-8) ** 0.5 }}
{{ 'a' ~ 1 ~ none ~ 1.5 ~ [1] }}|{{ 1 ~ 2 + 3 }}|{{ 1 + 2 ~ 3 }}|{{ -1|abs }}|{{ (-1)|abs }}|{{ 'a'|upper ~ 'b' }}|{{ not a is defined }}|{{ 2 * 3|string }}
{{ msgs|selectattr('role', 'equalto', 'user')|map(attribute='content')|join }}|{{ (msgs|selectattr('role', 'eq', 'zzz')|first) is defined }}|{{ msgs[-1].tool_calls[0].function.arguments|tojson }}|{{ msgs|rejectattr('tool_calls')|list|length }}
{% for m in msgs %}{% generation %}{{ m.content }}{% set z = 1 %}{% endgeneration %}{{ z }}{% endfor %}
{% for i in xs %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{{ "a" "b"|upper }}|{{ ("a" "b")|upper }}|{{ 'x'.upper().lower() }}|{{ 'x'.upper }}
{{ xs|join(1) }}|{{ 5|string|length }}|{{ none|string }}|{{ true|lower }}|{{ 1.0|string }}|{{ none|upper }}|{{ 12|trim }}|{{ [1]|trim }}|{{ none|default('x') }}|{{ none|default('x', true) }}|{{ 5|replace(5, 6) }}
{{ 5|join }}
{{ 'ab\\ncd'|indent }}|{{ 'ab\\n\\ncd'|indent(2, true, true) }}|{{ ''|indent }}|{{ 'a\\n'|indent(first=true) }}
{{ namespace(a=1, **{'b': 2}).b }}|{{ namespace({'x': 1}).x }}|{{ dict(*[[('a', 1)]]) }}
{{ 'ß'.upper() }}|{{ 'ŉ'.title() }}|{{ 'İ'.lower()|length }}|{{ 'ΑΣ'.lower() }}|{{ 'ﬁ'.capitalize() }}|{{ '²'.isdigit() }}|{{ '½'.isnumeric() }}|{{ '٣'.isdecimal() }}|{{ 'ª'.islower() }}|{{ 'ǅ'.istitle() }}
""".strip("\n").split("\n")


def ours(process, request):
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def theirs(template):
    try:
        return {"text": _compile_jinja_template(template).render(**_plain_template_data(VARS))}
    except RecursionError as e:
        return {"error": "RecursionError"}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"[:300]}


# What we refuse and Python does not: an address in the output, integers beyond 128 bits, refused filters.
ALLOWED = ["cannot print a", "beyond 128 bits", "is too large", "is not supported", "takes no keyword argument", "is complex", "object cannot be sliced so"]
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random-only", action="store_true")
    parser.add_argument("--show", type=int, default=25)
    a = parser.parse_args()
    r = random.Random(a.seed)
    templates = list(WRITTEN) if not a.random_only else []
    for shape, names in [("{{ %s|%s }}", FILTERS), ("{{ (%s).%s }}", METHODS), ("{{ %s is %s }}", TESTS)]:
        if not a.random_only:
            templates += [shape % pair for pair in itertools.product(ATOMS, names)]
    for _ in range(a.count):
        templates.append("{{ " + expression(r, 3) + " }}")
    for _ in range(a.count):
        templates.append(block(r, 2))
    process = subprocess.Popen([a.binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    same_text = same_error = refused = different = 0
    for template in templates:
        want, got = theirs(template), ours(process, {"template": template, "vars": VARS, "now": int(time.time())})
        if "text" in want and want["text"] == got.get("text"):
            same_text += 1
        elif "error" in want and "error" in got:
            same_error += 1
        elif "error" in got and (any(x in got["error"] for x in ALLOWED) or ADDRESS.search(want["text"])):
            refused += 1
        else:
            different += 1
            if different <= a.show:
                print(f"DIFFERENT {template!r}\n  theirs {want}\n  ours   {got}")
    print(f"{len(templates)} templates: {same_text} same text, {same_error} both fail, {refused} refused by design, {different} different")
    return different != 0


if __name__ == "__main__":
    sys.exit(main())
