#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/hash_files.h"
#include "base/json_text.h"
#include "base/philox.h"
#include "base/sha256_lanes.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/types.h"

namespace mxt {
namespace {

TEST(Hash, KnownAnswers) {
  // The empty string's digests, as the specifications print them.
  EXPECT_EQ(blake3_hex(""), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// Two messages side by side, of every length around a block and of unlike lengths, against the library's one at a time.
// The lengths of BLAKE3's official vectors, around its blocks, chunks and trees; byte i is i mod 251.
TEST(Hash, Blake3HasItsOfficialVectors) {
  static constexpr std::pair<size_t, const char*> kVectors[] = {
      {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
      {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
      {2, "7b7015bb92cf0b318037702a6cdd81dee41224f734684c2c122cd6359cb1ee63"},
      {3, "e1be4d7a8ab5560aa4199eea339849ba8e293d55ca0a81006726d184519e647f"},
      {4, "f30f5ab28fe047904037f77b6da4fea1e27241c5d132638d8bedce9d40494f32"},
      {5, "b40b44dfd97e7a84a996a91af8b85188c66c126940ba7aad2e7ae6b385402aa2"},
      {6, "06c4e8ffb6872fad96f9aaca5eee1553eb62aed0ad7198cef42e87f6a616c844"},
      {7, "3f8770f387faad08faa9d8414e9f449ac68e6ff0417f673f602a646a891419fe"},
      {8, "2351207d04fc16ade43ccab08600939c7c1fa70a5c0aaca76063d04c3228eaeb"},
      {63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b"},
      {64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
      {65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
      {127, "d81293fda863f008c09e92fc382a81f5a0b4a1251cba1634016a0f86a6bd640d"},
      {128, "f17e570564b26578c33bb7f44643f539624b05df1a76c81f30acd548c44b45ef"},
      {129, "683aaae9f3c5ba37eaaf072aed0f9e30bac0865137bae68b1fde4ca2aebdcb12"},
      {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
      {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
      {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
      {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
      {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
      {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
      {3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
      {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
      {4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
      {5120, "9cadc15fed8b5d854562b26a9536d9707cadeda9b143978f319ab34230535833"},
      {5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff"},
      {6144, "3e2e5b74e048f3add6d21faab3f83aa44d3b2278afb83b80b3c35164ebeca205"},
      {6145, "f1323a8631446cc50536a9f705ee5cb619424d46887f3c376c695b70e0f0507f"},
      {7168, "61da957ec2499a95d6b8023e2b0e604ec7f6b50e80a9678b89d2628e99ada77a"},
      {7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817"},
      {8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
      {8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
      {16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
      {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
      {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
  };
  for (const auto& [length, digest] : kVectors) {
    std::string bytes(length, '\0');
    for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>(i % 251);
    EXPECT_EQ(blake3_hex(bytes), digest) << length;
    Blake3 pieces;
    for (size_t at = 0; at < length; at += 1000) pieces.update(std::string_view(bytes).substr(at, 1000));
    EXPECT_EQ(pieces.hex(), digest) << length << ", in pieces";
  }
}

TEST(Hash, TwoAtOnceAreTheTwo) {
  if (!has_sha256_lanes()) GTEST_SKIP() << "this processor has no instructions for SHA-256";
  std::string text(4096, '\0');
  Philox rng(1, 2);
  for (char& c : text) c = static_cast<char>(rng.below(256));
  const auto at = [&](size_t i) { return reinterpret_cast<const uint8_t*>(text.data()) + i; };
  for (size_t n = 0; n < 200; ++n) {
    Sha256State a, b;
    const size_t other = 777 + 3 * n, both = n / 64;
    sha256_two(a, at(0), b, at(1000), both);
    sha256_one(b, at(1000 + 64 * both), other / 64 - both);
    EXPECT_EQ(to_hex(sha256_end(a, at(n / 64 * 64), n)), sha256_hex({text.data(), n})) << n;
    EXPECT_EQ(to_hex(sha256_end(b, at(1000 + other / 64 * 64), other)), sha256_hex({text.data() + 1000, other})) << n;
  }
}

TEST(Hash, OfManyFilesIsThatOfEach) {
  const std::string folder = testing::TempDir() + "/hash_files";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::vector<std::string> paths;
  for (const size_t n : {0, 63, 5 << 20, 64, (2 << 20) + 1, 130, 2 << 20, 55, 7}) {
    std::string text(n, '\0');
    for (size_t i = 0; i < n; ++i) text[i] = static_cast<char>(i * i >> 3);
    paths.push_back(folder + "/" + std::to_string(n));
    write_file_atomic(paths.back(), text);
  }
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    const auto got = hash_files(paths);
    ASSERT_EQ(got.size(), paths.size());
    for (size_t i = 0; i < paths.size(); ++i) {
      const std::string text = read_file(paths[i]);
      EXPECT_EQ(got[i].blake3, blake3_hex(text)) << paths[i];
      EXPECT_EQ(got[i].sha256, sha256_hex(text)) << paths[i];
      EXPECT_EQ(got[i].bytes, text.size());
    }
  }
  EXPECT_THROW(hash_files({paths[0], folder + "/none"}), Error);
  std::atomic<bool> stop{false};
  EXPECT_EQ(hash_file(paths[2], &stop).blake3, hash_file(paths[2]).blake3);
  stop = true;
  try {
    hash_file(paths[2], &stop);
    ADD_FAILURE() << "hashed to its end";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kInterrupted);
  }
}

TEST(Philox, KnownAnswer) {
  // Random123's kat_vectors: philox4x32-10 with an all-zero counter and key.
  const auto c = philox4x32(0, 0, 0);
  EXPECT_EQ(c[0], 0x6627e8d5u);
  EXPECT_EQ(c[1], 0xe169c58du);
  EXPECT_EQ(c[2], 0xbc57ac4cu);
  EXPECT_EQ(c[3], 0x9b00dbd8u);
}

TEST(Types, EveryHalfAndByteRoundTrips) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = f16_to_float(static_cast<uint16_t>(h));
    if (!std::isnan(f)) {
      EXPECT_EQ(float_to_f16(f), h);
    }
    const float b = bf16_to_float(static_cast<uint16_t>(h));
    if (!std::isnan(b)) {
      EXPECT_EQ(float_to_bf16(b), h);
    }
  }
  for (uint32_t h = 0; h < 256; ++h) {
    const float f = f8e4m3_to_float(static_cast<uint8_t>(h));
    if (!std::isnan(f)) {
      EXPECT_EQ(float_to_f8e4m3(f), h);
    }
  }
  EXPECT_EQ(float_to_f8e4m3(1e9f), 0x7e);
  EXPECT_EQ(float_to_f8e4m3(17.0f), float_to_f8e4m3(16.0f));  // tie goes to even
}

TEST(Threads, EveryIndexOnceAndErrorsCross) {
  std::vector<int> seen(1000, 0);
  parallel_for(0, 1000, 7, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) seen[static_cast<size_t>(i)]++;
  });
  for (int s : seen) EXPECT_EQ(s, 1);
  EXPECT_THROW(parallel_for(0, 10, 1,
                            [](int64_t b, int64_t) {
                              if (b == 5) fail_input("five");
                            }),
               Error);
}

TEST(Threads, ManyShortRegionsOfChangingWidth) {
  const int before = num_threads();
  std::vector<int64_t> sums(64);
  for (int64_t region = 0; region < 20000; ++region) {
    if (region % 4000 == 0) set_num_threads(1 + static_cast<int>(region / 4000));
    const int64_t n = 1 + region % 64;
    parallel_for(0, n, 1, [&](int64_t i, int64_t) { sums[static_cast<size_t>(i)] = region + i; });
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(sums[static_cast<size_t>(i)], region + i);
  }
  set_num_threads(before);
}

TEST(Threads, RegionsInsidePiecesAndOnOtherThreads) {
  const int before = num_threads();
  set_num_threads(3);
  std::atomic<int64_t> count{0};
  auto regions = [&] {
    for (int i = 0; i < 200; ++i)
      parallel_for(0, 8, 1,
                   [&](int64_t, int64_t) { parallel_for(0, 10, 3, [&](int64_t b, int64_t e) { count += e - b; }); });
  };
  std::thread other([&] {
    set_num_threads(2);
    regions();
  });
  regions();
  other.join();
  release_workers();
  regions();
  EXPECT_EQ(count, 3 * 200 * 80);
  set_num_threads(before);
}

TEST(Threads, AnErrorOfAWorkerLeavesThePoolUsable) {
  const int before = num_threads();
  set_num_threads(2);
  for (int i = 0; i < 200; ++i) {
    EXPECT_THROW(parallel_for(0, 100, 1,
                              [](int64_t b, int64_t) {
                                if (b >= 50) fail_input("half");
                              }),
                 Error);
    int64_t n = 0;
    parallel_for(0, 1, 1, [&](int64_t, int64_t) { ++n; });
    EXPECT_EQ(n, 1);
  }
  set_num_threads(before);
}

TEST(Json, TheWorkGrowsWithTheText) {
  // 300,000 keys, which took minutes when each was looked for among all before it.
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += fmt::format("{}\"{}\":[{},null,-1,2.5,true,\"x\",{{}}]", i ? "," : "", i, i);
  text += "}";
  const OrderedJson j = parse_ordered_json(text, "x.json");
  EXPECT_EQ(j.size(), 300000u);
  EXPECT_EQ(j.back().dump(), R"([299999,null,-1,2.5,true,"x",{}])");
  EXPECT_EQ(j.dump(), text);
  EXPECT_EQ(parse_json(text, "x.json"), Json::parse(text));
  EXPECT_EQ(nearest(std::string(1 << 20, 'a'), {"learning_rate"}), "");
}

TEST(Json, IntegersBeyond64BitsKeepTheirDigits) {
  for (const char* text : {"18446744073709551616", "-9223372036854775809", "100000000000000000000",
                           "115792089237316195423570985008687907853269984665640564039457584007913129639935"}) {
    const OrderedJson j = parse_ordered_json(std::string("[{\"a\":") + text + ",\"b\":[]}," + text + ",1.5]", "x.json");
    EXPECT_EQ(big_integer(j[1]), text);
    EXPECT_EQ(json_text(j), std::string("[{\"a\":") + text + ",\"b\":[]}," + text + ",1.5]");
    EXPECT_EQ(json_text(j, 1), std::string("[\n {\n  \"a\": ") + text + ",\n  \"b\": []\n },\n " + text + ",\n 1.5\n]");
    EXPECT_EQ(parse_ordered_json(json_text(j), "again"), j);
  }
  for (const char* text : {"18446744073709551615", "-9223372036854775808", "1e20", "-0.5"})
    EXPECT_EQ(big_integer(parse_ordered_json(text, "x.json")), std::nullopt) << text;
  EXPECT_EQ(parse_json("100000000000000000000", "x.json").get<double>(), 1e20);
  EXPECT_EQ(json_text(OrderedJson::parse(R"({"é":"\n"})")), "{\"é\":\"\\n\"}");
  for (const size_t digits : {308u, 309u, 617u, 4300u}) {
    const std::string text = "7" + std::string(digits - 1, '3');
    EXPECT_EQ(big_integer(parse_ordered_json(text, "x.json")), text);
  }
}

TEST(Json, NumbersAreTheNearestDoubleOrRefusedWithTheirPlace) {
  for (const auto& [text, value] : {std::pair("1.7976931348623157e308", 1.7976931348623157e308),
                                    {"4.9e-324", 4.9e-324},
                                    {"1e-400", 0.0},
                                    {"0.1", 0.1},
                                    {"9007199254740993.0", 9007199254740992.0},
                                    {"1.00000000000000011102230246251565404", 1.0},  // rounds up in 80 bits, then again
                                    {"2.2250738585072011e-308", 2.2250738585072011e-308}}) {
    EXPECT_EQ(parse_json(text, "x.json").get<double>(), value) << text;
    EXPECT_EQ(parse_ordered_json(text, "x.json").get<double>(), value) << text;
  }
  const auto error = [](const std::string& text) -> std::string {
    try {
      parse_ordered_json(text, "x.json");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  for (const char* number : {"1e400", "-1e400", "1.8e308", "1e99999", "12345.5E+306"})
    EXPECT_EQ(error(fmt::format("{{\"a {}\": \"\\\" {}\",\n \"b\": [1, {}]}}", number, number, number)),
              fmt::format("x.json:2:11: {} is beyond the largest number of a 64-bit float (1.8e308): write it as text, "
                          "or a smaller one",
                          number));
  for (const size_t digits : {4301u, 6000u})
    EXPECT_EQ(
        error("[0, 1" + std::string(digits - 1, '0') + "]"),
        fmt::format("x.json:1:5: 1{}… is an integer of more than 4300 digits: write it as text", std::string(39, '0')));
}

TEST(Json, ValuesAreEqualByWhatTheyAre) {
  const auto same = [](const char* a, const char* b) {
    const OrderedJson x = parse_ordered_json(a, "a"), y = parse_ordered_json(b, "b");
    EXPECT_EQ(same_json(x, y), same_json(y, x));
    return same_json(x, y);
  };
  EXPECT_TRUE(same(R"({"a":1,"b":[2.0,"x",null]})", R"({"b":[2,"x",null],"a":1.0})"));
  EXPECT_TRUE(same("-0", "0.0"));
  EXPECT_TRUE(same("0.5", "5e-1"));
  EXPECT_FALSE(same("1", "true"));
  EXPECT_FALSE(same("1", "\"1\""));
  EXPECT_FALSE(same("1e23", "100000000000000000000000"));  // the double is 8,388,608 less
  EXPECT_FALSE(same(R"({"a":1})", R"({"b":1})"));
  EXPECT_FALSE(same("[1,2]", "[1]"));
}

TEST(Json, RefusesDuplicatesDepthAndSyntaxWithPlace) {
  EXPECT_THROW(parse_ordered_json(R"({"a":{"b":1,"c":2,"b":3}})", "x.json"), Error);
  EXPECT_EQ(parse_ordered_json(R"([{"b":1},{"b":{"b":2}}])", "x.json").dump(), R"([{"b":1},{"b":{"b":2}}])");
  EXPECT_NO_THROW(parse_json(std::string(256, '[') + "1" + std::string(256, ']'), "x.json"));
  EXPECT_THROW(parse_json(std::string(257, '[') + "1" + std::string(257, ']'), "x.json"), Error);
  EXPECT_THROW(parse_json(R"({"a":1,"a":2})", "x.json"), Error);
  EXPECT_THROW(parse_json(std::string(100000, '['), "x.json"), Error);
  EXPECT_THROW(parse_json("5E981", "x.json"), Error);  // more than a double holds
  try {
    parse_json("{\n  \"a\": ]\n}", "x.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("x.json:2:8"), std::string::npos) << e.what();
  }
}

// nlohmann's operator[] of a constant value is undefined without the key.
TEST(Json, WhatIsNotThereIsAnErrorInEveryBuild) {
  const Json j = parse_json(R"({"a": {"b": 1}})", "test");
  EXPECT_EQ(j["a"]["b"], 1);
  EXPECT_THROW((void)j["c"], std::logic_error);
  EXPECT_THROW((void)j["a"]["c"], std::logic_error);
  const OrderedJson o = parse_ordered_json(R"({"a": [1]})", "test");
  EXPECT_THROW((void)o["c"], std::logic_error);
  EXPECT_THROW((void)o["a"]["c"], std::exception);
}

TEST(Files, AtomicWriteLeavesOldFileWhenAbandoned) {
  const std::string dir = testing::TempDir() + "mxt_files";
  make_folders(dir);
  write_file_atomic(dir + "/f", "old");
  {
    AtomicFile f(dir + "/f");
    f.write("half of the new");
  }
  EXPECT_EQ(read_file(dir + "/f"), "old");
  EXPECT_EQ(list_files(dir).size(), 1u);
  write_file_atomic(dir + "/f", "new");
  EXPECT_EQ(read_file(dir + "/f"), "new");
  FolderLock lock(dir);
  EXPECT_THROW(FolderLock second(dir), Error);
  fs::remove_all(dir);
}

// To open one that nobody writes to waits for ever.
TEST(Files, APipeIsReadWhereSomebodyWritesToIt) {
  const std::string dir = testing::TempDir() + "mxt_read_pipe";
  fs::remove_all(dir);
  make_folders(dir);
  const std::string pipe = dir + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  try {
    read_file(pipe);
    ADD_FAILURE() << "was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput);
    EXPECT_NE(std::string(e.what()).find("nobody has begun to write to it"), std::string::npos) << e.what();
  }
  for (const std::string& text : {std::string(), std::string(300'000, 'x')}) {
    std::thread writer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));  // late, and slow
      const int fd = open(pipe.c_str(), O_WRONLY);
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      for (size_t at = 0; at < text.size(); at += 1000) EXPECT_EQ(write(fd, text.data() + at, 1000), 1000);
      close(fd);
    });
    EXPECT_EQ(read_file(pipe), text);
    writer.join();
  }
  fs::remove_all(dir);
}

// Nothing can take the place of a pipe or a device.
TEST(Files, StreamsAreWrittenTo) {
  const std::string dir = testing::TempDir() + "mxt_streams";
  fs::remove_all(dir);
  make_folders(dir);
  const std::string pipe = dir + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file_atomic(pipe, "through");
  char got[16] = {};
  EXPECT_EQ(read(reader, got, sizeof got), 7);
  EXPECT_STREQ(got, "through");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  write_file_atomic("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  // The standard output, wherever it goes.
  const int out = dup(STDOUT_FILENO), file = open((dir + "/out").c_str(), O_WRONLY | O_CREAT, 0600);
  std::fflush(stdout);
  dup2(file, STDOUT_FILENO);
  for (const char* name : {"-", "/dev/stdout"}) {
    AtomicFile f(name);
    f.write("a line\n");
    f.commit();
  }
  dup2(out, STDOUT_FILENO);
  close(out), close(file);
  EXPECT_EQ(read_file(dir + "/out"), "a line\na line\n");
  EXPECT_FALSE(fs::exists("-"));
  fs::remove_all(dir);
}

TEST(Files, ALinkStaysAndWhatItPointsToIsReplaced) {
  const std::string dir = testing::TempDir() + "mxt_links";
  fs::remove_all(dir);
  make_folders(dir);
  write_file_atomic(dir + "/target", "old");
  fs::create_symlink(dir + "/target", dir + "/link");
  write_file_atomic(dir + "/link", "new");
  EXPECT_TRUE(fs::is_symlink(dir + "/link"));
  EXPECT_EQ(read_file(dir + "/target"), "new");
  fs::create_symlink(dir + "/nowhere", dir + "/dangling");
  EXPECT_THROW(write_file_atomic(dir + "/dangling", "x"), Error);
  EXPECT_THROW(list_files(dir), Error);  // a file that is not there would be left out in silence
  fs::remove_all(dir);
}

TEST(Files, AnUnfinishedFolderIsNobodyElses) {
  const std::string dir = testing::TempDir() + "mxt_unfinished_folder";
  fs::remove_all(dir);
  make_folders(dir + "/.out.999999999.part");  // of a process that is gone
  make_folders(dir + "/out.part");
  make_folders(dir + "/out.old");
  {
    const UnfinishedFolder folder(dir + "/out");
    EXPECT_FALSE(fs::exists(dir + "/.out.999999999.part"));
    write_file_atomic(folder.path() + "/f", "x");
    replace_folder(folder.path(), dir + "/out");
    EXPECT_EQ(read_file(dir + "/out/f"), "x");
  }
  {
    const UnfinishedFolder abandoned(dir + "/out");
  }
  EXPECT_TRUE(fs::exists(dir + "/out.part") && fs::exists(dir + "/out.old"));
  size_t entries = 0;
  for ([[maybe_unused]] const auto& e : fs::directory_iterator(dir)) ++entries;
  EXPECT_EQ(entries, 3u);
  write_file_atomic(dir + "/file", "mine");
  EXPECT_THROW(UnfinishedFolder(dir + "/file"), Error);
  EXPECT_THROW(UnfinishedFolder(dir + "/."), Error);
  fs::remove_all(dir);
}

TEST(Files, OnlyWhatAKilledWriterLeftIsRemoved) {
  const std::string dir = testing::TempDir() + "mxt_unfinished";
  fs::remove_all(dir);
  make_folders(dir + "/sub");
  make_folders(dir + "/.hidden");
  const std::vector<std::string> left = {".f.json.12.0.tmp", "sub/.model-00001.safetensors.7.31.tmp"};
  const std::vector<std::string> others = {".bashrc", ".f.tmp",   ".f.1.tmp",       ".f.x.1.tmp",
                                           "..1.tmp", ".1.1.tmp", "f.json.1.0.tmp", ".hidden/.f.1.0.tmp"};
  for (const auto& names : {left, others})
    for (const std::string& n : names) std::ofstream(dir + "/" + n) << "x";
  EXPECT_EQ(list_files(dir), std::vector<std::string>{"f.json.1.0.tmp"});
  remove_unfinished(dir);
  for (const std::string& n : left) EXPECT_FALSE(fs::exists(dir + "/" + n)) << n;
  for (const std::string& n : others) EXPECT_TRUE(fs::exists(dir + "/" + n)) << n;
  fs::remove_all(dir);
}

TEST(Files, ADeviceWithoutAnEndIsRefused) {
  EXPECT_THROW(read_file("/dev/zero"), Error);
  EXPECT_EQ(read_file("/dev/null"), "");
}

TEST(Files, BracesOfAPatternAreChoices) {
  std::string dir = (fs::temp_directory_path() / "mxt_glob_XXXXXX").string();
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  for (const char* name : {"a/1.txt", "a/2.txt", "b/1.txt", "c/1.txt", "{x}/1.txt", "{a,b}.txt"}) {
    fs::create_directories(fs::path(dir + "/" + name).parent_path());
    std::ofstream(dir + "/" + name) << "x";
  }
  const auto found = [&](const std::string& pattern) {
    std::string all;
    for (const std::string& f : glob_files(dir + "/" + pattern)) all += f.substr(dir.size() + 1) + " ";
    return all;
  };
  EXPECT_EQ(found("{a,b}/*.txt"), "a/1.txt a/2.txt b/1.txt ");
  EXPECT_EQ(found("{b,a,{c,a}}/{1,}.txt"), "a/1.txt b/1.txt c/1.txt ");
  EXPECT_EQ(found("{x}/*.txt"), "{x}/1.txt ");  // one choice is none
  EXPECT_EQ(found("{a,b}.txt"), "{a,b}.txt ");  // a plain path matches itself
  EXPECT_EQ(found("{a,b/*.txt"), "");
  EXPECT_EQ(found("?/{1,2}.txt"), "a/1.txt a/2.txt b/1.txt c/1.txt ");
  std::string many;
  for (int i = 0; i < 40; ++i) many += "{a,b}";
  EXPECT_THROW(found(many), Error);
  EXPECT_THROW(found(std::string(100000, '{') + many), Error);
  fs::remove_all(dir);
}

TEST(Text, PrintableIsOneLineThatReadsAsItIsWritten) {
  EXPECT_EQ(printable("Köln 日本 😀 \"x\""), "Köln 日本 😀 \"x\"");
  EXPECT_EQ(printable("a\x1b[31m\nb\x7f"), "a\\x1b[31m\\x0ab\\x7f");
  EXPECT_EQ(printable("\xC2\x85 \xff \xE2\x80"), "\\xc2\\x85 \\xff \\xe2\\x80");
  for (const char* turns : {"\u2028", "\u2029", "\u202A", "\u202E", "\u2066", "\u2069"})
    EXPECT_EQ(printable(std::string("a") + turns + "b").size(), 14u) << turns;
  for (const char* plain : {"\u2027", "\u202F", "\u2065", "\u206A", "\u2014"}) EXPECT_EQ(printable(plain), plain);
}

TEST(Text, InvalidUtf8AsPythonReplaces) {
  EXPECT_EQ(replace_invalid_utf8("a\xF0\x9F\x92z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(nearest("lerning_rate", {"learning_rate", "batch"}), "learning_rate");
  EXPECT_EQ(nearest("zzzz", {"learning_rate", "batch"}), "");
}

}  // namespace
}  // namespace mxt
