// What eval prints, as a program reads it.
#include "e2e/cli.h"
#include "serve/tiny_model.h"
#include "tokenizer/chat/tools_as_text.h"

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

// The base of a run whose rows have their tools as text is asked as its rows are, and a checkpoint of it the same way.
TEST(Eval, OfARecipeHasItsToolsAsItsRowsDo) {
  cli::Folder f("eval_tools");
  const std::string model = serve::make_tiny_model(f / "model");
  const std::string knows_none = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
  write_file_atomic(f / "model/chat_template.jinja", knows_none);
  write_file_atomic(f / "r.yaml",
                    fmt::format("meta: {{project: test, run_name: tools}}\nhardware: {{name: cpu}}\n"
                                "model: {{name: \"{}\"}}\ndata: {{source: local, path: \"{}\", tools_in: system}}\n"
                                "eval: {{harness: {{tasks: [tool_calls_simple]}}}}\n",
                                model, f / "rows.jsonl"));
  const std::string command = "eval --json --limit 2 --threads 1 --model " + model + " --out " + (f / "scores");
  const cli::Result apart = cli::run(command + " --tasks tool_calls_simple");
  EXPECT_NE(apart.code, 0);
  EXPECT_NE(apart.out.find("set data.tools_in: system"), std::string::npos) << apart.out;
  const auto measured = [&] {
    const cli::Result r =
        cli::run(command + " --config " + (f / "r.yaml") + " >" + (f / "out.json") + " 2>/dev/null #");
    EXPECT_EQ(r.code, 0) << cli::run(command + " --config " + (f / "r.yaml")).out;
    return read_json_file(f / "out.json")["results"];
  };
  const Json as_rows = measured();
  ASSERT_TRUE(as_rows.contains("tool_calls_simple")) << as_rows.dump();
  write_file_atomic(f / "model/chat_template.jinja", tokenizer::with_tools_as_text(knows_none));
  EXPECT_EQ(measured(), as_rows);
}

}  // namespace
}  // namespace mxt
