// Checksums of Parquet pages, which DuckDB does not look at.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace mxt::data {

// Where the first page begins whose bytes are not those that its checksum was taken of; none where all are, or have
// none. `chunk`: the pages of one column chunk. What is no page is passed over: the reader says so.
std::optional<size_t> damaged_page(std::span<const std::byte> chunk);

}  // namespace mxt::data
