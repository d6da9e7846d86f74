// Which language a text is in: by script, then by its commonest words. Of those that IFEval asks for.
#pragma once

#include <string>
#include <string_view>

namespace mxt::eval {

// ISO 639-1 code, or "" where nothing tells.
std::string detect_language(std::string_view text);

}  // namespace mxt::eval
