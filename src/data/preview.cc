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

std::string document_text(std::span<const int32_t> ids, std::span<const int32_t> labels, const Coder& coder,
                          Marks marks) {
  const char* open = marks == Marks::kAnsi ? "\x1b[32m" : "⟦";
  const char* close = marks == Marks::kAnsi ? "\x1b[0m" : "⟧";
  std::string out;
  for (size_t t = 0; t < ids.size();) {
    // The label of the first token is never used: nothing predicts it.
    const auto trained = [&](size_t i) { return i > 0 && labels[i] != kNoTarget; };
    const bool on = trained(t);
    std::string bytes;  // a run at once, so that characters of several tokens stay whole
    for (; t < ids.size() && trained(t) == on; ++t) bytes += coder.token_bytes(ids[t]);
    if (on) out += open;
    append_safe(&out, bytes);
    if (on) out += close;
  }
  return out;
}

}  // namespace

std::string preview_row(const Dataset& data, int64_t i, const Coder& coder, Marks marks) {
  if (i < 0 || i >= data.rows()) fail_input("row {} is not there: the data set has rows 0 to {}", i, data.rows() - 1);
  const Row row = data.row(i);
  std::string out;
  for (size_t d = 0; d + 1 < row.cu_seqlens.size(); ++d) {
    const size_t b = static_cast<size_t>(row.cu_seqlens[d]), n = static_cast<size_t>(row.cu_seqlens[d + 1]) - b;
    const auto labels = row.labels.subspan(b, n);
    size_t trained = 0;
    for (size_t t = 1; t < n; ++t) trained += labels[t] != kNoTarget;
    out += fmt::format("--- row {}, document {} of {}: {} tokens, {} trained\n", i, d + 1, row.cu_seqlens.size() - 1, n,
                       trained);
    out += document_text(row.ids.subspan(b, n), labels, coder, marks);
    if (out.back() != '\n') out += '\n';
  }
  return out;
}

}  // namespace mxt::data
