// A run goes to a Hub, an IPFS node and a chain of the test's own by the commands of docs/publish.md, word for word,
// and is verified from what came back alone.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "e2e/cli.h"
#include "evm/anvil.h"
#include "folders.h"
#include "net/fake_upload_hub.h"
#include "net/ipfs.h"

namespace mxt::cli {
namespace {

// A node that takes blocks (`dag/import`) and gives them back as a gateway.
class IpfsNode {
 public:
  IpfsNode() : server_([this](const net::ServerRequest& r) { return answer(r); }) {}
  std::string url(const std::string& path = "") const { return server_.url(path); }
  int imports = 0;

 private:
  net::ServerResponse answer(const net::ServerRequest& r) {
    if (r.method == "GET") {
      const std::string cid = r.target.substr(6, r.target.find('?') - 6);
      const bool one = r.target.ends_with("format=raw") && blocks_.contains(cid);
      return one ? net::ServerResponse{200, {}, blocks_[cid]} : net::ServerResponse{404, {}, ""};
    }
    if (r.target.starts_with("/api/v0/pin/ls")) {
      const std::string cid = r.target.substr(r.target.find("arg=") + 4);
      const std::string root = cid.substr(0, cid.find('&'));
      return roots_.contains(root)
                 ? net::ServerResponse{200, {}, R"({"Keys":{")" + root + R"(":{"Type":"recursive"}}})"}
                 : net::ServerResponse{500, {}, R"({"Message":"path is not pinned","Code":0,"Type":"error"})"};
    }
    if (!r.target.starts_with("/api/v0/dag/import")) return {404, {}, ""};
    const size_t head = r.body.find("\r\n\r\n") + 4, end = r.body.rfind("\r\n--");
    const std::string car = r.body.substr(head, end - head);
    // Sections of a length and what it counts: the header, whose root stands before "version", then an id and a block
    // each.
    std::string_view rest = car;
    const auto section = [&] {
      uint64_t n = 0;
      for (int shift = 0;; shift += 7) {
        const auto c = static_cast<unsigned char>(rest.front());
        rest.remove_prefix(1);
        n |= static_cast<uint64_t>(c & 127) << shift;
        if (c < 128) break;
      }
      const std::string_view out = rest.substr(0, n);
      rest.remove_prefix(n);
      return out;
    };
    const std::string_view header = section();
    std::string_view root = header.substr(header.find("gversion") - 36, 36);
    const std::string cid = net::read_binary_cid(&root).text();
    while (!rest.empty()) {
      std::string_view block = section();
      const net::Cid id = net::read_binary_cid(&block);
      EXPECT_TRUE(id.holds(block));
      blocks_[id.text()] = block;
    }
    roots_.insert(cid);
    ++imports;
    return {200, {}, R"({"Root":{"Cid":{"/":")" + cid + R"("},"PinErrorMsg":""}})" + "\n"};
  }
  std::map<std::string, std::string> blocks_;
  std::set<std::string> roots_;
  net::TestServer server_;
};

// What docs/publish.md shows: lines of its blocks, and what stands in its text.
std::vector<std::string> documented() {
  const std::string text = read_file(std::string(kSourceDir) + "/docs/publish.md");
  std::vector<std::string> out;
  bool block = false;
  std::string prose;
  for (std::string_view line : split(text, '\n')) {
    if (line.starts_with("```")) {
      block = !block;
      continue;
    }
    if (!block) {
      prose += std::string(line) + " ";
      continue;
    }
    std::string command(line.substr(0, line.find("  #")));
    if (const size_t at = command.find(" # "); at != std::string::npos) command.resize(at);
    if (command.starts_with("mindxtrain ")) out.emplace_back(trim(command));
  }
  for (size_t at = prose.find('`'); at != std::string::npos;) {
    const size_t end = prose.find('`', at + 1);
    const std::string span = prose.substr(at + 1, end - at - 1);
    if (span.starts_with("mindxtrain ")) out.push_back(span);
    at = prose.find('`', end + 1);
  }
  return out;
}

std::string replaced(std::string text, const std::vector<std::pair<std::string, std::string>>& by) {
  for (const auto& [from, to] : by)
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  return text;
}

// Once each, in the order of the page but for what needs what: keys, the run, sending, and what came back.
std::vector<std::string> in_stage(int wanted) {
  std::vector<std::string> out;
  for (const std::string& c : documented()) {
    const bool back = c.find("COPY") != std::string::npos || c.find("--proof") != std::string::npos;
    const int stage = c.starts_with("mindxtrain key new") ? 0 : back ? 2 : 1;
    if (stage == wanted && std::find(out.begin(), out.end(), c) == out.end()) out.push_back(c);
  }
  return out;
}

class Published : public testing::Test {
 protected:
  void SetUp() override {
    chain_ = evm::Anvil::start({"--chain-id", "84532", "--block-time", "1"});
    if (!chain_) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
    registry_ = evm::text_of(chain_->deploy("registry"));
    make_folders(f_ / "home");
    make_folders(f_ / "bin");
    fs::create_symlink(kBinary, f_ / "bin/mindxtrain");
  }

