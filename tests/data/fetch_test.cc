// Sources that are fetched, each against a local server that speaks its protocol.
#include "data/source/fetch.h"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "data/prepare.h"
#include "data/synth/synth.h"
#include "data/synth/teacher.h"
#include "helpers.h"
#include "net/fake_hub.h"
#include "net/ipfs.h"
#include "net/test_server.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using net::Cid;
using net::Codec;
using net::FakeHub;
using net::ServerRequest;
using net::ServerResponse;
using net::TestServer;
using testing::DataTest;
using testing::error_of;
using V = std::vector<std::string>;

config::Recipe recipe(const std::string& data) {
  return config::parse_recipe("meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {seq_len: 64, " + data + "}\n",
                              "test.yaml");
}

// ---- Hub

TEST(SplitFiles, FollowTheConfigurationsOfTheReadme) {
  const V files = {"README.md",
                   "main/test-00000.parquet",
                   "main/train-00000.parquet",
                   "main/train-00001.parquet",
                   "socratic/train-00000.parquet",
                   "other.txt"};
  const std::string readme =
      "---\nlicense: mit\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train-*\n"
      "  - split: test\n    path:\n    - main/test-*\n- config_name: socratic\n  data_files: "
      "socratic/*.parquet\n---\n# x\n";
  EXPECT_EQ(choose_split_files(files, readme, "main", "train").paths,
            (V{"main/train-00000.parquet", "main/train-00001.parquet"}));
  EXPECT_EQ(choose_split_files(files, readme, "main", "test").paths, (V{"main/test-00000.parquet"}));
  EXPECT_EQ(choose_split_files(files, readme, "socratic", "train").paths, (V{"socratic/train-00000.parquet"}));
  EXPECT_HAS(choose_split_files(files, readme, "", "train").why_none, "main, socratic");
  EXPECT_HAS(choose_split_files(files, readme, "mian", "train").why_none, "no configuration \"mian\"");
  EXPECT_HAS(choose_split_files(files, readme, "main", "dev").why_none, "test, train");
}

TEST(SplitFiles, FollowTheNamesWhereTheReadmeSaysNothing) {
  const V files = {".gitattributes", "README.md", "data/test.jsonl", "data/train.jsonl.zst", "dataset_infos.json"};
  EXPECT_EQ(choose_split_files(files, "# no front matter", "", "train").paths, (V{"data/train.jsonl.zst"}));
  EXPECT_EQ(choose_split_files(files, "", "", "test").paths, (V{"data/test.jsonl"}));
  EXPECT_HAS(choose_split_files(files, "", "", "validation").why_none, "test, train");
  EXPECT_EQ(choose_split_files({"rows.csv"}, "", "", "train").paths, (V{"rows.csv"}));
  EXPECT_EQ(choose_split_files({"en/train/0.parquet", "fr/train/0.parquet"}, "", "fr", "train").paths,
            (V{"fr/train/0.parquet"}));
  EXPECT_EQ(choose_split_files({"a/b/c/x.csv", "a/x.csv", "b/x.csv"},
                               "---\nconfigs:\n- config_name: default\n  data_files:\n    train: a/**/*.csv\n---\n", "",
                               "train")
                .paths,
            (V{"a/b/c/x.csv", "a/x.csv"}));
}

class FetchTest : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    access_.hub.cache_dir = path("hub");
    access_.hub.retry_base_seconds = 0.01;
    access_.cache_dir = path("cache");
  }
  Prepared run(const std::string& data, const std::string& out = "out") {
    return prepare(recipe(data), coder_, path(out), access_);
  }
  Access access_;
  testing::ToyEncoder coder_;
};

