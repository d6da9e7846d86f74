#include "registry/registry.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace mxt::registry {
namespace {

class RegistryTest : public testing::Test {
 protected:
  RegistryTest() : folder_(testing::TempDir() + "mxt_registry_" + std::to_string(getpid())) {
    fs::remove_all(folder_);
    path_ = folder_ + "/deep/runs.sqlite";
  }
  ~RegistryTest() override { fs::remove_all(folder_); }
  std::string folder_, path_;
};

TEST_F(RegistryTest, ARunGoesFromBeginToEnd) {
  Registry r = Registry::open(path_);
  const int64_t id = r.begin("out/a", "p", "first", "hash1", "run");
  r.set_stage(id, "train");
  auto run = r.find(std::to_string(id));
  ASSERT_TRUE(run);
  EXPECT_EQ(run->state, State::kRunning);
  EXPECT_EQ(run->stage, "train");
  EXPECT_EQ(run->folder, fs::absolute("out/a").string());
  EXPECT_EQ(run->ended, "");
  r.end(id, State::kFinished, "", {{"loss", 0.5}}, {{"checkpoint", "abc"}});
  run = r.find("first");
  ASSERT_TRUE(run);
  EXPECT_EQ(run->state, State::kFinished);
  EXPECT_NE(run->ended, "");
  EXPECT_EQ(run->metrics, R"({"loss":0.5})");
  EXPECT_EQ(run->digests, R"({"checkpoint":"abc"})");
  EXPECT_FALSE(r.find("second"));
}

TEST_F(RegistryTest, TheSameFolderAndRecipeIsOneRun) {
  Registry r = Registry::open(path_);
  const int64_t a = r.begin("out/a", "p", "n", "hash1", "run");
  r.end(a, State::kFailed, "no space", nullptr, nullptr);
  EXPECT_EQ(r.begin("out/./a", "p", "n", "hash1", "run"), a);
  auto run = r.find("out/a");
  ASSERT_TRUE(run);
  EXPECT_EQ(run->attempts, 2);
  EXPECT_EQ(run->state, State::kRunning);
  EXPECT_EQ(run->message, "");
  EXPECT_NE(r.begin("out/a", "p", "n", "hash2", "run"), a);
  EXPECT_EQ(r.list().size(), 2u);
  EXPECT_EQ(r.list(1).size(), 1u);
}

TEST_F(RegistryTest, AFolderHasOneNameHoweverItIsWritten) {
  Registry r = Registry::open(path_);
  const int64_t a = r.begin("out/a", "p", "n", "hash1", "run");
  for (const char* same : {"out/a/", "./out/a", "out/a/.", "out/b/../a/"}) {
    EXPECT_EQ(r.begin(same, "p", "n", "hash1", "run"), a) << same;
    ASSERT_TRUE(r.find(same)) << same;
    EXPECT_EQ(r.find(same)->id, a);
  }
  const std::string folder = testing::TempDir() + "mxt_registry_folder", link = folder + "_link";
  fs::remove(link);
  make_folders(folder);
  fs::create_directory_symlink(folder, link);
  const int64_t b = r.begin(folder + "/run", "p", "n", "hash1", "run");
  EXPECT_EQ(r.begin(link + "/run", "p", "n", "hash1", "run"), b);
  make_folders(folder + "/run");
  ASSERT_TRUE(r.find(link + "/run/"));
  EXPECT_EQ(r.find(link + "/run/")->id, b);
  fs::remove(link);
  EXPECT_EQ(r.list().size(), 2u);
  const int64_t here = r.begin(".", "p", "n", "hash1", "run");
  EXPECT_EQ(r.find(std::to_string(here))->folder, fs::current_path().string());
  EXPECT_FALSE(r.find(""));  // a shell's variable that is not set names no run
}

TEST_F(RegistryTest, AKilledRunIsInterrupted) {
  const pid_t child = fork();
  if (child == 0) {
    Registry::open(path_).begin("out/a", "p", "n", "h", "run");
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  const auto runs = Registry::open(path_).list();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].state, State::kInterrupted);
  EXPECT_EQ(runs[0].pid, child);
}

