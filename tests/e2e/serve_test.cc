// The server as a process of its own: how it ends.
#include <sys/prctl.h>

#include <csignal>

#include "base/within.h"
#include "e2e/cli.h"
#include "e2e/client.h"

namespace mxt {
namespace {

using cli::answers;

// A program starts the server with --until-stdin-ends and is killed: the server must not outlive it.
TEST(Serve, EndsWithTheProgramThatStartedIt) {
  cli::Folder f("orphan");
  const uint16_t port = free_port();
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // the orphan becomes ours, so that its end can be seen
  int said[2];
  ASSERT_EQ(pipe(said), 0);
  const pid_t starter = fork();
  if (starter == 0) {
    int to_server[2];
    if (pipe(to_server) != 0) _exit(9);
    const pid_t server = fork();
    if (server == 0) {
      dup2(to_server[0], 0);
      close(to_server[0]), close(to_server[1]), close(said[0]), close(said[1]);
      if (!freopen((f / "log").c_str(), "w", stderr)) _exit(9);
      execl(kBinary, kBinary, "serve", "--jobs", (f / "jobs").c_str(), "--port", std::to_string(port).c_str(),
            "--until-stdin-ends", nullptr);
      _exit(9);
    }
    close(to_server[0]);
    if (write(said[1], &server, sizeof server) != sizeof server) _exit(9);
    while (true) pause();
  }
  pid_t server = 0;
  ASSERT_EQ(read(said[0], &server, sizeof server), static_cast<ssize_t>(sizeof server));
  close(said[0]), close(said[1]);
  EXPECT_TRUE(within(60, [&] { return answers(port); })) << read_file(f / "log");
  EXPECT_EQ(kill(server, 0), 0);
  kill(starter, SIGKILL);
  waitpid(starter, nullptr, 0);
  int status = 0;
  const bool ended = within(60, [&] { return waitpid(server, &status, WNOHANG) == server; });
  if (!ended) kill(server, SIGKILL), waitpid(server, nullptr, 0);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << ": " << read_file(f / "log");
}

// Whoever may ask for plans and runs reads no file beyond the folders that the server was given: nor does a recipe that
// is to run first, whose words would stand in the answer.
TEST(Serve, ARecipeThatRunsFirstLiesInTheServersFolders) {
  cli::Folder f("outside");
  const std::string secret = f / "secret.yaml", inside = f / "inside";
  write_file_atomic(secret, "hunter2: 1\n");
  make_folders(inside);
  const uint16_t port = free_port();
  const pid_t server = cli::start({"serve", "--jobs", inside + "/jobs", "--port", std::to_string(port)});
  EXPECT_TRUE(within(60, [&] { return answers(port); }));
  for (const std::string& model : {"name: \"recipe:" + secret + "\"", std::string("name: \"recipe:../x.yaml\"")}) {
    const Json body{{"recipe", "meta: {project: test, run_name: a}\nhardware: {name: cpu}\nmodel: {" + model +
                                   "}\ndata: {source: synth, seq_len: 64}\n"}};
    for (const char* verb : {"check", "plan", "preflight"}) {
      const std::string said = cli::asked(port, std::string("/coach/api/") + verb, body.dump());
      EXPECT_NE(said.find("lies outside the folders"), std::string::npos) << verb << model << said;
      EXPECT_EQ(said.find("hunter2"), std::string::npos) << said;
    }
  }
  EXPECT_EQ(cli::stop(server, SIGTERM), 0);
}

}  // namespace
}  // namespace mxt
