// A conversation at the terminal.
#include "e2e/cli.h"
#include "serve/tiny_model.h"

namespace mxt {
namespace {

TEST(Chat, ALineThatIsNoTextIsNotTakenAndTheConversationGoesOn) {
  cli::Folder f("chat_lines");
  const std::string command = "chat --threads 1 --max-tokens 3 --model " + serve::make_tiny_model(f / "model") + " < ";
  write_file_atomic(f / "model/chat_template.jinja", "{% for m in messages %}{{ m.content }}\n{% endfor %}");
  for (const std::string& bad : {std::string("\xff\xfe"), std::string("caf\xe9"), std::string("\xed\xa0\x80")}) {
    write_file_atomic(f / "lines", "hello\n" + bad + "\nagain\n");
    const cli::Result r = cli::run(command + (f / "lines"));
    EXPECT_EQ(r.code, 0) << r.out;
    EXPECT_EQ(r.out.find(bad), std::string::npos);
    const size_t said = r.out.find("not valid UTF-8");
    EXPECT_NE(said, std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("not valid UTF-8", said + 1), std::string::npos) << r.out;
  }
}

}  // namespace
}  // namespace mxt