TEST_F(RegistryTest, ManyProcessesWriteAtOnce) {
  constexpr int kProcesses = 8, kRuns = 10;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        for (int i = 0; i < kRuns; ++i) {
          Registry r = Registry::open(path_);
          const int64_t id = r.begin("out/" + std::to_string(p) + "_" + std::to_string(i), "p", "n", "h", "run");
          r.end(id, State::kFinished, "", {{"i", i}}, nullptr);
        }
        _exit(0);
      } catch (const Error&) {
        _exit(1);
      }
    }
    children.push_back(child);
  }
  for (pid_t c : children) {
    int status = 0;
    waitpid(c, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const auto runs = Registry::open(path_).list();
  EXPECT_EQ(runs.size(), static_cast<size_t>(kProcesses * kRuns));
  for (const auto& r : runs) EXPECT_EQ(r.state, State::kFinished);
}

TEST_F(RegistryTest, JobsAreKeptByFolderAndId) {
  {
    Registry r = Registry::open(path_);
    JobRow j;
    j.folder = "/jobs";
    j.id = "job-2";
    j.name = "second";
    j.state = "queued";
    j.created = 20;
    r.save_job(j);
    j.state = "failed";
    j.exit_code = 3;
    j.process_start = 123456789;
    r.save_job(j);
    j.id = "job-1";
    j.exit_code.reset();
    r.save_job(j);
    j.folder = "/others";
    r.save_job(j);
  }
  const auto jobs = Registry::open(path_).jobs("/jobs");
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].id, "job-1");
  EXPECT_FALSE(jobs[0].exit_code);
  EXPECT_EQ(jobs[1].state, "failed");
  EXPECT_EQ(jobs[1].exit_code, 3);
  EXPECT_EQ(jobs[1].process_start, 123456789u);
  EXPECT_EQ(jobs[1].created, 20);
}

TEST_F(RegistryTest, AFileThatIsNoDatabaseIsRefused) {
  make_folders(folder_);
  write_file_atomic(folder_ + "/x", std::string(5000, 'x'));
  try {
    Registry::open(folder_ + "/x");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput);
    EXPECT_NE(std::string(e.what()).find(folder_ + "/x"), std::string::npos);
  }
}

TEST_F(RegistryTest, RunsAreNamedTaggedAndArchived) {
  Registry r = Registry::open(path_);
  const int64_t a = r.begin("out/a", "p", "quick", "hash1", "run"), b = r.begin("out/b", "p", "quick", "hash1", "run");
  for (int64_t id : {a, b}) r.end(id, State::kFinished, "", nullptr, nullptr);
  r.set_note(a, {"the good one", {"paper", "é\"x"}, true});
  auto run = r.find(std::to_string(a));
  ASSERT_TRUE(run);
  EXPECT_EQ(run->name(), "the good one");
  EXPECT_EQ(run->run_name, "quick");
  EXPECT_EQ(run->note.tags, (std::vector<std::string>{"paper", "é\"x"}));
  EXPECT_TRUE(run->note.archived);
  EXPECT_EQ(r.find("the good one")->id, a);
  EXPECT_EQ(r.find("quick")->id, b);
  EXPECT_EQ(r.find(std::to_string(b))->note, Note{});
  // It stays through a further attempt, which is listed, and what another process reads.
  r.begin("out/a", "p", "quick", "hash1", "run");
  EXPECT_EQ(Registry::open(path_).find(std::to_string(a))->name(), "the good one");
  EXPECT_FALSE(Registry::open(path_).find(std::to_string(a))->note.archived);
  r.set_note(a, {});
  EXPECT_EQ(r.find(std::to_string(a))->note, Note{});
}

// Each of many at once adds its own word to what the others have said.
TEST_F(RegistryTest, ChangesOfOneNoteDoNotLoseEachOther) {
  Registry r = Registry::open(path_);
  const int64_t a = r.begin("out/a", "p", "n", "hash1", "run");
  constexpr int kMany = 8;
  for (int i = 0; i < kMany; ++i)
    if (fork() == 0) {
      const auto add = [&](Note& n) {
        usleep(2000);
        n.tags.push_back(std::to_string(i));
      };
      Registry::open(path_).change_note(a, add);
      _exit(0);
    }
  for (int i = 0; i < kMany; ++i) wait(nullptr);
  EXPECT_EQ(r.find(std::to_string(a))->note.tags.size(), static_cast<size_t>(kMany));
  const auto fails = [](Note& n) {
    n.tags.clear();
    fail_input("no");
  };
  EXPECT_THROW(r.change_note(a, fails), Error);
  EXPECT_EQ(r.find(std::to_string(a))->note.tags.size(), static_cast<size_t>(kMany));
  EXPECT_EQ(r.change_note(a, [](Note& n) { n = {}; }), Note{});
}

