// One file per verb; each registers its command line and what it does. main.cc turns errors into a line and an exit
// code.
#pragma once

#include <CLI/CLI.hpp>

#include "exit.h"

namespace mxt::app {

void add_init(CLI::App& app);
void add_validate(CLI::App& app);  // and schema
void add_doctor(CLI::App& app);
void add_plan(CLI::App& app);
void add_bench(CLI::App& app);
void add_dataset(CLI::App& app);
void add_train(CLI::App& app);
void add_run(CLI::App& app);
void add_eval(CLI::App& app);
void add_score(CLI::App& app);
void add_embed(CLI::App& app);
void add_chat(CLI::App& app);
void add_serve(CLI::App& app);
void add_merge(CLI::App& app);
void add_convert(CLI::App& app);
void add_quantize(CLI::App& app);
void add_tokenizer(CLI::App& app);
void add_tokenizer_train(CLI::App& tokenizer);
void add_receipt(CLI::App& app);
void add_runs(CLI::App& app);
void add_cid(CLI::App& app);
void add_publish(CLI::App& app);
void add_anchor(CLI::App& app);
void add_key(CLI::App& app);
void add_export(CLI::App& app);

}  // namespace mxt::app
