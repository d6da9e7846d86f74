#include "eval/score/language.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "eval/python/literal.h"
#include "pytext/unicode.h"

namespace mxt::eval {

namespace {

struct Block {
  char32_t first, last;
  const char* language;  // of a script that one language (of those asked for) mostly has
};
constexpr std::array<Block, 15> kBlocks = {{{0x590, 0x5ff, "he"},
                                            {0x600, 0x6ff, "arabic"},
                                            {0x900, 0x97f, "devanagari"},
                                            {0x980, 0x9ff, "bn"},
                                            {0xa00, 0xa7f, "pa"},
                                            {0xa80, 0xaff, "gu"},
                                            {0xb80, 0xbff, "ta"},
                                            {0xc00, 0xc7f, "te"},
                                            {0xc80, 0xcff, "kn"},
                                            {0xd00, 0xd7f, "ml"},
                                            {0xe00, 0xe7f, "th"},
                                            {0x400, 0x4ff, "cyrillic"},
                                            {0x3040, 0x30ff, "ja"},
                                            {0xac00, 0xd7af, "ko"},
                                            {0x4e00, 0x9fff, "han"}}};

// The commonest words of languages that share a script.
const std::map<std::string, std::vector<std::pair<const char*, std::string>>>& common_words() {
  static const std::map<std::string, std::vector<std::pair<const char*, std::string>>> words = {
      {"latin",
       {{"en",
         " the of and to in is that it for was on are as with his they be at this have from or had by but not what all "
         "were we when your can said there use an each which she do how their if will up other about out many then "
         "them these so some her would make like him into time has look two more write go see number no way could "
         "people my than first been call who its now find long down day did get come made may part i you he me us "
         "our "},
        {"es",
         " de la que el en y a los se del las un por con no una su para es al lo como más pero sus le ya o este sí "
         "porque esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos durante todos uno les "
         "ni contra otros ese eso ante ellos e esto mí antes algunos qué unos yo otro otras otra él tanto esa estos "
         "mucho "},
        {"pt",
         " de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem à seu "
         "sua ou ser quando muito há nos já está eu também só pelo pela até isso ela entre era depois sem mesmo aos "
         "ter seus quem nas me esse eles estão você tinha foram essa num nem suas meu às minha têm "},
        {"fr",
         " de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont la avec ou "
         "son aux je vous nous mais comme on tout elle été cette ses être fait même peut ont leur sans deux aussi "
         "était avait bien entre faire ces dont très encore si mon où "},
        {"de",
         " der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er "
         "hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur "
         "bis mehr durch man sein wurde wenn ich wir ihr kann ihre "},
        {"it",
         " di e il la che in un a per è una non sono del con le si da i come dei nel più della ha anche al lo gli "
         "delle ma o alla se su nella questo questa ho mi loro cui tra dal essere stato hanno molto suo sua quando "
         "perché dove ogni io noi "},
        {"pl",
         " w i na z do się nie to że jest o jak za po od ale co dla przez oraz są tym tak czy ma być ich był było tego "
         "jego może tylko już przy które który która "},
        {"fi",
         " ja on ei se että oli joka mutta myös ole kun niin hän tai sen ovat mukaan kuin ovat olla voi minä sinä me "
         "ne tämä jos vain hänen "},
        {"sw",
         " ya na wa kwa ni katika la za kuwa hii huo pia au kama yake cha hiyo watu wake ambayo lakini sana hayo "},
        {"vi",
         " và của là có trong được cho các không một người với những này khi đã để từ như đến tôi bạn về cũng "}}},
      {"cyrillic",
       {{"ru",
         " и в не на я что с он как это по но из у за от так же для вы мы они то все она бы мне было вот меня его о к "
         "а "},
        {"uk", " і в не на що з він як це та до але за від є для ви ми вони й у їх або його бути також "},
        {"bg", " и в не на се да от за по са че е с как ще към но той това което които ако или "}}},
      {"arabic",
       {{"ar", " في من على إلى أن هذا التي ما لا مع عن هو هي كان كل ذلك "},
        {"fa", " و در به از که این را با است برای آن یک می تا بر "},
        {"ur", " کے میں ہے کی اور سے کا کو نے ہیں پر یہ اس ایک "}}},
      {"devanagari",
       {{"hi", " के में है की और से का को ने हैं पर यह इस एक कि "},
        {"mr", " आहे आणि या हे च्या ते मध्ये आहेत एक होते "},
        {"ne", " छ र को मा हो छन् लाई पनि गर्न यो "}}}};
  return words;
}

}  // namespace

std::string detect_language(std::string_view text) {
  std::map<std::string, int> scripts;
  for (size_t i = 0, size = 0; i < text.size(); i += size) {
    const char32_t c = pytext::code_point(text, i, size);
    if (!pytext::is_alpha(c)) continue;
    std::string script = c < 0x250 || (c >= 0x1e00 && c < 0x1f00) ? "latin" : "";
    for (const Block& b : kBlocks)
      if (c >= b.first && c <= b.last) script = b.language;
    if (!script.empty()) ++scripts[script];
  }
  if (scripts.empty()) return "";
  if (scripts.contains("ja") && scripts["ja"] * 10 > scripts["han"]) scripts["ja"] += scripts["han"];
  std::string best;
  for (const auto& [s, n] : scripts)
    if (best.empty() || n > scripts[best]) best = s;
  if (best == "han") return "zh";
  const auto it = common_words().find(best);
  if (it == common_words().end()) return best;
  std::map<std::string, double> votes;
  std::string word;
  const std::string low = lower(text) + " ";
  for (size_t i = 0, size = 0; i < low.size(); i += size) {
    const char32_t c = pytext::code_point(low, i, size);
    if (pytext::is_word(c) || (c >= 0x900 && c <= 0x97f)) {
      word.append(low, i, size);
      continue;
    }
    if (!word.empty())
      for (const auto& [language, list] : it->second)
        if (list.find(" " + word + " ") != std::string::npos) votes[language] += 1;
    word.clear();
  }
  std::string winner = it->second[0].first;  // the commonest of its script where no word tells
  for (const auto& [language, list] : it->second)
    if (votes[language] > votes[winner]) winner = language;
  return winner;
}

}  // namespace mxt::eval
