// The pictures that rows name by their paths: their bytes are as much an input of a preparation as the rows are.
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "data/pictures.h"
#include "data/settings.h"
#include "data/work.h"

namespace mxt::data {
namespace {

class Files {
 public:
  void add(const std::string& path) {
    if (path.empty() || !seen_.insert(path).second) return;
    try {
      const auto bytes = image::read_picture_file(path);
      hash_.update(blake3_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
      ++files_;
    } catch (const Error&) {
    }
  }
  OrderedJson describe() { return {{"files", files_}, {"blake3", hash_.hex()}}; }

 private:
  std::set<std::string> seen_;
  int64_t files_ = 0;
  Blake3 hash_;
};

void add_row(const Record& record, const Layout& layout, Files* files) {
  try {
    const Example e = read_example(record, layout);
    for (const std::string& source : e.pictures) files->add(picture_path(source, e.beside));
  } catch (const Error&) {
  }
}

}  // namespace

OrderedJson RowSource::pictures() const {
  if (!pictures_.empty()) return parse_ordered_json(pictures_, "pictures");
  Files files;
  Layouts layouts;
  for (const RowStream& stream : streams()) {
    if (stream.source->task) continue;  // its pictures stand in its rows
    const auto rows = stream.open();
    for (Record r; rows->next(&r);) {
      if (r.kind == FileKind::kText) continue;
      layouts.offer(*stream.source, r);
      add_row(r, layouts.of(*stream.source), &files);
    }
  }
  OrderedJson all = files.describe();
  pictures_ = all.dump();
  return all;
}

}  // namespace mxt::data
