#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "data/encode/encode.h"
#include "formats/vision.h"
#include "formats/weight_source.h"
#include "infer/reward_model.h"
#include "infer/scorer.h"
#include "json_rows.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct ScoreOptions {
  std::string model, adapter, input, output, dtype, device = "cpu";
  int threads = 0;
  bool reward = false;
};

struct ScoreRow {
  std::vector<int32_t> ids;
  infer::Shown shown;  // its pictures
};

struct ScoreRows {
  std::vector<std::vector<int32_t>> ids;
  std::vector<infer::Shown> shown;   // of each; empty where no row has pictures
  std::vector<std::string> sources;  // of each: file and line
  std::vector<size_t> places;        // of each in the file; empty of the file itself
  int64_t longest = 1;
};

std::vector<int32_t> given_ids(const Json& list, const std::string& source) {
  std::vector<int32_t> ids;
  for (const auto& v : list) {
    if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() > INT32_MAX)
      fail_input("{}: ids: {} is not a token id", source, v.dump());
    ids.push_back(v.get<int32_t>());
  }
  return ids;
}

// A row's "images", whose places stand expanded in its ids.
infer::Shown show_score(const Json& row, const std::vector<int32_t>& ids,
                        const std::optional<data::PictureRules>& rules, const std::string& input,
                        const std::string& where, const std::string& model) {
  const Json images = row.value("images", Json());
  std::vector<data::SeenPicture> seen;
  if (!images.is_null()) {
    if (!rules) fail_input("{}: the row has pictures and the model sees none{}", where, picture_remedy(model));
    if (!images.is_array()) fail_input("{}: \"images\" must be a list of paths or data URIs", where);
    for (const Json& x : images) {
      if (!x.is_string()) fail_input("{}: \"images\" must be a list of paths or data URIs", where);
      seen.push_back(data::see_picture(*rules, x.get<std::string>(), fs::path(input).parent_path().string(), where));
    }
  }
  if (!rules) return {};
  return shown_of(*rules, seen, data::find_pictures(ids, *rules, seen, where));
}

// A row's tokens as the row says them by itself: ids, with pictures whose places stand expanded in them, or a text.
class PlainRows {
 public:
  PlainRows(const std::string& model, const std::string& input)
      : model_(model), input_(input), rules_(picture_rules(model)) {}
  ScoreRow operator()(const Json& j, const std::string& source, const data::Record&) {
    if (j.is_object() && j.contains("ids") && j["ids"].is_array()) {
      ScoreRow row{given_ids(j["ids"], source), {}};
      row.shown = show_score(j, row.ids, rules_, input_, source, model_);
      return row;
    }
    if (!j.is_object() || !j.contains("text") || !j["text"].is_string())
      fail_input("{}: a row is {{\"ids\":[…]}} or {{\"text\":\"…\"}}", source);
    if (!tok_) tok_ = load_text_side(model_).tok;
    return {tok_->encode_with_prefix(j["text"].get<std::string>()), {}};
  }

 private:
  std::string model_, input_;
  std::optional<data::PictureRules> rules_;
  std::shared_ptr<const tokenizer::Tokenizer> tok_;
};

// As training makes them: a conversation, a prompt with its answer, a text; or ids.
class TrainedRows {
 public:
  explicit TrainedRows(const std::string& model) : model_(model) {}
  ScoreRow operator()(const Json& j, const std::string& source, const data::Record& record) {
    if (j.is_object() && j.contains("ids") && j["ids"].is_array()) return {given_ids(j["ids"], source), {}};
    if (!coder_) coder_ = make_coder(load_text_side(model_), 0);
    if (!layout_) layout_ = data::find_layout(record, {});
    const data::Example e = data::read_example(record, *layout_);
    if (e.rejected)
      fail_input("{}: is a pair: give each answer a row of its own, as {{\"prompt\", \"completion\"}} or messages",
                 source);
    data::Document d = data::encode_example(e, *coder_, {}, source);
    data::end_at_targets(d);
    return {std::move(d.ids), {}};
  }

 private:
  std::string model_;
  std::unique_ptr<data::SampleEncoder> coder_;
  std::optional<data::Layout> layout_;
};

template <typename Ids>
ScoreRows read_rows(const std::string& input, Ids ids_of) {
  ScoreRows out;
  bool any_shown = false;
  const auto reader = open_json_rows(input);
  for (data::Record record; reader->next(&record);) {
    const std::string source = record.where();
    ScoreRow row = ids_of(parse_json(record.text, source), source, record);
    any_shown = any_shown || !row.shown.pictures.empty();
    out.ids.push_back(std::move(row.ids));
    out.shown.push_back(std::move(row.shown));
    out.sources.push_back(source);
    out.longest = std::max(out.longest, static_cast<int64_t>(out.ids.back().size()));
  }
  if (!any_shown) out.shown.clear();
  return out;
}

void check_ids(const ScoreRows& rows, int64_t vocab) {
  for (size_t r = 0; r < rows.ids.size(); ++r)
    for (const int32_t id : rows.ids[r])
      if (id >= vocab)
        fail_input("{}: token id {} is outside the model's vocabulary of {}", rows.sources[r], id, vocab);
}

[[noreturn]] void fail_number(const std::string& source, const std::string& what, const std::string& path, DType type) {
  fail_input("{}: {}: {} holds weights that are not numbers, or overflows in {}", source, what, path,
             type == DType::kF32 ? "float32" : "bfloat16");
}

