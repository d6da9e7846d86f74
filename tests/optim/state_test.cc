// What an optimizer keeps: saved and loaded it goes on with equal bytes, and no bit depends on the number of threads.
#include "base/error.h"
#include "models/modules.h"
#include "optim/training.h"

namespace mxt::optim::test {
namespace {

const std::string kAll[] = {"adamw", "lion", "adafactor", "adamw_8bit", "muon", "muon_torch"};

config::Train of(const std::string& name) {
  config::Train t = settings(golden_of("llama_wide"), name);
  t.optimizer.grad_clip = 0.5;
  if (name == "adafactor") t.optimizer.lr = 1e-3;
  return t;
}

class States : public testing::TestWithParam<std::string> {};

TEST_P(States, GoOnFromACheckpointWithEqualBytes) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const std::string folder = testing::TempDir() + "mxt_optim_state_" + GetParam();
    Training whole("llama_wide", of(GetParam()), kernels::cpu_ops(), type);
    for (int s = 0; s < 4; ++s) whole.step(s);
    checkpoint::TrainState state;
    state.step = 4;
    checkpoint::save_state(folder + "/step-4", whole.graph, whole.params, state);
    for (int s = 4; s < 8; ++s) whole.step(s);

    Training resumed("llama_wide", of(GetParam()), kernels::cpu_ops(), type);
    resumed.step(11);  // whatever stood there before
    const auto loaded = checkpoint::load_state(folder + "/step-4", resumed.graph, resumed.params, {});
    EXPECT_EQ(loaded.step, 4);
    for (int s = 4; s < 8; ++s) resumed.step(s);
    EXPECT_EQ(resumed.bytes(), whole.bytes()) << name_of(type);
    fs::remove_all(folder);
  }
}

TEST_P(States, AreTheSameOnOneThreadAndOnTwo) {
  std::string one;
  const int before = num_threads();
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    Training run("llama_wide", of(GetParam()), kernels::cpu_ops(), DType::kBF16);
    for (int s = 0; s < 4; ++s) run.step(s);
    if (threads == 1)
      one = run.bytes();
    else
      EXPECT_EQ(run.bytes(), one);
  }
  set_num_threads(before);
}

TEST_P(States, AreWhatThePlannerCounts) {
  Training run("llama_wide", of(GetParam()), kernels::cpu_ops());
  const auto counted = runtime::ParamStore::measure(run.graph, true, run.optimizer->states());
  int64_t held = 0;
  for (size_t i = 0; i < run.graph.params.size(); ++i)
    for (const runtime::StateArray& a : run.params.arrays(static_cast<graph::ParamId>(i)))
      if (a.name != "grad" && a.name != "master") held += (a.bytes() + 63) / 64 * 64;
  EXPECT_EQ(counted.states, held);
  EXPECT_GT(counted.states, 0);
}

INSTANTIATE_TEST_SUITE_P(Every, States, testing::ValuesIn(kAll), [](const auto& i) { return i.param; });

// Two bytes an element instead of eight, where tensors are large enough.
TEST(States8bit, TakeAQuarter) {
  const Json golden = golden_of("llama_wide");
  Training plain("llama_wide", settings(golden, "adamw"), kernels::cpu_ops());
  Training held("llama_wide", settings(golden, "adamw_8bit"), kernels::cpu_ops());
  int64_t small = 0;  // k_proj, v_proj and the norms stay in 32 bits, the embedding too
  for (const graph::Param& p : held.graph.params)
    if (p.kind != graph::ParamKind::kMatrix) small += p.rows * p.cols;
  small += 2 * 32 * 72;
  const auto of_plain = runtime::ParamStore::measure(plain.graph, true, plain.optimizer->states()).states;
  const auto of_held = runtime::ParamStore::measure(held.graph, true, held.optimizer->states()).states;
  const int64_t large = (of_plain - 8 * small) / 8;
  EXPECT_NEAR(static_cast<double>(of_held), static_cast<double>(8 * small + 2 * large + 8 * large / 256), 4096);
}

// What a state of AdamW is called does not change: an older program's checkpoints resume.
TEST(StatesOfAdamW, AreNamedAsEver) {
  Training run("llama_wide", of("adamw"), kernels::cpu_ops());
  std::vector<std::string> names;
  for (const runtime::StateArray& a : run.params.arrays(0)) names.push_back(a.name);
  EXPECT_EQ(names, (std::vector<std::string>{"master", "grad", "m", "v"}));
}

