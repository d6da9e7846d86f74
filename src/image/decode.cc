#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/base64.h"
#include "base/error.h"
#include "image/formats.h"

namespace mxt::image {
namespace {

enum class Kind { kJpeg, kPng, kWebp, kOther };

bool begins(std::string_view s, std::string_view with) { return s.substr(0, with.size()) == with; }

Kind kind_of(std::string_view s) {
  if (begins(s, "\xff\xd8\xff")) return Kind::kJpeg;
  if (begins(s, "\x89PNG\r\n\x1a\n")) return Kind::kPng;
  if (begins(s, "RIFF") && s.size() >= 12 && s.substr(8, 4) == "WEBP") return Kind::kWebp;
  return Kind::kOther;
}

std::string_view name_of(Kind k) {
  return k == Kind::kJpeg ? "a JPEG" : k == Kind::kPng ? "a PNG" : k == Kind::kWebp ? "a WebP" : "another";
}

// What else a file is, for the message.
std::string_view other(std::string_view s) {
  if (begins(s, "GIF8")) return "a GIF";
  if (begins(s, "BM")) return "a BMP";
  if (begins(s, "II*\0") || begins(s, "MM\0*")) return "a TIFF";
  if (s.size() > 12 && s.substr(4, 4) == "ftyp") return "an AVIF, HEIC or video";
  if (begins(s, "%PDF")) return "a PDF";
  const size_t first = s.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first != s.npos && s[first] == '<') return s.substr(0, 4096).find("<svg") != s.npos ? "an SVG" : "an HTML or XML";
  return "";
}

Kind extension_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos || name.size() - dot > 6) return Kind::kOther;
  std::string e(name.substr(dot + 1));
  std::ranges::transform(e, e.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (e == "jpg" || e == "jpeg" || e == "jpe") return Kind::kJpeg;
  return e == "png" ? Kind::kPng : e == "webp" ? Kind::kWebp : Kind::kOther;
}

}  // namespace

void check_size(const File& f, int64_t width, int64_t height) {
  if (width < 1 || height < 1) fail_input("{}: a picture of {} x {} pixels", f.name, width, height);
  if (width > f.limits.side || height > f.limits.side || width > f.limits.pixels / height)
    fail_input("{}: {} x {} pixels are more than a picture may have ({} in all, {} a side): make it smaller", f.name,
               width, height, f.limits.pixels, f.limits.side);
}

Picture decode(std::span<const std::byte> bytes, std::string_view name, const Limits& limits) {
  const File f{bytes, name, limits};
  const std::string_view s(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (s.empty()) fail_input("{}: is empty", name);
  if (s.size() > limits.bytes)
    fail_input("{}: {} bytes are more than a picture's file may have ({})", name, s.size(), limits.bytes);
  const Kind kind = kind_of(s), said = extension_of(name);
  if (kind == Kind::kOther) {
    const std::string_view what = other(s);
    if (what.empty()) fail_input("{}: is no picture that can be read: JPEG, PNG and WebP are", name);
    fail_input("{}: is {} file; JPEG, PNG and WebP pictures are read: convert it", name, what);
  }
  if (said != Kind::kOther && said != kind)
    fail_input("{}: holds {} picture, its name says {}: rename it", name, name_of(kind), name_of(said));
  Decoded d = kind == Kind::kJpeg ? decode_jpeg(f) : kind == Kind::kPng ? decode_png(f) : decode_webp(f);
  orient(d.picture, orientation_of(d.exif));
  return std::move(d.picture);
}

std::vector<std::byte> read_picture_file(const std::string& path, const Limits& limits) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_input("{}: {}", path, std::strerror(errno));
  struct stat st{};
  std::vector<std::byte> bytes;
  const bool regular = ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  if (regular && static_cast<size_t>(st.st_size) <= limits.bytes) {
    bytes.resize(static_cast<size_t>(st.st_size));
    size_t at = 0;
    for (ssize_t n; at < bytes.size() && (n = ::read(fd, bytes.data() + at, bytes.size() - at)) > 0;)
      at += static_cast<size_t>(n);
    bytes.resize(at);
  }
  ::close(fd);
  if (!regular) fail_input("{}: is no file", path);
  if (static_cast<size_t>(st.st_size) > limits.bytes)
    fail_input("{}: {} bytes are more than a picture's file may have ({})", path, st.st_size, limits.bytes);
  return bytes;
}

Picture read_picture(const std::string& path, const Limits& limits) {
  return decode(read_picture_file(path, limits), path, limits);
}

bool is_data_uri(std::string_view text) { return begins(text, "data:"); }

std::vector<std::byte> data_uri_bytes(std::string_view text, std::string_view name, const Limits& limits) {
  const size_t comma = text.find(',');
  const std::string_view head = text.substr(0, std::min(comma, size_t{128}));
  if (comma == text.npos || !begins(head, "data:image/") || !head.ends_with(";base64"))
    fail_input("{}: a picture's data URI is data:image/TYPE;base64,…", name);
  const std::string_view body = text.substr(comma + 1);
  if (body.size() / 4 * 3 > limits.bytes)
    fail_input("{}: more bytes than a picture's file may have ({})", name, limits.bytes);
  const auto decoded = from_base64(body);
  if (!decoded) fail_input("{}: its data URI is no base64", name);
  const auto* p = reinterpret_cast<const std::byte*>(decoded->data());
  return {p, p + decoded->size()};
}

}  // namespace mxt::image
