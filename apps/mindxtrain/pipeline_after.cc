// What follows training and evaluation: the smaller copy, and the numbers that the registry keeps.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "cost.h"
#include "data/dataset.h"
#include "eval/core/bits_per_byte.h"
#include "exit.h"
#include "harness.h"
#include "infer/model.h"
#include "pipeline.h"
#include "quantize/quantize.h"
#include "quantize_model.h"
#include "shipped.h"

namespace mxt::app {

bool Pipeline::quantizes() const {
  return recipe_.quantize && recipe_.quantize->enabled && recipe_.quantize->scheme != config::QuantScheme::kNone;
}

// Of the base model, or of what it has become: the measures that need no task in the harness's format.
bool Pipeline::measure_base(bool after, OrderedJson* out) {
  const config::Eval& e = *recipe_.eval;
  HarnessRequest r;
  r.model = after && !setup_->has_lora ? o_.out + "/checkpoint" : model_path_;
  r.adapter = after && setup_->has_lora ? o_.out + "/checkpoint" : after ? "" : init_adapter();
  r.model_name = after ? recipe_.meta.run_name : recipe_.model.name;
  r.type = setup_->type;
  if (setup_->backend->own_memory) r.device = config::text_of(recipe_.hardware.name);
  r.limit = e.harness.limit.value_or(0);
  r.out = o_.out + "/eval";
  make_folders(o_.out + "/cache");
  r.cache = o_.out + (after ? "/cache/eval_after.jsonl" : "/cache/eval_before.jsonl");
  if (e.bits_per_byte) {
    if (!text_.tok) fail_input("{}: eval.bits_per_byte: the model's folder has no tokenizer", recipe_.source);
    if (!data::has_part(data_folder_, "eval"))
      fail_input("{}: eval.bits_per_byte: the data have no held-out rows: set data.eval_fraction or eval_path",
                 recipe_.source);
    const data::Dataset set = data::Dataset::open(data_folder_, "eval");
    infer::Model model(r.model, r.adapter, r.type, set.info().longest, *backend_.ops, infer::Weights::kForMany);
    const eval::BitsPerByte b = eval::bits_per_byte(model, *text_.tok, set, 0, &g_stop);
    (*out)["bits_per_byte"] = {
        {"rows", b.rows}, {"targets", b.targets}, {"bytes", b.bytes}, {"nats", b.nats}, {"value", b.value()}};
  }
  if (!after) return true;
  if (e.core) {
    const auto core = run_core(r, text_, *e.core);
    if (!core) return false;
    out->update(*core);
  }
  if (e.chat_core) {
    const auto core = run_chat_core(r, text_, *e.chat_core, {});
    if (!core) return false;
    out->update(*core);
  }
  return true;
}

// What OUT/quantize.json says when exactly this was quantized and nothing has changed since.
std::string Pipeline::quantize_record() {
  OrderedJson j;
  j["recipe"] = recipe_digest_;
  j["base"] = base_digest();
  if (recipe_.eval && recipe_.eval->perplexity_path)
    j["text"] = hash_file(shipped_file(*recipe_.eval->perplexity_path)).blake3;
  j["checkpoint"] = folder_digest(o_.out + "/checkpoint");
  j["quantized"] = folder_digest(o_.out + "/quantized");
  return j.dump(2) + "\n";
}

void Pipeline::quantize() {
  if (!quantizes()) return;
  record_->stage("quantize");
  const std::string record = o_.out + "/quantize.json", folder = o_.out + "/quantized";
  if (fs::exists(record) && fs::exists(folder) && read_file(record) == quantize_record()) {
    log::info("quantize: already done, kept");
    return;
  }
  std::error_code ec;
  fs::remove(record, ec);
  fs::remove_all(folder, ec);
  QuantizeJob job;
  job.settings = *recipe_.quantize;
  job.name = recipe_.meta.run_name;
  job.out = folder;
  job.model = setup_->has_lora ? model_path_ : o_.out + "/checkpoint";
  job.adapter = setup_->has_lora ? o_.out + "/checkpoint" : "";
  if (setup_->type == DType::kF32) job.type = DType::kF32;
  if (recipe_.eval && recipe_.eval->perplexity_path) job.text = shipped_file(*recipe_.eval->perplexity_path);
  // The recipe may name another tokenizer or template than the model's own.
  job.own_text_side = !recipe_.model.tokenizer && (!text_.tok || own_templates(text_));
  const OrderedJson report = quantize_model(job, text_);
  write_file_atomic(record, quantize_record());
  std::string text = report_text(report);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    log::info("{}", text.substr(at, end - at));
    at = end + 1;
  }
}

