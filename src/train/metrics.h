// What a run records while it goes: metrics.jsonl (one object a step), TensorBoard events, the loss curve.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mxt::train {

struct StepMetrics {
  int64_t step = 0;  // counts from 1: optimizer steps done
  double loss = 0, lr = 0, grad_norm = 0;
  int64_t tokens = 0;  // seen so far, padding not counted
  double tok_s = 0;    // of this step
  double tflops = 0;   // model floating-point operations of this step per second (recompute not counted), 1e12
  std::optional<double>
      mfu;  // tflops over the largest rate seen: of the plan's fastest matrix product, or of a step that was faster
  uint64_t memory = 0;       // bytes in use: resident in the process, or allocated on the device
  uint64_t peak_memory = 0;  // the most the process has had so far (VmHWM)
  std::optional<double> eval_loss;
  std::map<std::string, double> method;  // what the method says beside (train/methods)
  // With experts: the load-balancing loss before its coefficient (top-k where all is even), and the busiest expert's
  // share of the rows over an even share.
  std::optional<double> balance_loss, expert_load;
};

class MetricsLog {
 public:
  // Appends to FOLDER/metrics.jsonl; what stands there for steps after `resume_step` is dropped (0: a fresh log).
  MetricsLog(const std::string& folder, int64_t resume_step);
  ~MetricsLog();
  void write(const StepMetrics& m);
  void flush();
  const std::vector<StepMetrics>& all() const { return all_; }  // the ones before a resume too

 private:
  struct Files;
  std::string folder_;
  std::vector<StepMetrics> all_;
  std::unique_ptr<Files> files_;
};

// FOLDER/loss.svg from the log: training loss (faint: each step, bold: smoothed), evaluation loss as points.
std::string loss_curve_svg(const std::vector<StepMetrics>& log, const std::string& title);

// TensorBoard's event file: TFRecord framing (length, masked CRC-32C, data) around Event protocol buffers with scalar
// summaries.
class TensorBoardWriter {
 public:
  // `first_step` is the first that follows: TensorBoard forgets what earlier files of the folder say of it and later
  // ones.
  TensorBoardWriter(const std::string& folder, int64_t first_step);
  ~TensorBoardWriter();
  void scalars(int64_t step, double wall_time, const std::vector<std::pair<std::string, double>>& values);

 private:
  void record(const std::string& event);
  int fd_ = -1;
};

uint32_t crc32c(const void* data, size_t bytes);  // Castagnoli, as TFRecord uses it

}  // namespace mxt::train
