// The rows that a verb is given in a file of any name: one a line, or of a .json as they stand in it.
#pragma once

#include <memory>
#include <string>

#include "data/source/records.h"

namespace mxt::app {

inline std::unique_ptr<data::RecordReader> open_json_rows(const std::string& path) {
  const bool whole = data::kind_of(path) == data::FileKind::kJson;
  return data::open_records({path, whole ? data::FileKind::kJson : data::FileKind::kJsonLines});
}

}  // namespace mxt::app
