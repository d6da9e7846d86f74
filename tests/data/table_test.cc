// Parquet and data.sql. The Parquet files are written by DuckDB itself.
#include "data/source/table.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "data/dataset.h"
#include "data/prepare.h"
#include "data/source/duckdb_api.h"
#include "folders.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using testing::DataTest;
using testing::error_of;

class TableTest : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    try {
      duckdb::api();
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }
  // COPY (query) TO name, and the path of the file.
  std::string parquet(const std::string& name, const std::string& query) {
    const duckdb::Api& a = duckdb::api();
    duckdb::Database db = nullptr;
    duckdb::Connection con = nullptr;
    a.open_ext(nullptr, &db, nullptr, nullptr);
    a.connect(db, &con);
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    duckdb::Result r;
    const std::string sql = "COPY (" + query + ") TO '" + path(name) + "' (FORMAT parquet, ROW_GROUP_SIZE 2048)";
    EXPECT_EQ(a.query(con, sql.c_str(), &r), duckdb::kOk) << a.result_error(&r);
    a.destroy_result(&r);
    a.disconnect(&con);
    a.close(&db);
    return path(name);
  }
  std::vector<Record> all(std::unique_ptr<RecordReader> rows) {
    std::vector<Record> out;
    for (Record r; rows->next(&r);) out.push_back(r);
    return out;
  }
  std::vector<std::string> query(const std::string& sql, const std::string& files) {
    std::vector<std::string> out;
    const auto found = find_source_files(files, "train");
    for (const Record& r : all(open_query(sql, found, path(".sql")))) out.push_back(r.text);
    return out;
  }
  config::Recipe recipe(const std::string& data) {
    return config::parse_recipe("meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {" + data + "}\n", "t.yaml");
  }
};

using V = std::vector<std::string>;

TEST_F(TableTest, ParquetRowsComeInTheirOrderAsJson) {
  const std::string p = parquet("a.parquet", "SELECT i AS id, 'té ' || i AS text FROM range(10000) t(i)");
  const auto rows = all(open_records({p, FileKind::kParquet}));
  ASSERT_EQ(rows.size(), 10000u);
  for (size_t i = 0; i < rows.size(); ++i)
    ASSERT_EQ(rows[i].text, fmt::format("{{\"id\":{},\"text\":\"té {}\"}}", i, i));
  EXPECT_EQ(rows[41].where(), p + ": row 42");
}

TEST_F(TableTest, BytesAreTextWhereTheyAreUtf8) {
  const std::string p = parquet("a.parquet", "SELECT encode('té') AS text UNION ALL SELECT '\\xFF'::BLOB");
  const auto rows = all(open_records({p, FileKind::kParquet}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].text, "{\"text\":\"té\"}");
  EXPECT_EQ(rows[1].text, "{\"text\":null}");
}

// As the datasets library writes pictures, and as others do.
TEST_F(TableTest, BytesOfPicturesAreDataUrisAtAnyDepth) {
  const std::string gif = "'GIF89a\\xFF'::BLOB", png = "'\\x89PNG\\x0D\\x0A\\x1A\\x0A'::BLOB";
  const std::string p = parquet(
      "a.parquet", fmt::format("SELECT {0} AS image, {{'bytes': {0}, 'path': 'a b.png'}} AS \"one, 'two'\", "
                               "[{{'bytes': '\\xFE\\xFF'::BLOB, 'path': NULL}}, NULL] AS images, "
                               "NULL::STRUCT(bytes BLOB, path VARCHAR) AS none, {1} AS gif, [['\\xFF'::BLOB]] AS other",
                               png, gif));
  const auto rows = all(open_records({p, FileKind::kParquet}));
  ASSERT_EQ(rows.size(), 1u);
  const Json row = Json::parse(rows[0].text);
  const std::string uri = "data:image/any;base64,iVBORw0KGgo=";
  EXPECT_EQ(row["image"], uri);
  EXPECT_EQ(row["one, 'two'"], Json({{"bytes", uri}, {"path", "a b.png"}}));
  EXPECT_EQ(row["images"], Json::array({{{"bytes", "data:image/any;base64,/v8="}, {"path", nullptr}}, nullptr}));
  EXPECT_TRUE(row["none"].is_null());
  EXPECT_EQ(row["gif"], "data:image/any;base64,R0lGODlh/w==");
  EXPECT_EQ(row["other"], Json::array({Json::array({nullptr})}));
}

