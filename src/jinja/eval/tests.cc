// What stands after `is`.
#include "jinja/eval/builtins.h"
#include "jinja/eval/interp.h"
#include "jinja/text/repr.h"
#include "jinja/text/strings.h"
#include "jinja/values/operators.h"

namespace mxt::jinja {
namespace {

void no_arguments(Interp& in, const Args& args) { Bound none(in.machine(), "test", args, {}); }

Value remainder(Interp& in, const Value& v, const Value& by) { return binary(in.machine(), BinaryOp::kMod, v, by); }

template <int wanted>
bool parity(Interp& in, const Value& v, const Args& args) {
  no_arguments(in, args);
  return equal(in.machine(), remainder(in, v, Value::integer(2)), Value::integer(wanted));
}

bool divisible(Interp& in, const Value& v, const Args& args) {
  Bound b(in.machine(), "divisibleby", args, {"num"}, 1);
  return equal(in.machine(), remainder(in, v, b[0]), Value::integer(0));
}

template <bool (*test)(const Value&)>
bool plain(Interp& in, const Value& v, const Args& args) {
  no_arguments(in, args);
  return test(v);
}

bool defined(const Value& v) { return !v.is_undefined(); }
bool undefined(const Value& v) { return v.is_undefined(); }
bool none(const Value& v) { return v.is_none(); }
bool boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool integer(const Value& v) { return v.is(Kind::kInt) || v.is(Kind::kBigInt); }
bool real(const Value& v) { return v.is(Kind::kFloat); }
bool string(const Value& v) { return v.is_string(); }
bool mapping(const Value& v) { return v.is(Kind::kDict); }
bool number(const Value& v) { return v.is_number() || v.is(Kind::kBigInt); }
bool callable(const Value& v) { return is_callable(v); }
bool escaped(const Value& v) { return v.is_string() && v.str().markup; }
bool can_iterate(const Value& v) { return iterable(v) || v.is(Kind::kLoop); }
// Sized and with items by index: what has len() and __getitem__. Undefined has both.
bool sequence(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) || v.is_undefined();
}

template <bool upper>
bool letter_case(Interp& in, const Value& v, const Args& args) {
  no_arguments(in, args);
  return is_all_case(to_str(in.machine(), v)->text, upper);
}

bool alias_of(Interp& in, const Value& v, const Args& args) {
  Bound b(in.machine(), "sameas", args, {"other"}, 1);
  return identical(v, b[0]);
}

bool in_test(Interp& in, const Value& v, const Args& args) {
  Bound b(in.machine(), "in", args, {"seq"}, 1);
  return contains(in.machine(), b[0], v);
}

template <bool wanted>
bool equal_test(Interp& in, const Value& v, const Args& args) {
  Bound b(in.machine(), "eq", args, {"other"}, 1);
  return equal(in.machine(), v, b[0]) == wanted;
}

template <bool less, bool or_equal>
bool order_test(Interp& in, const Value& v, const Args& args) {
  Bound b(in.machine(), "order", args, {"other"}, 1);
  const int c = compare(in.machine(), v, b[0], less ? or_equal ? "<=" : "<" : or_equal ? ">=" : ">");
  return c == (less ? -1 : 1) || (or_equal && c == 0);
}

bool filter_exists(Interp& in, const Value& v, const Args& args) {
  no_arguments(in, args);
  require_key(in.machine(), v);
  return v.is_string() && find_filter(v.text()) != nullptr;
}

bool test_exists(Interp& in, const Value& v, const Args& args) {
  no_arguments(in, args);
  require_key(in.machine(), v);
  return v.is_string() && find_test(v.text()) != nullptr;
}

constexpr std::pair<std::string_view, TestFn> kTests[] = {
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible},
    {"defined", plain<defined>},
    {"undefined", plain<undefined>},
    {"filter", filter_exists},
    {"test", test_exists},
    {"none", plain<none>},
    {"boolean", plain<boolean>},
    {"false", plain<is_false>},
    {"true", plain<is_true>},
    {"integer", plain<integer>},
    {"float", plain<real>},
    {"lower", letter_case<false>},
    {"upper", letter_case<true>},
    {"string", plain<string>},
    {"mapping", plain<mapping>},
    {"number", plain<number>},
    {"sequence", plain<sequence>},
    {"iterable", plain<can_iterate>},
    {"callable", plain<callable>},
    {"sameas", alias_of},
    {"escaped", plain<escaped>},
    {"in", in_test},
    {"==", equal_test<true>},
    {"eq", equal_test<true>},
    {"equalto", equal_test<true>},
    {"!=", equal_test<false>},
    {"ne", equal_test<false>},
    {">", order_test<false, false>},
    {"gt", order_test<false, false>},
    {"greaterthan", order_test<false, false>},
    {">=", order_test<false, true>},
    {"ge", order_test<false, true>},
    {"<", order_test<true, false>},
    {"lt", order_test<true, false>},
    {"lessthan", order_test<true, false>},
    {"<=", order_test<true, true>},
    {"le", order_test<true, true>},
};

}  // namespace

TestFn find_test(std::string_view name) {
  for (const auto& [known, function] : kTests)
    if (known == name) return function;
  return nullptr;
}

}  // namespace mxt::jinja
