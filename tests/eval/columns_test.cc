#include "eval/task/columns.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace mxt::eval {
namespace {

Table table(const std::vector<std::string>& columns, const char* rows) {
  return {columns, OrderedJson::parse(rows).get<std::vector<OrderedJson>>()};
}

std::string dump(const Table& t) { return OrderedJson(t.rows).dump(); }

// What pyarrow 24 and datasets 5.2 make of the same lines.
TEST(Columns, OfJsonHaveOneType) {
  Table t = table({"a", "l", "s", "n"},
                  R"([{"a":3,"l":[1,2.5],"s":{"x":1},"n":7},{"l":[3],"a":2.5,"s":{"x":1.5,"y":2}},{"a":null,"n":8}])");
  put_in_order(t);
  type_json_columns(t);
  EXPECT_EQ(dump(t), R"([{"a":3.0,"l":[1.0,2.5],"s":{"x":1.0},"n":7},{"a":2.5,"l":[3.0],"s":{"x":1.5,"y":2},"n":null},)"
                     R"({"a":null,"l":null,"s":null,"n":8}])");
}

TEST(Columns, OfJsonDatesAreTimes) {
  Table t = table({"d", "z", "mixed", "not"},
                  R"([{"d":"2020-01-31","z":"2020-01-01T10:20:30+02:00","mixed":"2020-01-01","not":"2020-02-30"},)"
                  R"({"d":"2020-01-31 10:20","z":"2020-01-01 00Z","mixed":"soon","not":"2020-01-01T24:00"},)"
                  R"({"d":null,"z":"0001-01-01","mixed":"2020-01-01","not":"2020-01-01T10:20:30.5"}])");
  type_json_columns(t);
  EXPECT_EQ(t.rows[0]["d"], "2020-01-31 00:00:00");
  EXPECT_EQ(t.rows[1]["d"], "2020-01-31 10:20:00");
  EXPECT_EQ(t.rows[0]["z"], "2020-01-01 08:20:30");
  EXPECT_EQ(t.rows[1]["z"], "2020-01-01 00:00:00");
  EXPECT_EQ(t.rows[2]["z"], "0001-01-01 00:00:00");
  EXPECT_EQ(t.rows[0]["mixed"], "2020-01-01");
  EXPECT_EQ(t.rows[0]["not"], "2020-02-30");
  for (const char* no : {"2020-1-1", "20200101", "2020-01", "2020-01-01 ", "2020-01-01T10:60", "2020-01-01t10:20",
                         "2020-01-01T1020", "2020-01-01T10:20:30+", ""}) {
    Table one = table({"d"}, "[{}]");
    one.rows[0]["d"] = no;
    type_json_columns(one);
    EXPECT_EQ(one.rows[0]["d"], no);
  }
}

// What pandas' read_csv makes of the same cells.
TEST(Columns, OfCsvAreTypedAsPandasDoes) {
  Table t = table({"i", "gap", "f", "b", "w", "u", "t", "none"}, R"([
    {"i":"+5","gap":"1","f":"1","b":"True","w":" 1","u":"12345678901234567890","t":"1","none":"NA"},
    {"i":"2","gap":"","f":"2.5","b":"FALSE","w":"2 ","u":"1","t":"x","none":""},
    {"i":"-3","gap":"3","f":"1e3","b":"true","w":"3","u":"2","t":"null","none":"nan"}])");
  type_csv_columns(t);
  EXPECT_EQ(dump(t), R"([{"i":5,"gap":1.0,"f":1.0,"b":true,"w":1,"u":12345678901234567890,"t":"1","none":null},)"
                     R"({"i":2,"gap":null,"f":2.5,"b":false,"w":2,"u":1,"t":"x","none":null},)"
                     R"({"i":-3,"gap":3.0,"f":1000.0,"b":true,"w":3,"u":2,"t":null,"none":null}])");
}

}  // namespace
}  // namespace mxt::eval
