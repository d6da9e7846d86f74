#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "data/source/absent.h"
#include "data/source/records.h"
#include "data/source/splits.h"
#include "helpers.h"

namespace mxt::data {
namespace {

using testing::DataTest;
using testing::error_of;

std::string gzip(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* c = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);  // as the zstd command does
  out.resize(ZSTD_compress2(c, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(c);
  return out;
}

class SourceTest : public DataTest {
 protected:
  std::vector<Record> read(const std::string& path, const SourceLimits& limits = {}) {
    std::vector<Record> out;
    for (const SourceFile& f : find_source_files(path, "train")) {
      const auto reader = open_records(f, limits);
      Record r;
      while (reader->next(&r)) out.push_back(r);
    }
    return out;
  }
  std::vector<std::vector<std::string>> cells(const std::string& csv) {
    std::vector<std::vector<std::string>> out;
    for (const Record& r : read(write("a.csv", csv))) out.push_back(r.cells);
    return out;
  }
  std::vector<std::string> json(const std::string& text) {
    std::vector<std::string> out;
    for (const Record& r : read(write("a.json", text))) out.push_back(r.text);
    return out;
  }
};

TEST_F(SourceTest, JsonLinesKeepLineNumbersOverBlankLinesAndNeedNoLastNewline) {
  const auto rows = read(write("a.jsonl", "{\"text\":\"1\"}\n\n  \r\n{\"text\":\"2\"}"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].line, 1u);
  EXPECT_EQ(rows[1].line, 4u);
  EXPECT_EQ(rows[1].text, "{\"text\":\"2\"}");
}

TEST_F(SourceTest, JsonLinesOverSeveralLinesAreRefusedWithTheNameThatReadsThem) {
  for (const char* text : {"{\n  \"text\": \"1\"\n}\n", "[\n  {\"text\": \"1\"}\n]",
                           "[{\"text\": \"1\"},\n {\"text\": \"2\"}]", "[{\n  \"text\": \"1\"\n}]"}) {
    EXPECT_HAS(error_of([&] { read(write("a.jsonl", text)); }), "a.jsonl:1: the row goes on in the next line");
    EXPECT_EQ(read(write("a.json", text))[0].kind, FileKind::kJson) << text;
  }
}

TEST_F(SourceTest, ByteOrderMarkIsSkippedAndUtf16IsRefused) {
  EXPECT_EQ(read(write("a.jsonl", "\xef\xbb\xbf{}\n"))[0].text, "{}\n");
  EXPECT_HAS(error_of([&] { read(write("b.jsonl", "\xff\xfe{\0")); }), "iconv");
  for (const std::string& wide :
       {std::string("{\0\"\0", 4), std::string("\0{\0\"", 4), std::string("{\0\0\0", 4), std::string("\0\0\0{", 4)})
    EXPECT_HAS(error_of([&] { read(write("c.jsonl", wide)); }), "iconv");
}

TEST_F(SourceTest, FolderIsReadInNameOrderAndOtherFilesAreLeftOut) {
  write("d/b.jsonl", "{\"b\":1}\n");
  write("d/a.jsonl", "{\"a\":1}\n");
  write("d/README.md", "not data");
  write("d/x.bin", "not data");
  const auto rows = read(path("d"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].text, "{\"a\":1}\n");
}

TEST(Splits, AreThoseThatTheDatasetsLibraryReads) {
  const auto of = [](const std::vector<std::string>& paths, const std::string& split) {
    std::string all;
    for (const size_t i : paths_of_split(paths, split).files) all += std::to_string(i);
    return all;
  };
  const std::vector<std::string> sharded = {
      "data/train_sft-00000-of-00002.parquet", "data/train_sft-00001-of-00002.parquet",
      "data/train_gen-00000-of-00001-0a1b2c.parquet", "dev-00000-of-00001.parquet"};
  EXPECT_EQ(of(sharded, "train_sft"), "01");
  EXPECT_EQ(of(sharded, "train_gen"), "2");
  EXPECT_EQ(of(sharded, "train"), "");
  EXPECT_EQ(of(sharded, "validation"), "3");
  const std::vector<std::string> plain = {"train.jsonl", "my_dev.csv", "test/a.jsonl", "train_sft.jsonl",
                                          "extra/b.jsonl"};
  EXPECT_EQ(of(plain, "train"), "03");
  EXPECT_EQ(of(plain, "train_sft"), "3");
  EXPECT_EQ(of(plain, "validation"), "1");
  EXPECT_EQ(of(plain, "test"), "2");
  EXPECT_EQ(of(plain, "extra"), "4");
  EXPECT_EQ(of(plain, "ext"), "");
  for (const char* no : {"train[:10]", "train+validation", "train[:10%]"}) EXPECT_THROW(check_split(no), Error);
}

TEST_F(SourceTest, FolderWithSplitsInItsNamesGivesTheSplitAsked) {
  write("d/my-train-00001.jsonl", "{}");
  write("d/my_test.jsonl", "{}");
  ASSERT_EQ(find_source_files(path("d"), "train").size(), 1u);
  EXPECT_EQ(find_source_files(path("d"), "test")[0].path, path("d/my_test.jsonl"));
  EXPECT_HAS(error_of([&] { find_source_files(path("d"), "validation"); }), "test, train");
  EXPECT_EQ(find_source_files(path("d/*.jsonl"), "train").size(), 2u);  // a glob names its files itself
}

TEST_F(SourceTest, SplitsInTheNamesOfFoldersAreSplitsToo) {
  write("d/train/b.jsonl", "{}");
  write("d/train/a.jsonl", "{}");
  write("d/test/a.jsonl", "{}");
  EXPECT_EQ(find_source_files(path("d"), "train").size(), 2u);
  ASSERT_EQ(find_source_files(path("d"), "test").size(), 1u);
  EXPECT_EQ(find_source_files(path("d"), "test")[0].path, path("d/test/a.jsonl"));
  // The folder that is given names no split: its own name is the user's.
  write("test/x/a.jsonl", "{}");
  EXPECT_EQ(find_source_files(path("test"), "train").size(), 1u);
}

TEST_F(SourceTest, FilesThatARecipeNamesAndThatAreNotHere) {
  const std::string here = write("here.jsonl", "{}");
  const auto keys = [](const config::Data& d) {
    std::string out;
    for (const AbsentFile& f : absent_files(d, [&](const std::string& p) { return p == "ships.md" ? "/" : p; }))
      out += f.key + " ";
    return out;
  };
  config::Data d;
  d.path = path("none.jsonl"), d.eval_path = here;
  EXPECT_EQ(keys(d), "data.path ");
  d.path = path("*.jsonl"), d.eval_path = path("none/*.jsonl");
  EXPECT_EQ(keys(d), "data.eval_path ");
  config::Data mixed;
  mixed.source = config::DataSource::kMixture;
  mixed.mixture.resize(3);
  mixed.mixture[0].path = here, mixed.mixture[1].path = path("none.jsonl"), mixed.mixture[2].path = "ships.md";
  EXPECT_EQ(keys(mixed), "data.mixture[1].path ");
  mixed.mixture[1].optional = true;
  EXPECT_EQ(keys(mixed), "");
  mixed.mixture.erase(mixed.mixture.begin());
  mixed.mixture[1] = mixed.mixture[0];
  EXPECT_EQ(keys(mixed), "data.mixture[0].path data.mixture[1].path ");  // none of them is there
  EXPECT_HAS(error_of([&] { find_source_files(path("gsm8k/train.jsonl"), "train"); }),
             "curl -fL --create-dirs -o " + path(""));
}

TEST_F(SourceTest, MissingFilesAndUnknownEndingsSayWhatToDo) {
  EXPECT_HAS(error_of([&] { find_source_files(path("none.jsonl"), "train"); }), "relative to the working folder");
  EXPECT_HAS(error_of([&] { find_source_files(write("a.arrow", "x"), "train"); }), ".jsonl");
  std::filesystem::create_directory(path("empty"));
  EXPECT_HAS(error_of([&] { find_source_files(path("empty"), "train"); }), "no data files");
}

// As Windows' programs name them; beside others such a file was left out of its folder without a word.
TEST_F(SourceTest, EndingsInCapitalsAreTheSameEndings) {
  write("d/A.JSONL", "{}");
  write("d/b.Csv", "text\nx\n");
  write("d/c.JSON.gz", "");
  const auto files = find_source_files(path("d"), "train");
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].kind, FileKind::kJsonLines);
  EXPECT_EQ(files[1].kind, FileKind::kCsv);
  EXPECT_EQ(files[2].kind, FileKind::kJson);
}

TEST_F(SourceTest, WhatIsNoFileIsNamedAsWhatItIs) {
  ASSERT_EQ(::mkfifo(path("pipe.jsonl").c_str(), 0600), 0);
  EXPECT_HAS(error_of([&] { find_source_files(path("pipe.jsonl"), "train"); }), "neither a file nor a folder");
  EXPECT_HAS(error_of([&] { find_source_files("/dev/zero", "train"); }), "neither a file nor a folder");
  std::filesystem::create_symlink("loop.jsonl", path("loop.jsonl"));
  EXPECT_HAS(error_of([&] { find_source_files(path("loop.jsonl"), "train"); }), "no such file");
  std::filesystem::create_directory(path("d1"));
  EXPECT_HAS(error_of([&] { find_source_files(path("d*"), "train"); }), "no file matches");
  write("d/a.jsonl", "{}");
  std::filesystem::create_directory_symlink(".", path("d/self"));
  EXPECT_EQ(find_source_files(path("d"), "train").size(), 1u);
  EXPECT_EQ(find_source_files(path("{d,d1,e}/*.{jsonl,csv}"), "train").size(), 1u);
}

TEST_F(SourceTest, NamesThatAreNoLineOfTextAreRefused) {
  for (const char* name : {"d/a\xff.jsonl", "d/a\nb.jsonl", "d/\x1b[31m.jsonl"}) {
    const std::string file = write(name, "{}");
    const std::string e = error_of([&] { find_source_files(path("d"), "train"); });
    EXPECT_HAS(e, "the name of this file holds");
    EXPECT_EQ(e.find_first_of("\xff\n\x1b"), std::string::npos);
    EXPECT_EQ(error_of([&] { find_source_files(path("d/*"), "train"); }), e);
    std::filesystem::remove(file);
  }
}

TEST_F(SourceTest, FoldersThatCannotBeReadAreNotLeftOut) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  write("d/a.jsonl", "{}");
  write("d/s/b.jsonl", "{}");
  ASSERT_EQ(::chmod(path("d/s").c_str(), 0), 0);
  EXPECT_HAS(error_of([&] { find_source_files(path("d"), "train"); }), "d/s: cannot be read");
  EXPECT_HAS(error_of([&] { find_source_files(path("d/**/*.jsonl"), "train"); }), "d/s: cannot be read");
  ASSERT_EQ(::chmod(path("d/s").c_str(), 0700), 0);
}

