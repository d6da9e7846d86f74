// Section `receipt`: what the receipt says, where it is written, and who signs it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/enums.h"

namespace mxt::config {

struct Receipt {
  std::string output = "./out/receipt.json";
  std::vector<ReceiptField> include = {
      ReceiptField::kRocmVersion, ReceiptField::kGfxArch,     ReceiptField::kContainerDigest, ReceiptField::kAllGitShas,
      ReceiptField::kYamlHash,    ReceiptField::kDatasetCids, ReceiptField::kEvalReport,      ReceiptField::kEnergyKwh};
  std::optional<std::string> sign_key;  // file made by `mindxtrain key new`; absent = not signed
};

}  // namespace mxt::config
