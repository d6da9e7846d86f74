// Hopper's own instructions (sm_90a): barriers that count bytes, bulk copies, matrix products of a warpgroup.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/gpu/mma.cuh"

namespace mxt::kernels::cuda {

// A barrier in shared memory whose phases end when all arrivals, and all bytes that were announced, are there.
struct Mbarrier {
  uint64_t word;
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)), "r"(arrivals));
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&word)) : "memory");
  }
  __device__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)), "r"(bytes)
                 : "memory");
  }
  // Until the phase of this parity has ended.
  __device__ void wait(int parity) {
    uint32_t done = 0;
    while (!done)
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(shared_address(&word)), "r"(parity)
                   : "memory");
  }
};
// Where a pipeline of so many stages stands: the stage that is next, and the parity of the phase that fills it.
template <int Stages>
struct StageRing {
  int slot = 0, parity = 0;
  __device__ void advance() {
    if (++slot == Stages) slot = 0, parity ^= 1;
  }
};
// By one thread: the gates of a ring, each stage filled by one thread's copies and emptied by so many arrivals of its
// readers. A barrier of all who count on them follows.
template <int Stages>
__device__ __forceinline__ void make_gates(Mbarrier (&full)[Stages], Mbarrier (&empty)[Stages], int readers) {
  for (int i = 0; i < Stages; ++i) full[i].init(1), empty[i].init(readers);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// How long the second-level cache keeps what a copy brought.
__device__ __forceinline__ uint64_t read_once() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// `bytes` (a multiple of 16, as both addresses) that lie side by side.
__device__ __forceinline__ void copy_to_shared(void* to, const void* from, int bytes, Mbarrier* gate, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&gate->word)), "l"(policy)
      : "memory");
}
// A box of a matrix (the map says how large and how laid out) from this column and row on.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, int column, int row, Mbarrier* gate) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&gate->word))
      : "memory");
}

// The same into the same place of every block of the cluster that `mask` names; each one's gate counts its own bytes.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, int column, int row, Mbarrier* gate,
                                         uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&gate->word)), "h"(mask)
      : "memory");
}
// A box back to memory, past the matrix's end nothing. written_to_shared() by all that wrote it, and a barrier, before;
// boxes_read<N>() until at most N groups still read their boxes.
__device__ __forceinline__ void store_box(const CUtensorMap& map, int column, int row, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(column),
               "r"(row), "r"(shared_address(from))
               : "memory");
}
__device__ __forceinline__ void end_boxes() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void boxes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void written_to_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// A barrier of the threads of one warpgroup; number 0 is the block's own.
__device__ __forceinline__ void sync_threads_of(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Blocks of a cluster run at the same time and reach each other's shared memory.
__device__ __forceinline__ int rank_in_cluster() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return static_cast<int>(r);
}
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Arrives at the gate that lies there in the block of this rank, to say that something was read: as a release to the
// whole cluster every arrival would wait for a fence of the device, which halves the speed of a product.
__device__ __forceinline__ void arrive_at(const Mbarrier& gate, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(&gate.word)), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}

// All threads of the warpgroup whose barrier this is have read a stage: one arrival in each block of the cluster.
__device__ __forceinline__ void have_read(const Mbarrier& empty, int barrier, int blocks) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  sync_threads_of(barrier, 128);
  if (thread < blocks) arrive_at(empty, thread);
}

// Four numbers that lie there in the block of this rank.
__device__ __forceinline__ float4 shared_of(const float* at, int rank) {
  uint32_t there;
  float4 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(there)
               : "memory");
  return v;
}
// Of pairs of bf16 each the larger size.
__device__ __forceinline__ uint32_t larger_size(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("{\n.reg .b32 t;\nabs.bf16x2 t, %2;\nmax.bf16x2 %0, %1, t;\n}" : "=r"(y) : "r"(a), "r"(b));
  return y;
}