TEST_F(FetchTest, HubDatasetsAreFetchedIntoTheSharedCacheAndReadOffline) {
  FakeHub hub;
  hub.serve_dataset();
  hub.files = {{"README.md", "---\nlicense: mit\n---\n"},
               {"data/train-00000-of-00002.jsonl", "{\"text\":\"one\"}\n"},
               {"data/train-00001-of-00002.jsonl", "{\"text\":\"two\"}\n"},
               {"data/test.jsonl", "{\"text\":\"three\"}\n"}};
  hub.large = {"data/train-00001-of-00002.jsonl"};
  hub.token = "secret";
  access_.hub.endpoint = hub.url();
  EXPECT_HAS(error_of([&] { run("source: hf, hf_id: org/model"); }), "HF_TOKEN");
  access_.hub.token = "secret";
  EXPECT_EQ(run("source: hf, hf_id: org/model").train.documents, 2);
  EXPECT_EQ(hub.store().count("GET", "test"), 0u);
  EXPECT_TRUE(
      fs::exists(path("hub/datasets--org--model/snapshots/" + hub.commit + "/data/train-00000-of-00002.jsonl")));
  EXPECT_EQ(read_file(path("hub/datasets--org--model/refs/main")), hub.commit);
  access_.hub.offline = true;
  access_.hub.endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(run("source: hf, hf_id: org/model", "offline").train.documents, 2);
  EXPECT_HAS(error_of([&] { run("source: hf, hf_id: org/model, split: validation", "no"); }),
             "no split \"validation\"");
  EXPECT_HAS(error_of([&] { run("source: hf, hf_id: org/absent", "no"); }, Exit::kMissing), "offline");
  // A part of the shards is not the data.
  fs::remove(path("hub/datasets--org--model/snapshots/" + hub.commit + "/data/train-00000-of-00002.jsonl"));
  EXPECT_HAS(error_of([&] { run("source: hf, hf_id: org/model", "part"); }, Exit::kMissing),
             "1 of 2 files of data/train");
}

// Opt-in: MXT_LIVE_PYTHON names a Python with huggingface_hub and datasets; they take the same server for a Hub.
TEST_F(FetchTest, TheRealClientsTakeTheTestHubForOne) {
  const char* python = std::getenv("MXT_LIVE_PYTHON");
  if (!python) GTEST_SKIP() << "set MXT_LIVE_PYTHON to a Python with huggingface_hub";
  FakeHub hub;
  hub.serve_dataset();
  hub.files = {{"data/train.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n"},
               {"data/test.jsonl", "{\"text\":\"x\"}\n"}};
  const std::string command =
      "HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1 HF_ENDPOINT=" + hub.url() + " HF_HOME=" + path("home") + " " +
      std::string(python) +
      " -c \"from huggingface_hub import snapshot_download; import os; d = snapshot_download('org/model', "
      "repo_type='dataset', cache_dir='" +
      path("hub") + "'); print(sorted(os.listdir(d + '/data')))\" > " + path("log") + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(path("log"));
  // What it fetched is found without a network.
  access_.hub.offline = true;
  EXPECT_EQ(run("source: hf, hf_id: org/model").train.documents, 2);
}

