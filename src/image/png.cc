// PNG by libpng.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "base/base64.h"
#include "base/error.h"
#include "image/formats.h"

namespace mxt::image {
namespace {

struct Session {
  const File& f;
  size_t at = 0;
  char message[200]{};
  bool animated = false;
  png_structp png = nullptr;
  png_infop info = nullptr;
};

[[noreturn]] void fail(png_structp png, png_const_charp text) {
  auto& s = *static_cast<Session*>(png_get_error_ptr(png));
  std::snprintf(s.message, sizeof s.message, "%s", text);
  png_longjmp(png, 1);
}

void ignore(png_structp, png_const_charp) {}

void take(png_structp png, png_bytep to, size_t n) {
  auto& s = *static_cast<Session*>(png_get_io_ptr(png));
  if (n > s.f.bytes.size() - s.at) png_error(png, "it ends too early");
  std::memcpy(to, s.f.bytes.data() + s.at, n);
  s.at += n;
}

// Chunks that libpng does not know: acTL announces an animation.
int chunk(png_structp png, png_unknown_chunkp c) {
  auto& s = *static_cast<Session*>(png_get_user_chunk_ptr(png));
  if (std::memcmp(c->name, "acTL", 4) == 0) s.animated = true;
  return 1;
}

// No object with a destructor lives in these: longjmp ends them. False: s.message says why.
bool read_header(Session& s) {
  if (setjmp(png_jmpbuf(s.png))) return false;
  png_set_user_limits(s.png, 0x7fffffff, 0x7fffffff);  // check_size() has the limits
  png_set_chunk_malloc_max(s.png, 8 << 20);
  png_set_chunk_cache_max(s.png, 128);
  png_set_read_user_chunk_fn(s.png, &s, chunk);
  png_set_read_fn(s.png, &s, take);
  png_read_info(s.png, s.info);
  return true;
}

bool read_rows(Session& s, png_bytepp rows) {
  if (setjmp(png_jmpbuf(s.png))) return false;
  png_set_expand(s.png);
  png_set_gray_to_rgb(s.png);
  png_set_strip_alpha(s.png);
  png_set_interlace_handling(s.png);
  png_read_update_info(s.png, s.info);
  if (png_get_rowbytes(s.png, s.info) != size_t{3} * png_get_image_width(s.png, s.info))
    png_error(s.png, "rows of an unknown kind");
  png_read_image(s.png, rows);
  png_read_end(s.png, s.info);
  return true;
}

}  // namespace

Decoded decode_png(const File& f) {
  Session s{f};
  struct Release {
    Session& s;
    ~Release() { png_destroy_read_struct(&s.png, &s.info, nullptr); }
  } release{s};
  s.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, fail, ignore);
  s.info = s.png ? png_create_info_struct(s.png) : nullptr;
  if (s.info == nullptr) fail_input("{}: libpng could not begin", f.name);
  if (!read_header(s)) fail_input("{}: is damaged: {}", f.name, s.message);
  Picture p;
  p.width = png_get_image_width(s.png, s.info);
  p.height = png_get_image_height(s.png, s.info);
  check_size(f, p.width, p.height);
  if (s.animated) fail_input("{}: is animated: give its frames as pictures of their own", f.name);
  if (png_get_bit_depth(s.png, s.info) == 16) fail_input("{}: has 16 bits a channel: convert it to 8", f.name);
  p.rgb.resize(static_cast<size_t>(3 * p.width * p.height));
  std::vector<png_bytep> rows(static_cast<size_t>(p.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = p.rgb.data() + y * static_cast<size_t>(3 * p.width);
  if (!read_rows(s, rows.data())) fail_input("{}: is truncated or damaged: {}", f.name, s.message);
  Decoded d{std::move(p), {}};
  png_bytep exif = nullptr;
  png_uint_32 n = 0;
  if (png_get_eXIf_1(s.png, s.info, &n, &exif)) d.exif.assign(exif, exif + n);
  return d;
}

std::string data_uri(const Picture& p) {
  png_image head{};
  head.version = PNG_IMAGE_VERSION;
  head.width = static_cast<png_uint_32>(p.width), head.height = static_cast<png_uint_32>(p.height);
  head.format = PNG_FORMAT_RGB;
  png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(head);
  std::string file(n, 0);
  if (!png_image_write_to_memory(&head, file.data(), &n, 0, p.rgb.data(), 0, nullptr))
    fail_input("a picture of {} x {} pixels: no PNG of it: {}", p.width, p.height, head.message);
  file.resize(n);
  return "data:image/png;base64," + to_base64(file);
}

}  // namespace mxt::image
