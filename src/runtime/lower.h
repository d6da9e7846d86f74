// From graph operations to kernel calls. Internal to the room.
#pragma once

#include <algorithm>
#include <string>

#include "graph/uses.h"
#include "kernels/memory.h"
#include "runtime/program.h"

namespace mxt::runtime {

// Overwrites in the first micro-batch of a step, adds in later ones; a second contribution of one pass always adds.
inline bool adds(const graph::Op& op, const Batch* b) { return !(op.first_grad && (b == nullptr || b->first_micro)); }

// One stream per (step, operation), in which a step's rows are counted: independent of order, threads, restarts and of
// how a step is cut into micro-batches. Attention's operations are counted from kAttentionStreams on.
inline constexpr uint64_t kStreams = 4096, kAttentionStreams = 2048;
inline uint64_t dropout_stream(const Batch& b, uint64_t id) { return b.step * kStreams + id; }

class Lowering {
 public:
  Lowering(Program& program, const kernels::KernelPlan& plan);
  // Where everything is read and written, for the memory plan: kernels that compute several operations do so at the
  // first one's place.
  std::vector<graph::Step> steps() const;
  void run();  // after the memory plan

 private:
  using ValueId = graph::ValueId;
  using Frame = Program::Frame;

  // Operand places, read when a launch runs: the arena and the parameters are allocated after lowering.
  void* at(ValueId v) const;
  const int32_t* rows_of(graph::RowOf row, const Frame& f) const;
  kernels::Mat mat(ValueId v, const Frame& f) const;
  kernels::Mat grad_mat(graph::ParamId p) const;
  kernels::Mat joined(ValueId w, int64_t ranks, const Frame& f) const;  // the scaled B that stands beside w
  kernels::Mat columns(kernels::Mat m, int64_t first, int64_t count) const;
  const void* weight(ValueId v) const;
  // kernels::Gemm::b_packed of a product with weight v.
  const void* packed_weight(ValueId v, bool dx) const;
  float* grad(graph::ParamId p) const;

  void emit(std::function<void(const Frame&)> fn);
  // A product whose operands are found when it runs; `shape` fills sizes and flags (pointers may be null then).
  void emit_gemm(std::function<kernels::Gemm(const Frame&)> make, ValueId b = graph::kNone);
  const kernels::BlockMatrix* blocks_of(ValueId v) const;
  // The plan's way to compute a call. A key that is new is one more for the probe.
  template <typename C>
  int choose(const std::string& key, C call, const std::vector<std::string>& names, size_t& memory) {
    for (auto& t : p_.tunables_)
      if (t.key == key) {
        ++t.count;
        return std::get<C>(t.call).algo;
      }
    call.algo = kernels::chosen(plan_, key, names);
    memory = std::max(memory, kernels::own_memory(ops_, call));
    p_.tunables_.push_back({key, call, 1});
    return call.algo;
  }
  int choose(const kernels::Gemm& g);
  // SwiGLU with the adapter that reads it, and its backward with the adapter gradients that read its operands, where
  // one kernel makes them all (kernels::ActLora, kernels::ActLoraGrad).
  struct ActLora {
    const graph::Op *act = nullptr, *z = nullptr;  // ActOp and LinearOp
  };
  struct ActLoraGrad {
    const graph::Op *act = nullptr, *dz = nullptr, *da = nullptr;  // ActGradOp, LoraDzOp, and LinearDwOp or none
  };
  void find_act_lora_grad();
  void find_act_lora();  // after the other: y is not made where something still reads it
  kernels::ActLora act_lora(const ActLora& a, const Frame& f) const;
  kernels::ActLoraGrad act_lora_grad(const ActLoraGrad& a, const Frame& f) const;
  float* maxima(graph::ValueId v) const;  // of a product's rows (Gemm::row_max)
  kernels::LoraGrad lora_grad(const graph::Op& op, const Frame& f) const;
  template <typename C>
  void set_packed(C& call, const graph::AttentionOp& a, const Frame& f) const;

  void lower(const graph::EmbeddingOp&);
  void lower(const graph::EmbeddingGradOp&);
  void lower(const graph::LinearOp&);
  void lower(const graph::LinearDxOp&);
  void lower(const graph::LinearDwOp&);
  void lower(const graph::BiasGradOp&);
  void lower(const graph::LoraAddOp&);
  void lower(const graph::LoraDzOp&);
  void lower(const graph::LoraDbOp&);
  void lower(const graph::LoraJoinOp&);
  void lower(const graph::NormOp&);
  void lower(const graph::NormGradOp&);
  void lower(const graph::QkRopeOp&);
  void lower(const graph::QkRopeGradOp&);
  void lower(const graph::AttentionOp&);
  void lower(const graph::AttentionGradOp&);
  void lower(const graph::ActOp&);
  void lower(const graph::ActGradOp&);
  void lower(const graph::AddOp&);
  void lower(const graph::RoundOp&);
  // The last two results of an operation that writes its rows in E4M3 too; `channels`: the weight whose scales they
  // take.
  kernels::HeldCopy held_copy(const graph::Op& op, ValueId channels, const Frame& f) const;
  void lower(const graph::QuantizeOp&);
  void lower(const graph::HeldLinearOp&);
  void lower(const graph::HeldLinearDwOp&);
  void lower_fp8(const graph::LinearOp&);
  void lower_fp8(const graph::LinearDxOp&);
  void lower(const graph::DropoutOp&);
  void lower(const graph::HeadOp&);
  void lower(const graph::LogitsOp&);
  void lower(const graph::MeanPoolOp&);

  Program& p_;
  const graph::Graph& g_;
  kernels::Ops& ops_;
  const kernels::KernelPlan& plan_;
  const graph::Op* op_ = nullptr;
  std::vector<int32_t> first_rows_;  // RowOf::kFirst
  std::vector<ActLora> act_lora_;
  std::vector<ActLoraGrad> act_lora_grad_;
  std::vector<bool> taken_;  // operations that another one's launch computes
  const graph::Uses uses_;
  std::vector<std::string> gemm_names_, attention_names_;
  size_t gemm_memory_ = 0, attention_memory_ = 0, grad_memory_ = 0;  // what kernels keep of their own
};

}  // namespace mxt::runtime
