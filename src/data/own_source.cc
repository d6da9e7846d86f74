#include "data/own_source.h"

#include <fnmatch.h>

#include "base/error.h"
#include "base/files.h"

namespace mxt::data {
namespace {

void refuse_inside(const std::optional<std::string>& path, const std::string& out) {
  std::error_code ec;
  if (!path || out.empty() || fs::is_regular_file(*path, ec)) return;
  const fs::path made = fs::weakly_canonical(fs::absolute(out), ec) / "dataset.json";
  bool inside;
  if (fs::is_directory(*path, ec)) {
    const fs::path rest = made.lexically_relative(fs::canonical(*path, ec));
    inside = !rest.empty() && *rest.begin() != "..";
  } else {
    inside = ::fnmatch(fs::absolute(*path).lexically_normal().c_str(), made.c_str(), 0) == 0;
  }
  if (inside)
    fail_input(
        "{}: lies where all files are read as rows ({}): what is prepared there would be read the next time; choose "
        "another folder for it, or name the files",
        out, *path);
}

}  // namespace

void refuse_own_source(const config::Data& d, const std::string& out) {
  refuse_inside(d.path, out);
  refuse_inside(d.eval_path, out);
  for (const config::MixtureSource& m : d.mixture) refuse_inside(m.path, out);
}

}  // namespace mxt::data
