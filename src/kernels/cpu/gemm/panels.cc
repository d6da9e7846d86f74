#include "kernels/cpu/gemm/panels.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/gemm/amx.h"
#include "kernels/cpu/gemm/micro.h"
#include "kernels/cpu/gemm/workspace.h"

namespace mxt::kernels::cpu {
namespace {

// What a thread keeps, in 4-byte units: packed A, packed panels of B, sums between parts of k. Together under 1 MiB,
// the usual L2.
constexpr int64_t kUnitsA = 48 << 10, kUnitsB = 64 << 10, kUnitsPartial = 64 << 10;
constexpr int64_t kUnitsSlack = kPackSlack * kUnitsB / kPanel;  // no part has more steps
constexpr int64_t kUnitsShared = 512 << 10;  // a packed B that all threads read: 2 MiB, their part of the last cache
// Bytes of 16 columns of B and 6 rows of A that are worked on at once where A is packed too: they stay in the first
// cache.
constexpr int64_t kSharedBytes = 22 << 10;
// Rows of a transposed A that are packed side by side for all tasks: eight tiles of AVX-512's kernel, three vectors.
constexpr int64_t kGroupA = 48;
// Of both operands where they are read in place. Longer rows lie too far apart for the second cache: packing costs
// less.
constexpr int64_t kLongestRow = 512;
constexpr int64_t kPackSteps = 32;    // of both operands at once; divides a part
constexpr int64_t kLongest = 1024;    // steps at once where A is read in place
constexpr int64_t kPackedPart = 128;  // steps at once where sums are kept anyway
constexpr int64_t kLeastRows = 96;    // of a task: packing a panel of B then costs about a twentieth of using it
constexpr int64_t kStreamRows = 16;   // up to here B is read at the speed of memory
constexpr double kSerialFlops = 1e6;  // about 2 µs: less than waking the threads costs

struct Workspace {
  char *a, *b;
  float* partial;
  Workspace() {
    static_assert((kUnitsA + kUnitsSlack + kUnitsB + kUnitsPartial) * 4 <= kThreadWorkspace);
    static_assert(2 * kUnitsShared * 4 <= kSharedWorkspace);
    a = thread_workspace(), b = a + (kUnitsA + kUnitsSlack) * 4, partial = reinterpret_cast<float*>(b + kUnitsB * 4);
  }
};

// How the output is cut. The cut never changes a result, so it may follow the number of threads.
struct Plan {
  const Gemm& g;
  const Micro& micro;
  Unit unit;
  int64_t m, n, k, steps;
  int64_t pair;                 // elements of k in a step
  bool in_place;                // a transposed A and its B are read where they stand
  bool pack_a, copy_a, stream;  // copy_a: packed as rows
  bool symmetric;               // a matrix times its own transpose: what is above the diagonal is mirrored
  int64_t most_shared;          // units
  // All of B, in bytes: each part of k on its own, panel by panel; a `whole` one was packed before, all of k at once.
  char* shared = nullptr;
  bool whole_b = false;
  float* shared_a = nullptr;  // a transposed A, part by part, where it fits beside B: blocks of six rows, or groups
  int64_t part;               // steps taken at once
  int64_t rows, group;        // of a task: rows, panels
  int64_t row_tasks, tasks;

