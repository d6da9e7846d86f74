#include "net/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "net/body.h"
#include "net/url.h"

namespace mxt::net {
namespace {

constexpr size_t kMaxHeaderBytes = 256 << 10;
constexpr uint64_t kMaxErrorBody = 1 << 20;

bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
         });
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}
bool is_transient(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

// One transfer: what the callbacks of libcurl share.
struct Transfer {
  const HttpRequest* request = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  bool counts = true;  // this answer's body and headers go to the caller's callbacks
  int status = 0;
  Headers headers;
  std::string body;
  size_t header_bytes = 0;
  uint64_t body_bytes = 0;
  bool streamed = false, announced = false;
  std::string refusal;  // why we stopped it
  std::exception_ptr thrown;

  // True where this status is final: no redirect or retry will follow it.
  std::function<bool(int, const Headers&)> is_final;
};

size_t on_header(char* data, size_t size, size_t n, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  const size_t bytes = size * n;
  std::string_view line = trim(std::string_view(data, bytes));
  t.header_bytes += bytes;
  if (t.header_bytes > kMaxHeaderBytes) {
    t.refusal = "its headers are over the limit";
    return 0;
  }
  if (line.starts_with("HTTP/")) {  // also the next answer after 100 Continue or a proxy's CONNECT
    t.headers.clear();
    const size_t space = line.find(' ');
    t.status = 0;
    if (space != std::string_view::npos) std::from_chars(line.data() + space + 1, line.data() + line.size(), t.status);
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos && colon > 0) {
    t.headers.emplace_back(std::string(trim(line.substr(0, colon))), std::string(trim(line.substr(colon + 1))));
  }
  return bytes;
}

bool announce(Transfer& t) {
  if (t.announced) return true;
  t.announced = true;
  if (!t.is_final(t.status, t.headers) || !t.request->on_headers) return true;
  try {
    t.request->on_headers(t.status, t.headers);
    return true;
  } catch (...) {
    t.thrown = std::current_exception();
    return false;
  }
}

size_t on_body(char* data, size_t size, size_t n, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  const size_t bytes = size * n;
  if (!announce(t)) return 0;
  const bool good = t.status >= 200 && t.status < 300;
  const uint64_t limit = good ? t.request->max_bytes : std::min<uint64_t>(t.request->max_bytes, kMaxErrorBody);
  t.body_bytes += bytes;
  if (t.body_bytes > limit) {
    if (!good) return bytes;  // enough of an error's text is enough
    t.refusal = fmt::format("its answer is larger than {}", human_bytes(limit));
    return 0;
  }
  if (!good || !t.request->on_data) {
    t.body.append(data, bytes);
    return bytes;
  }
  t.streamed = true;
  try {
    t.request->on_data({data, bytes});
  } catch (...) {
    t.thrown = std::current_exception();
    return 0;
  }
  return bytes;
}

struct Upload {
  BodyReader reader;
  Transfer* transfer;
};

size_t on_read(char* to, size_t size, size_t n, void* user) {
  auto& u = *static_cast<Upload*>(user);
  try {
    return u.reader.read(to, size * n);
  } catch (...) {
    u.transfer->thrown = std::current_exception();
    return CURL_READFUNC_ABORT;
  }
}

int on_seek(void* user, curl_off_t offset, int origin) {
  if (offset != 0 || origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Upload*>(user)->reader.rewind();
  return CURL_SEEKFUNC_OK;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& t = *static_cast<Transfer*>(user);
  return t.cancel && t.cancel->load(std::memory_order_relaxed) ? 1 : 0;
}

bool is_header_text(std::string_view s) {
  for (char c : s)
    if (c == '\r' || c == '\n' || c == '\0') return false;
  return true;
}

}  // namespace

const std::string* find_header(const Headers& headers, std::string_view name) {
  for (auto h = headers.rbegin(); h != headers.rend(); ++h)
    if (same_word(h->first, name)) return &h->second;
  return nullptr;
}

const std::string* HttpResponse::header(std::string_view name) const { return find_header(headers, name); }

struct HttpClient::State {
  HttpOptions options;
  CURL* curl = nullptr;

  CURLcode perform(const HttpRequest& r, const Url& url, const std::string& method, bool with_body, bool with_secrets,
                   Transfer& t) {
    curl_easy_reset(curl);  // keeps connections
    const auto set = [&](auto option, auto value) { curl_easy_setopt(curl, option, value); };
    set(CURLOPT_URL, url.text().c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
    if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
    set(CURLOPT_PROXY, options.proxy.c_str());  // an empty text also keeps libcurl from reading the environment
    set(CURLOPT_NOPROXY, options.no_proxy.c_str());
    set(CURLOPT_USERAGENT, options.user_agent.c_str());
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(r.connect_seconds * 1000));
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(r.total_seconds * 1000));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, std::lround(r.idle_seconds)));
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, &t);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_WRITEDATA, &t);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, on_progress);
    set(CURLOPT_XFERINFODATA, &t);
    Upload upload{BodyReader(r.parts), &t};
    if (method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
    } else if (with_body && !r.parts.empty()) {
      set(CURLOPT_UPLOAD, 1L);
      set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(upload.reader.size()));
      set(CURLOPT_READFUNCTION, on_read);
      set(CURLOPT_READDATA, &upload);
      set(CURLOPT_SEEKFUNCTION, on_seek);
      set(CURLOPT_SEEKDATA, &upload);
      set(CURLOPT_CUSTOMREQUEST, method.c_str());
    } else if (with_body) {
      set(CURLOPT_POST, 1L);
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(r.body.size()));
      set(CURLOPT_POSTFIELDS, r.body.data());
      set(CURLOPT_CUSTOMREQUEST, method.c_str());
    } else if (method != "GET") {
      set(CURLOPT_CUSTOMREQUEST, method.c_str());
    }
    std::string range;
    if (r.range_begin) {
      range = fmt::format("{}-", *r.range_begin);
      if (r.range_end) range += std::to_string(*r.range_end);
      set(CURLOPT_RANGE, range.c_str());
    }
    curl_slist* list = curl_slist_append(nullptr, "Expect:");
    for (const auto& [name, value] : r.headers) {
      if (!with_secrets && (same_word(name, "Authorization") || same_word(name, "Cookie"))) continue;
      list = curl_slist_append(list, (name + (value.empty() ? ";" : ": " + value)).c_str());
    }
    set(CURLOPT_HTTPHEADER, list);
    const CURLcode code = curl_easy_perform(curl);
    curl_slist_free_all(list);
    return code;
  }

  // Sleeps in short steps, so that a cancelled program ends at once.
  void wait(double seconds) const {
    for (double left = seconds; left > 0; left -= 0.05) {
      if (options.cancel && options.cancel->load())
        throw Error(Exit::kInterrupted, "interrupted while waiting for a server");
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 0.05)));
    }
  }

  double delay(int attempt, const Headers& headers) const {
    double seconds = options.retry_base_seconds * std::pow(2.0, attempt);
    if (const std::string* after = find_header(headers, "Retry-After")) {
      int asked = 0;
      if (std::from_chars(after->data(), after->data() + after->size(), asked).ec == std::errc() && asked > 0)
        seconds = std::max(seconds, double(asked));
    }
    return std::min(seconds, 30.0);
  }
};

