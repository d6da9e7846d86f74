#include "publish/ipfs/import.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "publish/ipfs/file_dag.h"
#include "publish/ipfs/folder_dag.h"

namespace mxt::publish {
namespace {

// A multiple of every profile's chunk, large enough to keep the threads busy.
constexpr size_t kWindow = 16u << 20;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail_input("{}: cannot be read: {}", path, std::strerror(errno));
    posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~OpenFile() { close(fd_); }
  OpenFile(const OpenFile&) = delete;
  // Fills the buffer unless the file ends; how much there is.
  size_t read(char* to, size_t bytes) const {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::read(fd_, to + done, bytes - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_input("{}: cannot be read: {}", path_, std::strerror(errno));
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

 private:
  const std::string& path_;
  int fd_;
};

struct Node {
  const TreeEntry* leaf = nullptr;  // file or link; null: a folder
  std::map<std::string, Node> children;
};

Node tree_of(const std::vector<TreeEntry>& entries) {
  Node root;
  for (const TreeEntry& e : entries) {
    Node* at = &root;
    if (!e.path.empty())
      for (const std::string_view part : split(e.path, '/')) {
        if (at->leaf) fail_input("{}: stands below {}, which is no folder", e.path, at->leaf->path);
        MXT_ASSERT(!part.empty() && part != "." && part != "..");
        at = &at->children[std::string(part)];
      }
    if (e.kind == TreeEntry::Kind::kFolder) {
      if (at->leaf) fail_input("{}: is a file and a folder at once", e.path);
      continue;
    }
    if (at->leaf || !at->children.empty()) fail_input("{}: is given twice", e.path);
    at->leaf = &e;
  }
  return root;
}

class Importer {
 public:
  Importer(const std::vector<const UnixFsProfile*>& profiles, const BlockSink& sink, StopFlag stop)
      : profiles_(profiles), sink_(sink), stop_(stop) {}

  std::vector<DagLink> add(const Node& node) {
    using Kind = TreeEntry::Kind;
    if (node.leaf)
      return node.leaf->kind == Kind::kLink   ? add_link(*node.leaf)
             : node.leaf->kind == Kind::kText ? add_text(*node.leaf)
                                              : add_file(*node.leaf);
    std::vector<std::vector<DagLink>> entries(profiles_.size());
    for (const auto& [name, child] : node.children) {
      auto links = add(child);
      for (size_t p = 0; p < profiles_.size(); ++p) {
        links[p].name = name;
        entries[p].push_back(std::move(links[p]));
      }
    }
    return each([&](size_t p) { return make_folder(std::move(entries[p]), *profiles_[p], sink(p)); });
  }

 private:
  template <typename F>
  std::vector<DagLink> each(F&& f) {
    std::vector<DagLink> out;
    for (size_t p = 0; p < profiles_.size(); ++p) out.push_back(f(p));
    return out;
  }
  BlockSink sink(size_t p) const { return p == 0 ? sink_ : BlockSink(); }

  std::vector<DagLink> add_link(const TreeEntry& e) {
    return each([&](size_t p) { return make_node({}, link_data(e.source), *profiles_[p], sink(p)); });
  }

  std::vector<DagLink> add_text(const TreeEntry& e) {
    return each([&](size_t p) {
      FileDag dag(*profiles_[p], sink(p));
      if (!e.source.empty()) dag.add(e.source);
      return dag.finish();
    });
  }

  std::vector<DagLink> add_file(const TreeEntry& e) {
    const OpenFile file(e.source);
    std::vector<FileDag> dags;
    for (size_t p = 0; p < profiles_.size(); ++p) dags.emplace_back(*profiles_[p], sink(p));
    if (!buffer_) buffer_ = std::make_unique_for_overwrite<char[]>(kWindow);
    for (;;) {
      check_stop(stop_);
      const size_t n = file.read(buffer_.get(), kWindow);
      if (n > 0)
        for (FileDag& d : dags) d.add({buffer_.get(), n});
      if (n < kWindow) break;
    }
    return each([&](size_t p) { return dags[p].finish(); });
  }

  const std::vector<const UnixFsProfile*>& profiles_;
  const BlockSink& sink_;
  StopFlag stop_;
  std::unique_ptr<char[]> buffer_;
};

void list_below(const std::string& folder, const std::string& prefix, bool hidden, TreeListing& out) {
  std::error_code ec;
  size_t seen = 0;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string(), path = prefix + name, full = folder + "/" + name;
    ++seen;
    if (name.starts_with('.') && !hidden) {
      ++out.hidden;
      continue;
    }
    if (!is_valid_utf8(name)) fail_input("{}: its name is not UTF-8: rename it", full);
    switch (fs::symlink_status(full, ec).type()) {
      case fs::file_type::regular:
        out.entries.push_back({TreeEntry::Kind::kFile, path, full});
        break;
      case fs::file_type::directory:
        list_below(full, path + "/", hidden, out);
        break;
      case fs::file_type::symlink:
        out.entries.push_back({TreeEntry::Kind::kLink, path, fs::read_symlink(full, ec).string()});
        break;
      default:
        fail_input("{}: is no file, folder or link: it has no content id", full);
    }
  }
  if (ec) fail_input("{}: cannot be read: {}", folder, ec.message());
  // One whose entries are all left out is an empty folder too.
  if (seen == 0 || out.entries.empty() || !out.entries.back().path.starts_with(prefix))
    out.entries.push_back(
        {TreeEntry::Kind::kFolder, prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1), folder});
}

}  // namespace

TreeListing list_tree(const std::string& path, bool hidden) {
  TreeListing out;
  switch (fs::status(path).type()) {
    case fs::file_type::regular:
      out.entries.push_back({TreeEntry::Kind::kFile, "", path});
      break;
    case fs::file_type::directory:
      list_below(path, "", hidden, out);
      break;
    case fs::file_type::not_found:
      fail_input("{}: is not there", path);
    default:
      fail_input("{}: is no file or folder: it has no content id", path);
  }
  std::sort(out.entries.begin(), out.entries.end(),
            [](const TreeEntry& a, const TreeEntry& b) { return a.path < b.path; });
  return out;
}

std::vector<DagRoot> import_tree(const std::vector<TreeEntry>& entries,
                                 const std::vector<const UnixFsProfile*>& profiles, const BlockSink& sink,
                                 StopFlag stop) {
  const Node root = tree_of(entries);
  const auto links = Importer(profiles, sink, stop).add(root);
  std::vector<DagRoot> out;
  for (size_t p = 0; p < profiles.size(); ++p)
    out.push_back({profiles[p], links[p].cid, links[p].file_bytes, links[p].dag_bytes});
  return out;
}

}  // namespace mxt::publish
