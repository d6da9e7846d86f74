#include "track/track.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "net/test_server.h"

namespace mxt::track {
namespace {

std::string folder(const std::string& name) {
  const std::string f = testing::TempDir() + "mxt_track_" + name;
  std::error_code ec;
  fs::remove_all(f, ec);
  make_folders(f);
  return f;
}

Curves sample(int points) {
  Curves c{.project = "p",
           .run_name = "r",
           .id = "abcd1234",
           .started = 1'700'000'000,
           .config = {{"train", {{"lr", 0.1}}}}};
  for (int i = 1; i <= points; ++i)
    c.points.push_back({i, c.started + i, {{"train/loss", 1.0 / i}, {"train/lr", 0.1}}});
  c.finished = true;
  return c;
}

TEST(Curves, AreReadFromMetricsUpToALineThatIsCutOff) {
  const std::string f = folder("curves") + "/metrics.jsonl";
  write_file_atomic(f,
                    "{\"step\":1,\"loss\":2.5,\"lr\":0.1,\"grad_norm\":1,\"tokens\":100,\"tok_s\":50,\"mfu\":null}\n"
                    "{\"step\":2,\"loss\":2.0,\"lr\":0.1,\"grad_norm\":1,\"tokens\":200,\"tok_s\":25,\"eval_loss\":3}"
                    "\n{\"step\":3,\"lo");
  const Curves c = read_curves(f, 1000);
  ASSERT_EQ(c.points.size(), 2u);
  EXPECT_EQ(c.points[0].time, 1002);
  EXPECT_EQ(c.points[1].time, 1006);
  EXPECT_EQ(c.points[1].values.back(), (std::pair<std::string, double>{"eval/loss", 3}));
  write_file_atomic(f, "");
  EXPECT_THROW(read_curves(f, 0), Error);
}

// What TensorBoard's files show (train/metrics.cc): a method's own numbers and the experts' too.
TEST(Curves, HaveWhateverAMethodMeasures) {
  const std::string f = folder("curves_of_methods") + "/metrics.jsonl";
  write_file_atomic(f,
                    R"({"step":1,"loss":0.5,"lr":0.1,"grad_norm":1,"kl":0.01,"rewards/answer":0.75,"val/grad_norm":2,)"
                    R"("tokens":100,"tok_s":50,"tflops":1,"mfu":null,"memory_bytes":9,"peak_memory_bytes":9,)"
                    R"("watts":null,"balance_loss":1.5,"expert_load":1.1,"eval_loss":3})"
                    "\n");
  const Curves c = read_curves(f, 0);
  ASSERT_EQ(c.points.size(), 1u);
  std::vector<std::string> names;
  for (const auto& [name, v] : c.points[0].values) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"train/loss", "train/lr", "train/grad_norm", "train/kl",
                                             "train/rewards/answer", "train/val/grad_norm", "train/tok_s",
                                             "train/balance_loss", "train/expert_load", "eval/loss"}));
}

// Every piece's checksum holds, pieces never cross a block, and joined they are as many records as were written.
TEST(Wandb, TheFileIsALevelDbLogWhoseChecksumsHold) {
  const std::string path = write_wandb(sample(2000), folder("wandb")), all = read_file(path);
  EXPECT_NE(path.find("/wandb/offline-run-20231114_221320-abcd1234/run-abcd1234.wandb"), std::string::npos) << path;
  ASSERT_GT(all.size(), 3u * 32768);
  EXPECT_EQ(all.substr(0, 4), ":W&B");
  size_t records = 0, losses = 0;
  std::string record;
  for (size_t at = 7; at < all.size();) {
    const size_t room = 32768 - at % 32768;
    if (room < 7) {
      at += room;
      continue;
    }
    uint32_t sum;
    uint16_t length;
    std::memcpy(&sum, all.data() + at, 4);
    std::memcpy(&length, all.data() + at + 4, 2);
    const char type = all[at + 6];
    ASSERT_LE(size_t{7} + length, room);
    ASSERT_EQ(sum, crc32(0, reinterpret_cast<const Bytef*>(all.data() + at + 6), 1u + length)) << at;
    if (type == 1 || type == 2) record.clear();
    record += all.substr(at + 7, length);
    if (type == 1 || type == 4) {
      ++records;
      losses += record.find("train/loss") != std::string::npos;
    }
    at += size_t{7} + length;
  }
  EXPECT_EQ(records, 2000u + 4);
  EXPECT_EQ(losses, 2000u + 1);  // and the summary
}

