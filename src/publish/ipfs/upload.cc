#include "publish/ipfs/upload.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "net/url.h"

namespace mxt::publish {
namespace {

// In no file but by design: a digest of the names.
std::string boundary_of(std::string_view seed) { return "mindxtrain-" + blake3_hex(seed).substr(0, 40); }

void add_part(FormBody& form, const std::string& boundary, const std::string& name, const std::string& type,
              const TreeEntry* entry, uint64_t bytes) {
  net::BodyPart p;
  p.text = fmt::format(
      "{}--{}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\nContent-Type: {}\r\n\r\n",
      form.parts.empty() ? "" : "\r\n", boundary, name, type);
  if (entry && entry->kind == TreeEntry::Kind::kText) {
    p.text += entry->source;
  } else if (entry) {
    p.file = entry->source;
    p.bytes = bytes;
  }
  form.parts.push_back(std::move(p));
}

FormBody begin(const std::string& boundary) { return {"multipart/form-data; boundary=" + boundary, {}}; }

void end(FormBody& form, const std::string& boundary) {
  form.parts.push_back({"\r\n--" + boundary + "--\r\n", "", 0, 0});
}

constexpr const char* kNotAgain = "it is not sent there again, unless by publish --again";

// What a step keeps that was told another id.
Json sent_to(const std::string& url, const std::string& expected) {
  return {{"named_another", {{"url", url}, {"expected", expected}}}};
}

}  // namespace

FormBody folder_form(const std::vector<TreeEntry>& entries, const std::string& root, bool encode_names) {
  std::string seed = root;
  for (const TreeEntry& e : entries) seed += "\n" + e.path;
  const std::string boundary = boundary_of(seed);
  FormBody form = begin(boundary);
  for (const TreeEntry& e : entries) {
    MXT_ASSERT(e.kind == TreeEntry::Kind::kFile || e.kind == TreeEntry::Kind::kText);
    const std::string path = root + "/" + e.path;
    std::string name = net::percent_encode(path);
    if (!encode_names) {
      if (path.find_first_of("\"\r\n\\%") != std::string::npos)
        fail_input("{}: holds a character that this service does not take in a name: rename it", e.path);
      name = path;
    }
    add_part(form, boundary, name, "application/octet-stream", &e,
             e.kind == TreeEntry::Kind::kFile ? fs::file_size(e.source) : 0);
  }
  end(form, boundary);
  return form;
}

FormBody file_form(const std::string& file, uint64_t bytes) {
  const std::string boundary = boundary_of(file);
  FormBody form = begin(boundary);
  const TreeEntry e{TreeEntry::Kind::kFile, "", file};
  add_part(form, boundary, "run.car", "application/vnd.ipld.car", &e, bytes);
  end(form, boundary);
  return form;
}

void named_another(const StepContext& c, const std::string& url, const std::string& expected, const std::string& what) {
  c.save(sent_to(url, expected));
  fail_verify("{}; {}", what, kNotAgain);
}

void refuse_again(const StepContext& c, const std::string& service, const std::string& url,
                  const std::string& expected) {
  if (!c.around.again && c.state() == sent_to(url, expected))
    fail_verify("{}: was sent {} and named another id for it; {}", service, expected, kNotAgain);
}

void require_whole(const net::HttpResponse& answer, const std::string& service) {
  const auto stopped = [&](const std::string& why) {
    fail_input("{}: stopped before it had taken everything: {}", service, printable(why.substr(0, 300)));
  };
  if (const std::string* e = answer.header("X-Stream-Error"); e && !e->empty()) stopped(*e);
  for (const std::string_view line : split(answer.body, '\n'))
    if (const Json j = Json::parse(line, nullptr, false);
        j.is_object() && j.value("Type", Json()) == Json("error") && j.contains("Message") && j["Message"].is_string())
      stopped(j["Message"].get<std::string>());
}

}  // namespace mxt::publish
