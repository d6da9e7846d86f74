#include "data/jobs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "data/first_pass.h"
#include "data/inputs.h"
#include "data/store/manifest.h"
#include "data/token_pass.h"

namespace mxt::data {
namespace {

fs::path notes_of(const std::string& folder) { return fs::path(folder) / kJobsFolder; }
std::string note_name(int job, int jobs) { return fmt::format("{:05}-of-{:05}.json", job, jobs); }

bool is_done(const std::string& folder, JobShare j, const std::string& key) {
  const fs::path path = notes_of(folder) / note_name(j.job, j.jobs);
  std::error_code ec;
  return fs::is_regular_file(path, ec) && read_json_file(path.string()).value("key", "") == key;
}

std::vector<RowStream> streams_of(const Settings& s) {
  std::vector<RowStream> streams = s.train.streams();
  if (s.eval)
    for (const RowStream& e : s.eval->streams()) streams.push_back(e);
  return streams;
}

}  // namespace

Shares::Shares(const std::vector<RowStream>& streams, int jobs) : jobs_(jobs), whole_(streams.size(), 0) {
  std::vector<uint64_t> bytes;
  for (const RowStream& s : streams) bytes.push_back(s.bytes());
  const uint64_t fair = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}) / static_cast<uint64_t>(jobs);
  std::vector<size_t> order;
  for (size_t i = 0; i < streams.size(); ++i)
    if (bytes[i] <= fair) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::vector<uint64_t> load(static_cast<size_t>(jobs), 0);
  for (size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += bytes[i] + 1;  // so that empty files are spread too
    whole_[i] = 1 + static_cast<int>(least - load.begin());
  }
}

int Shares::owner(size_t stream, size_t block) const {
  if (whole_[stream] > 0) return whole_[stream];
  return 1 + static_cast<int>((stream + block) % static_cast<size_t>(jobs_));
}

bool Shares::any(size_t stream, int job) const { return whole_[stream] == 0 || whole_[stream] == job; }

void note_done(const std::string& folder, JobShare j, const std::string& key) {
  make_folders(notes_of(folder).string());
  write_file_atomic((notes_of(folder) / note_name(j.job, j.jobs)).string(),
                    OrderedJson{{"job", j.job}, {"jobs", j.jobs}, {"key", key}}.dump() + "\n");
}

bool all_done(const std::string& folder, int jobs, const std::string& key) {
  for (int j = 1; j <= jobs; ++j)
    if (!is_done(folder, {j, jobs}, key)) return false;
  return true;
}

int check_done(const std::string& folder, const std::string& key) {
  std::set<int> numbers;
  bool foreign = false;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(notes_of(folder), ec)) {
    if (e.path().extension() != ".json") continue;
    const Json j = read_json_file(e.path().string());
    if (!j.is_object() || !j.contains("jobs") || !j["jobs"].is_number_integer())
      fail_input("{}: is not the note of a job; remove it", e.path().string());
    if (j.value("key", "") == key)
      numbers.insert(j["jobs"].get<int>());
    else
      foreign = true;
  }
  if (numbers.empty() && foreign)
    fail_input(
        "{}: its jobs were for another recipe, tokenizer or other files; run them with this recipe, or merge with "
        "theirs",
        folder);
  const std::string out = folder.ends_with("/.work") ? folder.substr(0, folder.size() - 6) : folder;
  if (numbers.empty())
    fail_input("{}: no job has finished here; run: mindxtrain dataset prep RECIPE --out {} --job K/N", folder, out);
  std::string missing;
  for (int jobs : numbers) {  // more than one where somebody changed the number: any complete set will do
    missing.clear();
    for (int j = 1; j <= jobs; ++j)
      if (!is_done(folder, {j, jobs}, key)) missing += fmt::format("{}{}/{}", missing.empty() ? "" : ", ", j, jobs);
    if (missing.empty()) return jobs;
  }
  fail_input("{}: not finished: job {}; run: mindxtrain dataset prep RECIPE --out {} --job K/N", folder, missing, out);
}

MergeLock::MergeLock(const std::string& out) : path_((fs::path(out) / ".merge").string()) {
  make_folders(out);
  // Who held it before took the file away: what was waited for may be no file any more, then it is made anew.
  struct stat held{}, there{};
  do {
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_input("{}: cannot be written: {}", path_, std::strerror(errno));
    while (::flock(fd_, LOCK_EX) != 0)
      if (errno != EINTR) fail_input("{}: cannot be locked: {}", path_, std::strerror(errno));
    if (::fstat(fd_, &held) != 0) fail_input("{}: cannot be read: {}", path_, std::strerror(errno));
  } while (::stat(path_.c_str(), &there) != 0 || there.st_ino != held.st_ino || there.st_dev != held.st_dev);
}

