// One JSON object as a model writes it, made into one that any client can read.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace mxt::serve {

// Text goes in a character at a time; what comes out, closed by close(), is one JSON object whatever went in. Slips
// that models make are put right on the way: control characters and unknown escapes in strings, halves of surrogate
// pairs, a comma before a closing bracket, words and numbers of other languages (True, None, NaN, +5, .5), a word
// without quotation marks; of members with one name the first stays. Where nothing can be put right it is broken, and
// close() ends it where it stood. Numbers keep their digits.
class ObjectText {
 public:
  std::string push(char c);  // what became certain; nothing after done() or broken()
  // What is missing to a whole object; a value that was cut off in the middle is null, or, where the text `ended` with
  // it, what it says.
  std::string close(bool ended = false);
  bool begun() const { return certain_; }  // it is an object beyond doubt: its first key or its end has been seen
  bool done() const { return state_ == State::kDone; }
  bool broken() const { return state_ == State::kBroken; }

 private:
  enum class State { kStart, kFirst, kNext, kColon, kValue, kString, kScalar, kAfter, kDone, kBroken };
  void structure(char c, std::string& out);
  void value(char c, std::string& out);
  void string(char c, std::string& out);
  void open(char bracket, std::string& out);
  void pop(char bracket, std::string& out);
  void half(std::string& out);
  void end_escape(std::string& out);
  void end_key(std::string& out);
  bool skips() const { return skip_ > 0; }
  bool in_object() const { return !open_.empty() && open_.back() == '{'; }

  static constexpr size_t kMaxDepth = 200, kMaxScalar = 1 << 16;
  State state_ = State::kStart, before_ = State::kStart;  // `before_`: where it broke
  std::vector<char> open_;
  std::vector<std::set<std::string>> keys_;  // of each that is open
  std::string key_text_;                     // a key with the comma before it, until it is known to be a new one
  size_t skip_ = 0;                          // how many are open around a member that is left out
  std::string held_;           // a comma and what follows, until something is seen to stand after it; a scalar
  std::string escape_, high_;  // an escape that is not whole; the first half of a surrogate pair
  bool key_ = false, certain_ = false;
};

}  // namespace mxt::serve
