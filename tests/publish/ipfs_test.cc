#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "folders.h"
#include "publish/ipfs/car.h"
#include "publish/ipfs/folder_dag.h"
#include "publish/ipfs/import.h"
#include "publish/ipfs/murmur3.h"
#include "publish/support.h"

namespace mxt::publish {
namespace {

// As tools/golden/unixfs.mjs makes it.
std::string content(uint32_t n) {
  std::string out(n, '\0');
  uint32_t x = n + 1;
  for (char& c : out) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    c = static_cast<char>(x);
  }
  return out;
}

void write(const std::string& path, std::string_view bytes) {
  make_folders(fs::path(path).parent_path().string());
  write_file_atomic(path, bytes);
}

// The golden file's shape on disk; where its root is.
std::string build(const Json& entries, const std::string& folder) {
  make_folders(folder);
  for (const Json& e : entries) {
    const std::string path = e[0], kind = e[1];
    if (kind == "folder") make_folders(folder + "/" + path);
    if (kind == "file" && path.empty()) {
      write_file_atomic(folder + ".file", content(e[2]));
      return folder + ".file";
    }
    if (kind == "file") write(folder + "/" + path, content(e[2]));
    if (kind != "series") continue;
    const std::string suffix = e[3];
    for (uint32_t i = 0; i < e[2].get<uint32_t>(); ++i) {
      const std::string at = fmt::format("{}/{}{:0{}}{}", folder, path, i, e[4].get<int>(), suffix);
      if (i == 0) make_folders(fs::path(at).parent_path().string());
      FILE* f = std::fopen(at.c_str(), "wb");  // thousands of files: not each to the disk
      const std::string bytes = content(i % 7);
      std::fwrite(bytes.data(), 1, bytes.size(), f);
      std::fclose(f);
    }
  }
  return folder;
}

// tools/golden/kubo_cid.go shows that Kubo's own library gives the same ids.
TEST(ContentIds, AreTheJavaScriptImportersForEveryShapeAndProfileInOnePass) {
  const Json golden = read_json_file(std::string(kSourceDir) + "/tests/golden/publish/unixfs.json");
  std::vector<const UnixFsProfile*> profiles;
  for (const UnixFsProfile& p : unixfs_profiles()) profiles.push_back(&p);
  ASSERT_EQ(profiles.size(), 3u);
  for (const auto& [name, shape] : golden.items()) {
    const TempFolder t;
    const std::string root = build(shape["entries"], t.path() + "/root");
    const auto roots = import_tree(list_tree(root, true).entries, profiles);
    for (const DagRoot& r : roots)
      EXPECT_EQ(r.text(), shape["cids"][std::string(r.profile->name)].get<std::string>())
          << name << " " << r.profile->name;
  }
}

TEST(ContentIds, DoNotDependOnTheNumberOfProfilesComputedTogether) {
  const TempFolder t;
  write(t.path() + "/f", content(3'000'000));
  const auto entries = list_tree(t.path() + "/f", false).entries;
  const UnixFsProfile &a = unixfs_profile("kubo-v1"), &b = unixfs_profile("unixfs-v1-2025");
  EXPECT_EQ(import_tree(entries, {&a})[0].cid, import_tree(entries, {&b, &a})[1].cid);
}

TEST(ContentIds, LeaveHiddenEntriesOutUnlessAskedFor) {
  const TempFolder t;
  write(t.path() + "/r/.secret", "s");
  write(t.path() + "/r/.git/config", "c");
  write(t.path() + "/r/a", "a");
  const TreeListing without = list_tree(t.path() + "/r", false), with = list_tree(t.path() + "/r", true);
  EXPECT_EQ(without.entries.size(), 1u);
  EXPECT_EQ(without.hidden, 2u);
  EXPECT_EQ(with.entries.size(), 3u);
  EXPECT_EQ(with.hidden, 0u);
}

// `ipfs add` keeps links as nodes of type 4: 0a 05 (08 04 12 01 61) for one to "a".
TEST(ContentIds, KeepSymbolicLinksAsLinks) {
  const TempFolder t;
  write(t.path() + "/r/a", "a");
  fs::create_symlink("a", t.path() + "/r/b");
  std::map<std::string, std::string> blocks;
  import_tree(list_tree(t.path() + "/r", false).entries, {&unixfs_profile("kubo-v1")},
              [&](const net::Cid& c, std::string_view b) { blocks[c.text()] = std::string(b); });
  bool seen = false;
  for (const auto& [cid, block] : blocks) seen = seen || block == std::string("\x0a\x05\x08\x04\x12\x01\x61", 7);
  EXPECT_TRUE(seen);
}

TEST(ContentIds, RefuseWhatHasNone) {
  const TempFolder t;
  EXPECT_THROW(list_tree(t.path() + "/nothing", false), Error);
  EXPECT_THROW(list_tree("/dev/null", false), Error);
  write(t.path() + "/r/bad\xff", "x");
  EXPECT_THROW(list_tree(t.path() + "/r", false), Error);
  EXPECT_THROW(unixfs_profile("kubo"), Error);
  using E = TreeEntry;
  const std::string f = t.path() + "/r/bad\xff";
  EXPECT_THROW(import_tree({{E::Kind::kFile, "a", f}, {E::Kind::kFile, "a/b", f}}, {&unixfs_profile("kubo-v1")}),
               Error);
  EXPECT_THROW(import_tree({{E::Kind::kFile, "a", f}, {E::Kind::kFile, "a", f}}, {&unixfs_profile("kubo-v1")}), Error);
}

// Vectors of the reference implementation: the high half of MurmurHash3_x64_128 with seed 0.
TEST(Murmur3, IsTheReferences) {
  EXPECT_EQ(murmur3_x64_64(""), 0u);
  EXPECT_EQ(murmur3_x64_64("hello"), 0xcbd8a7b341bd9b02u);
  EXPECT_EQ(murmur3_x64_64("The quick brown fox jumps over the lazy dog"), 0xe34bbc7bbc071b6cu);
}

// "hello\n" as ipfs-car writes it.
TEST(Car, IsByteForByteTheOneOfIpfsCar) {
  const TempFolder t;
  write(t.path() + "/hello", "hello\n");
  CarWriter car(t.path() + "/out.car", 1);
  const auto root = import_tree(list_tree(t.path() + "/hello", false).entries, {&unixfs_profile("kubo-v1")},
                                [&](const net::Cid& c, std::string_view b) { car.add(c, b), car.add(c, b); });
  EXPECT_FALSE(fs::exists(t.path() + "/out.car"));
  car.commit(root[0].cid);
  const std::string bytes = read_file(t.path() + "/out.car");
  EXPECT_EQ(to_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}),
            "3aa265726f6f747381d82a582500015512205891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03677665"
            "7273696f"
            "6e012a015512205891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be0368656c6c6f0a");
}

