#include "tokenizer/tokenizer.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/threads.h"
#include "bindings.h"
#include "model_files.h"
#include "text.h"

namespace mxt::python {

std::string rendered(const app::TokenizerBundle& side, nb::handle messages, nb::handle tools,
                     bool add_generation_prompt, std::vector<tokenizer::Span>* plain, const std::string& name) {
  if (!side.chat) fail_input("{}: has no chat template", name);
  const OrderedJson said = from_python(messages, "messages");
  const OrderedJson offered = tools.is_none() ? OrderedJson() : from_python(tools, "tools");
  tokenizer::ChatInput in;
  in.messages = &said;
  if (!offered.is_null()) in.tools = &offered;
  in.add_generation_prompt = add_generation_prompt;
  auto r = side.chat->render_prompt(in);
  if (plain) *plain = std::move(r.plain);
  return r.text;
}

void bind_tokenizer(nb::module_& m) {
  nb::class_<Text>(m, "Tokenizer", "A model's tokenizer and chat template. Any number of threads may use it.")
      .def(
          "__init__",
          [](Text* self, const fs::path& named) {
            const std::string model = named.string();
            const nb::gil_scoped_release unlocked;
            const std::string path =
                app::resolve_model(model, std::nullopt, app::Fetch::kAllowed, app::Parts::kNoWeights);
            app::TokenizerBundle side = app::load_text_side(path);
            if (!side.tok) fail_input("{}: has no tokenizer", model);
            new (self) Text{model, std::move(side)};
          },
          nb::arg("model"),
          "A folder, a .gguf file, a Hub id or one of the short names that `mindxtrain models` lists.")
      .def(
          "encode",
          [](const Text& t, const std::string& text) {
            std::vector<int32_t> ids;
            {
              const nb::gil_scoped_release unlocked;
              ids = t.side.tok->encode_parallel(text, num_threads());
            }
            return array_of(std::move(ids));
          },
          nb::arg("text"), "The ids of Hugging Face's tokenizers, no special token added.")
      .def(
          "decode",
          [](const Text& t, nb::handle ids, bool skip_special) {
            return t.side.tok->decode(ids_of(ids, "decode"), skip_special);
          },
          nb::arg("ids"), nb::arg("skip_special") = false,
          nb::sig("def decode(self, ids: numpy.typing.NDArray[numpy.integer] | collections.abc.Sequence[int], "
                  "skip_special: bool = False) -> str"))
      .def(
          "render",
          [](const Text& t, nb::handle messages, nb::handle tools, bool add_generation_prompt) {
            return rendered(t.side, messages, tools, add_generation_prompt, nullptr, t.name);
          },
          nb::arg("messages"), nb::arg("tools") = nb::none(), nb::arg("add_generation_prompt") = false,
          nb::sig(
              "def render(self, messages: collections.abc.Sequence[collections.abc.Mapping[str, typing.Any]], tools: "
              "collections.abc.Sequence[collections.abc.Mapping[str, typing.Any]] | None = None, "
              "add_generation_prompt: bool = False) -> str"),
          "The text that the model's chat template makes of a conversation.")
      .def(
          "id", [](const Text& t, const std::string& token) { return t.side.tok->id_of(token); }, nb::arg("token"),
          "As the vocabulary spells it; -1 where it has no such token.")
      .def(
          "token", [](const Text& t, int32_t id) { return t.side.tok->token(id); }, nb::arg("id"))
      .def_prop_ro(
          "vocab_size", [](const Text& t) { return t.side.tok->vocab_size(); }, "largest id + 1")
      .def_prop_ro(
          "bos", [](const Text& t) { return t.side.tok->bos(); }, "-1 where there is none")
      .def_prop_ro("eos", [](const Text& t) { return t.side.tok->eos(); }, "-1 where there is none");
}

}  // namespace mxt::python
