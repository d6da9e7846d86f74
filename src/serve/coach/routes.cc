// /coach/: the page's files, its API, and streams of what runs. Work that takes seconds runs on threads of its own: the
// handlers are for the model's requests.
#include <zlib.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "net/http.h"
#include "serve/coach/access.h"
#include "serve/coach/coach.h"
#include "serve/coach/page.h"
#include "serve/operator_state.h"

namespace mxt::serve {
namespace {

constexpr int kMostThreads = 64;
constexpr std::string_view kApi = "/coach/api/";

// Nothing from elsewhere, nothing inline: what a recipe or a model says stays text.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr const char* kNotBuilt =
    "<!doctype html><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Coach is not "
    "built in</title>"
    "<h1>Coach is not part of this binary</h1><p>The page is built with Node 18 or newer and npm, which were not "
    "there. Install them and build again:</p>"
    "<pre>apt-get install nodejs npm\n./dev build mindxtrain</pre><p>The rest of the server works; its API stands at "
    "<a href=\"/openapi.json\">/openapi.json</a>.</p>";

Headers page_headers(const std::string& type) {
  return {{"Content-Type", type},
          {"Content-Security-Policy", kPolicy},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

std::string type_of(std::string_view path) {
  const std::string_view end = path.substr(std::min(path.size(), path.rfind('.')));
  if (end == ".html") return "text/html; charset=utf-8";
  if (end == ".js") return "text/javascript; charset=utf-8";
  if (end == ".css") return "text/css; charset=utf-8";
  if (end == ".svg") return "image/svg+xml";
  if (end == ".woff2") return "font/woff2";
  return "text/plain; charset=utf-8";
}

std::string inflate_whole(std::string_view gzip) {
  z_stream z{};
  if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();  // a request's: no reason to end
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  z.avail_in = static_cast<uInt>(gzip.size());
  std::string out;
  int rc = Z_OK;
  for (char piece[1 << 15]; rc == Z_OK;) {
    z.next_out = reinterpret_cast<Bytef*>(piece);
    z.avail_out = sizeof piece;
    rc = inflate(&z, Z_NO_FLUSH);
    out.append(piece, sizeof piece - z.avail_out);
  }
  inflateEnd(&z);
  if (rc == Z_MEM_ERROR) throw std::bad_alloc();
  MXT_ASSERT(rc == Z_STREAM_END);
  return out;
}

HttpAnswer page(const HttpRequest& r) {
  if (page_files().empty()) return {503, {{"Content-Type", "text/html; charset=utf-8"}}, kNotBuilt};
  std::string path = r.path.substr(std::string_view("/coach/").size());
  if (path.empty()) path = "index.html";
  for (const PageFile& f : page_files()) {
    if (f.path != path) continue;
    HttpAnswer a{200, page_headers(type_of(path)), {}};
    // Names in assets/ carry a digest of their content.
    a.headers.emplace_back("Cache-Control",
                           path.starts_with("assets/") ? "public, max-age=31536000, immutable" : "no-cache");
    a.headers.emplace_back("Vary", "Accept-Encoding");
    const std::string* takes = r.header("Accept-Encoding");
    if (takes && takes->find("gzip") != std::string::npos) {
      a.headers.emplace_back("Content-Encoding", "gzip");
      a.body = f.gzip;
    } else {
      a.body = inflate_whole(f.gzip);
    }
    return a;
  }
  refuse_status(404, "invalid_request_error", "not_found", "the page has no such file");
}

HttpAnswer json_answer(std::string body) {
  return {200,
          {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}},
          std::move(body)};
}

// What a person did wrong, or this machine lacks, in the API's shape.
HttpAnswer answer_of(const Error& e) {
  ApiError a;
  a.status = e.code() == Exit::kMissing ? 424 : e.code() == Exit::kVerifyFailed ? 422 : 400;
  a.code = e.code() == Exit::kMissing ? "missing" : e.code() == Exit::kVerifyFailed ? "not_verified" : "bad_input";
  a.message = replace_invalid_utf8(e.what());
  return to_answer(a);
}

std::string query_value(const HttpRequest& r, std::string_view name) {
  for (const std::string_view part : split(r.query, '&'))
    if (part.size() > name.size() && part.starts_with(name) && part[name.size()] == '=')
      return std::string(part.substr(name.size() + 1));
  return "";
}

int64_t query_number(const HttpRequest& r, std::string_view name) {
  const std::string text = query_value(r, name);
  int64_t n = 0;
  if (text.empty()) return 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc() || end != text.data() + text.size() || n < 0)
    refuse(std::string(name), "{} must be a whole number", name);
  return n;
}

// Runs `work` beside the handlers; what it throws becomes the answer.
void apart(OperatorState& s, const std::shared_ptr<Reply>& reply, std::function<void()> work) {
  if (s.draining) refuse_status(503, "server_error", "shutting_down", "the server is shutting down", 5);
  if (s.followers >= kMostThreads) refuse_status(429, "rate_limit_error", "", "too much is under way", 2);
  ++s.followers;
  std::thread([&s, reply, work = std::move(work)] {
    try {
      work();
    } catch (const ApiError& e) {
      reply->send(to_answer(e));
    } catch (const Error& e) {
      reply->send(answer_of(e));
    } catch (const std::bad_alloc&) {
      ApiError e;
      e.status = 503;
      e.type = "server_error";
      e.message = "out of memory";
      reply->send(to_answer(e));
    } catch (const std::exception& e) {
      log::warn("coach: {}", e.what());
      reply->send(
          {500,
           {{"Content-Type", "application/json"}},
           R"({"error":{"message":"an error inside the server","type":"server_error","param":null,"code":null}})"});
    }
    --s.followers;
  }).detach();
}

void answer_apart(OperatorState& s, const std::shared_ptr<Reply>& reply, std::function<std::string()> work) {
  apart(s, reply, [reply, work = std::move(work)] { reply->send(json_answer(work())); });
}

// A chat request to the trial's server, its answer byte for byte.
void relay(OperatorState& s, const std::shared_ptr<Reply>& reply, const std::string& body) {
  std::string key;
  const OrderedJson asked = parse_body(body);
  const std::string address = s.coach->trial_address(Fields(asked).text("model"), key);
  struct Gone {};
  net::HttpClient client;
  net::HttpRequest r;
  r.method = "POST";
  r.url = address + "/v1/chat/completions";
  r.headers = {{"Content-Type", "application/json"}, {"Authorization", "Bearer " + key}};
  r.body = body;
  r.redirects = r.retries = 0;
  r.idle_seconds = r.total_seconds = s.settings.request_seconds;
  bool begun = false;
  r.on_headers = [&](int status, const net::Headers& headers) {
    if (status != 200) return;
    begun = true;
    const std::string* type = net::find_header(headers, "Content-Type");
    reply->begin(200, {{"Content-Type", type ? *type : "application/json"}, {"Cache-Control", "no-store"}});
  };
  r.on_data = [&](std::string_view data) {
    if (reply->gone()) throw Gone{};
    reply->write(std::string(data));
  };
  try {
    const net::HttpResponse a = client.send(r);
    if (begun) return reply->end();
    reply->send({a.status, {{"Content-Type", "application/json"}}, a.body});
  } catch (const Gone&) {
    reply->end();
  } catch (const Error& e) {
    if (!begun) throw;
    reply->end();  // cut off: the reader misses the last event
  }
}

struct Call {
  OperatorState& s;
  const HttpRequest& r;
  const std::shared_ptr<Reply>& reply;
  std::vector<std::string> parts;  // below /coach/api/

