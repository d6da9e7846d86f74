#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "net/fake_upload_hub.h"
#include "provenance/manifest.h"
#include "publish/hub/card.h"
#include "publish/hub/front_matter.h"
#include "publish/ipfs/car.h"
#include "publish/ipfs/import.h"
#include "publish/steps.h"
#include "publish/support.h"

namespace mxt::publish {
namespace {

// A Kubo that answers what it is told to, and notes what it is sent.
class FakeKubo {
 public:
  FakeKubo() : server_([this](const net::ServerRequest& r) { return answer(r); }) {}
  std::string url() const { return server_.url(); }
  net::TestServer& server() { return server_; }
  std::string cid;  // that it says of what it is sent
  bool pinned = false;
  std::string pins;  // what it then says
  // What goes wrong after it has said 200: in its trailer, or as a line.
  std::string trailer, line;
  int status = 200;
  bool lost = false;  // the next answer to what it is sent does not arrive

 private:
  net::ServerResponse answer(const net::ServerRequest& r) {
    if (r.target.starts_with("/api/lighthouse/file_info?cid="))
      return r.target.ends_with(has_) ? net::ServerResponse{200, {}, R"({"data":{"cid":")" + has_ + "\"}}"}
                                      : net::ServerResponse{404, {}, "{}"};
    if (r.method != "POST") return {405, {}, ""};
    if (r.target.starts_with("/api/v0/pin/ls"))
      return pinned ? net::ServerResponse{200, {}, pins}
                    : net::ServerResponse{500, {}, R"({"Message":"path is not pinned","Code":0,"Type":"error"})"};
    if (status != 200) return {status, {}, R"({"Message":"no space left","Code":0,"Type":"error"})"};
    if (r.target.starts_with("/api/v0/dag/import"))
      return {200,
              {},
              R"({"Root":{"Cid":{"/":")" + cid +
                  R"("},"PinErrorMsg":""}})"
                  "\n"};
    has_ = cid;
    if (lost) return {504, {}, ""};
    const std::string lines = R"({"Name":"run/README.md","Hash":"bafkx","Size":"1"})"
                              "\n"
                              R"({"Name":"run","Hash":")" +
                              cid +
                              R"(","Size":"9"})"
                              "\n" +
                              line;
    if (trailer.empty()) return {200, {}, lines};
    return {200,
            {{"Transfer-Encoding", "chunked"}, {"Trailer", "X-Stream-Error"}},
            fmt::format("{:x}\r\n{}\r\n0\r\nX-Stream-Error: {}\r\n\r\n", lines.size(), lines, trailer)};
  }
  std::string has_ = "nothing";
  net::TestServer server_;
};

Surroundings surroundings(const std::map<std::string, std::string>& variables = {}) {
  Surroundings s;
  s.variable = [variables](const std::string& name) {
    const auto it = variables.find(name);
    return it == variables.end() ? "" : it->second;
  };
  s.hub.retry_base_seconds = s.http.retry_base_seconds = 0.01;
  return s;
}

std::string cid_of_run(const Run& run, const char* profile) {
  return import_tree(run.files, {&unixfs_profile(profile)})[0].text();
}

Exit code_of(const std::function<void()>& f, const std::string& part) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    return e.code();
  }
  return Exit::kOk;
}

TEST(Layout, HasTheCheckpointAtTheRootAndNothingThatTheManifestDoesNotName) {
  const FinishedRun f("");
  const auto run = open_run(f.path());
  std::vector<std::string> paths;
  for (const TreeEntry& e : run.files) paths.push_back(e.path);
  EXPECT_EQ(paths,
            (std::vector<std::string>{"README.md", "adapter_config.json", "adapter_model.safetensors",
                                      "provenance/eval/after.json", "provenance/manifest.json",
                                      "provenance/metrics.jsonl", "provenance/plan.json", "provenance/recipe.yaml"}));
}