TEST(Wandb, AProjectHasANameThatItTakes) {
  Curves c = sample(1);
  c.project = "a/b: 50% #1?";
  const std::string all = read_file(write_wandb(c, folder("wandb_project")));
  EXPECT_NE(all.find("a-b- 50- -1-"), std::string::npos);
  EXPECT_EQ(all.find(c.project), std::string::npos);
}

TEST(Trackio, ARunWrittenTwiceStandsThereOnce) {
  const std::string f = folder("trackio");
  write_trackio(sample(5), f);
  const std::string path = write_trackio(sample(3), f);
  EXPECT_EQ(path, f + "/p.db");
  EXPECT_EQ(read_file(path).substr(0, 15), "SQLite format 3");
  write_file_atomic(f + "/p.db", "no database");
  EXPECT_THROW(write_trackio(sample(3), f), Error);
}

TEST(Trackio, AProjectsFileHasTheNameThatTrackioLooksFor) {
  const std::string f = folder("trackio_names");
  Curves c = sample(1);
  // As its canonical_project_name says.
  for (const auto& [project, name] :
       {std::pair("my.model v2", "mymodelv2"), {"größe_№5-二", "größe_5-二"}, {"x½²٣", "x½²٣"}, {"../..", "default"}}) {
    c.project = project;
    EXPECT_EQ(write_trackio(c, f), f + "/" + name + ".db");
  }
}

TEST(Mlflow, ACredentialIsSentAndARefusalNamesItsVariables) {
  std::string sent;
  net::TestServer server([&](const net::ServerRequest& r) {
    sent = r.headers.contains("authorization") ? r.headers.at("authorization") : "";
    return sent.empty() ? net::ServerResponse{.status = 401, .body = "You are not authenticated."}
                        : net::ServerResponse{.status = 403, .body = R"({"error_code": "PERMISSION_DENIED"})"};
  });
  net::HttpClient client({.retry_base_seconds = 0.01});
  const auto said = [&](const MlflowLogin& login) {
    try {
      MlflowRun(sample(0), server.url(), client, login);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kMissing);
      return std::string(e.what());
    }
    return std::string();
  };
  const auto names = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string none = said({});
  EXPECT_TRUE(names(none, "401") && names(none, "MLFLOW_TRACKING_TOKEN") && names(none, "MLFLOW_TRACKING_USERNAME"))
      << none;
  EXPECT_THROW(check_mlflow(server.url(), "p", client), Error) << "before a run, too";
  const std::string refused = said({.token = "t"});
  EXPECT_TRUE(names(refused, "403") && names(refused, "MLFLOW_TRACKING_TOKEN")) << refused;
  EXPECT_EQ(sent, "Bearer t");
  said({.username = "u", .password = "p", .token = "t"});
  EXPECT_EQ(sent, "Basic dTpw");
}

TEST(Mlflow, LogsByItsRestInterfaceAndNamesWhatRefuses) {
  std::vector<std::string> calls;
  size_t metrics = 0;
  net::TestServer server([&](const net::ServerRequest& r) {
    calls.push_back(r.target.substr(0, r.target.find('?')));
    if (r.target.find("get-by-name") != std::string::npos)
      return net::ServerResponse{.status = 404,
                                 .body = R"({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"})"};
    if (r.target.ends_with("experiments/create")) return net::ServerResponse{.body = R"({"experiment_id": "7"})"};
    if (r.target.ends_with("runs/create")) return net::ServerResponse{.body = R"({"run": {"info": {"run_id": "x"}}})"};
    if (r.target.ends_with("log-batch")) metrics += Json::parse(r.body).value("metrics", Json::array()).size();
    return net::ServerResponse{.body = "{}"};
  });
  net::HttpClient client({.retry_base_seconds = 0.01});
  MlflowRun run(sample(0), server.url("/"), client);
  EXPECT_EQ(run.address(), server.url() + "/#/experiments/7/runs/x");
  run.send(sample(400));
  EXPECT_EQ(metrics, 800u);
  run.end(sample(1200));      // those that the server has not got,
  EXPECT_EQ(metrics, 2400u);  // in calls of at most a thousand
  EXPECT_EQ(calls.back(), "/api/2.0/mlflow/runs/update");
  net::TestServer other([](const net::ServerRequest&) { return net::ServerResponse{.status = 404, .body = "<html>"}; });
  EXPECT_THROW(MlflowRun(sample(1), other.url(), client), Error);
  EXPECT_THROW(MlflowRun(sample(1), "ftp://x", client), Error);
}

