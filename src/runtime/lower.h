// From graph operations to kernel calls. Internal to the room.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/uses.h"
#include "kernels/call_visitor.h"
#include "kernels/memory.h"
#include "runtime/spec.h"

namespace mxt::runtime {

class Lowering {
 public:
  Lowering(const graph::Graph& g, const kernels::KernelPlan& plan, const kernels::Ops& ops,
           const ProgramSettings& settings);
  ProgramSpec run();

 private:
  using ValueId = graph::ValueId;
  using ParamId = graph::ParamId;

  // ---- operands: their addresses are places (runtime::place), their rows extents (rows_of) ----
  BufferId buffer(Source source, int32_t index = -1, int64_t bytes = 0);
  template <typename T = void>
  T* in(Source source, int32_t index = -1, int64_t offset = 0) {
    return static_cast<T*>(place({buffer(source, index), offset}));
  }
  void* at(ValueId v);
  template <typename T>
  T* at(ValueId v) {
    return static_cast<T*>(at(v));
  }
  static int64_t rows_of(graph::Extent e);
  static graph::Extent extent_of(int64_t rows);
  kernels::Mat mat(ValueId v);
  kernels::Mat grad_mat(ParamId p);
  kernels::Mat joined(ValueId w, int64_t ranks);  // the scaled B that stands beside w
  static kernels::Mat columns(kernels::Mat m, int64_t first, int64_t count);
  static kernels::Mat inside(kernels::Mat m, int64_t row, int64_t col, int64_t rows, int64_t cols);
  const void* packed_weight(ValueId v, bool dx);  // kernels::Gemm::b_packed of a product with weight v
  float* grad(ParamId p) { return in<float>(Source::kGrad, p); }
  float* scale(ValueId weight) { return in<float>(Source::kScale, g_.value(weight).param); }
  const float* scales_of(ValueId v);
  const float* rope(Source source, int64_t table);  // the graph's table that begins there
  const void* element(ValueId vector, int64_t i);   // of a parameter
  const int32_t* ids_of(graph::RowOf row);

  // ---- calls ----
  template <class C>
  C widest(C call) const;
  // Appends the call. `first`: bits of StepCall::overwrites_first.
  template <class C>
  StepCall& emit(C call, uint8_t first = 0, uint16_t when = kAlways);
  StepCall& emit_gemm(kernels::Gemm g, uint8_t first = 0, uint16_t when = kAlways);
  void scratch(size_t bytes) { spec_.bytes.workspace = std::max(spec_.bytes.workspace, static_cast<int64_t>(bytes)); }
  // The plan's way to compute a call at its widest. A key that is new is one more for the probe.
  template <typename C>
  int choose(const std::string& key, C call, const std::vector<std::string>& names, size_t& memory);
  int choose(const kernels::Gemm& widest);
  template <typename C>
  void set_packed(C& call, const graph::AttentionOp& a);
  int own_attention() const;
  bool has_prefixes(const graph::AttentionOp& a) const { return spec_.settings.prefixes && !a.pictures; }
  // A result that accumulates is overwritten in the first pass where this operation is the first to add to it.
  static bool adds(const graph::Op& op) { return !op.first_grad; }
  static uint8_t first(const graph::Op& op, int bit = 0) { return static_cast<uint8_t>(op.first_grad ? 1 << bit : 0); }

