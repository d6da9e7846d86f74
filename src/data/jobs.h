// Preparing as independent jobs: each does both readings' work on its share of the blocks of one prepared folder, on
// whatever machine sees that folder; merging then finds everything done and decides, packs and writes as a single run
// would. Jobs may run at the same time, in any order, be killed and be repeated.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/prepare.h"
#include "data/settings.h"

namespace mxt::data {

// Which job does which block. A stream above a job's fair part of all bytes is dealt out block by block; the others go
// whole, the largest first, to the job that has least. Depends on the streams' sizes alone.
class Shares {
 public:
  Shares(const std::vector<RowStream>& streams, int jobs);
  int owner(size_t stream, size_t block) const;  // 1 … jobs
  bool any(size_t stream, int job) const;        // whether `job` has a block of it

 private:
  int jobs_;
  std::vector<int> whole_;  // [streams] the owner; 0: dealt out
};

// What jobs that work together agree on: the settings, and the files' kinds and sizes (digests would make each job
// read everything).
std::string jobs_key(const Settings& settings, const SampleEncoder& coder);

// The note that a finished job leaves in `folder`/jobs.
void note_done(const std::string& folder, JobShare job, const std::string& key);
// All `jobs` have left theirs.
bool all_done(const std::string& folder, int jobs, const std::string& key);
// How many jobs there are. Errors (kBadInput): no job has finished, jobs of another number or of other inputs, one that
// has not finished; names the command to run.
int check_done(const std::string& folder, const std::string& key);
// Held while the jobs of a folder are merged; a second process waits. Leaves no file behind.
class MergeLock {
 public:
  explicit MergeLock(const std::string& out);
  ~MergeLock();
  MergeLock(const MergeLock&) = delete;

 private:
  std::string path_;
  int fd_ = -1;
};
// For BlockWork::missing: kBadInput that names the block and the job that should have made it.
std::function<void(const RowStream&, size_t)> missing_part(const Settings& settings, int jobs);

}  // namespace mxt::data