TEST(Layout, ARunThatDoesNotHoldIsNotPublished) {
  const FinishedRun f("");
  f.put("checkpoint/adapter_config.json", "{\"r\":17}");
  EXPECT_EQ(code_of([&] { open_run(f.path()); }, "adapter_config.json"), Exit::kVerifyFailed);
  const TempFolder empty;
  EXPECT_EQ(code_of([&] { open_run(empty.path()); }, "manifest.json"), Exit::kBadInput);
  const std::atomic<bool> stop{true};
  const FinishedRun whole("");
  EXPECT_EQ(code_of([&] { open_run(whole.path(), &stop); }, "interrupted"), Exit::kInterrupted);
}

TEST(Card, SaysWhatTheManifestSays) {
  const FinishedRun f("");
  const auto run = open_run(f.path());
  const OrderedJson m = front_matter(run);
  EXPECT_EQ(m["license"], "mit");
  EXPECT_EQ(m["base_model"], "org/base");
  EXPECT_EQ(m["base_model_relation"], "adapter");
  EXPECT_EQ(m["library_name"], "peft");
  EXPECT_EQ(m["model-index"][0]["results"][0]["metrics"][0]["value"], 0.75);
  const std::string card = model_card(run);
  for (const std::string part :
       {"25.0 % | 75.0 %", "A test: nothing \\*more\\*", "3 documents, 40 tokens, 12 of them", "mindxtrain receipt ."})
    EXPECT_NE(card.find(part), std::string::npos) << part << "\n" << card;
  EXPECT_EQ(card, model_card(open_run(f.path()))) << "the same run gives the same card";
  EXPECT_NE(card.find("A LoRA adapter of "), std::string::npos) << card;
  auto anew = open_run(f.path());
  anew.recipe.train.method.lora.reset();
  anew.recipe.model.init = config::Init::kRandom;
  EXPECT_NE(model_card(anew).find("A model trained from random weights, made"), std::string::npos) << model_card(anew);
  auto lines = open_run(f.path());
  lines.recipe.meta.description = "First line.\nSecond *line*.\n";
  EXPECT_NE(model_card(lines).find("\nFirst line.\nSecond \\*line\\*.\n"), std::string::npos) << model_card(lines);
}

TEST(Card, APathIsNoBaseModelAndAnUnknownLicenceIsOther) {
  EXPECT_EQ(yaml_of({{"license", "other"},
                     {"tags", {"a", "b: c"}},
                     {"model-index", {{{"name", "x"}, {"results", OrderedJson::array()}}}}}),
            "license: \"other\"\ntags:\n- \"a\"\n- \"b: c\"\nmodel-index:\n- name: \"x\"\n  results: []\n");
}

TEST(Steps, OnlyWhatTheRecipeWritesIsADestination) {
  const FinishedRun f("publish: {hf: {repo: org/model}}\n"), none("publish: {}\n"),
      off("publish: {enabled: false, hf: {repo: org/model}}\n");
  const auto steps = steps_of(open_run(f.path()), surroundings());
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0]->name(), "hf");
  EXPECT_EQ(code_of([&] { publish(open_run(none.path()), surroundings(), {}, true); }, "names no destination"),
            Exit::kBadInput);
  EXPECT_EQ(code_of([&] { publish(open_run(off.path()), surroundings(), {}, true); }, "publish.enabled"),
            Exit::kBadInput);
  EXPECT_EQ(code_of([&] { publish(open_run(f.path()), surroundings(), {"ipfs"}, true); }, "--only ipfs"),
            Exit::kBadInput);
}

TEST(Steps, AMissingCredentialIsNamedBeforeAnythingIsSent) {
  FakeKubo kubo;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.url() + "\"}, lighthouse: {}}\n");
  const auto run = open_run(f.path());
  EXPECT_EQ(code_of([&] { publish(run, surroundings(), {}, false); }, "LIGHTHOUSE_API_KEY"), Exit::kMissing);
  EXPECT_TRUE(kubo.server().seen().empty());
}

