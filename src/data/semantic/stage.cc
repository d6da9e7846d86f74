#include "data/semantic/stage.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/semantic/semdedup.h"
#include "data/settings.h"
#include "data/shape/row_text.h"

namespace mxt::data {
namespace {

struct Texts {
  std::vector<uint32_t> rows;
  std::vector<std::string> texts;
  std::vector<uint64_t> keys;  // of text and context
};

uint64_t key_of(const RowText& t) {
  Blake3 h;
  const uint64_t n = t.text.size();
  h.update(&n, sizeof n);
  h.update(t.text);
  h.update(t.context);
  const Digest d = h.digest();
  uint64_t key;
  std::memcpy(&key, d.data(), sizeof key);
  return key;
}

// The texts of the rows that stay, some at a time.
void read_texts(const RowSource& source, const config::Data& data, const std::vector<bool>& stays, const char* what,
                const std::atomic<bool>* cancel, const std::function<void(const Texts&)>& use) {
  constexpr size_t kRows = 4096, kBytes = size_t{8} << 20;
  const auto rows = source.open();
  log::Progress progress(std::string("data: ") + what, 1);
  std::optional<Layout> layout;
  RowText text;
  Record record;
  Texts batch;
  size_t bytes = 0, done = 0;
  const auto flush = [&] {
    if (cancel && *cancel)
      throw Error(
          Exit::kInterrupted,
          fmt::format("interrupted while the rows' {} were computed; the same command begins with them again", what));
    if (!batch.rows.empty()) use(batch);
    done += batch.rows.size();
    progress.update(rows->done(), fmt::format("{} rows", done));
    batch = {};
    bytes = 0;
  };
  uint32_t row = 0;
  for (; rows->next(&record); ++row) {
    if (row == stays.size()) break;
    if (!layout) layout = find_layout(record, data.columns);
    if (!stays[row]) continue;
    read_row_text(record, *layout, &text);
    bytes += text.text.size();
    batch.rows.push_back(row);
    batch.keys.push_back(key_of(text));
    batch.texts.push_back(text.text);
    if (batch.rows.size() == kRows || bytes >= kBytes) flush();
  }
  flush();
  if (row != stays.size() || rows->next(&record))
    fail_input("{}: other rows than in the first reading; a file has changed, start again", source.text());
}

}  // namespace

void drop_by_models(const RowSource& source, const config::Data& data, const Models& models, const std::string& folder,
                    const std::atomic<bool>* cancel, std::vector<bool>* stays,
                    const std::function<void(const ModelDrop&)>& drop, std::optional<SemanticReport>* report) {
  const auto go = [&](const ModelDrop& d) {
    (*stays)[d.row] = false;
    drop(d);
  };
  if (data.dedupe.semdedup) {
    Embedder& embedder = *models.embedder;
    const auto width = static_cast<size_t>(embedder.width());
    SemDedup dedup(*data.dedupe.semdedup, width, folder);
    std::vector<uint32_t> rows;
    std::vector<float> embeddings;
    read_texts(source, data, *stays, "embeddings", cancel, [&](const Texts& t) {
      embeddings.resize(t.rows.size() * width);
      embedder.embed(t.texts, embeddings.data());
      for (size_t i = 0; i < t.rows.size(); ++i)
        if (!dedup.add(t.keys[i], std::span(embeddings).subspan(i * width, width)))
          fail_input(
              "data.dedupe.semdedup.model: {}: the embedding of row {} of {} is not finite: its weights are damaged",
              data.dedupe.semdedup->model, t.rows[i] + 1, source.text());
      rows.insert(rows.end(), t.rows.begin(), t.rows.end());
    });
    const SemanticCopies copies = dedup.find();
    *report = {static_cast<int64_t>(rows.size()), copies.clusters, copies.largest_cluster, copies.groups,
               copies.largest_group};
    for (size_t i = 0; i < rows.size(); ++i)
      if (copies.stays[i] != i)
        go({rows[i], kSemanticCopy, rows[copies.stays[i]], static_cast<double>(copies.similarity[i])});
  }
  if (data.filter && data.filter->max_perplexity) {
    std::vector<double> perplexities;
    std::vector<uint32_t> unlikely;
    read_texts(source, data, *stays, "perplexities", cancel, [&](const Texts& t) {
      perplexities.resize(t.rows.size());
      models.scorer->perplexity(t.texts, perplexities.data());
      for (size_t i = 0; i < t.rows.size(); ++i)
        if (perplexities[i] > *data.filter->max_perplexity) unlikely.push_back(t.rows[i]);
    });
    for (const uint32_t row : unlikely) go({row, kMaxPerplexity, std::nullopt});
  }
}

}  // namespace mxt::data
