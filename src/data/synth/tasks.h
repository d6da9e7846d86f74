// One draw of each task; synth.cc removes repeats and cuts the splits.
#pragma once

#include "data/synth/draws.h"
#include "data/synth/synth.h"

namespace mxt::data {

// A request of one tool: `answer` is its call, as compact JSON.
struct ToolRequest {
  std::string_view tool;
  SynthRow (*draw)(Draws&);
};
std::span<const ToolRequest> tool_requests();  // tool_calls.cc

SynthRow draw_tool_call(Draws& draws);
SynthRow draw_made_up_tool_call(Draws& draws);
SynthRow draw_tool_preference(Draws& draws);
SynthRow draw_tool_habit(Draws& draws);
SynthRow draw_tool_use(Draws& draws);
SynthRow draw_simple_use(Draws& draws);
SynthRow draw_multiple_use(Draws& draws);
SynthRow draw_parallel_use(Draws& draws);
SynthRow draw_irrelevant_use(Draws& draws);
SynthRow draw_addition(Draws& draws);
SynthRow draw_sums(Draws& draws);
SynthRow draw_arithmetic(Draws& draws);
SynthRow draw_spelling(Draws& draws);
SynthRow draw_sorting(Draws& draws);
SynthRow draw_shapes(Draws& draws);

}  // namespace mxt::data
