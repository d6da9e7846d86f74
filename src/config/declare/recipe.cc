#include "config/field.h"

namespace mxt::config {

const Section& declare_recipe() {
  static const Section kRecipe = [] {
    Declaration<Recipe> d("One YAML file per run.");
    d.field("meta", &Recipe::meta, "Who and what this run is.").required();
    d.field("hardware", &Recipe::hardware, "The machine that the recipe is written for. Absent = this machine.");
    d.field("autotune", &Recipe::autotune, "The probe that measures before anything trains.");
    d.field("model", &Recipe::model, "The base model.").required();
    d.field("data", &Recipe::data, "Rows, their cleaning, and how they become token sequences.").required();
    d.field("pretrain", &Recipe::pretrain, "A nanochat model from scratch, by its depth. Absent = off.").later();
    d.field("train", &Recipe::train, "Method, optimizer, schedule, batch, numbers and environment.");
    d.field("eval", &Recipe::eval, "Evaluation of the trained model. Absent = off.");
    d.field("quantize", &Recipe::quantize, "A smaller copy of the trained model. Absent = off.");
    d.field("serve", &Recipe::serve, "How the trained model is served. Absent = off.");
    d.field("publish", &Recipe::publish, "Where the result is published. Absent = off.");
    d.field("receipt", &Recipe::receipt, "What the receipt says and where it is written.");
    return d.take();
  }();
  return kRecipe;
}

}  // namespace mxt::config
