#include "train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace mxt::train {
namespace {

OrderedJson to_json(const StepMetrics& m) {
  OrderedJson j;
  j["step"] = m.step;
  j["loss"] = m.loss;
  j["lr"] = m.lr;
  j["grad_norm"] = m.grad_norm;
  for (const auto& [name, value] : m.method) j[name] = value;
  j["tokens"] = m.tokens;
  j["tok_s"] = m.tok_s;
  j["tflops"] = m.tflops;
  j["mfu"] = m.mfu ? OrderedJson(*m.mfu) : OrderedJson(nullptr);
  j["memory_bytes"] = m.memory;
  j["peak_memory_bytes"] = m.peak_memory;
  j["watts"] = nullptr;
  if (m.balance_loss) j["balance_loss"] = *m.balance_loss;
  if (m.expert_load) j["expert_load"] = *m.expert_load;
  if (m.eval_loss) j["eval_loss"] = *m.eval_loss;
  return j;
}

StepMetrics from_json(const Json& j) {
  StepMetrics m;
  m.step = j.at("step");
  m.loss = j.at("loss");
  m.lr = j.at("lr");
  m.grad_norm = j.at("grad_norm");
  m.tokens = j.at("tokens");
  m.tok_s = j.at("tok_s");
  if (j.contains("eval_loss")) m.eval_loss = j.at("eval_loss").get<double>();
  return m;
}

}  // namespace

struct MetricsLog::Files {
  int fd = -1;
  std::unique_ptr<TensorBoardWriter> board;
  ~Files() {
    if (fd >= 0) close(fd);
  }
};

MetricsLog::MetricsLog(const std::string& folder, int64_t resume_step)
    : folder_(folder), files_(std::make_unique<Files>()) {
  const std::string path = folder + "/metrics.jsonl";
  std::string kept;
  if (resume_step > 0 && fs::exists(path)) {
    const std::string text = read_file(path);
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      if (end == std::string::npos) break;  // cut off in the middle of a line
      const std::string line = text.substr(at, end - at);
      at = end + 1;
      const Json j = Json::parse(line, nullptr, false);
      if (j.is_discarded() || !j.contains("step") || j["step"].get<int64_t>() > resume_step) break;
      kept += line + "\n";
      all_.push_back(from_json(j));
    }
  }
  write_file_atomic(path, kept);
  files_->fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (files_->fd < 0) fail_input("{}: cannot be written: {}", path, std::strerror(errno));
  files_->board = std::make_unique<TensorBoardWriter>(folder + "/tensorboard", resume_step + 1);
}

MetricsLog::~MetricsLog() = default;

void MetricsLog::write(const StepMetrics& m) {
  const std::string line = to_json(m).dump() + "\n";
  errno = ENOSPC;  // a short write says nothing else
  if (::write(files_->fd, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    fail_input("{}/metrics.jsonl: cannot be written: {}", folder_, std::strerror(errno));
  all_.push_back(m);
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::vector<std::pair<std::string, double>> values{
      {"train/loss", m.loss}, {"train/lr", m.lr}, {"train/grad_norm", m.grad_norm}, {"train/tok_s", m.tok_s}};
  if (m.mfu) values.emplace_back("train/mfu", *m.mfu);
  if (m.balance_loss) values.emplace_back("train/balance_loss", *m.balance_loss);
  if (m.expert_load) values.emplace_back("train/expert_load", *m.expert_load);
  if (m.eval_loss) values.emplace_back("eval/loss", *m.eval_loss);
  for (const auto& [name, value] : m.method) values.emplace_back("train/" + name, value);
  files_->board->scalars(m.step, now, values);
}

void MetricsLog::flush() {
  write_file_atomic(folder_ + "/loss.svg", loss_curve_svg(all_, fs::path(folder_).filename().string()));
}

}  // namespace mxt::train