  Plan(const Gemm& gemm, const Micro& mi, Unit u) : g(gemm), micro(mi), unit(u) {
    m = g.c.rows, n = g.c.cols, k = g.trans_a ? g.a.rows : g.a.cols;
    pair = unit == Unit::kBf16Pair ? 2 : 1;
    symmetric = m == n && g.a.p == g.b.p && g.a.ld == g.b.ld && g.trans_a != g.trans_b && m > kLeastRows &&
                !g.accumulate && !g.bias && !g.b_packed;
    steps = (k + pair - 1) / pair;
    const bool clash =
        micro.clash > 0 && g.a.ld * static_cast<int64_t>(size_of(g.a.type)) % micro.clash == 0 && n > kPanel;
    in_place = micro.strided && g.trans_a && !g.trans_b && !g.b_packed && n % 16 == 0 && m > kStreamRows &&
               std::max(m, n) <= kLongestRow;
    pack_a = (g.trans_a && !in_place) || k % pair != 0 || unit == Unit::kBf16Widened || clash;
    copy_a = pack_a && !g.trans_a && micro.blocks;
    most_shared = pack_a && (micro.blocks || g.trans_a) ? 2 * kUnitsShared : kUnitsShared;
    const int64_t panels = (n + kPanel - 1) / kPanel, enough = num_threads() == 1 ? 1 : 8 * num_threads();
    const int64_t at_once = even_part(pack_a ? kSharedBytes / (16 * micro.b_bytes + 6 * 4) : kLongest);
    whole_b = g.b_packed != nullptr;
    stream = !pack_a && m <= kStreamRows && !whole_b;
    if (in_place) {
      part = even_part(kPackedPart);
      cut_shared(panels);
      return;
    }
    if (whole_b) {
      shared = static_cast<char*>(const_cast<void*>(g.b_packed));
      part = at_once;
      cut_shared(panels);
      return;
    }
    if (stream) {
      // Few rows: B goes through the first cache once, a short part of a panel at a time.
      part = std::min(steps, kPackedPart), rows = m, group = std::min<int64_t>(4, panels);
    } else if (panels * kPanel * steps <= most_shared && m > kLeastRows) {
      part = !pack_a ? steps : micro.blocks ? at_once : even_part(kLongest);
      const int64_t units_b = panels * kPanel * steps, units_both = units_b + parts() * part_a();
      const bool both = g.trans_a && units_both <= most_shared;
      if (!both && pack_a) part = at_once;
      auto* memory = reinterpret_cast<float*>(shared_workspace());
      shared = reinterpret_cast<char*>(memory);
      if (both) shared_a = memory + units_b;
      cut_shared(panels);
      return;
    } else if (!pack_a && steps * kPanel <= kUnitsB) {
      // Whole panels of B. With a short k several stand side by side, so that rows of C are written in longer runs.
      part = steps, rows = m;
      group = std::clamp<int64_t>(kUnitsB / 4 / kPanel / steps, 1, panels);
    } else {
      // Parts of k, sums kept between them: a part of every operand is read in whole rows where it fits.
      part = std::min(steps, kPackedPart);
      rows = std::min(m, pack_a ? kUnitsA / kPackedPart / 2 : 2 * kUnitsA / kPackedPart / 2);
      group = std::clamp<int64_t>(kUnitsPartial / kPanel / panel_width(rows), 1, panels);
      if (n <= kPanel && pack_a && !copy_a) {
        rows = std::min(m, kUnitsPartial / kPanel);
        part = std::min({steps, kUnitsA / panel_width(rows), kUnitsB / kPanel});
      }
    }
    // Cut finer for the threads where it costs least: packing B again for fewer rows, or A for fewer panels.
    auto count = [&] { return (m + rows - 1) / rows * ((panels + group - 1) / group); };
    while (count() < enough && (rows > kLeastRows || group > 1)) {
      const bool cut_group =
          rows <= kLeastRows || (group > 1 && (stream || (pack_a ? 80 * group > rows : part < steps)));
      if (cut_group)
        group = (group + 1) / 2;
      else
        rows = std::max(kLeastRows, (rows / 2 + micro.rows - 1) / micro.rows * micro.rows);
    }
    row_tasks = (m + rows - 1) / rows;
    tasks = count();
  }

  // Columns of C at a time so that their part of B is packed once for all tasks; all of them where that is so or brings
  // nothing.
  int64_t columns() const {
    if (shared || !pack_a || !micro.blocks || m <= kLeastRows || most_shared < kPanel * steps) return n;
    const int64_t panels = (n + kPanel - 1) / kPanel, at_once = most_shared / (kPanel * steps),
                  times = (panels + at_once - 1) / at_once;
    return (panels + times - 1) / times * kPanel;
  }
  int64_t parts() const { return (steps + part - 1) / part; }
  // Parts of at most so many steps, about as long as each other, in whole steps of pack_rows.
  int64_t even_part(int64_t most) const {
    const int64_t count = (steps + most - 1) / most;
    return std::min(steps, ((steps + count - 1) / count + kPackSteps - 1) / kPackSteps * kPackSteps);
  }
  bool grouped_a() const { return shared_a && !micro.blocks; }
  // Units of a part of shared_a.
  int64_t part_a() const {
    return micro.blocks ? (m + 5) / 6 * packed_six(part) : (m + kGroupA - 1) / kGroupA * kGroupA * part;
  }
  int64_t units_a(int64_t r) const {
    if (!micro.blocks) return panel_width(r) * part;
    return copy_a ? r * copied_row(part) : (r + 5) / 6 * packed_six(part);
  }

