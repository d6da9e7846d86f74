#include "pytext/categories.h"

#include <utf8proc.h>

namespace mxt::pytext {
namespace {

constexpr uint32_t bits(int first, int last) {
  uint32_t b = 0;
  for (int i = first; i <= last; ++i) b |= uint32_t{1} << i;
  return b;
}
constexpr uint32_t bit(int category) { return bits(category, category); }

struct Name {
  std::string_view brief, whole;
  uint32_t categories;
};
constexpr Name kNames[] = {
    {"L", "Letter", bits(UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO)},
    {"LC", "Cased_Letter", bits(UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT)},
    {"Lu", "Uppercase_Letter", bit(UTF8PROC_CATEGORY_LU)},
    {"Ll", "Lowercase_Letter", bit(UTF8PROC_CATEGORY_LL)},
    {"Lt", "Titlecase_Letter", bit(UTF8PROC_CATEGORY_LT)},
    {"Lm", "Modifier_Letter", bit(UTF8PROC_CATEGORY_LM)},
    {"Lo", "Other_Letter", bit(UTF8PROC_CATEGORY_LO)},
    {"M", "Mark", bits(UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME)},
    {"Mn", "Nonspacing_Mark", bit(UTF8PROC_CATEGORY_MN)},
    {"Mc", "Spacing_Mark", bit(UTF8PROC_CATEGORY_MC)},
    {"Me", "Enclosing_Mark", bit(UTF8PROC_CATEGORY_ME)},
    {"N", "Number", bits(UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO)},
    {"Nd", "Decimal_Number", bit(UTF8PROC_CATEGORY_ND)},
    {"Nl", "Letter_Number", bit(UTF8PROC_CATEGORY_NL)},
    {"No", "Other_Number", bit(UTF8PROC_CATEGORY_NO)},
    {"P", "Punctuation", bits(UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO)},
    {"Pc", "Connector_Punctuation", bit(UTF8PROC_CATEGORY_PC)},
    {"Pd", "Dash_Punctuation", bit(UTF8PROC_CATEGORY_PD)},
    {"Ps", "Open_Punctuation", bit(UTF8PROC_CATEGORY_PS)},
    {"Pe", "Close_Punctuation", bit(UTF8PROC_CATEGORY_PE)},
    {"Pi", "Initial_Punctuation", bit(UTF8PROC_CATEGORY_PI)},
    {"Pf", "Final_Punctuation", bit(UTF8PROC_CATEGORY_PF)},
    {"Po", "Other_Punctuation", bit(UTF8PROC_CATEGORY_PO)},
    {"S", "Symbol", bits(UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO)},
    {"Sm", "Math_Symbol", bit(UTF8PROC_CATEGORY_SM)},
    {"Sc", "Currency_Symbol", bit(UTF8PROC_CATEGORY_SC)},
    {"Sk", "Modifier_Symbol", bit(UTF8PROC_CATEGORY_SK)},
    {"So", "Other_Symbol", bit(UTF8PROC_CATEGORY_SO)},
    {"Z", "Separator", bits(UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP)},
    {"Zs", "Space_Separator", bit(UTF8PROC_CATEGORY_ZS)},
    {"Zl", "Line_Separator", bit(UTF8PROC_CATEGORY_ZL)},
    {"Zp", "Paragraph_Separator", bit(UTF8PROC_CATEGORY_ZP)},
    {"C", "Other", bits(UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO) | bit(UTF8PROC_CATEGORY_CN)},
    {"Cc", "Control", bit(UTF8PROC_CATEGORY_CC)},
    {"Cf", "Format", bit(UTF8PROC_CATEGORY_CF)},
    {"Co", "Private_Use", bit(UTF8PROC_CATEGORY_CO)},
    {"Cn", "Unassigned", bit(UTF8PROC_CATEGORY_CN)},
};

uint32_t categories_of(std::string_view name) {
  for (const std::string_view key : {"gc=", "General_Category="})
    if (name.starts_with(key)) name.remove_prefix(key.size());
  for (const Name& n : kNames)
    if (name == n.brief || name == n.whole) return n.categories;
  return 0;
}

}  // namespace

CodePoints of_category(std::string_view name) {
  CodePoints out;
  const uint32_t wanted = categories_of(name);
  if (wanted == 0) return out;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if ((wanted >> utf8proc_category(static_cast<utf8proc_int32_t>(c)) & 1) == 0) continue;
    if (!out.empty() && out.back().second + 1 == c)
      out.back().second = c;
    else
      out.emplace_back(c, c);
  }
  return out;
}

}  // namespace mxt::pytext
