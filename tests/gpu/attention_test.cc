#include "pair.h"

namespace mxt::test {
namespace {

using namespace kernels;

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads, kv, d, window;
  bool uniform;  // say so, which lets a dense kernel run
  float dropout = 0;
  bool both_sides = false;
};

void compare(const Case& c, DType t, int algo, bool exact_lse) {
  std::vector<int32_t> offsets{0};
  int32_t longest = 0;
  for (int32_t n : c.lengths) offsets.push_back(offsets.back() + n), longest = std::max(longest, n);
  const int64_t tokens = offsets.back(), q_cols = c.heads * c.d, kv_cols = c.kv * c.d, cols = q_cols + 2 * kv_cols;
  Matrix qkv(tokens, cols, t), out(tokens, q_cols, t), lse(c.heads, tokens, DType::kF32), dout(tokens, q_cols, t),
      d(tokens, cols, t);
  qkv.fill(1), dout.fill(2), out.poison(), d.poison(), lse.poison();
  Array<int32_t> cu(offsets);
  auto columns = [](Mat m, int64_t first, int64_t count) {
    m.p = static_cast<std::byte*>(m.p) + static_cast<size_t>(first) * size_of(m.type);
    m.cols = count;
    return m;
  };
  auto common = [&](auto& a, Side on) {
    const Mat m = qkv.on(on);
    a.q = columns(m, 0, q_cols), a.k = columns(m, q_cols, kv_cols), a.v = columns(m, q_cols + kv_cols, kv_cols),
    a.out = out.on(on);
    a.cu_seqlens = cu.on(on), a.documents = static_cast<int64_t>(c.lengths.size()), a.heads = c.heads,
    a.kv_heads = c.kv, a.head_dim = c.d, a.window = c.window;
    a.longest = longest, a.scale = 1.0f / std::sqrt(static_cast<float>(c.d)), a.algo = algo;
    a.dropout = c.dropout, a.seed = 0x1234567890abcdefu, a.stream = 77, a.first_row = c.heads == 2 ? 1001 : 34;
  };
  both([&](Ops& ops, Side on) {
    Attention a;
    common(a, on);
    a.lse = lse.f(on), a.causal = !c.both_sides;
    ops.attention(a);
  });
  EXPECT_LT(out.error(), t == DType::kBF16 ? 6e-3 : 2e-5);
  if (exact_lse) {
    EXPECT_NEAR_HOST(lse);
  }
  both([&](Ops& ops, Side on) {
    AttentionGrad a;
    common(a, on);
    a.lse = lse.f(on), a.dout = dout.on(on), a.host_cu_seqlens = offsets.data();
    const Mat m = d.on(on);
    a.dq = columns(m, 0, q_cols), a.dk = columns(m, q_cols, kv_cols), a.dv = columns(m, q_cols + kv_cols, kv_cols);
    a.causal = !c.both_sides;
    ops.attention_grad(a);
  });
  EXPECT_LT(d.error(), t == DType::kBF16 ? 1.5e-2 : 5e-5);
}

const Case kCases[] = {
    {{17}, 2, 2, 64, 0, false},       {{128, 128}, 4, 2, 128, 0, true},    {{1, 70, 3, 40}, 4, 1, 64, 0, false},
    {{200, 56}, 4, 2, 256, 0, false}, {{128, 128}, 4, 1, 256, 0, true},    {{90}, 2, 2, 192, 0, false},
    {{200}, 2, 1, 128, 32, false},    {{33, 130, 1}, 3, 3, 64, 16, false}, {{256}, 8, 2, 128, 0, true},
};

TEST_F(Gpu, PlainAttention) {
  for (DType t : kTypes)
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {} documents, {}/{} heads of {}, window {}", name_of(t), c.lengths.size(), c.heads,
                               c.kv, c.d, c.window));
      compare(c, t, 1, true);
    }
  compare({{40, 9}, 2, 1, 20, 0, false}, DType::kF32, 1, true);
  compare({{40, 9}, 2, 1, 256, 0, false}, DType::kBF16, 1, true);
}