  // The cut that ends soonest, counted in multiply-adds: a task's own, packing its A, and a little for starting it; one
  // thread waits for half of a task at the end.
  void cut_shared(int64_t panels) {
    constexpr int64_t kStart = 20000;
    const bool own_a = pack_a && !shared_a;
    const int64_t pack_cost = copy_a ? 4 : own_a ? 16 : 0, least = grouped_a() ? kGroupA : micro.rows;
    const int64_t threads = num_threads();
    double best = 0;
    // Further than 64 where no task's A would fit what a thread keeps: a transposed A of 12,288 rows and more, as the
    // head's gradient has.
    const int64_t fewest = symmetric ? (m + kGroupA - 1) / kGroupA : 1;  // short runs of rows end near the diagonal
    for (int64_t down = fewest; down <= 64 || best == 0; down += down < 4 ? 1 : down / 2) {
      const int64_t r = std::min(m, ((m + down - 1) / down + least - 1) / least * least);
      if (own_a && units_a(r) > kUnitsA) continue;
      for (int64_t across = 1; across <= panels; across += across < 4 ? 1 : across / 2) {
        const int64_t g = (panels + across - 1) / across;
        if (part < steps && panel_width(r) * g * kPanel > kUnitsPartial) continue;
        const int64_t n_rows = (m + r - 1) / r, count = n_rows * ((panels + g - 1) / g);
        const double largest = static_cast<double>(r * steps * (g * kPanel + pack_cost) + kStart);
        const int64_t passes = (panels + g - 1) / g;
        const double all = static_cast<double>(m * steps * (panels * kPanel + passes * pack_cost) + count * kStart);
        const double ends = std::max(largest, all / static_cast<double>(threads)) + (threads > 1 ? largest / 2 : 0);
        if (best == 0 || ends < best) best = ends, rows = r, group = g, row_tasks = n_rows, tasks = count;
      }
    }
  }
};

const char* bytes(const ConstMat& m, int64_t row, int64_t col) {
  return static_cast<const char*>(m.p) + static_cast<size_t>(row * m.ld + col) * size_of(m.type);
}

void pack(const Plan& p, const ConstMat& x, bool left, bool k_contiguous, int64_t first, int64_t count, int64_t width,
          int64_t s, void* to) {
  PackCall c;
  const int64_t k0 = s * p.pair;
  c.p = k_contiguous ? bytes(x, first, k0) : bytes(x, k0, first);
  c.ld = x.ld, c.k_contiguous = k_contiguous, c.count = count, c.width = width;
  c.k = std::min(p.part * p.pair, p.k - k0), c.to = to, c.left = left;
  p.micro.pack(c);
}

void pack_columns(const Plan& p, int64_t col, int64_t s, void* to) {
  const int64_t n = std::min(kPanel, p.n - col);
  pack(p, p.g.b, false, p.g.trans_b, col, n, panel_width(n), s, to);
}

// Where steps from s on of the panel at `col` lie: in a whole B its blocks of 16 columns (or the panel) have all of k.
char* shared_b(const Plan& p, int64_t col, int64_t s) {
  const int64_t row = p.whole_b && p.micro.blocks ? 16 : panel_width(std::min(kPanel, p.n - col));
  return p.shared + (col * p.steps + s * row) * p.micro.b_bytes;
}

// Where a group of rows of a transposed A lies, a part of k.
float* group_a(const Plan& p, int64_t row, int64_t s) {
  return p.shared_a + s / p.part * p.part_a() + row * std::min(p.part, p.steps - s);
}

// Steps [s, s + count) of both operands for all tasks, in whole rows of a transposed A: a task's few columns of it
// would be short reads far apart. Blocks of AVX2's kernel alone.
void pack_rows(const Plan& p, int64_t s, int64_t count) {
  const int64_t begin = s / p.part * p.part, length = std::min(p.part, p.steps - begin);
  PackCall c;
  c.p = bytes(p.g.a, s, 0), c.ld = p.g.a.ld, c.k_contiguous = false, c.count = c.width = p.m, c.k = count,
  c.left = true;
  c.down = packed_six(length), c.to = p.shared_a + begin / p.part * p.part_a() + (s - begin) * 6;
  p.micro.pack(c);
  for (int64_t col = 0; col < p.n; col += kPanel) {
    PackCall b;
    b.count = std::min(kPanel, p.n - col), b.width = panel_width(b.count), b.k = count, b.ld = p.g.b.ld,
    b.k_contiguous = p.g.trans_b;
    b.p = p.g.trans_b ? bytes(p.g.b, col, s) : bytes(p.g.b, s, col);
    b.down = 16 * length, b.to = shared_b(p, col, begin) + (s - begin) * 16 * p.micro.b_bytes;
    p.micro.pack(b);
  }
}

struct Task {
  const Plan& p;
  const Gemm& g;
  Workspace& w;
  int64_t row, rows, col0, col1;
  PanelCall c;

