// The built page (web/dist), compiled in. A generated file defines it (page.cmake); without web/dist the list is empty.
#pragma once

#include <span>
#include <string_view>

namespace mxt::serve {

struct PageFile {
  std::string_view path;  // below /coach/: "index.html", "assets/index-1a2b3c.js"
  std::string_view gzip;  // its bytes, gzipped
};
std::span<const PageFile> page_files();

}  // namespace mxt::serve
