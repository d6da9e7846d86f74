// Models of experts, hybrids and towers whose files do not hold together: one line each that names the tensor or key.
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "e2e/cli.h"
#include "formats/safetensors.h"

namespace mxt {
namespace {

using Tensors = std::map<std::string, std::pair<std::vector<int64_t>, std::string>>;  // of F32: shape, bytes

Tensors tensors_of(const std::string& path) {
  const auto file = formats::Safetensors::open(path);
  Tensors all;
  for (const auto& t : file.tensors()) {
    EXPECT_EQ(t.type, DType::kF32) << t.name;
    const auto b = file.bytes(t);
    all[t.name] = {{t.shape.begin(), t.shape.end()}, {reinterpret_cast<const char*>(b.data()), b.size()}};
  }
  return all;
}

void write_tensors(const std::string& path, const Tensors& all) {
  std::vector<formats::TensorSpec> specs;
  for (const auto& [name, t] : all) specs.push_back({name, DType::kF32, t.first});
  formats::SafetensorsWriter out(path, specs);
  for (const auto& [name, t] : all) out.append_tensor(name, t.second.data(), t.second.size());
  out.commit();
}

// A golden model with other weights or another configuration.
void change(const std::string& model, const std::string& to, const std::function<void(Json&, Tensors&)>& edit) {
  Tensors all = tensors_of(cli::golden(model) + "/model.safetensors");
  Json config = read_json_file(cli::golden(model) + "/config.json");
  edit(config, all);
  make_folders(to);
  write_file_atomic(to + "/config.json", config.dump());
  write_tensors(to + "/model.safetensors", all);
}

std::string key_with(const Tensors& all, const std::string& part) {
  for (const auto& [name, t] : all)
    if (name.find(part) != name.npos) return name;
  ADD_FAILURE() << part;
  return "";
}

struct Case {
  const char *name, *model;
  std::function<void(Json&, Tensors&)> edit;
  int code;
  std::vector<const char*> says;
};

const Case kCases[] = {
    {"more_experts", "qwen3_moe", [](Json& c, Tensors&) { c["num_local_experts"] = 7; }, 1, {"mlp.gate.weight", "[7"}},
    {"fewer_experts", "qwen3_moe", [](Json& c, Tensors&) { c["num_local_experts"] = 5; }, 1, {"mlp.gate.weight", "[5"}},
    {"no_experts",
     "qwen3_moe",
     [](Json& c, Tensors&) { c["num_local_experts"] = 0; },
     1,
     {"mlp.gate_proj.weight is missing"}},
    {"one_expert_missing",
     "qwen3_moe",
     [](Json&, Tensors& t) { t.erase(key_with(t, "experts.2.up_proj")); },
     1,
     {"experts.2.up_proj.weight is missing"}},
    {"more_experts_hybrid",
     "qwen3_5_moe",
     [](Json& c, Tensors&) { c["num_experts"] = 7; },
     1,
     {"mlp.gate.weight", "[7"}},
    {"router_not_a_number",
     "qwen3_moe",
     [](Json&, Tensors& t) {
       const float nan = std::numeric_limits<float>::quiet_NaN();
       std::memcpy(t.at(key_with(t, "mlp.gate.weight")).second.data(), &nan, 4);
     },
     1,
     {"not numbers"}},
    {"keys_not_a_number",  // scores and sinks pass through comparisons, which pass over what is no number
     "llama_mqa",
     [](Json&, Tensors& t) {
       const float nan = std::numeric_limits<float>::quiet_NaN();
       std::memcpy(t.at(key_with(t, "k_proj.weight")).second.data(), &nan, 4);
     },
     1,
     {"not numbers"}},
    {"sinks_not_a_number",
     "gpt_oss",
     [](Json&, Tensors& t) {
       const float nan = std::numeric_limits<float>::quiet_NaN();
       std::memcpy(t.at(key_with(t, "sinks")).second.data(), &nan, 4);
     },
     1,
     {"not numbers"}},
    {"value_heads_that_keys_cannot_share",
     "qwen3_5",
     [](Json& c, Tensors&) { c["linear_num_key_heads"] = 3; },
     1,
     {"4 linear value heads cannot share 3 key heads"}},
    {"another_activation_of_experts",
     "qwen3_moe",
     [](Json& c, Tensors&) { c["hidden_act"] = "gelu_pytorch_tanh"; },
     3,
     {"gelu_pytorch_tanh", "silu is"}},
    {"another_activation_of_delta_layers",
     "qwen3_5",
     [](Json& c, Tensors&) { c["hidden_act"] = "gelu_pytorch_tanh"; },
     3,
     {"gelu_pytorch_tanh", "silu is"}},
    {"types_of_another_length",
     "qwen3_5",
     [](Json& c, Tensors&) { c["layer_types"].erase(0); },
     1,
     {"config.json", "layer_types", "each of the 3 layers"}},
    {"tower_missing",
     "qwen3_vl",
     [](Json&, Tensors& t) {
       std::erase_if(t, [](const auto& x) { return x.first.find("visual.") != std::string::npos; });
     },
     1,
     {"model.visual.patch_embed.proj.weight is missing"}},
    {"tower_of_another_width",
     "qwen3_vl",
     [](Json& c, Tensors&) { c["vision_config"]["out_hidden_size"] = 20; },
     1,
     {"out_hidden_size"}},
    {"tower_that_turns_otherwise",
     "qwen3_vl",
     [](Json& c, Tensors&) {
       c["vision_config"]["rope_parameters"] = {{"rope_type", "axial"}, {"rope_theta", 5000.0}};
     },
     3,
     {"vision_config", "\"rope_theta\" is 5000"}}};

class BadFamilies : public testing::TestWithParam<size_t> {};

TEST_P(BadFamilies, AreRefusedInOneLine) {
  const Case& c = kCases[GetParam()];
  cli::Folder f(std::string("bad_family_") + c.name);
  change(c.model, f / "model", c.edit);
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3,4,5]}\n");
  const auto r = cli::run("score --model " + (f / "model") + " --dtype float32 --input " + (f / "rows.jsonl") +
                          " --output " + (f / "out.jsonl"));
  EXPECT_EQ(r.code, c.code) << r.out;
  for (const char* part : c.says) EXPECT_NE(r.out.find(part), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("not used by this model"), std::string::npos) << r.out;  // what is left over is no reason
  EXPECT_FALSE(fs::exists(f / "out.jsonl"));
}

