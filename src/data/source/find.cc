#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "data/source/records.h"

namespace mxt::data {

std::optional<FileKind> kind_of(std::string_view path) {
  const std::string_view packed = path;
  for (const char* packing : {".gz", ".zst"})
    if (path.ends_with(packing)) path.remove_suffix(std::string_view(packing).size());
  const auto is = [&](auto... endings) { return (path.ends_with(endings) || ...); };
  if (is(".jsonl", ".ndjson")) return FileKind::kJsonLines;
  if (is(".json")) return FileKind::kJson;
  if (is(".csv")) return FileKind::kCsv;
  if (is(".tsv")) return FileKind::kTsv;
  if (is(".txt", ".text", ".md")) return FileKind::kText;
  if (packed == path && is(".parquet")) return FileKind::kParquet;  // it packs its columns itself
  return std::nullopt;
}

std::string split_of(std::string_view path, bool folders) {
  struct Words {
    const char* split;
    std::array<const char*, 4> words;
  };
  constexpr std::array<Words, 3> kSplits = {{{"train", {"train", "training", "", ""}},
                                             {"validation", {"validation", "valid", "dev", "val"}},
                                             {"test", {"test", "testing", "eval", "evaluation"}}}};
  const std::string_view name = folders ? path : path.substr(path.rfind('/') + 1);
  std::string word;
  for (size_t i = 0; i <= name.size(); ++i) {
    const char c = i < name.size() ? name[i] : '.';
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      word += static_cast<char>(c | 0x20);
      continue;
    }
    for (const Words& s : kSplits)
      for (const char* w : s.words)
        if (!word.empty() && word == w) return s.split;
    word.clear();
  }
  return "";
}

std::string read_head(const std::string& path, size_t bytes) {
  std::ifstream in(path, std::ios::binary);
  std::string s(bytes, '\0');
  in.read(s.data(), static_cast<std::streamsize>(bytes));
  s.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return s;
}

namespace {

constexpr const char* kKinds = ".jsonl .ndjson .json .csv .tsv .txt .text .md, each also .gz or .zst, and .parquet";

}  // namespace

void check_file_name(const std::string& path) {
  const bool control = std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!control && is_valid_utf8(path)) return;
  std::string shown = replace_invalid_utf8(path);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  fail_input("{}: the name of this file holds {}; rename it", shown,
             control ? "control characters" : "bytes that are no UTF-8");
}

namespace {

std::vector<SourceFile> in_folder(const std::string& folder, const std::string& wanted) {
  std::vector<SourceFile> all;
  std::vector<std::string> splits;
  for (const std::string& name : list_files(folder))
    if (const auto kind = kind_of(name)) {
      if (name.substr(name.rfind('/') + 1).starts_with("README")) continue;
      all.push_back({(fs::path(folder) / name).string(), *kind});
      check_file_name(all.back().path);
      splits.push_back(split_of(name, true));
    }
  if (all.empty()) fail_input("{}: no data files in this folder (known endings: {})", folder, kKinds);
  if (std::all_of(splits.begin(), splits.end(), [](const std::string& s) { return s.empty(); })) return all;

  const std::string split = split_of(wanted, false).empty() ? wanted : split_of(wanted, false);
  std::vector<SourceFile> chosen;
  for (size_t i = 0; i < all.size(); ++i)
    if (splits[i] == split) chosen.push_back(all[i]);
  if (chosen.empty()) {
    std::string there;
    for (const std::string& s : splits)
      if (!s.empty() && there.find(s) == std::string::npos) there += (there.empty() ? "" : ", ") + s;
    fail_input("{}: no file of split \"{}\" (the names carry: {}); set data.split or name the files", folder, wanted,
               there);
  }
  if (chosen.size() < all.size())
    log::info("{}: {} of {} data files belong to split \"{}\"", folder, chosen.size(), all.size(), wanted);
  return chosen;
}

}  // namespace

std::vector<std::string> find_named_files(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode))
    fail_input("{}: is neither a file nor a folder; rows are read more than once, so write them to a file first", path);
  const std::vector<std::string> paths = glob_files(path);
  if (paths.empty() && path.find_first_of("*?[{") != std::string::npos)
    fail_input("{}: no file matches; a pattern names files, not folders (it is relative to the working folder)", path);
  if (paths.empty())
    fail_input("{}: no such file or folder; check the path (it is relative to the working folder)", path);
  for (const std::string& p : paths) check_file_name(p);
  return paths;
}

std::vector<SourceFile> find_source_files(const std::string& path, const std::string& split) {
  struct stat st{};
  if (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return in_folder(path, split);
  std::vector<SourceFile> files;
  for (const std::string& p : find_named_files(path)) {
    const auto kind = kind_of(p);
    if (!kind) fail_input("{}: unknown ending; the data files that can be read: {}", p, kKinds);
    files.push_back({p, *kind});
  }
  return files;
}

}  // namespace mxt::data
