// Rewards that are asked outside of the process: a program, an endpoint.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "net/http.h"
#include "net/url.h"
#include "train/rewards/child.h"
#include "train/rewards/rewards.h"

namespace mxt::train {
namespace {

using OutsideValues = std::vector<std::optional<double>>;
using Clock = std::chrono::steady_clock;

OrderedJson json_of(const Answer& a) {
  OrderedJson j{{"prompt", a.prompt}, {"answer", a.text}, {"reference", a.reference}};
  for (const Turn& t : a.turns) j["turns"].push_back({{"role", t.role}, {"text", t.text}});
  return j;
}

std::optional<double> number_at(const Json& j, size_t which) {
  if (j.is_null()) return std::nullopt;
  if (!j.is_number()) fail_input("of answer {} it says {}: a number or null is needed", which, j.dump().substr(0, 80));
  return j.get<double>();
}

// Why a program cannot be started, "" where it can; as execvp finds it.
std::string why_not(const std::string& program, const std::string& program_path) {
  const auto look = [](const std::string& file) -> std::string {
    struct stat st{};
    if (::stat(file.c_str(), &st) != 0 || (!S_ISDIR(st.st_mode) && ::access(file.c_str(), X_OK) != 0))
      return std::strerror(errno);
    return S_ISDIR(st.st_mode) ? std::strerror(EISDIR) : "";
  };
  if (program.find('/') != std::string::npos) return look(program);
  if (program_path.empty()) return "";
  for (const std::string_view folder : split(program_path, ':'))
    if (look(std::string(folder.empty() ? "." : folder) + "/" + program).empty()) return "";
  return "no folder of PATH holds it; give its path";
}

class Command : public Reward {
 public:
  Command(const config::RewardPart& part, const std::string& at, const std::string& program_path)
      : command_(part.command), seconds_(part.timeout_seconds) {
    if (const std::string why = why_not(command_[0], program_path); !why.empty())
      fail_missing("{}.command: {} cannot be started: {}", at, printable(command_[0]), why);
  }

  OutsideValues score(std::span<const Answer> answers, StopFlag stop) override {
    std::string input;
    for (const Answer& a : answers)
      input += json_of(a).dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
    const Said said = talk(input, kBytesAnAnswer * (answers.size() + 1), stop);
    OutsideValues out;
    for (std::string_view line : split(said.output, '\n')) {
      if (trim(line).empty()) continue;
      if (out.size() == answers.size()) fail_input("{} wrote more lines than there are answers", command_[0]);
      const Json value = Json::parse(line, nullptr, false);
      if (value.is_discarded())  // no JSON: nan and inf are none
        fail_input("of answer {} it says {}: a number or null is needed", out.size(), printable(line.substr(0, 80)));
      out.push_back(number_at(value, out.size()));
    }
    if (out.size() != answers.size())
      fail_input("{} wrote {} lines for {} answers{}", command_[0], out.size(), answers.size(), said.complaint());
    return out;
  }

 private:
  static constexpr size_t kBytesAnAnswer = 4096, kErrorBytes = 4096;

  struct Said {
    std::string output, errors;  // of its errors the end
    // Their last line, as the end of a message.
    std::string complaint() const {
      const std::string_view text = trim(errors);
      const std::string_view last = trim(text.substr(text.rfind('\n') + 1));
      return last.empty() ? "" : fmt::format(": {}", printable(last.substr(0, 200)));
    }
  };

  static void make_pipe(int (&ends)[2]) {
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_input("pipe: {}", std::strerror(errno));
  }

  // Reads what has come; false at its end.
  static bool take(int fd, std::string* text) {
    char buffer[65536];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n > 0) text->append(buffer, static_cast<size_t>(n));
    return n > 0 || (n < 0 && errno == EINTR);
  }

