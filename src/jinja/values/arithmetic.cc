// `+ - * / // % **`, unary signs and `~`.
#include <cmath>

#include "jinja/text/format.h"
#include "jinja/text/repr.h"
#include "jinja/values/operators.h"

namespace mxt::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void unsupported(Machine& m, BinaryOp op, const Value& a, const Value& b) {
  m.fail("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<int>(op)], type_name(a),
         type_name(b));
}

[[noreturn]] void too_big(Machine& m) { m.fail("an integer grows beyond 128 bits"); }

Int floor_div(Int a, Int b) {
  const Int q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

double float_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0) {
    if ((b < 0) != (r < 0)) r += b;
  } else {
    r = std::copysign(0.0, b);
  }
  return r;
}

double float_floor_div(double a, double b) {
  // As CPython: from the exact remainder, so that rounding never crosses a whole number.
  const double r = float_mod(a, b);
  const double q = (a - r) / b;
  if (q == 0) return std::copysign(0.0, a / b);
  const double f = std::floor(q);
  return q - f > 0.5 ? f + 1 : f;
}

Value int_power(Machine& m, Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) m.fail("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (exponent > 0) {
    m.step();
    if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) too_big(m);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_big(m);
  }
  return Value::integer(result);
}

Value integers(Machine& m, BinaryOp op, Int a, Int b) {
  Int r = 0;
  constexpr Int kMin = static_cast<Int>(static_cast<unsigned __int128>(1) << 127);
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &r)) too_big(m);
      return Value::integer(r);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &r)) too_big(m);
      return Value::integer(r);
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &r)) too_big(m);
      return Value::integer(r);
    case BinaryOp::kDiv:
      if (b == 0) m.fail("division by zero");
      return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod:
      if (b == 0) m.fail("integer division or modulo by zero");
      if (a == kMin && b == -1) too_big(m);
      return Value::integer(op == BinaryOp::kMod ? a - floor_div(a, b) * b : floor_div(a, b));
    case BinaryOp::kPow:
      return int_power(m, a, b);
  }
  return {};
}

Value reals(Machine& m, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(a + b);
    case BinaryOp::kSub:
      return Value::real(a - b);
    case BinaryOp::kMul:
      return Value::real(a * b);
    case BinaryOp::kDiv:
      if (b == 0) m.fail("float division by zero");
      return Value::real(a / b);
    case BinaryOp::kFloorDiv:
      if (b == 0) m.fail("float floor division by zero");
      return Value::real(float_floor_div(a, b));
    case BinaryOp::kMod:
      if (b == 0) m.fail("float modulo");
      return Value::real(float_mod(a, b));
    case BinaryOp::kPow: {
      if (a == 0 && b < 0) m.fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
        m.fail("a negative number to a fractional power is complex");
      const double r = std::pow(a, b);
      if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) m.fail("numerical result out of range");
      return Value::real(r);
    }
  }
  return {};
}

Value repeat(Machine& m, const Value& v, const Value& times) {
  const Int n = times.as_int() < 0 ? 0 : times.as_int();
  if (v.is_string()) {
    if (n > 0 && static_cast<Int>(v.text().size()) > static_cast<Int>(m.limits().memory) / n)
      m.fail_limit("repeats a string too often");
    Builder out(m);
    out.set_markup(v.str().markup);
    if (!v.text().empty())
      for (Int i = 0; i < n; ++i) out.add(v.str());
    return Value::string(out.finish());
  }
  const auto& items = v.as<List>().items;
  if (n > 0 && static_cast<Int>(items.size() * sizeof(Value)) > static_cast<Int>(m.limits().memory) / n)
    m.fail_limit("repeats a list too often");
  std::vector<Value> all;
  if (!items.empty()) {
    const size_t total = items.size() * static_cast<size_t>(n);
    m.reserve(total * sizeof(Value));
    m.touch_items(total);
    all.reserve(total);
    for (Int i = 0; i < n; ++i) all.insert(all.end(), items.begin(), items.end());
  }
  return m.list(std::move(all), v.kind());
}

Value join_strings(Machine& m, const Value& a, const Value& b) {
  Builder out(m);
  const bool markup = a.str().markup || b.str().markup;
  out.set_markup(markup);
  for (const Value* v : {&a, &b}) {
    if (markup && !v->str().markup)
      out.add(*html_escape(m, *v));
    else
      out.add(v->str());
  }
  return Value::string(out.finish());
}

Value join_lists(Machine& m, const Value& a, const Value& b) {
  const auto& x = a.as<List>().items;
  const auto& y = b.as<List>().items;
  m.reserve((x.size() + y.size()) * sizeof(Value));
  std::vector<Value> all;
  all.reserve(x.size() + y.size());
  all.insert(all.end(), x.begin(), x.end());
  all.insert(all.end(), y.begin(), y.end());
  return m.list(std::move(all), a.kind());
}

}  // namespace

Value binary(Machine& m, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kMod && a.is_string()) return percent_format(m, a.ref(), b);
  if (a.is_undefined()) m.fail_undefined(a);
  if (b.is_undefined()) m.fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integers(m, op, a.as_int(), b.as_int());
    return reals(m, op, a.as_real(), b.as_real());
  }
  if (op == BinaryOp::kAdd) {
    if (a.is_string() && b.is_string()) return join_strings(m, a, b);
    if (a.is_sequence() && a.kind() == b.kind()) return join_lists(m, a, b);
    if (a.is_string() && !b.is_string()) m.fail("can only concatenate str (not \"{}\") to str", type_name(b));
    if (a.is_sequence()) m.fail("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b));
  }
  if (op == BinaryOp::kMul) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(m, a, b);
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeat(m, b, a);
  }
  unsupported(m, op, a, b);
}

Value negate(Machine& m, const Value& v, bool minus) {
  if (v.is_undefined()) m.fail_undefined(v);
  if (!v.is_number()) m.fail("bad operand type for unary {}: '{}'", minus ? "-" : "+", type_name(v));
  if (v.is(Kind::kFloat)) return Value::real(minus ? -v.as_real() : v.as_real());
  Int r = v.as_int();
  if (minus && __builtin_sub_overflow(Int{0}, v.as_int(), &r)) too_big(m);
  return Value::integer(r);
}

Value concat(Machine& m, const Value* parts, size_t n) {
  Builder out(m);
  for (size_t i = 0; i < n; ++i) out.add(parts[i]);
  return Value::string(out.finish());
}

}  // namespace mxt::jinja