TEST_F(TableTest, NestedParquetRowsTrainAsConversationsAndTheirMissingKeysAreAbsent) {
  const std::string p = parquet("d/x-train.parquet",
                                "SELECT [{'role': 'user', 'content': 'hi', 'name': NULL}, {'role': 'assistant', "
                                "'content': 'hello', 'name': NULL}] AS messages, 'nan'::DOUBLE AS score");
  testing::ToyEncoder coder;
  const Prepared made = prepare(recipe("source: local, path: '" + path("d") + "', seq_len: 64"), coder, path("out"));
  EXPECT_EQ(made.shape, "messages");
  EXPECT_EQ(coder.decode(Dataset::open(path("out"), "train", true).row(0).ids),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n");
}

TEST_F(TableTest, BrokenParquetNamesItsFile) {
  EXPECT_HAS(error_of([&] { all(open_records({write("b.parquet", "PAR1 but no more"), FileKind::kParquet})); }),
             "b.parquet");
  const std::string p = parquet("a.parquet", "SELECT repeat('text ', 100) || i AS text FROM range(20000) t(i)");
  std::string bytes = read_file(p);
  for (size_t i = 2000; i < 40000; ++i) bytes[i] = static_cast<char>(bytes[i] ^ 0x5a);
  EXPECT_HAS(error_of([&] { all(open_records({write("c.parquet", bytes), FileKind::kParquet})); }), "c.parquet");
  EXPECT_HAS(error_of([&] { all(open_records({write("d.parquet", bytes.substr(0, 5000)), FileKind::kParquet})); }),
             "d.parquet");
}

// tools/golden/parquet_checksums.py made the files: three row groups of twenty rows.
TEST_F(TableTest, APageThatIsNotWhatItsChecksumWasTakenOfIsNamed) {
  const std::string golden = std::string(kSourceDir) + "/tests/golden/data/";
  std::string bytes = read_file(golden + "checksums.parquet");
  EXPECT_EQ(all(open_records({write("whole.parquet", bytes), FileKind::kParquet})).size(), 60);
  EXPECT_EQ(all(open_records({golden + "checksums_v2.parquet", FileKind::kParquet})).size(), 60);
  EXPECT_EQ(query("SELECT n FROM (SELECT unnest(tags).n AS n FROM rows) WHERE n > 55", golden + "checksums_v2.parquet")
                .size(),
            5);
  const size_t at = bytes.find("number 43");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 7] = '5';
  const std::string p = write("flipped.parquet", bytes);
  // Rows of the groups before it come; those with it do not.
  auto rows = open_records({p, FileKind::kParquet});
  size_t n = 0;
  Record r;
  const std::string why = error_of([&] {
    for (; rows->next(&r);) ++n;
  });
  EXPECT_EQ(n, 40);
  EXPECT_HAS(why, "flipped.parquet: after 40 rows: column text: the page at byte ");
  EXPECT_HAS(why, "the file is damaged");
  EXPECT_HAS(error_of([&] { query("SELECT * FROM rows LIMIT 1", p); }),
             "flipped.parquet: column text: the page at byte ");
}

