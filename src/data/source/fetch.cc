#include "data/source/fetch.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/yaml.h"
#include "net/ipfs.h"

namespace mxt::data {
namespace {

using config::YamlNode;
using Paths = std::vector<std::string>;

constexpr const char* kConverted = "refs/convert/parquet";

// A path of the README's as the Hub means it: `**` any depth, `*` within a folder.
bool matches(const std::string& path, const std::string& pattern) {
  if (const size_t at = pattern.find("**/"); at != std::string::npos) {
    const std::string head = pattern.substr(0, at), tail = pattern.substr(at + 3);
    if (fnmatch((head + "*").c_str(), path.c_str(), 0) != 0) return false;
    for (size_t i = head.size(); i <= path.size(); ++i)
      if ((i == head.size() || path[i - 1] == '/') && matches(path.substr(i), tail)) return true;
    return false;
  }
  return fnmatch(pattern.c_str(), path.c_str(), pattern.find("**") == std::string::npos ? FNM_PATHNAME : 0) == 0;
}

// The YAML between the two lines of dashes; an empty map where there is none.
YamlNode front_matter(const std::string& readme) {
  YamlNode none;
  none.kind = YamlNode::Kind::kMap;
  if (!readme.starts_with("---\n") && !readme.starts_with("---\r\n")) return none;
  const size_t end = readme.find("\n---", 3);
  if (end == std::string::npos || end > (size_t{1} << 20)) return none;
  config::YamlResult r = config::parse_yaml(std::string_view(readme).substr(4, end - 3));
  return r.parsed && r.root.kind == YamlNode::Kind::kMap ? std::move(r.root) : none;
}

std::string scalar_of(const YamlNode& n, const char* key) {
  const YamlNode* v = n.find(key);
  return v && v->kind == YamlNode::Kind::kScalar ? v->text : "";
}

// A text, or a list of texts.
Paths texts_of(const YamlNode* n) {
  Paths out;
  if (!n) return out;
  if (n->kind == YamlNode::Kind::kScalar) out.push_back(n->text);
  for (const YamlNode& i : n->items)
    if (i.kind == YamlNode::Kind::kScalar) out.push_back(i.text);
  return out;
}

// split → patterns of one entry of `configs`. data_files is a pattern, a list of patterns, or a list of
// {split, path}; without it data_dir or the whole repository is meant, by names.
struct DatasetConfig {
  std::string name, folder;
  bool is_default = false;
  std::vector<std::pair<std::string, Paths>> splits;
};

std::vector<DatasetConfig> configs_of(const std::string& readme) {
  std::vector<DatasetConfig> out;
  const YamlNode head = front_matter(readme);
  const YamlNode* list = head.find("configs");
  if (!list || list->kind != YamlNode::Kind::kList) return out;
  for (const YamlNode& n : list->items) {
    if (n.kind != YamlNode::Kind::kMap) continue;
    DatasetConfig c;
    c.name = scalar_of(n, "config_name");
    if (c.name.empty()) c.name = "default";
    c.is_default = c.name == "default" || scalar_of(n, "default") == "true";
    c.folder = scalar_of(n, "data_dir");
    if (const YamlNode* files = n.find("data_files")) {
      if (files->kind == YamlNode::Kind::kScalar) c.splits.push_back({"train", {files->text}});
      Paths plain;
      for (const YamlNode& f : files->items)
        if (f.kind == YamlNode::Kind::kMap)
          c.splits.push_back({scalar_of(f, "split"), texts_of(f.find("path"))});
        else if (f.kind == YamlNode::Kind::kScalar)
          plain.push_back(f.text);
      if (!plain.empty()) c.splits.push_back({"train", plain});
      for (const auto& e : files->entries) c.splits.push_back({e.key, texts_of(&e.value)});
    }
    for (auto& [split, paths] : c.splits)
      for (std::string& p : paths) p = c.folder.empty() ? p : c.folder + "/" + p;
    out.push_back(std::move(c));
  }
  return out;
}

std::string listed(const std::set<std::string>& all) {
  std::string s;
  for (const std::string& x : all) s += (s.empty() ? "" : ", ") + x;
  return s;
}

// By the names of the files: those of `split`; all, where no name carries a split and train is wanted.
SplitFiles by_names(const Paths& files, const std::string& split) {
  SplitFiles out;
  const SplitPaths named = paths_of_split(files, split);
  for (const size_t i : named.files) out.paths.push_back(files[i]);
  if (named.there.empty() && named.files.empty() && split == "train") out.paths = files;
  if (out.paths.empty() && !files.empty())
    out.why_none =
        fmt::format("has no split \"{}\"; it has: {}", split, named.there.empty() ? "train" : listed(named.there));
  return out;
}

Paths data_files(const Paths& all, const std::string& folder) {
  Paths out;
  for (const std::string& f : all) {
    const std::string name = f.substr(f.rfind('/') + 1);
    if (kind_of(f) && !name.starts_with("README") && !name.starts_with(".") && !f.starts_with(".") &&
        name != "dataset_infos.json" && name != "dataset_dict.json" && !name.ends_with(".md") &&
        (folder.empty() || f.starts_with(folder + "/")))
      out.push_back(f);
  }
  return out;
}

// A path as a pattern that matches it alone.
std::string escaped(const std::string& path) {
  std::string s;
  for (char c : path) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') s += '\\';
    s += c;
  }
  return s;
}

// "2 of 3 files of data/train" where a name says how many there are and they are not all there; else "".
std::string lacking_shards(const Paths& paths) {
  std::map<std::string, std::pair<size_t, size_t>> sets;  // found, wanted
  for (const std::string& p : paths)
    if (const auto shard = shard_of(p)) {
      auto& [found, all] = sets[p.substr(0, p.rfind('/') + 1) + shard->name];
      ++found, all = shard->count;
    }
  for (const auto& [name, n] : sets)
    if (n.first < n.second) return fmt::format("{} of {} files of {}", n.first, n.second, name);
  return "";
}

// What a cached snapshot holds (its entries are links into the blobs).
Paths cached_files(const std::string& snapshot) {
  Paths out;
  for (const auto& e : fs::recursive_directory_iterator(snapshot))
    if (fs::is_regular_file(e.path())) out.push_back(e.path().lexically_relative(snapshot).string());
  std::sort(out.begin(), out.end());
  return out;
}

struct Listing {
  Paths files;
  std::string readme;
};

Listing list_repository(net::Hub& hub, const config::Data& d, const std::string& revision, bool offline) {
  Listing l;
  if (offline)
    l.files = cached_files(hub.download_snapshot(*d.hf_id, net::RepoType::kDataset, revision));
  else
    for (const net::HubFile& f : hub.tree(*d.hf_id, net::RepoType::kDataset, revision)) l.files.push_back(f.path);
  if (std::find(l.files.begin(), l.files.end(), "README.md") != l.files.end())
    l.readme = read_file(hub.download_file(*d.hf_id, net::RepoType::kDataset, revision, "README.md"));
  return l;
}

// Content without a name.
FileKind sniff(const std::string& path) {
  if (read_head(path, 4) == "PAR1") return FileKind::kParquet;
  Input in(path, {});
  int c = in.peek();
  while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
    in.get();
    c = in.peek();
  }
  return c == '{' ? FileKind::kJsonLines : c == '[' ? FileKind::kJson : FileKind::kText;
}

}  // namespace

