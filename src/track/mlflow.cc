#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"
#include "net/url.h"
#include "track/track.h"

namespace mxt::track {
namespace {

constexpr size_t kMetricsPerCall = 1000, kParamsPerCall = 100, kLongestParam = 6000;  // the server's own limits
// Of one answer, which is small: one that comes drop by drop would hold a run for ever.
constexpr double kMostSeconds = 60;
constexpr uint64_t kMostBytes = 16u << 20;

class Server {
 public:
  Server(std::string url, net::HttpClient& client, const MlflowLogin& login) : url_(std::move(url)), client_(client) {
    while (url_.ends_with('/')) url_.pop_back();
    const auto address = net::parse_url(url_);
    if (!address) fail_input("\"{}\" is no address of an MLflow server: http://HOST:PORT", net::shown_url(url_));
    has_login_ = !address->user.empty();
    if (!login.username.empty() && !login.password.empty())
      headers_.emplace_back("Authorization", "Basic " + to_base64(login.username + ":" + login.password));
    else if (!login.token.empty())
      headers_.emplace_back("Authorization", "Bearer " + login.token);
    has_login_ = has_login_ || !headers_.empty();
  }
  // Null where the server says that there is no such thing.
  Json call(const std::string& method, const std::string& what, const Json& body) {
    net::HttpRequest r{.method = method, .url = url_ + "/api/2.0/mlflow/" + what, .headers = headers_};
    r.retries = 1;  // a run waits for the first answer, and a server that says nothing takes 30 s each time
    r.total_seconds = kMostSeconds;
    r.max_bytes = kMostBytes;
    r.leave_origin = false;  // a login goes nowhere else, and a POST that is redirected may have lost its body
    if (method == "POST") {
      r.headers.emplace_back("Content-Type", "application/json");
      r.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    const net::HttpResponse a = client_.send(r);
    const Json j = Json::parse(a.body, nullptr, false);
    if (a.status == 200 && j.is_object()) return j;
    if (j.is_object() && j.value("error_code", "") == "RESOURCE_DOES_NOT_EXIST") return nullptr;
    if (a.status == 401 || a.status == 403)
      fail_missing("{}: {} answers {}: {}", shown(), what, a.status,
                   !has_login_ ? "it wants a login: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
                                 "MLFLOW_TRACKING_TOKEN"
                               : "it refuses the login of MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
                                 "of MLFLOW_TRACKING_TOKEN: check it and what it may do there");
    if (const std::string* to = a.header("Location"); to && a.status >= 300 && a.status < 400)
      fail_missing("{}: {} answers {}, a redirect to {}: set MLFLOW_TRACKING_URI to the address that answers itself",
                   shown(), what, a.status, printable(net::shown_url(*to).substr(0, 200)));
    fail_missing("{}: {} answers {}{}", shown(), what, a.status,
                 j.is_object() ? ": " + j.value("message", std::string()) : std::string(": is it an MLflow server?"));
  }
  std::string shown() const { return net::shown_url(url_); }  // without MLFLOW_TRACKING_URI's user and password

 private:
  std::string url_;
  net::HttpClient& client_;
  net::Headers headers_;
  bool has_login_ = false;
};

Json find_experiment(Server& s, const std::string& name) {
  return s.call("GET", "experiments/get-by-name?experiment_name=" + net::percent_encode(name), {});
}

std::string experiment(Server& s, const std::string& name) {
  const Json found = find_experiment(s, name);
  if (found.is_object()) return found.at("experiment").at("experiment_id");
  return s.call("POST", "experiments/create", {{"name", name}}).at("experiment_id");
}

// The server takes letters, digits and these in names, and refuses a whole call for one name.
std::string name_there(std::string name) {
  for (char& c : name)
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c)) &&
        std::string_view("_-./: ").find(c) == std::string_view::npos)
      c = '_';
  return name;
}

// "train.optimizer.lr": one parameter a leaf.
void flatten(const OrderedJson& j, const std::string& at, Json& out) {
  if (j.is_object()) {
    for (const auto& [key, v] : j.items()) flatten(v, at.empty() ? key : at + "." + key, out);
    return;
  }
  if (j.is_null()) return;
  std::string text =
      j.is_string() ? j.get<std::string>() : j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  out.push_back({{"key", name_there(at)}, {"value", text.substr(0, kLongestParam)}});
}