TEST_F(TableTest, SqlSelectsFromEveryKindOfFile) {
  write("a.jsonl", "{\"q\":\"one\",\"n\":1}\n{\"q\":\"two\",\"n\":2}\n");
  write("b.csv", "q,n\nthree,3\n");
  write("c.json", "[{\"q\":\"four\",\"n\":4}]");
  parquet("d.parquet", "SELECT 'five' AS q, 5 AS n");
  EXPECT_EQ(query("SELECT q AS text FROM rows WHERE n > 1 ORDER BY n DESC;", path("a.jsonl")), (V{
                                                                                                   "{\"text\":\"two\"}",
                                                                                               }));
  EXPECT_EQ(query("SELECT q FROM rows", path("*")),
            (V{"{\"q\":\"one\"}", "{\"q\":\"two\"}", "{\"q\":\"three\"}", "{\"q\":\"four\"}", "{\"q\":\"five\"}"}));
  EXPECT_EQ(query("SELECT count(*) AS n FROM rows -- all of them", path("*")), (V{"{\"n\":5}"}));
}

TEST_F(TableTest, SqlLeavesTextsAndNestedValuesAsTheyAre) {
  const std::string row =
      R"({"messages":[{"role":"user","content":null,"calls":[{"b":1,"a":null}]}],"day":"2024-01-05T07:00:00Z",)"
      R"("id":"6F9619FF-8B86-D011-B42D-00CF4FC964FF","meta":{"z":1,"a":"x"},"ok":true,"s":"007"})";
  write("a.jsonl", row + "\n");
  EXPECT_EQ(query("SELECT * FROM rows", path("a.jsonl")), (V{row}));
  write("b.csv", "code,empty\n007,\n");
  EXPECT_EQ(query("SELECT * FROM rows", path("b.csv")), (V{R"({"code":"007","empty":""})"}));
}

TEST_F(TableTest, ABrokenFileIsNamedUnderSql) {
  for (const auto& [name, bytes] : {std::pair<const char*, const char*>{"a.csv", "text\nab\xff\n"},
                                    {"b.jsonl", "{\"text\":\"a\"}\n{\"text\":\n"}}) {
    write(name, bytes);
    const std::string e = error_of([&] { query("SELECT * FROM rows", path(name)); });
    EXPECT_HAS(e, path(name));
    EXPECT_HAS(e, "ine");  // and its line
  }
}

TEST_F(TableTest, HostileSqlReachesNothingButItsInputs) {
  write("a.jsonl", "{\"text\":\"x\"}\n");
  const std::string secret = write("secret.txt", "secret"), other = write("other.csv", "a\nb\n");
  const auto refused = [&](const std::string& sql) { return error_of([&] { query(sql, path("a.jsonl")); }); };
  EXPECT_HAS(refused("SELECT * FROM read_text('" + secret + "')"), "disabled");
  EXPECT_HAS(refused("SELECT * FROM '" + other + "'"), "disabled");
  EXPECT_HAS(refused("SELECT * FROM glob('/etc/*')"), "disabled");
  EXPECT_HAS(refused("SELECT * FROM read_csv('https://example.com/a.csv')"), "data.sql");
  EXPECT_HAS(refused("COPY rows TO '" + path("out.csv") + "'"), "data.sql");
  EXPECT_HAS(refused("COPY rows TO '" + path("a.jsonl") + "'"), "data.sql");
  EXPECT_HAS(refused("SELECT 1; SELECT 2"), "2 statements");
  EXPECT_HAS(refused("SELECT 1) r; COPY rows TO 'x'; SELECT 1 FROM (SELECT 1"), "data.sql");
  EXPECT_HAS(refused("SET memory_limit = '100GB'"), "data.sql");
  EXPECT_HAS(refused("INSTALL httpfs"), "data.sql");
  EXPECT_HAS(refused("LOAD '" + secret + "'"), "data.sql");
  EXPECT_HAS(refused("ATTACH '" + path("x.db") + "'"), "data.sql");
  EXPECT_HAS(refused("CREATE TABLE t AS SELECT 1"), "no SELECT");
  EXPECT_HAS(refused("PRAGMA version"), "data.sql");
  EXPECT_HAS(refused(""), "data.sql");
  EXPECT_HAS(refused("SELEC x"), "data.sql");
  EXPECT_HAS(refused("SELECT nothing FROM rows"), "nothing");
  EXPECT_FALSE(std::filesystem::exists(path("out.csv")));
  EXPECT_FALSE(std::filesystem::exists(path("x.db")));
  EXPECT_EQ(read_file(path("a.jsonl")), "{\"text\":\"x\"}\n");
}

