// Counters and histograms in Prometheus' text format.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace mxt::serve {

class Metrics {
 public:
  void request(const std::string& route, int status);
  void first_token(double seconds) { observe(first_token_, seconds); }
  void between_tokens(double seconds) { observe(between_, seconds); }
  void whole(double seconds) { observe(whole_, seconds); }
  void finished(const std::string& reason);
  struct Gauge {
    std::string name, help;
    double value;
    bool counter;
  };
  std::string text(const std::vector<Gauge>& gauges) const;

 private:
  struct Histogram {
    std::vector<uint64_t> counts = std::vector<uint64_t>(20);
    double sum = 0;
    uint64_t count = 0;
  };
  void observe(Histogram& h, double seconds);
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
  std::map<std::string, uint64_t> finished_;
  Histogram first_token_, between_, whole_;
};

}  // namespace mxt::serve