TEST_F(RegistryTest, WhatIsSaidOfARunIsNotSaidOfTheNextInItsFolder) {
  Registry r = Registry::open(path_);
  const int64_t a = r.begin("out/a", "p", "n", "hash1", "run");
  r.end(a, State::kFinished, "", nullptr, nullptr);
  r.set_note(a, {"old", {"paper"}, true});
  const int64_t b = r.begin("out/a", "p", "n", "hash2", "run");
  EXPECT_EQ(r.find(std::to_string(b))->note, Note{});
  EXPECT_EQ(r.find(std::to_string(b))->replaced_by, 0);
  EXPECT_EQ(r.find(std::to_string(a))->replaced_by, b);
  r.end(b, State::kFinished, "", nullptr, nullptr);
  r.set_note(b, {"new", {}, false});
  r.remove(*r.find(std::to_string(a)));
  EXPECT_EQ(r.find(std::to_string(b))->name(), "new");
  r.remove(*r.find(std::to_string(b)));
  EXPECT_EQ(r.find(std::to_string(r.begin("out/a", "p", "n", "hash2", "run")))->note, Note{});
}

TEST_F(RegistryTest, TheFirstRunOfAJobTakesOverWhatWasSaidOfTheJob) {
  Registry r = Registry::open(path_);
  const std::string folder = fs::absolute("jobs/job-1/run").string();
  r.set_waiting_note(folder, {"the job", {"x"}, false});
  EXPECT_EQ(r.waiting_notes().at(folder).name, "the job");
  const int64_t a = r.begin(folder, "p", "n", "hash1", "run");
  EXPECT_EQ(r.find(std::to_string(a))->name(), "the job");
  EXPECT_TRUE(r.waiting_notes().empty());
  EXPECT_EQ(r.find(std::to_string(r.begin(folder, "p", "n", "hash2", "run")))->note, Note{});
  r.set_waiting_note("/jobs/2", {"x", {}, false});
  r.set_waiting_note("/jobs/2", {});
  EXPECT_TRUE(r.waiting_notes().empty());
}

TEST_F(RegistryTest, NotesOfFoldersInAnOlderFileAreNotesOfTheirRuns) {
  int64_t a = 0, b = 0, c = 0;
  {
    Registry r = Registry::open(path_);
    a = r.begin("/out/a", "p", "n", "hash1", "run"), b = r.begin("/out/a", "p", "n", "hash2", "run");
    c = r.begin("/out/c", "p", "n", "hash1", "run");
  }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db,
                         "DROP TABLE run_notes; INSERT INTO notes VALUES('/out/a', 'both', '[\"x\"]', 1), "
                         "('/jobs/1/run', 'waits', '[]', 0); PRAGMA user_version=3",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  for (int time = 0; time < 2; ++time) {
    Registry r = Registry::open(path_);
    for (const int64_t id : {a, b}) EXPECT_EQ(r.find(std::to_string(id))->note, (Note{"both", {"x"}, true}));
    EXPECT_EQ(r.find(std::to_string(c))->note, Note{});
    EXPECT_EQ(r.waiting_notes().size(), 1u);
  }
}

TEST_F(RegistryTest, RunsAreRemovedButNotWhileTheyRun) {
  Registry r = Registry::open(path_);
  const int64_t a = r.begin("out/a", "p", "n", "hash1", "run"), b = r.begin("out/a", "p", "n", "hash2", "run");
  EXPECT_THROW(r.remove(*r.find(std::to_string(a))), Error);
  for (int64_t id : {a, b}) r.end(id, State::kFailed, "x", nullptr, nullptr);
  r.set_note(b, {"mine", {}, false});
  r.remove(*r.find(std::to_string(a)));
  EXPECT_FALSE(r.find(std::to_string(a)));
  EXPECT_EQ(r.find("mine")->id, b);  // the folder has another run
  r.remove(*r.find(std::to_string(b)));
  EXPECT_TRUE(r.list().empty());
  EXPECT_NE(r.begin("out/a", "p", "n", "hash1", "run"), a);
  r.save_job({.folder = "/jobs", .id = "job-1", .name = "n", .state = "finished"});
  r.remove_job("/jobs", "job-1");
  EXPECT_TRUE(r.jobs("/jobs").empty());
}

}  // namespace
}  // namespace mxt::registry
