// One draw of each task; synth.cc removes repeats and cuts the splits.
#pragma once

#include "base/philox.h"
#include "data/synth/synth.h"

namespace mxt::data {

SynthRow draw_tool_call(Philox& random, Split split);
SynthRow draw_arithmetic(Philox& random, Split split);
SynthRow draw_spelling(Philox& random, Split split);
SynthRow draw_sorting(Philox& random, Split split);

}  // namespace mxt::data