// Known from the files' headers: not after rows were prepared, which may take hours.
TEST(BadBase, IsRefusedBeforeRowsArePrepared) {
  cli::Folder f("bad_base");
  change("qwen3_moe", f / "model", [](Json&, Tensors& t) { t.erase(key_with(t, "experts.2.up_proj")); });
  std::string recipe = cli::recipe({.model = "qwen3_moe", .steps = 1});
  const std::string name = "name: \"" + cli::golden("qwen3_moe");
  recipe.replace(recipe.find(name), name.size(), "name: \"" + (f / "model"));
  write_file_atomic(f / "r.yaml", recipe);
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("experts.2.up_proj.weight is missing"), std::string::npos) << r.out;
  EXPECT_FALSE(fs::exists(f / "out/dataset"));
}

INSTANTIATE_TEST_SUITE_P(All, BadFamilies, testing::Range<size_t>(0, std::size(kCases)),
                         [](const auto& i) { return std::string(kCases[i.param].name); });

// The text of a whole hybrid's files, by its own class and under the whole one's names: the same numbers.
TEST(TextClasses, ReadAWholeCheckpointAndBack) {
  cli::Folder f("text_class");
  const auto score = [&](const std::string& model) {
    write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3,4,5]}\n");
    const auto r = cli::run("score --model " + model + " --dtype float32 --input " + (f / "rows.jsonl") + " --output " +
                            (f / "out.jsonl"));
    EXPECT_EQ(r.code, 0) << r.out;
    return cli::lines(f / "out.jsonl").at(0)["logprobs"];
  };
  change("qwen3_5", f / "whole_names", [](Json&, Tensors& t) {
    Tensors renamed;
    for (auto& [name, tensor] : t)
      renamed[name.starts_with("model.") ? "model.language_model." + name.substr(6) : name] = std::move(tensor);
    t = std::move(renamed);
  });
  change("qwen3_5", f / "whole_class", [](Json& c, Tensors&) {
    Json whole{{"model_type", "qwen3_5"}, {"tie_word_embeddings", c["tie_word_embeddings"]}};
    c["model_type"] = "qwen3_5_text";
    whole["text_config"] = c;
    c = whole;
  });
  const Json want = score(cli::golden("qwen3_5"));
  EXPECT_EQ(score(f / "whole_names"), want);
  EXPECT_EQ(score(f / "whole_class"), want);
}

