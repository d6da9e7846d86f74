#include "data/synth/teacher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/shape/row.h"
#include "data/source/records.h"
#include "net/url.h"

namespace mxt::data {
namespace {

using Clock = std::chrono::steady_clock;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// Lines that survive a crash one by one: a torn last line is cut off when the file is opened.
class AnswerFile {
 public:
  explicit AnswerFile(const std::string& path) : path_(path) {
    make_folders(fs::path(path).parent_path().string());
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_input("{}: cannot be written: {}", path, std::strerror(errno));
    const std::string text = read_file(path);
    const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (whole < text.size() && ::ftruncate(fd_, static_cast<off_t>(whole)) != 0)
      fail_input("{}: cannot be written: {}", path, std::strerror(errno));
    for (std::string_view line : split(std::string_view(text).substr(0, whole), '\n'))
      if (!line.empty()) {
        const Json j = parse_json(line, path);
        if (!j.is_object() || !j.contains("request") || !j["request"].is_string())
          fail_input("{}: is no file of a teacher's answers; move it away", path);
        have.emplace(j["request"].get<std::string>(),
                     std::pair(j.value("prompt_tokens", int64_t{0}), j.value("answer_tokens", int64_t{0})));
      }
  }
  ~AnswerFile() { ::close(fd_); }
  AnswerFile(const AnswerFile&) = delete;
  void append(const std::string& line) {
    for (size_t at = 0; at < line.size();) {
      const ssize_t n = ::write(fd_, line.data() + at, line.size() - at);
      if (n < 0 && errno != EINTR) fail_input("{}: cannot be written: {}", path_, std::strerror(errno));
      if (n > 0) at += static_cast<size_t>(n);
    }
    ::fdatasync(fd_);
  }
  std::map<std::string, std::pair<int64_t, int64_t>> have;  // request → prompt and answer tokens

 private:
  std::string path_;
  int fd_;
};

std::vector<std::string> read_prompts(const config::Teacher& t, int64_t rows) {
  std::vector<std::string> out;
  for (const SourceFile& f : find_source_files(t.prompts, "train")) {
    const auto reader = open_records(f);
    for (Record r; static_cast<int64_t>(out.size()) < rows && reader->next(&r);) {
      if (r.kind == FileKind::kText) fail_input("{}: is plain text; prompts are rows with a \"prompt\"", f.path);
      const OrderedJson row = row_object(r);
      const char* key = row.contains("prompt") ? "prompt" : row.contains("question") ? "question" : "text";
      if (!row.contains(key) || !row[key].is_string())
        fail_input("{}: has no text \"prompt\", \"question\" or \"text\"", r.where());
      out.push_back(row[key].get<std::string>());
    }
  }
  if (out.empty()) fail_input("{}: holds no prompts", t.prompts);
  return out;
}

class Teacher {
 public:
  Teacher(const config::Teacher& t, const std::string& key, const net::HttpOptions& o) : t_(t), options_(o), http_(o) {
    url_ = t.endpoint;
    net::public_url(url_, "data.synth.teacher.endpoint");
    while (url_.ends_with('/')) url_.pop_back();
    url_ += "/chat/completions";
    if (!key.empty()) headers_.emplace_back("Authorization", "Bearer " + key);
    headers_.emplace_back("Content-Type", "application/json");
  }

  OrderedJson request_of(const std::string& prompt) const {
    OrderedJson messages = OrderedJson::array();
    if (t_.system) messages.push_back({{"role", "system"}, {"content", *t_.system}});
    messages.push_back({{"role", "user"}, {"content", prompt}});
    return {{"model", t_.model},
            {"messages", std::move(messages)},
            {"max_tokens", t_.max_tokens},
            {"temperature", t_.temperature}};
  }

  double cost(int64_t prompt, int64_t answer) const {
    return (static_cast<double>(prompt) * t_.input_usd_per_1m + static_cast<double>(answer) * t_.output_usd_per_1m) /
           1e6;
  }

  // The most that a request can cost: no token is shorter than a byte; the chat layout adds a few.
  double most(const std::string& body) const { return cost(static_cast<int64_t>(body.size()), t_.max_tokens); }

  // The answer's JSON. `refuse` is asked before every request, retries too.
  template <typename F>
  Json ask(const std::string& body, F&& refuse) {
    for (int attempt = 0;; ++attempt) {
      refuse();
      wait_until(next_);
      next_ = now() + 60 / t_.requests_per_minute;
      net::HttpRequest q;
      q.method = "POST";
      q.url = url_;
      q.headers = headers_;
      q.body = body;
      q.redirects = 0;
      q.idle_seconds = 300;  // a long answer comes all at once
      q.max_bytes = uint64_t{16} << 20;
      ++requests;
      double wait = options_.retry_base_seconds * 2 * std::pow(2.0, attempt);
      std::string why;
      try {
        const net::HttpResponse r = http_.send(q);
        if (r.status == 200) {
          try {
            return parse_json(r.body, url_);
          } catch (const Error& e) {  // something on the way cut it short
            why = fmt::format("answered 200, but {}", e.what());
          }
        } else {
          why = fmt::format("answered {}: {}", r.status, message_of(r.body));
        }
        if (r.status == 401 || r.status == 403) fail_missing("{}: {}; check the key in {}", url_, why, t_.api_key_env);
        if (r.status != 200 && r.status != 408 && r.status != 409 && r.status != 429 && r.status < 500)
          fail_input("{}: {}", url_, why);
        if (const std::string* after = r.header("Retry-After"))
          if (const double s = std::atof(after->c_str()); s > 0) wait = std::min(s, 600.0);
      } catch (const Error& e) {
        if (e.code() != Exit::kMissing || std::string_view(e.what()).find("check the key") != std::string_view::npos)
          throw;
        why = e.what();
      }
      if (attempt == kRetries) fail_missing("{}: {}; try again later, the answers so far are kept", url_, why);
      log::warn("teacher: {}; trying again in {:.1f} s", why, wait);
      next_ = std::max(next_, now() + wait);
    }
  }