// The same for load_dataset, with rows as JSON lines and as Parquet (in large-file storage).
TEST_F(FetchTest, TheDatasetsLibraryLoadsFromTheTestHub) {
  const char* python = std::getenv("MXT_LIVE_PYTHON");
  if (!python) GTEST_SKIP() << "set MXT_LIVE_PYTHON to a Python with datasets";
  const std::string py = python;
  if (std::system((py + " -c 'import datasets, pyarrow' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << py << " has no datasets";
  write("make.py",
        "import sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "pq.write_table(pa.table({'question': ['a', 'b', 'c'], 'answer': ['1', '2', '3']}), sys.argv[1])\n");
  ASSERT_EQ(std::system((py + " " + path("make.py") + " " + path("rows.parquet")).c_str()), 0);
  write("load.py",
        "import sys, datasets\n"
        "d = datasets.load_dataset('org/model')\n"
        "assert sorted(d) == ['test', 'train'], d\n"
        "print([dict(r) for r in d['train']])\n"
        "print([dict(r) for r in datasets.load_dataset('org/model', split='test', streaming=True)])\n");
  const std::string rows = "{\"question\":\"a\",\"answer\":\"1\"}\n{\"question\":\"b\",\"answer\":\"2\"}\n";
  for (const std::string kind : {"jsonl", "parquet"}) {
    FakeHub hub;
    hub.serve_dataset();
    const std::string train =
        kind == "jsonl" ? rows + "{\"question\":\"c\",\"answer\":\"3\"}\n" : read_file(path("rows.parquet"));
    hub.files = {{"data/train-00000-of-00001." + kind, train}, {"data/test-00000-of-00001." + kind, train}};
    hub.large = {"data/train-00000-of-00001." + kind, "data/test-00000-of-00001." + kind};
    const std::string command = "HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1 HF_ENDPOINT=" + hub.url() +
                                " HF_HOME=" + path("home-" + kind) + " NO_PROXY='*' " + py + " " + path("load.py") +
                                " > " + path("log") + " 2>&1";
    const int code = std::system(command.c_str());
    std::string seen;
    for (const ServerRequest& r : hub.hub().seen()) seen += r.method + " " + r.target + "\n";
    ASSERT_EQ(code, 0) << read_file(path("log")) << seen;
    const std::string want =
        "[{'question': 'a', 'answer': '1'}, {'question': 'b', 'answer': '2'}, {'question': 'c', 'answer': '3'}]";
    EXPECT_HAS(read_file(path("log")), want + "\n" + want);
    // And ours reads the same.
    access_.hub.endpoint = hub.url();
    access_.hub.cache_dir = path("hub-" + kind);
    try {
      EXPECT_EQ(run("source: hf, hf_id: org/model", "out-" + kind).train.documents, 3);
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), Exit::kMissing) << e.what();  // Parquet without DuckDB
    }
  }
}

// ---- mindX

TEST_F(FetchTest, DreamsAreTheTrainingLogsAndOnRequestTheEvolutions) {
  const std::string row = R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]})";
  write("m/2026/a_training.jsonl", row + "\n");
  write("m/b_training.jsonl", row + "\n" + row + "\n");
  write("m/b_evolutions.jsonl", row + "\n");
  write("m/notes.jsonl", "{}\n");
  EXPECT_EQ(run("source: mindx_dreams, path: '" + path("m") + "'").train.documents, 3);
  EXPECT_EQ(run("source: mindx_dreams, include_evolutions: true, path: '" + path("m") + "'").train.documents, 4);
  fs::create_directory(path("empty"));
  EXPECT_HAS(error_of([&] { run("source: mindx_dreams, path: '" + path("empty") + "'"); }), "_training.jsonl");
}

// ---- IPFS

std::string varint(uint64_t n) {
  std::string s;
  for (; n >= 0x80; n >>= 7) s += static_cast<char>(n | 0x80);
  return s + static_cast<char>(n);
}
std::string field(int number, const std::string& bytes) {
  return varint(static_cast<uint64_t>(number << 3 | 2)) + varint(bytes.size()) + bytes;
}
std::string number_field(int number, uint64_t v) { return varint(static_cast<uint64_t>(number << 3)) + varint(v); }

// A store of blocks that builds UnixFS and answers as a gateway.
class Gateway {
 public:
  Gateway() : server_([this](const ServerRequest& r) { return answer(r); }) {}
  Cid put(Codec codec, const std::string& block) {
    Sha256 h;
    h.update(block);
    const Digest d = h.digest();
    const Cid c{codec, std::string(reinterpret_cast<const char*>(d.data()), d.size())};
    blocks[c] = block;
    return c;
  }
  Cid node(int type, const std::string& data, const std::vector<std::pair<std::string, Cid>>& links) {
    std::string block;
    for (const auto& [name, cid] : links)
      block += field(2, field(1, cid.binary()) + field(2, name) + number_field(3, 1));
    std::string unixfs = number_field(1, static_cast<uint64_t>(type));
    if (!data.empty()) unixfs += field(2, data) + number_field(3, data.size());
    return put(Codec::kDagPb, block + field(1, unixfs));
  }
  // Chunks of `size` bytes, eight links a node.
  Cid file(const std::string& content, size_t size) {
    std::vector<std::pair<std::string, Cid>> level;
    for (size_t i = 0; i < content.size(); i += size) level.push_back({"", put(Codec::kRaw, content.substr(i, size))});
    while (level.size() > 1) {
      std::vector<std::pair<std::string, Cid>> up;
      for (size_t i = 0; i < level.size(); i += 8)
        up.push_back({"", node(2, "",
                               {level.begin() + static_cast<ptrdiff_t>(i),
                                level.begin() + static_cast<ptrdiff_t>(std::min(level.size(), i + 8))})});
      level = up;
    }
    return level[0].second;
  }
  std::string url() const { return server_.url("/ipfs"); }
  TestServer& server() { return server_; }
  std::map<Cid, std::string> blocks;
  bool car = true;
  std::string extra;  // a block that nobody asked for, put into the CAR
  Cid corrupt{};      // arrives changed
  size_t cut_after = std::string::npos;

