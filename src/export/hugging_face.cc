#include "export/hugging_face.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/curate.h"
#include "export/limits.h"

namespace mxt::exporting {

std::string optimizer_name(const config::Recipe& r) {
  using O = config::OptimizerName;
  switch (r.train.optimizer.name) {
    case O::kAdamwTorchFused:
      return r.hardware.cpu_lane() ? "adamw_torch" : "adamw_torch_fused";
    case O::kAdamwTorch:
      return "adamw_torch";
    case O::kAdamw8bit:
      return "adamw_bnb_8bit";
    case O::kLion:
      return "lion_32bit";
    case O::kAdafactor:
      return "adafactor";
    case O::kMuon:
      break;
  }
  MXT_ASSERT(false);
}

OrderedJson warmup_of(const config::Schedule& c, Settings* s) {
  OrderedJson warmup = 0;
  if (c.warmup_steps)
    warmup = *c.warmup_steps;
  else if (c.max_steps)
    warmup = static_cast<int64_t>(std::nearbyint(c.warmup_ratio * static_cast<double>(*c.max_steps)));
  else if (c.warmup_ratio > 0)
    warmup = c.warmup_ratio;
  if (warmup != 0)
    s->differs.push_back(
        "warm-up: step s of W has s/W of the rate there, (s+1)/W here; the first step there changes nothing");
  return warmup;
}

Schedule schedule_of(const Job& job, std::string_view title, Settings* s) {
  const config::Schedule& c = job.recipe.train.schedule;
  const double m = c.min_lr_ratio;
  Schedule out;
  out.kwargs = OrderedJson::object();
  switch (c.type) {
    case config::ScheduleType::kCosine:
      out.type = m > 0 ? "cosine_with_min_lr" : "cosine";
      if (m > 0) out.kwargs = {{"min_lr_rate", m}};
      break;
    case config::ScheduleType::kLinear:
      // A straight line to a rate above 0 is a polynomial of the first degree.
      out.type = m > 0 ? "polynomial" : "linear";
      if (m > 0) out.kwargs = {{"lr_end", job.recipe.train.optimizer.lr * m}, {"power", 1.0}};
      break;
    case config::ScheduleType::kConstant:
      out.type = "constant_with_warmup";
      break;
    case config::ScheduleType::kWsd: {
      if (!c.max_steps && job.launched) {  // whoever launches it gives it the rates
        out.type = "constant";
        break;
      }
      if (!c.max_steps)
        cannot(job, title, "train.schedule.type",
               "fall over a part of the steps without knowing their number (set max_steps)");
      out.type = "warmup_stable_decay";
      const auto fall =
          static_cast<int64_t>(std::nearbyint(c.decay_ratio.value_or(0.2) * static_cast<double>(*c.max_steps)));
      out.kwargs = {{"num_decay_steps", fall}, {"min_lr_ratio", m}, {"decay_type", "linear"}};
      break;
    }
  }
  out.warmup = warmup_of(c, s);
  return out;
}

std::string weight_dtype(const config::Recipe& r) {
  // Without autocast a product is computed in the type that its weights are held in.
  const bool whole = !r.train.method.lora || r.train.precision == config::Precision::kFloat32;
  return whole ? "float32" : std::string(config::text_of(r.model.torch_dtype));
}

bool evaluates(const Job& job) {
  return job.recipe.train.eval_every && (job.rows.held_out || job.recipe.data.eval_fraction > 0);
}

void put_training_arguments(const Job& job, std::string_view title, Settings* s) {
  const config::Recipe& r = job.recipe;
  const config::Train& t = r.train;
  OrderedJson& y = s->yaml;
  y["output_dir"] = job.out + "/out";
  y["run_name"] = r.meta.run_name;
  y["seed"] = r.meta.seed;
  if (r.train.neftune_noise_alpha) y["neftune_noise_alpha"] = *r.train.neftune_noise_alpha;
  y["data_seed"] = r.meta.seed;
  y["optim"] = optimizer_name(r);
  y["learning_rate"] = t.optimizer.lr;
  y["adam_beta1"] = t.optimizer.betas[0];
  y["adam_beta2"] = t.optimizer.betas[1];
  y["adam_epsilon"] = t.optimizer.eps;
  y["weight_decay"] = t.optimizer.weight_decay;
  y["max_grad_norm"] = t.optimizer.grad_clip;
  const Schedule schedule = schedule_of(job, title, s);
  y["lr_scheduler_type"] = schedule.type;
  if (!schedule.kwargs.empty()) y["lr_scheduler_kwargs"] = schedule.kwargs;
  y["warmup_steps"] = schedule.warmup;
  y["num_train_epochs"] = t.schedule.epochs;
  if (t.schedule.max_steps) y["max_steps"] = *t.schedule.max_steps;
  y["per_device_train_batch_size"] = t.batch.per_device;
  y["gradient_accumulation_steps"] = t.batch.grad_accum;
  y["bf16"] = t.precision == config::Precision::kBFloat16;
  y["fp16"] = t.precision == config::Precision::kFloat16;
  if (r.hardware.cpu_lane()) y["use_cpu"] = true;
  y["logging_steps"] = 1;
  y["save_strategy"] = t.save_every ? "steps" : "no";
  if (t.save_every) y["save_steps"] = *t.save_every;
  y["save_total_limit"] = t.keep_last;
  if (evaluates(job)) {
    y["eval_strategy"] = "steps";
    y["eval_steps"] = *t.eval_every;
    y["per_device_eval_batch_size"] = t.batch.per_device;
  }
  OrderedJson trackers = OrderedJson::array();
  for (const auto tracker : t.report_to) trackers.push_back(config::text_of(tracker));
  y["report_to"] = trackers.empty() ? OrderedJson("none") : trackers;
}

void note_data(const Job& job, Settings* s, bool holds_out) {
  const config::Recipe& r = job.recipe;
  const bool hub = !job.rows.hub_id.empty();
  if (hub && data::curates(r.data))
    s->differs.push_back("data.dedupe, data.filter: the Hub's rows are read as they are");
  if (hub && r.data.max_samples) s->differs.push_back("data.max_samples: all rows of the split are read");
  if (hub && r.data.sql) s->differs.push_back("data.sql: the Hub's rows are read as they are");
  if (hub && !r.data.columns.empty())
    s->differs.push_back("data.columns: columns must have the names that it looks for");
  if (r.data.eval_fraction > 0)
    s->differs.push_back(holds_out ? "data.eval_fraction: other rows are held out, as many"
                                   : "data.eval_fraction: no row is held out there, all are trained on");
  if (!r.data.mixture.empty()) s->differs.push_back("data.mixture: sources one after another, without their weights");
  if (job.rows.form != Form::kTokens)
    s->differs.push_back(
        "tokens: that trainer renders, cuts and masks the rows itself (--data PREPARED gives it ours, where it reads "
        "them)");
}

}  // namespace mxt::exporting