// A run that was stopped and goes on is the same run there.
TEST(Mlflow, FindsItsRunAgainAndSendsWhatIsNew) {
  size_t metrics = 0, made = 0;
  net::TestServer server([&](const net::ServerRequest& r) {
    if (r.target.find("get-by-name") != std::string::npos)
      return net::ServerResponse{.body = R"({"experiment": {"experiment_id": "7"}})"};
    if (r.target.ends_with("runs/search")) {
      EXPECT_NE(r.body.find("abcd1234"), std::string::npos);
      return net::ServerResponse{
          .body =
              R"({"runs": [{"info": {"run_id": "x"}, "data": {"metrics": [{"key": "train/loss", "step": "3"}]}}]})"};
    }
    made += r.target.ends_with("runs/create");
    if (r.target.ends_with("log-batch")) metrics += Json::parse(r.body).value("metrics", Json::array()).size();
    return net::ServerResponse{.body = "{}"};
  });
  net::HttpClient client({.retry_base_seconds = 0.01});
  MlflowRun(sample(0), server.url(), client).end(sample(5));
  EXPECT_EQ(metrics, 4u);
  EXPECT_EQ(made, 0u);
}

TEST(Mlflow, ARedirectElsewhereIsNamed) {
  int there = 0;
  net::TestServer elsewhere([&](const net::ServerRequest&) {
    ++there;
    return net::ServerResponse{.body = "{}"};
  });
  net::TestServer server([&](const net::ServerRequest& r) {
    return net::ServerResponse{.status = 302, .headers = {{"Location", elsewhere.url(r.target)}}};
  });
  net::HttpClient client({.retry_base_seconds = 0.01});
  try {
    MlflowRun(sample(0), server.url(), client, {.token = "t"});
    ADD_FAILURE() << "a redirect was taken for an answer";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kMissing);
    EXPECT_NE(std::string(e.what()).find("a redirect to " + elsewhere.url()), std::string::npos) << e.what();
  }
  EXPECT_EQ(there, 0);
}

// A run waits for its first answer.
TEST(Mlflow, AServerThatFailsIsAskedTwice) {
  int calls = 0;
  net::TestServer server([&](const net::ServerRequest&) {
    ++calls;
    return net::ServerResponse{.status = 503, .body = "not now"};
  });
  net::HttpClient client({.retry_base_seconds = 0.01});
  EXPECT_THROW(MlflowRun(sample(0), server.url(), client), Error);
  EXPECT_EQ(calls, 2);
}

// The server refuses a call for one name that it does not take; and whoever reads it after a call that failed finds
// whole steps, of which the next one begins.
TEST(Mlflow, TakesOddNamesAndHasWholeStepsWhereACallFails) {
  std::vector<std::string> keys;
  std::map<int64_t, size_t> there;  // numbers of each step
  size_t calls = 0;
  net::TestServer server([&](const net::ServerRequest& r) {
    if (r.target.find("get-by-name") != std::string::npos)
      return net::ServerResponse{.body = R"({"experiment": {"experiment_id": "7"}})"};
    if (r.target.ends_with("runs/search")) return net::ServerResponse{.body = R"({"runs": []})"};
    if (r.target.ends_with("runs/create")) return net::ServerResponse{.body = R"({"run": {"info": {"run_id": "x"}}})"};
    const Json body = Json::parse(r.body);
    for (const Json& p : body.value("params", Json::array())) keys.push_back(p["key"]);
    if (!body.contains("metrics")) return net::ServerResponse{.body = "{}"};
    EXPECT_LE(body["metrics"].size(), 1000u);
    if (++calls == 2) return net::ServerResponse{.status = 400, .body = R"({"message": "full"})"};
    for (const Json& m : body["metrics"]) ++there[m["step"]], keys.push_back(m["key"]);
    return net::ServerResponse{.body = "{}"};
  });
  net::HttpClient client({.retry_base_seconds = 0.01});
  Curves c = sample(400);
  c.config = {{"data", {{"columns", {{"a b%", "c"}}}}}};
  for (Point& p : c.points) p.values.emplace_back("train/rewards/is it 5%?", 1.0);
  MlflowRun run(c, server.url(), client);
  EXPECT_THROW(run.send(c), Error);
  EXPECT_EQ(there.size(), 333u);
  run.send(c);
  EXPECT_EQ(there.size(), 400u);
  for (const auto& [step, n] : there) EXPECT_EQ(n, 3u) << step;
  EXPECT_EQ(keys.front(), "data.columns.a b_");
  EXPECT_EQ(keys.back(), "train/rewards/is it 5__");
}

}  // namespace
}  // namespace mxt::track
