#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "data/source/absent.h"
#include "data/source/picture_name.h"
#include "data/source/splits.h"

namespace mxt::data {

std::optional<FileKind> kind_of(std::string_view path) {
  const std::string_view packed = path;
  for (const char* packing : {".gz", ".zst"})
    if (path.ends_with(packing)) path.remove_suffix(std::string_view(packing).size());
  const bool is_packed = packed != path;
  std::string name(path.substr(path.rfind('/') + 1));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;  // ROWS.CSV, as from Windows
  const auto is = [&](auto... endings) { return (name.ends_with(endings) || ...); };
  if (is(".jsonl", ".ndjson")) return FileKind::kJsonLines;
  if (is(".json")) return FileKind::kJson;
  if (is(".csv")) return FileKind::kCsv;
  if (is(".tsv")) return FileKind::kTsv;
  if (is(".txt", ".text", ".md")) return FileKind::kText;
  if (!is_packed && is(".parquet")) return FileKind::kParquet;  // it packs its columns itself
  return std::nullopt;
}

std::string known_split(std::string_view word) {
  struct Words {
    const char* split;
    std::array<const char*, 4> words;
  };
  constexpr std::array<Words, 3> kSplits = {{{"train", {"train", "training", "", ""}},
                                             {"validation", {"validation", "valid", "dev", "val"}},
                                             {"test", {"test", "testing", "eval", "evaluation"}}}};
  std::string low(word);
  for (char& c : low)
    if (c >= 'A' && c <= 'Z') c |= 0x20;
  for (const Words& s : kSplits)
    for (const char* w : s.words)
      if (!low.empty() && low == w) return s.split;
  return "";
}

namespace {

// The first known split that stands as a word in the path.
std::string split_in(std::string_view path) {
  std::string word;
  for (size_t i = 0; i <= path.size(); ++i) {
    const char c = i < path.size() ? path[i] : '.';
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      word += c;
      continue;
    }
    if (const std::string s = known_split(word); !s.empty()) return s;
    word.clear();
  }
  return "";
}

// A split of a name of its own: its folder, or how the file's name begins.
bool carries(std::string_view path, std::string_view split) {
  const auto parts = mxt::split(path, '/');
  if (std::find(parts.begin(), parts.end() - 1, split) != parts.end() - 1) return true;
  const std::string_view name = parts.back();
  return name.starts_with(split) && name.size() > split.size() &&
         !std::isalpha(static_cast<unsigned char>(name[split.size()]));
}

}  // namespace

std::optional<ShardName> shard_of(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const auto digits = [&](size_t at) {
    return at + 5 <= name.size() && name.substr(at, 5).find_first_not_of("0123456789") == std::string_view::npos;
  };
  for (size_t at = name.find("-of-"); at != std::string_view::npos; at = name.find("-of-", at + 1))
    if (at > 6 && name[at - 6] == '-' && digits(at - 5) && digits(at + 4))
      return ShardName{std::string(name.substr(0, at - 6)), std::stoul(std::string(name.substr(at + 4, 5)))};
  return std::nullopt;
}

SplitPaths paths_of_split(const std::vector<std::string>& paths, const std::string& split) {
  check_split(split);
  SplitPaths out;
  const bool sharded = std::any_of(paths.begin(), paths.end(), [](const auto& p) { return shard_of(p).has_value(); });
  const std::string known = known_split(split);
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string name = sharded ? shard_of(paths[i]).value_or(ShardName{}).name : split_in(paths[i]);
    if (!name.empty()) out.there.insert(name);
    const bool same = sharded         ? name == split || (!known.empty() && known_split(name) == known)
                      : known.empty() ? carries(paths[i], split)
                                      : name == known;
    if (same) out.files.push_back(i);
  }
  return out;
}

void check_split(const std::string& split) {
  if (split.find_first_of("[]:%+ ") != std::string::npos)
    fail_input(
        "data.split \"{}\": is no name of a split; for its first rows set data.max_samples, for several sources "
        "data.mixture",
        split);
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

bool names_picture(std::string_view path) {
  std::string name(path);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  for (const char* ending : {".jpg", ".jpeg", ".png", ".webp"})
    if (name.ends_with(ending)) return true;
  return false;
}

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
  std::vector<std::string> names;
  size_t pictures = 0;
  for (const std::string& name : list_files(folder)) {
    pictures += names_picture(name);
    if (const auto kind = kind_of(name)) {
      if (name.substr(name.rfind('/') + 1).starts_with("README")) continue;
      all.push_back({(fs::path(folder) / name).string(), *kind, wanted});
      check_file_name(all.back().path);
      names.push_back(name);
    }
  }
  if (all.empty() && pictures > 0)
    fail_input(
        "{}: holds {} pictures and no rows that say what is learned of them: write metadata.jsonl beside them, with a "
        "line {{\"file_name\": …, \"question\": …, \"answer\": …}} for each",
        folder, pictures);
  if (all.empty()) fail_input("{}: no data files in this folder (known endings: {})", folder, kKinds);
  const SplitPaths split = paths_of_split(names, wanted);
  if (split.there.empty() && split.files.empty()) return all;
  if (split.files.empty())
    fail_input("{}: no file of split \"{}\" (the names carry: {}); set data.split or name the files", folder, wanted,
               fmt::join(split.there, ", "));
  std::vector<SourceFile> chosen;
  for (const size_t i : split.files) chosen.push_back(all[i]);
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
  if (paths.empty()) {
    const std::string get = how_to_get(path);
    fail_input("{}: no such file or folder; {}", path,
               get.empty() ? "check the path (it is relative to the working folder)" : "get it with: " + get);
  }
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
    files.push_back({p, *kind, split});
  }
  return files;
}

}  // namespace mxt::data