TEST_F(SourceTest, EmptyAndOddPackedFilesAreCalledWhatTheyAre) {
  for (const char* name : {"a.jsonl.gz", "a.jsonl.zst"})
    EXPECT_HAS(error_of([&] { read(write(name, "")); }), "is empty");
  EXPECT_HAS(error_of([&] { read(write("b.csv", "te\xffxt\nab\n")); }), "b.csv:1: a column's name");
  // pzstd begins with a skippable frame.
  std::string frame(ZSTD_compressBound(3), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), "{}\n", 3, 1));
  EXPECT_EQ(read(write("c.jsonl.zst", std::string("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12) + frame))[0].text, "{}\n");
}

TEST_F(SourceTest, PackedFilesReadAsPlainOnes) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "{\"text\":\"row " + std::to_string(i) + "\"}\n";
  for (const std::string& p :
       {write("a.jsonl.gz", gzip(text)), write("a.jsonl.zst", zstd(text)),
        write("b.jsonl.gz", gzip(text.substr(0, 1000)) + gzip(text.substr(1000))),
        write("b.jsonl.zst", zstd(text.substr(0, 1000)) + zstd(text.substr(1000))), write("c.jsonl", gzip(text))}) {
    std::string back;
    for (const Record& r : read(p)) back += r.text;
    EXPECT_EQ(back, text) << p;
  }
}

TEST_F(SourceTest, TruncatedCorruptAndMisnamedPacksAreRefused) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "{\"n\":" + std::to_string(i * 7919) + "}\n";
  for (const auto& [name, packed] : {std::pair{"a.jsonl.gz", gzip(text)}, std::pair{"a.jsonl.zst", zstd(text)}}) {
    EXPECT_HAS(error_of([&] { read(write(name, packed.substr(0, packed.size() / 2))); }), "truncated") << name;
    std::string bad = packed;
    for (size_t i = bad.size() / 2; i < bad.size() / 2 + 40; ++i) bad[i] = static_cast<char>(~bad[i]);
    EXPECT_HAS(error_of([&] { read(write(name, bad)); }), "corrupt") << name;
    EXPECT_HAS(error_of([&] { read(write(name, text)); }), "not compressed") << name;
  }
  // The row at which unpacking ends is named.
  std::string long_text;
  for (int i = 0; i < 200'000; ++i) long_text += "{\"n\":" + std::to_string(int64_t{i} * 7919 * 104729) + "}\n";
  for (const auto& [name, packed] :
       {std::pair{"b.jsonl.gz", gzip(long_text)}, std::pair{"b.jsonl.zst", zstd(long_text)}}) {
    const std::string said = error_of([&] { read(write(name, packed.substr(0, packed.size() / 2))); });
    const int line = std::atoi(said.substr(said.find(':') + 1).c_str());
    EXPECT_TRUE(line > 50'000 && line < 150'000) << said;
  }
}

TEST_F(SourceTest, RowsAndPacksWithoutEndAreRefused) {
  SourceLimits limits;
  limits.row_bytes = 1000;
  EXPECT_HAS(error_of([&] { read(write("a.jsonl", "{}\n" + std::string(2000, ' ')), limits); }),
             "a.jsonl:2: the row is longer");
  EXPECT_HAS(error_of([&] { read(write("a.json", "[\"" + std::string(2000, 'x') + "\"]"), limits); }), "longer");
  EXPECT_HAS(error_of([&] { read(write("a.csv", "a\n" + std::string(2000, 'x')), limits); }), "longer");
  limits = {};
  limits.free_bytes = 1 << 20;
  EXPECT_HAS(error_of([&] { read(write("a.jsonl.zst", zstd(std::string(64 << 20, '\n'))), limits); }), "bomb");
}

TEST_F(SourceTest, JsonArraysAndConcatenatedRowsAreCutAtTheirEnds) {
  using V = std::vector<std::string>;
  EXPECT_EQ(json(" [ {\"a\": \"]}\\\"\"} ,\n [1,{\"b\":2}] , 3,\"x\" ]\n"),
            (V{"{\"a\": \"]}\\\"\"}", "[1,{\"b\":2}]", "3", "\"x\""}));
  EXPECT_EQ(json("{\"a\":1}\n{\"b\":2} {\"c\":3}"), (V{"{\"a\":1}", "{\"b\":2}", "{\"c\":3}"}));
  EXPECT_EQ(json("[]"), V{});
  EXPECT_EQ(read(write("b.json", "[\n{},\n\n{}]"))[1].line, 4u);
}

TEST_F(SourceTest, ARowKnowsWhetherItIsAllThatTheFileHolds) {
  const auto alone = [&](const char* name, const char* bytes) { return read(write(name, bytes))[0].alone; };
  for (const char* name : {"a.jsonl", "a.json"}) {
    EXPECT_TRUE(alone(name, "{\"a\":1}\n\r\n"));
    EXPECT_TRUE(alone(name, "\n{\"a\":1}"));
    EXPECT_FALSE(alone(name, "{\"a\":1}\n\n{\"a\":2}\n"));
  }
  EXPECT_FALSE(alone("a.json", "[{\"a\":1}]"));
  EXPECT_FALSE(alone("a.csv", "a\n1\n"));
  const std::vector<Record> rows = read(write("b.jsonl", "{}\n\n {}\n{}"));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].line, 3u);
  EXPECT_FALSE(rows[1].alone || rows[2].alone);
}

