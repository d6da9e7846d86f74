#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include "formats/helpers.h"

namespace mxt::formats {
namespace {

std::string file_of(const std::string& header, size_t data_bytes, int64_t claimed = -1) {
  std::string f;
  put<uint64_t>(f, claimed < 0 ? header.size() : static_cast<uint64_t>(claimed));
  return f + header + std::string(data_bytes, '\1');
}

void refused(const std::string& file, const std::string& part) {
  expect_refused([&] { Safetensors::parse(as_bytes(file), "x.safetensors"); }, Exit::kBadInput, part);
}
void refused_header(const std::string& header, size_t data, const std::string& part) {
  refused(file_of(header, data), part);
}

TEST(Safetensors, ReadsWhatHuggingFaceWrote) {
  const auto s = Safetensors::open(golden("mixed.safetensors"));
  EXPECT_EQ(s.tensors().size(), 11u);
  EXPECT_EQ(s.metadata().at("format"), "pt");
  const TensorInfo& b = s.at("b.weight");
  EXPECT_EQ(b.type, DType::kF32);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  float v[6];
  std::memcpy(v, s.bytes(b).data(), sizeof v);
  EXPECT_EQ(v[5], 1.25f);
  EXPECT_EQ(s.at("scalar").count(), 1);
  EXPECT_EQ(s.at("empty").bytes, 0u);
  EXPECT_EQ(s.find("none"), nullptr);
  expect_refused([&] { s.at("b.weigth"); }, Exit::kBadInput, "nearest: \"b.weight\"");
}

TEST(Safetensors, WriterGivesHuggingFacesBytes) {
  const auto s = Safetensors::open(golden("mixed.safetensors"));
  std::vector<TensorSpec> specs;
  for (const auto& t : s.tensors()) specs.push_back({t.name, t.type, t.shape});
  std::reverse(specs.begin(), specs.end());
  specs = SafetensorsWriter::usual_order(specs);
  TempFolder dir;
  SafetensorsWriter w(dir / "model.safetensors", specs);
  for (const auto& t : specs) w.append_tensor(t.name, s.bytes(s.at(t.name)).data(), s.at(t.name).bytes);
  EXPECT_FALSE(fs::exists(dir / "model.safetensors"));  // nothing before commit
  w.commit();
  EXPECT_EQ(read_file(dir / "model.safetensors"), read_file(golden("mixed.safetensors")));
}

TEST(Safetensors, ShardsRoundTripInPieces) {
  TempFolder dir;
  std::vector<float> data(300);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const std::vector<TensorSpec> specs{
      {"a", DType::kF32, {100}}, {"b", DType::kF32, {10, 10}}, {"c", DType::kF32, {100}}};
  SafetensorsWriter w(dir / "model.safetensors", specs, {.max_shard_bytes = 800});
  EXPECT_EQ(w.files().size(), 3u);  // a and b fit one shard of 800 bytes, c needs another; the index
  for (size_t i = 0; i < 300; i += 50) w.append(&data[i], 200);
  w.commit();
  EXPECT_TRUE(fs::exists(dir / "model-00001-of-00002.safetensors"));
  const auto s = Safetensors::open(dir.path());
  EXPECT_EQ(s.at("c").file, 1);
  EXPECT_EQ(std::memcmp(s.bytes(s.at("b")).data(), &data[100], 400), 0);
}

TEST(Safetensors, AbandonedWriteLeavesNothing) {
  TempFolder dir;
  {
    SafetensorsWriter w(dir / "model.safetensors", {{"a", DType::kF32, {4}}});
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Safetensors, RefusesBrokenFrames) {
  refused("abc", "too few");
  refused(file_of("{}", 0, 200'000'000), "over 100000000");
  refused(file_of("{}", 0, 1), "too short");
  refused(file_of("{}", 0, 3), "past the end");
  refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "over 100000000");
  refused_header("[]", 0, "does not start with '{'");
  refused_header(" {}", 0, "does not start with '{'");
  refused_header("{\"\xff\":1}", 0, "not valid UTF-8");
  refused_header("{\"a\":}", 0, "not valid JSON");
  refused_header("{} x", 0, "not valid JSON");
}

TEST(Safetensors, RefusesBrokenEntries) {
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  refused_header("{\"a\":" + good + ",\"a\":" + good + "}", 4, "stands twice");
  refused_header(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "stands twice");
  refused_header(R"({"__metadata__":{"a":1}})", 0, "__metadata__ must hold text only");
  refused_header(R"({"__metadata__":"x"})", 0, "__metadata__ must hold text only");
  refused_header(R"({"__metadata__":{"a":{}}})", 0, "__metadata__ must hold text only");
  refused_header(R"({"__metadata__":{"a":"1","a":"2"}})", 0, "stands twice");
  refused_header(R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "\"F99\"");
  refused_header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "negative");
  refused_header(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "whole");
  refused_header(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "list");
  refused_header(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "number where none");
  refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "two numbers");
  refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "two numbers");
  refused_header(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "missing");
  refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4, "unknown key");
  refused_header(R"({"a":5})", 0, "number where none");
  refused_header(R"({"a":null})", 0, "null");
  refused_header(R"({"a":{"dtype":{},"shape":[1],"data_offsets":[0,4]}})", 4, "object");
  refused_header("{\"a\\n\":" + good + "}", 4, "control characters");
  refused_header("{\"a\":" + std::string(50'000, '[') + "}", 0, "list");
}

TEST(Safetensors, RefusesBrokenLayout) {
  const auto entry = [](const char* name, int begin, int end, int count) {
    return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name, count, begin, end);
  };
  refused_header("{" + entry("a", 0, 4, 4) + "," + entry("b", 2, 6, 4) + "}", 6, "overlaps");
  refused_header("{" + entry("a", 0, 4, 4) + "," + entry("b", 5, 6, 1) + "}", 6, "unused bytes");
  refused_header("{" + entry("a", 1, 4, 3) + "}", 4, "unused bytes");
  refused_header("{" + entry("a", 0, 4, 4) + "}", 5, "belong to none");
  refused_header("{" + entry("a", 0, 9, 9) + "}", 5, "outside of the data");
  refused_header("{" + entry("a", 4, 2, 0) + "}", 5, "outside of the data");
  refused_header("{" + entry("a", 0, 4, 5) + "}", 4, "needs 5 bytes but 4");
  refused_header(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows");
  refused_header(R"({"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,0]}})", 0, "overflows");
  refused_header(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0, "out of range");
  refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4,
                 "outside of the data");
}