  Task(const Plan& plan, int64_t index, Workspace& work) : p(plan), g(plan.g), w(work) {
    // An eighth of the rows after another, so that a thread works on those that it worked on in the operation before;
    // within it all rows for the same columns of B.
    const int64_t across = p.tasks / p.row_tasks, eighth = (p.row_tasks + 7) / 8, part = index / (eighth * across),
                  left = index - part * eighth * across, here = std::min(eighth, p.row_tasks - part * eighth);
    row = (part * eighth + left % here) * p.rows, rows = std::min(p.rows, p.m - row);
    col0 = left / here * p.group * kPanel, col1 = std::min(p.n, col0 + p.group * kPanel);
    c.ldc = g.c.ld, c.c_bf16 = g.c.type == DType::kBF16, c.accumulate = g.accumulate, c.alpha = g.alpha;
    c.bias_bf16 = g.bias_type == DType::kBF16, c.far = true, c.b_steps = p.whole_b ? p.steps : 0;
    if (p.in_place) c.b_step = g.b.ld * static_cast<int64_t>(size_of(g.b.type));
  }
  void set_a(int64_t from, int64_t s) {
    const int64_t ld = g.a.ld * static_cast<int64_t>(size_of(g.a.type));
    if (p.in_place)
      c.a = bytes(g.a, s, row + from), c.a_row = 4, c.a_step = ld;
    else
      c.a = bytes(g.a, row + from, s * p.pair), c.a_row = ld, c.a_step = 4;
  }
  // Columns from `col` on, steps from s on: where they stand, packed here, or by the product for all.
  const void* pack_b(int64_t col, int64_t s, void* to) {
    if (p.in_place) return bytes(g.b, s, col);
    if (p.shared) return shared_b(p, col, s);
    pack_columns(p, col, s, to);
    return to;
  }
  void multiply(int64_t from, int64_t count, int64_t col, const void* b) {
    if (p.symmetric && col >= row + from + count) return;
    c.m = count, c.n = std::min(kPanel, p.n - col), c.b = b;
    c.c = const_cast<char*>(bytes(g.c, row + from, col));
    c.bias = g.bias ? static_cast<const char*>(g.bias) + static_cast<size_t>(col) * size_of(g.bias_type) : nullptr;
    p.micro.run(c);
  }
  // All of k at once: the task's panels are packed, then a few rows at a time go through all of them.
  void whole() {
    constexpr int64_t kRows = 96;
    c.steps = p.steps;
    auto panel = [&](int64_t col) -> void* {
      return p.shared ? shared_b(p, col, 0) : w.b + (col - col0) * p.steps * 4;
    };
    if (!p.shared)
      for (int64_t col = col0; col < col1; col += kPanel) pack_columns(p, col, 0, panel(col));
    const int64_t chunk = p.group > 1 ? kRows : rows;
    for (int64_t from = 0; from < rows; from += chunk) {
      set_a(from, 0);
      for (int64_t col = col0; col < col1; col += kPanel) multiply(from, std::min(chunk, rows - from), col, panel(col));
    }
  }
  void streamed() {
    for (int64_t col = col0; col < col1; col += kPanel)
      for (int64_t s = 0; s < p.steps; s += p.part) {
        c.steps = std::min(p.part, p.steps - s), c.partial = w.partial;
        c.from_partial = s > 0, c.to_partial = s + p.part < p.steps;
        set_a(0, s);
        pack_columns(p, col, s, w.b);
        multiply(0, rows, col, w.b);
      }
  }
  void parts() {
    const int64_t a_width = panel_width(rows);
    for (int64_t s = 0; s < p.steps; s += p.part) {
      c.steps = std::min(p.part, p.steps - s);
      c.from_partial = s > 0, c.to_partial = s + p.part < p.steps;
      const int64_t group = p.grouped_a() ? kGroupA : rows;  // rows that lie side by side
      if (p.grouped_a()) {
        c.a_row = 4, c.a_step = kGroupA * 4, c.packed = true;
      } else if (p.shared_a) {
        c.a = p.shared_a + s / p.part * p.part_a() + row / 6 * packed_six(c.steps), c.packed = true;
      } else if (p.pack_a) {
        pack(p, g.a, true, !g.trans_a, row, rows, a_width, s, w.a);
        c.a = w.a;
        if (p.copy_a)
          c.a_row = copied_row(c.steps) * 4, c.a_step = 4;
        else
          c.a_row = 4, c.a_step = a_width * 4, c.packed = true;
      } else {
        set_a(0, s);
      }
      for (int64_t col = col0; col < col1; col += kPanel) {
        const void* b = pack_b(col, s, w.b);
        for (int64_t from = 0; from < rows; from += group) {
          if (p.grouped_a()) c.a = group_a(p, row + from, s);
          c.partial = w.partial + (col - col0) * rows + from * kPanel;
          multiply(from, std::min(group, rows - from), col, b);
        }
      }
    }
  }
};

// What is above the diagonal, from below it: the sums of a product with its own transpose are the same bits on both
// sides.
template <typename T>
void mirror(const Mat& m) {
  constexpr int64_t kBlock = 16;
  T* c = static_cast<T*>(m.p);
  const int64_t blocks = (m.rows + kBlock - 1) / kBlock;
  parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * kBlock; row < std::min(m.rows, end * kBlock); row += kBlock)
      for (int64_t col = row; col < m.cols; col += kBlock)
        for (int64_t r = row; r < std::min(m.rows, row + kBlock); ++r)
          for (int64_t at = std::max(col, r + 1); at < std::min(m.cols, col + kBlock); ++at)
            c[r * m.ld + at] = c[at * m.ld + r];
  });
}

