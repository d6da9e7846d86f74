#include "infer/model.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/files.h"
#include "base/threads.h"
#include "bindings.h"
#include "infer/end_of_turn.h"
#include "infer/engine.h"
#include "infer/scorer.h"
#include "model_files.h"
#include "text.h"

namespace mxt::python {
namespace {

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::string text;
  bool stopped = false;
};

constexpr int64_t kPass = 2048;  // tokens scored at once, as the verb `score` has it

class Model {
 public:
  Model(const std::string& name, const std::string& adapter, const std::string& dtype, const std::string& device,
        int64_t positions, int threads)
      : path_(app::resolve_model(name, std::nullopt)), text_{name, app::load_text_side(path_, adapter)} {
    if (positions < 0) fail_input("Model: positions: {} is less than 0", positions);
    app::set_threads(threads);
    threads_ = num_threads();
    kernels::Ops& ops = app::ops_on(device);
    model_ = std::make_unique<infer::Model>(path_, adapter, app::compute_type(dtype, path_, device), positions, ops,
                                            infer::Weights::kForMany);
    if (positions > model_->positions())
      fail_input("Model: positions: {} is more than the {} that {} has", positions, model_->positions(), name);
    if (text_.side.tok) ends_ = infer::end_of_turn(*text_.side.tok, text_.side.chat.get(), model_->config());
  }

  const Text& text() const {
    if (!text_.side.tok) fail_input("{}: has no tokenizer: give token ids", text_.name);
    return text_;
  }
  int64_t positions() const { return model_->positions(); }
  int64_t vocab() const { return model_->vocab(); }

  // Called without the interpreter's lock, by one thread at a time.
  std::vector<std::vector<float>> score(const std::vector<std::vector<int32_t>>& rows) {
    const std::lock_guard one(mutex_);
    set_num_threads(threads_);
    size_t longest = 1;
    for (const auto& row : rows) longest = std::max(longest, row.size());
    const int64_t pass = std::min<int64_t>(std::max<int64_t>(static_cast<int64_t>(longest), kPass), 8192);
    if (!scorer_ || pass > pass_) scorer_ = std::make_unique<infer::Scorer>(*model_, pass_ = pass);
    return scorer_->score(rows);
  }

  std::vector<infer::Answer> generate(const std::vector<infer::Request>& requests, Raised& raised) {
    const std::lock_guard one(mutex_);
    set_num_threads(threads_);
    if (!engine_) engine_ = std::make_unique<infer::Engine>(*model_, infer::EngineSettings{});
    return engine_->generate(requests, [&](size_t, int32_t) {
      const nb::gil_scoped_acquire locked;
      return !raised.signalled();
    });
  }

  // A text, a conversation or ids.
  std::vector<int32_t> prompt_of(nb::handle prompt, const std::string& what) const {
    if (nb::isinstance<nb::str>(prompt)) return text().side.tok->encode_with_prefix(nb::cast<std::string>(prompt));
    const bool conversation = (nb::isinstance<nb::list>(prompt) || nb::isinstance<nb::tuple>(prompt)) &&
                              nb::len(prompt) > 0 && nb::isinstance<nb::dict>(prompt[0]);
    if (!conversation) return ids_of(prompt, what);
    std::vector<tokenizer::Span> plain;
    const std::string rendering = rendered(text().side, prompt, nb::none(), true, &plain, text_.name);
    return text_.side.tok->encode(rendering, plain);
  }
  const std::vector<int32_t>& ends() const { return ends_; }
  std::string decode(const std::vector<int32_t>& ids) const {
    return text_.side.tok ? text_.side.tok->decode(ids) : "";
  }

