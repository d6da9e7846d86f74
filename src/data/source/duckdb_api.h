// The part of DuckDB's C API that this room calls, bound at run time from libduckdb.so (1.2 or newer). The C API is
// stable, so the few declarations stand here and the build needs nothing of DuckDB. Source: duckdb.h of the project.
#pragma once

#include <cstdint>
#include <string>

namespace mxt::data::duckdb {

// Handles are pointers to structs of which nothing is known.
using Database = struct DatabaseHandle*;
using Connection = struct ConnectionHandle*;
using Config = struct ConfigHandle*;
using Statements = struct StatementsHandle*;
using Prepared = struct PreparedHandle*;
using Pending = struct PendingHandle*;
using Chunk = struct ChunkHandle*;
using Vector = struct VectorHandle*;

// duckdb_result: five fields that are kept for old callers, and the result itself.
struct Result {
  uint64_t old_columns = 0, old_rows = 0, old_changed = 0;
  void* old_column_data = nullptr;
  char* old_error = nullptr;
  void* internal = nullptr;
};

// duckdb_string_t: up to 12 bytes stand in the value itself.
struct Text {
  uint32_t length;
  char prefix[4];
  const char* pointer;
  const char* data() const { return length <= 12 ? prefix : pointer; }
};
static_assert(sizeof(Text) == 16 && sizeof(Result) == 48);

struct Progress {
  double percentage;  // −1 where unknown
  uint64_t rows, total;
};

inline constexpr int kOk = 0;      // duckdb_state
inline constexpr int kSelect = 1;  // DUCKDB_STATEMENT_TYPE_SELECT

struct Api {
  int (*create_config)(Config*);
  int (*set_config)(Config, const char* name, const char* value);
  void (*destroy_config)(Config*);
  int (*open_ext)(const char* path, Database*, Config, char** error);
  void (*close)(Database*);
  int (*connect)(Database, Connection*);
  void (*disconnect)(Connection*);
  void (*interrupt)(Connection);
  Progress (*query_progress)(Connection);
  int (*query)(Connection, const char* sql, Result*);
  void (*destroy_result)(Result*);
  const char* (*result_error)(Result*);
  uint64_t (*extract_statements)(Connection, const char* sql, Statements*);
  const char* (*extract_statements_error)(Statements);
  int (*prepare_extracted_statement)(Connection, Statements, uint64_t index, Prepared*);
  void (*destroy_extracted)(Statements*);
  int (*prepare)(Connection, const char* sql, Prepared*);
  const char* (*prepare_error)(Prepared);
  void (*destroy_prepare)(Prepared*);
  int (*prepared_statement_type)(Prepared);
  int (*pending_prepared_streaming)(Prepared, Pending*);
  int (*execute_pending)(Pending, Result*);
  const char* (*pending_error)(Pending);
  void (*destroy_pending)(Pending*);
  Chunk (*fetch_chunk)(Result);
  void (*destroy_data_chunk)(Chunk*);
  uint64_t (*data_chunk_get_size)(Chunk);
  Vector (*data_chunk_get_vector)(Chunk, uint64_t column);
  void* (*vector_get_data)(Vector);
  uint64_t* (*vector_get_validity)(Vector);  // null where every value is valid
  void (*free)(void*);
  const char* (*library_version)();
};

// Opens the library once: beside the program, in ../lib, in `.cache/duckdb` of a folder above the program (where
// ./dev setup puts it), or where the loader finds it. kMissing with the remedy where it is nowhere.
const Api& api();
std::string version();  // as the library says, e.g. "v1.5.6"

}  // namespace mxt::data::duckdb