// Tiles where k is long enough to pay for them, however many rows there are: a row's bits do not depend on the others.
const Micro& micro_of(const Gemm& g, bool portable, Unit* unit) {
  const int64_t k = g.trans_a ? g.a.rows : g.a.cols;
  const Micro& best = best_micro(g.a.type == DType::kBF16, portable, unit);
  if (*unit != Unit::kBf16Pair || g.trans_a || k % 2 != 0 || k < kLeastTileDepth) return best;
  const Micro* amx = amx_micro();
  return amx ? *amx : best;
}

void task(const Plan& p, int64_t index) {
  Workspace w;
  Task t(p, index, w);
  if (p.stream)
    t.streamed();
  else if (p.part == p.steps && !p.pack_a && !p.in_place)
    t.whole();
  else
    t.parts();
}

}  // namespace

const Micro& best_micro(bool bf16, bool portable, Unit* unit) {
  *unit = bf16 ? Unit::kBf16Pair : Unit::kF32;
  const Micro* micro = portable ? nullptr : avx512_micro(*unit);
  if (!micro && !portable) micro = neon_micro(*unit);
  if (micro) return *micro;
  *unit = bf16 ? Unit::kBf16Widened : Unit::kF32;
  if (!portable) micro = avx2_micro(*unit);
  return micro ? *micro : portable_micro(*unit);
}

