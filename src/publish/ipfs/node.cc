#include "publish/ipfs/node.h"

#include "base/hash.h"

namespace mxt::publish {
namespace {

enum Type : uint64_t { kDirectory = 1, kFile = 2, kSymlink = 4, kShard = 5 };
constexpr uint64_t kMurmur3 = 0x22, kFanout = 256;

void put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}
void put_number(std::string& out, int field, uint64_t v) {
  put_varint(out, static_cast<uint64_t>(field) << 3);
  put_varint(out, v);
}
void put_bytes(std::string& out, int field, std::string_view v) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, v.size());
  out += v;
}

}  // namespace

std::string file_leaf_data(std::string_view content) {
  std::string d;
  put_number(d, 1, kFile);
  if (!content.empty()) put_bytes(d, 2, content);
  put_number(d, 3, content.size());
  return d;
}

std::string file_node_data(const std::vector<DagLink>& children) {
  std::string d;
  uint64_t bytes = 0;
  for (const DagLink& c : children) bytes += c.file_bytes;
  put_number(d, 1, kFile);
  put_number(d, 3, bytes);
  for (const DagLink& c : children) put_number(d, 4, c.file_bytes);
  return d;
}

std::string folder_data() {
  std::string d;
  put_number(d, 1, kDirectory);
  return d;
}

std::string shard_data(std::string_view bitfield) {
  std::string d;
  put_number(d, 1, kShard);
  put_bytes(d, 2, bitfield);
  put_number(d, 5, kMurmur3);
  put_number(d, 6, kFanout);
  return d;
}

std::string link_data(std::string_view target) {
  std::string d;
  put_number(d, 1, kSymlink);
  put_bytes(d, 2, target);
  return d;
}

std::string encode_node(const std::vector<DagLink>& links, std::string_view data, int cid_version) {
  std::string block;
  for (const DagLink& l : links) {
    std::string link;
    put_bytes(link, 1, l.cid.binary(cid_version));
    put_bytes(link, 2, l.name);
    put_number(link, 3, l.dag_bytes);
    put_bytes(block, 2, link);
  }
  put_bytes(block, 1, data);
  return block;
}

net::Cid cid_of(net::Codec codec, std::string_view block) {
  Sha256 h;
  h.update(block);
  const Digest d = h.digest();
  return {codec, std::string(reinterpret_cast<const char*>(d.data()), d.size())};
}

DagLink make_node(const std::vector<DagLink>& links, std::string_view data, const UnixFsProfile& profile,
                  const BlockSink& sink) {
  const std::string block = encode_node(links, data, profile.cid_version);
  DagLink out{cid_of(net::Codec::kDagPb, block), "", 0, block.size()};
  for (const DagLink& l : links) {
    out.file_bytes += l.file_bytes;
    out.dag_bytes += l.dag_bytes;
  }
  if (sink) sink(out.cid, block);
  return out;
}

}  // namespace mxt::publish
