// The Python module: recipes, plans, runs, models and tokenizers of this library for Python, with numpy's arrays for
// token ids and log-probabilities. A file for each; module.cc puts them together. Nothing of the program knows of
// Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace mxt::python {

namespace nb = nanobind;

void bind_errors(nb::module_& m);     // Error, BadInput, VerifyFailed, Missing, Interrupted
void bind_recipe(nb::module_& m);     // Recipe, plan
void bind_run(nb::module_& m);        // Step, run
void bind_tokenizer(nb::module_& m);  // Tokenizer
void bind_model(nb::module_& m);      // Answer, Model

// As Python's json module reads and writes it. `what` is named where an object is no JSON (kBadInput).
nb::object to_python(const OrderedJson& j);
OrderedJson from_python(nb::handle object, const std::string& what);

// A numpy array that owns its memory.
template <typename T>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <typename T>
Array<T> array_of(std::vector<T> values) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* data = kept->data();
  const size_t size = kept->size();
  nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  kept.release();
  return Array<T>(data, {size}, owner);
}

// Token ids out of a numpy array of integers or a sequence of them; kBadInput, naming `what`, for anything else and for
// numbers that are no ids.
std::vector<int32_t> ids_of(nb::handle object, const std::string& what);

// Ctrl-C and what a callback raises, kept while C++ works without the interpreter's lock, and raised when it has ended.
class Raised {
 public:
  // With the lock: whether Python wants the work to end.
  bool signalled();
  void keep() { what_ = std::current_exception(); }
  explicit operator bool() const { return what_ != nullptr; }
  void rethrow() const {
    if (what_) std::rethrow_exception(what_);
  }

 private:
  std::exception_ptr what_;
};

}  // namespace mxt::python