// PEFT's all-linear over Qwen3-VL adapts the tower along, which pictures pass: nothing of it can be left out.
TEST(Adapters, OfATowerThatIsRunAreRefusedByName) {
  cli::Folder f("tower");
  const std::string adapter = f / "adapter", file = adapter + "/adapter_model.safetensors",
                    proj = "base_model.model.model.visual.blocks.0.attn.proj.lora_";
  fs::copy(cli::golden("qwen3_vl") + "/adapter", adapter);
  Tensors t = tensors_of(file);
  Json config = read_json_file(adapter + "/adapter_config.json");
  config["target_modules"].push_back("blocks.0.attn.proj");
  write_file_atomic(adapter + "/adapter_config.json", config.dump());
  const int64_t width = tensors_of(cli::golden("qwen3_vl") + "/model.safetensors")
                            .at("model.visual.blocks.0.attn.proj.weight")
                            .first.at(0),
                rank = config["r"];
  const std::string zeros(static_cast<size_t>(4 * rank * width), '\0');
  t[proj + "A.weight"] = {{rank, width}, zeros}, t[proj + "B.weight"] = {{width, rank}, zeros};
  write_tensors(file, t);
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3]}\n");
  for (const std::string& verb :
       {"score --input " + (f / "rows.jsonl") + " --output " + (f / "out.jsonl"), "merge --out " + (f / "merged")}) {
    const auto r = cli::run(verb + " --model " + cli::golden("qwen3_vl") + " --adapter " + adapter);
    EXPECT_EQ(r.code, 3) << r.out;
    EXPECT_NE(r.out.find("adapts what sees pictures (model.visual.blocks.0.attn.proj)"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("merge it with PEFT"), std::string::npos) << r.out;
  }
  EXPECT_FALSE(fs::exists(f / "merged"));
}