TEST_F(Gpu, FlashAttention) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(
        fmt::format("{} documents, {}/{} heads of {}, window {}", c.lengths.size(), c.heads, c.kv, c.d, c.window));
    compare(c, DType::kBF16, 2, true);
  }
  Case many{{}, 4, 2, 64, 0, false};
  for (int i = 0; i < 300; ++i) many.lengths.push_back(i % 97 == 0 ? 150 + i : i % 5);
  compare(many, DType::kBF16, 2, true);
  many.window = 24;
  compare(many, DType::kBF16, 2, true);
}

// Patches of a picture see all of it, those after them too; heads of 72 as Qwen3-VL's tower has.
TEST_F(Gpu, AttentionToBothSides) {
  for (Case c :
       {Case{{1, 256, 36}, 4, 4, 72, 0, false}, {{64, 64}, 16, 16, 64, 0, true}, {{130, 7}, 2, 2, 16, 0, false}}) {
    c.both_sides = true;
    for (const int algo : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} pictures, {} heads of {}, algorithm {}", c.lengths.size(), c.heads, c.d, algo));
      compare(c, DType::kBF16, algo, algo == 1 || algo == 2);
      compare(c, DType::kF32, algo, true);
    }
  }
}

// Which weights are kept is the same on every device and in every kernel: nothing else could agree with the reference.
TEST_F(Gpu, DropoutOfAttention) {
  for (Case c :
       {Case{{64, 64, 64}, 6, 6, 64, 0, true}, {{130, 1, 7}, 4, 2, 128, 0, false}, {{33, 95}, 2, 1, 64, 20, false}}) {
    c.dropout = 0.2f;
    for (const int algo : {0, 1, 2, 3}) {
      SCOPED_TRACE(
          fmt::format("{} documents, {}/{} heads of {}, algorithm {}", c.lengths.size(), c.heads, c.kv, c.d, algo));
      compare(c, DType::kBF16, algo, true);
      if (algo == 1) compare(c, DType::kF32, algo, true);
    }
  }
}

TEST_F(Gpu, FlashAttentionOfLongDocumentsBesidePlainAttentionTwice) {
  const std::vector<int32_t> offsets{0, 3000, 3100, 8192};
  const int64_t tokens = 8192, heads = 8, kv = 2, d = 128, q_cols = heads * d, kv_cols = kv * d,
                cols = q_cols + 2 * kv_cols;
  Matrix qkv(tokens, cols, DType::kBF16), dout(tokens, q_cols, DType::kBF16), lse(heads, tokens, DType::kF32),
      out(tokens, q_cols, DType::kBF16), first(tokens, cols, DType::kBF16), again(tokens, cols, DType::kBF16),
      want(tokens, cols, DType::kBF16);
  qkv.fill(1), dout.fill(2);
  Array<int32_t> cu(offsets);
  auto columns = [](Mat m, int64_t from, int64_t count) {
    m.p = static_cast<std::byte*>(m.p) + static_cast<size_t>(from) * size_of(m.type);
    m.cols = count;
    return m;
  };
  Ops& ops = *gpu(nullptr)->ops;
  for (Matrix* to : {&first, &again, &want}) {
    auto common = [&](auto& a) {
      const Mat m = qkv.on(Side::kDevice);
      a.q = columns(m, 0, q_cols), a.k = columns(m, q_cols, kv_cols), a.v = columns(m, q_cols + kv_cols, kv_cols),
      a.out = out.on(Side::kDevice), a.lse = lse.f(Side::kDevice);
      a.cu_seqlens = cu.on(Side::kDevice), a.documents = 3, a.heads = heads, a.kv_heads = kv, a.head_dim = d,
      a.longest = 5092, a.scale = 0.088f, a.algo = to == &want ? 1 : 2;
    };
    Attention a;
    common(a);
    AttentionGrad g;
    common(g);
    g.host_cu_seqlens = offsets.data(), g.dout = dout.on(Side::kDevice);
    const Mat m = to->on(Side::kDevice);
    g.dq = columns(m, 0, q_cols), g.dk = columns(m, q_cols, kv_cols), g.dv = columns(m, q_cols + kv_cols, kv_cols);
    ops.attention(a);
    ops.attention_grad(g);
  }
  want.download();
  again.download();
  EXPECT_EQ(first.error_against(again), 0.0);
  EXPECT_LT(first.error_against(want), 2e-2);
}

