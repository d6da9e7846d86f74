#include "data/preview.h"

#include "base/error.h"
#include "base/text.h"

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

std::vector<PreviewPiece> pieces_of(std::span<const int32_t> ids, std::span<const int32_t> labels, const Coder& coder) {
  std::vector<PreviewPiece> out;
  for (size_t t = 0; t < ids.size();) {
    // The label of the first token is never used: nothing predicts it.
    const auto trained = [&](size_t i) { return i > 0 && labels[i] != kNoTarget; };
    const bool on = trained(t);
    std::string bytes;  // a run at once, so that characters of several tokens stay whole
    for (; t < ids.size() && trained(t) == on; ++t) bytes += coder.token_bytes(ids[t]);
    out.push_back({{}, on});
    append_safe(&out.back().text, bytes);
  }
  return out;
}

}  // namespace

std::vector<PreviewDocument> preview_documents(const Dataset& data, int64_t i, const Coder& coder) {
  if (i < 0 || i >= data.rows()) fail_input("row {} is not there: the data set has rows 0 to {}", i, data.rows() - 1);
  const Row row = data.row(i);
  std::vector<PreviewDocument> out;
  for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
    const size_t b = static_cast<size_t>(row.cu_seqlens[d]), n = static_cast<size_t>(row.cu_seqlens[d + 1]) - b;
    const auto labels = row.labels.subspan(b, n);
    PreviewDocument document;
    document.tokens = static_cast<int64_t>(n);
    for (size_t t = 1; t < n; ++t) document.trained += labels[t] != kNoTarget;
    document.pieces = pieces_of(row.ids.subspan(b, n), labels, coder);
    out.push_back(std::move(document));
  }
  return out;
}

std::string preview_row(const Dataset& data, int64_t i, const Coder& coder, Marks marks) {
  const char* open = marks == Marks::kAnsi ? "\x1b[32m" : "⟦";
  const char* close = marks == Marks::kAnsi ? "\x1b[0m" : "⟧";
  const auto documents = preview_documents(data, i, coder);
  std::string out;
  for (size_t d = 0; d < documents.size(); ++d) {
    out += fmt::format("--- row {}, document {} of {}: {} tokens, {} trained\n", i, d + 1, documents.size(), documents[d].tokens, documents[d].trained);
    for (const PreviewPiece& p : documents[d].pieces) out += p.trained ? open + p.text + close : p.text;
    if (out.back() != '\n') out += '\n';
  }
  return out;
}

}  // namespace mxt::data
