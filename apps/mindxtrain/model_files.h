// Finding a model and its tokenizer from what a recipe or a command line names.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/types.h"
#include "config/recipe.h"
#include "data/coder.h"
#include "data/prepare.h"
#include "formats/model_config.h"
#include "infer/shown.h"
#include "kernels/api.h"
#include "net/hub.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "train/setup.h"

namespace mxt::app {

// A folder or .gguf file as it is (a folder that holds nothing but one .gguf names that); a Hub id by downloading it
// (HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE are honoured). kMissing with the remedy where it cannot be had.
// Of an encrypted signing key: MINDXTRAIN_KEY_PASSPHRASE.
std::string key_passphrase();
// How the Hub is reached: HF_ENDPOINT, HF_TOKEN (or the file that `hf auth login` leaves), HF_HOME, HF_HUB_CACHE,
// HF_HUB_OFFLINE, and the proxies.
net::HubSettings hub_settings();
// https_proxy, http_proxy and no_proxy, or their names in capitals.
net::Proxies proxies();

enum class Fetch { kAllowed, kNever };  // kNever: what the cache lacks is kMissing
enum class Parts { kAll, kNoWeights };  // of a Hub id: kNoWeights leaves gigabytes where they are
std::string resolve_model(const std::string& name, const std::optional<std::string>& revision,
                          Fetch fetch = Fetch::kAllowed, Parts parts = Parts::kAll);
// The recipe's model likewise; "" where it begins with random weights.
std::string resolve_model(const config::Recipe& recipe, Fetch fetch = Fetch::kAllowed, Parts parts = Parts::kAll);

// What begins the name of a recipe that runs first: model.name and init_adapter.
inline constexpr std::string_view kMadeBefore = "recipe:";
inline constexpr int kMostBefore = 4;  // a recipe that starts from itself would go on without end
[[noreturn]] void fail_starts_from_itself(const config::Recipe& recipe);
// Names of the recipes that run before this one, without kMadeBefore: of its model, its adapter, its reward models.
std::vector<std::string> recipes_before(const config::Recipe& recipe);
// What answers are judged by: the method's reward models as the recipe names them.
std::vector<std::string> judges_of(const config::Method& method);
// For who needs a model's shape and no weights: what a recipe before would train has the shape of what that starts
// from.
config::Recipe as_planned(const config::Recipe& recipe, int depth = 0);

// The recipe of a run as its folder has it: what was made before it, and the tokenizer that it learned, by their
// places.
config::Recipe as_made(const config::Recipe& recipe, const std::string& run);

struct TokenizerBundle {
  std::shared_ptr<const tokenizer::Tokenizer> tok;      // null where the folder has none: rows of ids will still do
  std::shared_ptr<const tokenizer::ChatTemplate> chat;  // null where the model has none
  std::optional<data::PictureRules> pictures;           // of a model that sees pictures
  std::string chat_source, tool_source;                 // the second: the template named tool_use, "" where none
};
bool has_tokenizer(const std::string& folder_or_gguf);
// With an adapter that has a chat_template.jinja beside its weights: what it was trained with.
TokenizerBundle load_text_side(const std::string& folder_or_gguf, const std::string& adapter = "");
// The same tokenizer with the chat template in this file.
TokenizerBundle with_template(const TokenizerBundle& side, const std::string& file);
// What data::prepare may reach: the Hub's settings, the cache folder, the environment, Ctrl-C, the recipe's eval tasks
// and models.
data::Access data_access(const config::Recipe& recipe, Fetch fetch = Fetch::kAllowed);
// For a recipe: model.tokenizer (or the model's own; `char`: the characters of its data), model.chat_template,
// data.tools_in.
TokenizerBundle text_side_of(const config::Recipe& recipe, const std::string& model_path,
                             Fetch fetch = Fetch::kAllowed);

// data.tools_in of a recipe, for a side that may have been trained with it.
void take_tools_in(const config::Recipe& recipe, TokenizerBundle* side);

// What makes tokens of the recipe's rows. Of a Hub model its tokenizer and configuration are fetched, not its weights.
std::unique_ptr<data::SampleEncoder> coder_of(const config::Recipe& recipe, Fetch fetch = Fetch::kAllowed);
// `model_vocab`: ids of finished rows must lie below it.
std::unique_ptr<data::SampleEncoder> make_coder(const TokenizerBundle& side, int64_t model_vocab);
// What the model makes of pictures; none where it sees none. `folder`: where its processor's file may be; may be "".
std::optional<data::PictureRules> picture_rules(const formats::ModelConfig& config, const std::string& folder,
                                                const tokenizer::Tokenizer* tok = nullptr);
// Of a model's folder; none where it is no folder of a model that sees.
std::optional<data::PictureRules> picture_rules(const std::string& folder, const tokenizer::Tokenizer* tok = nullptr);
// What "sees no pictures" goes on with: where a model may be that does; "" where nothing is known of one.
std::string picture_remedy(const std::string& folder_or_gguf);
// Pictures whose tokens begin at `first`, for scoring and generation.
infer::Shown shown_of(const data::PictureRules& rules, std::span<const data::SeenPicture> seen,
                      std::span<const int64_t> first);
// A rendered prompt in which each picture is data::kPictureMark: its ids, with the pictures' places expanded.
struct PicturePrompt {
  std::vector<int32_t> ids;
  std::shared_ptr<const infer::Shown> shown;
};
PicturePrompt show_prompt(const tokenizer::Tokenizer& tok, const data::PictureRules& rules, std::string text,
                          std::vector<tokenizer::Span> plain, std::span<const data::SeenPicture> seen,
                          const std::string& where);
train::Vocabulary vocabulary_of(const TokenizerBundle& side);

// Writes the tokenizer's files beside a saved model or adapter, so that the folder can be used alone.
void save_text_side(const TokenizerBundle& side, const std::string& folder);
// Whether the templates are the tokenizer's own; where not, save_template() writes chat_template.jinja.
bool own_templates(const TokenizerBundle& side);
void save_template(const TokenizerBundle& side, const std::string& folder);

// Copies the files of a model folder that are neither weights nor its config, whatever tokenizer they are of. How many
// there were.
int copy_text_files(const std::string& from, const std::string& to);

// Refuses (kBadInput) an --output that is the --input.
void refuse_overwrite(const std::string& input, const std::string& output);

// --threads, else OMP_NUM_THREADS, else all cores that this process may use.
void set_threads(int asked);

// "bfloat16" or "float32".
DType parse_dtype(const std::string& name);

// What using a model computes in, said on stderr: what --dtype says. Else on the CPU the type that a folder holds its
// weights in (float32 for float16 too, of which bfloat16 would lose bits), and float32 for a GGUF file, as the programs
// that such files are made for compute. On a GPU bfloat16.
DType compute_type(const std::string& dtype, const std::string& model, const std::string& device);
inline constexpr const char* kDtypeHelp =
    "bfloat16 or float32 (default: on the CPU the checkpoint's own, float32 for a GGUF file; on a GPU bfloat16)";

// --device: "cpu", or "cuda" or a card's name for the GPU of this machine; kMissing where there is none.
kernels::Ops& ops_on(const std::string& device);

std::string environment(const char* name);  // "" where unset

}  // namespace mxt::app
