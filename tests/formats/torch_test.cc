// Checkpoints of torch.save and nanochat's own (tools/golden/nanochat_own.py): tensors as they were saved, and a
// refusal of everything that is more than tensors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "formats/nanochat_checkpoint.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

namespace mxt::formats {
namespace {

std::string golden(const std::string& name) { return std::string(kSourceDir) + "/tests/golden/nanochat/" + name; }

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "no error";
}

class Torch : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "mxt_torch_" + std::to_string(::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string put(const std::string& name, const std::string& bytes) {
    write_file_atomic(folder_ + "/" + name, bytes);
    return folder_ + "/" + name;
  }
  // A copy of the small checkpoint whose data.pkl is replaced by as many bytes (the entry is stored, so they fit).
  std::string with_pickle(const std::string& code) {
    std::string bytes = read_file(golden("small.pt"));
    const TorchFile whole = TorchFile::open(golden("small.pt"));
    const size_t at = bytes.find("data.pkl") + 8;
    size_t start = bytes.find("\x80\x02", at);
    bytes.replace(start, code.size(), code);
    return put("changed.pt", bytes);
  }
  std::string folder_;
};

TEST_F(Torch, TensorsAreAsTheyWereSaved) {
  const TorchFile f = TorchFile::open(golden("small.pt"));
  const Json want = read_json_file(golden("small.json"));
  ASSERT_EQ(f.tensors().size(), want.size());
  for (const Json& w : want) {
    const TorchTensor* t = f.find(w["name"].get<std::string>());
    ASSERT_TRUE(t) << w["name"];
    EXPECT_EQ(name_of(t->type), w["type"].get<std::string>());
    EXPECT_EQ(t->shape, w["shape"].get<std::vector<int64_t>>());
    std::string hex;
    for (const std::byte b : t->bytes) hex += fmt::format("{:02x}", static_cast<int>(b));
    EXPECT_EQ(hex, w["bytes"].get<std::string>()) << w["name"];
  }
}

TEST_F(Torch, CodeIsRefusedAndNotRun) {
  // cos.system ("touch FILE") — what pickle would run.
  const std::string victim = folder_ + "/victim";
  const std::string attack =
      "\x80\x02"
      "cposix\nsystem\nX" +
      std::string("\x06\0\0\0", 4) + "touch \x85R.";
  EXPECT_NE(error_of([&] { TorchFile::open(with_pickle(attack)); }).find("holds code (posix.system)"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(victim));
  for (const char* name :
       {"builtins\neval", "torch\nload", "torch._utils\n_rebuild_tensor_v3", "collections\ndefaultdict"})
    EXPECT_NE(error_of([&] {
                TorchFile::open(
                    with_pickle("\x80\x02"
                                "c" +
                                std::string(name) + "\n."));
              }).find("holds code"),
              std::string::npos)
        << name;
}

TEST_F(Torch, OtherPicklesAreRefused) {
  for (const auto& [code, part] : {std::pair{std::string("\x80\x02N."), "makes no dictionary"},
                                   {std::string("\x80\x02}X\x01\0\0\0aK\x01s.", 13), "no tensor with a name"},
                                   {std::string("\x80\x02R."), "takes what is not there"},
                                   {std::string("\x80\x02u."), "a mark is missing"},
                                   {std::string("\x80\x02h\x07."), "never kept"},
                                   {std::string("\x80\x02i."), "none that tensors need"},
                                   {std::string("\x80\x09."), "newer than 5"},
                                   {std::string("\x80\x02X\xff\xff\xff\x7f."), "cut"}})
    EXPECT_NE(error_of([&] { TorchFile::open(with_pickle(code)); }).find(part), std::string::npos) << part;
  // Tuples in tuples without end: no recursion follows them.
  const TorchFile whole = TorchFile::open(golden("small.pt"));
  EXPECT_NE(error_of([&] {
              TorchFile::open(with_pickle("\x80\x02)" + std::string(300, '\x85') + "."));
            }).find("makes no dictionary"),
            std::string::npos);
}

TEST_F(Torch, CutAndForeignFilesAreRefused) {
  const std::string bytes = read_file(golden("small.pt"));
  EXPECT_NE(error_of([&] { TorchFile::open(put("cut.pt", bytes.substr(0, bytes.size() / 2))); }).find("cut"),
            std::string::npos);
  EXPECT_NE(error_of([&] { TorchFile::open(put("text.pt", "hello")); }).find("too short"), std::string::npos);
  EXPECT_NE(error_of([&] { TorchFile::open(put("text.pt", std::string(500, 'x'))); }).find("no zip directory"),
            std::string::npos);
  // Any byte of the directory changed: an error or the same tensors, never more.
  for (size_t at = bytes.size() - 400; at < bytes.size(); at += 3) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x5a);
    try {
      TorchFile::open(put("flip.pt", changed));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kBadInput);
    }
  }
}