// Gemma 3's larger models are published whole: their text is used, under the files' names and under the modules', and
// either class reads the other's.
TEST(TextClasses, Gemma3IsTakenOutOfTheWholeModel) {
  cli::Folder f("gemma3_whole");
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3,4,5,6,7,8,9,10,11,12]}\n");
  const auto score = [&](const std::string& model, const std::string& with) {
    const auto r = cli::run("score --model " + model + with + " --dtype float32 --input " + (f / "rows.jsonl") +
                            " --output " + (f / "out.jsonl"));
    EXPECT_EQ(r.code, 0) << r.out;
    return std::pair(Json::parse(read_file(f / "out.jsonl")), r.out);
  };
  const auto renamed = [](Tensors& t, const std::string& prefix) {
    Tensors out;
    for (const auto& [name, tensor] : t) out[prefix + name.substr(6)] = tensor;  // behind "model."
    out["vision_tower.vision_model.post_layernorm.weight"] = {{2}, std::string(8, '\0')};
    out["multi_modal_projector.mm_soft_emb_norm.weight"] = {{2}, std::string(8, '\0')};
    t = std::move(out);
  };
  const auto whole = [](Json& c) {
    c = Json{{"model_type", "gemma3"},
             {"architectures", {"Gemma3ForConditionalGeneration"}},
             {"vision_config", {{"hidden_size", 16}}},
             {"text_config", c}};
  };
  change("gemma3", f / "files", [&](Json& c, Tensors& t) { whole(c), renamed(t, "language_model.model."); });
  change("gemma3", f / "modules", [&](Json& c, Tensors& t) { whole(c), renamed(t, "model.language_model."); });
  change("gemma3", f / "text", [&](Json&, Tensors& t) { renamed(t, "language_model.model."); });
  change("gemma3", f / "plain", [&](Json& c, Tensors&) { whole(c); });
  const Json want = score(cli::golden("gemma3"), "").first;
  for (const char* model : {"files", "modules", "text", "plain"}) {
    const auto [got, said] = score(f / model, "");
    EXPECT_EQ(got, want) << model;
    EXPECT_EQ(said.find("2 of its tensors are not used") != std::string::npos, std::string(model) != "plain") << said;
  }
  const std::string adapter = " --adapter " + cli::golden("gemma3") + "/adapter";
  EXPECT_EQ(score(f / "files", adapter).first, score(cli::golden("gemma3"), adapter).first);
  // PEFT over the whole adapts the tower's q_proj along: a text never meets it.
  const std::string over_whole = f / "over_whole", file = "/adapter_model.safetensors",
                    q = "base_model.model.model.vision_tower.encoder.layers.0.self_attn.q_proj.lora_";
  fs::copy(cli::golden("gemma3") + "/adapter", over_whole);
  Tensors both = tensors_of(over_whole + file);
  both[q + "A.weight"] = {{4, 2}, std::string(32, '\1')}, both[q + "B.weight"] = {{2, 4}, std::string(32, '\1')};
  write_tensors(over_whole + file, both);
  const auto [text_of_it, left] = score(f / "files", " --adapter " + over_whole);
  EXPECT_EQ(text_of_it, score(cli::golden("gemma3"), adapter).first);
  EXPECT_NE(left.find("1 of its modules are of what sees pictures (model.vision_tower"), std::string::npos) << left;
  // With bias: all it saves the tower's biases, too.
  const std::string biases = f / "biases";
  fs::copy(over_whole, biases);
  Tensors with = both;
  with["base_model.model.model.vision_tower.post_layernorm.bias"] = {{4}, std::string(16, '\1')};
  write_tensors(biases + file, with);
  Json config = read_json_file(biases + "/adapter_config.json");
  config["bias"] = "all";
  write_file_atomic(biases + "/adapter_config.json", config.dump());
  const auto [merged, without] = score(f / "files", " --adapter " + biases);
  const Json now = merged["logprobs"], was = text_of_it["logprobs"];
  ASSERT_EQ(now.size(), was.size());
  for (size_t i = 1; i < now.size(); ++i) EXPECT_NEAR(now[i].get<double>(), was[i].get<double>(), 1e-5) << i;
  EXPECT_NE(without.find("2 of its parts are of what sees pictures (model.vision_tower"), std::string::npos) << without;
  // A module that is of neither still belongs to another model.
  both["base_model.model.model.other.q_proj.lora_A.weight"] = both[q + "A.weight"];
  both["base_model.model.model.other.q_proj.lora_B.weight"] = both[q + "B.weight"];
  write_tensors(over_whole + file, both);
  const auto r = cli::run("score --model " + (f / "files") + " --adapter " + over_whole + " --input " +
                          (f / "rows.jsonl") + " --output " + (f / "out.jsonl"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("another base"), std::string::npos) << r.out;
  // In FP8 with inputs rounded as they come, which hangs on the weights' names too.
  for (const auto& [model, to] : {std::pair{cli::golden("gemma3"), "fp8"}, {f / "files", "fp8_whole"}}) {
    const auto r = cli::run("quantize --model " + model + " --scheme fp8_dynamic --no-report --out " + (f / to));
    ASSERT_EQ(r.code, 0) << r.out;
  }
  const Json rounded = score(f / "fp8", "").first;
  EXPECT_NE(rounded, want);
  EXPECT_EQ(score(f / "fp8_whole", "").first, rounded);
}

// Of a model that sees, the tensors that its text class leaves are named.
TEST(TextClasses, SayWhatTheyLeaveOfAModelThatSees) {
  cli::Folder f("text_of_vl");
  change("qwen3_vl", f / "model", [](Json& c, Tensors&) { c = Json(c["text_config"]); });
  write_file_atomic(f / "rows.jsonl", "{\"ids\":[1,2,3,4,5]}\n");
  const auto r = cli::run("score --model " + (f / "model") + " --dtype float32 --input " + (f / "rows.jsonl") +
                          " --output " + (f / "out.jsonl"));
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("not used by this model (qwen3_vl_text): model.visual."), std::string::npos) << r.out;
}