 private:
  void walk(const Cid& c, std::string* out) {
    std::string b = blocks.at(c);
    if (c == corrupt) b[0] = static_cast<char>(b[0] ^ 1);
    const std::string section = c.binary() + b;
    *out += varint(section.size()) + section;
    if (c.codec != Codec::kDagPb) return;
    try {
      for (const auto& l : net::parse_unixfs(blocks.at(c), "test").links) walk(l.cid, out);
    } catch (const Error&) {  // of a kind that has no links to follow
    }
  }
  ServerResponse answer(const ServerRequest& r) {
    ServerResponse a;
    a.status = 404;
    const size_t q = r.target.find('?');
    if (!r.target.starts_with("/ipfs/") || q == std::string::npos) return a;
    const Cid c = net::parse_cid(r.target.substr(6, q - 6));
    if (!blocks.contains(c)) return a;
    if (r.target.substr(q) == "?format=raw") {
      a.status = 200;
      a.body = blocks[c];
      if (c == corrupt) a.body[0] = static_cast<char>(a.body[0] ^ 1);
    } else if (r.target.substr(q) == "?format=car" && car) {
      a.status = 200;
      // {"roots": [cid], "version": 1} in DAG-CBOR
      const std::string header =
          "\xa2\x65roots\x81\xd8\x2a\x58\x25" + std::string(1, '\0') + c.binary() + "\x67version\x01";
      a.body = varint(header.size()) + header;
      if (!extra.empty()) {
        const std::string section = put(Codec::kRaw, extra).binary() + extra;
        a.body += varint(section.size()) + section;
      }
      walk(c, &a.body);
      a.cut_after = cut_after;
    }
    return a;
  }
  TestServer server_;
};

TEST(Cid, IsReadInEveryBaseAndWrittenInBase32) {
  const std::string hello = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";  // "hello world", raw
  const Cid c = net::parse_cid(hello);
  EXPECT_EQ(c.codec, Codec::kRaw);
  EXPECT_TRUE(c.holds("hello world"));
  EXPECT_FALSE(c.holds("hello worle"));
  EXPECT_EQ(c.text(), hello);
  std::string hex = "f01551220";
  for (char d : c.digest) hex += fmt::format("{:02x}", static_cast<unsigned char>(d));
  EXPECT_EQ(net::parse_cid(hex), c);
  // The same bytes added as a UnixFS file, version 0.
  const Cid v0 = net::parse_cid("Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD");
  EXPECT_EQ(v0.codec, Codec::kDagPb);
  EXPECT_TRUE(v0.holds(field(1, number_field(1, 2) + field(2, "hello world") + number_field(3, 11))));
  for (const char* bad : {"", "Qm", "bafy", "hello", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e7",
                          "z", "b0000", "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyf0"})
    EXPECT_HAS(error_of([&] { net::parse_cid(bad); }), "content id") << bad;
}

TEST_F(FetchTest, LighthouseContentIsCheckedBlockByBlockAndKept) {
  Gateway g;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "{\"text\":\"row " + std::to_string(i) + "\"}\n";
  const std::string cid = g.file(text, 100).text();
  const std::string data = "source: lighthouse, gateway: '" + g.url() + "/', cid: " + cid;
  EXPECT_EQ(run(data).rows_in, 300);
  EXPECT_EQ(g.server().count("GET", ""), 1u);  // one CAR
  EXPECT_EQ(read_file(path("cache/ipfs/" + cid + "/content")), text);
  EXPECT_EQ(run(data, "again").rows_in, 300);
  EXPECT_EQ(g.server().count("GET", ""), 1u);
  fs::remove_all(path("cache"));
  g.car = false;  // a gateway that knows blocks only
  EXPECT_EQ(run(data, "blocks").rows_in, 300);
  fs::remove_all(path("cache"));
  g.car = true;
  g.cut_after = 3000;  // the answer breaks off: the rest comes block by block
  EXPECT_EQ(run(data, "cut").rows_in, 300);
  EXPECT_EQ(read_file(path("cache/ipfs/" + cid + "/content")), text);
  EXPECT_EQ(blake3_hex(read_file(path("out/dataset.json"))).size(), 64u);
}

