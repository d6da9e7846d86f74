// One draw of each task; synth.cc removes repeats and cuts the splits.
#pragma once

#include "data/synth/draws.h"
#include "data/synth/synth.h"

namespace mxt::data {

SynthRow draw_tool_call(Draws& draws);
SynthRow draw_tool_preference(Draws& draws);
SynthRow draw_tool_habit(Draws& draws);
SynthRow draw_addition(Draws& draws);
SynthRow draw_sums(Draws& draws);
SynthRow draw_arithmetic(Draws& draws);
SynthRow draw_spelling(Draws& draws);
SynthRow draw_sorting(Draws& draws);
SynthRow draw_shapes(Draws& draws);

}  // namespace mxt::data