TEST(Steps, ADryRunSendsAndWritesNothing) {
  FakeKubo kubo;
  const FinishedRun f("publish: {hf: {repo: org/model}, ipfs: {api_url: \"" + kubo.url() + "\"}}\n");
  const auto run = open_run(f.path());
  const auto out = publish(run, surroundings(), {}, true);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].result["files"].size(), run.files.size());
  EXPECT_EQ(out[1].result["cid"], cid_of_run(run, "kubo-v1"));
  EXPECT_TRUE(kubo.server().seen().empty());
  EXPECT_FALSE(fs::exists(f.path() + "/publish.json"));
}

TEST(Kubo, TakesTheFilesUnderTheirNamesAndIsAskedOnce) {
  FakeKubo kubo;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.url() + "\"}}\n");
  const auto run = open_run(f.path());
  kubo.cid = cid_of_run(run, "kubo-v1");
  publish(run, surroundings(), {}, false);
  const auto seen = kubo.server().seen();
  ASSERT_EQ(seen.size(), 2u);
  for (const char* part : {"cid-version=1", "raw-leaves=true", "chunker=size-262144", "max-file-links=174"})
    EXPECT_NE(seen[1].target.find(part), std::string::npos) << part;
  for (const TreeEntry& e : run.files) {
    std::string name = "run/" + e.path;
    for (size_t at; (at = name.find('/')) != std::string::npos;) name.replace(at, 1, "%2F");
    EXPECT_NE(seen[1].body.find("filename=\"" + name + "\""), std::string::npos) << e.path;
  }
  const Json state = read_json_file(f.path() + "/publish.json");
  EXPECT_EQ(state["steps"]["ipfs"]["result"]["cid"], kubo.cid);
  const auto again = publish(run, surroundings(), {}, false);
  EXPECT_EQ(again[0].state, StepOutcome::State::kKept);
  EXPECT_EQ(kubo.server().seen().size(), 2u);
}

TEST(Kubo, WhatIsPinnedThereIsNotSentAgain) {
  FakeKubo kubo;
  kubo.pinned = true;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.url() + "\", car: true, profile: unixfs-v1-2025}}\n");
  kubo.cid = cid_of_run(open_run(f.path()), "unixfs-v1-2025");
  kubo.pins = R"({"Keys":{")" + kubo.cid + R"(":{"Type":"recursive","Name":""}}})";
  publish(open_run(f.path()), surroundings(), {}, false);
  EXPECT_EQ(kubo.server().seen().size(), 1u);
  // An answer that does not name it is none: whoever stands in between says 200, too.
  for (const char* other : {"{}", "[]", "<html>", R"({"Keys":{"bafkqaaa":{"Type":"recursive"}}})"}) {
    kubo.pins = other;
    fs::remove(f.path() + "/publish.json");
    publish(open_run(f.path()), surroundings(), {}, false);
  }
  EXPECT_EQ(kubo.server().count("POST", "/api/v0/dag/import"), 4u);
}

TEST(Kubo, AnotherCidIsAnErrorAndTheRunIsNotSentAgainUnasked) {
  FakeKubo kubo;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.url() + "\"}}\n");
  const auto run = open_run(f.path());
  auto s = surroundings();
  kubo.cid = "bafybeiefgtmjp4u2uhtnb6opqgxzz3cf7nuyyxd3p7w53dpw7gww76id54";
  EXPECT_EQ(code_of([&] { publish(run, s, {}, false); }, kubo.cid), Exit::kVerifyFailed);
  EXPECT_EQ(read_json_file(f.path() + "/publish.json")["steps"]["ipfs"]["done"], false);
  kubo.cid = cid_of_run(run, "kubo-v1");
  EXPECT_EQ(code_of([&] { publish(run, s, {}, false); }, "publish --again"), Exit::kVerifyFailed);
  EXPECT_EQ(kubo.server().count("POST", "/api/v0/add"), 1u);
  s.again = true;
  publish(run, s, {}, false);
  EXPECT_EQ(read_json_file(f.path() + "/publish.json")["steps"]["ipfs"]["done"], true);
}