TEST_F(FetchTest, FoldersAndPathsBelowAContentIdAreRead) {
  Gateway g;
  const std::string one = "{\"text\":\"one\"}\n", two = "text\ntwo\nthree\n";
  const Cid sub = g.node(1, "", {{"train.csv", g.file(two, 1000)}});
  const Cid root =
      g.node(1, "", {{"d", sub}, {"train-0.jsonl", g.node(2, one, {})}, {"test.jsonl", g.file(one, 1000)}});
  const std::string data = "source: lighthouse, gateway: '" + g.url() + "', cid: ";
  EXPECT_EQ(run(data + root.text()).rows_in, 3);
  EXPECT_EQ(run(data + root.text() + "/d/train.csv", "sub").rows_in, 2);
  EXPECT_HAS(error_of([&] { run(data + root.text() + "/x", "no"); }), "no entry \"x\"");
  const Cid up = g.node(1, "", {{"../evil.jsonl", g.file(one, 1000)}});
  EXPECT_HAS(error_of([&] { run(data + up.text(), "no"); }), "name that no data file has");
  EXPECT_HAS(error_of([&] { run(data + g.node(5, "", {}).text(), "no"); }), "sharded");
}

TEST_F(FetchTest, BytesThatAreNotTheContentAreRefused) {
  Gateway g;
  const std::string text(5000, 'x');
  const Cid root = g.file(text, 100);
  const std::string data = "source: lighthouse, gateway: '" + g.url() + "', cid: " + root.text();
  g.corrupt = g.put(Codec::kRaw, text.substr(0, 100));
  EXPECT_HAS(error_of([&] { run(data); }, Exit::kVerifyFailed), "not those of");
  g.car = false;
  EXPECT_HAS(error_of([&] { run(data); }, Exit::kVerifyFailed), "not those of");
  g.corrupt = {};
  g.car = true;
  g.extra = "endless";
  EXPECT_HAS(error_of([&] { run(data); }, Exit::kVerifyFailed), "does not belong");
  EXPECT_HAS(error_of(
                 [&] {
                   run("source: lighthouse, gateway: '" + g.url() +
                       "', cid: bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e");
                 },
                 Exit::kMissing),
             "404");
  for (const auto& e : fs::directory_iterator(path("cache/ipfs"))) ADD_FAILURE() << e.path();
}

// ---- synth

