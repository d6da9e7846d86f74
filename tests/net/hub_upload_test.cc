#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "net/fake_upload_hub.h"
#include "net/hub/git_oid.h"
#include "net/hub_upload.h"

namespace mxt::net {
namespace {

// What huggingface_hub computes for "hello\n" (git hash-object).
TEST(GitOid, IsGits) { EXPECT_EQ(git_blob_oid("hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a"); }

class Upload : public testing::Test {
 protected:
  Upload() {
    folder_ = testing::TempDir() + "mxt_upload_" + std::to_string(getpid()) + "_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    make_folders(folder_);
    write_file_atomic(folder_ + "/model.safetensors", weights_);
    settings.endpoint = hub.url();
    settings.token = "secret";
    settings.retry_base_seconds = 0.01;
    files = {{"model.safetensors", folder_ + "/model.safetensors"},
             {"empty.safetensors", "", ""},
             {"config.json", "", "{}"},
             {"provenance/manifest.json", "", "{\"a\":1}"},
             {"README.md", "", "---\nlicense: mit\n---\n"}};
  }
  ~Upload() override { fs::remove_all(folder_); }
  UploadResult send() { return upload_files(settings, "org/model", RepoType::kModel, files, upload); }
  // A first try in parts, refused at the request whose address holds `at`; the next one has what it kept.
  void refuse_in_parts(const std::string& at) {
    hub.multipart_from = 2000;
    upload.save = [&](const Json& parts) { upload.parts = parts; };
    hub.refuse = [at](const ServerRequest& r) { return r.target.find(at) != std::string::npos ? 403 : 0; };
    EXPECT_THROW(send(), Error);
    hub.refuse = nullptr;
  }
  void expect_published() {
    for (const UploadFile& f : files) {
      ASSERT_TRUE(hub.files.contains(f.path)) << f.path;
      EXPECT_EQ(hub.files[f.path].content, f.source.empty() ? f.text : weights_) << f.path;
    }
    EXPECT_TRUE(hub.files["model.safetensors"].lfs);
  }
  FakeUploadHub hub;
  HubSettings settings;
  UploadSettings upload;
  std::vector<UploadFile> files;
  std::string folder_, weights_ = std::string(4500, 'w') + "end";
};

TEST_F(Upload, MakesTheRepositorySendsEverythingAndASecondTimeNothing) {
  const UploadResult r = send();
  expect_published();
  EXPECT_EQ(r.sent, files.size());
  EXPECT_EQ(r.commit, hub.head);
  EXPECT_EQ(hub.commits, 1);
  EXPECT_EQ(hub.store().seen().size(), 1u);
  const UploadResult again = send();
  EXPECT_EQ(again.sent, 0u);
  EXPECT_EQ(again.commit, r.commit);
  EXPECT_EQ(hub.commits, 1);
  EXPECT_EQ(hub.store().seen().size(), 1u);
}

TEST_F(Upload, SendsOnlyWhatChanged) {
  send();
  files[2].text = "{\"changed\": true}";
  EXPECT_EQ(send().sent, 1u);
  expect_published();
  EXPECT_EQ(hub.store().seen().size(), 1u);
}

TEST_F(Upload, WaitsForWhoIsJustMakingTheRepositoryAndNeedsNoRightToMakeOneThatIsThere) {
  int left = 2;
  hub.refuse_body = R"({"error":"another conflicting operation is in progress"})";
  hub.refuse = [&](const ServerRequest& r) { return r.target == "/api/repos/create" && left-- > 0 ? 409 : 0; };
  send();
  expect_published();
  hub.refuse = [](const ServerRequest& r) { return r.target == "/api/repos/create" ? 403 : 0; };
  EXPECT_EQ(send().sent, 0u);
}

TEST_F(Upload, CutsLargeFilesIntoParts) {
  hub.multipart_from = 2000;
  send();
  expect_published();
  EXPECT_EQ(hub.store().count("PUT", "/part/"), 5u);
}

TEST_F(Upload, GoesOnWithTheFirstPartThatIsMissing) {
  refuse_in_parts("/4?");
  const size_t before = hub.store().count("PUT", "/part/");
  send();
  expect_published();
  EXPECT_EQ(hub.store().count("PUT", "/part/") - before, 2u) << "parts 4 and 5";
}

TEST_F(Upload, KeepsThePartsWhereTheirEndIsRefusedForTheToken) {
  refuse_in_parts("/complete");
  send();
  expect_published();
  EXPECT_EQ(hub.store().count("PUT", "/part/"), 5u);
}

TEST_F(Upload, SendsThePartsAgainThatTheStoreLostThoughItSaidThatItHasAll) {
  hub.multipart_from = 2000;
  upload.save = [&](const Json& parts) { upload.parts = parts; };
  hub.refuse = [](const ServerRequest& r) { return r.target.find("/complete") != std::string::npos ? 200 : 0; };
  EXPECT_THROW(send(), Error) << "the look at it afterwards finds nothing";
  hub.refuse = nullptr;
  send();
  expect_published();
  EXPECT_EQ(hub.store().count("PUT", "/part/"), 10u);
}

TEST_F(Upload, BeginsAnewWhereTheStoreHasForgottenTheUpload) {
  refuse_in_parts("/4?");
  hub.upload_id = "two";
  send();
  expect_published();
}

TEST_F(Upload, RecognisesACommitWhoseAnswerWasLost) {
  hub.lose_answer = {"/commit/main"};
  const UploadResult r = send();
  expect_published();
  EXPECT_EQ(hub.commits, 1);
  EXPECT_EQ(r.commit, hub.head);
}

TEST_F(Upload, TriesAgainAfterServerErrors) {
  int left = 3;
  hub.refuse = [&](const ServerRequest& r) { return r.method != "GET" && left-- > 0 ? 503 : 0; };
  send();
  expect_published();
}

TEST_F(Upload, SplitsWhatIsTooMuchForOneCommitAndSendsTheManifestLast) {
  upload.commit_files = 2;
  send();
  expect_published();
  EXPECT_EQ(hub.commits, 3);
}

TEST_F(Upload, KeepsTheTokenFromTheStore) {
  send();
  for (const ServerRequest& r : hub.store().seen()) EXPECT_FALSE(r.headers.contains("authorization"));
}

TEST_F(Upload, SaysWhatTheHubRefuses) {
  settings.token = "wrong";
  try {
    send();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput);
    EXPECT_NE(std::string(e.what()).find("HF_TOKEN"), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).find("wrong"), std::string::npos) << "the token itself is not shown";
  }
  EXPECT_THROW(validate_card(settings, "x", RepoType::kModel), Error);
  settings.token = "secret";
  EXPECT_TRUE(validate_card(settings, files.back().text, RepoType::kModel).empty());
  EXPECT_THROW(validate_card(settings, "---\nlicense: bad\n---\n", RepoType::kModel), Error);
}

TEST_F(Upload, SaysWhyNoCommitIsTakenAndWaitsAsLongAsItIsAskedTo) {
  const auto said = [&] {
    try {
      send();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  int status = 0, asked = 0;
  hub.refuse = [&](const ServerRequest& r) {
    if (r.target.find("/commit/") == std::string::npos) return 0;
    return ++asked, status;
  };
  for (const int s : {409, 412, 429, 503}) {
    status = s;
    asked = 0;
    hub.refuse_body = R"({"error":"too many commits of yours"})";
    const std::string what = said();
    EXPECT_NE(what.find(std::to_string(s) + ": too many commits of yours"), std::string::npos) << what;
    EXPECT_EQ(what.find("under way there: the same command goes on") != std::string::npos, s < 429) << what;
    EXPECT_GE(asked, 4);
  }
  for (const std::string seconds : {"3600", "99999999999999"}) {
    hub.refuse_headers = {{"Retry-After", seconds}};
    asked = 0;
    EXPECT_NE(said().find(seconds + " s: the same command goes on then"), std::string::npos) << said();
    EXPECT_EQ(asked, 1);
  }
  hub.refuse_headers = {{"Retry-After", "1"}};
  asked = 0;
  hub.refuse = [&](const ServerRequest& r) {
    return r.target.find("/commit/") != std::string::npos && ++asked == 1 ? 429 : 0;
  };
  const auto began = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  send();
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      line.find(hub.url() + ": answers 429: too many commits of yours, and asks to be left alone for 1 s; Ctrl-C"),
      std::string::npos)
      << line;
  expect_published();
  EXPECT_GT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(900));
}

TEST_F(Upload, SaysThatAnAnswerHasNoAddress) {
  for (const char* odd : {"5", R"("x")", "[]", "{}", R"({"href": 7})"}) {
    hub.odd_upload = Json::parse(odd);
    try {
      send();
      FAIL() << odd;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("does not say where model.safetensors goes"), std::string::npos) << e.what();
    }
  }
}

TEST_F(Upload, FindsAHeadThatHoldsOtherBytes) {
  hub.wrong_head = "config.json";
  try {
    send();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kVerifyFailed);
  }
}

}  // namespace
}  // namespace mxt::net
