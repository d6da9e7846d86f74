// Pictures of rows: where they are read from, what tokens they become, and where their pixels wait for the shards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "image/processor.h"
#include "tokenizer/span.h"

namespace mxt::data {

// What a model that sees pictures makes of them.
struct PictureRules {
  image::Processor processor;
  int32_t pad = -1, start = -1, end = -1;      // tokens: of each place of a picture, before it, behind it
  std::string pad_text, start_text, end_text;  // the same as a template spells them
  std::string print() const;                   // all of it: what a preparation depends on
};

// A picture as the model will see it.
struct SeenPicture {
  image::Grid grid;
  std::vector<uint8_t> rgb;  // [grid.height·patch, grid.width·patch, 3]
};

// `source`: a path (from the working directory, or where it is not there from `beside`), or a data URI; bytes where a
// table holds them. Errors (kBadInput) begin with `where`: what image::decode() refuses, an address.
SeenPicture see_picture(const PictureRules& rules, const std::string& source, const std::string& beside,
                        const std::string& where);

// The file that a source names, where see_picture() looks for it; "" where it is no path.
std::string picture_path(const std::string& source, const std::string& beside);

// A picture of a document: its run of tokens begins at `first`.
struct DocumentPicture {
  uint32_t first = 0;
  int32_t rows = 0, columns = 0;  // of patches
  char digest[64] = {};           // BLAKE3 of its pixels, by which a PictureStore knows it
};

// Pixels by their digest, in a folder: written once, whoever writes them. Thread-safe.
class PictureStore {
 public:
  explicit PictureStore(std::string folder) : folder_(std::move(folder)) {}
  void put(const SeenPicture& picture, char* digest) const;
  bool has(std::string_view digest) const;
  std::string get(std::string_view digest) const;
  uint64_t size(std::string_view digest) const;  // bytes

 private:
  std::string path(std::string_view digest) const;
  std::string folder_;
};

// In messages: parts {"type": "image", "image": source} and {"type": "image_url", "image_url": {"url": source}}, in the
// order of the text, become kPictureMark; a part without a source takes the next of `given`. Returns the sources.
// Errors (kBadInput) begin with `where`: video, a picture's mark in the text, sources that are left.
inline constexpr std::string_view kPictureMark = "\xee\x83\xb1";  // U+E0F1, of a private area
std::vector<std::string> take_pictures(OrderedJson& messages, std::vector<std::string> given, const std::string& where);

// In texts of messages, LLaVA's way: `count` times <image>, each of which becomes kPictureMark. Errors as above.
void mark_pictures(OrderedJson& messages, size_t count, const std::string& where);

// Rendered text with marks: as `rules` spell a picture of one place, before, at and behind it. Spans of bytes move with
// the text, and what stands for pictures is in none of `plain`. `assistant` may be null. Errors begin with `where`: the
// text has more or fewer marks than `pictures`.
void spell_pictures(std::string& text, std::vector<tokenizer::Span>& plain, std::vector<tokenizer::Span>* assistant,
                    const PictureRules& rules, size_t pictures, const std::string& where);

// Ids in which each picture has one place: as many as it makes tokens. `labels` (may be empty) go with them.
void expand_pictures(std::vector<int32_t>& ids, std::vector<int32_t>& labels, const PictureRules& rules,
                     std::span<const SeenPicture> pictures, std::vector<int64_t>& first, const std::string& where);
// Ids in which they stand expanded: where each begins. Errors (kBadInput) begin with `where`: a picture without its
// places, places without a picture, more or fewer of them than it makes.
std::vector<int64_t> find_pictures(std::span<const int32_t> ids, const PictureRules& rules,
                                   std::span<const SeenPicture> pictures, const std::string& where);

}  // namespace mxt::data