// The rows are read twice: to decide which stay, and to take them.
TEST_F(TableTest, SqlThatAnswersOtherwiseEachTimeIsRefused) {
  write("a.jsonl", "{\"text\":\"x\"}\n");
  const auto refused = [&](const std::string& sql) { return error_of([&] { query(sql, path("a.jsonl")); }); };
  for (const char* sql : {"SELECT * FROM rows USING SAMPLE 1 ROWS", "SELECT * FROM rows TABLESAMPLE 50%",
                          "SELECT * FROM rows ORDER BY random()", "SELECT text, uuid () AS id FROM rows",
                          "SELECT text, current_timestamp AS t FROM rows"})
    EXPECT_HAS(refused(sql), "each time") << sql;
  for (const char* sql :
       {"SELECT * FROM rows ORDER BY hash(text)", "SELECT text, 'random()' AS r FROM rows -- now()",
        "SELECT text AS random FROM rows", "SELECT * FROM rows TABLESAMPLE reservoir(50%) REPEATABLE (7)"})
    EXPECT_EQ(refused(sql), "") << sql;
}

TEST_F(TableTest, SqlThatDoesNotFitInMemorySpillsOrIsRefusedAndLeavesNothing) {
  write("a.jsonl", "{\"text\":\"x\"}\n");
  std::unique_ptr<RecordReader> rows;
  const auto files = find_source_files(path("a.jsonl"), "train");
  // 2 million rows of 400 bytes, sorted: more than DuckDB may hold.
  rows = open_query("SELECT i, repeat(md5(i::VARCHAR), 12) AS text FROM range(2000000) t(i) ORDER BY text", files,
                    path(".sql"));
  Record r;
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(rows->next(&r));
  rows.reset();
  EXPECT_FALSE(std::filesystem::exists(path(".sql")) && !std::filesystem::is_empty(path(".sql")));
}

TEST_F(TableTest, SqlErrorsInRowsNameTheStatement) {
  std::string lines;
  for (int i = 0; i < 30000; ++i) lines += "{\"n\":1}\n";
  write("a.jsonl", lines + "{\"n\":\"not a number\"}\n");
  EXPECT_HAS(error_of([&] { query("SELECT n AS text FROM rows", path("a.jsonl")); }), "data.sql: after");
  write("t.txt", "text");
  EXPECT_HAS(error_of([&] { query("SELECT 1", path("t.txt")); }), "plain text");
}

TEST_F(TableTest, PreparingWithSqlIsKeptUntilTheStatementChanges) {
  const std::string file = write("a.jsonl", "{\"text\":\"hello\",\"lang\":\"en\"}\n{\"text\":\"é\",\"lang\":\"fr\"}\n");
  const std::string data = "source: local, path: '" + file + "', seq_len: 64, sql: ";
  testing::ToyEncoder coder;
  EXPECT_EQ(prepare(recipe(data + "\"SELECT text FROM rows WHERE lang = 'fr'\""), coder, path("out")).train.documents,
            1);
  EXPECT_TRUE(prepare(recipe(data + "\"SELECT text FROM rows WHERE lang = 'fr'\""), coder, path("out")).kept);
  EXPECT_FALSE(prepare(recipe(data + "\"SELECT text FROM rows\""), coder, path("out")).kept);
}

}  // namespace
}  // namespace mxt::data
