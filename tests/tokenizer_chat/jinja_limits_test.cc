// Hostile templates end in a typed error, soon and in bounded memory; the sandbox hides what it must.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "jinja/jinja.h"

namespace mxt::jinja {
namespace {

std::string text(const std::string& source, const OrderedJson& variables = OrderedJson::object()) {
  return render(*Template::compile(source, "t"), variables);
}

std::string repeat(const std::string& s, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += s;
  return out;
}

TEST(JinjaLimits, TimeMemoryOutputAndDepth) {
  const std::string loop = "{% for i in range(100000) %}", end = "{% endfor %}";
  for (const std::string& source : {
           std::string("{{ range(1000000000) }}"),
           loop + loop + loop + "x" + end + end + end,
           std::string("{{ 'x' * 10 ** 12 }}"),
           std::string("{{ [0] * 10 ** 12 }}"),
           std::string("{% set ns = namespace(s='x') %}") + loop + "{% set ns.s = ns.s + ns.s %}" + end,
           std::string("{% set ns = namespace(s=[]) %}") + loop + "{% set ns.s = [ns.s] %}" + end + "{{ ns.s }}",
           std::string("{% set ns = namespace(s=1) %}") + repeat("{% set ns.s = (ns.s, ns.s) %}", 60) + "{{ ns.s }}",
           std::string("{% set ns = namespace(s=[1]) %}") + loop + "{% set ns.s = ns.s | map('string') %}" + end +
               "{{ ns.s | list }}",
           std::string("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}"),
           std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
           std::string("{% macro f(x) %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f(1) %}{{ g() }}{% endcall "
                       "%}{% endmacro %}{{ g() }}"),
           std::string("{{ '%1000000000d' % 1 }}"),
           std::string("{{ '{:1000000000}'.format(1) }}"),
           std::string("{{ 'x'.center(10 ** 10) }}"),
           std::string("{{ 'x' | center(10 ** 10) }}"),
           std::string("{{ 'a' | indent(10 ** 10) }}"),
           std::string("{{ [1] | batch(10 ** 10, 1) | list }}"),
           std::string("{{ [1] | slice(10 ** 10) | list }}"),
           std::string("{{ 'x'.zfill(10 ** 10) }}"),
           std::string("{{ 'x\\t'.expandtabs(10 ** 10) }}"),
           loop + "{{ 'a' * 100000 }}" + end,
           "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}",
           "{{ " + repeat("[", 100000) + " }}",
           "{{ " + repeat("not ", 100000) + "1 }}",
           "{{ " + repeat("-", 100000) + "1 }}",
           "{{ 1" + repeat(" + 1", 100000) + " }}",
           "{{ x" + repeat(".x", 100000) + " }}",
           "{{ x" + repeat("|trim", 100000) + " }}",
           "{{ 1" + repeat(" if 1", 50000) + " }}",
           "{{ 1" + repeat(" if 1 else 1", 50000) + " }}",
           repeat("{% if 1 %}", 50000),
           repeat("{% for i in x %}", 50000),
           "{% set " + repeat("(", 100000) + "a = 1 %}",
       })
    EXPECT_THROW(text(source), TemplateError) << source.substr(0, 100);
}

TEST(JinjaLimits, TupleOfManyValuesIsNoKey) {
  EXPECT_THROW(text("{% set ns = namespace(t=1) %}" + repeat("{% set ns.t = (ns.t, ns.t) %}", 60) + "{{ {ns.t: 1} }}"),
               TemplateError);
}

TEST(JinjaLimits, OrdinaryWorkIsFarFromThem) {
  EXPECT_EQ(text("{% for i in range(100000) %}{{ i % 10 }}{% endfor %}").size(), 100000u);
  EXPECT_EQ(text("{{ 1" + repeat(" + 1", 100) + " }}"), "101");
  EXPECT_EQ(text("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}").substr(0, 6),
            "504948");
}

TEST(JinjaLimits, SourceSizeAndEncoding) {
  EXPECT_THROW(Template::compile(std::string(kMaxSource + 1, 'x'), "t"), Error);
  EXPECT_THROW(Template::compile("\xff", "t"), Error);
}

TEST(JinjaSandbox, InternalsAndMutatorsAreHidden) {
  for (const char* source :
       {"{{ ''.__class__.__mro__ }}", "{{ x.__init__.__globals__ }}", "{{ {}.__class__() }}",
        "{{ ''['__class__']['__mro__'] }}", "{{ '{0.__class__.__mro__}'.format('') }}", "{{ [].append(1) }}",
        "{{ {}.update({}) }}", "{{ {}.pop('a') }}", "{{ (''|attr('__class__')).x }}",
        "{% set ns = namespace() %}{% set ns.__x__ = 1 %}", "{{ namespace(_x=1) }}",
        "{{ ([''] | map(attribute='__class__') | list)[0].x }}", "{{ x.upper.__self__.y }}"})
    EXPECT_THROW(text(source, {{"x", "s"}}), TemplateError) << source;
  EXPECT_EQ(text("{{ ''.__class__ }}|{{ [].append is defined }}"), "|False");
}

TEST(JinjaErrors, NameTheLine) {
  try {
    text("a\nb\n{{ x.y.z }}");
    FAIL();
  } catch (const TemplateError& e) {
    EXPECT_EQ(e.line(), 3u);
    EXPECT_STREQ(e.what(), "t:3: 'x' is undefined");
  }
  EXPECT_THROW(text("{% include 'x' %}"), TemplateError);
  EXPECT_THROW(text("{{ 2 ** 200 }}"), TemplateError);
}

TEST(JinjaStrftime, WritesTheGivenTime) {
  // 2024-07-26 12:00 UTC: the day is the same in every time zone.
  EXPECT_EQ(render(*Template::compile("{{ strftime_now('%d %b %Y') }}", "t"), OrderedJson::object(), {}, 1721995200),
            "26 Jul 2024");
}

}  // namespace
}  // namespace mxt::jinja
