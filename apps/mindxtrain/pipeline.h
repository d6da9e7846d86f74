// The stages of a run, each in its own folder under OUT; a stage whose inputs have not changed since it finished is
// kept.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "config/recipe.h"
#include "eval/exact_match.h"
#include "foreign.h"
#include "kernels/backend.h"
#include "kernels/plan.h"
#include "model_files.h"
#include "provenance/energy.h"
#include "provenance/sign.h"
#include "run_record.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace mxt::app {

class Pipeline {
 public:
  struct Options {
    std::string verb = "run";                       // as the registry shows it
    std::string recipe_path, out, plan_path, data;  // plan_path and data may be ""
    std::optional<config::Recipe> recipe;           // taken where given; recipe_path then only names it
    bool resume = false;
    int64_t resume_from = -1;
    int threads = 0;
    bool write_receipt = true;  // to the recipe's receipt.output, beside OUT/receipt.json
    bool report = true;         // to train.report_to's trackers
    bool sign = true;           // where the recipe names a key
    int depth = 0;              // how many recipes stand behind this one that start from it
    std::function<void(const train::StepMetrics&)> on_step;  // of this recipe's training; may be empty
  };
  explicit Pipeline(const Options& options);
  ~Pipeline();  // notes what this process has spent, however it ends

  bool chain();  // all of it; false where interrupted
  // OUT/before/NAME, where the recipe starts from recipe:NAME or is judged by what that makes; false where interrupted.
  bool before();
  void learn_tokenizer();  // OUT/tokenizer, where model.tokenizer is train
  void plan();             // OUT/plan.json
  void say_unused_choices(const std::string& path) const;
  void prepare();  // OUT/dataset
  void save_processor();
  bool evaluate(bool after);  // OUT/eval/before.json, after.json; false where interrupted
  bool harness(bool after);   // OUT/eval/before/, after/ where the recipe names tasks; false where interrupted
  bool train();               // OUT/checkpoint; false where interrupted
  void quantize();            // OUT/quantized
  void manifest();            // OUT/manifest.json, receipt
  void summary() const;       // on stdout
  void require_gate() const;  // kVerifyFailed where the regression gate failed

  const config::Recipe& recipe() const { return recipe_; }

 private:
  void take_folder();                // --out: fresh, or this run's own
  void open_model();                 // where it is there: after before() and learn_tokenizer()
  std::string init_adapter() const;  // the folder that training starts from; "" where there is none
  std::optional<std::string> run_before(const std::string& named, const char* key,
                                        bool whole);  // none where interrupted
  std::vector<std::string> reward_models() const;     // folders that answers are judged by
  Json method_inputs() const;                         // what the method had besides the base, for the manifest
  config::Recipe made_recipe() const;                 // with what the recipes before have made
  bool foreign() const;                               // another trainer trains
  void check_foreign() const;
  void train_foreign(const train::TrainOptions& t);
  void follow_trl(const TrlPython& trl, const ForeignSteps& steps);
  bool harness_asked() const;
  bool measure_base(bool after, OrderedJson* out);  // bits per byte, CORE, ChatCORE; false where interrupted
  Json noted_pieces() const;
  bool noted(const std::string& piece) const;  // a file or folder below OUT
  bool is_as_left(const std::string& piece) const;
  void note(const std::string& piece) const;
  struct Score {
    int64_t rows = 0, exact = 0;
    std::optional<double> reward, perplexity, bits_per_byte, core, chat_core;
    std::optional<int64_t> right;   // the final number, where that was asked for
    std::optional<double> sampled;  // share of sampled answers that are right, or exact
    std::string text() const;
  };
  Score read_score(const std::string& path) const;
  train::RewardServices reward_services(int64_t longest);  // of sequences of so many tokens
  OrderedJson held_out_reward(const eval::ExactMatch& e);
  Json spent() const;      // energy, seconds: of all processes of this run
  Json usage();            // the same at the run's end, with its cost; kept in OUT/usage.json
  bool quantizes() const;  // the stage is on
  std::string quantize_record();
  Json quantization_report() const;  // OUT/quantized/quantization.json, null where the stage is off
  Json results() const;              // what was measured: eval, quantized
  Json metrics() const;              // the same with how training went, for the registry
  std::string train_record();        // what OUT/train.json says when training of exactly this is finished
  std::string base_digest();         // of what training starts from: weights, their config, init_adapter

  Options o_;
  config::Recipe recipe_;
  std::unique_ptr<FolderLock> lock_;
  std::string model_path_;
  TokenizerBundle text_;
  std::unique_ptr<train::Setup> setup_;
  kernels::Backend backend_;
  kernels::KernelPlan plan_;
  std::string data_folder_, recipe_digest_, plan_digest_, data_digest_, base_digest_;
  std::string before_;                                 // below OUT: the checkpoint of the recipe before
  std::unique_ptr<data::Texts> learned_from_;          // where the tokenizer was learned here, or kept
  std::map<std::string, std::string> judges_before_;   // of recipe:NAME as a reward model; below OUT: its checkpoint
  std::map<std::string, std::string> judges_fetched_;  // of the other reward models by name: their folders
  std::string base_weights_;                           // digests of the base's files, read once a process
  train::TrainResult result_;
  std::unique_ptr<RunRecord> record_;
  provenance::EnergyMeter meter_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Json spent_before_;  // OUT/usage.json as it was found; null where there was none
  std::optional<provenance::SigningKey> key_;
  bool trained_now_ = false, gate_failed_ = false, usage_is_final_ = false;
};

// Where no --out is given: out/ and the recipe's meta.run_name, made a folder's name. The recipe is read for it, once.
void take_run_folder(Pipeline::Options& options);
inline constexpr const char* kRunFolderHelp = "the run's folder (default: out/ and the recipe's meta.run_name)";

// A digest of everything in a folder, for telling whether a stage's output is as it was left; "" where there is none.
std::string folder_digest(const std::string& folder);

}  // namespace mxt::app