size_t panels_packed_bytes(const Gemm& g) {
  Unit unit;
  const Micro& micro = best_micro(g.b.type == DType::kBF16, false, &unit);
  const int64_t k = g.trans_b ? g.b.cols : g.b.rows, n = g.trans_b ? g.b.rows : g.b.cols;
  const int64_t steps = unit == Unit::kBf16Pair ? (k + 1) / 2 : k;
  return static_cast<size_t>(panel_width(n) * steps * micro.b_bytes);
}

void panels_pack(const Gemm& g, void* to) {
  Gemm all = g;  // a product of one row: what of B is packed does not depend on A
  all.a = {nullptr, 1, g.trans_b ? g.b.cols : g.b.rows, 0, g.b.type}, all.trans_a = false;
  all.c = {nullptr, 1, g.trans_b ? g.b.rows : g.b.cols, 0, DType::kF32};
  all.b_packed = to;
  Unit unit;
  const Micro& micro = best_micro(g.b.type == DType::kBF16, false, &unit);
  Plan p(all, micro, unit);
  p.part = p.steps;
  parallel_for(0, (p.n + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_columns(p, i * kPanel, 0, shared_b(p, i * kPanel, 0));
  });
}

void panels_gemm(const Gemm& gemm, bool portable) {
  Unit unit;
  const Micro& micro = micro_of(gemm, portable, &unit);
  Gemm g = gemm;
  if (portable) g.b_packed = nullptr;  // it lies as the best kernel wants it
  const Plan p(g, micro, unit);
  if (const int64_t columns = p.columns(); columns < p.n) {
    for (int64_t col = 0; col < p.n; col += columns) {
      Gemm some = g;
      some.b.p = g.trans_b ? bytes(g.b, col, 0) : bytes(g.b, 0, col), some.c.p = const_cast<char*>(bytes(g.c, 0, col));
      some.c.cols = std::min(columns, p.n - col), (g.trans_b ? some.b.rows : some.b.cols) = some.c.cols;
      if (g.bias) some.bias = static_cast<const char*>(g.bias) + static_cast<size_t>(col) * size_of(g.bias_type);
      panels_gemm(some, portable);
    }
    return;
  }
  // Below this all is done by the calling thread.
  const int64_t alone =
      2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) < kSerialFlops
          ? INT64_MAX / 2
          : 1;
  if (p.grouped_a()) {
    const int64_t parts = p.parts(), panels = (p.n + kPanel - 1) / kPanel, groups = (p.m + kGroupA - 1) / kGroupA;
    parallel_for(0, (panels + groups) * parts, alone, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t s = i % parts * p.part, at = i / parts, row = (at - panels) * kGroupA;
        if (at < panels)
          pack_columns(p, at * kPanel, s, shared_b(p, at * kPanel, s));
        else
          pack(p, p.g.a, true, false, row, std::min(kGroupA, p.m - row), kGroupA, s, group_a(p, row, s));
      }
    });
  } else if (p.shared_a) {
    parallel_for(0, p.steps, alone == 1 ? kPackSteps : alone, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; s += kPackSteps) pack_rows(p, s, std::min(kPackSteps, end - s));
    });
  } else if (p.shared && !p.whole_b) {
    const int64_t parts = p.parts(), panels = (p.n + kPanel - 1) / kPanel;
    parallel_for(0, panels * parts, alone, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        pack_columns(p, i / parts * kPanel, i % parts * p.part, shared_b(p, i / parts * kPanel, i % parts * p.part));
    });
  }
  parallel_for(0, p.tasks, alone, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) task(p, i);
  });
  if (p.symmetric) g.c.type == DType::kF32 ? mirror<float>(g.c) : mirror<uint16_t>(g.c);
}

}  // namespace mxt::kernels::cpu
