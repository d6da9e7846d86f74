#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "model_files.h"
#include "publish/ipfs/car.h"
#include "publish/ipfs/import.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct CidOptions {
  std::string path, profile{publish::kDefaultProfile}, car;
  bool json = false, hidden = false;
  int threads = 0;
};

void print_cid(const CidOptions& o) {
  const publish::UnixFsProfile& profile = publish::unixfs_profile(o.profile);
  const publish::TreeListing listing = publish::list_tree(o.path, o.hidden);
  std::optional<publish::CarWriter> car;
  if (!o.car.empty()) {
    publish::check_car_place(o.path, o.car);
    car.emplace(o.car, profile.cid_version);
  }
  publish::BlockSink sink;
  if (car) sink = [&](const net::Cid& cid, std::string_view block) { car->add(cid, block); };
  const publish::DagRoot root = publish::import_tree(listing.entries, {&profile}, sink, &g_stop).front();
  if (car) car->commit(root.cid);
  if (listing.hidden)
    log::info("{}: {} hidden entr{} left out, as `ipfs add -r` does; --hidden takes {}", o.path, listing.hidden,
              listing.hidden == 1 ? "y" : "ies", listing.hidden == 1 ? "it" : "them");
  if (!o.json) {
    std::printf("%s\n", root.text().c_str());
    return;
  }
  OrderedJson j = {{"path", o.path},           {"profile", profile.name},     {"cid", root.text()},
                   {"bytes", root.file_bytes}, {"dag_bytes", root.dag_bytes}, {"hidden_left_out", listing.hidden}};
  if (car) j["car"] = {{"file", o.car}, {"bytes", car->size()}};
  std::printf("%s\n", j.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
}

}  // namespace

void add_cid(CLI::App& app) {
  auto* c = app.add_subcommand("cid",
                               "the IPFS content id of a file or folder, computed here\nexample: mindxtrain cid "
                               "out/run1/checkpoint --car checkpoint.car");
  auto o = std::make_shared<CidOptions>();
  c->add_option("path", o->path, "file or folder")->required();
  c->add_option("--profile", o->profile,
                "how it is cut and encoded: kubo-v1 (what `ipfs add --cid-version=1` gives), unixfs-v1-2025, "
                "unixfs-v0-2015 (what `ipfs add` gives)")
      ->capture_default_str();
  c->add_option("--car", o->car, "write its blocks there, as CAR v1");
  c->add_flag("--hidden", o->hidden, "take entries whose names begin with a dot, too");
  c->add_flag("--json", o->json, "machine-readable answer");
  c->add_option("--threads", o->threads, "threads (default: OMP_NUM_THREADS, else all cores)");
  c->callback([o] {
    set_threads(o->threads);
    print_cid(*o);
  });
}

}  // namespace mxt::app