  bool is(const char* method, std::initializer_list<std::string_view> pattern) const {  // "*" is anything
    if ((r.method == "HEAD" ? "GET" : r.method) != method || pattern.size() != parts.size()) return false;
    size_t i = 0;
    for (const auto p : pattern)
      if (p != parts[i++] && p != "*") return false;
    return true;
  }
  std::string field(const char* name) const {
    const OrderedJson body = parse_body(r.body);
    return Fields(body).text(name);
  }
};

void runs(const Call& c) {
  Coach* coach = c.s.coach;
  const auto& reply = c.reply;
  const std::string key = c.parts.size() > 1 ? c.parts[1] : "";
  if (c.is("GET", {"runs"})) return reply->send(json_answer(coach->runs()));
  if (c.is("GET", {"runs", "*"})) return reply->send(json_answer(coach->run(key)));
  if (c.is("GET", {"runs", "*", "plan"})) return reply->send(json_answer(coach->run_plan(key)));
  if (c.is("GET", {"runs", "*", "manifest"})) return reply->send(json_answer(coach->run_manifest(key)));
  if (c.is("GET", {"runs", "*", "log"})) return reply->send(json_answer(coach->run_log(key)));
  if (c.is("POST", {"runs", "*", "note"})) return reply->send(json_answer(coach->note_run(key, c.r.body)));
  if (c.is("POST", {"runs", "*", "delete"})) return reply->send(json_answer(coach->remove_run(key)));
  if (c.is("GET", {"runs", "*", "row"})) {
    const int64_t row = query_number(c.r, "row");
    return answer_apart(c.s, reply, [coach, key, row] { return coach->run_row(key, row); });
  }
  if (c.is("GET", {"runs", "*", "samples"})) {
    const int64_t step = query_number(c.r, "step");
    return answer_apart(c.s, reply, [coach, key, step] { return coach->run_samples(key, step); });
  }
  if (c.is("GET", {"runs", "*", "events"})) {
    coach->run(key);
    return follow(
        c.s, reply, [coach, key](size_t line) { return coach->events(key, line); },
        [coach, key] { return coach->run(key); });
  }
  if (c.is("GET", {"compare"}))
    return reply->send(json_answer(coach->compare(query_value(c.r, "a"), query_value(c.r, "b"))));
  refuse_status(404, "invalid_request_error", "not_found", "Coach has no such call");
}

void api(const Call& c) {
  Coach* coach = c.s.coach;
  const auto& reply = c.reply;
  if (c.parts[0] == "runs" || c.parts[0] == "compare") return runs(c);
  if (c.parts[0] == "jobs")
    return training(c.s, c.r, c.r.path.substr(std::string_view("/coach/api/jobs").size()), reply);
  if (c.is("GET", {"about"})) return reply->send(json_answer(coach->about()));
  if (c.is("GET", {"recipes"})) return reply->send(json_answer(coach->recipes()));
  if (c.is("GET", {"recipes", "*"})) return reply->send(json_answer(coach->recipe(c.parts[1])));
  if (c.is("GET", {"schema"})) return reply->send(json_answer(coach->schema()));
  if (c.is("POST", {"check"})) return reply->send(json_answer(coach->check(c.field("recipe"))));
  if (c.is("POST", {"plan"}))
    return answer_apart(c.s, reply, [coach, recipe = c.field("recipe"), device = c.field("device")] {
      return coach->plan(recipe, device);
    });
  if (c.is("POST", {"preflight"}))
    return answer_apart(c.s, reply, [coach, recipe = c.field("recipe")] { return coach->preflight(recipe); });
  if (c.is("POST", {"preview"})) {
    const OrderedJson body = parse_body(c.r.body);
    const Fields f(body);
    return answer_apart(c.s, reply, [coach, recipe = f.text("recipe"), row = f.integer("row", 0, 0, 63)] {
      return coach->preview(recipe, row);
    });
  }
  if (c.is("POST", {"verify"}))
    return answer_apart(c.s, reply, [coach, manifest = c.field("manifest")] { return coach->verify(manifest); });
  if (c.is("GET", {"trial"})) return reply->send(json_answer(coach->trial()));
  if (c.is("POST", {"trial"})) return reply->send(json_answer(coach->start_trial(c.field("run"))));
  if (c.is("POST", {"trial", "stop"})) return reply->send(json_answer(coach->stop_trial()));
  if (c.is("POST", {"trial", "chat"}))
    return apart(c.s, reply, [&s = c.s, reply, body = c.r.body] { relay(s, reply, body); });
  refuse_status(404, "invalid_request_error", "not_found", "Coach has no such call");
}

}  // namespace

void coach(OperatorState& s, const HttpRequest& r, const std::shared_ptr<Reply>& reply) {
  if (r.path == "/coach") return reply->send({308, {{"Location", "/coach/"}}, ""});
  if (!r.path.starts_with(kApi)) {
    if (r.method != "GET" && r.method != "HEAD")
      refuse_status(405, "invalid_request_error", "method_not_allowed", "the page is for reading");
    return reply->send(page(r));
  }
  Call c{s, r, reply, {}};
  for (const std::string_view part : split(std::string_view(r.path).substr(kApi.size()), '/'))
    c.parts.emplace_back(part);
  try {
    api(c);
  } catch (const Error& e) {
    reply->send(answer_of(e));
  }
}

void follow(OperatorState& s, const std::shared_ptr<Reply>& reply,
            std::function<std::pair<std::vector<std::string>, bool>(size_t)> events,
            std::function<std::string()> last) {
  if (s.followers >= kMostThreads) refuse_status(429, "rate_limit_error", "", "too many streams are followed", 2);
  reply->begin(200, {{"Content-Type", "text/event-stream; charset=utf-8"}, {"Cache-Control", "no-cache"}});
  // On a thread of its own: it lasts as long as what it follows.
  ++s.followers;
  std::thread([&s, reply, events = std::move(events), last = std::move(last)] {
    size_t line = 0;
    try {
      bool over = false;
      while (!over && !reply->gone() && !s.draining) {
        const auto [lines, ended] = events(line);
        std::string piece;
        for (const auto& l : lines) piece += "data: " + l + "\n\n";
        line += lines.size();
        over = ended && lines.empty();
        if (!over && lines.empty()) {
          piece = ": \n\n";
          std::this_thread::sleep_for(std::chrono::milliseconds(500));
        }
        if (!over) reply->write(std::move(piece));
      }
      if (over) reply->write("event: end\ndata: " + last() + "\n\ndata: [DONE]\n\n");
    } catch (const std::exception& e) {
      log::warn("following a run: {}", e.what());
    }
    reply->end();
    --s.followers;
  }).detach();
}

}  // namespace mxt::serve