SplitFiles choose_split_files(const Paths& files, const std::string& readme, const std::string& config,
                              const std::string& split) {
  check_split(split);
  const std::vector<DatasetConfig> configs = configs_of(readme);
  const DatasetConfig* chosen = nullptr;
  std::set<std::string> names;
  for (const DatasetConfig& c : configs) {
    names.insert(c.name);
    if (config.empty() ? c.is_default && !chosen : c.name == config) chosen = &c;
  }
  if (!chosen && config.empty() && configs.size() == 1) chosen = &configs[0];
  if (!chosen && !configs.empty())
    return {{},
            fmt::format("{}; set data.hf_config to one of: {}",
                        config.empty() ? "has several configurations and none is the default"
                                       : fmt::format("has no configuration \"{}\"", config),
                        listed(names))};
  if (!chosen || chosen->splits.empty()) {
    const std::string folder = chosen ? chosen->folder : config;
    Paths own = data_files(files, folder);
    if (own.empty() && !folder.empty()) own = data_files(files, "data/" + folder);
    return by_names(own, split);
  }
  SplitFiles out;
  std::set<std::string> there;
  for (const auto& [name, patterns] : chosen->splits) {
    there.insert(name);
    if (name != split) continue;
    for (const std::string& f : files)
      if (std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches(f, p); }))
        out.paths.push_back(f);
  }
  if (out.paths.empty())
    out.why_none = there.contains(split) ? fmt::format("names files for split \"{}\" that it does not have", split)
                                         : fmt::format("has no split \"{}\"; configuration \"{}\" has: {}", split,
                                                       chosen->name, listed(there));
  return out;
}

