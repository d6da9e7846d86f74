#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "formats/gguf_tokenizer.h"
#include "formats/helpers.h"

namespace mxt::formats {
namespace {

// A file by hand: what a writer would never write.
struct Raw {
  std::string header, body;
  uint64_t tensors = 0, pairs = 0;
  uint32_t version = 3;

  void text(const std::string& s) {
    put<uint64_t>(body, s.size());
    body += s;
  }
  template <typename T>
  void pair(const std::string& key, GgufValueType type, T v) {
    ++pairs;
    text(key);
    put(body, static_cast<uint32_t>(type));
    put(body, v);
  }
  void array(const std::string& key, uint32_t element, uint64_t count, const std::string& data) {
    ++pairs;
    text(key);
    put(body, static_cast<uint32_t>(GgufValueType::kArray));
    put(body, element);
    put(body, count);
    body += data;
  }
  void tensor(const std::string& name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    ++tensors;
    text(name);
    put(body, static_cast<uint32_t>(dims.size()));
    for (uint64_t d : dims) put(body, d);
    put(body, type);
    put(body, offset);
  }
  std::string file(size_t data = 0) const {
    std::string f = "GGUF";
    put(f, version);
    put(f, tensors);
    put(f, pairs);
    f += body;
    f.resize((f.size() + 31) / 32 * 32, '\0');
    return f + std::string(data, '\0');
  }
};

void refused(const std::string& file, const std::string& part, Exit code = Exit::kBadInput) {
  expect_refused([&] { Gguf::parse(as_bytes(file), "x.gguf"); }, code, part);
}
void refused(const Raw& raw, const std::string& part) { refused(raw.file(64), part); }

TEST(Gguf, DecodesEveryTypeAsGgufPy) {
  const Gguf g = Gguf::open(golden("types.gguf"));
  int types = 0;
  for (const GgufTensor& t : g.tensors()) {
    if (!t.name.starts_with("raw.")) continue;
    const GgufTensor* want = g.find("f32." + t.name.substr(4));
    ASSERT_NE(want, nullptr);
    std::vector<float> got(512);
    g.dequantize(t, got.data());
    EXPECT_EQ(std::memcmp(got.data(), g.bytes(*want).data(), 2048), 0) << t.name;
    ++types;
  }
  EXPECT_EQ(types, 14);
}

TEST(Gguf, EncodesAsGgmlsReference) {
  const Gguf g = Gguf::open(golden("types.gguf"));
  std::vector<float> input(512);
  g.dequantize(*g.find("input"), input.data());
  int types = 0;
  for (const GgufTensor& t : g.tensors()) {
    if (!t.name.starts_with("enc.")) continue;
    std::string got(t.bytes, '\xee');
    ggml_quantize(t.type, input.data(), 1, 512, got.data());
    EXPECT_EQ(std::memcmp(got.data(), g.bytes(t).data(), t.bytes), 0) << t.name;
    ++types;
  }
  EXPECT_EQ(types, 9);
}

TEST(Gguf, WriterRepeatsGgufPysFile) {
  const Gguf g = Gguf::open(golden("types.gguf"));
  TempFolder dir;
  GgufWriter w(dir / "copy.gguf");
  for (const auto& [k, v] : g.metadata()) w.add(k, v);
  for (const auto& t : g.tensors()) w.declare(t.name, t.type, t.shape());
  for (const auto& t : g.tensors()) w.append_raw(t.name, g.bytes(t).data(), t.bytes);
  EXPECT_FALSE(fs::exists(dir / "copy.gguf"));
  w.commit();
  EXPECT_EQ(read_file(dir / "copy.gguf"), read_file(golden("types.gguf")));
}

TEST(Gguf, MetadataKeepsTypesAndValues) {
  const Gguf g = Gguf::open(golden("types.gguf"));
  EXPECT_EQ(g.integer("k.u8"), 200);
  EXPECT_EQ(g.integer("k.i8"), -5);
  EXPECT_EQ(g.integer("k.u32"), 4000000000);
  EXPECT_EQ(g.integer("k.i64"), -(int64_t{1} << 40));
  EXPECT_EQ(g.number("k.f32"), 1e-5);  // what was written, not the f32 next to it
  EXPECT_EQ(g.number("k.f64"), 0.1);
  EXPECT_EQ(g.boolean("k.bool"), true);
  EXPECT_EQ(*g.text("k.text"), "Grüße 👋");
  EXPECT_EQ(*g.strings("k.texts"), (std::vector<std::string>{"a", "", "Ġthe"}));
  EXPECT_EQ(g.integers("k.ints"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(g.integer("absent"), std::nullopt);
  expect_refused([&] { g.integer("k.u64"); }, Exit::kBadInput, "in range");
  expect_refused([&] { g.integer("k.text"); }, Exit::kBadInput, "whole number");
  expect_refused([&] { g.text("k.u8"); }, Exit::kBadInput, "not text");
}

TEST(Gguf, RowRangesAgreeWithTheWhole) {
  TempFolder dir;
  std::vector<float> x(8 * 64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8;
  GgufWriter w(dir / "a.gguf", 64);
  w.declare("t", GgmlType::kQ8_0, {8, 64});
  w.declare("f", GgmlType::kF32, {3});
  w.append("t", x.data(), 5);
  w.append("t", x.data() + 5 * 64, 3);
  w.append("f", x.data(), 1);
  w.commit();
  const Gguf g = Gguf::open(dir / "a.gguf");
  EXPECT_EQ(g.alignment(), 64u);
  std::vector<float> whole(512), part(128);
  g.dequantize(*g.find("t"), whole.data());
  g.dequantize(*g.find("t"), part.data(), 3, 5);
  EXPECT_EQ(std::memcmp(part.data(), &whole[192], 512), 0);
}

// As llama.cpp's gguf-split leaves them: metadata in the first part, tensors in all (or in all but the first).
TEST(Gguf, PartsOfASplitFileAreOneFile) {
  TempFolder dir;
  const auto write = [&](int number, int count, const std::vector<std::string>& tensors, int says = -1) {
    GgufWriter w(dir / fmt::format("m-{:05}-of-{:05}.gguf", number, count));
    if (number == 1) w.add("general.architecture", GgufValue::text("llama"));
    w.add("split.no", GgufValue::u32(static_cast<uint32_t>(says < 0 ? number - 1 : says)));
    w.add("split.count", GgufValue::u32(static_cast<uint32_t>(count)));
    w.add("split.tensors.count", GgufValue::i32(3));
    for (const auto& t : tensors) w.declare(t, GgmlType::kF32, {2, 2});
    const float values[] = {1, 2, 3, static_cast<float>(number)};
    for (const auto& t : tensors) w.append(t, values, 2);
    w.commit();
  };
  write(1, 3, {});
  write(2, 3, {"a", "b"});
  write(3, 3, {"c"});
  const std::string first = dir / "m-00001-of-00003.gguf";
  const Gguf g = Gguf::open(first);
  ASSERT_EQ(g.tensors().size(), 3u);
  EXPECT_EQ(g.files().size(), 3u);
  EXPECT_EQ(*g.text("general.architecture"), "llama");
  for (const auto& [name, last] : {std::pair{"a", 2.f}, {"b", 2.f}, {"c", 3.f}}) {
    float out[4];
    g.dequantize(*g.find(name), out);
    EXPECT_EQ(out[0], 1.f);
    EXPECT_EQ(out[3], last) << name;
  }
  expect_refused([&] { Gguf::open(dir / "m-00002-of-00003.gguf"); }, Exit::kBadInput,
                 "name the first, …-00001-of-00003");
  write(3, 3, {"b"});
  expect_refused([&] { Gguf::open(first); }, Exit::kBadInput, "also in another part");
  write(3, 3, {});
  expect_refused([&] { Gguf::open(first); }, Exit::kBadInput, "hold 2 tensors, 3 are named");
  write(3, 3, {"c"}, 1);
  expect_refused([&] { Gguf::open(first); }, Exit::kBadInput, "another part");
  fs::remove(dir / "m-00003-of-00003.gguf");
  expect_refused([&] { Gguf::open(first); }, Exit::kBadInput, "is not beside it");
}

TEST(Gguf, TypeWithoutDecoderOpensButDoesNotRead) {
  Raw r;
  r.tensor("t", {256}, 16, 0);
  const std::string f = r.file(66);
  const Gguf g = Gguf::parse(as_bytes(f), "x.gguf");
  float out[256];
  expect_refused([&] { g.dequantize(g.tensors()[0], out); }, Exit::kMissing, "IQ2_XXS");
}

TEST(Gguf, RefusesForeignFiles) {
  refused("", "not a GGUF file");
  refused("GGML....", "not a GGUF file");
  refused(std::string("GGUF"), "cut off");
  Raw v1;
  v1.version = 1;
  refused(v1, "version 1");
  Raw big;
  big.version = 0x03000000;
  refused(big, "big-endian");
}

TEST(Gguf, RefusesCountsAndLengthsPastTheFile) {
  for (const uint64_t n : {uint64_t{1000}, uint64_t{1} << 40, ~uint64_t{0}}) {
    Raw r;
    r.tensors = n;
    refused(r, "tensors cannot be");
    Raw p;
    p.pairs = n;
    refused(p, "metadata values cannot be");
    Raw s;  // a key that long
    s.pairs = 1;
    put<uint64_t>(s.body, n);
    if (n > 65'535)
      refused(s, "over the limit");
    else
      refused(s, "past the end");
    Raw t;
    ++t.pairs;
    t.text("k");
    put<uint32_t>(t.body, 8);
    put<uint64_t>(t.body, n);
    refused(t, "bytes");
    for (const uint32_t element : {4u, 8u, 12u}) {  // CVE-2025-53630: n × size overflows
      Raw a;
      a.array("k", element, n, "");
      refused(a, "items run past the end");
    }
  }
  Raw overflow;
  overflow.array("k", 10, 0x2000000000000001ull, "12345678");  // × 8 = 8 in 64 bits
  refused(overflow, "items run past the end");
}

TEST(Gguf, RefusesBadMetadata) {
  Raw twice;
  twice.pair("k", GgufValueType::kU32, 1u);
  twice.pair("k", GgufValueType::kU32, 2u);
  refused(twice, "stands twice");
  Raw type;
  type.pair("k", static_cast<GgufValueType>(13), uint64_t{0});
  refused(type, "value type 13");
  Raw nested;
  nested.array("k", 9, 1, std::string(16, '\0'));
  refused(nested, "lists inside lists");
  Raw element;
  element.array("k", 99, 1, std::string(16, '\0'));
  refused(element, "value type 99");
  Raw flag;
  flag.pair("k", GgufValueType::kBool, uint8_t{2});
  refused(flag, "not a bool");
  Raw name;
  name.pair("k\n", GgufValueType::kU32, 1u);
  refused(name, "plain UTF-8");
  for (const uint32_t a : {0u, 3u, 48u, 0x80000000u}) {
    Raw r;
    r.pair("general.alignment", GgufValueType::kU32, a);
    refused(r, "power of two");
  }
  Raw wide;
  wide.pair("general.alignment", GgufValueType::kU64, uint64_t{32});
  refused(wide, "32-bit");
}

TEST(Gguf, RefusesBadTensors) {
  const auto with = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    Raw r;
    r.tensor("t", dims, type, offset);
    return r;
  };
  refused(with({1ull << 40, 1ull << 40}, 0, 0), "overflows");  // CVE-2026-33298
  refused(with({1ull << 32, 1ull << 31, 2}, 0, 0), "overflows");
  refused(with({1ull << 61, 2}, 0, 0), "overflows");  // the count fits, the bytes do not
  refused(with({~0ull}, 0, 0), "out of range");
  refused(with({0}, 0, 0), "out of range");
  refused(with({1000}, 0, 0), "past the end");  // CVE-2026-7482
  refused(with({4}, 0, 1ull << 62), "past the end");
  refused(with({4}, 0, ~0ull - 31), "past the end");
  refused(with({4}, 0, 7), "multiple of the alignment");
  refused(with({4}, 0xffffffffu, 0), "type -1");  // a negative type
  refused(with({4}, 5, 0), "type 5");
  refused(with({16}, 8, 0), "blocks of 32");
  refused(with({2, 2, 2, 2, 2}, 0, 0), "5 dimensions");
  Raw twice;
  twice.tensor("t", {4}, 0, 0);
  twice.tensor("t", {4}, 0, 32);
  refused(twice, "stands twice");
  Raw overlap;
  overlap.tensor("t", {16}, 0, 0);
  overlap.tensor("u", {4}, 0, 32);
  refused(overlap, "overlap");
}

TEST(GgufTokenizer, TakesTheListsAndRefusesWhatDoesNotFit) {
  TempFolder dir;
  const auto file = [&](auto&& change) {
    GgufWriter w(dir / "t.gguf");
    w.add("tokenizer.ggml.model", GgufValue::text("gpt2"));
    change(w);
    w.commit();
    return gguf_tokenizer(Gguf::open(dir / "t.gguf"));
  };
  const auto tokens = [](GgufWriter& w) { w.add("tokenizer.ggml.tokens", GgufValue::strings({"a", "b", "<end>"})); };
  const auto refuse = [&](const std::string& part, auto&& change) {
    expect_refused([&] { file(change); }, Exit::kBadInput, part);
  };
  const GgufTokenizerData t = file([&](GgufWriter& w) {
    tokens(w);
    w.add("tokenizer.ggml.token_type", GgufValue::i32s({1, 1, 3}));
    w.add("tokenizer.ggml.merges", GgufValue::strings({"a b"}));
    w.add("tokenizer.ggml.eos_token_id", GgufValue::u32(2));
    w.add("tokenizer.ggml.bos_token_id", GgufValue::u32(0xffffffff));
    w.add("tokenizer.ggml.add_bos_token", GgufValue::boolean(true));
    w.add("tokenizer.chat_template", GgufValue::text("{{ x }}"));
  });
  EXPECT_EQ(t.tokens.size(), 3u);
  EXPECT_EQ(t.token_type[2], 3);
  EXPECT_EQ(t.merges[0], "a b");
  EXPECT_EQ(t.eos, 2);
  EXPECT_EQ(t.bos, -1);
  EXPECT_TRUE(t.add_bos);
  EXPECT_EQ(t.chat_template, "{{ x }}");
  refuse("no tokenizer", [](GgufWriter&) {});
  refuse("outside of the vocabulary", [&](GgufWriter& w) {
    tokens(w);
    w.add("tokenizer.ggml.eos_token_id", GgufValue::u32(3));
  });
  refuse("token types for", [&](GgufWriter& w) {
    tokens(w);
    w.add("tokenizer.ggml.token_type", GgufValue::i32s({1}));
  });
  refuse("token type 9", [&](GgufWriter& w) {
    tokens(w);
    w.add("tokenizer.ggml.token_type", GgufValue::i32s({1, 1, 9}));
  });
  refuse("over the limit", [](GgufWriter& w) {  // CVE-2025-49847
    w.add("tokenizer.ggml.tokens", GgufValue::strings({std::string(70'000, 'a')}));
  });
  refuse("not valid UTF-8", [](GgufWriter& w) { w.add("tokenizer.ggml.tokens", GgufValue::strings({"\xff"})); });
  refuse("do not belong together", [&](GgufWriter& w) {
    tokens(w);
    w.declare("token_embd.weight", GgmlType::kF32, {2, 4});
    const float zero[8] = {};
    w.append("token_embd.weight", zero, 2);
  });
}

TEST(Gguf, PartsAreTheValuesOfTheBlocks) {
  std::mt19937 random(5);
  int types = 0;
  for (uint32_t t = 0; t < 40; ++t) {
    const auto type = static_cast<GgmlType>(t);
    if (!ggml_has_parts(type)) continue;
    ++types;
    const GgmlTypeInfo* info = ggml_type_info(type);
    const int64_t columns = 3 * info->block;
    for (int round = 0; round < 50; ++round) {
      std::vector<uint8_t> row(3 * info->bytes);
      for (uint8_t& b : row) b = static_cast<uint8_t>(random());
      for (uint32_t k = 0; k < 3; ++k)  // exponents of weights: no infinity
        for (const uint32_t at : type == GgmlType::kQ6_K ? std::vector<uint32_t>{209}
                                 : info->block == 256 || type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1
                                     ? std::vector<uint32_t>{1, 3}
                                     : std::vector<uint32_t>{1})
          row[k * info->bytes + at] &= 0xBF;
      std::vector<float> want(static_cast<size_t>(columns));
      ggml_dequantize(type, row.data(), 1, columns, want.data());
      std::vector<GgmlPart> parts(static_cast<size_t>(columns / 32));
      ggml_parts(type, row.data(), columns, parts.data());
      for (size_t k = 0; k < want.size(); ++k) {
        const GgmlPart& p = parts[k / 32];
        ASSERT_EQ(std::fma(p.scale[k % 32 / 16], static_cast<float>(p.q[k % 32]), p.least), want[k])
            << info->name << " " << k;
      }
    }
  }
  EXPECT_EQ(types, 8);
}

}  // namespace
}  // namespace mxt::formats
