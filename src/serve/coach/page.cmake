# web/dist/*.gz (made by `npm run build`; ./dev does it where npm is) → one small .cc whose assembler directive takes the bytes in as they
# are: no compiler ever parses them. Without web/dist the list is empty and /coach/ says how to build the page.
set(dist ${CMAKE_SOURCE_DIR}/web/dist)
file(GLOB_RECURSE page_files RELATIVE ${dist} CONFIGURE_DEPENDS ${dist}/*.gz)
list(SORT page_files)
set(page_bytes "")
set(page_table "")
set(page_list "")
set(n 0)
foreach(f ${page_files})
  string(REGEX REPLACE "\\.gz$" "" path ${f})
  string(APPEND page_bytes
    "extern const char mxt_page_${n}[] __attribute__((visibility(\"hidden\")));\nextern const char mxt_page_${n}_end[] __attribute__((visibility(\"hidden\")));\n"
    "asm(\".pushsection .rodata\\n.global mxt_page_${n}\\n.hidden mxt_page_${n}\\n.global mxt_page_${n}_end\\n.hidden mxt_page_${n}_end\\n"
    "mxt_page_${n}:\\n.incbin \\\"${dist}/${f}\\\"\\nmxt_page_${n}_end:\\n.popsection\\n\");\n")
  string(APPEND page_list "  list.push_back({\"${path}\", {mxt_page_${n}, static_cast<size_t>(mxt_page_${n}_end - mxt_page_${n})}});\n")
  math(EXPR n "${n} + 1")
endforeach()
set(page_source ${CMAKE_CURRENT_BINARY_DIR}/page.cc)
file(CONFIGURE OUTPUT ${page_source} @ONLY CONTENT
"#include \"serve/coach/page.h\"\n#include <vector>\nextern \"C\" {\n${page_bytes}}\nnamespace mxt::serve {\nstd::span<const PageFile> page_files() {\n  static const std::vector<PageFile> files = [] {\n  std::vector<PageFile> list;\n${page_list}  return list;\n  }();\n  return files;\n}\n}\n")
list(TRANSFORM page_files PREPEND ${dist}/)
set_source_files_properties(${page_source} PROPERTIES OBJECT_DEPENDS "${page_files}")