TEST_F(SourceTest, BrokenJsonArraysNameTheLine) {
  EXPECT_HAS(error_of([&] { json("[{}\n{}]"); }), "a.json:2: expected \",\"");
  EXPECT_HAS(error_of([&] { json("[{},\n"); }), "a.json:2: the array is not closed");
  EXPECT_HAS(error_of([&] { json("[{\"a\":\n"); }), "a.json:1: the row is not closed");
  EXPECT_HAS(error_of([&] { json("[{},\n]"); }), "a.json:2: no row stands behind the array's last comma; leave it out");
  EXPECT_HAS(error_of([&] { json("{\"data\":[{},]}"); }), "behind the array's last comma");
  EXPECT_HAS(error_of([&] { json("[{\"a\":\"\n"); }), "string is not closed");
  EXPECT_HAS(error_of([&] { json("[] {}"); }), "after the end");
}

TEST_F(SourceTest, CsvFollowsTheStandard) {
  using Rows = std::vector<std::vector<std::string>>;
  EXPECT_EQ(cells("a,b\n1,2\r\n\"x,\"\"y\"\"\n z\",\n,\n"), (Rows{{"1", "2"}, {"x,\"y\"\n z", ""}, {"", ""}}));
  EXPECT_EQ(cells("a\r\n\r\n1\r\n\"\"\n"), (Rows{{"1"}}));  // blank lines are no rows
  EXPECT_EQ(cells("a,b\n1,\" 2 \""), (Rows{{"1", " 2 "}}));
  EXPECT_EQ(cells("a,b\n1,2\r3"), (Rows{{"1", "2\r3"}}));  // a lone CR is text
  EXPECT_EQ(cells("a,b\n"), Rows{});
}