// Every block is what its id says, and reading it as UnixFS gives the folder back.
TEST(Car, NeverTakesThePlaceOfWhatItHolds) {
  const TempFolder t;
  write(t.path() + "/r/a", "x");
  fs::create_symlink(t.path() + "/r/a", t.path() + "/link");
  fs::create_hard_link(t.path() + "/r/a", t.path() + "/hard");
  const std::string a = t.path() + "/r/a";
  for (const std::string& car : {a, t.path() + "/./r/a", t.path() + "/link", t.path() + "/hard"})
    EXPECT_THROW(check_car_place(a, car), Error) << car;
  EXPECT_THROW(check_car_place(t.path() + "/r", a), Error);
  EXPECT_THROW(check_car_place(t.path() + "/r", t.path() + "/r/new.car"), Error);
  check_car_place(a, t.path() + "/new.car");
  check_car_place(t.path() + "/r", t.path() + "/r.car");
}

TEST(Car, HoldsEveryBlockOnce) {
  for (const UnixFsProfile& p : unixfs_profiles()) {
    const TempFolder t;
    write(t.path() + "/r/a/x", content(600'000));
    write(t.path() + "/r/b/x", content(600'000));
    write(t.path() + "/r/c", "c");
    CarWriter car(t.path() + "/out.car", p.cid_version);
    const auto root = import_tree(list_tree(t.path() + "/r", false).entries, {&p},
                                  [&](const net::Cid& c, std::string_view b) { car.add(c, b); })[0];
    car.commit(root.cid);
    const std::string bytes = read_file(t.path() + "/out.car");
    std::string_view rest = bytes;
    const auto varint = [&] {
      uint64_t v = 0;
      for (int shift = 0;; shift += 7) {
        const auto c = static_cast<unsigned char>(rest.front());
        rest.remove_prefix(1);
        v |= static_cast<uint64_t>(c & 127) << shift;
        if (c < 128) return v;
      }
    };
    const std::string_view header = rest.substr(1, varint());
    EXPECT_NE(header.find(root.cid.binary(p.cid_version)), std::string_view::npos) << p.name;
    rest.remove_prefix(header.size());
    std::map<std::string, std::string> blocks;
    uint64_t sum = 0;
    while (!rest.empty()) {
      const uint64_t n = varint();
      std::string_view section = rest.substr(0, n);
      rest.remove_prefix(n);
      const net::Cid c = net::read_binary_cid(&section);
      EXPECT_TRUE(c.holds(section)) << p.name;
      EXPECT_TRUE(blocks.emplace(c.text(), section).second) << p.name;
      sum += section.size();
    }
    EXPECT_LT(sum, root.dag_bytes) << "the two equal files share their blocks";
    const net::UnixFsNode folder = net::parse_unixfs(blocks.at(root.cid.text()), "root");
    ASSERT_EQ(folder.links.size(), 3u);
    EXPECT_EQ(folder.links[2].name, "c");
    EXPECT_EQ(folder.links[0].cid, folder.links[1].cid);
  }
}

}  // namespace
}  // namespace mxt::publish
