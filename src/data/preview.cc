#include "data/preview.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "image/resize.h"

namespace mxt::data {
namespace {

void append_safe(std::string* out, const std::string& bytes) {
  for (char c : replace_invalid_utf8(bytes)) {
    const unsigned char u = static_cast<unsigned char>(c);
    if ((u < 0x20 && c != '\n' && c != '\t') || u == 0x7f)
      *out += fmt::format("\\x{:02x}", u);
    else
      *out += c;
  }
}

// A picture as the model sees it, small enough for a page.
std::string shown_small(const RowPicture& p, const image::Processor& how) {
  constexpr int64_t kSide = 320;
  image::Picture picture{p.rows * how.patch, p.columns * how.patch, {}};
  const auto bytes = static_cast<size_t>(3 * picture.height * picture.width);
  if (p.rgb.size() < bytes) return "";
  picture.rgb.assign(p.rgb.begin(), p.rgb.begin() + static_cast<ptrdiff_t>(bytes));
  if (const int64_t longer = std::max(picture.height, picture.width); longer > kSide)
    picture = image::resize_bicubic(picture, std::max<int64_t>(1, picture.height * kSide / longer),
                                    std::max<int64_t>(1, picture.width * kSide / longer));
  return image::data_uri(picture);
}

struct Placed {
  size_t first, tokens;
  PreviewPiece piece;
};

// The pictures of the tokens [begin, end) of a row.
std::vector<Placed> pictures_of(const Row& row, size_t begin, size_t end, const SampleEncoder& coder) {
  std::vector<Placed> out;
  if (coder.pictures() == nullptr) return out;
  const image::Processor& how = coder.pictures()->processor;
  for (const RowPicture& p : row.pictures) {
    const auto first = static_cast<size_t>(p.first),
               n = static_cast<size_t>(image::tokens_of(how, {p.rows, p.columns}));
    if (first < begin || first + n > end || n == 0) continue;
    out.push_back({first,
                   n,
                   {fmt::format("[picture: {} x {} pixels, {} tokens]", p.columns * how.patch, p.rows * how.patch, n),
                    false, shown_small(p, how)}});
  }
  return out;
}

// Tokens [begin, end) of a row, a document.
std::vector<PreviewPiece> pieces_of(const Row& row, size_t begin, size_t end, const SampleEncoder& coder) {
  std::vector<PreviewPiece> out;
  std::vector<Placed> pictures = pictures_of(row, begin, end, coder);
  auto picture = pictures.begin();
  for (size_t t = begin; t < end;) {
    if (picture != pictures.end() && t == picture->first) {
      t += picture->tokens;
      out.push_back(std::move(picture++->piece));
      continue;
    }
    // The label of the first token is never used: nothing predicts it.
    const auto trained = [&](size_t i) { return i > begin && row.labels[i] != kNoTarget; };
    const bool on = trained(t);
    const size_t until = picture == pictures.end() ? end : picture->first;
    std::string bytes;  // a run at once, so that characters of several tokens stay whole
    for (; t < until && trained(t) == on; ++t) bytes += coder.token_bytes(row.ids[t]);
    out.push_back({{}, on});
    append_safe(&out.back().text, bytes);
  }
  return out;
}

// Characters that mean something to HTML, and controls, as what is seen: nothing of a data set reaches the page as
// markup.
void append_html(std::string* out, const std::string& bytes) {
  for (char c : replace_invalid_utf8(bytes)) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (c == '&')
      *out += "&amp;";
    else if (c == '<')
      *out += "&lt;";
    else if (c == '>')
      *out += "&gt;";
    else if (c == '"')
      *out += "&quot;";
    else if (c == '\'')
      *out += "&#39;";
    else if ((u < 0x20 && c != '\n' && c != '\t') || u == 0x7f)
      *out += fmt::format("\\x{:02x}", u);
    else
      *out += c;
  }
}

constexpr const char* kPageHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>What is trained</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;background:#fff;color:#222}
h2{font-size:1rem;margin:1.5rem 0 .5rem;font-weight:600} pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #ddd;border-radius:6px;padding:.8rem;margin:0;unicode-bidi:isolate}
span{box-shadow:-1px 0 0 #0001} .t{background:#c9f0d2} .u{color:#666}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd} pre{border-color:#444} .t{background:#1d4d2b} .u{color:#999}}
</style></head><body>
<h1>What is trained</h1><p><span class="t">Green</span>: the loss is taken here. <span class="u">Grey</span>: context only.</p>
)";

}  // namespace