TEST_F(Torch, NanochatsCheckpointBecomesAFolder) {
  const std::string d = golden("gqa/");
  convert_nanochat(d + "model_000007.pt", folder_);
  const Json config = read_json_file(folder_ + "/config.json");
  EXPECT_EQ(config["model_type"], "nanochat_v2");
  EXPECT_EQ(config["vocab_size"], 251);
  EXPECT_EQ(config["value_embeddings"], true);
  const Safetensors made = Safetensors::open(folder_);
  const TorchFile from = TorchFile::open(d + "model_000007.pt");
  EXPECT_EQ(made.tensors().size(), from.tensors().size());
  const TensorInfo& table = made.at("model.embed_tokens.weight");
  EXPECT_EQ(table.shape[0], 251) << "rows that pad the vocabulary are left out";
  const TorchTensor* wte = from.find("transformer.wte.weight");
  EXPECT_EQ(wte->shape[0], 256);
  EXPECT_EQ(std::memcmp(made.bytes(table).data(), wte->bytes.data(), table.bytes), 0);
}

// tools/golden/nanochat_compiled.py: names of a module of torch.compile.
TEST_F(Torch, ACompiledModelsNamesAreTheModels) {
  convert_nanochat(golden("compiled/model_000003.pt"), folder_);
  const Safetensors made = Safetensors::open(folder_);
  EXPECT_EQ(made.tensors().size(), 8u);
  EXPECT_EQ(made.at("model.embed_tokens.weight").shape, (std::vector<int64_t>{61, 16}));
  EXPECT_EQ(read_json_file(folder_ + "/config.json")["value_embeddings"], false);
}

TEST_F(Torch, WhatAMetaFileSaysOfAnotherModelIsRefused) {
  const std::string d = golden("gqa/");
  const Json good = read_json_file(d + "meta_000007.json");
  fs::copy_file(d + "model_000007.pt", folder_ + "/model_000007.pt");
  const auto refused = [&](const char* key, const Json& value) {
    Json meta = good;
    meta["model_config"][key] = value;
    put("meta_000007.json", meta.dump());
    fs::create_directories(folder_ + "/out");
    EXPECT_NE(error_of([&] { convert_nanochat(folder_ + "/model_000007.pt", folder_ + "/out"); }).find(key),
              std::string::npos)
        << key << value;
    EXPECT_FALSE(fs::exists(folder_ + "/out/config.json"));
  };
  refused("use_smear", false);
  refused("rope_base", 10000);
  for (const char* windows : {"", "XL", "S L", "LLM"}) refused("window_pattern", windows);
}

TEST_F(Torch, ACheckpointOfAnotherDepthIsRefused) {
  const std::string d = golden("gqa/");
  Json meta = read_json_file(d + "meta_000007.json");
  fs::copy_file(d + "model_000007.pt", folder_ + "/model_000007.pt");
  const auto convert = [&] {
    put("meta_000007.json", meta.dump());
    fs::create_directories(folder_ + "/out");
    return error_of([&] { convert_nanochat(folder_ + "/model_000007.pt", folder_ + "/out"); });
  };
  const Json good = meta;
  meta["model_config"]["n_layer"] = 2;
  EXPECT_NE(convert().find("another depth"), std::string::npos);
  meta["model_config"]["n_layer"] = 5;
  EXPECT_NE(convert().find("another depth"), std::string::npos);
  meta = good;
  meta["model_config"]["n_embd"] = 24;
  EXPECT_NE(convert().find("has shape"), std::string::npos);
  meta["model_config"]["n_head"] = "four";
  EXPECT_NE(convert().find("n_head"), std::string::npos);
  meta = Json::object();
  EXPECT_NE(convert().find("model_config"), std::string::npos);
  fs::remove(folder_ + "/meta_000007.json");
  EXPECT_NE(error_of([&] { convert_nanochat(folder_ + "/model_000007.pt", folder_ + "/out"); }).find("is not there"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ + "/out/model.safetensors"));
}

}  // namespace
}  // namespace mxt::formats