int64_t milliseconds(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1000)); }

}  // namespace

void check_mlflow(const std::string& url, const std::string& project, net::HttpClient& client,
                  const MlflowLogin& login) {
  Server server(url, client, login);
  find_experiment(server, project);
}

struct MlflowRun::State {
  Server server;
  std::string experiment, run;
  int64_t last_step = -1;  // that the server has

  State(const std::string& url, net::HttpClient& client, const MlflowLogin& login) : server(url, client, login) {}

  // The server's answers are taken apart here: one of another form is no MLflow server's.
  template <typename F>
  void ask(F&& f) {
    try {
      f();
    } catch (const nlohmann::json::exception&) {
      fail_missing("{}: does not answer as an MLflow server does", server.shown());
    }
  }
  void find(const Curves& head) {
    const Json found = server.call(
        "POST", "runs/search",
        {{"experiment_ids", {experiment}}, {"filter", "tags.`mindxtrain.id` = '" + head.id + "'"}, {"max_results", 1}});
    if (!found.is_object() || !found.contains("runs") || found.at("runs").empty()) return;
    const Json& r = found.at("runs").at(0);
    run = r.at("info").at("run_id");
    if (r.contains("data") && r.at("data").contains("metrics"))
      for (const Json& m : r.at("data").at("metrics")) {
        const Json& step = m.at("step");  // the server writes 64-bit numbers as texts
        last_step = std::max<int64_t>(
            last_step, step.is_string() ? std::atoll(step.get<std::string>().c_str()) : step.get<int64_t>());
      }
    server.call("POST", "runs/update", {{"run_id", run}, {"status", "RUNNING"}});
  }
  void make(const Curves& head) {
    const Json made = server.call("POST", "runs/create",
                                  {{"experiment_id", experiment},
                                   {"run_name", head.run_name},
                                   {"start_time", milliseconds(head.started)},
                                   {"tags", {{{"key", "mindxtrain.id"}, {"value", head.id}}}}});
    run = made.at("run").at("info").at("run_id");
    Json params = Json::array();
    flatten(head.config, "", params);
    log("params", params, kParamsPerCall);
  }
  void log(const char* what, const Json& all, size_t most) {
    for (size_t at = 0; at < all.size(); at += most) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      const Json part(std::vector<Json>(begin, begin + static_cast<std::ptrdiff_t>(std::min(most, all.size() - at))));
      server.call("POST", "runs/log-batch", {{"run_id", run}, {what, part}});
    }
  }
};

MlflowRun::MlflowRun(const Curves& head, const std::string& url, net::HttpClient& client, const MlflowLogin& login)
    : s_(std::make_unique<State>(url, client, login)) {
  s_->ask([&] {
    s_->experiment = experiment(s_->server, head.project);
    s_->find(head);
    if (s_->run.empty()) s_->make(head);
  });
}

MlflowRun::~MlflowRun() = default;

void MlflowRun::send(const Curves& c) {
  s_->ask([&] {
    Json metrics = Json::array();
    int64_t step = s_->last_step;
    // A step's numbers go in one call: where one fails or the process ends, the server has whole steps.
    const auto log = [&] {
      s_->log("metrics", metrics, kMetricsPerCall);
      s_->last_step = step;
      metrics.clear();
    };
    for (const Point& p : c.points) {
      if (p.step <= s_->last_step) continue;
      if (metrics.size() + p.values.size() > kMetricsPerCall) log();
      for (const auto& [key, v] : p.values)
        if (std::isfinite(v))
          metrics.push_back(
              {{"key", name_there(key)}, {"value", v}, {"timestamp", milliseconds(p.time)}, {"step", p.step}});
      step = p.step;
    }
    log();
  });
}

void MlflowRun::end(const Curves& c) {
  send(c);
  s_->ask([&] {
    s_->server.call("POST", "runs/update",
                    {{"run_id", s_->run},
                     {"status", c.finished ? "FINISHED" : "KILLED"},
                     {"end_time", milliseconds(c.points.empty() ? c.started : c.points.back().time)}});
  });
}

std::string MlflowRun::address() const {
  return fmt::format("{}/#/experiments/{}/runs/{}", s_->server.shown(), s_->experiment, s_->run);
}

}  // namespace mxt::track
