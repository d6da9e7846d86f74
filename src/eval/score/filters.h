// What stands between a model's answers and the metrics: a task's filter_list.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::eval {

// One named chain of filters. `responses` is the list of a request's answers (one, or `repeats`); the result is what
// the chain leaves: one answer after take_first, else a list.
class FilterChain {
 public:
  // An entry of filter_list; null = the default, "none" with take_first. Errors (kBadInput, kMissing) name the filter.
  FilterChain(const OrderedJson& entry, const std::string& where);
  const std::string& name() const { return name_; }
  OrderedJson apply(const std::vector<OrderedJson>& responses, const OrderedJson& doc) const;

 private:
  using Step = std::function<OrderedJson(OrderedJson, const OrderedJson& doc)>;
  std::string name_ = "none";
  std::vector<Step> steps_;
};

}  // namespace mxt::eval