TEST_F(SourceTest, CsvRowsKeepTheirFirstLineAndHeader) {
  const auto rows = read(write("a.csv", "q,r\n\"1\n2\",3\n4,5\n"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].line, 2u);
  EXPECT_EQ(rows[1].line, 4u);
  EXPECT_EQ(*rows[1].header, (std::vector<std::string>{"q", "r"}));
}

TEST_F(SourceTest, AnObjectAroundTheRowsIsOpened) {
  const auto rows = [&](const std::string& text) {
    std::string all;
    for (const Record& r : read(write("w.json", text))) all += r.text + "|";
    return all;
  };
  EXPECT_EQ(rows(R"({"data":[{"a":1},{"b":[2]}]})"), R"({"a":1}|{"b":[2]}|)");
  EXPECT_EQ(rows("{ \"version\": \"1\", \"rows\" : [ {\"a\":1} ] , \"x\": [{\"y\":\"]}\"}] }\n"), R"({"a":1}|)");
  EXPECT_EQ(rows(R"({"examples":[]})"), "");
  // What is said of the rows may be of any kind.
  EXPECT_EQ(rows(R"({"schema":{"fields":[{"name":"]}"}]},"data":[{"a":1}]})"), R"({"a":1}|)");
  EXPECT_EQ(rows(R"({"version":1.5,"count" : 2 ,"info":null,"licenses":[],"rows":[{"a":1}]})"), R"({"a":1}|)");
  EXPECT_EQ(rows(R"({"meta":{"data":[{"a":1}]},"text":"x"})"), R"({"meta":{"data":[{"a":1}]},"text":"x"}|)");
  EXPECT_EQ(rows(R"({"total":3})"), R"({"total":3}|)");
  EXPECT_EQ(rows(R"({"train":[{"a":1}],"ids":[1,[{"b":2}]],"of":{"train":[{"a":3}]},"n":5,"s":"x,y\"}"})"),
            R"({"a":1}|)");
  for (const auto& [first, second] :
       {std::pair("train", "training"), {"data", "train"}, {"rows", "dev"}, {"test", "data"}})
    EXPECT_HAS(error_of([&, a = first, b = second] {
                 rows(fmt::format(R"({{"name":"n","{}":[{{"a":1}}],"m":{{}}, "{}" : [ {{"a":2}}]}})", a, b));
               }),
               fmt::format("w.json:1: holds rows as \"{}\" and as \"{}\": write them to two files", first, second));
  // One row, whatever its columns are called.
  for (const char* one : {R"({"data":[1,2],"text":"x"})", R"({"text":"x","data":[{"a":1}]})",
                          R"({"messages":[{"role":"user"}]})", R"({"version":"1"})", R"({"data":"x"})", "{}"})
    EXPECT_EQ(rows(one), std::string(one) + "|");
  EXPECT_HAS(error_of([&] { rows(R"({"data":[{"a":1})"); }), "the array is not closed");
  EXPECT_HAS(error_of([&] { rows(R"({"data":[{"a":1}] 7})"); }), "after the rows");
  for (const char* open : {R"({"data":[{"a":1}],"n":5)", R"({"data":[{"a":1}],)", R"({"data":[{"a":1}],"n":[1])"})
    EXPECT_HAS(error_of([&] { rows(open); }), "is not closed") << open;
  EXPECT_HAS(error_of([&] { rows(R"({"data":[{"a":1}]} 7)"); }), "after the end");
}

