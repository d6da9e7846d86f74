// A call of someone's own: what a program makes beside the calls of api.h, for an operation that is defined outside
// this source tree (graph::ExternalOp; docs/extending.md shows one).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "kernels/matrix.h"

namespace mxt::kernels {

class Ops;
struct External;

class ExternalKernel {
 public:
  virtual ~ExternalKernel() = default;
  virtual std::string_view name() const = 0;
  // Whether it runs where `ops` does: operands lie in the memory of ops.device(), and what it does there must be queued
  // behind what was queued before. A program with a call that has not ends in kMissing, which names both.
  virtual bool runs_on(const Ops& ops) const = 0;
  // The same bytes for any number of threads.
  virtual void run(Ops& ops, const External& call) const = 0;
  // Floating-point operations of its products.
  virtual double operations(const External&) const { return 0; }
};

struct External {
  std::shared_ptr<const ExternalKernel> kernel;
  std::vector<ConstMat> in;  // the operation's operands in order; a parameter as it is held
  std::vector<Mat> out;      // its results; where one is computed in place it is an operand, too
  Mat gradient;              // F32, of the parameter whose gradient it makes; null: none
  bool accumulate = false;   // adds to `gradient`
};

}  // namespace mxt::kernels
