// RLP (Ethereum's yellow paper, appendix B): how a transaction is written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evm/types.h"

namespace mxt::evm {

std::string rlp_bytes(std::string_view bytes);
std::string rlp_number(const U256& n);                        // minimal big endian, 0 = the empty string
std::string rlp_list(const std::vector<std::string>& items);  // each already encoded

}  // namespace mxt::evm
