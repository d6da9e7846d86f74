// What eval prints, as a program reads it.
#include "e2e/cli.h"
#include "serve/tiny_model.h"

namespace mxt {
namespace {

TEST(Eval, WithJsonWhateverIsMeasuredIsOneDocument) {
  cli::Folder f("eval_json");
  const std::string golden = std::string(kSourceDir) + "/tests/golden/eval";
  const std::string command =
      "eval --json --limit 2 --threads 1 --model " + serve::make_tiny_model(f / "model") + " --out " + (f / "scores");
  const std::string tasks = " --tasks quiz_text,quiz_choice --task-path " + golden + "/tasks --data-dir " + golden +
                            "/data",
                    text = " --text " + (f / "t.txt"), synth = " --synth addition";
  write_file_atomic(f / "model/chat_template.jinja", "{% for m in messages %}{{ m.content }}\n{% endfor %}");
  write_file_atomic(f / "t.txt", "Some text that is here.\n");
  const auto measured = [&](const std::string& what) {
    const cli::Result r = cli::run(command + what + " >" + (f / "out.json") + " 2>/dev/null #");
    EXPECT_EQ(r.code, 0) << cli::run(command + what).out;
    return read_json_file(f / "out.json");  // and nothing after it
  };
  const Json plain = measured(text), scores = measured(tasks), both = measured(text + tasks),
             all = measured(text + synth + tasks);
  ASSERT_TRUE(scores["results"].contains("quiz_choice")) << scores.dump();
  EXPECT_FALSE(plain.contains("results"));
  ASSERT_FALSE(plain.empty());
  for (const auto& [key, value] : plain.items()) {
    EXPECT_EQ(both[key], value) << key;
    EXPECT_EQ(all[key], value) << key;
  }
  EXPECT_EQ(both["results"], scores["results"]);
  EXPECT_EQ(all["results"], scores["results"]);
  EXPECT_GT(all.size(), both.size());
}

}  // namespace
}  // namespace mxt
