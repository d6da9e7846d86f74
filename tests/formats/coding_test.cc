// Codes against bitsandbytes (tools/golden/qlora.py), and folders that hold them.
#include "base/coding.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "folders.h"
#include "formats/coded.h"
#include "formats/safetensors.h"
#include "formats/weight_source.h"
#include "helpers.h"

namespace mxt::formats {
namespace {

std::string qlora(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/qlora/" + name; }

template <typename T>
std::vector<T> values(const Safetensors& f, const std::string& name) {
  const auto bytes = f.bytes(f.at(name));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

struct Encoded {
  std::vector<uint8_t> codes;
  std::vector<float> scales, nested;
  Coded matrix;
  Encoded(Coding coding, const void* w, DType type, int64_t rows, int64_t cols) {
    const CodedBytes bytes = coded_bytes(coding, rows, cols);
    codes.resize(static_cast<size_t>(bytes.codes));
    scales.resize(static_cast<size_t>(bytes.scales + 3) / 4);
    nested.resize(static_cast<size_t>(bytes.nested) / 4);
    auto* scale_bytes = reinterpret_cast<uint8_t*>(scales.data());
    encode(w, type, {coding, rows, cols, codes.data(), scale_bytes, nested.data()});
    matrix = {coding, rows, cols, codes.data(), scale_bytes, nested.data()};
  }
};

TEST(Nf4, CodesAndScalesAreBitsandbytes) {
  const Safetensors f = Safetensors::open(qlora("tensors.safetensors"));
  int64_t nested = 0, apart = 0;
  for (const char* name : {"odd", "short", "wide", "half", "large"}) {
    SCOPED_TRACE(name);
    const TensorInfo& t = f.at(name);
    const auto w = values<std::byte>(f, name);
    const Encoded one(Coding::kNf4, w.data(), t.type, t.shape[0], t.shape[1]);
    EXPECT_EQ(one.codes, values<uint8_t>(f, std::string(name) + ".codes"));
    EXPECT_EQ(one.scales, values<float>(f, std::string(name) + ".absmax"));
    const Encoded two(Coding::kNf4Double, w.data(), t.type, t.shape[0], t.shape[1]);
    EXPECT_EQ(two.codes, one.codes);
    // Its back ends differ among themselves here: in the order of a mean's sum, and in what they call nearest.
    const auto want = values<uint8_t>(f, std::string(name) + ".nested_codes");
    for (size_t i = 0; i < want.size(); ++i) {
      const int d = std::abs(int{two.matrix.scales[i]} - int{want[i]});
      // A block of equal scales has nothing but zeros; its library writes another code for them.
      if (one.scales.size() > 1) {
        EXPECT_LE(d, 1) << i;
      }
      apart += one.scales.size() > 1 && d != 0;
      ++nested;
    }
    const auto scales = values<float>(f, std::string(name) + ".nested_absmax");
    for (size_t i = 0; i < scales.size(); ++i) EXPECT_NEAR(two.nested[i], scales[i], 1e-6f * scales[i] + 1e-9f);
    EXPECT_NEAR(two.nested.back(), values<float>(f, std::string(name) + ".offset")[0], 1e-6f);
  }
  EXPECT_LE(apart * 50, nested);
}

TEST(Nf4, ATieGoesToTheLowerCodeAndAnOddEndIsZero) {
  const float middle = (kNf4Table[8] + kNf4Table[9]) / 2;
  const std::vector<float> w{1, middle, std::nextafter(middle, 1.0f), -1, 0};
  const Encoded e(Coding::kNf4, w.data(), DType::kF32, 1, 5);
  EXPECT_EQ(e.codes, (std::vector<uint8_t>{0xf8, 0x90, 0x77}));
}

TEST(Nf4, DoubleQuantizationCostsLittleMore) {
  const Safetensors f = Safetensors::open(qlora("tensors.safetensors"));
  const TensorInfo& t = f.at("wide");
  const auto w = values<float>(f, "wide");
  double error[2] = {};
  for (int k = 0; k < 2; ++k) {
    const Encoded e(k ? Coding::kNf4Double : Coding::kNf4, w.data(), t.type, t.shape[0], t.shape[1]);
    std::vector<float> back(w.size());
    decode(e.matrix, 0, t.shape[0] * t.shape[1], back.data());
    for (size_t i = 0; i < w.size(); ++i) error[k] += std::pow(w[i] - back[i], 2);
  }
  EXPECT_GT(error[1], error[0]);
  EXPECT_LT(error[1], 1.05 * error[0]);
}

TEST(Mxfp4, ValuesOfTheTypeComeBack) {
  std::vector<float> w;
  for (const float scale : {1.0f, 0x1p-20f, 0x1p60f})
    for (int i = 0; i < 32; ++i) w.push_back(kE2M1Table[i % 16] * scale);
  const Encoded e(Coding::kMxfp4, w.data(), DType::kF32, 3, 32);
  EXPECT_EQ(e.codes[0], 0x10);  // 0 and 0.5: the even weight lies low
  EXPECT_EQ(e.matrix.scales[1], 127 - 20);
  std::vector<float> back(w.size());
  decode(e.matrix, 0, 96, back.data());
  EXPECT_EQ(back, w);
}

TEST(CodedFolder, IsReadAsItStands) {
  for (const auto& [folder, coding, through] :
       {std::tuple{"folder", Coding::kNf4Double, DType::kF32}, {"folder_plain", Coding::kNf4, DType::kBF16}}) {
    const auto source = WeightSource::open(qlora(folder));
    const std::string name = "model.layers.0.mlp.down_proj.weight";
    for (const std::string& n : source->names()) EXPECT_EQ(n.find(".absmax"), std::string::npos) << n;
    EXPECT_EQ(source->shape(name), (std::vector<int64_t>{40, 56}));
    const auto t = coded_tensor(*source, name);
    ASSERT_TRUE(t);
    EXPECT_EQ(t->matrix.coding, coding);
    EXPECT_EQ(t->through, through);
    const auto said = config_coding(source->config(), name);
    ASSERT_TRUE(said);
    EXPECT_EQ(said->coding, coding);
    EXPECT_EQ(said->through, through);
    std::vector<float> want(40 * 56), some(2 * 56);
    decode(t->matrix, 0, 40 * 56, want.data());
    if (through == DType::kBF16)
      for (float& x : want) x = bf16_to_float(float_to_bf16(x));
    source->read(name, DType::kF32, some.data(), 7, 9);
    EXPECT_EQ(some, std::vector<float>(want.begin() + 7 * 56, want.begin() + 9 * 56));
    EXPECT_FALSE(coded_tensor(*source, "lm_head.weight"));
  }
}

// What config.json says of FP8, and of what it leaves out.
TEST(ConfigCoding, OfFp8) {
  const auto said = [](const std::string& method, const std::string& more, const std::string& name) {
    ModelConfig c;
    c.quantization = method;
    c.raw = std::make_shared<OrderedJson>(OrderedJson::parse(R"({"quantization_config": )" + more + "}"));
    const auto coding = config_coding(c, "model.layers.0." + name + ".weight");
    return coding ? std::string(name_of(coding->coding)) : "nothing";
  };
  const std::string blocks = "e4m3 in blocks of 128 × 128", rows = "e4m3 with a scale a row";
  EXPECT_EQ(said("fp8", "{}", "q"), blocks);
  EXPECT_EQ(said("fp8", R"({"weight_block_size": [128, 128]})", "q"), blocks);
  EXPECT_EQ(said("fp8", R"({"weight_block_size": [64, 128]})", "q"), "nothing");
  EXPECT_EQ(said("fp8", R"({"weight_block_size": null})", "q"), rows);
  EXPECT_EQ(said("fp8", R"({"modules_to_not_convert": ["model.layers.0.q"]})", "q"), "none");
  const auto tensors = [&](const std::string& weights, const std::string& ignore, const std::string& name) {
    return said("compressed-tensors",
                R"({"format": "float-quantized", "ignore": )" + ignore +
                    R"(, "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float")" + weights + "}}}}",
                name);
  };
  EXPECT_EQ(tensors(R"(, "strategy": "channel")", "[]", "q"), rows);
  EXPECT_EQ(tensors(R"(, "block_structure": [128, 128])", "[]", "q"), blocks);
  EXPECT_EQ(tensors("", R"(["re:.*layers.0.mlp.*", "lm_head"])", "mlp.up"), "none");
  EXPECT_EQ(tensors("", R"(["re:.*layers.0.mlp.*", "lm_head"])", "q"), rows);
  EXPECT_EQ(tensors("", R"(["re:layers.0.*"])", "q"), rows);  // from the name's beginning
  EXPECT_EQ(said("quark", R"({"global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}})", "q"), rows);
}

// The folder with one tensor left out, or changed by `change`.
void copy_with(const std::string& to, const std::string& tensor,
               const std::function<bool(TensorSpec&, std::string&)>& change) {
  const Safetensors f = Safetensors::open(qlora("folder"));
  std::vector<TensorSpec> specs;
  std::vector<std::string> data;
  for (const TensorInfo& t : f.tensors()) {
    const auto bytes = f.bytes(t);
    TensorSpec spec{t.name, t.type, t.shape};
    std::string raw(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (t.name == tensor && !change(spec, raw)) continue;
    specs.push_back(spec);
    data.push_back(raw);
  }
  SafetensorsWriter out(to + "/model.safetensors", specs, {});
  for (const std::string& d : data) out.append(d.data(), d.size());
  out.commit();
  write_file_atomic(to + "/config.json", read_file(qlora("folder") + "/config.json"));
}

TEST(CodedFolder, DamageIsNamedInOneLine) {
  const std::string module = "model.layers.1.self_attn.q_proj.weight";
  const auto leave_out = [](TensorSpec&, std::string&) { return false; };
  const auto state = [](const char* from, const char* to) {
    return [=](TensorSpec& s, std::string& raw) {
      const size_t at = raw.find(from);
      EXPECT_NE(at, std::string::npos);
      raw.replace(at, std::strlen(from), to);
      s.shape = {static_cast<int64_t>(raw.size())};
      return true;
    };
  };
  struct Case {
    std::string tensor;
    std::function<bool(TensorSpec&, std::string&)> change;
    Exit code;
    std::string says;
  };
  const std::string json = module + ".quant_state.bitsandbytes__nf4";
  const Case cases[] = {
      {module + ".absmax", leave_out, Exit::kBadInput, "\"" + module + ".absmax\" is missing"},
      {module + ".nested_absmax", leave_out, Exit::kBadInput, ".nested_absmax\" is missing"},
      {module + ".quant_map", leave_out, Exit::kBadInput, ".quant_map\" is missing"},
      {module, [](TensorSpec& s, std::string& raw) { return raw.resize(raw.size() - 8), s.shape[0] -= 8, true; },
       Exit::kBadInput, "792 bytes, and 800 bytes are wanted"},
      {json, state("\"shape\": [40, 40]", "\"shape\": [40, 4]"), Exit::kBadInput, "are wanted"},
      {json, state("\"shape\": [40, 40]", "\"shape\": [0, 40]"), Exit::kBadInput, "no \"shape\" of a matrix"},
      {json, state("\"nested_offset\"", "\"nested_offse\""), Exit::kBadInput, "no \"nested_offset\""},
      {json, state("\"blocksize\": 64", "\"blocksize\": 128"), Exit::kMissing,
       "blocks of another size than 64, which is not read here: use the model that it was made from"},
      {json, state("\"quant_type\": \"nf4\"", "\"quant_type\": \"fp4\""), Exit::kMissing,
       "is in fp4: of bitsandbytes' types nf4 alone is read here: use the model that it was made from"},
      {json, state("{", "["), Exit::kBadInput, json},
  };
  TempFolder f;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    copy_with(f.path(), c.tensor, c.change);
    expect_refused([&] { WeightSource::open(f.path()); }, c.code, c.says);
  }
}

}  // namespace
}  // namespace mxt::formats