  // Writes the input and reads all output at once, so that neither side waits for the other.
  Said talk(std::string_view input, size_t most, StopFlag stop) const {
    int in[2], out[2], err[2];  // in: a socket, since writing to one whose reader is gone can be an error, not a signal
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0)
      fail_input("socketpair: {}", std::strerror(errno));
    Handle to(in[0]), its_input(in[1]);
    make_pipe(out);
    Handle from(out[0]), its_output(out[1]);
    make_pipe(err);
    Handle errors(err[0]), its_errors(err[1]);
    const auto until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
    Child child(command_, its_input.get(), its_output.get(), its_errors.get());
    its_input.close();
    its_output.close();
    its_errors.close();
    Said said;
    // Until its end, and not that of its output: it may close that and go on, or leave something running that holds it.
    for (;;) {
      check_stop(stop);
      if (Clock::now() >= until) fail_input("{} took more than {:g} s{}", command_[0], seconds_, said.complaint());
      const bool ended = child.wait(Clock::now()).has_value();  // asked first: it writes nothing after
      pollfd wait[3] = {{from.get(), POLLIN, 0}, {errors.get(), POLLIN, 0}, {to.get(), POLLOUT, 0}};  // -1: passed over
      if (::poll(wait, 3, ended ? 0 : from.get() < 0 ? 2 : 50) < 0) {
        if (errno != EINTR) fail_input("poll: {}", std::strerror(errno));
        continue;
      }
      if (wait[2].revents != 0) {
        const ssize_t n = ::send(to.get(), input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) input.remove_prefix(static_cast<size_t>(n));
        // One that reads no further may still answer.
        if (input.empty() || (n < 0 && errno != EAGAIN && errno != EINTR)) to.close();
      }
      if (wait[1].revents != 0) {
        if (!take(errors.get(), &said.errors)) errors.close();
        if (said.errors.size() > kErrorBytes) said.errors.erase(0, said.errors.size() - kErrorBytes);
      }
      if (wait[0].revents != 0 && !take(from.get(), &said.output)) from.close();
      if (said.output.size() > most) fail_input("{} wrote more than {} bytes", command_[0], most);
      if (ended && wait[0].revents == 0) break;
    }
    const auto code = child.wait(until);
    while (errors.get() >= 0) {  // what it wrote last
      pollfd more = {errors.get(), POLLIN, 0};
      if (::poll(&more, 1, 0) <= 0 || !take(errors.get(), &said.errors)) errors.close();
      if (said.errors.size() > kErrorBytes) said.errors.erase(0, said.errors.size() - kErrorBytes);
    }
    if (*code != 0) fail_input("{} ended with exit code {}{}", command_[0], *code, said.complaint());
    return said;
  }

  std::vector<std::string> command_;
  double seconds_;
};

class Endpoint : public Reward {
 public:
  Endpoint(const config::RewardPart& part, const std::string& at) : url_(*part.url), seconds_(part.timeout_seconds) {
    net::public_url(url_, at + ".url");
  }

  OutsideValues score(std::span<const Answer> answers, StopFlag stop) override {
    OrderedJson all = OrderedJson::array();
    for (const Answer& a : answers) all.push_back(json_of(a));
    net::HttpOptions options;
    options.cancel = stop;
    net::HttpClient client(options);
    net::HttpRequest r;
    r.method = "POST";
    r.url = url_;
    r.headers = {{"Content-Type", "application/json"}};
    r.body = OrderedJson{{"answers", std::move(all)}}.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    r.total_seconds = seconds_;
    r.idle_seconds = seconds_;
    r.repeatable = true;  // asking twice asks the same
    r.redirects = 0;
    const net::HttpResponse a = ask(client, r);
    if (a.status != 200) fail_input("{} answers {}: {}", url_, a.status, printable(a.body.substr(0, 200)));
    const Json j = Json::parse(a.body, nullptr, false);
    const Json list = j.is_object() ? j.value("rewards", Json()) : Json();
    if (!list.is_array()) fail_input("{} answers without \"rewards\", a list of {} numbers", url_, answers.size());
    if (list.size() != answers.size())
      fail_input("{} answers with {} rewards for {} answers", url_, list.size(), answers.size());
    OutsideValues out;
    for (const Json& x : list) out.push_back(number_at(x, out.size()));
    return out;
  }

 private:
  net::HttpResponse ask(net::HttpClient& client, const net::HttpRequest& r) const {
    const auto begin = Clock::now();
    try {
      return client.send(r);
    } catch (const Error& e) {
      if (e.code() == Exit::kMissing && std::chrono::duration<double>(Clock::now() - begin).count() >= seconds_)
        fail_input("{} took more than {:g} s", url_, seconds_);
      throw;
    }
  }

  std::string url_;
  double seconds_;
};

}  // namespace

std::unique_ptr<Reward> make_command_reward(const config::RewardPart& part, const std::string& at,
                                            const std::string& program_path) {
  return std::make_unique<Command>(part, at, program_path);
}
std::unique_ptr<Reward> make_http_reward(const config::RewardPart& part, const std::string& at) {
  return std::make_unique<Endpoint>(part, at);
}

}  // namespace mxt::train