TEST_F(FetchTest, ATeacherIsAskedOnceForEachPromptWithinItsCaps) {
  std::atomic<int> status{200}, calls{0};
  TestServer server([&](const ServerRequest& r) {
    ServerResponse a;
    ++calls;
    EXPECT_EQ(r.target, "/v1/chat/completions");
    EXPECT_EQ(r.headers.at("authorization"), "Bearer key");
    if (calls == 2) {  // once, and with the wait to keep
      a.status = 429;
      a.headers = {{"Retry-After", "1"}};
      return a;
    }
    a.status = status;
    const Json q = parse_json(r.body, "request");
    a.body =
        Json{{"choices",
              {{{"message",
                 {{"role", "assistant"}, {"content", "hello " + q["messages"].back()["content"].get<std::string>()}}},
                {"finish_reason", "stop"}}}},
             {"usage", {{"prompt_tokens", 100}, {"completion_tokens", 10}}}}
            .dump();
    if (calls == 4) a.body.resize(a.body.size() - 9);  // cut short on its way: asked again
    return a;
  });
  std::string prompts;
  for (int i = 0; i < 5; ++i) prompts += "{\"prompt\":\"p" + std::to_string(i) + "\"}\n";
  write("prompts.jsonl", prompts);
  const auto teacher = [&](const std::string& more) {
    return "source: synth, packing: false, synth: {rows: 4, teacher: {endpoint: '" + server.url("/v1/") +
           "', model: t, requests_per_minute: 60000, system: be kind, max_tokens: 100, input_usd_per_1m: 1000, "
           "output_usd_per_1m: 1000, prompts: '" +
           path("prompts.jsonl") + "'" + more + "}}";
  };
  EXPECT_HAS(error_of([&] { run(teacher("")); }, Exit::kMissing), "OPENAI_API_KEY");
  access_.variable = [](const std::string& name) { return std::string(name == "OPENAI_API_KEY" ? "key" : ""); };
  // The third request would be the fourth: one was refused.
  EXPECT_HAS(error_of([&] { run(teacher(", max_requests: 3")); }, Exit::kMissing), "2 of 4 prompts answered");
  EXPECT_EQ(calls, 3);
  EXPECT_HAS(error_of([&] { run(teacher(", max_cost_usd: 0.3")); }, Exit::kMissing), "$0.2200 are spent");
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(run(teacher("")).train.documents, 4);
  EXPECT_EQ(calls, 6);
  EXPECT_TRUE(run(teacher("")).kept);
  EXPECT_EQ(calls, 6);
  const std::string all = read_file(path("out/teacher.jsonl"));
  write("out/teacher.jsonl", all.substr(0, all.size() - 10));  // a crash tore the last line
  run(teacher(""));
  EXPECT_EQ(calls, 7);
  EXPECT_EQ(read_file(path("out/teacher.jsonl")), all);
  status = 400;
  EXPECT_HAS(error_of([&] { run(teacher(""), "new"); }), "answered 400");
  status = 401;
  EXPECT_HAS(error_of([&] { run(teacher(""), "new"); }, Exit::kMissing), "OPENAI_API_KEY");
}

TEST(SynthTasks, AnswersAreRight) {
  for (const char* task : {"arithmetic", "spelling", "sorting", "tool_calls"}) {
    const auto rows = synth_rows(task, Split::kTrain, 300, 1), test = synth_rows(task, Split::kTest, 100, 1);
    for (const SynthRow& r : rows) {
      EXPECT_FALSE(r.answer.empty());
      for (const SynthRow& t : test) ASSERT_NE(r.user, t.user);
    }
  }
  // Recomputed from the question alone.
  for (const SynthRow& r : synth_rows("sorting", Split::kTrain, 300, 2)) {
    std::vector<int> v;
    for (size_t i = 0; i < r.user.size();)
      if (std::isdigit(static_cast<unsigned char>(r.user[i]))) {
        size_t n = 0;
        v.push_back(std::stoi(r.user.substr(i), &n));
        i += n;
      } else {
        ++i;
      }
    std::sort(v.begin(), v.end());
    if (r.user.find("largest first") != std::string::npos) std::reverse(v.begin(), v.end());
    std::string want;
    for (int x : v) want += (want.empty() ? "" : ", ") + std::to_string(x);
    EXPECT_EQ(r.answer, want) << r.user;
  }
  for (const SynthRow& r : synth_rows("spelling", Split::kTrain, 300, 2)) {
    const size_t b = r.user.rfind('"', r.user.rfind('"') - 1) + 1;
    const std::string word = r.user.substr(b, r.user.rfind('"') - b);
    std::string letters;
    for (char c : r.answer)
      if (c != ' ') letters += c;
    if (r.user.starts_with("How many"))
      EXPECT_EQ(std::count(word.begin(), word.end(), r.user[21]), std::stoi(r.answer)) << r.user;
    else if (r.user.find("backwards") != std::string::npos)
      EXPECT_EQ(letters, std::string(word.rbegin(), word.rend())) << r.user;
    else if (r.user.starts_with("Spell"))
      EXPECT_EQ(letters, word) << r.user;
    else
      EXPECT_NE(word.find(r.answer), std::string::npos) << r.user;
  }
}

}  // namespace
}  // namespace mxt::data
