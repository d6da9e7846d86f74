// Sources that are not simply files: datasets of the Hub, content of IPFS, the logs of mindX. Each becomes files.
#pragma once

#include <string>
#include <vector>

#include "config/sections/data.h"
#include "data/source/records.h"
#include "net/hub.h"

namespace mxt::data {

// The data files of a split of a Hub dataset, in the Hub's cache. Which files make a split: what the `configs` of its
// README.md say for hf_config (or the default configuration); else the names of the files, in the folder hf_config
// where one is given. A repository without data files of a known kind (one with a loading script) is read from the
// Parquet files that the Hub makes of every dataset (branch refs/convert/parquet).
// Errors: those of net::Hub; kBadInput for a configuration or split that is not there (lists those that are).
std::vector<SourceFile> fetch_hub_dataset(const config::Data& data, const net::HubSettings& settings);

// The file or folder behind data.cid, checked block by block against it; kinds by name, or by their first bytes where
// content has no name. Errors: those of net::fetch_ipfs.
std::vector<SourceFile> fetch_content(const config::Data& data, const net::HubSettings& settings,
                                      const std::string& cache_dir);

// mindX's consolidation logs below a folder: **/*_training.jsonl, and with `evolutions` **/*_evolutions.jsonl. A file or
// a glob names its files itself.
std::vector<SourceFile> find_dreams(const std::string& path, bool evolutions);

// One split's data files of a Hub repository; `readme` is the text of its README.md.
struct SplitFiles {
  std::vector<std::string> paths;
  std::string why_none;  // where there are none
};
SplitFiles choose_split_files(const std::vector<std::string>& files, const std::string& readme,
                              const std::string& config, const std::string& split);

}  // namespace mxt::data