// LongRoPE turns a text beyond the original maximum by other frequencies than a shorter one: such rows are computed
// apart, so that no row's numbers depend on what else is in the file.
std::vector<ScoreRows> computed_apart(const ScoreRows& rows, const std::string& path) {
  const formats::RopeScaling rope = formats::WeightSource::open(path)->config().rope_scaling;
  const int64_t most = rope.kind == formats::RopeScaling::Kind::kLongRope ? rope.original_max_positions
                                                                          : std::numeric_limits<int64_t>::max();
  std::vector<ScoreRows> parts(2);
  for (size_t r = 0; r < rows.ids.size(); ++r) {
    const auto length = static_cast<int64_t>(rows.ids[r].size());
    ScoreRows& part = parts[length > most];
    part.ids.push_back(rows.ids[r]);
    if (!rows.shown.empty()) part.shown.push_back(rows.shown[r]);
    part.sources.push_back(rows.sources[r]);
    part.places.push_back(r);
    part.longest = std::max(part.longest, length);
  }
  std::erase_if(parts, [](const ScoreRows& part) { return part.ids.empty(); });
  return parts;
}

std::string log_probs_line(const std::vector<float>& lp, const std::string& source, const std::string& path,
                           DType type) {
  Json j = Json::array();
  for (size_t t = 0; t < lp.size(); ++t) {
    if (t > 0 && std::isnan(lp[t])) fail_number(source, fmt::format("token {}: no log-probability", t + 1), path, type);
    j.push_back(t == 0 ? Json(nullptr) : Json(lp[t]));
  }
  return Json{{"logprobs", j}}.dump();
}

void score_tokens(const ScoreOptions& o, const std::string& path, const ScoreRows& rows,
                  std::vector<std::string>& lines) {
  const DType type = compute_type(o.dtype, path, o.device);
  infer::Model model(path, o.adapter, type, rows.longest, ops_on(o.device), infer::Weights::kForMany);
  check_ids(rows, model.vocab());
  infer::Scorer scorer(model, std::min<int64_t>(std::max<int64_t>(rows.longest, 2048), 8192));
  const auto all = scorer.score(rows.ids, &g_stop, rows.shown);
  for (size_t r = 0; r < all.size(); ++r) lines[rows.places[r]] = log_probs_line(all[r], rows.sources[r], path, type);
}

void score_rewards(const ScoreOptions& o, const std::string& path, const ScoreRows& rows,
                   std::vector<std::string>& lines) {
  const DType type = compute_type(o.dtype, path, o.device);
  infer::RewardModel model(path, o.adapter, type, rows.longest, ops_on(o.device));
  check_ids(rows, model.config().vocab_size);
  for (size_t r = 0; r < rows.ids.size(); ++r)
    if (static_cast<int64_t>(rows.ids[r].size()) > model.longest())
      fail_input("{}: {} tokens, the model's context is {}: a reward is read at the end, so none is cut",
                 rows.sources[r], rows.ids[r].size(), model.longest());
  const std::vector<float> all = model.score(rows.ids, &g_stop);
  for (size_t r = 0; r < all.size(); ++r) {
    if (!std::isfinite(all[r])) fail_number(rows.sources[r], "no score", path, type);
    lines[rows.places[r]] = Json{{"reward", all[r]}}.dump();
  }
}

void score(const ScoreOptions& o, const std::string& path) {
  const ScoreRows rows =
      o.reward ? read_rows(o.input, TrainedRows(path)) : read_rows(o.input, PlainRows(path, o.input));
  if (o.reward)
    for (size_t r = 0; r < rows.ids.size(); ++r)
      if (rows.ids[r].empty()) fail_input("{}: the row is empty: there is nothing to score", rows.sources[r]);
  AtomicFile out(o.output);
  std::vector<std::string> lines(rows.ids.size());
  for (const ScoreRows& part : computed_apart(rows, path))
    o.reward ? score_rewards(o, path, part, lines) : score_tokens(o, path, part, lines);
  for (const std::string& line : lines) out.write(line + "\n");
  out.commit();
}

}  // namespace

void add_score(CLI::App& app) {
  auto* c = app.add_subcommand("score",
                               "log-probability of every token of given rows, or a reward model's number for each "
                               "row\nexample: mindxtrain score "
                               "--model DIR --input rows.jsonl --output out.jsonl");
  auto o = std::make_shared<ScoreOptions>();
  c->add_option("--model", o->model, "folder, .gguf file or Hub id (or ID@REVISION)")->required();
  c->add_option("--adapter", o->adapter, "PEFT folder");
  c->add_flag("--reward", o->reward, "the model, or the adapter over it, is a reward model");
  c->add_option("--input", o->input,
                "JSONL rows {\"ids\":[…]} (pictures: also \"images\":[path,…], their places expanded) or "
                "{\"text\":\"…\"}; with --reward also {\"messages\":[…]} or {\"prompt\":…, "
                "\"completion\":…}")
      ->required();
  c->add_option("--output", o->output, "JSONL answers {\"logprobs\":[null,…]}; with --reward {\"reward\":x}")
      ->required();
  c->add_option("--dtype", o->dtype, kDtypeHelp);
  c->add_option("--device", o->device,
                "cpu, or cuda for the NVIDIA card of this machine (or its name: h100, rtx4090, ...)");
  c->add_option("--threads", o->threads, "threads");
  c->callback([o] {
    refuse_overwrite(o->input, o->output);
    set_threads(o->threads);
    const std::string path = resolve_model(o->model, std::nullopt);
    score(*o, path);
  });
}

}  // namespace mxt::app
