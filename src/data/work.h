// What the two readings of a source (first_pass.h, token_pass.h) have in common. Both go block by block, and what is
// found out about a block is kept under all that it depends on: the content of its stream, its number and the settings.
// So each goes on after a crash where it stood, and jobs (jobs.h) may do the work for some of the blocks.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "data/settings.h"
#include "data/shape/example.h"

namespace mxt::data {

struct BlockWork {
  std::string folder;                         // of the prepared folder; takes "prints", "models" and "tokens"
  const std::atomic<bool>* cancel = nullptr;  // set: kInterrupted at the next block
  // Called for a block whose work is not there, before it is done; throws where it must be there. Empty: it is done.
  std::function<void(const RowStream& stream, size_t block)> missing;
  void check_cancel() const;
};

// The layout of the rows of each source: found at its first row.
class Layouts {
 public:
  // Reads that row where it is not known yet. Errors (kBadInput): no rows; find_layout()'s.
  const Layout& of(const RowSource& source);
  void offer(const RowSource& source, const Record& first);

 private:
  std::map<const RowSource*, Layout> found_;
};

// The error of a source that has none.
[[noreturn]] void fail_no_rows(const RowSource& source);

// The name that the work on a block is kept by.
std::string block_name(const RowStream& stream, size_t block, std::string_view settings, Layouts* layouts);

}  // namespace mxt::data
