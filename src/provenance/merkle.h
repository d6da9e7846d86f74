// One digest of a folder from which a single file can be proved, without the others.
//
// Leaves are the folder's files in the order of their paths' bytes; a leaf is BLAKE3(0x00 ‖ BLAKE3 of the file, 32
// bytes ‖ size, 8 bytes little-endian ‖ path in UTF-8, relative to the run), an inner node BLAKE3(0x01 ‖ left ‖ right).
// n > 1 leaves are split after the largest power of two below n (RFC 6962, section 2.1); no file: BLAKE3 of nothing.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "provenance/integrity.h"

namespace mxt::provenance {

std::string merkle_root(const std::vector<FileRecord>& files);

// What shows that `path` is one of these files: {"path", "blake3", "bytes", "index", "files", "siblings": [hex…], from
// the leaf up}. kBadInput where it is none.
OrderedJson merkle_proof(const std::vector<FileRecord>& files, const std::string& path);
// "" where the proof leads to `root`, else what is wrong.
std::string check_merkle_proof(const Json& proof, const std::string& root);

// Of a manifest: {"subject", "root", …the proof} of one file of its folders, and what is wrong with such a proof ("" =
// nothing: the file with these digests is one of those that the manifest names).
OrderedJson prove_file(const Json& manifest, const std::string& path);
std::string check_file_proof(const Json& manifest, const Json& proof);

}  // namespace mxt::provenance