MergeLock::~MergeLock() {
  ::unlink(path_.c_str());
  ::close(fd_);
}

std::function<void(const RowStream&, size_t)> missing_part(const Settings& s, int jobs) {
  return [streams = streams_of(s), jobs](const RowStream& stream, size_t block) {
    const Shares shares(streams, jobs);
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i].source == stream.source && streams[i].file == stream.file)
        fail_input(
            "{}: block {} of it is not there, is damaged, or was made from another content of the file; run job {}/{} "
            "again",
            stream.text(), block, shares.owner(i, block), jobs);
    MXT_ASSERT(false);
  };
}

JobDone prepare_job(const config::Recipe& recipe, const SampleEncoder& coder, const std::string& out, JobShare job,
                    const Access& access) {
  if (job.jobs < 1 || job.job < 1 || job.job > job.jobs)
    fail_input("job {}/{}: the first is 1, the last the number of jobs", job.job, job.jobs);
  if (recipe.data.synth && recipe.data.synth->teacher)
    fail_input("data.synth.teacher: one process asks a teacher; prepare without jobs");
  const Settings s = read_settings(recipe, access, out);
  const std::string folder = (fs::path(out) / kWorkFolder).string(), key = jobs_key(s, coder);
  JobDone done;
  if (has_manifest(out) && read_manifest(out).key == key_of(inputs_of(s, coder))) {
    done.prepared = true;
    return done;
  }
  const FolderLock lock((notes_of(folder) / fmt::format("{}-of-{}", job.job, job.jobs)).string());
  const BlockWork work{folder, access.cancel, {}};
  Prepared unused;
  TokenPass tokens(s, coder, recipe, work, &unused);
  std::optional<RowFilter> filter;
  if (recipe.data.filter) filter.emplace(*recipe.data.filter, s.eval_texts);
  FirstPass first(recipe.data, filter ? &*filter : nullptr, finds_copies(recipe.data), s.curation, &work);

  const std::vector<RowStream> streams = streams_of(s);
  const size_t of_train = s.train.streams().size();
  const Shares shares(streams, job.jobs);
  log::Progress progress(fmt::format("data: job {}/{}", job.job, job.jobs), 1);
  double all = 0, passed = 0;
  for (const RowStream& st : streams) all += static_cast<double>(st.bytes());
  for (size_t i = 0; i < streams.size(); ++i) {
    const RowStream& stream = streams[i];
    const bool curated = i < of_train && curates(recipe.data);
    BlockReader reader(stream);
    std::vector<Record> rows;
    for (size_t b = 0; shares.any(i, job.job); ++b) {
      const bool mine = shares.owner(i, b) == job.job;
      bool last = false;
      std::vector<bool> make;
      std::optional<Findings> found = mine && curated ? first.find(stream, b) : std::nullopt;
      const auto rows_to_make = [&] {
        make.clear();
        for (int8_t failed : found->failed) make.push_back(failed < 0);
      };
      if (found) rows_to_make();
      if (mine && (found || !curated)) {
        if (const auto kept = tokens.has(stream, b, make)) {
          ++done.blocks;
          if (*kept) break;
          continue;
        }
      }
      reader.read(b, &rows, &last);
      if (mine) {
        const Record head = rows.empty() ? Record() : reader.first();
        if (curated) {
          found = first.examine(stream, b, rows, head, last);
          rows_to_make();
        } else {
          make.assign(rows.size(), true);
        }
        tokens.encode(stream, b, rows, head, last, make, curated);
        ++done.blocks;
        done.rows += static_cast<int64_t>(rows.size());
      }
      progress.update(all > 0 ? (passed + reader.done() * static_cast<double>(stream.bytes())) / all : 0,
                      fmt::format("{} rows in {} blocks", done.rows, done.blocks));
      work.check_cancel();
      if (last) break;
    }
    passed += static_cast<double>(stream.bytes());
  }
  note_done(folder, job, key);
  done.last = all_done(folder, job.jobs, key);
  log::info("data: job {}/{} is done: {} blocks, {} rows made now", job.job, job.jobs, done.blocks, done.rows);
  return done;
}

}  // namespace mxt::data
