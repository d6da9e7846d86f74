#include "formats/torch/unpickle.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <variant>

#include "base/error.h"
#include "base/text.h"

namespace mxt::formats {
namespace {

struct Value;
using Ref = Value*;  // into the machine, which holds all values: however they nest, they go one by one
struct None {};
struct Mark {};
struct Global {
  std::string name;  // "module name"
};
struct Tuple {
  std::vector<Ref> items;
};
struct Dict {
  std::vector<std::pair<Ref, Ref>> items;
};
struct Value {
  std::variant<None, Mark, bool, int64_t, std::string, Global, Tuple, Dict, PickleStorage, PickleTensor> v;
};

constexpr size_t kMostOps = 20'000'000;

const std::map<std::string_view, DType> kStorages = {
    {"torch FloatStorage", DType::kF32},  {"torch BFloat16Storage", DType::kBF16}, {"torch HalfStorage", DType::kF16},
    {"torch DoubleStorage", DType::kF64}, {"torch LongStorage", DType::kI64},      {"torch IntStorage", DType::kI32},
    {"torch ByteStorage", DType::kU8},    {"torch CharStorage", DType::kI8},       {"torch BoolStorage", DType::kBool}};

bool is_known(std::string_view global) {
  return global == "collections OrderedDict" || global == "torch._utils _rebuild_tensor_v2" ||
         global == "torch._utils _rebuild_parameter" || kStorages.contains(global);
}

class Machine {
 public:
  Machine(std::span<const std::byte> code, std::string_view path) : code_(code), path_(path) {}

  Ref run() {
    for (size_t ops = 0; ops < kMostOps; ++ops) {
      const uint8_t op = byte();
      if (op == '.') {
        if (stack_.size() != 1) bad("it ends in the middle");
        return pop();
      }
      step(op);
    }
    bad("it is too long");
  }

  [[noreturn]] void bad(std::string_view what) const {
    fail_input("{}: its pickle is none of a dictionary of tensors: {}", path_, what);
  }

 private:
  uint8_t byte() {
    if (at_ >= code_.size()) bad("it is cut");
    return static_cast<uint8_t>(code_[at_++]);
  }
  uint64_t little(int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i) v |= uint64_t{byte()} << (8 * i);
    return v;
  }
  std::string text(uint64_t n) {
    if (n > code_.size() - at_) bad("it is cut");
    std::string s(reinterpret_cast<const char*>(&code_[at_]), n);
    at_ += n;
    return s;
  }
  std::string line() {
    std::string s;
    for (char c; (c = static_cast<char>(byte())) != '\n';) s += c;
    return s;
  }

  template <typename T>
  void push(T v) {
    stack_.push_back(&values_.emplace_back(Value{std::move(v)}));
  }
  Ref pop() {
    if (stack_.empty()) bad("it takes what is not there");
    const Ref r = stack_.back();
    stack_.pop_back();
    return r;
  }
  template <typename T>
  T& as(const Ref& r, std::string_view what) {
    if (T* v = std::get_if<T>(&r->v)) return *v;
    bad(what);
  }
  // What was pushed since the last mark, which goes too.
  std::vector<Ref> since_mark() {
    size_t i = stack_.size();
    while (i > 0 && !std::holds_alternative<Mark>(stack_[i - 1]->v)) --i;
    if (i == 0) bad("a mark is missing");
    std::vector<Ref> out(stack_.begin() + static_cast<std::ptrdiff_t>(i), stack_.end());
    stack_.resize(i - 1);
    return out;
  }
  void push_tuple(size_t n) {
    Tuple t;
    for (size_t i = 0; i < n; ++i) t.items.insert(t.items.begin(), pop());
    push(std::move(t));
  }
  Ref top() {
    if (stack_.empty()) bad("it uses what is not there");
    return stack_.back();
  }

  void global(const std::string& module, const std::string& name) {
    const std::string both = module + " " + name;
    if (!is_known(both))
      fail_input("{}: holds code ({}.{}), which is not run: only tensors are read", path_, printable(module),
                 printable(name));
    push(Global{both});
  }

