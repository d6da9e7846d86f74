// One file over HTTP in as many attempts as it takes: what came stays in TARGET.incomplete, and the next attempt, of
// this process or a later one, asks for the rest.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "net/http.h"

namespace mxt::net {

struct FileFetch {
  std::string url;
  Headers headers;
  std::string what;       // what it is, in messages: "org/model: config.json"
  std::string promiser;   // whose size and digest they are, in messages: "the Hub"
  std::string elsewhere;  // where else it could lie, for who has no room: "set HF_HOME elsewhere"
  std::optional<uint64_t> size;
  std::string sha256;  // lower-case hex; "" where it is not known
  std::function<void(uint64_t done)> progress;
  std::function<void(const HttpResponse&)> refuse;  // throws: the answer is no file
};

// Errors: kMissing where the server cannot be reached or stops, kBadInput where the disk is full or cannot be written
// (what came is kept) or more comes than was promised, kVerifyFailed where the digest is another (it is removed).
void fetch_file(HttpClient& http, const FileFetch& f, const std::string& target);

}  // namespace mxt::net
