// Tensors that are no weights: masks and tables that old writers kept beside them.
#pragma once

#include <string_view>

namespace mxt::formats {

// By its name, of a Hugging Face folder or a GGUF file.
bool is_buffer(std::string_view name);

}  // namespace mxt::formats
