// Qwen3-VL, and Qwen3.5 with its tower, against transformers' fp32 values (tools/golden/qwen3_vl.py): logits, loss and
// every gradient of rows with no picture, one and two, packed and by themselves, on every backend.
#include "runtime/pictures.h"
#include "image/processor.h"
#include "models/tiny.h"

namespace mxt {
namespace {

constexpr int64_t kMerge = 2;

// Rows of ids with their pictures, as a batch.
struct Shown {
  tiny::Packed packed;
  std::vector<float> pixels, features;
  std::vector<int32_t> grids, rows, time, down, across, axes;
  runtime::PictureBatch pictures;

  Shown(const std::string& folder, size_t from, size_t n) {
    image::Processor p = image::read_processor(folder, {});
    const std::string text = read_file(folder + "/rows.jsonl");
    size_t at = 0;
    for (size_t row = 0; at < text.size(); ++row) {
      const size_t end = text.find('\n', at);
      const Json j = Json::parse(text.substr(at, end - at));
      at = end + 1;
      if (row < from || row >= from + n) continue;
      const auto ids = j["input_ids"].get<std::vector<int32_t>>();
      std::vector<runtime::PlacedPicture> placed;
      int64_t t = 0;
      for (const auto& name : j.value("images", Json::array())) {
        const std::string file = folder + "/" + name.get<std::string>();
        const image::Picture fit = image::fit(p, image::read_picture(file), file);
        const image::Grid g = image::grid_of(p, fit.height, fit.width, file);
        const size_t begin = pixels.size();
        pixels.resize(begin + static_cast<size_t>(g.patches() * p.patch_values()));
        image::patches_of(p, g, fit.rgb.data(), pixels.data() + begin);
        while (ids[static_cast<size_t>(t)] != 90) ++t;
        placed.push_back({t, static_cast<int32_t>(g.height), static_cast<int32_t>(g.width)});
        for (int64_t i = 0; i < image::tokens_of(p, g); ++i, ++t)
          rows.push_back(static_cast<int32_t>(packed.ids.size() + static_cast<size_t>(t)));
        grids.insert(grids.end(), {static_cast<int32_t>(g.height), static_cast<int32_t>(g.width)});
      }
      const size_t first = time.size();
      for (auto* a : {&time, &down, &across}) a->resize(first + ids.size());
      runtime::positions_of(static_cast<int64_t>(ids.size()), placed, kMerge, time.data() + first, down.data() + first,
                            across.data() + first);
      packed.add(ids, j["labels"].get<std::vector<int32_t>>());
    }
    for (const auto* a : {&time, &down, &across}) axes.insert(axes.end(), a->begin(), a->end());
  }
  runtime::Batch batch() {
    runtime::Batch b = packed.batch();
    b.axes = axes.data();
    pictures.count = static_cast<int64_t>(grids.size()) / 2;
    pictures.tokens = static_cast<int64_t>(rows.size());
    pictures.grids = grids.data();
    pictures.pixels = features.empty() ? pixels.data() : nullptr;
    pictures.features = features.empty() ? nullptr : features.data();
    pictures.rows = rows.data();
    if (pictures.count > 0) b.pictures = &pictures;
    return b;
  }
};

class Pictures : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  kernels::Ops& ops() { return std::get<1>(GetParam()) ? kernels::reference_ops() : kernels::cpu_ops(); }
  const std::string folder_ = tiny::golden(std::get<0>(GetParam()));
  static models::BuildOptions options(models::Purpose purpose) {
    models::BuildOptions o;
    o.type = DType::kF32;
    o.purpose = purpose;
    o.positions = 96;
    o.pictures = true;
    return o;
  }
  static double loss(tiny::Model& m, Shown& rows) {
    m.program.run(rows.batch());
    double sum = 0;
    for (size_t t = 0; t < rows.packed.ids.size(); ++t) sum += static_cast<double>(m.program.nll()[t]);
    return sum / static_cast<double>(rows.packed.count);
  }
};

// Of generation: pictures become features in a pass of their own.
TEST_P(Pictures, LogitsEqualTransformers) {
  Shown rows(folder_, 0, 6);
  tiny::Model tower(folder_, options(models::Purpose::kPictures), ops());
  tower.program.run(rows.batch());
  const size_t tokens = rows.rows.size(), levels = tower.graph.features.size(), width = 36;
  ASSERT_EQ(levels, std::get<0>(GetParam()) == "qwen3_vl" ? 3u : 1u);
  rows.features.resize(tokens * levels * width);
  for (size_t l = 0; l < levels; ++l) {
    std::vector<float> one(tokens * width);
    tower.program.read(tower.graph.features[l], one.data());
    for (size_t t = 0; t < tokens; ++t)
      std::copy_n(one.data() + t * width, width, rows.features.data() + (t * levels + l) * width);
  }
  tiny::Model m(folder_, options(models::Purpose::kGenerate), ops());
  tiny::expect_logits(m, rows.batch(), folder_);
}

TEST_P(Pictures, EveryGradientEqualsTransformers) {
  for (const auto level : {graph::Recompute::kNone, graph::Recompute::kCheap, graph::Recompute::kLayer}) {
    models::BuildOptions o = options(models::Purpose::kTrain);
    o.train_base = true;
    o.recompute = level;
    o.head_chunk = 7;
    tiny::Model m(folder_, o, ops());
    m.program.set_poison(true);
    Shown rows(folder_, 0, 6);
    const double got = loss(m, rows);
    const Json want = read_json_file(folder_ + "/expected.json");
    EXPECT_NEAR(got, want["loss"].get<double>(), 2e-5 * got) << graph::recompute_name(level);
    const auto expected = formats::Safetensors::open(folder_ + "/expected.safetensors");
    size_t compared = 0, seen = 0;
    for (const graph::Param& p : m.graph.params) {
      const runtime::ParamSlot& slot = m.params[m.graph.value(p.value).param];
      const bool vector = p.kind == graph::ParamKind::kNormWeight || p.kind == graph::ParamKind::kBias ||
                          p.kind == graph::ParamKind::kDecay;
      for (const graph::Segment& s : p.segments) {
        const auto& t = expected.at("grad." + s.name);
        const float* mine = slot.grad + (vector ? s.row : s.row * p.cols);
        const size_t n = static_cast<size_t>(t.count());
        std::vector<float> theirs(n);
        std::memcpy(theirs.data(), expected.bytes(t).data(), t.bytes);
        double norm = 0;
        for (float x : theirs) norm += static_cast<double>(x) * x;
        if (std::sqrt(norm) < 1e-6) continue;
        EXPECT_LT(tiny::relative(mine, theirs.data(), n), 1e-4) << s.name << " " << graph::recompute_name(level);
        ++compared;
        seen += s.name.find("visual") != s.name.npos;
      }
    }
    EXPECT_GT(compared, 60u);
    EXPECT_GT(seen, 50u);
  }
}

// Frozen: nothing of the tower has a gradient.
TEST_P(Pictures, FrozenTowerHasNoGradients) {
  models::BuildOptions o = options(models::Purpose::kTrain);
  o.train_base = true;
  o.train_vision = false;
  const graph::Graph g = models::build(formats::WeightSource::open(folder_)->config(), o);
  for (const graph::Param& p : g.params) EXPECT_EQ(p.trainable, !p.name.starts_with("vision.")) << p.name;
}

// Rows packed into one batch give the bytes that they give by themselves, pictures or none; and a pass without pictures
// leaves no gradient of an earlier one.
TEST_P(Pictures, PackedEqualsSeparate) {
  models::BuildOptions o = options(models::Purpose::kTrain);
  o.train_base = true;
  tiny::Model m(folder_, o, ops());
  Shown together(folder_, 0, 4);
  loss(m, together);
  std::vector<float> packed(m.program.nll(), m.program.nll() + together.packed.ids.size()), separate;
  for (size_t row : {2u, 1u, 0u}) {
    Shown alone(folder_, row, 1);
    loss(m, alone);
    EXPECT_EQ(
        std::vector<float>(m.program.nll(), m.program.nll() + alone.packed.ids.size()),
        std::vector<float>(packed.begin() + together.packed.cu[row], packed.begin() + together.packed.cu[row + 1]))
        << row;
  }
  for (const graph::Param& p : m.graph.params) {  // row 0 has no picture
    if (!p.name.starts_with("vision.")) continue;
    for (int64_t i = 0; i < p.rows * p.cols; ++i)
      ASSERT_EQ(m.params[m.graph.value(p.value).param].grad[i], 0) << p.name;
  }
}

// The text class over the whole model's files, with the names that these have: rows without a picture say the same.
TEST(PicturesLeftOut, TheTextClassReadsTheWholeModelsFiles) {
  for (const auto& [whole, type] : {std::pair{"qwen3_vl", "qwen3_vl_text"}, {"qwen3_5_vl", "qwen3_5_text"}}) {
    const std::string from = tiny::golden(whole), folder = testing::TempDir() + "text_of_" + whole;
    fs::remove_all(folder);
    make_folders(folder);
    OrderedJson config = parse_ordered_json(read_file(from + "/config.json"), from)["text_config"];
    config["model_type"] = type;
    config["tie_word_embeddings"] = false;
    write_file_atomic(folder + "/config.json", config.dump());
    fs::copy_file(from + "/model.safetensors", folder + "/model.safetensors");
    models::BuildOptions o;
    o.type = DType::kF32;
    o.purpose = models::Purpose::kGenerate;
    o.positions = 96;
    tiny::Model m(folder, o, kernels::cpu_ops());
    const tiny::Packed row = tiny::read_rows(from, 0, 1);  // without a picture
    runtime::Batch batch = row.batch();
    std::vector<int32_t> all(row.ids.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    std::vector<float> logits(all.size() * static_cast<size_t>(m.graph.vocab)), want(logits.size());
    batch.logit_rows = all.data();
    batch.logit_count = static_cast<int64_t>(all.size());
    batch.logits = logits.data();
    m.program.run(batch);
    const auto expected = formats::Safetensors::open(from + "/expected.safetensors");
    std::memcpy(want.data(), expected.bytes(expected.at("logits")).data(), want.size() * sizeof(float));
    EXPECT_LT(tiny::relative(logits.data(), want.data(), want.size()), 1e-5) << whole;
    fs::remove_all(folder);
  }
}

// An adapter of the text class over the whole model's folder, and the other way round: the same weights.
TEST(PicturesLeftOut, AdaptersOfEitherClassAreForBoth) {
  const std::string whole = tiny::golden("qwen3_5_vl"), of_whole = whole + "/adapter",
                    of_text = testing::TempDir() + "adapter_of_text", text = testing::TempDir() + "base_of_text";
  for (const auto& f : {of_text, text}) fs::remove_all(f), make_folders(f);
  const auto file = formats::Safetensors::open(of_whole + "/adapter_model.safetensors");
  const std::string from = "model.model.language_model.", to = "model.model.";
  std::vector<formats::TensorSpec> specs;
  for (const auto& t : file.tensors()) {
    ASSERT_NE(t.name.find(from), std::string::npos) << t.name;
    specs.push_back({std::string(t.name).replace(t.name.find(from), from.size(), to), t.type,
                     std::vector<int64_t>(t.shape.begin(), t.shape.end())});
  }
  formats::SafetensorsWriter out(of_text + "/adapter_model.safetensors", specs);
  for (const auto& t : file.tensors())
    out.append_tensor(std::string(t.name).replace(t.name.find(from), from.size(), to), file.bytes(t).data(), t.bytes);
  out.commit();
  fs::copy_file(of_whole + "/adapter_config.json", of_text + "/adapter_config.json");
  OrderedJson config = parse_ordered_json(read_file(whole + "/config.json"), whole)["text_config"];
  config["model_type"] = "qwen3_5_text";
  config["tie_word_embeddings"] = false;
  write_file_atomic(text + "/config.json", config.dump());
  fs::copy_file(whole + "/model.safetensors", text + "/model.safetensors");
  const std::string name = "model.language_model.layers.1.self_attn.q_proj.weight";
  const auto values = [&](const std::string& base, const std::string& adapter) {
    auto source = formats::WeightSource::open(base);
    if (!adapter.empty()) source = formats::WeightSource::with_adapter(std::move(source), adapter);
    const auto shape = source->shape(name);
    std::vector<float> v(static_cast<size_t>(shape[0] * shape[1]));
    source->read(name, DType::kF32, v.data());
    return v;
  };
  const std::vector<float> want = values(whole, of_whole);
  EXPECT_NE(want, values(whole, ""));
  EXPECT_EQ(values(whole, of_text), want);
  EXPECT_EQ(values(text, of_whole), want);
  EXPECT_EQ(values(text, of_text), want);
  for (const auto& f : {of_text, text}) fs::remove_all(f);
}

// Where its text alone is wanted nothing of the tower is made, and its weights are not asked for.
TEST(PicturesLeftOut, ATextOfTheWholeModel) {
  models::BuildOptions o;
  o.positions = 96;
  o.train_base = true;
  const graph::Graph g = models::build(formats::WeightSource::open(tiny::golden("qwen3_5_vl"))->config(), o);
  EXPECT_EQ(g.pictures.merge, 0);
  for (const graph::Param& p : g.params) EXPECT_FALSE(p.name.starts_with("vision.")) << p.name;
}

INSTANTIATE_TEST_SUITE_P(Backends, Pictures,
                         testing::Combine(testing::Values("qwen3_vl", "qwen3_5_vl"), testing::Bool()),
                         [](const auto& i) {
                           return std::get<0>(i.param) + (std::get<1>(i.param) ? "_reference" : "_cpu");
                         });

TEST(PicturePositions, AsTransformersCountsThem) {
  const runtime::PlacedPicture pictures[] = {{2, 4, 6}, {9, 2, 2}};
  std::vector<int32_t> t(12), y(12), x(12);
  EXPECT_EQ(runtime::positions_of(12, pictures, 2, t.data(), y.data(), x.data()), 9);
  EXPECT_EQ(t, (std::vector<int32_t>{0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 8}));
  EXPECT_EQ(y, (std::vector<int32_t>{0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8}));
  EXPECT_EQ(x, (std::vector<int32_t>{0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8}));
}

}  // namespace
}  // namespace mxt
