// Shape and type rules of api.h, asserted at the door of every backend: a call that breaks one is a bug of the caller.
#pragma once

#include "kernels/api.h"

namespace mxt::kernels {

void check(const Gemm&);
void check(const Quantize&);
void check(const RowwiseFp8Linear&);
void check(const RowwiseFp8LinearDw&);
void check(const RowwiseFp8Transpose&);
void check(const Fp8LinearDw&);
void check(const Embedding&);
void check(const EmbeddingGrad&);
void check(const Norm&);
void check(const NormGrad&);
void check(const QkNormRope&);
void check(const QkNormRopeGrad&);
void check(const Attention&);
void check(const AttentionGrad&);
void check(const CachedAttention&);
void check(const StoreCache&);
void check(const Act&);
void check(const ActGrad&);
void check(const Add&);
void check(const Mix&);
void check(const MixGrad&);
void check(const Gate&);
void check(const GateGrad&);
void check(const BiasGrad&);
void check(const Dropout&);
void check(const LabelGrad&);
void check(const CrossEntropy&);
void check(const Copy&);
void check(const GatherRows&);
void check(const ScatterRows&);
void check(const MeanPool&);
void check(const Route&);
void check(const RouteGrad&);
void check(const ExpertGather&);
void check(const ExpertSum&);
void check(const ExpertDots&);
void check(const GroupedGemm&);
void check(const RouteLoad&);
void check(const BalanceLoss&);
void check(const CausalConv&);
void check(const CausalConvGrad&);
void check(const GatedDelta&);
void check(const GatedDeltaGrad&);
void check(const GatedNorm&);
void check(const GatedNormGrad&);
void check(const SigmoidGate&);
void check(const SigmoidGateGrad&);
void check(const SplitGates&);
void check(const AdamW&);
void check(const AdamW8bit&);
void check(const Lion&);
void check(const Adafactor&);
void check(const MuonDirection&);
void check(const MuonUpdate&);
void check(const SquaredNorm&);

}  // namespace mxt::kernels
