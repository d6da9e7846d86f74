// What a server of a run's adapter answers.
#include "base/within.h"
#include "e2e/cli.h"
#include "e2e/client.h"
#include "serve/tiny_model.h"

namespace mxt {
namespace {

using cli::answers, cli::asked;

// Adapters of the head, the embeddings and whole modules: what is served has the probabilities that score gives.
TEST(Serve, AnAdapterThatChangesTheBaseIsServedAlone) {
  cli::Folder f("head_adapter");
  const std::string model = serve::make_tiny_model(f / "model");
  write_file_atomic(f / "rows.jsonl", "{\"prompt\":\"a\",\"completion\":\"bcd\"}\n");
  write_file_atomic(f / "in.jsonl", "{\"ids\":[97,98,99,100]}\n");
  for (const char* method : {"target_modules: [lm_head]", "target_modules: [embed_tokens]",
                             "target_modules: [q_proj], modules_to_save: [lm_head]"}) {
    write_file_atomic(
        f / "r.yaml",
        "meta: {project: t, run_name: a}\nhardware: {name: cpu}\nautotune: {enabled: false}\nmodel: {name: \"" + model +
            "\", torch_dtype: float32}\ndata: {source: local, path: \"" + (f / "rows.jsonl") +
            "\", seq_len: 64}\ntrain:\n  method: {kind: lora, r: 4, " + method +
            "}\n  precision: float32\n  optimizer: {lr: 1.0e-1}\n  schedule: {max_steps: 3}\n  batch: {per_device: 1, "
            "grad_accum: 1}\n");
    const cli::Result trained = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    ASSERT_EQ(trained.code, 0) << trained.out;
    const std::string adapter = f / "out/checkpoint";
    const auto scored = [&](const std::string& more) {
      const cli::Result r =
          cli::run("score --model " + model + more + " --input " + (f / "in.jsonl") + " --output " + (f / "o.jsonl"));
      EXPECT_EQ(r.code, 0) << r.out;
      return cli::lines(f / "o.jsonl").at(0)["logprobs"];
    };
    const Json tuned = scored(" --adapter " + adapter), base = scored("");
    EXPECT_NE(tuned, base) << method;
    const uint16_t port = free_port();
    const pid_t server =
        cli::start({"serve", "--model", model, "--adapter", "tuned=" + adapter, "--port", std::to_string(port)});
    EXPECT_TRUE(within(60, [&] { return answers(port); }));
    const Json said = Json::parse(
        asked(port, "/v1/completions",
              R"({"model":"tuned","prompt":[97,98,99,100],"echo":true,"logprobs":1,"max_tokens":1,"temperature":0})"),
        nullptr, false);
    EXPECT_NE(asked(port, "/v1/completions", R"({"model":"model","prompt":"a","max_tokens":1})").find("does not exist"),
              std::string::npos);
    EXPECT_EQ(cli::stop(server, SIGTERM), 0);
    ASSERT_TRUE(said.is_object() && said.contains("choices")) << said.dump();
    for (size_t i = 1; i < 4; ++i)
      EXPECT_NEAR(said["choices"][0]["logprobs"]["token_logprobs"][i].get<double>(), tuned[i].get<double>(), 1e-4)
          << method;
    fs::remove_all(f / "out");
  }
}

// A model of the Hub is called what its user calls it, and not by the commit that its folder is named after.
TEST(Serve, AModelIsCalledAsItWasWritten) {
  cli::Folder f("called");
  const std::string commit(40, 'b'), repo = f / "hub/models--org--model";
  make_folders(repo + "/refs"), make_folders(repo + "/snapshots");
  write_file_atomic(repo + "/refs/main", commit);
  const std::string folder = serve::make_tiny_model(f / "tiny");
  fs::copy(folder, repo + "/snapshots/" + commit, fs::copy_options::recursive);
  ASSERT_EQ(setenv("HF_HUB_OFFLINE", "1", 1), 0);
  ASSERT_EQ(setenv("HF_HUB_CACHE", (f / "hub").c_str(), 1), 0);
  for (const auto& [given, name] : {std::pair<std::string, std::string>{"org/model", "org/model"},
                                    {"org/model@main", "org/model"},
                                    {folder, "tiny"},
                                    {folder + "/", "tiny"}}) {
    const uint16_t port = free_port();
    const pid_t server = cli::start({"serve", "--model", given, "--port", std::to_string(port)});
    EXPECT_TRUE(within(60, [&] { return answers(port); })) << given;
    const std::string said =
        asked(port, "/v1/completions", R"({"model":")" + name + R"(","prompt":"a","max_tokens":1})");
    EXPECT_NE(said.find("\"choices\""), std::string::npos) << given << ": " << said;
    EXPECT_EQ(cli::stop(server, SIGTERM), 0);
  }
  unsetenv("HF_HUB_OFFLINE"), unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace mxt
