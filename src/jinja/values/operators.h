// Python's operators on values: truth, comparison, arithmetic, iteration, slicing.
#pragma once

#include <functional>
#include <optional>

#include "jinja/values/machine.h"

namespace mxt::jinja {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };

bool truth(Machine& m, const Value& v);
bool equal(Machine& m, const Value& a, const Value& b);
bool identical(const Value& a, const Value& b);              // Python's `is`
bool less_than(Machine& m, const Value& a, const Value& b);  // `<`; refuses what Python refuses
// -1, 0, 1; `op` is for the message. NaN: 2.
int compare(Machine& m, const Value& a, const Value& b, std::string_view op);
// Refuses what cannot be a key, and counts the work of hashing it.
void require_key(Machine& m, const Value& key);
bool contains(Machine& m, const Value& container, const Value& item);

Value binary(Machine& m, BinaryOp op, const Value& a, const Value& b);
Value negate(Machine& m, const Value& v, bool minus);
Value concat(Machine& m, const Value* parts, size_t n);  // `~`

std::optional<size_t> size_of(Machine& m, const Value& v);  // len(), or nothing where it has none
size_t require_size(Machine& m, const Value& v);
bool iterable(const Value& v);
// Goes through the items one by one; an error where v cannot be iterated.
std::function<bool(Value&)> iterate(Machine& m, const Value& v);
std::vector<Value> to_items(Machine& m, const Value& v);
Value make_iterator(Machine& m, uint32_t depth, std::function<bool(Value&)> next, bool generator = true);

// obj[index] for strings, sequences and ranges; nothing where Python raises IndexError or TypeError.
std::optional<Value> index_item(Machine& m, const Value& obj, const Value& index);
// An int as Python's __index__ gives it, within int64; nothing where it is none.
std::optional<int64_t> as_index(Machine& m, const Value& v);
int64_t require_index(Machine& m, const Value& v, std::string_view what);

}  // namespace mxt::jinja
