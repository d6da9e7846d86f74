#include "serve/metrics.h"

#include <fmt/format.h>

namespace mxt::serve {
namespace {

constexpr double kBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                              2.5,   5,      10,    25,   50,    100,  250, 500,  1000};

}  // namespace

void Metrics::request(const std::string& route, int status) {
  std::lock_guard lock(mutex_);
  ++requests_[{route, status}];
}

void Metrics::finished(const std::string& reason) {
  std::lock_guard lock(mutex_);
  ++finished_[reason];
}

void Metrics::observe(Histogram& h, double seconds) {
  std::lock_guard lock(mutex_);
  size_t i = 0;
  while (i < std::size(kBounds) && seconds > kBounds[i]) ++i;
  ++h.counts[i];
  h.sum += seconds;
  ++h.count;
}

std::string Metrics::text(const std::vector<Gauge>& gauges) const {
  std::string out;
  auto head = [&](std::string_view name, std::string_view help, std::string_view type) {
    out += fmt::format("# HELP mindxtrain_{} {}\n# TYPE mindxtrain_{} {}\n", name, help, name, type);
  };
  std::lock_guard lock(mutex_);
  head("http_requests_total", "Answers by route and status.", "counter");
  for (const auto& [key, n] : requests_)
    out += fmt::format("mindxtrain_http_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, n);
  head("answers_total", "Finished answers by reason.", "counter");
  for (const auto& [reason, n] : finished_)
    out += fmt::format("mindxtrain_answers_total{{reason=\"{}\"}} {}\n", reason, n);
  auto histogram = [&](std::string_view name, std::string_view help, const Histogram& h) {
    head(name, help, "histogram");
    uint64_t sum = 0;
    for (size_t i = 0; i < std::size(kBounds); ++i)
      out += fmt::format("mindxtrain_{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], sum += h.counts[i]);
    out += fmt::format("mindxtrain_{}_bucket{{le=\"+Inf\"}} {}\nmindxtrain_{}_sum {}\nmindxtrain_{}_count {}\n", name,
                       h.count, name, h.sum, name, h.count);
  };
  histogram("time_to_first_token_seconds", "From the request's arrival to its first token.", first_token_);
  histogram("time_between_tokens_seconds", "Between tokens of one answer.", between_);
  histogram("request_seconds", "From the request's arrival to the end of its answer.", whole_);
  for (const Gauge& g : gauges) {
    head(g.name, g.help, g.counter ? "counter" : "gauge");
    out += fmt::format("mindxtrain_{} {}\n", g.name, g.value);
  }
  return out;
}

}  // namespace mxt::serve