// What loading `folder` ends in.
std::string refusal(const std::string& folder, Training& run, Exit code) {
  try {
    checkpoint::load_state(folder, run.graph, run.params, {});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "nothing";
}

// A state of another optimizer does not fit, and says which tensor is missing.
TEST(StatesOfAnotherOptimizer, AreRefused) {
  const std::string folder = testing::TempDir() + "mxt_optim_other";
  Training lion("llama_wide", of("lion"), kernels::cpu_ops());
  checkpoint::TrainState state;
  state.step = 1;
  checkpoint::save_state(folder + "/step-1", lion.graph, lion.params, state);
  Training adamw("llama_wide", of("adamw"), kernels::cpu_ops());
  EXPECT_NE(refusal(folder + "/step-1", adamw, Exit::kBadInput).find("embed.v"), std::string::npos);
  fs::remove_all(folder);
}

// One line says what is wrong and how to go on.
TEST(StatesThatAreDamaged, AreNamedWithAWayOn) {
  const std::string folder = testing::TempDir() + "mxt_optim_damaged/step-1", file = folder + "/state.json";
  Training run("llama_wide", of("lion"), kernels::cpu_ops());
  checkpoint::TrainState state;
  state.step = 1;
  checkpoint::save_state(folder, run.graph, run.params, state);
  const std::string whole = read_file(file);
  const auto with = [&](const std::string& key, const Json& value) {
    Json j = Json::parse(whole);
    j[key] = value;
    if (value.is_discarded()) j.erase(key);
    return j.dump();
  };
  const Json gone(Json::value_t::discarded);
  const std::vector<std::pair<std::string, std::string>> cases{
      {whole.substr(0, whole.size() / 2), "not valid JSON"},
      {"[]", "no object"},
      {with("plan_choices", gone), "\"plan_choices\" is missing"},
      {with("recipe", 1), "\"recipe\" is no text"},
      {with("step", 1.5), "\"step\" is no whole number"},
      {with("best_step", 1e21), "\"best_step\" is no whole number"},
      {with("best_eval", "low"), "\"best_eval\" is no number"},
      {with("step", 2), "it is of step 2"}};
  for (const auto& [text, what] : cases) {
    write_file_atomic(file, text);
    const std::string said = refusal(folder, run, Exit::kBadInput);
    EXPECT_NE(said.find(what), std::string::npos) << said;
    EXPECT_TRUE(said.ends_with("remove " + folder + " to go on from what was saved before it, or choose another --out"))
        << said;
    EXPECT_EQ(said.find("json.exception"), std::string::npos) << said;
  }
  write_file_atomic(file, whole);
  fs::remove(folder + "/state.safetensors");
  EXPECT_NE(refusal(folder, run, Exit::kVerifyFailed).find("state.safetensors: is not as it was saved: remove "),
            std::string::npos);
  fs::remove_all(fs::path(folder).parent_path());
}

// The arrays of one name lie one after the other, in the graph's order.
TEST(ParamStore, ArraysLieTogether) {
  Training run("llama_wide", of("adamw"), kernels::cpu_ops());
  const char* at[4] = {};
  for (size_t i = 0; i < run.graph.params.size(); ++i) {
    const auto p = static_cast<graph::ParamId>(i);
    size_t k = 0;
    for (const char* name : {"master", "grad", "m", "v"}) {
      const auto array = run.params.read_array(p, name);
      const auto* first = static_cast<const char*>(array.data);
      if (at[k]) {
        EXPECT_EQ(first, at[k]) << name << " of " << run.graph.params[i].name;
      }
      at[k++] = first + (array.bytes + 63) / 64 * 64;
    }
  }
}

TEST(LoraPlus, MovesBFaster) {
  models::LoraPlan lora;
  lora.target = [](const std::string& module) -> std::optional<models::LoraTarget> {
    if (!models::is_of_layers(module)) return std::nullopt;
    return models::LoraTarget{4, 8, false};
  };
  config::Train train = settings(golden_of("llama_wide"), "lion");
  train.method = config::default_method(config::MethodKind::kLora);
  train.method.lora->lora_plus = 16;
  train.optimizer.weight_decay = 0;
  train.schedule.type = config::ScheduleType::kConstant;
  train.schedule.warmup_ratio = 0;
  Training run("llama_wide", train, kernels::cpu_ops(), DType::kF32, &lora);
  run.step(0);  // from B = 0 Lion moves B by the rate alone
  size_t seen = 0;
  for (size_t i = 0; i < run.graph.params.size(); ++i) {
    if (run.graph.params[i].name.find("lora_B") == std::string::npos) continue;
    const runtime::ParamSlot& slot = run.params[static_cast<graph::ParamId>(i)];
    for (int64_t k = 0; k < slot.size; ++k)
      if (slot.master[k] != 0) {
        EXPECT_NEAR(std::abs(slot.master[k]), 16 * 3e-4f, 1e-7f);
        ++seen;
      }
  }
  EXPECT_GT(seen, 100u);
}

}  // namespace
}  // namespace mxt::optim::test
