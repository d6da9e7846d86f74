#include <algorithm>
#include <optional>

#include "graph/op_info.h"
#include "graph/passes.h"
#include "graph/uses.h"

namespace mxt::graph {
namespace {

class InPlace {
 public:
  explicit InPlace(Graph& g) : g_(g), last_(g.values.size()) {
    const Uses uses(g);
    for (size_t v = 0; v < last_.size(); ++v) last_[v] = uses.last(static_cast<ValueId>(v));
  }

  // Undoes what is not safe: a value that is read again after it was overwritten. Places are those of the list as it
  // was: a sum that becomes an operation of its own stands at its product's.
  void separate() {
    std::vector<Op> old = std::move(g_.ops);
    g_.ops.clear();
    std::vector<int32_t> whole = last_;  // of a value and all that it was computed in place of
    int32_t forward = g_.forward_ops;
    for (size_t i = 0; i < old.size(); ++i) {
      if (static_cast<int32_t>(i) == g_.forward_ops) forward = static_cast<int32_t>(g_.ops.size());
      Op& op = old[i];
      std::optional<Op> sum;
      for (size_t k = 0; k < op.out.size(); ++k) {
        const ValueId out = op.out[k], over = g_.value(out).alias_of;
        if (over == kNone) continue;
        if (whole[static_cast<size_t>(over)] <= static_cast<int32_t>(i)) {
          int32_t& mine = whole[static_cast<size_t>(out)];
          mine = std::max(mine, whole[static_cast<size_t>(over)]);
          continue;
        }
        g_.values[static_cast<size_t>(out)].alias_of = kNone;
        auto* dx = std::get_if<LinearDxOp>(&op.attrs);
        if (!dx || dx->joined > 0 || dx->relu2) continue;  // the others read one and write the other
        // The product adds into its output: without that, the sum is an operation of its own.
        const Value like = g_.value(out);
        const ValueId product = g_.add_value(like.rows, like.cols, like.type);
        op.in.erase(op.in.begin() + 2);
        op.out[k] = product;
        sum = Op{AddOp{}, {product, over}, {out}};
        break;
      }
      g_.ops.push_back(std::move(op));
      if (sum) g_.ops.push_back(std::move(*sum));
    }
    g_.forward_ops = forward;
  }

  void join() {
    Buffers buffers(g_);
    std::vector<int32_t> last(g_.values.size(), -1);  // of a buffer, at its root
    for (size_t i = 0; i < g_.ops.size(); ++i)
      for (ValueId v : g_.ops[i].in) last[static_cast<size_t>(buffers.root(v))] = static_cast<int32_t>(i);
    for (size_t i = 0; i < g_.ops.size(); ++i) {
      const Op& op = g_.ops[i];
      if (op.out.empty() || g_.value(op.out[0]).alias_of != kNone) continue;
      Value& out = g_.values[static_cast<size_t>(op.out[0])];
      for (size_t k = 0; k < static_cast<size_t>(info(op).overwrites); ++k) {
        const ValueId in = op.in[k];
        const ValueId root = buffers.root(in);
        const Value &x = g_.value(in), &whole = g_.value(root);
        // Rooms right of a buffer's columns are of the one value that they were made for.
        if (whole.param != kNone || x.adjacent_to != kNone || whole.pad > 0 || out.pad > 0 || x.rows != out.rows ||
            x.cols != out.cols || x.type != out.type)
          continue;
        // Nothing of the buffer may be read after this operation.
        if (last[static_cast<size_t>(root)] > static_cast<int32_t>(i)) continue;
        out.alias_of = in;
        last[static_cast<size_t>(root)] =
            std::max(last[static_cast<size_t>(root)], last[static_cast<size_t>(op.out[0])]);
        buffers.unite(root, op.out[0]);
        break;
      }
    }
  }

 private:
  Graph& g_;
  std::vector<int32_t> last_;
};

}  // namespace

void in_place(Graph& g) {
  InPlace p(g);
  p.separate();
  p.join();
}

}  // namespace mxt::graph