TEST(Kubo, ThatCutsOtherwiseIsSentBlocksWithoutBeingAskedTo) {
  FakeKubo kubo;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.url() + "\"}}\n");
  publish::Run run = open_run(f.path());
  kubo.cid = "bafybeiefgtmjp4u2uhtnb6opqgxzz3cf7nuyyxd3p7w53dpw7gww76id54";
  EXPECT_EQ(code_of([&] { publish(run, surroundings(), {}, false); }, "publish.ipfs.car"), Exit::kVerifyFailed);
  run.recipe.publish->ipfs->car = true;
  kubo.cid = cid_of_run(run, "kubo-v1");
  publish(run, surroundings(), {}, false);
  EXPECT_EQ(kubo.server().count("POST", "/api/v0/dag/import"), 1u);
}

TEST(Kubo, WhatGoesWrongAfterItHasSaidTwoHundredIsAnError) {
  FakeKubo kubo;
  const FinishedRun f("publish: {lighthouse: {}, ipfs: {api_url: \"" + kubo.url() + "\"}}\n");
  const auto run = open_run(f.path());
  kubo.cid = cid_of_run(run, "kubo-v1");
  const auto s = surroundings({{"LIGHTHOUSE_API_KEY", "k"}, {"LIGHTHOUSE_ENDPOINT", kubo.url()}});
  const auto doing = [&](const char* step) { return [&run, &s, step] { publish(run, s, {step}, false); }; };
  for (const char* step : {"ipfs", "lighthouse"}) {
    kubo.trailer = "pin: context deadline exceeded";
    EXPECT_EQ(code_of(doing(step), "context deadline exceeded"), Exit::kBadInput) << step;
    kubo.trailer = "";
    kubo.line = R"({"Message":"no space left","Code":0,"Type":"error"})";
    EXPECT_EQ(code_of(doing(step), "no space left"), Exit::kBadInput) << step;
    EXPECT_EQ(read_json_file(f.path() + "/publish.json")["steps"][step]["done"], false) << step;
    kubo.line = "";
    EXPECT_EQ(code_of(doing(step), ""), Exit::kOk) << step;
  }
}

TEST(Kubo, ACarIsImportedAndLeftNowhere) {
  FakeKubo kubo;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.url() + "\", car: true}}\n");
  const auto run = open_run(f.path());
  kubo.cid = cid_of_run(run, "kubo-v1");
  const auto files = list_entries(f.path());
  if (const pid_t killed = fork(); killed == 0) {  // while it writes
    const CarWriter writer(f.path() + "/.publish.car", 1);
    _exit(0);
  } else {
    waitpid(killed, nullptr, 0);
  }
  EXPECT_GT(list_entries(f.path()).size(), files.size());
  publish(run, surroundings(), {}, false);
  EXPECT_EQ(kubo.server().count("POST", "/api/v0/dag/import"), 1u);
  auto after = list_entries(f.path());
  std::erase_if(after, [](const std::string& name) { return name == "publish.json" || name == ".lock"; });
  EXPECT_EQ(after, files);
}

TEST(Kubo, IsSentNothingWhereItCouldNotBeKeptThatItWas) {
  FakeKubo kubo;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.url() + "\"}}\n");
  fs::create_symlink(f.place() + "/none/publish.json", f.path() + "/publish.json");
  EXPECT_EQ(code_of([&] { publish(open_run(f.path()), surroundings(), {}, false); }, "leads nowhere"), Exit::kBadInput);
  EXPECT_TRUE(kubo.server().seen().empty());
}

