#include "publish/ipfs/car.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mxt::publish {
namespace {

std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  return out += static_cast<char>(v);
}

}  // namespace

// dag-cbor {"roots": [42(h'00' + cid)], "version": 1}, keys in that order.
std::string car_header(const net::Cid& root, int version) {
  const std::string cid = root.binary(version);
  std::string h = "\xa2\x65roots\x81\xd8\x2a\x58";
  h += static_cast<char>(cid.size() + 1);
  h += '\0';
  h += cid;
  h += "\x67version\x01";
  return varint(h.size()) + h;
}

void check_car_place(const std::string& path, const std::string& car) {
  std::error_code ec;
  if (fs::equivalent(path, car, ec)) fail_input("--car {}: is what it would hold: write it elsewhere", car);
  const std::string root = fs::weakly_canonical(path).string() + "/", place = fs::weakly_canonical(car).string();
  if (fs::is_directory(path) && place.starts_with(root))
    fail_input("--car {}: lies in {}, whose content it would change: write it elsewhere", car, path);
}

CarWriter::CarWriter(const std::string& path, int root_version)
    : path_(path),
      part_path_(  // as remove_unfinished() knows it
          (fs::path(path).parent_path() / fmt::format(".{}.{}.0.tmp", fs::path(path).filename().string(), getpid()))
              .string()),
      part_(part_path_),
      version_(root_version) {
  if (fs::is_directory(path_)) fail_input("{}: is a folder: name a file for the CAR", path_);
  part_.write(car_header({net::Codec::kDagPb, std::string(32, '\0')}, version_));
}

CarWriter::~CarWriter() {
  std::error_code ec;
  fs::remove(part_path_, ec);
}

void CarWriter::add(const net::Cid& cid, std::string_view block) {
  if (!there_.insert(cid).second) return;
  const std::string id = cid.binary(cid.codec == net::Codec::kRaw ? 1 : version_);
  part_.write(varint(id.size() + block.size()));
  part_.write(id);
  part_.write(block);
}

void CarWriter::commit(const net::Cid& root) {
  part_.commit();
  const std::string header = car_header(root, version_);
  const int fd = open(part_path_.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written =
      fd >= 0 && pwrite(fd, header.data(), header.size(), 0) == static_cast<ssize_t>(header.size()) && fsync(fd) == 0;
  if (fd >= 0) close(fd);
  std::error_code ec;
  if (written) fs::rename(part_path_, path_, ec);
  if (!written || ec) fail_input("{}: cannot be written: {}", path_, ec ? ec.message() : std::strerror(errno));
}

}  // namespace mxt::publish
