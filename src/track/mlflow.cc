#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "net/url.h"
#include "track/track.h"

namespace mxt::track {
namespace {

constexpr size_t kMetricsPerCall = 1000, kParamsPerCall = 100, kLongestParam = 6000;  // the server's own limits

class Server {
 public:
  Server(std::string url, net::HttpClient& client) : url_(std::move(url)), client_(client) {
    while (url_.ends_with('/')) url_.pop_back();
    if (!net::parse_url(url_)) fail_input("\"{}\" is no address of an MLflow server: http://HOST:PORT", url_);
  }
  // Null where the server says that there is no such thing.
  Json call(const std::string& method, const std::string& what, const Json& body) {
    net::HttpRequest r{.method = method, .url = url_ + "/api/2.0/mlflow/" + what};
    if (method == "POST") {
      r.headers = {{"Content-Type", "application/json"}};
      r.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    const net::HttpResponse a = client_.send(r);
    const Json j = Json::parse(a.body, nullptr, false);
    if (a.status == 200 && j.is_object()) return j;
    if (j.is_object() && j.value("error_code", "") == "RESOURCE_DOES_NOT_EXIST") return nullptr;
    fail_missing("{}: {} answers {}{}", url_, what, a.status,
                 j.is_object() ? ": " + j.value("message", std::string()) : std::string(": is it an MLflow server?"));
  }
  const std::string& url() const { return url_; }

 private:
  std::string url_;
  net::HttpClient& client_;
};

std::string experiment(Server& s, const std::string& name) {
  const Json found = s.call("GET", "experiments/get-by-name?experiment_name=" + net::percent_encode(name), {});
  if (found.is_object()) return found.at("experiment").at("experiment_id");
  return s.call("POST", "experiments/create", {{"name", name}}).at("experiment_id");
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
  out.push_back({{"key", at}, {"value", text.substr(0, kLongestParam)}});
}

int64_t milliseconds(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1000)); }

}  // namespace

std::string send_mlflow(const Curves& c, const std::string& url, net::HttpClient& client) {
  Server s(url, client);
  try {
    const std::string parent = experiment(s, c.project);
    const Json made = s.call("POST", "runs/create",
                             {{"experiment_id", parent},
                              {"run_name", c.run_name},
                              {"start_time", milliseconds(c.started)},
                              {"tags", {{{"key", "mindxtrain.id"}, {"value", c.id}}}}});
    const std::string run = made.at("run").at("info").at("run_id");
    Json params = Json::array(), metrics = Json::array();
    flatten(c.config, "", params);
    for (const Point& p : c.points)
      for (const auto& [key, v] : p.values)
        if (std::isfinite(v))
          metrics.push_back({{"key", key}, {"value", v}, {"timestamp", milliseconds(p.time)}, {"step", p.step}});
    const auto send = [&](const char* what, const Json& all, size_t most) {
      for (size_t at = 0; at < all.size(); at += most) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
        const Json part(std::vector<Json>(begin, begin + static_cast<std::ptrdiff_t>(std::min(most, all.size() - at))));
        s.call("POST", "runs/log-batch", {{"run_id", run}, {what, part}});
      }
    };
    send("params", params, kParamsPerCall);
    send("metrics", metrics, kMetricsPerCall);
    s.call("POST", "runs/update",
           {{"run_id", run},
            {"status", c.finished ? "FINISHED" : "KILLED"},
            {"end_time", milliseconds(c.points.back().time)}});
    return fmt::format("{}/#/experiments/{}/runs/{}", s.url(), parent, run);
  } catch (const nlohmann::json::exception& e) {
    fail_missing("{}: does not answer as an MLflow server does ({})", s.url(), e.what());
  }
}

}  // namespace mxt::track