TEST_F(SourceTest, OfAnObjectOfSplitsTheWantedOneIsRead) {
  const std::string file = write("s.json", R"({"version":"1","train":[{"a":1},{"a":"]}"}],"n":{"x":[1]},
      "test" : [{"a":2}],"other":[],"dev":[{"a":3}]})");
  const auto rows = [&](const std::string& path, const std::string& split) {
    std::string all;
    for (const SourceFile& f : find_source_files(path, split)) {
      const auto reader = open_records(f);
      for (Record r; reader->next(&r);) all += r.text + "|";
    }
    return all;
  };
  EXPECT_EQ(rows(file, "train"), R"({"a":1}|{"a":"]}"}|)");
  EXPECT_EQ(rows(file, "test"), R"({"a":2}|)");
  EXPECT_EQ(rows(file, "validation"), R"({"a":3}|)");
  EXPECT_EQ(rows_name({file, FileKind::kJson, "validation"}), "dev");
  EXPECT_EQ(rows_name({file, FileKind::kJson}), "train");
  EXPECT_HAS(error_of([&] { rows(file, "train_sft"); }),
             "s.json: has no list of split \"train_sft\" (it has: train, test, dev)");
  const std::string one = write("one.json", R"({"train_sft":[{"a":1}],"test":[{"a":2}]})");
  EXPECT_EQ(rows(one, "train_sft"), R"({"a":1}|)");
  EXPECT_EQ(rows(write("data.json", R"({"data":[{"a":1}]})"), "test"), R"({"a":1}|)");
  EXPECT_HAS(error_of([&] { rows(write("cut.json", R"({"train":[{"a":1}],"test":[{"a":)"), "test"); }), "truncated");
  EXPECT_HAS(error_of([&] { rows(write("cut.json", R"({"test":[{"a":1}],"train":[{"a":)"), "test"); }), "truncated");
}

