#include "data/work.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/stop.h"

namespace mxt::data {

void BlockWork::check_cancel() const { check_stop(cancel); }

void fail_no_rows(const RowSource& source) {
  if (!source.sql.empty()) fail_input("data.sql: gives no rows of {}; loosen its conditions", source.text());
  fail_input("{}: holds no rows; choose other data", source.text());
}

const Layout& Layouts::of(const RowSource& source) {
  if (!found_.contains(&source)) {
    Record first;
    if (!source.open()->next(&first)) fail_no_rows(source);
    offer(source, first);
  }
  return found_.at(&source);
}

void Layouts::offer(const RowSource& source, const Record& first) {
  if (!found_.contains(&source)) found_.emplace(&source, find_layout(first, source.columns));
}

std::string block_name(const RowStream& stream, size_t block, std::string_view settings, Layouts* layouts) {
  Blake3 h;
  const auto add = [&](std::string_view s) {
    const uint64_t n = s.size();
    h.update(&n, sizeof n);
    h.update(s);
  };
  add(settings);
  add(stream.identity());
  // A file's layout may come from another file; of a whole source it follows from its content and the columns.
  if (stream.file) add(layouts->of(*stream.source).text());
  for (const auto& [theirs, ours] : stream.source->columns) {
    add(theirs);
    add(ours);
  }
  add(std::to_string(block));
  return h.hex();
}

}  // namespace mxt::data
