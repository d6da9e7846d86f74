#include "net/hub.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "net/fake_hub.h"
#include "net/hub/internal.h"

namespace mxt::net {
namespace {

class HubTest : public testing::Test {
 protected:
  HubTest() {
    cache = testing::TempDir() + "mxt_hub_" + testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
            std::to_string(getpid());
    fs::remove_all(cache);
    std::string weights(300'000, '\0');
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<char>(i * 2654435761u >> 13);
    fake.files = {{"config.json", "{}"},
                  {"model.safetensors", weights},
                  {"sub/deep/a b.txt", "spaced"},
                  {"README.md", "hello"},
                  {"copy.md", "hello"}};
    fake.large = {"model.safetensors"};
    settings.endpoint = fake.url();
    settings.cache_dir = cache;
    settings.retry_base_seconds = 0.01;
  }
  ~HubTest() override { fs::remove_all(cache); }

  std::string snapshot(const std::vector<std::string>& allow = {}) {
    return Hub(settings).download_snapshot("org/model", RepoType::kModel, "main", allow);
  }
  void refused(const std::function<void()>& f, Exit code, const std::string& part) {
    try {
      f();
      ADD_FAILURE() << "no error; wanted: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
  std::string repo() const { return cache + "/models--org--model"; }

  FakeHub fake;
  HubSettings settings;
  std::string cache;
};

TEST_F(HubTest, SnapshotHasTheEcosystemsLayout) {
  fake.page = 2;
  const std::string dir = snapshot();
  EXPECT_EQ(dir, repo() + "/snapshots/" + fake.commit);
  for (const auto& [name, content] : fake.files) EXPECT_EQ(read_file(dir + "/" + name), content) << name;
  EXPECT_EQ(read_file(repo() + "/refs/main"), fake.commit);
  EXPECT_EQ(fs::read_symlink(dir + "/sub/deep/a b.txt"), "../../../../blobs/" + etag_of("spaced", false));
  EXPECT_EQ(fs::read_symlink(dir + "/model.safetensors"),
            "../../blobs/" + etag_of(fake.files["model.safetensors"], true));
  EXPECT_EQ(fs::read_symlink(dir + "/README.md"), fs::read_symlink(dir + "/copy.md"));
  for (const auto& e : fs::directory_iterator(repo() + "/blobs")) EXPECT_NE(e.path().extension(), ".incomplete");
  EXPECT_EQ(fake.hub().count("GET", "/tree/"), 3u);  // five files in pages of two
}

TEST_F(HubTest, SecondTimeFetchesNothing) {
  snapshot();
  const size_t heads = fake.hub().count("HEAD", ""), gets = fake.store().seen().size();
  snapshot();
  EXPECT_EQ(fake.hub().count("HEAD", ""), heads);
  EXPECT_EQ(fake.store().seen().size(), gets);
}

TEST_F(HubTest, PatternsChooseFiles) {
  const std::string dir = snapshot({"*.json", "sub/"});
  EXPECT_TRUE(fs::exists(dir + "/config.json"));
  EXPECT_TRUE(fs::exists(dir + "/sub/deep/a b.txt"));
  EXPECT_FALSE(fs::exists(dir + "/model.safetensors"));
  refused([&] { snapshot({"*.gguf"}); }, Exit::kBadInput, "none of its files");
  EXPECT_TRUE(matches("a/b.txt", {"*.txt"}, {}));
  EXPECT_FALSE(matches("a/b.txt", {"*.txt"}, {"a/*"}));
}

TEST_F(HubTest, ResumesBrokenDownloads) {
  fake.cut_store_after = 70'000;
  const std::string dir = snapshot();
  EXPECT_EQ(read_file(dir + "/model.safetensors"), fake.files["model.safetensors"]);
  EXPECT_GE(fake.store().seen().size(), 5u);
  EXPECT_EQ(fake.store().seen().back().headers.at("range").substr(0, 6), "bytes=");
}

TEST_F(HubTest, ResumesWhatAnotherRunLeft) {
  const std::string& content = fake.files["model.safetensors"];
  make_folders(repo() + "/blobs");
  std::ofstream(repo() + "/blobs/" + etag_of(content, true) + ".incomplete", std::ios::binary)
      << content.substr(0, 123'456);
  const std::string dir = snapshot();
  EXPECT_EQ(read_file(dir + "/model.safetensors"), content);
  EXPECT_EQ(fake.store().seen().at(0).headers.at("range"), "bytes=123456-");
}

TEST_F(HubTest, StartsAgainWhereRangesAreUnknown) {
  fake.store_knows_ranges = false;
  const std::string& content = fake.files["model.safetensors"];
  make_folders(repo() + "/blobs");
  std::ofstream(repo() + "/blobs/" + etag_of(content, true) + ".incomplete", std::ios::binary)
      << std::string(1000, '?');
  EXPECT_EQ(read_file(snapshot() + "/model.safetensors"), content);
}

TEST_F(HubTest, DamagedBytesAreNotKept) {
  fake.corrupt = "model.safetensors";
  refused([&] { snapshot(); }, Exit::kVerifyFailed, "sha256");
  EXPECT_FALSE(fs::exists(repo() + "/blobs/" + etag_of(fake.files["model.safetensors"], true)));
  fake.corrupt.clear();
  EXPECT_EQ(read_file(snapshot() + "/model.safetensors"), fake.files["model.safetensors"]);
}

TEST_F(HubTest, TokenGoesToTheHubAlone) {
  fake.token = settings.token = "hf_secret";
  snapshot();
  for (const auto& r : fake.hub().seen()) EXPECT_EQ(r.headers.at("authorization"), "Bearer hf_secret");
  ASSERT_FALSE(fake.store().seen().empty());
  for (const auto& r : fake.store().seen()) EXPECT_FALSE(r.headers.contains("authorization"));
}

TEST_F(HubTest, AMirrorsPasswordGoesToItAloneAndIsNotShown) {
  settings.endpoint.insert(settings.endpoint.find("//") + 2, "me:secret@");
  snapshot();
  for (const auto& r : fake.hub().seen()) EXPECT_EQ(r.headers.at("authorization"), "Basic bWU6c2VjcmV0");
  ASSERT_FALSE(fake.store().seen().empty());
  for (const auto& r : fake.store().seen()) EXPECT_FALSE(r.headers.contains("authorization"));
  try {
    Hub(settings).download_snapshot("org/none", RepoType::kModel);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("secret"), std::string::npos) << e.what();
  }
}

TEST_F(HubTest, ErrorsSayWhatToDo) {
  Hub hub(settings);
  refused([&] { hub.download_snapshot("org/none", RepoType::kModel); }, Exit::kBadInput, "set HF_TOKEN");
  refused([&] { hub.download_snapshot("org/model", RepoType::kModel, "v9"); }, Exit::kBadInput, "no such revision");
  refused([&] { hub.download_file("org/model", RepoType::kModel, "main", "none.txt"); }, Exit::kBadInput,
          "no such file");
  refused([&] { hub.download_file("org/model", RepoType::kModel, "main", "../x"); }, Exit::kBadInput, "file name");
  refused([&] { hub.info("../../etc", RepoType::kModel); }, Exit::kBadInput, "not a Hub id");
  refused([&] { hub.info("org/model", RepoType::kModel, "../main"); }, Exit::kBadInput, "not a revision");
  fake.gated = true;
  refused([&] { hub.download_snapshot("org/model", RepoType::kModel); }, Exit::kMissing, "accept its terms at");
  settings.endpoint = "http://127.0.0.1:1";
  refused([&] { snapshot(); }, Exit::kMissing, "cannot be reached");
  settings.endpoint = "not a url";
  refused([&] { snapshot(); }, Exit::kBadInput, "HF_ENDPOINT");
  fake.gated = false;
  settings.endpoint = fake.url();
  settings.cache_dir = "/proc/cache";
  refused([&] { snapshot(); }, Exit::kBadInput, "HF_HOME names another cache");
}

TEST_F(HubTest, OfflineUsesTheCacheAndAsksNobody) {
  settings.offline = true;
  refused([&] { snapshot(); }, Exit::kMissing, "hf download org/model");
  EXPECT_TRUE(fake.hub().seen().empty());
  settings.offline = false;
  const std::string dir = snapshot();
  const size_t asked = fake.hub().seen().size();
  settings.offline = true;
  EXPECT_EQ(snapshot(), dir);
  Hub hub(settings);
  EXPECT_EQ(read_file(hub.download_file("org/model", RepoType::kModel, fake.commit, "config.json")), "{}");
  refused([&] { hub.download_file("org/model", RepoType::kModel, "main", "other.json"); }, Exit::kMissing,
          "not in the cache");
  EXPECT_EQ(fake.hub().seen().size(), asked);
}

TEST_F(HubTest, AGoneNetworkPointsToTheCacheWhereItHoldsWhatIsAskedFor) {
  const std::string alive = settings.endpoint;
  const auto gone = [&](const std::string& revision, const std::string& path) -> std::string {
    settings.endpoint = "http://127.0.0.1:1";
    std::string what;
    try {
      path.empty() ? snapshot() : Hub(settings).download_file("org/model", RepoType::kModel, revision, path);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kMissing);
      what = e.what();
    }
    settings.endpoint = alive;
    EXPECT_NE(what.find("cannot be reached"), std::string::npos) << what;
    return what;
  };
  const std::string remedy = "HF_HUB_OFFLINE=1";
  EXPECT_EQ(gone("main", "").find(remedy), std::string::npos);
  EXPECT_EQ(gone("main", "config.json").find(remedy), std::string::npos);
  snapshot();
  EXPECT_NE(gone("main", "").find(remedy), std::string::npos);
  EXPECT_NE(gone("main", "config.json").find(remedy), std::string::npos);
  EXPECT_EQ(gone("main", "other.json").find(remedy), std::string::npos);
  EXPECT_EQ(gone("other", "config.json").find(remedy), std::string::npos);
}

TEST_F(HubTest, HostileAnswersAreRefused) {
  const auto with = [&](const std::string& header, const std::string& value, const std::string& part) {
    fs::remove_all(cache);
    fake.replace_header = {{header, value}};
    refused([&] { snapshot(); }, Exit::kBadInput, part);
    EXPECT_FALSE(fs::exists(testing::TempDir() + "evil"));
  };
  with("ETag", "\"../../../../evil\"", "is this a Hub?");
  with("X-Repo-Commit", "../../evil", "is this a Hub?");
  with("X-Repo-Commit", std::string(40, 'b'), "answered commit");
  with("X-Linked-Size", "100", "");
  with("Location", "file:///etc/passwd", "redirect");
  fake.replace_header.clear();
  fake.files["../evil"] = "x";
  refused([&] { snapshot(); }, Exit::kBadInput, "file name");
  fake.files.erase("../evil");
  fake.commit = "zzz";
  refused([&] { snapshot(); }, Exit::kBadInput, "names no commit");
}

TEST(HubNames, AsTheHubAllowsThem) {
  for (const char* good : {"gpt2", "Qwen/Qwen3-8B", "a/b.c_d-e"}) EXPECT_TRUE(is_repo_id(good)) << good;
  for (const char* bad : {"", "/", "a/", "a/b/c", "-a", "a-", "a--b", "a..b", "a/b.git", "a b", "ü"})
    EXPECT_FALSE(is_repo_id(bad)) << bad;
}

// Opt-in: MXT_LIVE_PYTHON names a Python with huggingface_hub. Its own client takes the same server for a Hub, and each
// client finds in the other's cache what it wants.
TEST_F(HubTest, LiveHuggingFaceClientAgrees) {
  const char* python = std::getenv("MXT_LIVE_PYTHON");
  if (!python) GTEST_SKIP() << "set MXT_LIVE_PYTHON to a Python with huggingface_hub";
  const std::string theirs = cache + "_theirs";
  const auto run = [&](const std::string& cache_dir, const std::string& more) {
    const std::string command =
        "HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1 HF_ENDPOINT=" + fake.url() + " " + std::string(python) +
        " -c \"from huggingface_hub import snapshot_download; print(snapshot_download('org/model', cache_dir='" +
        cache_dir + "'" + more + "))\" > " + cache_dir + ".out 2>&1";
    return std::system(command.c_str());
  };
  ASSERT_EQ(run(theirs, ""), 0) << read_file(theirs + ".out");
  snapshot();
  const auto listing = [&](const std::string& root) {
    std::vector<std::string> out;
    for (const auto& e : fs::recursive_directory_iterator(root + "/models--org--model")) {
      const std::string path = e.path().string().substr(root.size());
      if (path.find("/trees") != std::string::npos || path.find(".no_exist") != std::string::npos) continue;
      if (e.is_symlink())
        out.push_back(path + " -> " + fs::read_symlink(e).string());
      else if (e.is_regular_file())
        out.push_back(path + " = " + std::to_string(std::hash<std::string>()(read_file(e.path().string()))));
    }
    std::sort(out.begin(), out.end());
    return out;
  };
  EXPECT_GE(listing(theirs).size(), fake.files.size() + 1);
  EXPECT_EQ(listing(cache), listing(theirs));
  EXPECT_EQ(run(cache, ", local_files_only=True"), 0) << read_file(cache + ".out");  // theirs from our cache
  settings.cache_dir = theirs;
  settings.offline = true;
  EXPECT_EQ(read_file(snapshot() + "/model.safetensors"), fake.files["model.safetensors"]);  // ours from theirs
  fs::remove_all(theirs);
  fs::remove(theirs + ".out");
  fs::remove(cache + ".out");
}

}  // namespace
}  // namespace mxt::net
