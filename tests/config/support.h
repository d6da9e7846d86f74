// Recipes for tests: the smallest valid one, and one with a line put in.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/recipe.h"
#include "config/this_machine.h"

namespace mxt::config {

inline constexpr const char* kMinimal =
    "meta: {project: p, run_name: r}\n"
    "model: {name: Qwen/Qwen3-8B}\n"
    "data: {source: hf, hf_id: some/rows}\n";

// The machine of these tests, for recipes that name none: the original schema's default.
inline GpuName mi300x_here() { return GpuName::kMi300x; }

inline std::vector<Issue> issues_of(const std::string& text) {
  return check_recipe(text, "r.yaml", nullptr, mi300x_here);
}

// The lines of all issues, joined: for EXPECT_EQ on the whole answer.
inline std::string lines(const std::string& text) {
  std::string out;
  for (const Issue& i : issues_of(text)) out += (out.empty() ? "" : "\n") + i.text();
  return out;
}

inline Recipe minimal_with(const std::string& more) { return parse_recipe(kMinimal + more, "r.yaml", mi300x_here); }
inline std::string lines_with(const std::string& more) { return lines(kMinimal + more); }

// The first issue of the minimal recipe with `more` is at `key` and says `part`.
inline void expect_refused(const std::string& more, const std::string& key, const std::string& part) {
  const auto found = issues_of(kMinimal + more);
  ASSERT_FALSE(found.empty()) << more;
  EXPECT_EQ(found[0].key, key) << found[0].text();
  EXPECT_NE(found[0].what.find(part), std::string::npos) << found[0].text();
}

}  // namespace mxt::config