TEST_F(SourceTest, AGitLfsPointerIsCalledOne) {
  EXPECT_HAS(
      error_of([&] { read(write("p.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n")); }),
      "git lfs pull");
}

TEST_F(SourceTest, CsvColumnsWithoutANameAreCalledAsPandasCallsThem) {
  const auto rows = read(write("a.csv", ",q,\n0,x,y\n"));
  EXPECT_EQ(*rows[0].header, (std::vector<std::string>{"Unnamed: 0", "q", "Unnamed: 2"}));
  EXPECT_EQ(rows[0].cells, (std::vector<std::string>{"0", "x", "y"}));
  EXPECT_HAS(error_of([&] { cells(",Unnamed: 0\n1,2\n"); }), "twice");
  EXPECT_HAS(error_of([&] { cells("\n1,2\n"); }), "a.csv:1: is blank");
}

TEST_F(SourceTest, TabsSeparateInTsv) {
  EXPECT_EQ(read(write("a.tsv", "a\tb\n1,2\t3\n"))[0].cells, (std::vector<std::string>{"1,2", "3"}));
}

TEST_F(SourceTest, StrayQuotesAndRaggedRowsAreRefused) {
  EXPECT_HAS(error_of([&] { cells("a,b\n1\n"); }), "a.csv:2: 1 cells, the header has 2");
  EXPECT_HAS(error_of([&] { cells("a,b\n1,2,3\n"); }), "3 cells");
  EXPECT_HAS(error_of([&] { cells("a,b\n1,x\"y\n"); }), "a.csv:2: a quote inside");
  EXPECT_HAS(error_of([&] { cells("a,b\n1,\"x\"y\n"); }), "after the closing quote");
  EXPECT_HAS(error_of([&] { cells("a,b\n1,2\n3,\"x\n\n"); }), "a.csv:3: a quoted cell is not closed");
  EXPECT_HAS(error_of([&] { cells("a,a\n1,2\n"); }), "twice");
  EXPECT_HAS(error_of([&] { cells(""); }), "header");
}

TEST_F(SourceTest, TextIsCutOnlyWhereALineBeginsWithASolidCharacter) {
  std::string text;
  while (text.size() < 3u << 20) text += "A line of text.\n\n  An indented one.\n\xcc\x81 mark\nlast";
  const auto pieces = read(write("a.txt", text));
  ASSERT_GE(pieces.size(), 2u);
  std::string back;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i) {
      EXPECT_EQ(back.back(), '\n');
      EXPECT_TRUE(pieces[i].text[0] > ' ') << i;
    }
    EXPECT_EQ(pieces[i].last_piece, i + 1 == pieces.size());
    back += pieces[i].text;
  }
  EXPECT_EQ(back, text);
}

}  // namespace
}  // namespace mxt::data
