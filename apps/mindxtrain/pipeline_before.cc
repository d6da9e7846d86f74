// What a run starts from where nothing is there yet: recipes that run before it (model.name, init_adapter or a reward
// model `recipe:NAME`, in OUT/before/NAME), and a tokenizer that is learned from its data.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "config/this_machine.h"
#include "config/vocabulary.h"
#include "device/memory.h"
#include "exit.h"
#include "pipeline.h"
#include "provenance/manifest.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer_train.h"
#include "train/methods/method.h"

namespace mxt::app {

namespace {

// Whether the folder holds a recipe and nothing that was made from it: the plan is the first piece.
bool nothing_made(const std::string& out) {
  for (const char* piece :
       {"plan.json", "dataset", "metrics.jsonl", "checkpoint", "checkpoints", "eval", "quantized", "manifest.json"})
    if (fs::exists(out + "/" + piece)) return false;
  return true;
}

bool holds(const std::string& path, std::string_view words) {
  return fs::is_regular_file(path) && read_file(path).find(words) != std::string::npos;
}

// Whether a run has been in this folder: copies of one may lack its dot files. Other people's manifest.json (of a page,
// of an extension) and program.txt are none of a run's.
bool was_a_run(const std::string& out) {
  return fs::exists(out + "/.lock") ||
         (fs::exists(out + "/recipe.yaml") &&
          (holds(out + "/program.txt", "\nbackend ") || holds(out + "/manifest.json", provenance::kPredicateType)));
}

// What a run would write over or delete where none has been before.
std::string in_the_way(const std::string& out, const std::string& recipe_digest) {
  for (const char* piece : {"checkpoint", "checkpoints", "eval", "quantized", "tokenizer", "tokenizer.json",
                            "train.json", "quantize.json", "metrics.jsonl", "rollouts.jsonl", "loss.svg", "program.txt",
                            "manifest.json", "pieces.json", "usage.json", "publish.json"})
    if (const std::string at = out + "/" + piece; fs::exists(fs::symlink_status(at)))
      if (std::error_code ec; !fs::is_directory(at, ec) || !fs::is_empty(at, ec)) return piece;
  const std::string kept = out + "/recipe.yaml";
  if (!fs::exists(kept)) return "";
  try {
    return config::recipe_hash(config::load_recipe(kept)) == recipe_digest ? "" : "another recipe.yaml";
  } catch (const Error&) {
    return "another recipe.yaml";
  }
}

}  // namespace

void Pipeline::take_folder() {
  const bool again = was_a_run(o_.out);
  if (!again)
    if (const std::string piece = in_the_way(o_.out, recipe_digest_); !piece.empty())
      fail_input("{}: this folder holds {}, which the run would write over: choose another --out", o_.out, piece);
  lock_ = std::make_unique<FolderLock>(o_.out);
  const std::string kept = o_.out + "/recipe.yaml";
  if (fs::exists(kept)) {
    config::Recipe before;
    try {
      before = config::load_recipe(kept);
    } catch (const Error& e) {
      fail_input("{}: the recipe of this folder's run is damaged ({}): restore it, or choose another --out", o_.out,
                 e.what());
    }
    if (config::recipe_hash(before) != recipe_digest_ && nothing_made(o_.out)) {
      write_file_atomic(
          kept, config::settled_text(recipe_));  // the first try ended at its recipe or model, which is mended now
    } else if (config::recipe_hash(before) != recipe_digest_) {
      if (!o_.resume || config::hash_without_hardware(before) != config::hash_without_hardware(recipe_))
        fail_input("{}: this folder holds the run of another recipe: choose another --out", o_.out);
      // The same run on other hardware: its state goes on, the plan is made again.
      log::info("resuming on other hardware: {} and the plan are replaced", kept);
      fs::remove(o_.out + "/plan.json");
      write_file_atomic(kept, config::settled_text(recipe_));
    }
  } else {
    if (fs::exists(o_.out + "/manifest.json") || fs::exists(o_.out + "/checkpoint"))
      fail_input("{}: this folder holds something else: choose another --out", o_.out);
    write_file_atomic(kept, config::settled_text(recipe_));
  }
  if (again) remove_unfinished(o_.out);
}

bool Pipeline::chain() {
  if (!before()) return false;
  learn_tokenizer();
  plan();
  prepare();
  if (!evaluate(false) || !harness(false) || !train() || !evaluate(true) || !harness(true)) return false;
  quantize();
  manifest();
  return true;
}

bool Pipeline::before() {
  const auto& lora = recipe_.train.method.lora;
  const std::string adapter = lora ? lora->init_adapter.value_or("") : "";
  const bool model = recipe_.model.name.starts_with(kMadeBefore), tuned = adapter.starts_with(kMadeBefore);
  if (model && tuned)
    fail_input("{}: model.name and init_adapter both name a recipe that runs first: keep one", recipe_.source);
  if (model || tuned) {
    const auto made =
        model ? run_before(recipe_.model.name, "model.name", true) : run_before(adapter, "init_adapter", false);
    if (!made) return false;
    before_ = *made;
    if (model) open_model();
  }
  for (const std::string& judge : judges_of(recipe_.train.method)) {
    if (!judge.starts_with(kMadeBefore) || judges_before_.contains(judge)) continue;
    const auto made = run_before(judge, "a reward model", false);
    if (!made) return false;
    judges_before_[judge] = *made;
  }
  return true;
}

std::optional<std::string> Pipeline::run_before(const std::string& named, const char* key, bool whole) {
  const std::string recipe = named.substr(kMadeBefore.size()), name = fs::path(recipe).stem().string();
  if (name.empty()) fail_input("{}: {}: {} names no recipe", recipe_.source, key, named);
  if (o_.depth == kMostBefore) fail_starts_from_itself(recipe_);
  record_->stage("before");
  Options o;
  o.recipe_path = recipe;
  o.out = fmt::format("{}/before/{}", o_.out, name);
  o.resume = true;
  o.threads = o_.threads;
  o.write_receipt = false;
  o.sign = false;
  o.depth = o_.depth + 1;
  log::info("before: {} into {}", recipe, o.out);
  Pipeline p(o);
  if (whole) {
    if (!p.chain()) return std::nullopt;
    p.require_gate();
  } else {  // an adapter is measured by what it becomes
    if (!p.before()) return std::nullopt;
    p.plan();
    p.prepare();
    if (!p.train()) return std::nullopt;
    p.manifest();
  }
  return fmt::format("before/{}/checkpoint", name);
}

std::string Pipeline::init_adapter() const {
  const auto& lora = recipe_.train.method.lora;
  if (!lora || !lora->init_adapter) return "";
  return lora->init_adapter->starts_with(kMadeBefore) && !before_.empty() ? o_.out + "/" + before_
                                                                          : *lora->init_adapter;
}

std::vector<std::string> Pipeline::reward_models() const { return judges_of(made_recipe().train.method); }

Json Pipeline::method_inputs() const {
  Json j = Json::object();
  const auto named = [](const std::string& name, const std::string& folder) {
    return Json{{"name", name}, {"blake3", folder_digest(folder)}};
  };
  const auto& lora = recipe_.train.method.lora;
  if (const std::string from = init_adapter(); !from.empty()) j["init_adapter"] = named(*lora->init_adapter, from);
  const std::vector<std::string> judges = judges_of(recipe_.train.method), folders = reward_models();
  for (size_t i = 0; i < judges.size(); ++i)
    j["reward_models"].push_back(named(judges_fetched_.contains(judges[i]) ? judges[i] : folders[i], folders[i]));
  const auto method = train::make_method(recipe_.train.method);
  const std::string training = o_.out + "/checkpoint/training.json";
  if (!method || !method->has_reference() || (!foreign() && !fs::exists(training))) return j;
  const std::string values = foreign() ? "live" : read_json_file(training).value("reference", std::string());
  if (!values.empty())
    j["reference"] = {{"policy", !lora                ? "the starting weights"
                                 : lora->init_adapter ? "init_adapter, frozen"
                                                      : "the base, without the adapter"},
                      {"log_probabilities", values}};
  return j;
}

config::Recipe Pipeline::made_recipe() const {
  config::Recipe r = recipe_;
  // Whoever trains, this program evaluates, and counts the rows of a step.
  r.train.backend = config::Backend::kNative;
  config::Method& m = r.train.method;
  if (!before_.empty() && r.model.name.starts_with(kMadeBefore))
    r.model.name = o_.out + "/" + before_;
  else if (!before_.empty())
    m.lora->init_adapter = init_adapter();
  const auto take = [&](std::optional<std::string>& judge) {
    if (!judge) return;
    if (const auto made = judges_before_.find(*judge); made != judges_before_.end())
      judge = o_.out + "/" + made->second;
    else if (const auto here = judges_fetched_.find(*judge); here != judges_fetched_.end())
      judge = here->second;
  };
  take(m.reward_model);
  for (config::RewardPart& part : m.rewards) take(part.model);
  return r;
}

// OUT/tokenizer.json says what OUT/tokenizer was learned from: the same is kept.
void Pipeline::learn_tokenizer() {
  if (recipe_.model.tokenizer != "train") return;
  record_->stage("tokenizer");
  const config::Vocabulary vocabulary = *config::learned_vocabulary(recipe_);
  const std::string folder = o_.out + "/tokenizer", stamp = o_.out + "/tokenizer.json";
  const data::Access access = data_access(recipe_);
  learned_from_ = std::make_unique<data::Texts>(recipe_, access);
  data::Texts& texts = *learned_from_;
  const std::string rows = texts.digest();  // before they are read: what changes meanwhile is another's
  const auto learned = [&] {
    return OrderedJson{{"rows", rows}, {"vocab_size", vocabulary.size}, {"tokenizer", folder_digest(folder)}}.dump(2) +
           "\n";
  };
  if (!fs::exists(stamp) || !fs::exists(folder) || read_file(stamp) != learned()) {
    std::error_code ec;
    fs::remove(stamp, ec);
    tokenizer::TrainOptions how = nanochat_tokenizer(vocabulary.size);
    how.stop = &g_stop;
    how.memory_limit = device::available_host_bytes() / 2;
    tokenizer::Trained made = train_byte_level_bpe(how, [&](std::string_view& t) { return texts.next(&t); });
    check_filled(how, made, texts.name(), vocabulary.setting);
    const auto tok = tokenizer::Tokenizer::from_spec(std::move(made.spec));
    const UnfinishedFolder part(folder);
    tok->save(part.path());
    replace_folder(part.path(), folder);
    write_file_atomic(stamp, learned());
    log::info("tokenizer: {} tokens of {:.1f} MB of text, in {}", tok->vocab_size(),
              static_cast<double>(made.text_bytes) / 1e6, folder);
  } else {
    log::info("tokenizer: {} (kept)", folder);
  }
  text_ = load_text_side(folder);
  if (recipe_.model.chat_template) text_ = with_template(text_, *recipe_.model.chat_template);
}

}  // namespace mxt::app