TEST(Kubo, DownOrRefusingIsExitOneWithTheStateKept) {
  FakeKubo kubo;
  kubo.status = 500;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.url() + "\"}}\n"),
      down("publish: {ipfs: {api_url: \"http://127.0.0.1:1\"}}\n");
  EXPECT_EQ(code_of([&] { publish(open_run(f.path()), surroundings(), {}, false); }, "no space left"), Exit::kBadInput);
  EXPECT_EQ(code_of([&] { publish(open_run(down.path()), surroundings(), {}, false); }, "the same command goes on"),
            Exit::kBadInput);
}

TEST(Lighthouse, MayCutByEitherProfileAndNeverSeesItsKeyInTheState) {
  FakeKubo node;
  const FinishedRun f("publish: {lighthouse: {api_key_env: LH}}\n");
  const auto run = open_run(f.path());
  node.cid = cid_of_run(run, "unixfs-v1-2025");
  publish(run, surroundings({{"LH", "k3y-of-mine"}, {"LIGHTHOUSE_ENDPOINT", node.url()}}), {}, false);
  EXPECT_EQ(node.server().seen().at(0).headers.at("authorization"), "Bearer k3y-of-mine");
  const std::string state = read_file(f.path() + "/publish.json");
  EXPECT_EQ(state.find("k3y"), std::string::npos);
  EXPECT_EQ(Json::parse(state)["steps"]["lighthouse"]["result"]["profile"], "unixfs-v1-2025");
}

TEST(Lighthouse, WhatIsThereThoughItsAnswerWasLostIsNotSentAgain) {
  FakeKubo node;
  const FinishedRun f("publish: {lighthouse: {}}\n");
  const auto run = open_run(f.path());
  const auto s = surroundings({{"LIGHTHOUSE_API_KEY", "k"}, {"LIGHTHOUSE_ENDPOINT", node.url()}});
  node.cid = cid_of_run(run, "kubo-v1");
  node.lost = true;
  EXPECT_EQ(code_of([&] { publish(run, s, {}, false); }, "504"), Exit::kBadInput);
  EXPECT_EQ(node.server().count("GET", "/api/lighthouse/file_info"), 0u) << "nothing had been sent yet";
  const size_t sent = node.server().count("POST", "/api/v0/add");
  node.lost = false;
  publish(run, s, {}, false);
  EXPECT_EQ(node.server().count("POST", "/api/v0/add"), sent);
  EXPECT_EQ(read_json_file(f.path() + "/publish.json")["steps"]["lighthouse"]["result"]["cid"], node.cid);
}

TEST(Lighthouse, ThatNamesAnotherIdIsNotSentTheRunAgainUnaskedButAskedWhatItHas) {
  FakeKubo node;
  const FinishedRun f("publish: {lighthouse: {}}\n");
  const auto run = open_run(f.path());
  auto s = surroundings({{"LIGHTHOUSE_API_KEY", "k"}, {"LIGHTHOUSE_ENDPOINT", node.url()}});
  node.cid = "bafybeiefgtmjp4u2uhtnb6opqgxzz3cf7nuyyxd3p7w53dpw7gww76id54";
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(code_of([&] { publish(run, s, {}, false); }, "publish --again"), Exit::kVerifyFailed);
  EXPECT_EQ(node.server().count("POST", "/api/v0/add"), 1u);
  EXPECT_EQ(node.server().count("GET", "/api/lighthouse/file_info"), 2u) << "once for each id that it may have";
  node.cid = cid_of_run(run, "kubo-v1");
  s.again = true;
  publish(run, s, {}, false);
  EXPECT_EQ(node.server().count("POST", "/api/v0/add"), 2u);
}

