#include "eval/score/translation.h"

#include <gtest/gtest.h>

namespace mxt::eval {
namespace {

struct Pair {
  std::string sentence;
  std::vector<std::string> references;
};
struct Corpus {
  std::vector<Pair> pairs;
  double bleu, chrf, ter;
};

// Scores by sacrebleu 2.6.0 (corpus_bleu, corpus_chrf, corpus_ter).
TEST(Translation, ScoresAreSacrebleus) {
  const std::vector<Corpus> corpora = {
      {{{"The cat sat on the mat.", {"The cat sat on the mat."}}}, 100.00000000000004, 100, 0},
      {{{"on the mat the cat sat , 3.14 times!", {"The cat sat on the mat 3.14 times."}}},
       22.957488466614326,
       69.745627137716,
       37.5},
      {{{"a b c d e f g h", {"e f g h a b c d", "h g f e d c b a"}},
        {"It's U.S.A.-made &amp; 1,000 \"new\"", {"It is U.S.A.-made & 1,000 \"new\"", "made in the U.S.A."}}},
       80.75900338077079,
       71.54090770331236,
       30.76923076923077},
      {{{"", {"something"}}, {"日本 語 über", {"über 日本語"}}}, 0, 21.5486928923411, 133.33333333333331},
      {{{"one two", {"one two three four five six seven eight"}}}, 0, 14.05273518173456, 75},
  };
  for (const Corpus& c : corpora) {
    std::vector<double> bleu, chrf, ter;
    for (const Pair& p : c.pairs) {
      for (double x : bleu_sums(p.sentence, p.references)) bleu.push_back(x);
      for (double x : chrf_sums(p.sentence, p.references)) chrf.push_back(x);
      for (double x : ter_sums(p.sentence, p.references)) ter.push_back(x);
    }
    EXPECT_NEAR(bleu_score(bleu), c.bleu, 1e-9) << c.pairs[0].sentence;
    EXPECT_NEAR(chrf_score(chrf), c.chrf, 1e-9) << c.pairs[0].sentence;
    EXPECT_NEAR(ter_score(ter), c.ter, 1e-9) << c.pairs[0].sentence;
  }
}

TEST(Translation, EmptyTextsAndLongOnesEnd) {
  EXPECT_EQ(ter_score(ter_sums("a b", {""})), 100);
  EXPECT_EQ(ter_score(ter_sums("", {""})), 0);
  EXPECT_EQ(bleu_score(bleu_sums("", {""})), 0);
  EXPECT_EQ(chrf_score(chrf_sums("", {""})), 0);
  // Every word could be shifted everywhere: the limit of candidates ends it.
  std::string same, other;
  for (int i = 0; i < 60; ++i) same += "a b ", other += "b a ";
  EXPECT_GT(ter_score(ter_sums(same, {other})), 0);
}

}  // namespace
}  // namespace mxt::eval