TEST(Safetensors, RefusesTooManyTensors) {
  std::string h = "{";
  for (int i = 0; i <= 100'000; ++i)
    h += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i ? "," : "", i);
  refused_header(h + "}", 0, "more than 100000 tensors");
}

TEST(Safetensors, RefusesBrokenFolders) {
  TempFolder dir;
  const auto refuse = [&](const std::string& part) {
    expect_refused([&] { Safetensors::open(dir.path()); }, Exit::kBadInput, part);
  };
  expect_refused([&] { Safetensors::open(dir / "none"); }, Exit::kBadInput, "no such file");
  refuse("holds neither");
  write_file_atomic(dir / "pytorch_model.bin", "x");
  refuse("pickles");
  const std::string index = dir / "model.safetensors.index.json";
  write_file_atomic(index, "{}");
  refuse("weight_map");
  write_file_atomic(index, R"({"weight_map":{"a":"../a.safetensors"}})");
  refuse("same folder");
  write_file_atomic(index, R"({"weight_map":{"a":"/etc/passwd"}})");
  refuse("same folder");
  write_file_atomic(index, R"({"weight_map":{"a":5}})");
  refuse("not a file name");
  write_file_atomic(index, R"({"weight_map":{"a":"s.safetensors"}})");
  refuse("not there");
  write_file_atomic(dir / "s.safetensors", file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  refuse("do not belong together");
  write_file_atomic(dir / "t.safetensors", file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  write_file_atomic(index, R"({"weight_map":{"b":"s.safetensors","a":"t.safetensors"}})");
  refuse("one shard");
}

}  // namespace
}  // namespace mxt::formats
