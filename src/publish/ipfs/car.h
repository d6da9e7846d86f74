// CAR v1 (ipld.io/specs/transport/car/carv1): a root's blocks in one file.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/files.h"
#include "net/ipfs.h"

namespace mxt::publish {

class CarWriter {
 public:
  // The root is known last but stands first; its version says how long it is.
  CarWriter(const std::string& path, int root_version);
  ~CarWriter();
  CarWriter(const CarWriter&) = delete;
  void add(const net::Cid& cid, std::string_view block);  // a block that is there already is left out
  void commit(const net::Cid& root);                      // without it no file appears
  uint64_t size() const { return part_.size(); }

 private:
  std::string path_, part_path_;  // the part gets its header, then its name
  AtomicFile part_;
  int version_;
  std::set<net::Cid> there_;
};

// kBadInput where a CAR in `car` would take the place of what it holds, or lie in it and hold itself.
void check_car_place(const std::string& path, const std::string& car);

std::string car_header(const net::Cid& root, int version);

}  // namespace mxt::publish
