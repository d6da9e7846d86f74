#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "bindings.h"
#include "pipeline.h"
#include "recipe.h"
#include "verbs.h"

namespace mxt::python {
namespace {

// `app::g_stop` and the folder's lock are one run's.
std::mutex g_running;

// What asks a run to stop asks nothing of what is called after it: fetching a model looks at it, too.
struct NotStopped {
  NotStopped() { app::g_stop = false; }
  ~NotStopped() { app::g_stop = false; }
};

// False, or numpy's: what a comparison with an array's number gives.
bool says_stop(nb::handle answer) {
  if (answer.is(nb::bool_(false))) return true;
  const nb::object type = nb::getattr(answer, "dtype", nb::none());
  const nb::object kind = nb::getattr(type, "kind", nb::none());
  return nb::isinstance<nb::str>(kind) && nb::cast<std::string>(kind) == "b" && !nb::cast<bool>(nb::bool_(answer));
}

nb::object run(const Recipe& recipe, const fs::path& folder, const nb::object& on_step,
               const std::optional<fs::path>& plan, const std::optional<fs::path>& data, int threads) {
  const std::string out = folder.string();
  const std::unique_lock one(g_running, std::try_to_lock);
  if (!one) fail_input("run: another run is going on in this process: start a process for each");
  Raised raised;
  const NotStopped before_and_after;
  app::Pipeline::Options o;
  o.recipe = recipe.value;
  o.recipe_path = recipe.value.source;
  o.out = out;
  o.plan_path = plan.value_or("").string();
  o.data = data.value_or("").string();
  o.threads = threads;
  o.resume = true;
  o.on_step = [&](const train::StepMetrics& step) {
    const nb::gil_scoped_acquire locked;
    try {
      if (!raised && !on_step.is_none() && says_stop(on_step(step))) app::g_stop = true;
    } catch (...) {
      raised.keep();
    }
    if (raised.signalled()) app::g_stop = true;  // the state is saved first
  };
  bool finished = false;
  {
    const nb::gil_scoped_release unlocked;
    app::Pipeline pipeline(o);
    finished = pipeline.chain();
    if (finished) pipeline.require_gate();
  }
  raised.rethrow();
  nb::dict answer;
  answer["finished"] = finished;
  answer["checkpoint"] = out + "/checkpoint";
  answer["manifest"] = finished ? nb::cast(out + "/manifest.json") : nb::none();
  answer["results"] = nb::none();
  if (finished) {
    const OrderedJson manifest = parse_ordered_json(read_file(out + "/manifest.json"), out + "/manifest.json");
    const auto predicate = manifest.find("predicate");
    const OrderedJson& said = predicate == manifest.end() ? manifest : *predicate;
    if (said.contains("results")) answer["results"] = to_python(said["results"]);
  }
  return answer;
}

}  // namespace

void bind_run(nb::module_& m) {
  using S = train::StepMetrics;
  nb::class_<S>(m, "Step", "An optimizer step of a run, as metrics.jsonl has it.")
      .def_ro("step", &S::step, "counts from 1")
      .def_ro("loss", &S::loss)
      .def_ro("lr", &S::lr)
      .def_ro("grad_norm", &S::grad_norm)
      .def_ro("tokens", &S::tokens, "seen so far")
      .def_ro("tok_s", &S::tok_s)
      .def_ro("tflops", &S::tflops)
      .def_ro("memory", &S::memory, "bytes in use")
      .def_ro("eval_loss", &S::eval_loss, "where this step was followed by an evaluation")
      .def_ro("method", &S::method, "what the method says beside: rewards, margins")
      .def("__repr__", [](const S& s) { return fmt::format("<mindxtrain.Step {}: loss {:.4f}>", s.step, s.loss); });
  m.def(
      "run", &run, nb::arg("recipe"), nb::arg("out"), nb::arg("on_step") = nb::none(), nb::kw_only(),
      nb::arg("plan") = nb::none(), nb::arg("data") = nb::none(), nb::arg("threads") = 0,
      nb::sig(
          "def run(recipe: Recipe, out: str | os.PathLike[str], on_step: collections.abc.Callable[[Step], bool | "
          "numpy.bool_ "
          "| None] | None = None, *, plan: str | os.PathLike[str] | None = None, data: str | os.PathLike[str] | None = "
          "None, threads: int = 0) -> dict[str, typing.Any]"),
      "The whole chain into the folder `out`, as `mindxtrain run`: plan, prepare, train, evaluate, quantize, receipt. "
      "On "
      "the same folder again it keeps what is finished. on_step is called after each step; where it returns False or "
      "raises, or Ctrl-C is pressed, the state is saved and the same call goes on later. The answer: finished, "
      "checkpoint, manifest, results.");
}

}  // namespace mxt::python
