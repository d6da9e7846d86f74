// Declarations of what comes after training: eval, quantize, serve and receipt.
#include "config/field.h"

namespace mxt::config {

Section declare(const Harness*) {
  Declaration<Harness> d("Tasks in lm-evaluation-harness's format.");
  d.field("tasks", &Harness::tasks, "Names of tasks; [] = none.");
  d.field("fewshot", &Harness::fewshot, "Examples before each question.")
      .range(0, 1000)
      .default_is("the task's own number");
  d.field("limit", &Harness::limit, "Documents of each task at most.").min(1).plus();
  d.field("task_path", &Harness::task_path, "Folder of task YAML.").non_empty().plus();
  return d.take();
}

Section declare(const Regression*) {
  Declaration<Regression> d("Gate against a baseline.");
  d.field("baseline", &Regression::baseline, "Model id, folder or results file; \"\" = off.");
  d.field(
      "threshold_pct", &Regression::threshold_pct,
      "Change allowed, in percent of the baseline's score; negative = a drop (-1.0: fails when a task falls by more "
      "than 1 %).");
  return d.take();
}

Section declare(const Generation*) {
  Declaration<Generation> d("Answers to held-out rows, compared with the rows' own.");
  d.field("limit", &Generation::limit, "Rows at most.").min(1).plus();
  d.field("max_tokens", &Generation::max_tokens, "Longest answer in tokens.").range(1, 1'048'576).plus();
  d.field("match", &Generation::match,
          "exact = the row's own answer, letter by letter; answer = also how many end in its number (or have it in "
          "\\boxed{}).")
      .later();
  d.field("samples", &Generation::samples, "Answers of each row sampled at temperature 1, beside the greedy one.")
      .range(0, 1024)
      .later();
  return d.take();
}

Section declare(const Eval*) {
  Declaration<Eval> d("Evaluation of the trained model.");
  d.field("harness", &Eval::harness, "Tasks in lm-evaluation-harness's format.");
  d.field("regression", &Eval::regression, "Gate against a baseline.");
  d.field("generation", &Eval::generation, "Answers to the held-out rows of a synth task, by exact match.")
      .plus()
      .derived("on where data has synth rows", [](const Recipe& r) -> std::optional<Generation> {
        if (r.data.made() && r.data.made()->task != SynthTask::kToolUse) return Generation{};
        return {};
      });
  d.field("perplexity_path", &Eval::perplexity_path,
          "Text file whose perplexity is reported for the base and the trained model.")
      .non_empty()
      .plus();
  d.field("bits_per_byte", &Eval::bits_per_byte,
          "Bits per byte of the held-out rows, of the base and the trained model: a loss that does not depend on the "
          "vocabulary.")
      .later();
  d.field("core", &Eval::core, "Folder of CORE's tasks as nanochat's bundle has them, asked of the trained model.")
      .non_empty()
      .later();
  d.field("chat_core", &Eval::chat_core,
          "Folder of ChatCORE's tasks (ARC, MMLU, GSM8K, HumanEval), asked of the trained model in chats.")
      .non_empty()
      .later();
  return d.take();
}

Section declare(const Quantize*) {
  Declaration<Quantize> d("A smaller copy of the trained model.");
  d.field("enabled", &Quantize::enabled, "false = off.");
  d.field("scheme", &Quantize::scheme, "Number format and file layout; none = off.");
  d.field("ptpc", &Quantize::ptpc,
          "quark_fp8: per-token activations and per-channel weights; false = one scale a tensor.");
  return d.take();
}

Section declare(const Serve*) {
  Declaration<Serve> d("How the trained model is served.");
  d.field("backend", &Serve::backend, "native = this program's engine; else the operator in front of that server.");
  d.field("reasoning_parser", &Serve::reasoning_parser, "How thinking is told from the answer.");
  d.field("tool_call_parser", &Serve::tool_call_parser, "How tool calls are found in the answer.");
  d.field("tensor_parallel", &Serve::tensor_parallel, "Devices that share one model.").range(1, 1024);
  d.field("max_model_len", &Serve::max_model_len, "Longest prompt and answer together, in tokens.").min(512);
  d.field("host", &Serve::host, "Address to listen on.").non_empty().plus();
  d.field("port", &Serve::port, "Port to listen on.").range(1024, 65535);
  d.field("upstream", &Serve::upstream, "URL of a running vLLM or SGLang, for those backends.").non_empty().plus();
  return d.take();
}

Section declare(const Receipt*) {
  Declaration<Receipt> d("What the receipt says and where it is written.");
  d.field("output", &Receipt::output, "File that the receipt is written to.").non_empty();
  d.field("include", &Receipt::include, "What it says.").default_is("all");
  d.field("sign_key", &Receipt::sign_key, "Key that signs the manifest, made by `mindxtrain key new`.")
      .non_empty()
      .plus();
  return d.take();
}

}  // namespace mxt::config
