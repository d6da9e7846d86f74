// WebP by libwebp.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "base/error.h"
#include "image/formats.h"

namespace mxt::image {
namespace {

std::vector<uint8_t> exif_of(const File& f) {
  const WebPData data{f.data(), f.bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demux(WebPDemux(&data), WebPDemuxDelete);
  std::vector<uint8_t> exif;
  WebPChunkIterator chunk{};
  if (demux && WebPDemuxGetChunk(demux.get(), "EXIF", 1, &chunk)) {
    exif.assign(chunk.chunk.bytes, chunk.chunk.bytes + chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  if (exif.size() > 6 && std::equal(exif.begin(), exif.begin() + 4, "Exif")) exif.erase(exif.begin(), exif.begin() + 6);
  return exif;
}

}  // namespace

Decoded decode_webp(const File& f) {
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(f.data(), f.bytes.size(), &features) != VP8_STATUS_OK)
    fail_input("{}: is truncated or damaged: libwebp cannot read its header", f.name);
  check_size(f, features.width, features.height);
  if (features.has_animation) fail_input("{}: is animated: give its frames as pictures of their own", f.name);
  Picture p{features.height, features.width, {}};
  p.rgb.resize(static_cast<size_t>(3 * p.width * p.height));
  if (!WebPDecodeRGBInto(f.data(), f.bytes.size(), p.rgb.data(), p.rgb.size(), static_cast<int>(3 * p.width)))
    fail_input("{}: is truncated or damaged", f.name);
  return {std::move(p), exif_of(f)};
}

}  // namespace mxt::image