Json Pipeline::quantization_report() const {
  const std::string path = o_.out + "/quantized/quantization.json";
  return quantizes() && fs::exists(path) ? read_json_file(path) : Json();
}

namespace {

constexpr const char* kDamaged = "not known: the record was damaged";

double number(const Json& j, const char* key) {
  const Json v = j.is_object() ? j.value(key, Json()) : Json();
  return v.is_number() ? v.get<double>() : 0;
}

}  // namespace

// A process that is killed notes nothing: its seconds are not known.
Json Pipeline::spent() const {
  const bool known = spent_before_.is_object();
  Json u = known ? spent_before_ : Json::object();
  u.erase("finished");
  u["run_seconds"] = number(spent_before_, "run_seconds") +
                     std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  Json energy = meter_.reading();
  if (spent_before_.is_discarded()) energy = {{"kwh", nullptr}, {"method", kDamaged}};
  if (const Json before = known ? spent_before_.value("energy", Json()) : Json();
      before.is_object() && energy["kwh"].is_number())
    energy["kwh"] =
        before.value("kwh", Json()).is_number() ? Json(number(before, "kwh") + energy["kwh"].get<double>()) : Json();
  u["energy"] = energy;
  u["train_seconds"] = number(spent_before_, "train_seconds") + result_.seconds;
  if (result_.tok_s > 0) {
    u["tok_s"] = result_.tok_s;
    u["decisions_in_loop"] = result_.decisions;
    u["peak_memory_bytes"] = result_.peak_memory;
  }
  return u;
}

// A process that only finds everything done must not overwrite what the run has cost.
Json Pipeline::usage() {
  usage_is_final_ = true;
  const bool damaged = spent_before_.is_discarded();
  if (damaged) log::warn("{}/usage.json: is damaged: what the run has cost is not known any more", o_.out);
  if (!trained_now_ && damaged) return {{"energy", {{"kwh", nullptr}, {"method", kDamaged}}}};
  if (!trained_now_ && spent_before_.contains("finished")) return spent_before_;
  Json u = spent();
  u["finished"] = utc_now();
  const Json kwh = u["energy"].value("kwh", Json());
  const config::Prices prices = price_table();
  const auto rate = rate_of(recipe_, priced_device(recipe_), prices);
  const auto cost = rate && !damaged
                        ? rate->usd(u["run_seconds"], kwh.is_number() ? std::optional(kwh.get<double>()) : std::nullopt)
                        : std::nullopt;
  u["cost_usd"] = cost ? Json(*cost) : Json();
  // What was reckoned with: the table by its file's name alone, since the folder tells of somebody's machine.
  if (cost) {
    u["price"] = {{"table", fs::path(prices.file).filename().string()}, {"date", prices.date}};
    if (rate->price.usd_per_hour > 0)
      u["price"]["usd_per_hour"] = rate->price.usd_per_hour;
    else
      u["price"]["usd_per_kwh"] = rate->usd_per_kwh;
  }
  write_file_atomic(o_.out + "/usage.json", u.dump(2) + "\n");
  return u;
}

Pipeline::~Pipeline() {
  if (usage_is_final_ || spent_before_.is_discarded() || spent_before_.contains("finished")) return;
  try {
    write_file_atomic(o_.out + "/usage.json", spent().dump(2) + "\n");
  } catch (const std::exception& e) {
    log::debug("{}", e.what());
  }
}

Json Pipeline::metrics() const {
  Json r = results();
  // From the file: it covers what earlier attempts of this run trained.
  const std::string path = o_.out + "/metrics.jsonl";
  if (!fs::exists(path)) return r;
  const std::string text = read_file(path);
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return r;
  const Json first = Json::parse(text.substr(0, text.find('\n')), nullptr, false);
  const Json last = Json::parse(text.substr(text.rfind('\n', end) + 1), nullptr, false);
  if (!first.is_object() || !last.is_object()) return r;
  if (first.contains("loss")) r["first_loss"] = first["loss"];
  if (last.contains("loss")) r["last_loss"] = last["loss"];
  for (const char* key : {"step", "tok_s", "eval_loss"})
    if (last.contains(key)) r[key] = last[key];
  return r;
}

}  // namespace mxt::app
