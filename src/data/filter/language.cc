#include "data/filter/language.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <map>

#include "base/error.h"

namespace mxt::data {
namespace {

// The parts of CLD2's interface (compact_lang_det.h) that are used; its enumerations are int.
using Detect = int (*)(const char* text, int bytes, bool plain_text, const void* hints, int flags, int* language3,
                       int* percent3, double* score3, void* chunks, int* text_bytes, bool* reliable, int* valid_bytes);
using FromName = int (*)(const char* name);
constexpr int kUnknown = 26;

struct Cld2 {
  Detect detect;
  FromName from_name;
};

const Cld2& cld2() {
  static const Cld2 api = [] {
    constexpr const char* kLibrary = "libcld2.so.0";
    void* l = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (!l) fail_missing("data.filter.languages: {} cannot be opened; install it: apt install libcld2-0", kLibrary);
    Cld2 a;
    a.detect = reinterpret_cast<Detect>(
        dlsym(l,
              "_ZN4CLD233ExtDetectLanguageSummaryCheckUTF8EPKcibPKNS_8CLDHintsEiPNS_8LanguageEPiPdPSt6vectorINS_"
              "11ResultChunkESaISA_EES7_PbS7_"));
    a.from_name = reinterpret_cast<FromName>(dlsym(l, "_ZN4CLD219GetLanguageFromNameEPKc"));
    if (!a.detect || !a.from_name)
      fail_missing("data.filter.languages: {} is not CLD2 of 2015; install Debian's libcld2-0", kLibrary);
    return a;
  }();
  return api;
}

// Where CLD2 has an older code than ISO 639 now.
std::string older(const std::string& code) {
  static const std::map<std::string, std::string> codes = {{"he", "iw"}, {"jv", "jw"}, {"nb", "no"}, {"fil", "tl"}};
  const auto it = codes.find(code);
  return it == codes.end() ? code : it->second;
}

}  // namespace

Languages::Languages(const std::vector<std::string>& codes) {
  for (const std::string& c : codes) {
    const int l = cld2().from_name(older(c).c_str());
    if (c.size() < 2 || c.size() > 8 || l == kUnknown)
      fail_input("data.filter.languages: \"{}\" is no language that CLD2 knows; write codes as en, de, zh", c);
    wanted_.push_back(l);
  }
}

double Languages::part(std::string_view text) const {
  int language[3], percent[3], text_bytes = 0, valid = 0;
  double score[3];
  bool reliable = false;
  const int n = static_cast<int>(std::min<size_t>(text.size(), INT_MAX));
  const int best = cld2().detect(text.data(), n, true, nullptr, 0, language, percent, score, nullptr, &text_bytes,
                                 &reliable, &valid);
  if (!reliable || best == kUnknown) return -1;
  int sum = 0;
  for (int i = 0; i < 3; ++i)
    if (std::find(wanted_.begin(), wanted_.end(), language[i]) != wanted_.end()) sum += percent[i];
  return std::min(1.0, sum / 100.0);
}

}  // namespace mxt::data