 private:
  std::string path_;
  Text text_;
  std::unique_ptr<infer::Model> model_;
  std::vector<int32_t> ends_;
  std::mutex mutex_;
  std::unique_ptr<infer::Scorer> scorer_;
  std::unique_ptr<infer::Engine> engine_;
  int64_t pass_ = 0;
  int threads_ = 1;
};

// A text is a sequence too, of its letters.
void refuse_text(const nb::sequence& rows, const char* what) {
  if (nb::isinstance<nb::str>(rows) || nb::isinstance<nb::bytes>(rows)) throw nb::type_error(what);
}

nb::list score(Model& model, const nb::sequence& rows) {
  refuse_text(rows, "score: rows are a list: [row] for one");
  std::vector<std::vector<int32_t>> ids;
  size_t n = 0;
  for (nb::handle row : rows) {
    const std::string what = fmt::format("score: row {}", n++);
    ids.push_back(nb::isinstance<nb::str>(row) ? model.prompt_of(row, what) : ids_of(row, what));
    for (const int32_t id : ids.back())
      if (id >= model.vocab())
        fail_input("{}: token id {} is outside the model's vocabulary of {}", what, id, model.vocab());
  }
  std::vector<std::vector<float>> scores;
  {
    const nb::gil_scoped_release unlocked;
    scores = model.score(ids);
  }
  nb::list out;
  for (auto& s : scores) out.append(array_of(std::move(s)));
  return out;
}

std::vector<Answer> generate(Model& model, const nb::sequence& prompts, int64_t max_tokens, double temperature,
                             double top_p, int64_t top_k, uint64_t seed) {
  if (max_tokens < 1) fail_input("generate: max_tokens: {} is less than 1", max_tokens);
  if (!(temperature >= 0) || !std::isfinite(temperature))
    fail_input("generate: temperature: {} is not 0 or more", temperature);
  if (!(top_p > 0 && top_p <= 1)) fail_input("generate: top_p: {} is not above 0 and at most 1", top_p);
  if (top_k < 0) fail_input("generate: top_k: {} is less than 0", top_k);
  refuse_text(prompts, "generate: prompts are a list: [prompt] for one");
  std::vector<infer::Request> requests;
  for (nb::handle p : prompts) {
    infer::Request r;
    r.prompt = model.prompt_of(p, fmt::format("generate: prompt {}", requests.size()));
    r.max_tokens = max_tokens;
    r.stop = model.ends();
    r.sampling = {temperature, top_k, top_p, 0, seed + requests.size()};
    requests.push_back(std::move(r));
  }
  Raised raised;
  std::vector<infer::Answer> made;
  {
    const nb::gil_scoped_release unlocked;
    made = model.generate(requests, raised);
  }
  raised.rethrow();
  std::vector<Answer> out;
  for (infer::Answer& a : made) {
    std::string text = model.decode(a.tokens);
    out.push_back({std::move(a.tokens), std::move(a.logprobs), std::move(text), a.stopped});
  }
  return out;
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<Answer>(m, "Answer", "What a model said to one prompt.")
      .def_prop_ro(
          "ids", [](const Answer& a) { return array_of(a.ids); }, nb::rv_policy::move)
      .def_prop_ro(
          "logprobs", [](const Answer& a) { return array_of(a.logprobs); }, nb::rv_policy::move,
          "of each id, before temperature")
      .def_ro("text", &Answer::text, "\"\" where the model has no tokenizer")
      .def_ro("stopped", &Answer::stopped, "by the end of its turn, and not by max_tokens")
      .def("__repr__", [](const Answer& a) { return nb::cast<std::string>(nb::repr(nb::cast(a.text))); });
  nb::class_<Model>(m, "Model", "A model in memory. Calls of several threads take turns.")
      .def(
          "__init__",
          [](Model* self, const fs::path& name, const std::optional<fs::path>& adapter,
             const std::optional<std::string>& dtype, const std::string& device, int64_t positions, int threads) {
            const nb::gil_scoped_release unlocked;
            new (self)
                Model(name.string(), adapter.value_or("").string(), dtype.value_or(""), device, positions, threads);
          },
          nb::arg("name"), nb::kw_only(), nb::arg("adapter") = nb::none(), nb::arg("dtype") = nb::none(),
          nb::arg("device") = "cpu", nb::arg("positions") = 0, nb::arg("threads") = 0,
          "name: a folder, a .gguf file, a Hub id or a short name; adapter: a PEFT folder, as a run's checkpoint; "
          "dtype: "
          "bfloat16 or float32 (none: the checkpoint's own); positions: the longest sequence (0: the model's, at most "
          "8,192).")
      .def("score", &score, nb::arg("rows"),
           nb::sig("def score(self, rows: collections.abc.Sequence[str | numpy.typing.NDArray[numpy.integer] | "
                   "collections.abc.Sequence[int]]) -> list[numpy.typing.NDArray[numpy.float32]]"),
           "For each row of ids, or text, the log-probability of every token given those before it; the first is NaN.")
      .def(
          "generate", &generate, nb::arg("prompts"), nb::kw_only(), nb::arg("max_tokens") = 128,
          nb::arg("temperature") = 0.0, nb::arg("top_p") = 1.0, nb::arg("top_k") = 0, nb::arg("seed") = 0,
          nb::sig("def generate(self, prompts: collections.abc.Sequence[str | collections.abc.Sequence[dict[str, "
                  "typing.Any]] | numpy.typing.NDArray[numpy.integer] | collections.abc.Sequence[int]], *, max_tokens: "
                  "int = 128, temperature: float = 0.0, top_p: float = 1.0, top_k: int = 0, seed: int = 0) -> "
                  "list[Answer]"),
          "An answer for each prompt: a text to go on with, a conversation (a list of messages) or ids. Temperature 0 "
          "is "
          "the most likely token.")
      .def_prop_ro("tokenizer", [](const Model& model) { return model.text(); })
      .def_prop_ro("positions", &Model::positions)
      .def_prop_ro("vocab_size", &Model::vocab);
}

}  // namespace mxt::python
