// Whole requests against a server with a small random model: bodies × sampling options × grammars × tokenizers. Each is
// answered; nothing asserts, no answer that a grammar held is anything but JSON, no call's arguments anything but an
// object.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "serve/hostile_server.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mxt;
  using namespace mxt::serve;
  static const auto servers = [] {
    const std::string base = std::filesystem::temp_directory_path().string() + "/mindxtrain_serve_whole_fuzz_";
    const std::vector<std::string> merged{"{ \"", "\" :", "} }", "\" }", "1 2", "\" ,", "] }", "n u", "\" \""};
    auto* all = new std::vector<std::unique_ptr<HostileServer>>;
    for (const bool special : {true, false})
      for (const bool few : {true, false})
        all->push_back(std::make_unique<HostileServer>(
            base + std::to_string(all->size()), TinyTokenizer{few ? std::vector<std::string>{} : merged, special},
            few ? ToolStyle::kHermes : ToolStyle::kQwenCoder));
    return all;
  }();
  Choices c(data, size);
  auto& server = *(*servers)[c.below(servers->size())];
  const bool chat = c.often();
  const Any request = any_request(c, chat);
  const std::string wrong = server.ask(request, chat);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n%s\n", wrong.c_str(),
                 request.dump(-1, ' ', false, Any::error_handler_t::replace).c_str());
    std::abort();
  }
  return 0;
}
