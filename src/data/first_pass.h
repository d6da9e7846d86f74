// The first reading: what decides whether a row stays, as far as the row itself says it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/dedupe/copies.h"
#include "data/filter/filter.h"
#include "data/source/blocks.h"
#include "data/store/kept.h"
#include "data/work.h"

namespace mxt::data {

struct Findings {
  std::vector<RowPrint> prints;  // [rows], or none where copies are not looked for
  std::vector<int8_t> failed;    // [rows] the check of the filter that a row fails, −1 = none
  bool last = false;             // of its stream
};

class FirstPass {
 public:
  // `filter` may be null; `copies`: look for them. `settings`: all of the recipe that findings depend on. `work` may be
  // null: nothing is kept.
  FirstPass(const config::Data& data, const RowFilter* filter, bool copies, std::string settings,
            const BlockWork* work);
  // All blocks of a source in their order. Reading and `take` go on beside the work.
  void run(const RowSource& source, const std::function<void(const Findings&)>& take);
  // For jobs, block by block.
  std::optional<Findings> find(const RowStream& stream, size_t block);
  Findings examine(const RowStream& stream, size_t block, const std::vector<Record>& rows, const Record& first,
                   bool last);

 private:
  static constexpr size_t kPieces = 64;
  struct Block;
  std::string name(const RowStream& stream, size_t block);
  void begin(const RowStream& stream, const std::vector<Record>& rows, const Record& first, Findings* out);
  void examine_piece(size_t slot, const RowStream& stream, const std::vector<Record>& rows, Findings* out);
  const RowFilter* filter_;
  bool copies_;
  std::string settings_;
  const BlockWork* work_;
  std::optional<Kept> kept_;
  std::vector<Fingerprinter> prints_;  // one a piece
  Layouts layouts_;
};

// Kept findings; exposed for tests.
void put_findings(const Kept& kept, const std::string& name, const Findings& findings);
bool find_findings(const Kept& kept, const std::string& name, Findings* out);

}  // namespace mxt::data