  // ---- what one kernel computes together ----
  // SwiGLU with the adapter that reads it, and its backward with the adapter gradients that read its operands
  // (kernels::ActLora, kernels::ActLoraGrad).
  struct ActLora {
    const graph::Op *act = nullptr, *z = nullptr;  // ActOp and LinearOp
  };
  struct ActLoraGrad {
    const graph::Op *act = nullptr, *dz = nullptr, *da = nullptr;  // ActGradOp, LoraDzOp, and LinearDwOp or none
  };
  void find_act_lora_grad();
  void find_act_lora();  // after the other: y is not made where something still reads it
  kernels::ActLora act_lora(const ActLora& a);
  kernels::ActLoraGrad act_lora_grad(const ActLoraGrad& a);
  kernels::LoraGrad lora_grad(const graph::Op& op);
  // Where everything is read and written, for the memory plan: kernels that compute several operations do so at the
  // first one's place.
  std::vector<graph::Step> steps() const;
  void find_dead(const std::vector<graph::Step>& steps, const std::vector<ValueId>& keep);

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
  void lower(const graph::QkNormRopeOp&);
  void lower(const graph::QkNormRopeGradOp&);
  void lower(const graph::AttentionOp&);
  void lower(const graph::AttentionGradOp&);
  void lower(const graph::ActOp&);
  void lower(const graph::ActGradOp&);
  void lower(const graph::ClampedGluOp&);
  void lower(const graph::ClampedGluGradOp&);
  void lower(const graph::AddOp&);
  void lower(const graph::ScaleOp&);
  void lower(const graph::MixOp&);
  void lower(const graph::MixGradOp&);
  void lower(const graph::GateOp&);
  void lower(const graph::GateGradOp&);
  void lower(const graph::QkvNormOp&);
  void lower(const graph::QkvNormGradOp&);
  void lower(const graph::RoundOp&);
  // The last two results of an operation that writes its rows in E4M3 too; `channels`: the weight whose scales they
  // take.
  kernels::RowwiseFp8Copy rowwise_fp8_copy(const graph::Op& op, ValueId channels);
  void lower(const graph::QuantizeOp&);
  void lower(const graph::RowwiseFp8LinearOp&);
  void lower(const graph::RowwiseFp8LinearDwOp&);
  void lower(const graph::RowwiseFp8TransposeOp&);
  void lower(const graph::Fp8LinearDwOp&);
  void lower_fp8(const graph::LinearOp&);
  void lower_fp8(const graph::LinearDxOp&);
  // lower_coded.cc
  bool coded(ValueId w) const;
  int64_t piece(int64_t count, int64_t bytes) const;  // how many of a matrix's rows or columns are decoded at a time
  kernels::Mat decoded(ValueId w, int64_t row, int64_t col, int64_t rows, int64_t cols);
  void dora_gains(const graph::DoraGainOp& a, const kernels::Mat& w, int64_t first, const kernels::Mat& p,
                  const kernels::Mat& q);
  void lower_coded(const graph::LinearOp&);
  void lower_coded(const graph::LinearDxOp&);
  void lower_coded(const graph::Op& op, kernels::Grouped kind, int64_t experts);
  void lower(const graph::DropoutOp&);
  void lower(const graph::EmbeddingNoiseOp&);
  void lower(const graph::DoraGainOp&);
  void lower(const graph::DoraScaleOp&);
  void lower(const graph::DoraScaleGradOp&);
  // What the output head's operations share: products in chunks of the rows that have a target. Values that are kNone
  // are not wanted; `gradient` makes dh (and the weight's gradient, where the operation has one), of the batch's
  // weights or of `seed`, dloss/dlogp.
  struct HeadCall {
    int64_t chunk = 0;
    float softcap = 0, scale = 1;
    bool gradient = false;
    float adapter = 0;  // with z: its scale
    ValueId z = graph::kNone, b = graph::kNone, dz = graph::kNone;
    // Of a weight that trains in E4M3.
    ValueId q = graph::kNone, scale_of_q = graph::kNone, turned = graph::kNone, scale_of_turned = graph::kNone;
    ValueId nll = graph::kNone, logp = graph::kNone, entropy = graph::kNone, dh = graph::kNone, seed = graph::kNone;
  };
  struct Head;
  void lower_head(const HeadCall& call);
  void* head_window(Head& s, const void* of, const void* apart, int64_t row_bytes, bool by_place);
  kernels::Mat head_rows(Head& s, const kernels::Mat& of, int64_t apart_at);  // the chunk's
  void head_operands(Head& s);
  void head_products(Head& s);
  void emit_trained_dw(Head& s);
  void emit_head(Head& s);
  void lower(const graph::FusedLinearCrossEntropyOp&);
  void lower(const graph::TokenLogProbOp&);
  void lower(const graph::TokenLogProbGradOp&);
  void lower(const graph::LogitsOp&);
  void lower(const graph::MeanPoolOp&);
  // lower_experts.cc
  void lower(const graph::RouteOp&);
  void lower(const graph::RouteGradOp&);
  void lower(const graph::ExpertGatherOp&);
  void lower(const graph::ExpertSumOp&);
  void lower(const graph::ExpertDotsOp&);
  void lower(const graph::ExpertLinearOp&);
  void lower(const graph::ExpertLinearDxOp&);
  void lower(const graph::ExpertLinearDwOp&);
  void lower(const graph::ExpertLoraAddOp&);
  void lower(const graph::ExpertLoraDzOp&);
  void lower(const graph::ExpertLoraDbOp&);
  void lower(const graph::ExpertBiasOp&);
  void lower(const graph::ExpertBiasGradOp&);
  void lower(const graph::BalanceLossOp&);
  // Experts from..from+count of all, whose rows stand in `first`.
  struct Experts {
    ValueId first = graph::kNone;
    int64_t from = 0, count = 0, all = 0;
    bool constant = false;  // no call of the pass writes their matrices
  };
  void emit_grouped(kernels::Grouped kind, kernels::Mat a, kernels::Mat b, kernels::Mat c, const Experts& experts,
                    float alpha, bool accumulate, uint8_t overwrites = 0);
  // lower_delta.cc
  void lower(const graph::CausalConvOp&);
  void lower(const graph::CausalConvGradOp&);
  void lower(const graph::GatedDeltaOp&);
  void lower(const graph::GatedDeltaGradOp&);
  void lower(const graph::GatedNormOp&);
  void lower(const graph::GatedNormGradOp&);
  void lower(const graph::SigmoidGateOp&);
  void lower(const graph::SigmoidGateGradOp&);
  void lower(const graph::SplitGatesOp&);
  void lower(const graph::MergeGatesOp&);
  void lower(const graph::ExternalOp&);
  template <typename C>
  void set_documents(C& call);
  // lower_pictures.cc
  bool of_pictures(const graph::Op& op) const;
  void find_of_pictures();
  void lower(const graph::PictureInputOp&);
  void lower(const graph::InterpolateOp&);
  void lower(const graph::InterpolateGradOp&);
  void lower(const graph::RegroupOp&);
  void lower(const graph::PlaceOp&);
  void lower(const graph::PlaceGradOp&);
  // Where a rotation's angles stand.
  struct AnglesAt {
    const int32_t* positions;
    const float *cos, *sin;
  };
  AnglesAt angles_of(const graph::QkNormRopeOp& a);
  template <typename C>
  void carry(C& call, Source states, int layer);

