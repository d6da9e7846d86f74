// Folders of bitsandbytes as a user meets them (tools/golden/qlora.py).
#include <cmath>
#include <cstring>

#include "e2e/cli.h"
#include "folders.h"
#include "formats/safetensors.h"

namespace mxt {
namespace {

std::string golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/qlora/" + name; }

TEST(CodedFolder, ScoresAsTransformers) {
  cli::Folder f("qlora_score");
  const auto documents = cli::lines(cli::golden("llama_mqa") + "/rows.jsonl");
  std::string rows;
  for (size_t i = 0; i < 3; ++i) rows += Json{{"ids", documents[i]["input_ids"]}}.dump() + "\n";
  write_file_atomic(f / "rows.jsonl", rows);
  const auto expected = formats::Safetensors::open(golden("expected.safetensors"));
  for (const std::string folder : {"folder", "folder_plain"}) {
    const auto r = cli::run("score --model " + golden(folder) + " --dtype float32 --input " + (f / "rows.jsonl") +
                            " --output " + (f / "out.jsonl"));
    ASSERT_EQ(r.code, 0) << r.out;
    const auto got = cli::lines(f / "out.jsonl");
    const auto bytes = expected.bytes(expected.at(folder));
    const auto vocab = static_cast<size_t>(expected.at(folder).shape[1]);
    std::vector<float> logits(bytes.size() / 4);
    std::memcpy(logits.data(), bytes.data(), bytes.size());
    size_t row = 0;
    for (size_t d = 0; d < 3; ++d) {
      const auto& ids = documents[d]["input_ids"];
      for (size_t t = 0; t < ids.size(); ++t, ++row) {
        if (t + 1 == ids.size()) continue;
        double sum = 0;
        for (size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[row * vocab + v]));
        const double want = static_cast<double>(logits[row * vocab + ids[t + 1].get<size_t>()]) - std::log(sum);
        EXPECT_NEAR(got[d]["logprobs"][t + 1].get<double>(), want, 1e-4)
            << folder << " document " << d << " token " << t;
      }
    }
  }
}

}  // namespace
}  // namespace mxt
