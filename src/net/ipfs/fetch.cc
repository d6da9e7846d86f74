#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "net/ipfs.h"
#include "net/url.h"

namespace mxt::net {
namespace {

// Kubo makes blocks of 256 KiB or 1 MiB and refuses to pass on more than 2 MiB.
constexpr size_t kMaxBlock = size_t{4} << 20;
constexpr int kMaxDepth = 64;

// Blocks that are known to be what their ids say, in a file.
class Blocks {
 public:
  explicit Blocks(const std::string& path)
      : file_(path, std::ios::in | std::ios::out | std::ios::binary | std::ios::trunc) {
    if (!file_) fail_input("{}: cannot be written", path);
  }
  bool has(const Cid& c) const { return at_.contains(c); }
  void put(const Cid& c, std::string_view block) {
    file_.seekp(static_cast<std::streamoff>(end_));
    file_.write(block.data(), static_cast<std::streamsize>(block.size()));
    if (!file_) fail_input("no space left on the disk for content from IPFS: free some");
    at_[c] = {end_, block.size()};
    end_ += block.size();
  }
  std::string get(const Cid& c) {
    const auto [at, n] = at_.at(c);
    std::string s(n, '\0');
    file_.seekg(static_cast<std::streamoff>(at));
    file_.read(s.data(), static_cast<std::streamsize>(n));
    if (!file_) fail_input("content from IPFS cannot be read back");
    return s;
  }

 private:
  std::fstream file_;
  uint64_t end_ = 0;
  std::map<Cid, std::pair<uint64_t, size_t>> at_;
};

// The sections of a CAR as they come: a varint length, then the header, then id and block.
class CarReader {
 public:
  template <typename F>
  void take(std::string_view piece, F&& on_block) {
    held_ += piece;
    size_t at = 0;
    for (;;) {
      uint64_t n = 0;
      size_t i = at;
      int shift = 0;
      for (; i < held_.size() && shift < 35; ++i, shift += 7) {
        const unsigned char c = static_cast<unsigned char>(held_[i]);
        n |= static_cast<uint64_t>(c & 0x7f) << shift;
        if (c < 0x80) break;
      }
      if (shift >= 35 || n > kMaxBlock + 100) fail_input("the gateway's answer is no CAR");
      if (i >= held_.size() || held_.size() - i - 1 < n) break;
      std::string_view section(held_.data() + i + 1, n);
      if (header_) {  // DAG-CBOR of version and roots; the blocks speak for themselves
        if (section.find("version") == std::string_view::npos) fail_input("the gateway's answer is no CAR");
        header_ = false;
      } else {
        const Cid c = read_binary_cid(&section);
        on_block(c, section);
      }
      at = i + 1 + n;
    }
    held_.erase(0, at);
  }

 private:
  std::string held_;
  bool header_ = true;
};

class Fetcher {
 public:
  Fetcher(const HttpOptions& options, std::string gateway, const std::string& blocks)
      : http_(options), gateway_(std::move(gateway)), blocks_(blocks) {
    while (gateway_.ends_with('/')) gateway_.pop_back();
    public_url(gateway_, "data.gateway");
  }

  // All blocks below `root` that the gateway puts into one answer. What it lacks, or lost on the way, is fetched later.
  void prefetch(const Cid& root) {
    if (root.codec == Codec::kRaw) return;  // one block
    wanted_ = {root};
    CarReader car;
    HttpRequest q;
    q.url = fmt::format("{}/{}?format=car", gateway_, root.text());
    q.headers = {{"Accept", "application/vnd.ipld.car; version=1; order=dfs; dups=n"}};
    q.max_bytes = uint64_t{1} << 50;
    q.on_data = [&](std::string_view piece) {
      car.take(piece, [&](const Cid& c, std::string_view block) { accept(c, block); });
    };
    try {
      http_.send(q);
    } catch (const Error& e) {
      if (e.code() == Exit::kVerifyFailed || e.code() == Exit::kInterrupted) throw;
    }
  }

  std::string block(const Cid& c) {
    if (!blocks_.has(c)) {
      HttpRequest q;
      q.url = fmt::format("{}/{}?format=raw", gateway_, c.text());
      q.headers = {{"Accept", "application/vnd.ipld.raw"}};
      q.max_bytes = kMaxBlock;
      const HttpResponse r = http_.send(q);
      if (r.status != 200)
        fail_missing("{}: the gateway answered {} for this content; check data.cid, or use another data.gateway", q.url,
                     r.status);
      wanted_.insert(c);
      accept(c, r.body);
    }
    return blocks_.get(c);
  }