  // In a shell of its own, which knows of this machine nothing but what it is told.
  Result sh(const std::string& command) {
    const std::string environment = fmt::format(
        "cd '{0}'; export PATH='{0}/bin':$PATH HOME='{0}/home' MINDXTRAIN_HOME='{0}/home/mxt' HF_ENDPOINT={1} "
        "HF_TOKEN={2} MINDXTRAIN_KEY_PASSPHRASE=words MINDXTRAIN_EVM_KEY=wallet.key; {{ ",
        f_.path, hub_.url(), hub_.token);
    write_file_atomic(f_ / "command.sh", environment + command + "\n} 2>&1\n");
    FILE* p = popen(("bash '" + (f_ / "command.sh") + "'").c_str(), "r");
    Result r{-1, {}};
    char buf[4096];
    for (size_t n; (n = fread(buf, 1, sizeof buf, p)) > 0;) r.out.append(buf, n);
    const int status = pclose(p);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return r;
  }

  void does(int stage, const std::string& copy = "", const std::string& publisher = "") {
    for (const std::string& c : in_stage(stage)) {
      const std::string command = replaced(c, {{"COPY", copy},
                                               {"NAME.pub", "~/.mindxtrain.key.pub"},
                                               {"FILE_OR_FOLDER", "out/my/checkpoint"},
                                               {"https://…", chain_->url()},
                                               {"--registry 0x…", "--registry " + registry_},
                                               {"--publisher 0x…", "--publisher " + publisher}});
      ASSERT_EQ(command.find("…"), std::string::npos) << command;
      const Result r = sh(command);
      EXPECT_EQ(r.code, 0) << command << "\n" << r.out;
      if (c.find("--kind evm") != std::string::npos) wallet_ = r.out.substr(r.out.find("0x"), 42);
    }
  }

  std::string recipe_of() const {
    Tiny t;
    t.method = "{kind: lora, r: 4}";
    return recipe(t) + fmt::format(
                           "receipt: {{sign_key: ~/.mindxtrain.key}}\n"
                           "publish:\n"
                           "  hf: {{repo: org/model, private: true}}\n"
                           "  ipfs: {{api_url: \"{}\", car: true}}\n",
                           node_.url());
  }

