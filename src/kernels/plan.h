// KernelPlan: what the probe measured on one machine and which candidate each call uses there. Made by `autotune`, kept
// as a JSON file, replayed verbatim by everything that runs kernels; nothing here measures.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/api.h"

namespace mxt::kernels {

// The machine a plan was made on. Two plans are interchangeable where this is equal (fewer threads are allowed).
struct DeviceIdentity {
  std::string kind;                              // "cpu", "cuda", "hip"
  std::string name;                              // "AMD EPYC 9B45", "NVIDIA H100 80GB HBM3"
  std::string arch;                              // vector target ("AVX3"), "sm_90a", "gfx942"
  std::string driver;                            // empty on the CPU
  std::map<std::string, std::string> libraries;  // "onednn": "2.6.3 avx512_core_bf16"
  int threads = 1;                               // CPU threads of the measurement
  bool operator==(const DeviceIdentity&) const = default;
};

struct Candidate {
  std::string algorithm;
  double median_us = 0, spread_us = 0;  // spread: interquartile range; median 0: the budget did not reach it
  bool operator==(const Candidate&) const = default;
};

struct KernelPlan {
  static constexpr int kSchemaVersion = 1;

  DeviceIdentity device;
  std::map<std::string, int64_t> shapes;       // what the calls were derived from: "hidden": 576, "tokens": 1024, …
  std::map<std::string, std::string> choices;  // call key → algorithm name
  // Call key → what was timed. Beside the calls: "step threads" and "step micro_batch" (µs of a row through a slice of
  // the model), and "step": one optimizer step of the whole model as slices predict it, "default" and "planned".
  std::map<std::string, std::vector<Candidate>> candidates;
  std::map<std::string, std::string> env;  // environment the run must have
  bool measured = false;                   // false: a reference plan (--dry-run), first choices
  double budget_s = 0;                     // seconds the probe took
  std::string source = "plan";             // the file that it was read from, for messages

  bool operator==(const KernelPlan&) const = default;
};

// Keys of calls: everything that decides which algorithm is fast, nothing that changes from step to step.
//   gemm nt bf16 m1024 n960 k576 [out f32] [acc] [bias f32]
//   attention bf16 h9 kv3 d64 t1024 [w512]         (t counts packed tokens; documents vary from step to step)
//   attention_grad bf16 h9 kv3 d64 t1024 [w512]
std::string gemm_key(const Gemm&);
std::string attention_key(const Attention&);
std::string attention_key(const AttentionGrad&);

// Index of the chosen algorithm of `key` in `algorithms` (a list of Ops). A plan that lacks the key gives 0, the
// backend's default; a name that this build does not have is an error (kBadInput) that names both.
int chosen(const KernelPlan& plan, std::string_view key, const std::vector<std::string>& algorithms);

// How often this process has decided which algorithm a call uses, by chosen() or by timing one (the probe counts
// itself). A training loop sees it stand still.
uint64_t decisions();
void count_decision();

// The file: indented JSON, keys sorted, ends with a newline. Reading is strict: an unknown, missing or wrongly typed
// key is an error (kBadInput) naming `source`, the key and what stands there; so is another schema version.
std::string to_json(const KernelPlan& plan);
KernelPlan plan_from_json(std::string_view text, std::string_view source);

// Canonical JSON of identity, shapes and choices alone, without timings, environment or budget: what is hashed as
// `plan_choices` and what enters a checkpoint.
std::string plan_choices(const KernelPlan& plan);

// One line for each thing in which `plan` does not fit this device and these shapes; empty: it fits.
std::vector<std::string> compare(const KernelPlan& plan, const DeviceIdentity& device,
                                 const std::map<std::string, int64_t>& shapes);

}  // namespace mxt::kernels
