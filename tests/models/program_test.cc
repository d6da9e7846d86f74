// The step program as data: what is printed is what runs, the same graph and plan give the same text, and a program
// that was made twice is bound to different addresses and computes the same.
#include <map>
#include <set>

#include "models/modules.h"
#include "models/tiny.h"
#include "runtime/spec.h"

namespace mxt {
namespace {

models::BuildOptions training(const models::LoraPlan* lora) {
  models::BuildOptions o;
  o.type = DType::kF32;
  o.lora = lora;
  o.train_base = lora == nullptr;
  o.positions = 64;
  o.head_chunk = 8;
  return o;
}

// Every operand of a call: its address and, of a matrix, its rows.
struct Operands {
  std::vector<std::pair<const void*, int64_t>> all;
  template <typename M>
  void mat(std::string_view, M& m, kernels::Use) {
    all.push_back({m.p, m.rows});
  }
  template <typename P>
  void array(std::string_view, P& p, DType, int64_t, kernels::Use) {
    all.push_back({p, -1});
  }
  void adds(bool&) {}
  void draws(float, uint64_t&, uint64_t&, int64_t&) {}
  void documents(int64_t&, int64_t&) {}
  void cache(int64_t&, int64_t&) {}
  void page(int64_t&) {}
};

std::vector<std::pair<const void*, int64_t>> operands_of(const kernels::AnyCall& call) {
  kernels::AnyCall copy = call;
  Operands o;
  std::visit([&](auto& c) { kernels::operands(c, o); }, copy);
  return o.all;
}

TEST(ProgramSpec, WhatRunsIsWhatIsPrinted) {
  models::LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!models::is_of_layers(module)) return std::nullopt;
    return models::LoraTarget{8, 16};
  };
  lora.dropout = 0.1f;
  for (const models::LoraPlan* adapters :
       {static_cast<const models::LoraPlan*>(nullptr), static_cast<const models::LoraPlan*>(&lora)}) {
    tiny::Model m(tiny::golden("qwen3_tied"), training(adapters), kernels::cpu_ops());
    const runtime::ProgramSpec& spec = m.program.spec();
    std::vector<size_t> made;
    std::map<runtime::BufferId, const std::byte*> bases;  // a buffer that does not move has one address
    std::map<std::pair<size_t, size_t>, int64_t> rows;
    m.program.set_watch([&](size_t i, const kernels::AnyCall& call) {
      made.push_back(i);
      const runtime::StepCall& planned = spec.calls[i];
      ASSERT_EQ(kernels::name_of(call), kernels::name_of(planned.call));
      const auto operands = operands_of(call);
      ASSERT_EQ(operands.size(), planned.operands.size());
      for (size_t k = 0; k < operands.size(); ++k) {
        const runtime::Ref ref = planned.operands[k].ref;
        ASSERT_EQ(ref.buffer < 0, operands[k].first == nullptr) << kernels::name_of(call) << " operand " << k;
        if (ref.buffer < 0) continue;
        const auto* base = static_cast<const std::byte*>(operands[k].first) - ref.offset;
        // What moves with a chunk, and what on the CPU is another buffer's memory by another name.
        const runtime::Source source = spec.buffers[static_cast<size_t>(ref.buffer)].source;
        if (source == runtime::Source::kWindow || source == runtime::Source::kHostDocuments) continue;
        EXPECT_EQ(bases.try_emplace(ref.buffer, base).first->second, base)
            << spec.buffers[static_cast<size_t>(ref.buffer)].name;
        if (operands[k].second >= 0 && planned.operands[k].rows.constant())
          rows.try_emplace({i, k}, operands[k].second);
      }
    });
    const double loss = m.loss(tiny::read_rows(tiny::golden("qwen3_tied"), 0, 2));
    EXPECT_TRUE(std::isfinite(loss));
    // In order, every call that is made always once or, in a loop, once a chunk; none that is not in the list.
    const std::string text = runtime::print(spec, kernels::cpu_ops());
    size_t always = 0;
    for (size_t i = 0; i < spec.calls.size(); ++i) {
      always += spec.calls[i].when == runtime::kAlways;
      EXPECT_NE(text.find("\n" + std::to_string(i) + " " + std::string(kernels::name_of(spec.calls[i].call))),
                std::string::npos);
    }
    const std::set<size_t> different(made.begin(), made.end());
    EXPECT_GE(different.size(), always);
    const auto in_loop = [&](size_t i) { return i >= spec.loops.at(0).first && i < spec.loops.at(0).last; };
    for (size_t k = 1; k < made.size(); ++k)
      EXPECT_TRUE(made[k] > made[k - 1] || (in_loop(made[k]) && in_loop(made[k - 1]))) << made[k];
    for (const auto& [at, n] : rows) {
      const auto planned = operands_of(spec.calls[at.first].call);
      EXPECT_EQ(planned[at.second].second, n);
    }
    // Buffers do not overlap where both have memory of their own.
    EXPECT_EQ(std::set<const std::byte*>([&] {
                std::set<const std::byte*> s;
                for (const auto& [id, base] : bases) s.insert(base);
                return s;
              }())
                  .size(),
              bases.size());
  }
}

TEST(ProgramSpec, TheSameGraphAndPlanGiveTheSameText) {
  const models::BuildOptions o = training(nullptr);
  const auto config = formats::WeightSource::open(tiny::golden("qwen3_tied"))->config();
  std::set<std::string> texts;
  for (int i = 0; i < 2; ++i) {
    const graph::Graph g = models::build(config, o);
    texts.insert(runtime::print(runtime::lower(g, {}, kernels::cpu_ops(), {256, 0, false}), kernels::cpu_ops()));
  }
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_EQ(texts.begin()->find("0x"), std::string::npos);  // no address
  const graph::Graph g = models::build(config, o);
  texts.insert(runtime::print(runtime::lower(g, {}, kernels::cpu_ops(), {512, 0, false}), kernels::cpu_ops()));
  EXPECT_EQ(texts.size(), 2u);  // another size of a pass is another program
}

TEST(ProgramSpec, PlacesAreReadBack) {
  for (const runtime::Ref r :
       {runtime::Ref{0, 0}, runtime::Ref{7, 4096}, runtime::Ref{40000, (int64_t{1} << 43) + 64}}) {
    const runtime::Ref back = runtime::ref_of(runtime::place(r));
    EXPECT_EQ(back.buffer, r.buffer);
    EXPECT_EQ(back.offset, r.offset);
  }
  EXPECT_EQ(runtime::place({}), nullptr);
  EXPECT_EQ(runtime::ref_of(nullptr).buffer, -1);
}

}  // namespace
}  // namespace mxt