  const graph::Graph& g_;
  const kernels::KernelPlan& plan_;
  const kernels::Ops& ops_;
  ProgramSpec spec_;
  graph::Bounds most_;
  const graph::Op* op_ = nullptr;
  std::map<std::pair<Source, int32_t>, BufferId> buffers_;
  int32_t windows_ = 0;
  std::vector<ActLora> act_lora_;
  std::vector<ActLoraGrad> act_lora_grad_;
  std::vector<bool> taken_;  // operations that another one's call computes
  const graph::Uses uses_;
  const std::vector<ValueId> roots_;
  std::vector<std::string> gemm_names_, attention_names_;
  size_t grouped_memory_ = 0, delta_memory_ = 0;
  size_t gemm_memory_ = 0, attention_memory_ = 0, grad_memory_ = 0;  // what kernels keep of their own
};

// A call's operands taken out of it: what emit() keeps of a call that was written over places.
struct TakeOperands : kernels::CallVisitor {
  std::vector<Operand>& out;
  const graph::Bounds& most;
  graph::Extent (*extent_of)(int64_t);
  template <typename M>
  void mat(std::string_view, M& m, kernels::Use) {
    const graph::Extent rows = extent_of(m.rows);
    out.push_back({ref_of(m.p), rows});
    m.p = nullptr;
    m.rows = most.rows(rows);
  }
  template <typename P>
  void array(std::string_view, P& p, DType, int64_t, kernels::Use) {
    out.push_back({ref_of(p), {}});
    p = nullptr;
  }
};

struct Widen : kernels::CallVisitor {
  const graph::Bounds& most;
  graph::Extent (*extent_of)(int64_t);
  template <typename M>
  void mat(std::string_view, M& m, kernels::Use) {
    m.rows = most.rows(extent_of(m.rows));
  }
  template <typename P>
  void array(std::string_view, P&, DType, int64_t, kernels::Use) {}
};

template <class C>
C Lowering::widest(C call) const {
  Widen widen{{}, most_, extent_of};
  kernels::operands(call, widen);
  return call;
}

template <class C>
StepCall& Lowering::emit(C call, uint8_t first, uint16_t when) {
  StepCall s;
  TakeOperands take{{}, s.operands, most_, extent_of};
  kernels::operands(call, take);
  s.call = std::move(call);
  s.op = static_cast<size_t>(op_ - g_.ops.data());
  s.overwrites_first = first;
  s.when = when;
  spec_.calls.push_back(std::move(s));
  return spec_.calls.back();
}

template <typename C>
int Lowering::choose(const std::string& key, C call, const std::vector<std::string>& names, size_t& memory) {
  for (auto& t : spec_.tunables)
    if (t.key == key) {
      ++t.count;
      return std::get<C>(t.call).algo;
    }
  call.algo = kernels::chosen(plan_, key, names);
  memory = std::max(memory, kernels::own_memory(ops_, call));
  spec_.tunables.push_back({key, call, 1});
  return call.algo;
}

}  // namespace mxt::runtime
