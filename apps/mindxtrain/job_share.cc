#include "job_share.h"

#include <charconv>

#include "base/error.h"

namespace mxt::app {
namespace {

int number_at(const std::string& text, const std::string& name) {
  int n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc() || end != text.data() + text.size())
    fail_input("{} is \"{}\": a whole number is needed", name, text);
  return n;
}

data::JobShare checked(data::JobShare s, const std::string& from) {
  if (s.jobs < 1 || s.job < 1 || s.job > s.jobs)
    fail_input("{}: job {} of {}: the first is 1, the last the number of jobs", from, s.job, s.jobs);
  return s;
}

}  // namespace

data::JobShare job_share(const std::string& text, const std::function<std::string(const char* name)>& variable) {
  if (text != "auto") {
    const size_t slash = text.find('/');
    if (slash == std::string::npos) fail_input("--job is \"{}\": write K/N, as 3/16, or auto", text);
    return checked({number_at(text.substr(0, slash), "--job"), number_at(text.substr(slash + 1), "--job")},
                   "--job " + text);
  }
  const auto read = [&](const char* name, int otherwise) {
    const std::string v = variable(name);
    return v.empty() ? otherwise : number_at(v, name);
  };
  if (!variable("SLURM_ARRAY_TASK_ID").empty()) {
    const int id = read("SLURM_ARRAY_TASK_ID", 0), first = read("SLURM_ARRAY_TASK_MIN", 0),
              step = read("SLURM_ARRAY_TASK_STEP", 1), count = read("SLURM_ARRAY_TASK_COUNT", 0);
    if (step < 1 || (id - first) % step != 0)
      fail_input("SLURM_ARRAY_TASK_ID is {}, which is not one of {}, {}, …; give the array as a range", id, first,
                 first + step);
    return checked({(id - first) / step + 1, count}, "SLURM_ARRAY_TASK_ID");
  }
  const struct {
    const char *rank, *size;
  } kRanks[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& r : kRanks)
    if (!variable(r.rank).empty()) return checked({read(r.rank, 0) + 1, read(r.size, 0)}, r.rank);
  fail_input(
      "--job auto: no job array and no ranks here (SLURM_ARRAY_TASK_ID, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID); "
      "start it by sbatch --array, mpirun or srun, or give --job K/N");
}

}  // namespace mxt::app