std::string preview_page(const Dataset& data, int64_t first, int64_t count, const SampleEncoder& coder) {
  if (first < 0 || first >= data.rows())
    fail_input("row {} is not there: the data set has rows 0 to {}", first, data.rows() - 1);
  std::string out = kPageHead;
  for (int64_t i = first; i < std::min(data.rows(), first + count); ++i) {
    const Row row = data.row(i);
    for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
      const size_t b = static_cast<size_t>(row.cu_seqlens[d]), e = static_cast<size_t>(row.cu_seqlens[d + 1]);
      size_t trained = 0;
      for (size_t t = b + 1; t < e; ++t) trained += row.labels[t] != kNoTarget;
      out += fmt::format("<h2>row {}, document {} of {}: {} tokens, {} trained</h2>\n<pre>", i, d + 1,
                         row.cu_seqlens.size() - 1, e - b, trained);
      const std::vector<Placed> pictures = pictures_of(row, b, e, coder);
      auto picture = pictures.begin();
      for (size_t t = b; t < e;) {
        if (picture != pictures.end() && t == picture->first) {
          out += fmt::format("<img alt=\"{}\" src=\"{}\">", picture->piece.text, picture->piece.picture);
          t += picture++->tokens;
          continue;
        }
        const bool on = t > b && row.labels[t] != kNoTarget;
        std::string bytes;  // tokens together until their characters are whole
        do bytes += coder.token_bytes(row.ids[t++]);
        while (t < e && !is_valid_utf8(bytes) && bytes.size() < 16 && (row.labels[t] != kNoTarget) == on);
        out += on ? "<span class=\"t\">" : "<span class=\"u\">";
        append_html(&out, bytes);
        out += "</span>";
      }
      out += "</pre>\n";
    }
  }
  return out + "</body></html>\n";
}

std::vector<PreviewDocument> preview_documents(const Dataset& data, int64_t i, const SampleEncoder& coder) {
  if (i < 0 || i >= data.rows()) fail_input("row {} is not there: the data set has rows 0 to {}", i, data.rows() - 1);
  const Row row = data.row(i);
  std::vector<PreviewDocument> out;
  for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
    const size_t b = static_cast<size_t>(row.cu_seqlens[d]), n = static_cast<size_t>(row.cu_seqlens[d + 1]) - b;
    const auto labels = row.labels.subspan(b, n);
    PreviewDocument document;
    document.tokens = static_cast<int64_t>(n);
    for (size_t t = 1; t < n; ++t) document.trained += labels[t] != kNoTarget;
    document.pieces = pieces_of(row, b, b + n, coder);
    out.push_back(std::move(document));
  }
  return out;
}

std::string preview_row(const Dataset& data, int64_t i, const SampleEncoder& coder, Marks marks) {
  const char* open = marks == Marks::kAnsi ? "\x1b[32m" : "⟦";
  const char* close = marks == Marks::kAnsi ? "\x1b[0m" : "⟧";
  const auto documents = preview_documents(data, i, coder);
  std::string out;
  for (size_t d = 0; d < documents.size(); ++d) {
    out += fmt::format("--- row {}, document {} of {}: {} tokens, {} trained\n", i, d + 1, documents.size(),
                       documents[d].tokens, documents[d].trained);
    for (const PreviewPiece& p : documents[d].pieces) out += p.trained ? open + p.text + close : p.text;
    if (out.back() != '\n') out += '\n';
  }
  return out;
}

}  // namespace mxt::data
