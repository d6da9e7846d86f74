// The optimizers of this room, for make_optimizer().
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace mxt::optim {

std::unique_ptr<Optimizer> make_adamw(const config::Train& train, const graph::Graph& g);
std::unique_ptr<Optimizer> make_adamw_8bit(const config::Train& train, const graph::Graph& g);
std::unique_ptr<Optimizer> make_lion(const config::Train& train, const graph::Graph& g);
std::unique_ptr<Optimizer> make_adafactor(const config::Train& train, const graph::Graph& g);
std::unique_ptr<Optimizer> make_muon(const config::Train& train, const graph::Graph& g);

}  // namespace mxt::optim