  // Writes the file `c` to `path`.
  void write_file(const Cid& c, AtomicFile* out, int depth = 0) {
    if (depth > kMaxDepth) fail_input("{}: is nested deeper than {} blocks", c.text(), kMaxDepth);
    const std::string b = block(c);
    if (c.codec == Codec::kRaw) return out->write(b);
    const UnixFsNode node = parse_unixfs(b, c.text());
    if (node.kind != UnixFsNode::Kind::kFile) fail_input("{}: is a directory inside a file", c.text());
    out->write(node.data);
    for (const auto& link : node.links) write_file(link.cid, out, depth + 1);
  }

  void write_tree(const Cid& c, const std::string& folder, const std::string& path, int depth,
                  std::vector<IpfsFile>* files) {
    if (depth > kMaxDepth) fail_input("{}: its directories are nested too deep", c.text());
    if (c.codec == Codec::kDagPb) {
      const UnixFsNode node = parse_unixfs(block(c), c.text());
      if (node.kind == UnixFsNode::Kind::kDirectory) {
        for (const auto& link : node.links) {
          const std::string& n = link.name;
          const bool bad = n.empty() || n[0] == '.' || n.size() > 255 || !is_valid_utf8(n) ||
                           std::any_of(n.begin(), n.end(), [](unsigned char ch) { return ch < 0x20 || ch == '/'; });
          if (bad) fail_input("{}: an entry of this directory has a name that no data file has", c.text());
          write_tree(link.cid, folder, path.empty() ? n : path + "/" + n, depth + 1, files);
        }
        return;
      }
    }
    const std::string to = folder + "/" + (path.empty() ? "content" : "files/" + path);
    make_folders(fs::path(to).parent_path().string());
    AtomicFile out(to);
    write_file(c, &out);
    out.commit();
    files->push_back({path, to});
  }

  Cid descend(Cid c, std::string_view path) {
    for (std::string_view name : split(path, '/')) {
      if (name.empty()) continue;
      const UnixFsNode node = c.codec == Codec::kDagPb ? parse_unixfs(block(c), c.text()) : UnixFsNode{};
      const auto it = std::find_if(node.links.begin(), node.links.end(), [&](const auto& l) { return l.name == name; });
      if (node.kind != UnixFsNode::Kind::kDirectory || it == node.links.end())
        fail_input("{}: has no entry \"{}\"; check data.cid", c.text(), name);
      c = it->cid;
    }
    return c;
  }

 private:
  // Every block is one that somebody asked for, and is what its id says.
  void accept(const Cid& c, std::string_view b) {
    if (blocks_.has(c)) return;
    if (!wanted_.contains(c))
      fail_verify("{}: the gateway sent block {}, which does not belong here", gateway_, c.text());
    if (!c.holds(b))
      fail_verify("{}: the gateway's bytes are not those of {}: use another data.gateway", gateway_, c.text());
    blocks_.put(c, b);
    if (c.codec != Codec::kDagPb) return;
    for (const auto& link : parse_unixfs(b, c.text()).links) wanted_.insert(link.cid);
  }

  HttpClient http_;
  std::string gateway_;
  Blocks blocks_;
  std::set<Cid> wanted_;
};

}  // namespace

std::vector<IpfsFile> fetch_ipfs(const HttpOptions& options, const std::string& gateway, const std::string& cid,
                                 const std::string& cache_dir) {
  const size_t slash = std::min(cid.find('/'), cid.size());
  const Cid root = parse_cid(std::string_view(cid).substr(0, slash));
  const std::string below = cid.substr(slash);
  MXT_ASSERT(!cache_dir.empty());
  const std::string ipfs = cache_dir + "/ipfs";
  make_folders(ipfs);
  const std::string temp = fmt::format("{}/.{}.{}", ipfs, root.text(), getpid());
  std::error_code ec;
  fs::remove_all(temp, ec);
  make_folders(temp);
  struct Gone {
    const std::string& path;
    ~Gone() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } gone{temp};

  Fetcher f(options, gateway, temp + "/.blocks");
  Cid c = root;
  if (!below.empty()) c = f.descend(root, below);
  // A folder that stands is whole: it appeared by one rename, and its name says what it holds.
  const std::string done = ipfs + "/" + c.text();
  const auto listed = [&] {
    std::vector<IpfsFile> files;
    if (fs::is_regular_file(done + "/content", ec))
      files.push_back({fs::path(below).filename().string(), done + "/content"});
    for (const std::string& n : list_files(done + "/files")) files.push_back({n, done + "/files/" + n});
    return files;
  };
  if (fs::is_directory(done, ec)) return listed();
  std::vector<IpfsFile> files;
  f.prefetch(c);
  f.write_tree(c, temp, "", 0, &files);
  if (files.empty()) fail_input("{}: is an empty directory", c.text());
  fs::remove(temp + "/.blocks", ec);
  make_folders(temp + "/files");
  fs::rename(temp, done, ec);
  if (ec && !fs::is_directory(done)) fail_input("{}: cannot be written: {}", done, ec.message());
  return listed();
}

}  // namespace mxt::net
