// Personal data and secrets in the text of rows, replaced by what they were.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "config/enums.h"
#include "data/shape/example.h"

namespace mxt::data {

using Redacted = std::array<int64_t, 3>;  // by config::Redact: how many were replaced

// Replaces what `kinds` names; forms are matched narrowly, so that numbers and code are left alone:
//   email  name@host.tld                                                                          → <EMAIL>
//   phone  +CC and 7 to 15 digits with single spaces, dots, hyphens or brackets between; (AAA) BBB-CCCC; AAA-BBB-CCCC
//          and AAA.BBB.CCCC (North America)                                                       → <PHONE>
//   key    AKIA…/ASIA… (AWS), ghp_ gho_ ghs_ github_pat_ (GitHub), hf_ (Hugging Face), sk- (OpenAI and alike), xox?-
//   (Slack),
//          AIza… (Google), and whole PEM blocks of private keys                                    → <KEY>
Redacted redact_text(std::string* text, std::span<const config::Redact> kinds);

// The same in a row's columns, roles and other keys left alone; the row is written anew where something was replaced.
// Errors (kBadInput): as read_row_text(); finished tokens, which have no text to read.
Redacted redact_record(Record* record, const Layout& layout, std::span<const config::Redact> kinds);

}  // namespace mxt::data