std::vector<SourceFile> fetch_hub_dataset(const config::Data& d, const net::HubSettings& settings) {
  net::Hub hub(settings);
  std::string revision = d.hf_revision.value_or("main");
  const std::string config = d.hf_config.value_or("");
  const Listing l = list_repository(hub, d, revision, settings.offline);
  SplitFiles s = choose_split_files(l.files, l.readme, config, d.split);
  if (s.paths.empty() && !d.hf_revision && data_files(l.files, "").empty()) {
    revision = kConverted;
    Listing converted;
    try {
      converted = list_repository(hub, d, revision, settings.offline);
    } catch (const Error& e) {
      if (e.code() != Exit::kBadInput) throw;
      fail_input("{}: holds no data files that can be read, and the Hub has no Parquet files of it ({})", *d.hf_id,
                 e.what());
    }
    s = choose_split_files(converted.files, "", config.empty() ? "default" : config, d.split);
  }
  if (s.paths.empty())
    fail_input("{}: {}", *d.hf_id, s.why_none.empty() ? "holds no data files that can be read" : s.why_none);
  if (settings.offline)
    if (const std::string lacking = lacking_shards(s.paths); !lacking.empty())
      fail_missing("{}: the cache holds only a part of it ({}): unset HF_HUB_OFFLINE to fetch the rest", *d.hf_id,
                   lacking);
  Paths exact;
  for (const std::string& p : s.paths) exact.push_back(escaped(p));
  const std::string snapshot = hub.download_snapshot(*d.hf_id, net::RepoType::kDataset, revision, exact);
  std::vector<SourceFile> out;
  for (const std::string& p : s.paths) {
    const auto kind = kind_of(p);
    if (!kind) fail_input("{}: {} is of a kind that cannot be read here", *d.hf_id, p);
    out.push_back({snapshot + "/" + p, *kind});
  }
  return out;
}

std::vector<SourceFile> fetch_content(const config::Data& d, const net::HubSettings& settings,
                                      const std::string& cache_dir) {
  net::HttpOptions o;
  o.ca_file = settings.ca_file;
  o.proxies = settings.proxies;
  o.retry_base_seconds = settings.retry_base_seconds;
  o.cancel = settings.cancel;
  if (cache_dir.empty()) fail_missing("data.source: lighthouse needs a cache folder: set HOME or XDG_CACHE_HOME");
  const std::vector<net::IpfsFile> files = net::fetch_ipfs(o, d.gateway, *d.cid, cache_dir);
  if (files.size() == 1 && files[0].path.empty()) return {{files[0].file, sniff(files[0].file)}};
  Paths names;
  for (const auto& f : files) names.push_back(f.path);
  std::vector<SourceFile> out;
  if (files.size() == 1) {
    out.push_back({files[0].file, kind_of(names[0]).value_or(sniff(files[0].file))});
    return out;
  }
  const SplitFiles s = by_names(data_files(names, ""), d.split);
  for (const auto& f : files)
    if (std::find(s.paths.begin(), s.paths.end(), f.path) != s.paths.end()) out.push_back({f.file, *kind_of(f.path)});
  if (out.empty()) fail_input("{}: {}", *d.cid, s.why_none.empty() ? "holds no data files" : s.why_none);
  return out;
}

std::vector<SourceFile> find_dreams(const std::string& path, bool evolutions) {
  std::error_code ec;
  Paths paths;
  if (fs::is_directory(path, ec)) {
    for (const std::string& n : list_files(path))
      if (n.ends_with("_training.jsonl") || (evolutions && n.ends_with("_evolutions.jsonl")))
        paths.push_back(path + "/" + n);
    if (paths.empty())
      fail_input("{}: no *_training.jsonl{} below it; check data.path", path,
                 evolutions ? " or *_evolutions.jsonl" : "");
  } else {
    paths = find_named_files(path);
  }
  std::vector<SourceFile> out;
  for (const std::string& p : paths) {
    check_file_name(p);
    out.push_back({p, FileKind::kJsonLines});
  }
  return out;
}

}  // namespace mxt::data
