#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "help.h"
#include "kernels/backend.h"
#include "model_files.h"
#include "run_record.h"
#include "verbs.h"

namespace mxt::app {

namespace {

// The first signal asks for a safe stop; the second one ends the program at once.
void on_signal(int) {
  if (g_stop.exchange(true)) std::_Exit(static_cast<int>(Exit::kInterrupted));
}

// CLI11's words. The smallest and the largest double stand for "above 0" and "no bound" in its checks.
std::string plainly(std::string what) {
  constexpr std::string_view kValue = ": Value ", kRange = " not in range 0.000000 to 17976931348623157";
  const size_t at = what.find(kValue), range = what.find(kRange);
  if (at == std::string::npos || range == std::string::npos || range < at) return what;
  const std::string value = what.substr(at + kValue.size(), range - at - kValue.size());
  const bool zero = value.find_first_not_of("0.+-") == std::string::npos;
  return fmt::format("{}: is {}: a number {} is wanted", what.substr(0, at), value, zero ? "above 0" : "of 0 or more");
}

// CLI11 says of an option that it does not know only that.
void require_options(const CLI::App& app, const std::vector<std::string>& given) {
  const CLI::App* verb = &app;
  std::string name;
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().front();
    name += " " + verb->get_name();
  }
  std::vector<std::string> known;
  for (const CLI::App* a = verb; a; a = a->get_parent())
    for (const CLI::Option* o : a->get_options())
      for (const std::string& l : o->get_lnames()) known.push_back("--" + l);
  for (const std::string& word : given) {
    const std::string option = word.substr(0, word.find('='));
    if (!option.starts_with("--") || std::find(known.begin(), known.end(), option) != known.end()) continue;
    const std::string near = nearest(option, known);
    fail_input("{}: is no option of{}{} (mindxtrain help{} lists them)", printable(option),
               name.empty() ? " mindxtrain" : name, near.empty() ? "" : fmt::format("; did you mean {}?", near), name);
  }
}

int run(int argc, char** argv) {
  CLI::App app{
      "mindxtrain: fine-tunes a language model on your own data and machine. `mindxtrain run recipe.yaml --out DIR` "
      "does everything; the other verbs are its parts. Begin with `mindxtrain doctor` and `mindxtrain init --list`."};
  // CLI11 would take the next option for the value.
  for (int i = 1; i < argc; ++i)
    if (const std::string_view a = argv[i]; a.starts_with("--") && a.find('=') == a.size() - 1)
      fail_input("{} a value is missing (an empty one is written {} \"\")", a, a.substr(0, a.size() - 1));
  kernels::treat_cuda_as(environment("MINDXTRAIN_CUDA_CAPABILITY"));
  fit_help(app);
  app.require_subcommand(0, 1);  // none: the verbs are listed
  app.fallthrough();
  app.set_version_flag("--version", [] { return version_text(); });
  app.add_flag_callback("--quiet", [] { log::set_level(log::Level::kWarn); }, "only warnings and errors on stderr");
  add_run(app);
  add_init(app);
  add_validate(app);
  add_plan(app);
  add_bench(app);
  add_dataset(app);
  add_train(app);
  add_eval(app);
  add_score(app);
  add_embed(app);
  add_chat(app);
  add_serve(app);
  add_merge(app);
  add_convert(app);
  add_export(app);
  add_quantize(app);
  add_tokenizer(app);
  add_receipt(app);
  add_runs(app);
  add_cid(app);
  add_publish(app);
  add_anchor(app);
  add_key(app);
  add_doctor(app);
  add_models(app);
  add_completion(app);
  add_version(app);
  add_help(app);
  add_footers(app);
  // CLI11 says of a verb that it does not know only that one is required.
  int at = 1;
  while (at < argc && argv[at][0] == '-') ++at;  // --quiet
  if (at < argc) {
    require_verb(app, argv[at]);
    const CLI::App& verb = *app.get_subcommand(argv[at]);
    if (at + 1 < argc && argv[at + 1][0] != '-' && verb.get_require_subcommand_min() > 0)
      require_verb(verb, argv[at + 1]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    if (dynamic_cast<const CLI::ExtrasError*>(&e)) require_options(app, app.remaining(true));
    log::line(log::Level::kError, "mindxtrain: " + printable(plainly(e.what())) +
                                      " (mindxtrain --help lists verbs, mindxtrain VERB --help their options)");
    return static_cast<int>(Exit::kBadInput);
  }
  if (app.get_subcommands().empty()) std::fputs(app.help().c_str(), stdout);
  return g_exit;
}

// A descriptor that a file opened later would get in the place of a closed stdin, stdout or stderr: what is printed
// would go into that file.
void open_closed_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) std::_Exit(static_cast<int>(Exit::kBadInput));
}

// An answer that did not reach its file is no success; a reader that has gone (a closed pipe) had what it wanted.
int flush_answer(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  if (errno == 0 && write(1, "\n", 1) == 1) errno = EIO;  // an earlier write failed, this one does not
  if (errno == EPIPE) return code;
  log::line(log::Level::kError,
            fmt::format("mindxtrain: the answer could not be written to stdout: {}", std::strerror(errno)));
  return code == 0 ? static_cast<int>(Exit::kBadInput) : code;
}

}  // namespace
}  // namespace mxt::app

int main(int argc, char** argv) {
  using namespace mxt;
  app::open_closed_streams();
  if (const std::string tmp = app::environment("TMPDIR"); !tmp.empty() && !fs::is_directory(tmp)) {
    log::warn("TMPDIR={} is no folder: /tmp is used", printable(tmp));
    unsetenv("TMPDIR");
  }
  struct sigaction sa{};
  sa.sa_handler = app::on_signal;
  sigaction(SIGINT, &sa, nullptr);
  sigaction(SIGTERM, &sa, nullptr);
  // A terminal that was closed; under nohup it stays ignored.
  struct sigaction before{};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &sa, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file over `ulimit -f` is a failed write, said as such
  try {
    return app::flush_answer(app::run(argc, argv));
  } catch (const Error& e) {
    log::line(log::Level::kError, "mindxtrain: " + printable(e.what()));
    app::note_failure(e.what());
    return static_cast<int>(e.code());
  } catch (const std::bad_alloc&) {
    log::line(log::Level::kError, "mindxtrain: out of memory");
    return static_cast<int>(Exit::kBadInput);
  } catch (const std::exception& e) {
    log::line(log::Level::kError, "mindxtrain: " + printable(e.what()));
    return static_cast<int>(Exit::kBadInput);
  }
}
