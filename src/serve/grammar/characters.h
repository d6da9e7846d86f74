// Characters beyond ASCII as grammar rules.
#pragma once

#include "pytext/categories.h"
#include "serve/grammar/grammar.h"

namespace mxt::serve {

// One character of these code points (from 0x80 on; surrogates are left out), as UTF-8. Bytes that begin alike are one
// alternative, so that a class of a hundred thousand characters is a few hundred rules and a text is led through few
// of them at a time.
Grammar::Rule characters(Grammar& g, const pytext::CodePoints& points);

}  // namespace mxt::serve