  void step(uint8_t op) {
    switch (op) {
      case 0x80:  // PROTO
        if (byte() > 5) bad("its protocol is newer than 5");
        return;
      case 0x95:  // FRAME
        little(8);
        return;
      case '}':
        return push(Dict{});
      case ']':  // a list stands where only its emptiness matters
      case ')':
        return push(Tuple{});
      case '(':
        return push(Mark{});
      case 'N':
        return push(None{});
      case 0x88:
      case 0x89:
        return push(op == 0x88);
      case 'K':
        return push(static_cast<int64_t>(little(1)));
      case 'M':
        return push(static_cast<int64_t>(little(2)));
      case 'J':
        return push(static_cast<int64_t>(static_cast<int32_t>(little(4))));
      case 0x8a: {  // LONG1: two's complement of so many bytes
        const uint8_t n = byte();
        if (n > 8) bad("a number is too large");
        uint64_t v = little(n);
        if (n > 0 && n < 8 && (v >> (8 * n - 1)) & 1) v |= ~uint64_t{0} << (8 * n);
        return push(static_cast<int64_t>(v));
      }
      case 'X':
        return push(text(little(4)));
      case 0x8c:
        return push(text(little(1)));
      case 'c': {
        const std::string module = line();
        return global(module, line());
      }
      case 0x93: {  // STACK_GLOBAL
        const Ref name = pop(), module = pop();
        return global(as<std::string>(module, "a name is no text"), as<std::string>(name, "a name is no text"));
      }
      case 'q':
        memo_[little(1)] = top();
        return;
      case 'r':
        memo_[little(4)] = top();
        return;
      case 0x94: {  // MEMOIZE
        const uint64_t next = memo_.size();
        memo_[next] = top();
        return;
      }
      case 'h':
        return recall(little(1));
      case 'j':
        return recall(little(4));
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(op - 0x84u);
      case 't': {
        Tuple t{since_mark()};
        return push(std::move(t));
      }
      case 's': {
        const Ref value = pop(), key = pop();
        as<Dict>(top(), "an item is set in what is no dictionary").items.emplace_back(key, value);
        return;
      }
      case 'u': {
        const std::vector<Ref> items = since_mark();
        if (items.size() % 2) bad("a key has no value");
        Dict& d = as<Dict>(top(), "items are set in what is no dictionary");
        for (size_t i = 0; i < items.size(); i += 2) d.items.emplace_back(items[i], items[i + 1]);
        return;
      }
      case 'b': {  // BUILD: a module's state dictionary carries versions beside it, which nothing here needs
        pop();
        as<Dict>(top(), "it sets up an object that is no dictionary");
        return;
      }
      case 'Q':
        return storage(pop());
      case 'R': {
        const Ref arguments = pop(), function = pop();
        return call(as<Global>(function, "it calls what is no function").name,
                    as<Tuple>(arguments, "a call has no arguments").items);
      }
      default:
        bad(fmt::format("instruction 0x{:02x} is none that tensors need", op));
    }
  }

  void recall(uint64_t i) {
    const auto it = memo_.find(i);
    if (it == memo_.end()) bad("it recalls what it never kept");
    stack_.push_back(it->second);
  }

  // ("storage", type, key, device, elements)
  void storage(const Ref& id) {
    const auto& t = as<Tuple>(id, "a storage is no tuple").items;
    if (t.size() != 5 || as<std::string>(t[0], "a storage has no kind") != "storage") bad("a storage has another form");
    const auto type = kStorages.find(as<Global>(t[1], "a storage has no type").name);
    if (type == kStorages.end()) bad("a storage has no type");
    push(PickleStorage{as<std::string>(t[2], "a storage has no key"), type->second});
  }

  std::vector<int64_t> numbers(const Ref& r) {
    std::vector<int64_t> out;
    for (const Ref& x : as<Tuple>(r, "a shape is no tuple").items)
      out.push_back(as<int64_t>(x, "a shape holds what is no number"));
    return out;
  }

  void call(const std::string& name, const std::vector<Ref>& a) {
    if (name == "collections OrderedDict" && a.empty()) return push(Dict{});
    if (name == "torch._utils _rebuild_tensor_v2" && a.size() >= 4)
      return push(PickleTensor{as<PickleStorage>(a[0], "a tensor has no storage"),
                               as<int64_t>(a[1], "a tensor has no offset"), numbers(a[2]), numbers(a[3])});
    if (name == "torch._utils _rebuild_parameter" && !a.empty())
      return push(as<PickleTensor>(a[0], "a parameter is no tensor"));
    bad("a call has another form");
  }

  std::span<const std::byte> code_;
  std::string_view path_;
  size_t at_ = 0;
  std::deque<Value> values_;
  std::vector<Ref> stack_;
  std::map<uint64_t, Ref> memo_;
};

}  // namespace

std::vector<std::pair<std::string, PickleTensor>> unpickle_tensors(std::span<const std::byte> pickle,
                                                                   std::string_view path) {
  Machine machine(pickle, path);
  const Ref all = machine.run();
  const Dict* dict = std::get_if<Dict>(&all->v);
  if (!dict) machine.bad("it makes no dictionary");
  std::vector<std::pair<std::string, PickleTensor>> out;
  for (const auto& [key, value] : dict->items) {
    const auto* name = std::get_if<std::string>(&key->v);
    const auto* tensor = std::get_if<PickleTensor>(&value->v);
    if (!name || !tensor) machine.bad("an entry is no tensor with a name (an optimizer's state?)");
    out.emplace_back(*name, *tensor);
  }
  return out;
}

}  // namespace mxt::formats
