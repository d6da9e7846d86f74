#include "data/pictures.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "tokenizer/chat/input/conversation.h"

namespace mxt::data {
namespace {

std::string nth(size_t i) { return fmt::format("picture {}", i + 1); }

// A source for messages: a data URI's beginning says enough.
std::string shown(const std::string& source) { return source.size() > 80 ? source.substr(0, 60) + "…" : source; }

bool is_address(const std::string& source) { return source.starts_with("http://") || source.starts_with("https://"); }

std::string source_of(const OrderedJson& part, const std::string& where) {
  const std::string type = part["type"].get<std::string>();
  for (const char* key : {"image", "image_url", "url", "path"}) {
    const auto v = part.find(key);
    if (v == part.end() || v->is_null()) continue;
    if (v->is_string()) return v->get<std::string>();
    if (v->is_object())
      for (const char* inner : {"url", "path"})
        if (const auto u = v->find(inner); u != v->end() && u->is_string()) return u->get<std::string>();
    fail_input("{}: a part of type \"{}\": \"{}\" must be a path or a data URI", where, type, key);
  }
  return "";
}

}  // namespace

std::string PictureRules::print() const {
  return fmt::format("{} tokens {} {} {}", processor.print(), pad, start, end);
}

std::string picture_path(const std::string& source, const std::string& beside) {
  if (image::is_data_uri(source) || is_address(source)) return "";
  std::string path = source.starts_with("file://") ? source.substr(7) : source;
  std::error_code ec;
  if (!fs::exists(path, ec) && !beside.empty() && fs::path(path).is_relative())
    path = (fs::path(beside) / path).string();
  return path;
}

SeenPicture see_picture(const PictureRules& rules, const std::string& source, const std::string& beside,
                        const std::string& where) {
  const std::string name = where + ": " + shown(source);
  image::Picture p;
  if (image::is_data_uri(source)) {
    p = image::decode(image::data_uri_bytes(source, where + ": a data URI"), where + ": a data URI");
  } else if (is_address(source)) {
    fail_input("{}: addresses are not fetched: save the picture and give its path", name);
  } else {
    try {
      p = image::read_picture(picture_path(source, beside));
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{}: {}", where, e.what()));
    }
  }
  SeenPicture s;
  s.grid = image::grid_of(rules.processor, p.height, p.width, name);
  s.rgb = image::fit(rules.processor, p, name).rgb;
  return s;
}

std::string PictureStore::path(std::string_view digest) const {
  return fmt::format("{}/{}/{}", folder_, digest.substr(0, 2), digest);
}

void PictureStore::put(const SeenPicture& picture, char* digest) const {
  const std::string_view bytes(reinterpret_cast<const char*>(picture.rgb.data()), picture.rgb.size());
  const std::string name = blake3_hex(bytes);
  MXT_ASSERT(name.size() == 64);
  std::memcpy(digest, name.data(), 64);
  if (has(name)) return;
  fs::create_directories(fs::path(path(name)).parent_path());
  write_file_atomic(path(name), bytes);
}

bool PictureStore::has(std::string_view digest) const {
  std::error_code ec;
  return fs::is_regular_file(path(digest), ec);
}

uint64_t PictureStore::size(std::string_view digest) const { return fs::file_size(path(digest)); }

std::string PictureStore::get(std::string_view digest) const { return read_file(path(digest)); }

std::vector<std::string> take_pictures(OrderedJson& messages, std::vector<std::string> given,
                                       const std::string& where) {
  std::vector<std::string> sources;
  size_t taken = 0;
  for (OrderedJson& m : messages) {
    const auto content = m.is_object() ? m.find("content") : m.end();
    if (!m.is_object() || content == m.end()) continue;
    if (content->is_string() && content->get_ref<const std::string&>().find(kPictureMark) != std::string::npos)
      fail_input("{}: a text holds U+E0F1, which stands for pictures here: take it out", where);
    if (!content->is_array()) continue;
    for (OrderedJson& part : *content) {
      const auto type = part.is_object() ? part.find("type") : part.end();
      if (!part.is_object() || type == part.end() || !type->is_string()) continue;
      const std::string kind = type->get<std::string>();
      if (kind == "text" && part.contains("text") && part["text"].is_string() &&
          part["text"].get_ref<const std::string&>().find(kPictureMark) != std::string::npos)
        fail_input("{}: a text holds U+E0F1, which stands for pictures here: take it out", where);
      if (kind == "video" || kind == "video_url")
        fail_missing("{}: video is not built in: give its frames as pictures", where);
      if (kind != "image" && kind != "image_url" && kind != "input_image") continue;
      std::string source = source_of(part, where);
      if (source.empty()) {
        if (taken == given.size())
          fail_input("{}: a part of type \"{}\" has no picture: give its \"image\", or \"images\" beside the messages",
                     where, kind);
        // llava-instruct-mix and its like say which.
        if (const auto index = part.find("index"); index != part.end() && !index->is_null()) {
          if (*index != taken)
            fail_input("{}: a part of type \"{}\" has the index {}, the next of \"images\" is {}: name them in order",
                       where, kind, index->dump(), taken);
          part.erase(index);
        }
        source = given[taken++];
      }
      sources.push_back(std::move(source));
      part = tokenizer::picture_part(part, kPictureMark);
    }
  }
  if (taken < given.size())
    fail_input("{}: {} pictures in \"images\", parts of type \"image\" for {} of them", where, given.size(), taken);
  return sources;
}

void mark_pictures(OrderedJson& messages, size_t count, const std::string& where) {
  constexpr std::string_view kTag = "<image>";
  size_t found = 0;
  for (OrderedJson& m : messages) {
    const auto content = m.is_object() ? m.find("content") : m.end();
    if (!m.is_object() || content == m.end() || !content->is_string()) continue;
    std::string text = content->get<std::string>();
    if (text.find(kPictureMark) != text.npos)
      fail_input("{}: a text holds U+E0F1, which stands for pictures here: take it out", where);
    for (size_t at; (at = text.find(kTag)) != text.npos; ++found) text.replace(at, kTag.size(), kPictureMark);
    *content = std::move(text);
  }
  if (found != count) fail_input("{}: {} pictures, and <image> {} times in the texts", where, count, found);
}

void spell_pictures(std::string& text, std::vector<tokenizer::Span>& plain, std::vector<tokenizer::Span>* assistant,
                    const PictureRules& rules, size_t pictures, const std::string& where) {
  const std::string picture = rules.start_text + rules.pad_text + rules.end_text;
  const size_t longer = picture.size() - kPictureMark.size();
  std::string out;
  std::vector<size_t> marks, places;  // where they were, and where what they became is
  size_t at = 0;
  for (size_t mark; (mark = text.find(kPictureMark, at)) != text.npos; at = mark + kPictureMark.size()) {
    out.append(text, at, mark - at);
    marks.push_back(mark);
    places.push_back(out.size());
    out += picture;
  }
  out.append(text, at);
  if (marks.size() != pictures)
    fail_input("{}: the chat template shows {} of the {} pictures", where, marks.size(), pictures);
  const auto moved = [&](size_t to) {  // never within a mark
    size_t before = 0;
    while (before < marks.size() && marks[before] < to) ++before;
    return to + before * longer;
  };
  std::vector<tokenizer::Span> rest;
  for (const tokenizer::Span& span : plain) {
    size_t from = moved(span.begin);
    const size_t end = moved(span.end);
    for (const size_t place : places)
      if (place >= from && place < end) {
        if (place > from) rest.push_back({from, place});
        from = place + picture.size();
      }
    if (from < end) rest.push_back({from, end});
  }
  plain = std::move(rest);
  if (assistant)
    for (tokenizer::Span& span : *assistant) span = {moved(span.begin), moved(span.end)};
  text = std::move(out);
}

void expand_pictures(std::vector<int32_t>& ids, std::vector<int32_t>& labels, const PictureRules& rules,
                     std::span<const SeenPicture> pictures, std::vector<int64_t>& first, const std::string& where) {
  std::vector<int32_t> out, out_labels;
  size_t k = 0;
  first.clear();
  for (size_t t = 0; t < ids.size(); ++t) {
    int64_t n = 1;
    if (ids[t] == rules.pad) {
      if (k == pictures.size()) fail_input("{}: more places for pictures than its {} pictures", where, pictures.size());
      first.push_back(static_cast<int64_t>(out.size()));
      n = image::tokens_of(rules.processor, pictures[k++].grid);
    }
    out.insert(out.end(), static_cast<size_t>(n), ids[t]);
    if (!labels.empty()) out_labels.insert(out_labels.end(), static_cast<size_t>(n), labels[t]);
  }
  if (k < pictures.size()) fail_input("{}: {} pictures, places for {} of them", where, pictures.size(), k);
  ids = std::move(out);
  labels = std::move(out_labels);
}

std::vector<int64_t> find_pictures(std::span<const int32_t> ids, const PictureRules& rules,
                                   std::span<const SeenPicture> pictures, const std::string& where) {
  std::vector<int64_t> first;
  const auto n = static_cast<int64_t>(ids.size());
  for (int64_t t = 0; t < n;) {
    if (ids[static_cast<size_t>(t)] != rules.pad) {
      ++t;
      continue;
    }
    int64_t run = 0;
    while (t + run < n && ids[static_cast<size_t>(t + run)] == rules.pad) ++run;
    if (first.size() == pictures.size()) {
      if (pictures.empty())
        fail_input("{}: places of a picture (id {}) and no picture: give it in \"images\"", where, rules.pad);
      fail_input("{}: places for more pictures (id {}) than the {} in \"images\"", where, rules.pad, pictures.size());
    }
    const size_t k = first.size();
    const int64_t wants = image::tokens_of(rules.processor, pictures[k].grid);
    if (run < wants || (run > wants && k + 1 == pictures.size()))
      fail_input("{}: {} makes {} tokens ({} x {} patches), the row has {} places (id {}) for it", where, nth(k), wants,
                 pictures[k].grid.height, pictures[k].grid.width, run, rules.pad);
    first.push_back(t);
    t += wants;
  }
  if (first.size() < pictures.size())
    fail_input("{}: {} has no places (id {}) in the row", where, nth(first.size()), rules.pad);
  return first;
}

}  // namespace mxt::data
