// BLEU, chrF and TER of a corpus as sacrebleu 2 gives them by default (the metrics of lm-evaluation-harness's
// translation tasks). A sentence counts into a few sums that add up over the corpus, so resampling needs no text.
//   BLEU: Papineni 2002, tokenizer 13a, exponential smoothing. chrF: Popović 2015, characters up to six, β = 2.
//   TER: Snover 2006 with Tercom's shifts and limits, lower case.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mxt::eval {

constexpr size_t kBleuSums = 10, kChrfSums = 18, kTerSums = 2;

// Sums of one sentence against its references (at least one).
std::vector<double> bleu_sums(const std::string& sentence, const std::vector<std::string>& references);
std::vector<double> chrf_sums(const std::string& sentence, const std::vector<std::string>& references);
std::vector<double> ter_sums(const std::string& sentence, const std::vector<std::string>& references);
// Scores, 0 to 100 (TER: above where nothing fits), of sums that stand one sentence after the other.
double bleu_score(const std::vector<double>& sums);
double chrf_score(const std::vector<double>& sums);
double ter_score(const std::vector<double>& sums);

}  // namespace mxt::eval