  int64_t requests = 0;

 private:
  static constexpr int kRetries = 5;
  static std::string message_of(const std::string& body) {
    std::string s = body;
    try {
      const Json j = parse_json(body, "");
      if (j.contains("error") && j["error"].is_object()) s = j["error"].value("message", s);
    } catch (const std::exception&) {  // no JSON: shown as it is
    }
    s = replace_invalid_utf8(s.substr(0, 200));
    std::replace_if(s.begin(), s.end(), [](unsigned char c) { return c < 0x20; }, ' ');
    return s;
  }
  void wait_until(double t) {
    while (now() < t) {
      if (options_.cancel && *options_.cancel)
        throw Error(Exit::kInterrupted, "interrupted; the teacher's answers so far are kept, the same command goes on");
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.1, std::max(0.0, t - now()))));
    }
  }
  const config::Teacher& t_;
  net::HttpOptions options_;
  net::HttpClient http_;
  std::string url_;
  net::Headers headers_;
  double next_ = 0;  // no request before
};

std::string text_of(const Json& answer, const std::string& url, bool* cut) {
  try {
    const Json& choice = answer.at("choices").at(0);
    *cut = choice.contains("finish_reason") && choice["finish_reason"] == "length";
    return choice.at("message").at("content").get<std::string>();
  } catch (const std::exception&) {
    fail_input("{}: its answer has no choices[0].message.content: is this an OpenAI-compatible endpoint?", url);
  }
}

}  // namespace

TeacherReport ask_teacher(const config::Teacher& t, int64_t rows, const std::string& key,
                          const net::HttpOptions& options, const std::string& out) {
  const std::vector<std::string> prompts = read_prompts(t, rows);
  AnswerFile file(out);
  Teacher teacher(t, key, options);
  TeacherReport report;
  for (const auto& [request, tokens] : file.have) {
    ++report.rows;
    report.prompt_tokens += tokens.first;
    report.answer_tokens += tokens.second;
  }
  report.cost_usd = teacher.cost(report.prompt_tokens, report.answer_tokens);
  if (report.rows) log::info("teacher: {} answers are there already (${:.4f})", report.rows, report.cost_usd);
  int64_t cut_short = 0;
  log::Progress progress("teacher: " + t.model, static_cast<double>(prompts.size()));
  for (size_t i = 0; i < prompts.size(); ++i) {
    const OrderedJson request = teacher.request_of(prompts[i]);
    const std::string body = request.dump(), digest = blake3_hex(t.endpoint + "\n" + body);
    if (file.have.contains(digest)) continue;
    const Json answer = teacher.ask(body, [&] {
      if (t.max_requests && teacher.requests >= *t.max_requests)
        fail_missing(
            "data.synth.teacher.max_requests: {} requests are sent, {} of {} prompts answered (kept in {}); "
            "raise it to go on",
            teacher.requests, report.rows, prompts.size(), out);
      if (t.max_cost_usd && report.cost_usd + teacher.most(body) > *t.max_cost_usd)
        fail_missing(
            "data.synth.teacher.max_cost_usd: ${:.4f} are spent and the next answer may cost ${:.4f}; {} of {} "
            "prompts answered (kept in {}); raise it to go on",
            report.cost_usd, teacher.most(body), report.rows, prompts.size(), out);
    });
    bool cut = false;
    const std::string text = text_of(answer, t.endpoint, &cut);
    const auto used = [&](const char* name) -> int64_t {
      const auto u = answer.find("usage");
      return u != answer.end() && u->is_object() && u->contains(name) && (*u)[name].is_number_integer()
                 ? (*u)[name].get<int64_t>()
                 : 0;
    };
    // An endpoint that does not count is taken at the most it may be, so that the cap holds.
    const bool counted = used("prompt_tokens") > 0;
    const int64_t prompt = counted ? used("prompt_tokens") : static_cast<int64_t>(body.size());
    const int64_t answered = counted ? used("completion_tokens") : t.max_tokens;
    OrderedJson row = {
        {"messages", request["messages"]}, {"request", digest}, {"prompt_tokens", prompt}, {"answer_tokens", answered}};
    row["messages"].push_back({{"role", "assistant"}, {"content", text}});
    cut_short += cut;
    file.append(row.dump() + "\n");
    file.have.emplace(digest, std::pair(prompt, answered));
    ++report.rows;
    report.prompt_tokens += prompt;
    report.answer_tokens += answered;
    report.cost_usd = teacher.cost(report.prompt_tokens, report.answer_tokens);
    progress.update(static_cast<double>(i + 1), fmt::format("${:.4f}", report.cost_usd));
  }
  report.requests = teacher.requests;
  if (cut_short) log::warn("teacher: {} answers were cut at max_tokens ({})", cut_short, t.max_tokens);
  log::info("teacher: {} answers, {} + {} tokens, ${:.4f}", report.rows, report.prompt_tokens, report.answer_tokens,
            report.cost_usd);
  return report;
}

}  // namespace mxt::data