// Which warpgroup of its block a thread is of: a number that the compiler knows to be the same for a whole warp, so
// that what hangs on it, operands' addresses above all, is reckoned in uniform registers, once and beside the rest (a
// third of attention's instructions went into them).
__device__ __forceinline__ int warpgroup() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0); }

// Tiles in shared memory as boxes of 128 bytes (64 columns of bf16, 128 of E4M3) and any number of rows, their 16-byte
// pieces permuted within groups of eight rows ("128-byte swizzle"); each box begins at a multiple of 1,024 bytes.
//
// Operand whose rows are those of the product and whose columns are summed over. 16 columns of bf16 further: 32 bytes.
__device__ __forceinline__ uint64_t across(uint32_t at) {
  return static_cast<uint64_t>((at & 0x3ffff) >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
// Operand whose rows are summed over; `next`: bytes to the box with the next 64 columns. 16 rows further: 2,048 bytes.
__device__ __forceinline__ uint64_t down(uint32_t at, uint32_t next) {
  return static_cast<uint64_t>((at & 0x3ffff) >> 4) | static_cast<uint64_t>(next >> 4) << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
__device__ __forceinline__ uint64_t further(uint64_t operand, uint32_t bytes) { return operand + (bytes >> 4); }

// Products run beside the warps: begin_products() after registers or shared memory were written, end_group() after
// the last product of a group, wait_groups<N>() until at most N groups still run.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_groups() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define MXT_SUMS_8(d, i)                                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define MXT_NEW_8(d, i)                                                                                       \
  "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), "=f"(d[i + 6]), \
      "=f"(d[i + 7])
#define MXT_NEW_32(d, i) MXT_NEW_8(d, i), MXT_NEW_8(d, i + 8), MXT_NEW_8(d, i + 16), MXT_NEW_8(d, i + 24)
#define MXT_SUMS_32(d, i) MXT_SUMS_8(d, i), MXT_SUMS_8(d, i + 8), MXT_SUMS_8(d, i + 16), MXT_SUMS_8(d, i + 24)
#define MXT_NAMES_32                                                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define MXT_NAMES_64                                                                                                 \
  MXT_NAMES_32                                                                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
  "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define MXT_NAMES_96                                                                                                 \
  MXT_NAMES_64                                                                                                       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
  "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MXT_NAMES_128                                                                                                  \
  MXT_NAMES_64                                                                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "   \
  "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, "   \
  "%107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127"

// p: whether what d holds is added to ("eq") or not ("ne").
#define MXT_PRODUCT(add, shape) \
  "{\n.reg .pred p;\nsetp." add ".b32 p, 0, 0;\nwgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {"

// d (64 rows × 64) = a·b, or += a·b, over 16 columns of both; both lie `across`. Element i of thread t (lane l of warp
// w): row 16w + l/4 + 8·(i/2 % 2), column 8·(i/4) + 2·(l%4) + i%2.
__device__ __forceinline__ void multiply_64x64(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(MXT_PRODUCT("ne", "m64n64k16") MXT_NAMES_32 "}, %32, %33, p, 1, 1, 0, 0;\n}"
               : MXT_NEW_32(d, 0)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_add_64x64(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(MXT_PRODUCT("eq", "m64n64k16") MXT_NAMES_32 "}, %32, %33, p, 1, 1, 0, 0;\n}"
               : MXT_SUMS_32(d, 0)
               : "l"(a), "l"(b));
}
// d (64 rows × 64) += a·b over 16: a in registers (a fragment of 64 × 16), b lies `down`.
__device__ __forceinline__ void multiply_add_64x64(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(MXT_PRODUCT("eq", "m64n64k16") MXT_NAMES_32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
               : MXT_SUMS_32(d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// The same with both operands in shared memory, both `down`.
__device__ __forceinline__ void multiply_add_64x64_down(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(MXT_PRODUCT("eq", "m64n64k16") MXT_NAMES_32 "}, %32, %33, p, 1, 1, 1, 1;\n}"
               : MXT_SUMS_32(d, 0)
               : "l"(a), "l"(b));
}
// d (64 rows × 128) += a·b over 16: a in registers (a fragment of 64 × 16), b lies `down`.
__device__ __forceinline__ void multiply_64x128(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(MXT_PRODUCT("eq", "m64n128k16") MXT_NAMES_64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
               : MXT_SUMS_32(d, 0), MXT_SUMS_32(d, 32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// The same with both operands in shared memory, both `down`.
__device__ __forceinline__ void multiply_64x128(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(MXT_PRODUCT("eq", "m64n128k16") MXT_NAMES_64 "}, %64, %65, p, 1, 1, 1, 1;\n}"
               : MXT_SUMS_32(d, 0), MXT_SUMS_32(d, 32)
               : "l"(a), "l"(b));
}
// d (64 rows × 128) += a·b over 16: a lies `across`, b `down` or `across`.
template <bool Down>
__device__ __forceinline__ void multiply_64x128(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(MXT_PRODUCT("eq", "m64n128k16") MXT_NAMES_64 "}, %64, %65, p, 1, 1, 0, %66;\n}"
               : MXT_SUMS_32(d, 0), MXT_SUMS_32(d, 32)
               : "l"(a), "l"(b), "n"(Down ? 1 : 0));
}
// d (64 rows × 128) += a·bᵀ over 32 columns of E4M3; both lie `across`.
__device__ __forceinline__ void multiply_64x128_e4m3(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" MXT_NAMES_64
      "}, %64, %65, p, 1, 1;\n}"
      : MXT_SUMS_32(d, 0), MXT_SUMS_32(d, 32)
      : "l"(a), "l"(b));
}
// d (64 rows × 192) = a·bᵀ over 32 columns of E4M3, or += where `add` is not 0; both lie `across`.
__device__ __forceinline__ void multiply_64x192_e4m3(float (&d)[96], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\nwgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {" MXT_NAMES_96
      "}, %96, %97, p, 1, 1;\n}"
      : MXT_SUMS_32(d, 0), MXT_SUMS_32(d, 32), MXT_SUMS_32(d, 64)
      : "l"(a), "l"(b), "r"(add));
}
// d (64 rows × 256) = a·bᵀ over 32 columns of E4M3, or += where `add` is not 0; both lie `across`.
__device__ __forceinline__ void multiply_64x256_e4m3(float (&d)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" MXT_NAMES_128
      "}, %128, %129, p, 1, 1;\n}"
      : MXT_SUMS_32(d, 0), MXT_SUMS_32(d, 32), MXT_SUMS_32(d, 64), MXT_SUMS_32(d, 96)
      : "l"(a), "l"(b), "r"(add));
}
// d (64 rows × 256) = a·b over 16, or += where `add` is not 0: a lies `across`, b `down` or `across`.
template <bool Down>
__device__ __forceinline__ void multiply_64x256(float (&d)[128], uint64_t a, uint64_t b, int add = 1) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %131, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" MXT_NAMES_128
      "}, %128, %129, p, 1, 1, 0, %130;\n}"
      : MXT_SUMS_32(d, 0), MXT_SUMS_32(d, 32), MXT_SUMS_32(d, 64), MXT_SUMS_32(d, 96)
      : "l"(a), "l"(b), "n"(Down ? 1 : 0), "r"(add));
}

#undef MXT_SUMS_8
#undef MXT_NEW_8
#undef MXT_NEW_32
#undef MXT_SUMS_32
#undef MXT_NAMES_32
#undef MXT_NAMES_64
#undef MXT_NAMES_96
#undef MXT_NAMES_128
#undef MXT_PRODUCT

// Registers are moved from the warpgroup that only asks for copies to those that multiply.
template <int N>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace mxt::kernels::cuda
