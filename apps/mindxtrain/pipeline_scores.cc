// What a run says at its end: the scores before and after, for its manifest and for who ran it.
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "pipeline.h"
#include "provenance/receipt.h"

namespace mxt::app {
namespace {

// As a shell reads it back.
std::string shell_word(const std::string& s) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("/._-+=:,@%", c); };
  if (!s.empty() && std::all_of(s.begin(), s.end(), plain)) return s;
  std::string out = "'";
  for (char c : s) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

Pipeline::Score Pipeline::read_score(const std::string& path) const {
  Score s;
  if (!fs::exists(path)) return s;
  const Json j = read_json_file(path);
  if (j.contains("exact_match")) {
    const Json& e = j["exact_match"];
    s.rows = e["rows"];
    s.exact = e["exact"];
    if (e.contains("right")) s.right = e["right"].get<int64_t>();
    if (j.contains("sampled")) {
      const Json& t = j["sampled"];
      s.sampled = t.value(t.contains("right") ? "right" : "exact", 0.0) / t.value("rows", 1.0);
    }
  }
  if (j.contains("reward") && j["reward"]["mean"].is_number()) s.reward = j["reward"]["mean"].get<double>();
  if (j.contains("perplexity")) s.perplexity = j["perplexity"]["value"].get<double>();
  if (j.contains("bits_per_byte")) s.bits_per_byte = j["bits_per_byte"]["value"].get<double>();
  if (j.contains("core_metric")) s.core = j["core_metric"].get<double>();
  if (j.contains("chatcore_metric")) s.chat_core = j["chatcore_metric"].get<double>();
  return s;
}

std::string Pipeline::Score::text() const {
  std::vector<std::string> parts;
  if (rows) parts.push_back(fmt::format("exact match {} of {}", exact, rows));
  if (right) parts.push_back(fmt::format("right number {}", *right));
  if (sampled) parts.push_back(fmt::format("{:.1f} % of samples", 100 * *sampled));
  if (reward) parts.push_back(fmt::format("reward {:.3f}", *reward));
  if (perplexity) parts.push_back(fmt::format("perplexity {:.3f}", *perplexity));
  if (bits_per_byte) parts.push_back(fmt::format("{:.4f} bits per byte", *bits_per_byte));
  if (core) parts.push_back(fmt::format("CORE {:.4f}", *core));
  if (chat_core) parts.push_back(fmt::format("ChatCORE {:.4f}", *chat_core));
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json Pipeline::results() const {
  Json r = Json::object();
  const Score before = read_score(o_.out + "/eval/before.json"), after = read_score(o_.out + "/eval/after.json");
  if (after.rows)
    r["eval"]["exact_match"] = {
        {"before", before.rows ? Json(before.exact) : Json()}, {"after", after.exact}, {"rows", after.rows}};
  if (after.right)
    r["eval"]["right_number"] = {
        {"before", before.right ? Json(*before.right) : Json()}, {"after", *after.right}, {"rows", after.rows}};
  if (after.sampled)
    r["eval"]["sampled"] = {{"before", before.sampled ? Json(*before.sampled) : Json()}, {"after", *after.sampled}};
  if (after.reward)
    r["eval"]["reward"] = {{"before", before.reward ? Json(*before.reward) : Json()}, {"after", *after.reward}};
  if (after.perplexity)
    r["eval"]["perplexity"] = {{"before", before.perplexity ? Json(*before.perplexity) : Json()},
                               {"after", *after.perplexity}};
  if (after.bits_per_byte)
    r["eval"]["bits_per_byte"] = {{"before", before.bits_per_byte ? Json(*before.bits_per_byte) : Json()},
                                  {"after", *after.bits_per_byte}};
  if (after.core) r["eval"]["core_metric"] = *after.core;
  if (after.chat_core) r["eval"]["chatcore_metric"] = *after.chat_core;
  // The harness's scores and standard errors; all else that its files say is covered by their digests.
  for (const char* when : {"before", "after"})
    if (const std::string path = fmt::format("{}/eval/{}/results.json", o_.out, when);
        harness_asked() && fs::exists(path))
      r["eval"]["harness"][when] = read_json_file(path)["results"];
  if (const Json q = quantization_report(); !q.is_null()) r["quantized"] = q;
  return r;
}

void Pipeline::summary() const {
  const Score before = read_score(o_.out + "/eval/before.json"), after = read_score(o_.out + "/eval/after.json");
  std::printf("\n");
  // A model of random weights has no "before".
  if (after.rows)
    std::printf("exact match     %s%lld of %lld after (%.1f %%)\n",
                before.rows ? fmt::format("{} of {} before, ", before.exact, before.rows).c_str() : "",
                static_cast<long long>(after.exact), static_cast<long long>(after.rows),
                100.0 * static_cast<double>(after.exact) / static_cast<double>(after.rows));
  if (after.right)
    std::printf("right number    %s%lld of %lld after\n",
                before.right ? fmt::format("{} of {} before, ", *before.right, before.rows).c_str() : "",
                static_cast<long long>(*after.right), static_cast<long long>(after.rows));
  if (after.sampled)
    std::printf("sampled         %s%.1f %% after\n",
                before.sampled ? fmt::format("{:.1f} % before, ", 100 * *before.sampled).c_str() : "",
                100 * *after.sampled);
  if (after.reward)
    std::printf("reward          %s%.3f after, of the held-out answers\n",
                before.reward ? fmt::format("{:.3f} before, ", *before.reward).c_str() : "", *after.reward);
  if (after.perplexity)
    std::printf("perplexity      %s%.3f after (%s)\n",
                before.perplexity ? fmt::format("{:.3f} before, ", *before.perplexity).c_str() : "", *after.perplexity,
                recipe_.eval->perplexity_path->c_str());
  if (after.bits_per_byte)
    std::printf("bits per byte   %s%.4f after, of the held-out rows\n",
                before.bits_per_byte ? fmt::format("{:.4f} before, ", *before.bits_per_byte).c_str() : "",
                *after.bits_per_byte);
  if (after.core) std::printf("CORE            %.4f\n", *after.core);
  if (after.chat_core) std::printf("ChatCORE        %.4f\n", *after.chat_core);
  if (trained_now_) {
    std::printf(
        "training        loss %.4f to %.4f in %lld steps, %lld tokens, %.0f tok/s, %.3f TFLOP/s of model work, %.0f "
        "s\n",
        result_.first_loss, result_.last_loss, static_cast<long long>(result_.done),
        static_cast<long long>(result_.tokens), result_.tok_s, result_.tflops, result_.seconds);
    if (result_.best_eval >= 0) std::printf("held out        loss %.4f at best\n", result_.best_eval);
  }
  if (const Json q = quantization_report(); !q.is_null()) {
    const Json& h = q["held_out"];
    std::printf("quantized       %s, %.1f MiB%s: %s/quantized\n", q["scheme"].get<std::string>().c_str(),
                q["size"]["bytes"].get<double>() / (1 << 20),
                h.is_null() ? ""
                            : fmt::format(", perplexity {:+.2f} %, KL {:.2e}",
                                          h["perplexity"]["change_pct"].get<double>(), h["kl"].get<double>())
                                  .c_str(),
                o_.out.c_str());
  }
  const std::string path = o_.out + "/manifest.json";
  std::printf("\n%s",
              provenance::receipt_text(provenance::make_receipt(read_json_file(path), recipe_.receipt)).c_str());
  std::printf("receipt         verified: %s\n", path.c_str());
  if (setup_->has_lora && recipe_.model.init == config::Init::kRandom) {
    std::printf(
        "\nthe adapter belongs to random weights that no file holds: nothing loads it (kind: full leaves a model)\n");
    return;
  }
  const std::string checkpoint = shell_word(o_.out + "/checkpoint");
  const std::string revision =
      recipe_.model.revision && !fs::exists(recipe_.model.name) ? "@" + *recipe_.model.revision : "";
  // As this process was called: a build that is not on the PATH is found where this one was.
  const bool scores = recipe_.train.method.kind == config::MethodKind::kReward;
  std::printf("\n%s %s --model %s%s\n", shell_word(program_invocation_name).c_str(), scores ? "score --reward" : "chat",
              setup_->has_lora ? (shell_word(made_recipe().model.name + revision) + " --adapter " + checkpoint).c_str()
                               : checkpoint.c_str(),
              scores ? " --input rows.jsonl --output scores.jsonl" : "");
}

}  // namespace mxt::app
