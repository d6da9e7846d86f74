#include <dlfcn.h>
#include <nanobind/stl/string.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/host.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "bindings.h"
#include "provenance/identity.h"
#include "version.h"

namespace mxt::python {
namespace {

PyObject* g_types[5] = {};  // by exit code; [0]: of all

PyObject* exception_type(nb::module_& m, const char* name, const char* says, PyObject* base, int code) {
  PyObject* type = PyErr_NewExceptionWithDoc((std::string("mindxtrain.") + name).c_str(), says, base, nullptr);
  if (!type) throw nb::python_error();
  m.attr(name) = nb::handle(type);
  nb::setattr(type, "exit_code", nb::int_(code));
  return g_types[code] = type;
}

// What ships lies beside this file where it was installed, PREFIX/lib/pythonX.Y/site-packages/mindxtrain: as the
// program's own PREFIX/bin has it.
void find_home() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<const void*>(&find_home), &here) || !here.dli_fname) return;
  std::error_code ec;
  const fs::path file = fs::canonical(here.dli_fname, ec), folder = file.parent_path();
  const fs::path prefix = folder.parent_path().parent_path().parent_path().parent_path();
  set_program(file.string(),
              (fs::is_directory(prefix / "share" / "mindxtrain", ec) ? prefix / "bin" : folder).string());
}

void set_log_level(const std::string& level) {
  if (level == "info")
    log::set_level(log::Level::kInfo);
  else if (level == "warn")
    log::set_level(log::Level::kWarn);
  else if (level == "error")
    log::set_level(log::Level::kError);
  else
    fail_input("set_log_level: {}: info, warn or error", printable(level));
}

}  // namespace

void bind_errors(nb::module_& m) {
  PyObject* error =
      exception_type(m, "Error", "What went wrong, in the one line that the command would print.", PyExc_Exception, 0);
  nb::object bad = nb::make_tuple(nb::handle(error), nb::handle(PyExc_ValueError));
  exception_type(m, "BadInput", "A recipe, a file or an argument is wrong; the line says which and what to do.",
                 bad.ptr(), 1);
  exception_type(m, "VerifyFailed", "A digest, gate or comparison did not hold.", error, 2);
  exception_type(m, "Missing", "Something is not on this machine; the line says how to get it.", error, 3);
  exception_type(m, "Interrupted", "Stopped; nothing half done is left behind.", error, 4);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      PyErr_SetString(g_types[static_cast<int>(e.code())], printable(e.what()).c_str());
    }
  });
}

nb::object to_python(const OrderedJson& j) { return nb::module_::import_("json").attr("loads")(json_text(j)); }

OrderedJson from_python(nb::handle object, const std::string& what) {
  std::string text;
  try {
    text = nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(object));
  } catch (nb::python_error& e) {
    fail_input("{}: is not what JSON can hold: {}", what, nb::cast<std::string>(nb::str(e.value())));
  }
  return parse_ordered_json(text, what);
}

std::vector<int32_t> ids_of(nb::handle object, const std::string& what) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  nb::object a;
  try {
    a = numpy.attr("asarray")(object);
  } catch (nb::python_error&) {
    fail_input("{}: token ids are a row of integers", what);
  }
  const auto kind = nb::cast<std::string>(a.attr("dtype").attr("kind"));
  const bool empty = nb::cast<size_t>(a.attr("size")) == 0;
  if (nb::cast<int>(a.attr("ndim")) != 1 || (kind != "i" && kind != "u" && !empty))
    fail_input("{}: token ids are a row of integers", what);
  a = numpy.attr("ascontiguousarray")(a, numpy.attr("int64"));
  const auto values = nb::cast<nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(a);
  std::vector<int32_t> ids;
  ids.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t id = values.data()[i];
    if (id < 0 || id > INT32_MAX) fail_input("{}: {} is no token id", what, id);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

bool Raised::signalled() {
  if (!what_ && PyErr_CheckSignals() != 0) {
    try {
      throw nb::python_error();
    } catch (...) {
      keep();
    }
  }
  return what_ != nullptr;
}

}  // namespace mxt::python

NB_MODULE(_mindxtrain, m) {
  using namespace mxt::python;
  find_home();
  m.doc() = "mindXtrain: fine-tunes language models on one machine. The command `mindxtrain` does the same and more.";
  m.attr("__version__") = mxt::app::kVersion;
  bind_errors(m);
  m.def("set_log_level", &set_log_level, nb::arg("level"), "What is said on stderr: \"info\", \"warn\" or \"error\".");
  bind_recipe(m);
  bind_run(m);
  bind_tokenizer(m);
  bind_model(m);
}
