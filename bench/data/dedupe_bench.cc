// Times deduplication of a JSONL file of {"text": …} rows, and writes what it decided.
//   dedupe_bench FILE [--threshold T] [--permutations P] [--ngram N] [--characters] [--threads N] [--stays OUT.u32]
// Prints one JSON object: rows, kept, seconds from the file to kept rows, and of signatures alone (texts in memory →
// matrix of signatures, shingles made on the way).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "base/log.h"
#include "base/threads.h"
#include "data/curate.h"
#include "data/dedupe/copies.h"
#include "data/settings.h"

namespace {

using namespace mxt;
using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// Best of three.
double time_signatures(const std::vector<std::string>& texts, const config::MinHash& m) {
  const data::MinHash hash(static_cast<int>(m.permutations));
  const size_t p = static_cast<size_t>(m.permutations);
  std::vector<uint32_t> matrix(texts.size() * p);
  double best = 1e9;
  for (int k = 0; k < 3; ++k) {
    const auto t = Clock::now();
    parallel_for(0, static_cast<int64_t>(texts.size()), 4096, [&](int64_t b, int64_t e) {
      data::Shingler shingler(m.shingles, static_cast<int>(m.ngram));
      std::vector<uint32_t> shingles;
      for (int64_t i = b; i < e; ++i) {
        shingles.clear();
        shingler.append(texts[static_cast<size_t>(i)], &shingles);
        hash.signature(shingles, matrix.data() + static_cast<size_t>(i) * p);
      }
    });
    best = std::min(best, since(t));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) try {
  config::Data d;
  d.dedupe.minhash.emplace();
  config::MinHash& m = *d.dedupe.minhash;
  m.threshold = 0.8;
  std::string file, out;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--characters") {
      m.shingles = config::ShingleUnit::kCharacters;
    } else if (!a.starts_with("--")) {
      file = a;
    } else {
      const char* v = ++i < argc ? argv[i] : "";
      if (a == "--threshold")
        m.threshold = std::atof(v);
      else if (a == "--permutations")
        m.permutations = std::atoi(v);
      else if (a == "--ngram")
        m.ngram = std::atoi(v);
      else if (a == "--threads")
        set_num_threads(std::atoi(v));
      else if (a == "--stays")
        out = v;
      else
        return std::fprintf(stderr, "unknown option %s\n", a.c_str()), 1;
    }
  }
  data::RowSource source;
  source.files = data::find_source_files(file, "train");

  const auto t = Clock::now();
  data::Curation c = data::curate(source, d, std::filesystem::temp_directory_path().string());
  const double decided = since(t);
  std::vector<std::string> texts;
  std::vector<uint32_t> stays;
  {
    const auto rows = c.stay(source);
    data::Record r;
    while (rows->next(&r)) stays.push_back(static_cast<uint32_t>(r.line - 1));
  }
  const double whole = since(t);
  if (!out.empty())
    write_file_atomic(out, {reinterpret_cast<const char*>(stays.data()), stays.size() * sizeof(uint32_t)});

  const auto rows = source.open();
  data::Record r;
  data::RowText text;
  std::optional<data::Layout> layout;
  while (rows->next(&r)) {
    if (!layout) layout = data::find_layout(r, {});
    data::read_row_text(r, *layout, &text);
    texts.push_back(text.text);
  }
  const double signatures = time_signatures(texts, m);
  std::printf(
      "{\"rows\": %zu, \"kept\": %zu, \"threads\": %d, \"decided_seconds\": %.3f, \"seconds\": %.3f, "
      "\"rows_per_second\": %.0f, \"signature_seconds\": %.3f, \"signatures_per_second\": %.0f}\n",
      texts.size(), stays.size(), num_threads(), decided, whole, static_cast<double>(texts.size()) / whole, signatures,
      static_cast<double>(texts.size()) / signatures);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