// A merged folder says what of the base it is without.
TEST(Merged, SaysWhichTensorsStayedOut) {
  cli::Folder f("merged_without");
  change("qwen3_5", f / "base", [](Json&, Tensors& t) {
    t["mtp.norm.weight"] = {{2}, std::string(8, '\0')};
    t["model.visual.pos_embed.weight"] = {{2}, std::string(8, '\0')};
  });
  const auto r = cli::run("merge --model " + (f / "base") + " --adapter " + cli::golden("qwen3_5") + "/adapter --out " +
                          (f / "merged"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("1 of multi-token prediction (mtp.), 1 of what sees pictures"), std::string::npos) << r.out;
}

// So does the checkpoint of every weight's training.
TEST(FullTraining, SaysWhichTensorsStayedOut) {
  cli::Folder f("trained_without");
  change("qwen3_5", f / "base", [](Json& c, Tensors& t) {
    const Json text = c;
    c = {{"model_type", "qwen3_5"}, {"tie_word_embeddings", text["tie_word_embeddings"]}, {"text_config", text}};
    t["model.visual.pos_embed.weight"] = {{2}, std::string(8, '\0')};
  });
  cli::Tiny t;
  t.model = "qwen3_5";
  t.steps = 1;
  std::string recipe = cli::recipe(t);
  const std::string name = "name: \"" + cli::golden("qwen3_5");
  recipe.replace(recipe.find(name), name.size(), "name: \"" + (f / "base"));
  write_file_atomic(f / "r.yaml", recipe);
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_NE(r.out.find("out/checkpoint: is without 1 of the base's tensors"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("1 of what sees pictures"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("model.vision: true"), std::string::npos) << r.out;
}

// transformers 5 holds experts in one tensor, which bitsandbytes does not code.
TEST(Quantized, ExpertsOfOneMatrixEachAreSaid) {
  cli::Folder f("experts_in_bnb");
  for (const auto& [scheme, said] : {std::pair{"bnb_nf4", true}, {"fp8_dynamic", false}}) {
    const auto r = cli::run("quantize --model " + cli::golden("qwen3_moe") + " --scheme " + scheme +
                            " --no-report --out " + (f / scheme));
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(r.out.find("transformers from 5 on") != std::string::npos, said) << r.out;
  }
}

// A recipe may be sound and its model of a kind that nobody has built: `validate` says so, and the list of what is
// built names none that is not.
TEST(Families, WithoutAGraphAreSaidBeforeAnythingIsPrepared) {
  cli::Folder f("no_graph");
  for (const char* type : {"qwen3_next", "qwen3_vl_moe", "deepseek_v3", "llama4"}) {
    make_folders(f / type);
    write_file_atomic(f / type + "/config.json", Json{{"model_type", type}, {"num_hidden_layers", 1}}.dump());
    std::string recipe = cli::recipe({});
    const std::string name = "name: \"" + cli::golden("qwen3_gqa");
    recipe.replace(recipe.find(name), name.size(), "name: \"" + (f / type));
    write_file_atomic(f / "r.yaml", recipe);
    const auto valid = cli::run("validate " + (f / "r.yaml")), plan = cli::run("plan " + (f / "r.yaml"));
    EXPECT_EQ(valid.code, 0) << valid.out;
    EXPECT_NE(valid.out.find("valid, but not for this build: "), std::string::npos) << valid.out;
    EXPECT_EQ(plan.code, 3) << plan.out;
    for (const auto& r : {valid, plan}) {
      const size_t at = r.out.find(type);
      ASSERT_NE(at, std::string::npos) << r.out;
      EXPECT_EQ(r.out.find("qwen3_next, "), std::string::npos) << r.out;
    }
  }
}

// Half of what PEFT holds in one matrix.
TEST(ExpertTargets, ThatPeftCannotReadAreSaidBeforeTraining) {
  cli::Folder f("half_experts");
  cli::Tiny t;
  t.model = "qwen3_moe";
  t.steps = 1;
  for (const auto& [targets, said] : {std::pair{"[up_proj, down_proj]", true},
                                      {"[gate_proj, up_proj]", false},
                                      {"[mlp.up_proj, mlp.down_proj]", false},  // of the layer without experts
                                      {"[mlp.gate_proj, 1.mlp.up_proj]", false}}) {
    t.method = fmt::format("{{kind: lora, r: 2, target_modules: {}}}", targets);
    write_file_atomic(f / "r.yaml", cli::recipe(t));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    ASSERT_EQ(r.code, 0) << r.out;
    fs::remove_all(f / "out");
    EXPECT_EQ(r.out.find("names up_proj and not gate_proj") != std::string::npos, said) << r.out;
  }
}

// Adapters of gate and up that come one by one PEFT puts where they stand only beside down's.
TEST(ExpertTargets, AreSavedInTheFormThatPeftReads) {
  cli::Folder f("expert_forms");
  cli::Tiny t;
  t.steps = 1;
  struct Case {
    std::string model, targets;
    bool stacked;
  };
  for (const auto& [model, targets, stacked] :
       {Case{"qwen3_moe_balanced", "[gate_proj, up_proj]", true},
        Case{"qwen3_moe_balanced", "[q_proj, gate_proj, up_proj, down_proj]", false},
        Case{"qwen3_moe_balanced", "[gate_proj, up_proj, down_proj], alpha_pattern: {up_proj: 9}", true},
        Case{"qwen3_5_moe", "[down_proj]", true}, Case{"gpt_oss", "[gate_proj, up_proj]", true}})
    for (const bool single : {false, true}) {
      t.model = model;
      t.method =
          fmt::format("{{kind: lora, r: 2, target_modules: {}{}}}", targets, single ? ", stack_experts: false" : "");
      write_file_atomic(f / "r.yaml", cli::recipe(t));
      const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
      ASSERT_EQ(r.code, 0) << r.out;
      const Json saved = read_json_file(f / "out/checkpoint/adapter_config.json");
      EXPECT_EQ(saved.contains("target_parameters") && !saved["target_parameters"].empty(), stacked && !single)
          << model << targets;
      EXPECT_EQ(r.out.find("stack_experts: false: PEFT reads") != std::string::npos, stacked && single) << r.out;
      fs::remove_all(f / "out");
    }
}

TEST(ExpertTargets, WhoseBiasesPeftLeavesOutAreSaid) {
  cli::Folder f("expert_biases");
  cli::Tiny t;
  t.model = "gpt_oss";
  t.steps = 1;
  for (const auto& [bias, said] : {std::pair{"none", false}, {"all", true}, {"lora_only", true}}) {
    t.method = fmt::format("{{kind: lora, r: 2, target_modules: all-linear, bias: {}}}", bias);
    write_file_atomic(f / "r.yaml", cli::recipe(t));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / bias));
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(r.out.find("train.method.bias: the experts' biases") != std::string::npos, said) << r.out;
  }
}

TEST(ExpertTargets, OfSomeLayersAreOfAllTheirExperts) {
  cli::Folder f("some_layers");
  cli::Tiny t;
  t.model = "qwen3_moe";
  t.steps = 1;
  t.method = "{kind: lora, r: 2, target_modules: [down_proj], layers_to_transform: [2]}";
  write_file_atomic(f / "r.yaml", cli::recipe(t));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto file = formats::Safetensors::open(f / "out/checkpoint/adapter_model.safetensors");
  EXPECT_EQ(file.tensors().size(), 12u);  // A and B of six experts
  for (const auto& tensor : file.tensors()) EXPECT_NE(tensor.name.find(".layers.2."), std::string::npos) << tensor.name;
  t.method.insert(1, "init_adapter: \"" + (f / "out/checkpoint") + "\", ");
  write_file_atomic(f / "on.yaml", cli::recipe(t));
  const auto on = cli::run("train " + (f / "on.yaml") + " --out " + (f / "on"));
  EXPECT_EQ(on.code, 0) << on.out;
}

TEST(ExpertTargets, RoutersAreReadAndNotTrained) {
  cli::Folder f("routers");
  cli::Tiny t;
  t.model = "qwen3_moe";
  const auto said = [&](const std::string& method) {
    t.method = method;
    write_file_atomic(f / "r.yaml", cli::recipe(t));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    EXPECT_NE(r.code, 0) << r.out;
    return r.out;
  };
  EXPECT_NE(said("{kind: lora, r: 2, target_modules: [q_proj, gate]}").find("is the experts' router"),
            std::string::npos);
  const std::string adapter = std::string(kSourceDir) + "/tests/golden/peft_experts/all_linear";
  const std::string why = said(
      "{kind: lora, r: 2, alpha: 6, rank_pattern: {gate_proj: 4, up_proj: 4}, alpha_pattern: "
      "{gate_proj: 12, up_proj: 12}, target_modules: all-linear, layers_to_transform: [0, 2], init_adapter: \"" +
      adapter + "\"}");
  EXPECT_NE(why.find("weights for model.layers.0.mlp.gate, which this run does not train"), std::string::npos) << why;
  EXPECT_NE(why.find("merge it first"), std::string::npos) << why;
}

}  // namespace
}  // namespace mxt