TEST_F(Gpu, CudnnAttention) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(
        fmt::format("{} documents, {}/{} heads of {}, window {}", c.lengths.size(), c.heads, c.kv, c.d, c.window));
    try {
      compare(c, DType::kBF16, 3, false);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

// Our gradient of cuDNN's forward pass, where it covers the call: heads shared by one, two, three and six; documents of
// every length around a tile's, and so many that their list is made by more than one warp.
void compare_tiles(int64_t d) {
  Case many{{}, 2, 1, d, 0, false};
  for (int i = 0; i < 200; ++i) many.lengths.push_back(i % 41 == 0 ? 60 + i : i % 7);
  for (const Case& c : {Case{{64}, 1, 1, d, 0, true}, Case{{17}, 2, 2, d, 0, false}, Case{{128, 128}, 4, 2, d, 0, true},
                        Case{{1, 70, 3, 140}, 6, 1, d, 0, false},
                        Case{{63, 64, 65, 127, 128, 129, 0, 191, 192, 193}, 3, 1, d, 0, false}, many}) {
    SCOPED_TRACE(fmt::format("{} documents, {}/{} heads of {}", c.lengths.size(), c.heads, c.kv, d));
    compare(c, DType::kBF16, 0, false);
  }
  // Windows that end within a tile, at its edge and one key on, in blocks of one tile and of two.
  for (const int64_t window : {1, 2, 63, 64, 65, 66, 127, 128, 129, 200, 513}) {
    SCOPED_TRACE(fmt::format("heads of {}, window {}", d, window));
    compare({{63, 64, 65, 0, 193, 320, 1}, 3, 1, d, window, false}, DType::kBF16, 0, false);
    compare({{256, 256}, 4, 2, d, window, true}, DType::kBF16, 0, false);
    many.window = window;
    compare(many, DType::kBF16, 0, false);
  }
  for (const int64_t window : {0, 513}) {
    SCOPED_TRACE(fmt::format("heads of {}, window {}", d, window));
    compare({{1300}, 2, 1, d, window, false}, DType::kBF16, 0, false);
    compare({{129, 700, 300, 257}, 2, 2, d, window, false}, DType::kBF16, 0, false);
  }
}
TEST_F(Gpu, CudnnTilesAttentionOf64) { compare_tiles(64); }
TEST_F(Gpu, CudnnTilesAttentionOf128) { compare_tiles(128); }

// More documents of a length than one call takes, lengths of every kind in between, and empty ones.
TEST_F(Gpu, CudnnAttentionOfManyDocuments) {
  Case c{{}, 4, 2, 64, 0, false};
  for (int i = 0; i < 700; ++i) c.lengths.push_back(i % 97 == 0 ? 150 + i : i % 5);
  compare(c, DType::kBF16, 3, false);
  Case with_window = c;
  with_window.window = 24;
  compare(with_window, DType::kBF16, 3, false);
}

// Long documents whose scores do not fit a call's workspace: taken by groups of heads, against the plain kernel on the
// same device.
TEST_F(Gpu, CudnnAttentionInParts) {
  for (const auto& [lengths, heads, kv, d] : {std::tuple{std::vector<int32_t>{8192, 8192}, 32, 8, 64},
                                              std::tuple{std::vector<int32_t>{5000, 100, 8000}, 16, 4, 128},
                                              std::tuple{std::vector<int32_t>{24000}, 16, 16, 64}}) {
    SCOPED_TRACE(fmt::format("{} documents, {}/{} heads of {}", lengths.size(), heads, kv, d));
    std::vector<int32_t> offsets{0};
    for (int32_t n : lengths) offsets.push_back(offsets.back() + n);
    const int64_t tokens = offsets.back(), q_cols = heads * d, kv_cols = kv * d, cols = q_cols + 2 * kv_cols;
    Matrix qkv(tokens, cols, DType::kBF16), dout(tokens, q_cols, DType::kBF16), lse(heads, tokens, DType::kF32),
        out(tokens, q_cols, DType::kBF16), got(tokens, cols, DType::kBF16), tiles(tokens, cols, DType::kBF16),
        want(tokens, cols, DType::kBF16);
    qkv.fill(1), dout.fill(2);
    Array<int32_t> cu(offsets);
    Ops& ops = *gpu(nullptr)->ops;
    device::Accelerator& device = *gpu(nullptr)->device;
    auto columns = [](Mat m, int64_t first, int64_t count) {
      m.p = static_cast<std::byte*>(m.p) + static_cast<size_t>(first) * size_of(m.type);
      m.cols = count;
      return m;
    };
    for (int algo : {3, 0, 1}) {
      auto common = [&](auto& a) {
        const Mat m = qkv.on(Side::kDevice);
        a.q = columns(m, 0, q_cols), a.k = columns(m, q_cols, kv_cols), a.v = columns(m, q_cols + kv_cols, kv_cols),
        a.out = out.on(Side::kDevice), a.lse = lse.f(Side::kDevice);
        a.cu_seqlens = cu.on(Side::kDevice), a.documents = static_cast<int64_t>(lengths.size()), a.heads = heads,
        a.kv_heads = kv, a.head_dim = d;
        a.longest = *std::max_element(lengths.begin(), lengths.end()),
        a.scale = 1.0f / std::sqrt(static_cast<float>(d)), a.algo = algo;
      };
      Attention a;
      common(a);
      AttentionGrad g;
      common(g);
      g.host_cu_seqlens = offsets.data(), g.dout = dout.on(Side::kDevice);
      const Mat m = (algo == 3 ? got : algo == 0 ? tiles : want).on(Side::kDevice);
      g.dq = columns(m, 0, q_cols), g.dk = columns(m, q_cols, kv_cols), g.dv = columns(m, q_cols + kv_cols, kv_cols);
      const size_t bytes = std::max(ops.attention_scratch(a), ops.attention_grad_scratch(g));
      EXPECT_LT(bytes, size_t{6} << 30);
      void* scratch = device.allocate(bytes);
      ops.set_scratch(scratch, bytes);
      ops.attention(a);
      ops.attention_grad(g);
      device.synchronize();
      device.release(scratch);
    }
    want.download();
    EXPECT_LT(got.error_against(want), 2e-2);
    EXPECT_LT(tiles.error_against(want), 2e-2);
  }
}

TEST_F(Gpu, CachedAttentionAndItsStore) {
  for (DType t : kTypes)
    for (int64_t window : {0, 20}) {
      const int64_t heads = 6, kv = 2, d = 64, page = 16, pages = 12, requests = 3, max_pages = 4;
      const std::vector<int32_t> cu{0, 1, 6, 7}, context{33, 60, 1};
      Matrix q(7, heads * d, t), out(7, heads * d, t), k(7, kv * d, t), v(7, kv * d, t), kc(pages, kv * page * d, t),
          vc(pages, kv * page * d, t);
      q.fill(1), k.fill(2), v.fill(3), kc.fill(4), vc.fill(5), out.poison();
      Array<int32_t> cuq(cu), ctx(context), tables({3, 0, 7, 0, 1, 4, 11, 2, 9, 0, 0, 0}),
          slots({7 * 16 + 0, 4 * 16 + 7, -1, 11 * 16 + 9, 11 * 16 + 10, 2 * 16 + 11, 9 * 16});
      both([&](Ops& ops, Side on) {
        ops.store_cache({k.on(on), v.on(on), kc.p(on), vc.p(on), slots.on(on), page, kv, d});
        CachedAttention a;
        a.q = q.on(on), a.out = out.on(on), a.k_cache = kc.p(on), a.v_cache = vc.p(on), a.cu_q = cuq.on(on),
        a.context = ctx.on(on), a.tables = tables.on(on);
        a.requests = requests, a.max_pages = max_pages, a.page = page, a.heads = heads, a.kv_heads = kv, a.head_dim = d,
        a.window = window, a.scale = 0.125f;
        ops.cached_attention(a);
      });
      EXPECT_EQ(kc.error(), 0);
      EXPECT_EQ(vc.error(), 0);
      EXPECT_NEAR_HOST(out);
    }
}

// Long contexts: few queries share their keys among blocks, many share keys among heads. Bit for bit the same.
TEST_F(Gpu, CachedAttentionWhateverStandsBeside) {
  struct Case {
    int64_t heads, kv, d, window, page;
  };
  const int64_t many = 80;
  for (DType t : kTypes)
    for (const auto& [heads, kv, d, window, page] :
         {Case{8, 2, 64, 0, 16}, Case{8, 2, 64, 700, 16}, Case{22, 2, 64, 0, 32}, Case{3, 3, 96, 0, 16},
          Case{8, 2, 128, 0, 16}, Case{8, 2, 128, 700, 16}, Case{8, 1, 128, 0, 48}, Case{8, 2, 136, 0, 16},
          Case{8, 2, 136, 700, 16}, Case{6, 1, 256, 0, 16}}) {
      SCOPED_TRACE(fmt::format("{} heads {} of {} d {} window {} page {}", name_of(t), heads, kv, d, window, page));
      const std::vector<int32_t> lengths{2050, 1, 512, 513, 1024, 700};
      const int64_t max_pages = 2560 / page, pages = 200, distinct = static_cast<int64_t>(lengths.size());
      Matrix kc(pages, kv * page * d, t), vc(pages, kv * page * d, t), q(many, heads * d, t), out(many, heads * d, t);
      kc.fill(4), vc.fill(5), q.fill(1), out.poison();
      std::vector<int32_t> table, context, cu{0};
      for (int64_t i = 0; i < many; ++i) {
        for (int64_t c = 0; c < heads * d; ++c) q.set(i, c, q.get(i % distinct, c));
        for (int64_t p = 0; p < max_pages; ++p)
          table.push_back(static_cast<int32_t>((p * 7 + i % distinct * 31) % pages));
        context.push_back(lengths[static_cast<size_t>(i % distinct)]), cu.push_back(static_cast<int32_t>(i + 1));
      }
      q.upload();
      Array<int32_t> tables(table), lasts(context), begins(cu);
      CachedAttention a;
      a.page = page, a.heads = heads, a.kv_heads = kv, a.head_dim = d, a.window = window, a.scale = 0.1f,
      a.max_pages = max_pages, a.requests = many;
      both([&](Ops& ops, Side on) {
        a.q = q.on(on), a.out = out.on(on), a.k_cache = kc.p(on), a.v_cache = vc.p(on), a.cu_q = begins.on(on),
        a.context = lasts.on(on), a.tables = tables.on(on);
        ops.cached_attention(a);
      });
      EXPECT_NEAR_HOST(out);
      out.download();
      for (int64_t i = 0; i < distinct; ++i) {
        Matrix one(1, heads * d, t);
        a.q = {static_cast<std::byte*>(q.p(Side::kDevice)) + static_cast<size_t>(i * heads * d) * size_of(t), 1,
               heads * d, heads * d, t};
        a.out = one.on(Side::kDevice), a.requests = 1;
        a.context = lasts.on(Side::kDevice) + i, a.tables = tables.on(Side::kDevice) + i * max_pages;
        gpu(nullptr)->ops->cached_attention(a);
        one.download();
        int64_t different = 0;
        for (int64_t c = 0; c < heads * d; ++c)
          for (int64_t same = i; same < many; same += distinct) different += one.get(0, c) != out.get(same, c);
        EXPECT_EQ(different, 0) << "request " << i;
      }
    }
}

}  // namespace
}  // namespace mxt::test
