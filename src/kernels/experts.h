// Mixture of experts (Shazeer et al. 2017, as Qwen3 has it): arguments of its kernels. Part of api.h, whose conventions
// hold.
//
// Slot t·k + j is the j-th expert of token t. Rows that experts work on are routed rows: the slots sorted by (expert,
// token), so that those of one expert lie side by side and no token is dropped.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"

namespace mxt::kernels {

// The k experts of each token with the largest logits (equal ones: the lower index), in falling order, and their
// weights: the softmax over all experts in fp32, over the sum of the chosen ones where `renormalize`.
struct Route {
  ConstMat logits;  // [tokens, experts], act
  bool renormalize = false;
  Mat weights;                // [tokens, k], act
  Mat probabilities;          // [tokens, experts], F32: the softmax
  int32_t* expert = nullptr;  // [tokens, k]: a slot's expert
  int32_t* row = nullptr;     // [tokens, k]: its routed row
  int32_t* slot = nullptr;    // [tokens·k]: a routed row's slot
  int32_t* first = nullptr;   // [experts + 1]: expert e has the routed rows [first[e], first[e + 1])
};
// dlogits from the gradient of the weights (the choice has none) and, where `balance` is given, of the probabilities:
// the same row balance[d] for every token of run d, the tokens [runs[d], runs[d+1]); none for tokens past the last one.
struct RouteGrad {
  ConstMat probabilities, dweights;  // [tokens, experts], [tokens, k]; F32. dweights.p null: none
  const int32_t* expert = nullptr;
  bool renormalize = false;
  Mat dlogits;       // act
  ConstMat balance;  // [runs, experts], F32; p null: none
  const int32_t* runs = nullptr;
};

// y[r] = x[slot[r] / k] (∘ weights[slot[r]]): tokens to routed rows.
struct ExpertGather {
  ConstMat x;                     // [tokens, width], act
  const int32_t* slot = nullptr;  // [tokens·k]
  int64_t k = 0;
  ConstMat weights;  // [tokens, k], act; p null: 1
  Mat y;             // [tokens·k, width]
};
// y[t] = Σ_j weights[t, j]·x[row[t, j]] (+ add[t]), j ascending, one rounding: routed rows to tokens. y may be add.
struct ExpertSum {
  ConstMat x;                    // [tokens·k, width], act
  const int32_t* row = nullptr;  // [tokens, k]
  int64_t k = 0;
  ConstMat weights, add;  // p null: 1; nothing
  Mat y;                  // [tokens, width]
};
// dweights[t, j] = Σ_c dy[t, c]·x[row[t, j], c]
struct ExpertDots {
  ConstMat dy, x;  // [tokens, width], [tokens·k, width], act
  const int32_t* row = nullptr;
  Mat dweights;  // [tokens, k], F32
};

// One product for each expert over its routed rows R_e = [first[e], first[e+1]); the experts' matrices lie one below
// the other.
enum class Grouped : uint8_t {
  kForward,  // c[R_e] = a[R_e]·b_eᵀ    b: [experts·n, k], c: [rows, n]
  kInput,    // c[R_e] = a[R_e]·b_e     b: [experts·k, n]
  kWeight,   // c_e = a[R_e]ᵀ·b[R_e]    c: [experts·m, n], F32; zero for an expert without rows
};
struct GroupedGemm {
  Grouped kind = Grouped::kForward;
  ConstMat a, b;
  Mat c;
  const int32_t* first = nullptr;  // [experts + 1]; host memory on the CPU
  int64_t experts = 0;
  float alpha = 1;
  bool accumulate = false;
  int algo = 0;             // index into Ops::gemm_algorithms()
  bool b_constant = false;  // nothing since the routing writes b: a kernel may read it before the calls before it end
};

// How documents (or other runs of tokens) load the experts, over the layers whose calls add up: count[d, e] += times
// that e was chosen, mass[d, e] += Σ of its probability over the document's tokens. F32, tokens in order.
struct RouteLoad {
  const int32_t* expert = nullptr;  // [tokens, k]
  int64_t k = 0;
  ConstMat probabilities;         // [tokens, experts]
  const int32_t* runs = nullptr;  // of tokens, host memory on the CPU
  Mat count, mass;                // [runs, experts], F32
  bool accumulate = false;
};
// The load-balancing loss (Fedus et al. 2021, as transformers' load_balancing_loss_func over all layers), of each
// document by itself: with f = count/(layers·n), P = mass/(layers·n), n the document's tokens,
//   loss[d] = experts · Σ_e f_e·P_e      balance[d, e] = coefficient · scale · experts · f_e / (layers·n)
// the latter being the derivative by each probability of the document, since counts have none.
struct BalanceLoss {
  ConstMat count, mass;  // [runs, experts]
  const int32_t* runs = nullptr;
  int64_t layers = 1;
  float coefficient = 0;
  const float* scale = nullptr;  // one number, of the batch
  Mat loss;                      // [runs, 1], F32
  Mat balance;                   // [runs, experts]
};

}  // namespace mxt::kernels
