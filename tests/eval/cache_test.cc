#include "eval/lm/cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "eval/lm/language_model.h"

namespace mxt::eval {
namespace {

std::string fresh(const char* name) {
  const std::string path = testing::TempDir() + name;
  std::remove(path.c_str());
  return path;
}

TEST(RequestCache, KeepsWhatWasFinishedAndDropsACutLine) {
  const std::string path = fresh("requests.jsonl");
  {
    RequestCache c(path);
    c.put("a", {-1.5, true});
    c.put("b", "text\nwith lines");
  }
  {
    std::ofstream f(path, std::ios::app);
    f << "[\"c\",[-2.0,fal";  // killed in the middle of a line
  }
  RequestCache c(path);
  EXPECT_EQ(c.size(), 2u);
  ASSERT_NE(c.find("a"), nullptr);
  EXPECT_EQ((*c.find("a"))[0], -1.5);
  EXPECT_EQ(c.find("c"), nullptr);
  c.put("c", 3);
  EXPECT_EQ(RequestCache(path).size(), 3u);
}

TEST(RequestCache, IsExactForDoubles) {
  const std::string path = fresh("exact.jsonl");
  const double x = -123.45678901234567;
  {
    RequestCache(path).put("x", x);
  }
  EXPECT_EQ(RequestCache(path).find("x")->get<double>(), x);
}

TEST(RequestCache, KeepsNoAnswerThatJsonCannotHold) {
  const std::string path = fresh("nan.jsonl");
  {
    RequestCache c(path);
    c.put("x", {std::nan(""), false});
    c.put("y", 1.0);
    EXPECT_NE(c.find("x"), nullptr);
  }
  EXPECT_EQ(RequestCache(path).find("x"), nullptr);
  EXPECT_EQ(RequestCache(path).size(), 1u);
}

TEST(Generation, ReadsGenerationKwargs) {
  const auto g = generation_settings(
      {{"until", "\n"}, {"max_tokens", 5}, {"max_gen_toks", 7}, {"temperature", "0.5"}, {"do_sample", true}});
  EXPECT_EQ(g.until, std::vector<std::string>{"\n"});
  EXPECT_EQ(g.max_tokens, 7);
  EXPECT_EQ(g.temperature, 0.5);
  EXPECT_EQ(generation_settings({{"temperature", 0.7}, {"do_sample", false}}).temperature, 0);
  EXPECT_ANY_THROW(generation_settings({{"num_beams", 4}}));
}

TEST(Generation, CutsAtStopsOneAfterTheOther) {
  EXPECT_EQ(cut_at_stops("a\n\nb Question: c", {"Question:", "\n\n"}), "a");
  EXPECT_EQ(cut_at_stops("abc", {"", "x"}), "abc");
}

}  // namespace
}  // namespace mxt::eval
