#include <algorithm>

#include "graph/graph.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

// Inputs whose memory the operation may write its first output into (kernels/api.h says so for each).
std::vector<ValueId> candidates(const Op& op) {
  if (std::holds_alternative<AddOp>(op.attrs)) return {op.in[0], op.in[1]};
  if (std::holds_alternative<DropoutOp>(op.attrs)) return {op.in[0]};
  return {};
}

class InPlace {
 public:
  explicit InPlace(Graph& g) : g_(g) {}

  // Undoes what is not safe: a value that is read again after it was overwritten.
  void separate() {
    for (size_t i = 0; i < g_.ops.size(); ++i) {
      find_last();
      Op& op = g_.ops[i];
      for (size_t k = 0; k < op.out.size(); ++k) {
        const ValueId out = op.out[k], over = g_.value(out).same_as;
        if (over == kNone || !read_later(over, i)) continue;
        g_.values[static_cast<size_t>(out)].same_as = kNone;
        auto* dx = std::get_if<LinearDxOp>(&op.attrs);
        if (!dx || dx->joined > 0) continue;  // the others read one and write the other
        // The product adds into its output: without that, the sum is an operation of its own.
        const Value like = g_.value(out);
        const ValueId product = g_.add_value(like.rows, like.cols, like.type);
        g_.ops[i].in.erase(g_.ops[i].in.begin() + 2);
        g_.ops[i].out[k] = product;
        g_.ops.insert(g_.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, Op{AddOp{}, {product, over}, {out}});
        break;
      }
    }
  }

  void join() {
    find_last();
    for (size_t i = 0; i < g_.ops.size(); ++i) {
      const Op& op = g_.ops[i];
      if (op.out.empty() || g_.value(op.out[0]).same_as != kNone) continue;
      Value& out = g_.values[static_cast<size_t>(op.out[0])];
      for (ValueId in : candidates(op)) {
        const Value& x = g_.value(in);
        const Value& root = g_.value(g_.root(in));
        if (root.param != kNone || x.beside != kNone || root.pad > 0 || root.beside != kNone || x.rows != out.rows ||
            x.cols != out.cols || x.type != out.type)
          continue;
        // Nothing of the buffer may be read after this operation.
        if (last_of_buffer_[static_cast<size_t>(g_.root(in))] > static_cast<int64_t>(i)) continue;
        out.same_as = in;
        int64_t& whole = last_of_buffer_[static_cast<size_t>(g_.root(in))];
        whole = std::max(whole, last_of_buffer_[static_cast<size_t>(op.out[0])]);
        break;
      }
    }
  }

 private:
  void find_last() {
    last_.assign(g_.values.size(), -1);
    last_of_buffer_.assign(g_.values.size(), -1);
    for (size_t i = 0; i < g_.ops.size(); ++i)
      for (ValueId v : g_.ops[i].in) {
        last_[static_cast<size_t>(v)] = static_cast<int64_t>(i);
        last_of_buffer_[static_cast<size_t>(g_.root(v))] = static_cast<int64_t>(i);
      }
  }
  bool read_later(ValueId v, size_t i) const {
    for (; v != kNone; v = g_.value(v).same_as)
      if (last_[static_cast<size_t>(v)] > static_cast<int64_t>(i)) return true;
    return false;
  }

  Graph& g_;
  std::vector<int64_t> last_, last_of_buffer_;
};

}  // namespace

void in_place(Graph& g) {
  InPlace p(g);
  p.separate();
  p.join();
}

}  // namespace mxt::graph
