#include "publish/hub/card.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "provenance/manifest.h"
#include "publish/hub/front_matter.h"

namespace mxt::publish {
namespace {

// Text of a recipe, in one line of Markdown.
std::string plain(std::string_view s) {
  std::string out;
  for (const char c : printable(s)) {
    if (std::string_view("\\`*_<>[]|#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Json at(const Json& j, const char* pointer) {
  const Json::json_pointer p(pointer);
  return j.contains(p) ? j.at(p) : Json();
}

std::string text(const Json& v) {
  if (v.is_null()) return "not known";
  if (v.is_string()) return printable(v.get<std::string>());
  return v.is_number_float() ? fmt::format("{:.4g}", v.get<double>()) : v.dump();
}

std::string base_line(const Run& run) {
  if (run.recipe.model.init == config::Init::kRandom) return "random weights";
  const std::string id = base_model_id(run);
  if (!id.empty()) return fmt::format("[{}](https://huggingface.co/{})", id, id);
  return "a local file or folder, known by its digests in `provenance/manifest.json`";
}

void add_data(std::string& out, const Run& run) {
  const config::Data& d = run.recipe.data;
  std::string what;
  if (d.source == config::DataSource::kSynth && d.synth)
    what = fmt::format("made from a seed: {}", config::text_of(d.synth->task));
  else if (d.hf_id)
    what = fmt::format("{}, split {}", plain(*d.hf_id), plain(d.split));
  else if (!d.mixture.empty())
    what = fmt::format("a mixture of {} sources", d.mixture.size());
  else
    what =
        config::text_of(d.source) == std::string_view("local") ? "local files" : std::string(config::text_of(d.source));
  const std::string record = run.folder + "/dataset/dataset.json";
  const Json j = fs::exists(record) ? Json::parse(read_file(record), nullptr, false) : Json();
  const bool is_text = j.is_object() && j.value("shape", Json()) == Json("text");  // all of it is trained
  out += fmt::format(
      "\n## Data\n\n- Source: {}\n- Loss on: {}\n- Sequences of up to {} tokens, {}\n", what,
      d.train_on == config::TrainOn::kAssistant && !is_text ? "the assistant's tokens alone" : "every token", d.seq_len,
      !d.packing                                 ? "not packed"
      : d.boundaries == config::Boundaries::kRow ? "packed; documents of a row see those before them"
                                                 : "packed; no document sees another");
  if (j.is_object() && j.contains("train"))
    out += fmt::format("- {} documents, {} tokens, {} of them trained on\n", text(at(j, "/train/documents")),
                       text(at(j, "/train/tokens")), text(at(j, "/train/targets")));
  out += fmt::format("- Not published here; BLAKE3 `{}`\n", provenance::subject_digest(run.manifest, "dataset"));
}

void add_method(std::string& out, const Run& run) {
  const config::Train& t = run.recipe.train;
  out += fmt::format("\n## Training\n\n- Method: {}", config::text_of(t.method.kind));
  if (t.method.lora) out += fmt::format(", rank {}, alpha {}", t.method.lora->r, t.method.lora->alpha);
  out += fmt::format("\n- Optimizer: {}, learning rate {:g}, weight decay {:g}, {} schedule\n",
                     config::text_of(t.optimizer.name), t.optimizer.lr, t.optimizer.weight_decay,
                     config::text_of(t.schedule.type));
  out += t.schedule.max_steps ? fmt::format("- {} steps", *t.schedule.max_steps)
                              : fmt::format("- {} epoch{}", t.schedule.epochs, t.schedule.epochs == 1 ? "" : "s");
  out += fmt::format(" of {} × {} sequences, precision {}, seed {}\n", t.batch.per_device, t.batch.grad_accum,
                     config::text_of(t.precision), run.recipe.meta.seed);
  const Json& m = run.manifest;
  out += fmt::format("- Device: {}; {} s, energy {} kWh ({}), cost {} USD\n",
                     text(at(m, "/predicate/identities/device/name")),
                     text(at(m, "/predicate/environment/run_seconds")), text(at(m, "/predicate/energy/kwh")),
                     text(at(m, "/predicate/energy/method")), text(at(m, "/predicate/environment/cost_usd")));
}

void add_evaluation(std::string& out, const Run& run) {
  const auto measures = measures_of(run);
  if (measures.empty()) return;
  const auto shown = [](const Measure& m, const Json& v) {
    if (!v.is_number()) return std::string("–");
    return m.percent ? fmt::format("{:.1f} %", 100 * v.get<double>()) : fmt::format("{:.4g}", v.get<double>());
  };
  out += "\n## Evaluation\n\n| on | metric | before | after |\n|---|---|---|---|\n";
  for (const Measure& m : measures)
    out += fmt::format("| {} | {} | {} | {} |\n", plain(m.dataset), plain(m.metric), shown(m, m.before),
                       shown(m, m.after));
}

void add_quantized(std::string& out, const Run& run) {
  const Json q = at(run.manifest, "/predicate/results/quantized");
  if (!q.is_object()) return;
  out += fmt::format("\n## Quantized copy\n\n`provenance/quantized/`: {}, {} bytes, {} bits a weight",
                     text(q.value("scheme", Json())), text(at(q, "/size/bytes")), text(at(q, "/size/bits_per_weight")));
  if (at(q, "/held_out").is_object())
    out += fmt::format("; perplexity {} against {} of the original ({} %), KL {}",
                       text(at(q, "/held_out/perplexity/quantized")), text(at(q, "/held_out/perplexity/original")),
                       text(at(q, "/held_out/perplexity/change_pct")), text(at(q, "/held_out/kl")));
  out += ".\n";
}

void add_use(std::string& out, const Run& run) {
  out += "\n## Use\n\n```\n";
  if (!run.recipe.train.method.lora)
    out += "mindxtrain chat --model .\n";
  else
    out += fmt::format("mindxtrain chat --model {} --adapter .\n",
                       base_model_id(run).empty() ? "BASE" : base_model_id(run));
  out += "```\n";
}

void add_receipt(std::string& out, const Run& run) {
  const Json signer = at(run.manifest, "/predicate/signer");
  out += fmt::format(
      "\n## Receipt\n\n`provenance/manifest.json` names every file but this card with its digests (BLAKE3 of the "
      "manifest: `{}`; {}).\n"
      "In a downloaded copy:\n\n```\nmindxtrain receipt .            # re-hashes everything, names what differs\n"
      "mindxtrain receipt . --replay   # trains again with the same plan and compares\n```\n\n"
      "Recipe BLAKE3 `{}`, plan BLAKE3 `{}`, checkpoint BLAKE3 `{}`.\n",
      run.manifest_digest, signer.is_string() ? "signed by `" + signer.get<std::string>() + "`" : "not signed",
      provenance::subject_digest(run.manifest, "recipe"), provenance::subject_digest(run.manifest, "plan"),
      provenance::subject_digest(run.manifest, "checkpoint"));
}

}  // namespace

std::string model_card(const Run& run) {
  std::string out = "---\n" + yaml_of(front_matter(run)) + "---\n\n";
  out += fmt::format("# {}\n\n", plain(run.recipe.meta.run_name));
  for (const std::string_view line : split(run.recipe.meta.description, '\n')) out += plain(trim(line)) + "\n";
  if (!run.recipe.meta.description.empty()) out += "\n";
  const bool adapter = run.recipe.train.method.lora.has_value();
  const bool anew = !adapter && run.recipe.model.init == config::Init::kRandom;
  out += fmt::format("{} {}, made by mindxtrain. Everything below is out of the run's manifest.\n",
                     adapter ? "A LoRA adapter of"
                     : anew  ? "A model trained from"
                             : "A fine-tuned copy of",
                     base_line(run));
  add_use(out, run);
  add_data(out, run);
  add_method(out, run);
  add_evaluation(out, run);
  add_quantized(out, run);
  add_receipt(out, run);
  return out;
}

}  // namespace mxt::publish
