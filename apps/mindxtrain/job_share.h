// Which of the jobs that prepare data together this process is.
#pragma once

#include <functional>
#include <string>

#include "data/prepare.h"

namespace mxt::app {

// "K/N", or "auto": a task of a Slurm array (SLURM_ARRAY_TASK_ID; ids that begin anywhere, in steps of any size), else
// a rank: of Open MPI (OMPI_COMM_WORLD_RANK), of launchers that speak PMI (PMI_RANK), or of srun (SLURM_PROCID).
// Errors (kBadInput): another form, or none of these is set.
data::JobShare job_share(const std::string& text, const std::function<std::string(const char* name)>& variable);

}  // namespace mxt::app
