// Certificates: what is trusted, and what is said of the rest.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "free_port.h"
#include "net/http.h"

namespace mxt::net {
namespace {

// openssl's own server, with a certificate of its own making for `localhost`.
class SelfSigned {
 public:
  SelfSigned() : folder_(testing::TempDir() + "mxt_tls_" + std::to_string(getpid())), port_(free_port()) {
    make_folders(folder_);
    const std::string make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost -keyout " +
        key() + " -out " + certificate() + " 2>/dev/null";
    made_ = std::system(make.c_str()) == 0;
    if (!made_) return;
    child_ = fork();
    if (child_ != 0) return;
    execlp("openssl", "openssl", "s_server", "-accept", std::to_string(port_).c_str(), "-cert", certificate().c_str(),
           "-key", key().c_str(), "-www", "-quiet", static_cast<char*>(nullptr));
    _exit(9);
  }
  ~SelfSigned() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    std::error_code ec;
    fs::remove_all(folder_, ec);
  }
  SelfSigned(const SelfSigned&) = delete;
  bool made() const { return made_; }
  std::string certificate() const { return folder_ + "/certificate.pem"; }
  std::string url(const std::string& host) const { return fmt::format("https://{}:{}/", host, port_); }

 private:
  std::string key() const { return folder_ + "/key.pem"; }
  std::string folder_;
  int port_;
  bool made_ = false;
  pid_t child_ = -1;
};

// The answer's status, or the error's words once the server is there.
std::string asked(HttpClient& client, const std::string& url) {
  for (int i = 0;; ++i) try {
      return std::to_string(client.send({.url = url, .retries = 0}).status);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kMissing);
      const std::string what = e.what();
      if (what.find("cannot be reached") == std::string::npos || i == 100) return what;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

TEST(Tls, ACertificateThatIsNotTrustedIsSaidWithTheRemedy) {
  if (std::system("command -v openssl >/dev/null") != 0) GTEST_SKIP() << "openssl, the program, is not here";
  const SelfSigned server;
  ASSERT_TRUE(server.made());
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  HttpClient system_s, own({.ca_file = server.certificate()}), empty({.ca_file = "/dev/null"});
  EXPECT_EQ(asked(own, server.url("localhost")), "200");
  const std::string refused = asked(system_s, server.url("localhost"));
  EXPECT_TRUE(has(refused, "certificate is not trusted") && has(refused, "SSL_CERT_FILE")) << refused;
  const std::string other = asked(own, server.url("127.0.0.1"));
  EXPECT_TRUE(has(other, "not for this host") && has(other, "a name that its certificate has")) << other;
  const std::string none = asked(empty, server.url("localhost"));
  EXPECT_TRUE(has(none, "/dev/null holds no certificate authorities")) << none;
}

}  // namespace
}  // namespace mxt::net