HttpClient::HttpClient(HttpOptions options) : s_(std::make_unique<State>()) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  s_->options = std::move(options);
  s_->curl = curl_easy_init();
  if (!s_->curl) fail_missing("libcurl cannot be started");
}

HttpClient::~HttpClient() { curl_easy_cleanup(s_->curl); }

HttpResponse HttpClient::send(const HttpRequest& r) {
  const std::optional<Url> first = parse_url(r.url);
  if (!first) fail_input("\"{}\" is not an http or https URL", r.url.substr(0, 200));
  for (const auto& [name, value] : r.headers)
    if (!is_header_text(name) || !is_header_text(value))
      fail_input("header \"{}\" holds a line break", name.substr(0, 60));
  Url url = *first;
  std::string method = r.method;
  bool with_body = method == "POST" || method == "PUT" || method == "PATCH", with_secrets = true;
  int redirects = 0, attempt = 0;

  // The redirect that this answer asks for, where it is to be followed.
  const auto next_of = [&](int status, const Headers& headers) -> std::optional<Url> {
    const std::string* location = find_header(headers, "Location");
    if (!is_redirect(status) || !location || r.redirects == 0) return std::nullopt;
    const auto next = resolve_url(url, *location);
    if (!next)
      fail_input("{}: is redirected to \"{}\", which is no http or https URL", url.text(), location->substr(0, 200));
    if (!r.leave_origin && !next->same_origin(url)) return std::nullopt;
    if (url.scheme == "https" && next->scheme == "http")
      fail_input("{}: is redirected from https to http, which is not followed", url.text());
    return next;
  };

  for (;;) {
    Transfer t;
    t.request = &r;
    t.cancel = s_->options.cancel;
    const bool repeatable = (method == "GET" || method == "HEAD" || r.repeatable) && attempt < r.retries;
    t.is_final = [&](int status, const Headers& headers) {
      return !(is_transient(status) && repeatable) &&
             !(is_redirect(status) && find_header(headers, "Location") && r.redirects > 0 && next_of(status, headers));
    };
    const CURLcode code = s_->perform(r, url, method, with_body, with_secrets, t);
    if (t.thrown) std::rethrow_exception(t.thrown);
    if (!t.refusal.empty()) fail_input("{}: {}", url.text(), t.refusal);
    if (code == CURLE_ABORTED_BY_CALLBACK) throw Error(Exit::kInterrupted, url.text() + ": interrupted");
    if (code != CURLE_OK) {
      const bool certificate = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
      const bool never_sent = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST;
      if (!t.streamed && !certificate && attempt < r.retries && (repeatable || never_sent)) {
        s_->wait(s_->delay(attempt++, {}));
        continue;
      }
      if (certificate)
        fail_missing("{}: its certificate is not trusted ({}): nothing was sent", url.origin(),
                     curl_easy_strerror(code));
      fail_missing("{}: cannot be reached ({}): check the network, or work offline from what is cached", url.origin(),
                   curl_easy_strerror(code));
    }
    if (is_transient(t.status) && repeatable) {
      s_->wait(s_->delay(attempt++, t.headers));
      continue;
    }
    if (const auto next = next_of(t.status, t.headers)) {
      if (++redirects > r.redirects) fail_input("{}: more than {} redirects", r.url, r.redirects);
      if (!next->same_origin(*first)) with_secrets = false;
      if (t.status == 303 || ((t.status == 301 || t.status == 302) && method == "POST")) {
        if (method != "HEAD") method = "GET";
        with_body = false;
      }
      url = *next;
      continue;
    }
    announce(t);
    if (t.thrown) std::rethrow_exception(t.thrown);
    return {t.status, std::move(t.headers), std::move(t.body), url.text()};
  }
}

}  // namespace mxt::net
