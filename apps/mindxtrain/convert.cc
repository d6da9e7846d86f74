#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "formats/model_config.h"
#include "formats/nanochat_checkpoint.h"
#include "model_files.h"
#include "verbs.h"

namespace mxt::app {

void add_convert(CLI::App& app) {
  auto* c = app.add_subcommand("convert",
                               "a checkpoint of nanochat's own → a folder that every verb reads; nothing in it is "
                               "run\nexample: mindxtrain convert "
                               "base_checkpoints/d24/model_008352.pt --tokenizer tok --out d24");
  struct Options {
    std::string checkpoint, tokenizer, out;
  };
  auto o = std::make_shared<Options>();
  c->add_option("checkpoint", o->checkpoint, "model_NNNNNN.pt, with meta_NNNNNN.json beside it")->required();
  c->add_option("--tokenizer", o->tokenizer,
                "folder whose tokenizer goes along (`tokenizer train --ties rustbpe` learns nanochat's)");
  c->add_option("--out", o->out, "folder to write")->required();
  c->callback([o] {
    std::string out = o->out;
    while (out.size() > 1 && out.ends_with('/')) out.pop_back();
    constexpr const char* kMade = "/converted.json";
    if (fs::is_directory(out) && !fs::is_empty(out) && !fs::exists(out + kMade))
      fail_input("{}: this folder holds something else: choose another --out", o->out);
    const UnfinishedFolder folder(out);
    formats::convert_nanochat(o->checkpoint, folder.path());
    if (!o->tokenizer.empty() && !copy_text_files(o->tokenizer, folder.path()))
      fail_input("{}: has no tokenizer files", o->tokenizer);
    const int64_t ids = formats::read_model_config(folder.path()).vocab_size;
    if (const auto tok = o->tokenizer.empty() ? nullptr : load_text_side(folder.path()).tok;
        tok && tok->vocab_size() > ids)
      fail_input("--tokenizer {}: has {} ids and the checkpoint's vocabulary is {}: they do not belong together",
                 o->tokenizer, tok->vocab_size(), ids);
    if (o->tokenizer.empty()) log::info("no --tokenizer: {} has none, so it takes rows of ids alone", o->out);
    write_file_atomic(folder.path() + kMade, "{\"form\": \"nanochat\"}\n");
    replace_folder(folder.path(), out);
    std::printf("%s\n", o->out.c_str());
  });
}

}  // namespace mxt::app
