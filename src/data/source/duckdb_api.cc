#include "data/source/duckdb_api.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/host.h"

namespace mxt::data::duckdb {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libduckdb.so";

std::vector<std::string> places() {
  const fs::path here = program_folder();
  std::vector<std::string> all = {(here / kLibrary).string(), (here / ".." / "lib" / kLibrary).string()};
  for (fs::path p = here; p.has_relative_path(); p = p.parent_path())
    all.push_back((p / ".cache" / "duckdb" / kLibrary).string());
  return all;
}

void* open_library() {
  std::error_code ec;
  std::string why;
  // RTLD_DEEPBIND is left out: the library brings its own symbols under hidden visibility.
  for (const std::string& p : places()) {
    if (!fs::exists(p, ec)) continue;
    if (void* h = dlopen(p.c_str(), RTLD_NOW | RTLD_LOCAL)) return h;
    why = dlerror();
  }
  if (void* h = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) return h;
  if (why.empty()) why = "not found";
  fail_missing(
      "Parquet files and data.sql are read by DuckDB, and {} cannot be opened ({}): put {} of DuckDB 1.2 or newer "
      "beside "
      "the program or into its ../lib (from duckdb.org, or out of npm's @duckdb/node-bindings-linux-x64)",
      kLibrary, why, kLibrary);
}

template <typename F>
void bind(void* library, const char* name, F* f) {
  *f = reinterpret_cast<F>(dlsym(library, name));
  if (*f == nullptr) fail_missing("{} has no {}: it is too old, DuckDB 1.2 or newer is needed", kLibrary, name);
}

Api bind_all() {
  void* l = open_library();
  Api a;
#define MXT_BIND(name) bind(l, "duckdb_" #name, &a.name)
  MXT_BIND(create_config);
  MXT_BIND(set_config);
  MXT_BIND(destroy_config);
  MXT_BIND(open_ext);
  MXT_BIND(close);
  MXT_BIND(connect);
  MXT_BIND(disconnect);
  MXT_BIND(interrupt);
  MXT_BIND(query_progress);
  MXT_BIND(query);
  MXT_BIND(destroy_result);
  MXT_BIND(result_error);
  MXT_BIND(extract_statements);
  MXT_BIND(extract_statements_error);
  MXT_BIND(prepare_extracted_statement);
  MXT_BIND(destroy_extracted);
  MXT_BIND(prepare);
  MXT_BIND(prepare_error);
  MXT_BIND(destroy_prepare);
  MXT_BIND(prepared_statement_type);
  MXT_BIND(pending_prepared_streaming);
  MXT_BIND(execute_pending);
  MXT_BIND(pending_error);
  MXT_BIND(destroy_pending);
  MXT_BIND(fetch_chunk);
  MXT_BIND(destroy_data_chunk);
  MXT_BIND(data_chunk_get_size);
  MXT_BIND(data_chunk_get_vector);
  MXT_BIND(vector_get_data);
  MXT_BIND(vector_get_validity);
  MXT_BIND(free);
  MXT_BIND(library_version);
#undef MXT_BIND
  return a;
}

}  // namespace

const Api& api() {
  static const Api a = bind_all();
  return a;
}

std::string version() {
  const Api* a = &api();
  return a->library_version();
}

}  // namespace mxt::data::duckdb
