// JPEG by libjpeg-turbo, with its defaults (the accurate integer transform, smooth chroma), as Pillow uses it.
#include <csetjmp>
#include <cstdio>
// jpeglib.h needs cstdio before it.
#include <jerror.h>
#include <jpeglib.h>

#include <cstring>

#include "base/error.h"
#include "image/formats.h"

namespace mxt::image {
namespace {

struct Session {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back{};
  char message[JMSG_LENGTH_MAX]{};
  // A progressive file of a few bytes a scan makes every scan work on the whole picture.
  static constexpr int kMostScans = 256;
};

Session& of(j_common_ptr c) { return *static_cast<Session*>(c->client_data); }

[[noreturn]] void fail(j_common_ptr c) {
  (*c->err->format_message)(c, of(c).message);
  std::longjmp(of(c).back, 1);
}

// A file that ends too early would be filled with grey; damaged data with what they look like. Bytes too many are none
// of the picture's.
void warn(j_common_ptr c, int level) {
  if (level < 0 && c->err->msg_code != JWRN_EXTRANEOUS_DATA) fail(c);
}

void watch(j_common_ptr c) {
  Session& s = of(c);
  if (s.jpeg.input_scan_number <= Session::kMostScans) return;
  std::snprintf(s.message, sizeof s.message, "more than %d scans", Session::kMostScans);
  std::longjmp(s.back, 1);
}

// No object with a destructor lives here: longjmp ends it. False: s.message says why.
bool read_header(Session& s, const File& f) {
  if (setjmp(s.back)) return false;
  jpeg_create_decompress(&s.jpeg);
  jpeg_mem_src(&s.jpeg, f.data(), f.bytes.size());
  jpeg_save_markers(&s.jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&s.jpeg, TRUE);
  return true;
}

bool read_rows(Session& s, uint8_t* rgb) {
  if (setjmp(s.back)) return false;
  s.jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&s.jpeg);
  while (s.jpeg.output_scanline < s.jpeg.output_height) {
    JSAMPROW row = rgb + size_t{3} * s.jpeg.output_scanline * s.jpeg.output_width;
    jpeg_read_scanlines(&s.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&s.jpeg);
  return true;
}

}  // namespace

Decoded decode_jpeg(const File& f) {
  Session s;
  struct Release {
    Session& s;
    ~Release() { jpeg_destroy_decompress(&s.jpeg); }
  } release{s};
  s.jpeg.err = jpeg_std_error(&s.errors);
  s.errors.error_exit = fail;
  s.errors.emit_message = warn;
  s.progress.progress_monitor = watch;
  s.jpeg.client_data = &s;
  if (!read_header(s, f)) fail_input("{}: is damaged: {}", f.name, s.message);
  check_size(f, s.jpeg.image_width, s.jpeg.image_height);
  if (s.jpeg.num_components == 4) fail_input("{}: is a CMYK picture: convert it to RGB", f.name);
  if (s.jpeg.num_components != 1 && s.jpeg.num_components != 3)
    fail_input("{}: has {} colour channels: convert it to RGB", f.name, s.jpeg.num_components);
  Decoded d;
  for (const jpeg_marker_struct* m = s.jpeg.marker_list; m; m = m->next)
    if (m->data_length > 6 && std::memcmp(m->data, "Exif\0\0", 6) == 0 && d.exif.empty())
      d.exif.assign(m->data + 6, m->data + m->data_length);
  d.picture.width = s.jpeg.image_width;
  d.picture.height = s.jpeg.image_height;
  d.picture.rgb.resize(static_cast<size_t>(3 * d.picture.width * d.picture.height));
  s.jpeg.progress = &s.progress;
  if (!read_rows(s, d.picture.rgb.data())) fail_input("{}: is truncated or damaged: {}", f.name, s.message);
  return d;
}

}  // namespace mxt::image
