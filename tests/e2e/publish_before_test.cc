// What publishing would refuse costs no training.
#include <algorithm>

#include "e2e/cli.h"
#include "folders.h"

namespace mxt::cli {
namespace {

std::string written(const Folder& f, const std::string& publish) {
  Tiny t;
  t.steps = 1;
  write_file_atomic(f / "r.yaml", recipe(t) + publish);
  return f / "r.yaml";
}

TEST(PublishBefore, ARunThatCannotBePublishedIsNotTrained) {
  const Folder f("publish_before");
  const std::string nobody = "env -u HF_TOKEN HF_HOME='" + (f / "none") + "'";
  const auto refused = [&](const std::string& publish, int code, const std::string& part) {
    const Result r = run("run " + written(f, publish) + " --out " + (f / "out") + " --publish", nobody);
    EXPECT_EQ(r.code, code) << r.out;
    EXPECT_NE(r.out.find(part), std::string::npos) << r.out;
    EXPECT_FALSE(fs::exists(f / "out/checkpoint")) << publish;
  };
  refused("publish: {hf: {repo: org/model}}\n", 3, "HF_TOKEN");
  refused("publish: {hf: {repo: model}}\n", 1, "publish.hf.repo");
  refused("publish: {ipfs: {profile: foo}}\n", 1, "publish.ipfs.profile");
  refused("publish: {enabled: false, ipfs: {}}\n", 1, "publish.enabled");
  refused("publish: {bankon: {}}\n", 1, "names no destination");
  refused("", 1, "names no destination");
}

TEST(PublishBefore, ValidateSaysItWithItsLine) {
  const Folder f("publish_validate");
  const auto said = [&](const std::string& publish, int code, const std::string& part) {
    const std::string path = written(f, publish);
    const std::string text = read_file(path);
    const auto line = 1 + std::count(text.begin(), text.end() - static_cast<std::ptrdiff_t>(publish.size()), '\n');
    const Result r = run("validate " + path);
    EXPECT_EQ(r.code, code) << r.out;
    const size_t at = part.find('@');  // "@2": two lines below the section's first
    const std::string want = at == std::string::npos
                                 ? part
                                 : part.substr(0, at) + std::to_string(line + part[at + 1] - '0') + part.substr(at + 2);
    EXPECT_NE(r.out.find(want), std::string::npos) << r.out << want;
  };
  said("publish:\n  ipfs:\n    profile: foo\n", 1, "r.yaml:@2:5: publish.ipfs.profile: \"foo\"");
  said("publish:\n  hf: {repo: name}\n", 1, "r.yaml:@1:8: publish.hf.repo: \"name\"");
  said("publish: {billing: {x402: {network: base, pay_to: \"0x12\"}}}\n", 1, "publish.billing.x402.pay_to: \"0x12\"");
  said("publish: {billing: {x402: {network: base, pay_to: \"0x" + std::string(40, '0') + "\"}}}\n", 1,
       "publish.billing.x402.pay_to: is the zero address");
  said("publish: {billing: {x402: {price_per_1k_tokens: 1.0e+300}}}\n", 1, "publish.billing.x402.price_per_1k_tokens");
  said("publish: {hf: {repo: a/b}, bankon: {}}\n", 0, "publish.bankon: has no subname");
}

TEST(PublishBefore, AFailedStepIsInTheJsonToo) {
  const Folder f("publish_json");
  const std::string out = f / "out";
  const Result trained =
      run("run " + written(f, "publish: {ipfs: {api_url: \"http://127.0.0.1:1\"}}\n") + " --out " + out);
  ASSERT_EQ(trained.code, 0) << trained.out;
  const Result r = run("publish " + out + " --json");
  EXPECT_NE(r.out.find("\"error\": \"ipfs: Kubo at http://127.0.0.1:1"), std::string::npos) << r.out;
  EXPECT_EQ(r.code, 1);
}

}  // namespace
}  // namespace mxt::cli