TEST(HubStep, AHubThatSaysTheTokenBackPutsItIntoNoLog) {
  net::FakeUploadHub hub;
  hub.refuse = [](const net::ServerRequest& r) { return r.target == "/api/validate-yaml" ? 200 : 0; };
  hub.refuse_body = R"({"errors":[],"warnings":[{"message":"you are secret"}]})";
  const FinishedRun f("publish: {hf: {repo: org/model}}\n");
  Surroundings s = surroundings();
  s.hub.endpoint = hub.url();
  s.hub.token = "secret";
  testing::internal::CaptureStderr();
  publish(open_run(f.path()), s, {}, false);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the model card: you are ***"), std::string::npos) << said;
  EXPECT_EQ(said.find("secret"), std::string::npos) << said;
}

TEST(HubStep, APublishedCopyVerifiesByItself) {
  net::FakeUploadHub hub;
  const FinishedRun f("publish: {hf: {repo: org/model, private: true}}\n");
  const auto run = open_run(f.path());
  Surroundings s = surroundings();
  s.hub.endpoint = hub.url();
  EXPECT_EQ(code_of([&] { publish(run, s, {}, false); }, "HF_TOKEN"), Exit::kMissing);
  s.hub.token = "secret";
  const auto out = publish(run, s, {}, false);
  EXPECT_EQ(out.at(0).result["commit"], hub.head);
  EXPECT_EQ(out.at(0).result["sent"], run.files.size());
  const TempFolder copy;
  const auto put = [&](const std::string& path, const std::string& bytes) {
    make_folders(fs::path(copy.path() + "/" + path).parent_path().string());
    write_file_atomic(copy.path() + "/" + path, bytes);
  };
  for (const auto& [path, e] : hub.files) put(path, e.content);
  const std::string manifest = provenance::manifest_of(copy.path());
  EXPECT_EQ(manifest, copy.path() + "/provenance/manifest.json");
  const auto report = provenance::verify(manifest, {.of_a_run = true});
  for (const auto& x : report.findings) ADD_FAILURE() << x.field << ": " << x.what;
  EXPECT_NE(std::find(report.subjects.begin(), report.subjects.end(), "dataset: not here, not checked"),
            report.subjects.end());
  // As the Hub's own client keeps it: links to files that are named after their digests.
  const TempFolder blobs;
  for (const auto& [path, e] : hub.files) {
    const std::string blob = blobs.path() + "/" + std::to_string(std::hash<std::string>()(path));
    fs::rename(copy.path() + "/" + path, blob);
    fs::create_symlink(blob, copy.path() + "/" + path);
  }
  for (const auto& x : provenance::verify(manifest, {.of_a_run = true}).findings)
    ADD_FAILURE() << x.field << ": " << x.what;
  for (const auto& [path, e] : hub.files) fs::remove(copy.path() + "/" + path), put(path, e.content);
  const auto finding = [&] {
    const auto r = provenance::verify(manifest, {.of_a_run = true});
    return r.findings.empty() ? std::string() : r.findings[0].field;
  };
  EXPECT_NE(std::find_if(report.subjects.begin(), report.subjects.end(),
                         [](const std::string& s) { return s.starts_with("README.md: no part of the manifest"); }),
            report.subjects.end());
  for (const char* stray : {"provenance/more.txt", "provenance/a/b.txt", "provenance/.hidden", "provenance/eval/x"}) {
    put(stray, "x");
    EXPECT_TRUE(finding().ends_with(fs::path(stray).filename().string())) << stray << finding();
    fs::remove(copy.path() + "/" + stray);
  }
  put("extra.bin", "x");
  EXPECT_EQ(finding(), "checkpoint/extra.bin");
  fs::remove(copy.path() + "/extra.bin");
  put("adapter_config.json", "{\"r\":17}");
  EXPECT_EQ(finding(), "checkpoint/adapter_config.json");
  put("adapter_config.json", "{\"r\":16}");
  EXPECT_EQ(finding(), "");
  fs::remove(copy.path() + "/provenance/eval/after.json");
  EXPECT_EQ(finding(), "eval/after.json");
}

}  // namespace
}  // namespace mxt::publish