  Folder f_{"published"};
  net::FakeUploadHub hub_;
  IpfsNode node_;
  std::unique_ptr<evm::Anvil> chain_;
  std::string registry_, wallet_;
};

void expect_same_files(const std::string& folder, const std::map<std::string, net::FakeUploadHub::Entry>& want) {
  for (const auto& [path, e] : want) {
    ASSERT_TRUE(fs::exists(folder + "/" + path)) << path;
    EXPECT_EQ(read_file(folder + "/" + path), e.content) << path;
  }
}

TEST_F(Published, ByTheDocumentsCommandsAndVerifiedFromItsCopiesAlone) {
  does(0);
  ASSERT_EQ(wallet_.size(), 42u);
  chain_->rpc().call("anvil_setBalance", {wallet_, "0xde0b6b3a7640000"});
  write_file_atomic(f_ / "my.yaml", recipe_of());
  write_file_atomic(f_ / "other.yaml", recipe_of());
  const Result trained = sh("mindxtrain run my.yaml --out out/my");
  ASSERT_EQ(trained.code, 0) << trained.out;
  does(1);
  const int commits = hub_.commits, imports = node_.imports;
  EXPECT_EQ(imports, 1);
  const Json state = read_json_file(f_ / "out/my/publish.json");
  for (const char* step : {"hf", "ipfs", "anchor"})
    EXPECT_TRUE(state["steps"][step].value("done", false)) << step << state.dump();
  const std::string cid = state["steps"]["ipfs"]["result"]["cid"];
  EXPECT_EQ(state["steps"]["anchor"]["result"]["cid"], cid) << "the chain names what the node holds";

  // Again: nothing is sent anywhere.
  const auto nonce = chain_->rpc().nonce(*evm::parse_address(wallet_));
  does(1);
  EXPECT_EQ(hub_.commits, commits);
  EXPECT_EQ(node_.imports, imports);
  EXPECT_EQ(chain_->rpc().nonce(*evm::parse_address(wallet_)), nonce);

  const std::string manifest = read_file(f_ / "out/my/manifest.json");
  write_file_atomic(f_ / "manifest.json", manifest);
  fs::rename(f_ / "out", f_ / "kept_elsewhere");  // a copy has nothing else of the run
  const std::string from_hub = f_ / "from_hub", from_ipfs = f_ / "from_ipfs";
  for (const auto& [path, e] : hub_.files) {
    make_folders(fs::path(from_hub + "/" + path).parent_path().string());
    write_file_atomic(from_hub + "/" + path, e.content);
  }
  for (const net::IpfsFile& file : net::fetch_ipfs({}, node_.url("/ipfs"), cid, f_ / "ipfs_cache")) {
    make_folders(fs::path(from_ipfs + "/" + file.path).parent_path().string());
    write_file_atomic(from_ipfs + "/" + file.path, read_file(file.file));
  }
  EXPECT_EQ(read_file(from_ipfs + "/provenance/manifest.json"), manifest);
  for (const std::string& copy : {from_hub, from_ipfs}) does(2, copy, wallet_);

  for (const char* name : {"README.md", "adapter_config.json", "provenance/manifest.json", "provenance/plan.json"}) {
    const std::string path = from_ipfs + "/" + name, was = read_file(path);
    write_file_atomic(path, was + " ");
    const Result r = sh("mindxtrain receipt from_ipfs --rpc " + chain_->url() + " --registry " + registry_);
    EXPECT_EQ(r.code, 2) << name << r.out;
    write_file_atomic(path, was);
  }
}

TEST_F(Published, TheHubsAndIpfssOwnLibrariesReadItBack) {
  const char *python = std::getenv("MXT_LIVE_PYTHON"), *packages = std::getenv("MXT_LIVE_NODE_PACKAGES");
  if (!python || !packages)
    GTEST_SKIP() << "set MXT_LIVE_PYTHON (a Python with huggingface_hub) and MXT_LIVE_NODE_PACKAGES (a folder with "
                    "ipfs-unixfs-importer and blockstore-core)";
  ASSERT_EQ(sh("mindxtrain key new ~/.mindxtrain.key").code, 0);
  write_file_atomic(f_ / "my.yaml", recipe_of());
  ASSERT_EQ(sh("mindxtrain run my.yaml --out out/my --publish").code, 0);
  const std::string read_back =
      "import sys, huggingface_hub as h\n"
      "h.snapshot_download('org/model', local_dir=sys.argv[1], endpoint=sys.argv[2], token=sys.argv[3])\n";
  write_file_atomic(f_ / "read_back.py", read_back);
  const Result r = sh(fmt::format("'{}' read_back.py copy {} {}", python, hub_.url(), hub_.token));
  ASSERT_EQ(r.code, 0) << r.out;
  expect_same_files(f_ / "copy", hub_.files);
  fs::remove_all(f_ / "copy/.cache");
  fs::remove(f_ / "copy/.gitattributes");
  EXPECT_EQ(sh("mindxtrain receipt copy --key ~/.mindxtrain.key.pub").code, 0);
  for (const char* profile : {"kubo-v1", "unixfs-v0-2015", "unixfs-v1-2025"}) {
    const Result theirs =
        sh(fmt::format("node '{}/tests/publish/cid.mjs' '{}' '{}' {}", kSourceDir, packages, f_ / "copy", profile));
    const Result ours = sh(fmt::format("mindxtrain cid copy --profile {}", profile));
    EXPECT_EQ(theirs.code, 0) << theirs.out;
    EXPECT_EQ(trim(ours.out), trim(theirs.out)) << profile;
    if (std::string(profile) == "kubo-v1") {
      const Json state = read_json_file(f_ / "out/my/publish.json");
      EXPECT_EQ(state["steps"]["ipfs"]["result"]["cid"].get<std::string>(), trim(theirs.out));
    }
  }
}

}  // namespace
}  // namespace mxt::cli
