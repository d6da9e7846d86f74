// The registry of runs as its verbs show it: names, tags, archive, what is taken out.
#include <algorithm>

#include "e2e/cli.h"

namespace mxt {
namespace {

class Runs : public testing::Test {
 protected:
  cli::Result runs(const std::string& words) { return cli::run("runs " + words, "MINDXTRAIN_HOME=" + (f / "home")); }
  // A run of the recipe's own name, whose folder is this.
  void train(const std::string& project, const std::string& folder) {
    std::string text = cli::recipe({.steps = 1});
    const std::string own = "project: test";
    text.replace(text.find(own), own.size(), "project: " + project);
    write_file_atomic(f / "r.yaml", text);
    const cli::Result r =
        cli::run("train " + (f / "r.yaml") + " --out " + (f / folder), "MINDXTRAIN_HOME=" + (f / "home"));
    ASSERT_EQ(r.code, 0) << r.out;
  }
  // Ids that a list shows.
  std::vector<int> listed(const std::string& words = "") {
    const cli::Result r = runs("list --json " + words);
    EXPECT_EQ(r.code, 0) << r.out;
    std::vector<int> ids;
    for (const Json& one : Json::parse(r.out, nullptr, false)) ids.push_back(one.value("id", -1));
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  cli::Folder f{"runs"};
};

TEST_F(Runs, AreNamedTaggedFoundArchivedAndTakenOut) {
  train("one", "a");
  train("two", "b");
  using Ids = std::vector<int>;
  EXPECT_EQ(listed(), (Ids{1, 2}));
  EXPECT_EQ(runs("rename 1 'best so far'").code, 0);
  EXPECT_NE(runs("show 'best so far'").out.find(f / "a"), std::string::npos);
  EXPECT_EQ(listed("--find best"), (Ids{1}));
  EXPECT_EQ(listed("--project two"), (Ids{2}));
  EXPECT_EQ(runs("tag 2 keep 'for the paper'").code, 0);
  EXPECT_EQ(runs("tag 1 keep").code, 0);
  EXPECT_EQ(listed("--tag keep"), (Ids{1, 2}));
  EXPECT_EQ(listed("--tag keep --tag 'for the paper'"), (Ids{2}));
  EXPECT_EQ(runs("tag 2 new --remove keep").code, 0);
  EXPECT_EQ(listed("--tag keep"), (Ids{1}));
  EXPECT_EQ(listed("--tag new"), (Ids{2}));
  EXPECT_EQ(runs("archive " + (f / "b")).code, 0);
  EXPECT_EQ(listed(), (Ids{1}));
  EXPECT_EQ(listed("--all"), (Ids{1, 2}));
  EXPECT_EQ(runs("archive 2 --undo").code, 0);
  EXPECT_EQ(listed(), (Ids{1, 2}));
  EXPECT_EQ(runs("rename 1 ''").code, 0);
  EXPECT_TRUE(listed("--find best").empty());
  EXPECT_EQ(runs("delete 2").code, 0);
  EXPECT_EQ(listed("--all"), (Ids{1}));
  EXPECT_TRUE(fs::exists(f / "b/checkpoint"));
}

TEST_F(Runs, HaveSoManyTagsAsThePageTakes) {
  train("one", "a");
  std::string tags;
  for (int i = 0; i < 20; ++i) tags += " t" + std::to_string(i);
  EXPECT_EQ(runs("tag 1" + tags).code, 0);
  const cli::Result r = runs("tag 1 more");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("a run has at most 20 tags: take some away by --remove"), std::string::npos) << r.out;
  EXPECT_EQ(runs("tag 1 more --remove t0").code, 0);
}

// Both columns begin where they do for a name of plain letters.
TEST_F(Runs, ListsCutLongNamesBetweenCharacters) {
  train("one", "a");
  std::string name = "a";
  for (int i = 0; i < 30; ++i) name += "é";
  EXPECT_EQ(runs("rename 1 " + name).code, 0);
  EXPECT_NE(runs("list").out.find("    1  " + name.substr(0, 47) + " finished     "), std::string::npos)
      << runs("list").out;
  EXPECT_EQ(runs("rename 1 é").code, 0);
  EXPECT_NE(runs("list").out.find("    1  é" + std::string(24, ' ') + "finished     "), std::string::npos)
      << runs("list").out;
}

TEST_F(Runs, OfAFolderThatHoldsALaterRunAreNotTakenForIt) {
  train("one", "a");
  EXPECT_EQ(runs("rename 1 first").code, 0);
  EXPECT_EQ(runs("archive 1").code, 0);
  fs::remove_all(f / "a");
  train("two", "a");
  EXPECT_EQ(listed(), (std::vector<int>{2}));
  EXPECT_EQ(listed("--find first"), (std::vector<int>{}));
  const Json old = Json::parse(runs("show 1 --json").out), now = Json::parse(runs("show 2 --json").out);
  EXPECT_TRUE(old["last_step"].is_null());
  EXPECT_EQ(old["folder_holds"], 2);
  EXPECT_EQ(now["last_step"]["step"], 1);
  EXPECT_FALSE(now.contains("folder_holds"));
  const Json both = Json::parse(runs("compare 1 2 --json").out);
  EXPECT_TRUE(both["recipe"].is_null());
  EXPECT_EQ(both["not_compared"], "the folder of run 1 now holds run 2");
  EXPECT_NE(runs("compare 1 2").out.find("not compared: the folder of run 1 now holds run 2"), std::string::npos);
  const cli::Result r = runs("report 1 --to wandb");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("now holds run 2"), std::string::npos) << r.out;
}

TEST_F(Runs, NamesThatAreNoPlainTextAndRunsThatAreNotThereAreRefused) {
  train("one", "a");
  for (const char* words : {"rename 1 \"$(printf 'a\\033[31mb')\"", "tag 1 \"$(printf 'a\\nb')\"",
                            "rename 1 \"$(printf '\\377')\"", "rename 1 \"$(printf 'a\\342\\200\\256b')\"",
                            "rename 9 x", "tag 9 x", "archive 9", "delete 9", "show 9", "rename 1", "rename 1 a b"}) {
    const cli::Result r = runs(words);
    EXPECT_EQ(r.code, 1) << words << ": " << r.out;
    EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 1) << words << ": " << r.out;
  }
  EXPECT_EQ(listed(), (std::vector<int>{1}));
}

}  // namespace
}  // namespace mxt
