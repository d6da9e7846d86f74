#include "data/semantic/stage.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/semantic/semdedup.h"
#include "data/shape/row_text.h"
#include "data/source/blocks.h"
#include "data/store/kept.h"

namespace mxt::data {
namespace {

constexpr std::string_view kModelsRevision = "models 1 ";  // changes with what is said of equal rows

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

// What a model says about the rows of a block that stay.
struct SaidOfRow {
  struct Header {
    char magic[8];
    uint64_t rows, stay;
    uint64_t last;
  };
  static constexpr char kMagic[8] = {'m', 'x', 't', 's', 'a', 'y', '0', '1'};
  uint64_t rows = 0;            // of the block, those that went before too
  bool last = false;            // of its stream
  std::vector<uint32_t> which;  // [stay] in the block
  std::vector<uint64_t> keys;   // [stay] of their content
  std::vector<float> values;    // [stay, width]

  void put(const Kept& kept, const std::string& name) const {
    std::vector<Header> h(1);
    std::memcpy(h[0].magic, kMagic, sizeof kMagic);
    h[0].rows = rows, h[0].stay = which.size(), h[0].last = last;
    const std::string_view all[] = {bytes_of(h), bytes_of(which), bytes_of(keys), bytes_of(values)};
    kept.put(name, all);
  }
  // False: it is not there, damaged, or of other rows than `stays` says from row `at` on.
  bool find(const Kept& kept, const std::string& name, size_t width, const std::vector<bool>& stays, size_t at) {
    const std::optional<std::string> bytes = kept.find(name);
    if (!bytes) return false;
    KeptReader in(*bytes);
    std::vector<Header> h;
    if (!in.take(&h, 1) || std::memcmp(h[0].magic, kMagic, sizeof kMagic) != 0 || h[0].rows > stays.size() - at ||
        h[0].stay > h[0].rows || !in.take(&which, h[0].stay) || !in.take(&keys, h[0].stay) ||
        !in.take(&values, h[0].stay * width) || !in.done())
      return false;
    rows = h[0].rows;
    last = h[0].last != 0;
    return which == staying(stays, at, rows);
  }
  static std::vector<uint32_t> staying(const std::vector<bool>& stays, size_t at, size_t rows) {
    std::vector<uint32_t> which;
    for (size_t i = 0; i < rows; ++i)
      if (stays[at + i]) which.push_back(static_cast<uint32_t>(i));
    return which;
  }
};

class ModelPass {
 public:
  using Compute = std::function<void(std::span<const std::string> texts, float* out)>;
  // `what` is for messages; `settings`: all but the rows that the values depend on.
  ModelPass(const char* what, std::string settings, size_t width, const BlockWork* work, Compute compute)
      : what_(what),
        settings_(std::string(kModelsRevision) + settings),
        width_(width),
        work_(work),
        compute_(std::move(compute)) {
    if (work) kept_.emplace(work->folder + "/models");
  }

  // take(first row of the block, what is said of it), in the order of the rows.
  void run(const RowSource& source, const std::vector<bool>& stays,
           const std::function<void(size_t, const SaidOfRow&)>& take) {
    double bytes = 0, before = 0;
    const std::vector<RowStream> streams = source.streams();
    for (const RowStream& s : streams) bytes += static_cast<double>(s.bytes());
    log::Progress progress(fmt::format("data: {}: {}", what_, source.text()), 1);
    size_t at = 0, done = 0;
    for (const RowStream& stream : streams) {
      BlockReader reader(stream);
      SaidOfRow said;
      for (size_t block = 0; block == 0 || !said.last; ++block) {
        const std::string name = kept_ ? block_name(stream, block, settings_, &layouts_) : "";
        if (!kept_ || !said.find(*kept_, name, width_, stays, at)) {
          std::vector<Record> rows;
          reader.read(block, &rows, &said.last);
          if (rows.size() > stays.size() - at) changed(source);
          said.rows = rows.size();
          said.which = SaidOfRow::staying(stays, at, rows.size());
          say(
              stream, rows, reader, &said,
              [&] {
                progress.update(bytes > 0 ? (before + reader.done() * static_cast<double>(stream.bytes())) / bytes : 0,
                                fmt::format("{} rows", done));
              },
              &done);
          if (kept_) said.put(*kept_, name);
        } else {
          done += said.which.size();
        }
        take(at, said);
        at += said.rows;
      }
      before += static_cast<double>(stream.bytes());
    }
    if (at != stays.size()) changed(source);
  }

