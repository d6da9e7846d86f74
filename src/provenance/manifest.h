// manifest.json of a run: an in-toto Statement v1 whose subjects are what the run read and made, each with the digests
// of all its files. Dates, durations and host names stand in predicate.environment, outside every subject.
//
// Digests of a subject (BLAKE3, and SHA-256 for tools that know no BLAKE3):
//   a file    the file's bytes
//   a folder  the canonical JSON of its list [{"blake3","bytes","path","sha256"}…], sorted by path; beside it `merkle`,
//             from which one file can be proved (merkle.h)
//   a value   its canonical JSON
// predicate.buildDefinition and runDetails say the same run in SLSA's words (slsa.h). predicate.integrity holds a short
// digest of every field and one of the whole, so an edit is named.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/stop.h"
#include "provenance/sign.h"

namespace mxt::config {
struct Recipe;
}

namespace mxt::provenance {

inline constexpr const char* kPredicateType = "urn:mindxtrain:run:v1";

inline constexpr const char* kReceiptName = "receipt.json";  // beside the manifest: what make_receipt() says of it

// Where a run is published, the checkpoint's files stand at the root, so that tools load it as a model, and the rest in
// a folder of this name. The dataset is left out: it may be large, or not for others.
inline constexpr const char* kPublishedFolder = "provenance";
inline constexpr const char* kLeftOutSubject = "dataset";
// Of a path in the run's folder.
std::string published_path(const std::string& path);

// Collects what the manifest says and writes it. Paths are relative to the run's folder.
class ManifestBuilder {
 public:
  explicit ManifestBuilder(std::string run_folder);
  ~ManifestBuilder();
  ManifestBuilder(const ManifestBuilder&) = delete;

  // Names the run: project, run_name, seed and the hash of the effective recipe.
  void set_recipe(const config::Recipe& recipe);

  // A subject's files are hashed here (all of a folder, dot files too). kBadInput where it is not there or holds a
  // link.
  void add_file(const std::string& subject, const std::string& path);
  void add_folder(const std::string& subject, const std::string& path);
  void add_value(const std::string& subject, const Json& value);

  // A file beside the subjects that two equal runs need not share (metrics, curve, events): its digests stand in
  // predicate.environment.files and are checked like a subject's.
  void add_record(const std::string& path);

  // A part of the predicate: "identities" (device, driver, libraries, compiler, git_commit, container_digest),
  // "results", "energy", "pointers" (hf, cid, chain) or "environment" (dates, durations, host).
  void set(const std::string& part, const Json& value);

  // Writes RUN/manifest.json, and with a key RUN/manifest.dsse.json beside it. Returns the manifest's own BLAKE3.
  std::string write(const std::optional<SigningKey>& key = {});

 private:
  struct Parts;
  std::string folder_;
  std::unique_ptr<Parts> parts_;
};

// One thing that does not hold. `field` is a file of the run ("checkpoint/model.safetensors") or a place in the
// manifest ("/predicate/energy/kwh").
struct Finding {
  std::string field, what;
};

struct VerifyOptions {
  bool published = false;  // the folder is a published copy: the checkpoint at its root, the rest in provenance/
  bool of_a_run = false;   // all that a run makes must be there, and what two subjects say of one thing agree
  std::optional<std::string> trusted_key;  // public key that must have signed
  const config::Recipe* recipe = nullptr;  // the manifest must be of this recipe
  StopFlag stop = nullptr;                 // looked at while files are read: kInterrupted
};

struct VerifyReport {
  std::vector<Finding> findings;
  std::vector<std::string> subjects;  // "checkpoint: 3 files, 12.4 MiB" for each that holds
  std::string manifest_digest;        // BLAKE3, as stored
  std::string signer;                 // public key, "" = not signed
  bool ok() const { return findings.empty(); }
};

// The manifest of a run's folder, or of a published copy of one (FOLDER/provenance/manifest.json).
std::string manifest_of(const std::string& folder);

// Re-hashes everything; a manifest in a folder "provenance" is that of a published copy. What differs is in the report;
// throws only where the manifest cannot be read at all (kBadInput) or is no manifest (kVerifyFailed).
VerifyReport verify(const std::string& manifest_path, const VerifyOptions& options = {});
// The manifest's own words, and its signature where its envelope lies beside it or a key is asked for; no subject.
VerifyReport verify_statement(const std::string& manifest_path, const VerifyOptions& options);
// As verify() for the text of a manifest that lies elsewhere, against the run in `folder`. "" = the run's files are not
// here: the manifest's own digests are checked, no file's, and no subject is reported to hold.
VerifyReport verify_text(std::string_view text, const std::string& name, const std::string& folder,
                         const VerifyOptions& options = {});
// Error(kVerifyFailed) with the first finding, and how many more there are.
void require_verified(const VerifyReport& report, const std::string& manifest_path);

// The digest of one subject, for comparing two runs; "" where the manifest has no such subject.
std::string subject_digest(const Json& manifest, const std::string& subject);

}  // namespace mxt::provenance
