// What Kubo's /api/v0/add and its likes take: multipart/form-data with one part a file.
#pragma once

#include <string>
#include <vector>

#include "net/http.h"
#include "publish/ipfs/import.h"
#include "publish/steps.h"

namespace mxt::publish {

struct FormBody {
  std::string content_type;
  std::vector<net::BodyPart> parts;
};

// The files of a folder named `root`. `encode_names`: percent-encoded, as Kubo wants them; else only what would break
// the header is.
FormBody folder_form(const std::vector<TreeEntry>& entries, const std::string& root, bool encode_names);
// One file of `bytes`.
FormBody file_form(const std::string& file, uint64_t bytes);

// An answer of lines that began with 200 and failed afterwards says so in its trailer X-Stream-Error, or in a line of
// its own: kBadInput with what `service` says.
void require_whole(const net::HttpResponse& answer, const std::string& service);

// The run, `expected`, was sent to `url`, and another id came back: kVerifyFailed with `what`; that it did is kept.
[[noreturn]] void named_another(const StepContext& c, const std::string& url, const std::string& expected,
                                const std::string& what);
// That once more, where it was so the last time and sending it again is not asked for.
void refuse_again(const StepContext& c, const std::string& service, const std::string& url,
                  const std::string& expected);

}  // namespace mxt::publish