 private:
  [[noreturn]] static void changed(const RowSource& source) {
    fail_input("{}: other rows than in the first reading; a file has changed, start again", source.text());
  }

  // Some rows at a time, so that memory is bounded and a stop is quick.
  void say(const RowStream& stream, const std::vector<Record>& rows, const BlockReader& reader, SaidOfRow* said,
           const std::function<void()>& report, size_t* done) {
    constexpr size_t kRows = 1024;
    said->keys.clear();
    said->values.resize(said->which.size() * width_);
    if (said->which.empty()) return;
    if (!stream.file) layouts_.offer(*stream.source, reader.first());
    const Layout& layout = layouts_.of(*stream.source);
    std::vector<std::string> texts;
    RowText text;
    for (size_t begin = 0; begin < said->which.size(); begin += kRows) {
      if (work_) work_->check_cancel();
      const size_t end = std::min(said->which.size(), begin + kRows);
      texts.clear();
      for (size_t i = begin; i < end; ++i) {
        read_row_text(rows[said->which[i]], layout, &text);
        said->keys.push_back(key_of(text));
        texts.push_back(text.text);
      }
      compute_(texts, said->values.data() + begin * width_);
      *done += end - begin;
      report();
    }
  }

  const char* what_;
  std::string settings_;
  size_t width_;
  const BlockWork* work_;
  Compute compute_;
  std::optional<Kept> kept_;
  Layouts layouts_;
};

}  // namespace

void drop_by_models(const RowSource& source, const config::Data& data, const Models& models, const std::string& folder,
                    const BlockWork* work, std::vector<bool>* stays, const std::function<void(const ModelDrop&)>& drop,
                    std::optional<SemanticReport>* report) {
  const auto go = [&](const ModelDrop& d) {
    (*stays)[d.row] = false;
    drop(d);
  };
  if (data.dedupe.semdedup) {
    MXT_ASSERT(models.embedder);
    Embedder& embedder = *models.embedder;
    const auto width = static_cast<size_t>(embedder.width());
    SemDedup dedup(*data.dedupe.semdedup, width, folder);
    std::vector<uint32_t> rows;
    ModelPass pass("embeddings", "embeddings " + embedder.digest(), width, work,
                   [&](std::span<const std::string> texts, float* out) { embedder.embed(texts, out); });
    pass.run(source, *stays, [&](size_t first, const SaidOfRow& s) {
      for (size_t i = 0; i < s.which.size(); ++i) {
        rows.push_back(static_cast<uint32_t>(first + s.which[i]));
        if (!dedup.add(s.keys[i], std::span(s.values).subspan(i * width, width)))
          fail_input(
              "data.dedupe.semdedup.model: {}: the embedding of row {} of {} is not finite: its weights are damaged",
              data.dedupe.semdedup->model, rows.back() + 1, source.text());
      }
    });
    const SemanticCopies copies = dedup.find();
    *report = {static_cast<int64_t>(rows.size()), copies.clusters, copies.largest_cluster, copies.groups,
               copies.largest_group};
    for (size_t i = 0; i < rows.size(); ++i)
      if (copies.stays[i] != i)
        go({rows[i], kSemanticCopy, rows[copies.stays[i]], static_cast<double>(copies.similarity[i])});
  }
  if (data.filter && data.filter->max_perplexity) {
    MXT_ASSERT(models.scorer);
    std::vector<uint32_t> unlikely;
    std::vector<double> wide;
    ModelPass pass("perplexities", "perplexity " + models.scorer->digest(), 1, work,
                   [&](std::span<const std::string> texts, float* out) {
                     wide.resize(texts.size());
                     models.scorer->perplexity(texts, wide.data());
                     std::copy(wide.begin(), wide.end(), out);
                   });
    pass.run(source, *stays, [&](size_t first, const SaidOfRow& s) {
      for (size_t i = 0; i < s.which.size(); ++i)
        if (static_cast<double>(s.values[i]) > *data.filter->max_perplexity)
          unlikely.push_back(static_cast<uint32_t>(first + s.which[i]));
    });
    for (const uint32_t row : unlikely) go({row, kMaxPerplexity, std::nullopt});
  }
}

}  // namespace mxt::data
