// The entries of a zip archive whose data is stored as it is (PKWARE's APPNOTE 6.3, with its 64-bit fields).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace mxt::formats {

// Name → data, inside `file`. Errors (kBadInput): see TorchFile.
std::map<std::string, std::span<const std::byte>> zip_entries(std::span<const std::byte> file, std::string_view path);

}  // namespace mxt::formats
