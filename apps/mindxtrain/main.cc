#include <csignal>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "run_record.h"
#include "version.h"
#include "verbs.h"

namespace mxt::app {

int g_exit = 0;
std::atomic<bool> g_stop{false};

namespace {

// The first signal asks for a safe stop; the second one ends the program at once.
void on_signal(int) {
  if (g_stop.exchange(true)) std::_Exit(static_cast<int>(Exit::kInterrupted));
}

int run(int argc, char** argv) {
  CLI::App app{"mindxtrain: one person's fine-tuner. `mindxtrain run recipe.yaml --out DIR` does everything; the other verbs are its parts."};
  app.require_subcommand(1);
  app.fallthrough();
  bool quiet = false;
  app.add_flag("--quiet", quiet, "only warnings and errors on stderr");
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
  add_quantize(app);
  add_tokenizer(app);
  add_receipt(app);
  add_runs(app);
  add_doctor(app);
  app.add_subcommand("version", "what this binary is")->callback([] { std::printf("mindxtrain %s\n", kVersion); });
  app.preparse_callback([&](size_t) {
    if (quiet) log::set_level(log::Level::kWarn);
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    log::line(log::Level::kError, std::string("mindxtrain: ") + e.what() + " (mindxtrain --help lists verbs, mindxtrain VERB --help their options)");
    return static_cast<int>(Exit::kBadInput);
  }
  return g_exit;
}

}  // namespace
}  // namespace mxt::app

int main(int argc, char** argv) {
  using namespace mxt;
  struct sigaction sa {};
  sa.sa_handler = app::on_signal;
  sigaction(SIGINT, &sa, nullptr);
  sigaction(SIGTERM, &sa, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file over `ulimit -f` is a failed write, said as such
  try {
    return app::run(argc, argv);
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
