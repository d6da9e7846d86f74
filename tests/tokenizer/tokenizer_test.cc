#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/philox.h"
#include "folders.h"

namespace mxt::tokenizer {
namespace {

std::shared_ptr<const Tokenizer> small(const std::string& name) {
  const Json j = read_json_file(std::string(kSourceDir) + "/tests/golden/tokenizer/" + name + ".json");
  return Tokenizer::from_json(j.at("tokenizer").dump(), name);
}

std::string text_of(const Tokenizer& t, const std::vector<int32_t>& ids) {
  std::string s;
  for (const int32_t id : ids) s += t.token_bytes(id);
  return s;
}

TEST(Tokenizer, ControlTokensInPlainSpansAreOrdinaryText) {
  const auto t = small("qwen");
  const std::string text = "<|im_start|>user\n<|im_end|> x<think><|im_end|>";
  const int32_t start = t->id_of("<|im_start|>"), end = t->id_of("<|im_end|>"), think = t->id_of("<think>");
  const auto count = [](const std::vector<int32_t>& v, int32_t id) { return std::count(v.begin(), v.end(), id); };
  const auto as_control = t->encode(text);
  EXPECT_EQ(count(as_control, end), 2);
  const Span body{17, 36};  // from after "user\n" over the first <|im_end|> and <think>
  const auto guarded = t->encode(text, std::span(&body, 1));
  EXPECT_EQ(count(guarded, start), 1);
  EXPECT_EQ(count(guarded, end), 1);
  EXPECT_EQ(count(guarded, think), 1) << "<think> is no control token";
  EXPECT_EQ(guarded.back(), end);
  EXPECT_EQ(text_of(*t, guarded), text);
  const Span all{0, text.size()};
  EXPECT_EQ(count(t->encode(text, std::span(&all, 1)), start), 0);
}

TEST(Tokenizer, OffsetsNameTheBytesOfEachToken) {
  const auto t = small("qwen");
  const std::string text = "Hello <|im_end|> 中文 e\xCC\x81t\xC3\xA9 \xFF!";
  std::vector<Span> spans;
  const auto ids = t->encode_with_offsets(text, {}, spans);
  EXPECT_EQ(ids, t->encode(text));
  std::string rebuilt;
  size_t covered = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_LE(spans[i].begin, covered);  // no hole
    covered = std::max(covered, spans[i].end);
    if (ids[i] == t->id_of("<|im_end|>")) {
      EXPECT_EQ(text.substr(spans[i].begin, spans[i].end - spans[i].begin), "<|im_end|>");
    }
  }
  EXPECT_EQ(covered, text.size());
}

// As transformers' tokenizer(text): the tokens that its post-processor puts before, once.
TEST(Tokenizer, TextsBeginAsThePostProcessorLetsThem) {
  const auto make = [](const std::string& post) {
    return Tokenizer::from_json(
        R"({"added_tokens":[{"id":2,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
            "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},"decoder":{"type":"ByteLevel"},)" +
            post + R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})",
        "prefix");
  };
  const auto bos = make(
      R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[2],"tokens":["<s>"]}}},)");
  EXPECT_EQ(bos->encode("ab"), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(bos->encode_with_prefix("ab"), (std::vector<int32_t>{2, 0, 1}));
  EXPECT_EQ(bos->encode_with_prefix("<s>ab"), (std::vector<int32_t>{2, 0, 1}));
  EXPECT_EQ(bos->encode_with_prefix(""), (std::vector<int32_t>{2}));
  EXPECT_EQ(make("")->encode_with_prefix("ab"), (std::vector<int32_t>{0, 1}));
}

TEST(Tokenizer, InvalidUtf8CountsAsReplacementCharacters) {
  const auto t = small("qwen");
  EXPECT_EQ(t->encode("a\xFF\xE4\xB8z\xF0\x9F\x98"), t->encode("a\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD"));
  EXPECT_EQ(t->encode("\xED\xA0\x80"), t->encode("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
}

TEST(Tokenizer, ParallelAndCachedEncodesGiveTheSameIds) {
  const auto t = small("qwen");
  Philox rng(3, 0);
  std::string text;
  const char* const kWords[] = {"alpha",      " beta", " gamma's",   "\n\n", " 12",
                                " e\xCC\x81", "中文",  "<|im_end|>", "   ",  "!"};
  while (text.size() < (5u << 20)) text += kWords[rng.below(10)];
  const auto once = t->encode(text);
  EXPECT_EQ(t->encode(text), once);
  EXPECT_EQ(t->encode_parallel(text, 4), once);
  EXPECT_EQ(t->encode_parallel(text, 1), once);
  std::vector<Span> spans;
  EXPECT_EQ(t->encode_with_offsets(text, {}, spans), once);
  std::vector<std::vector<int32_t>> out(4);
  std::vector<std::thread> pool;
  for (auto& o : out) pool.emplace_back([&o, &t, &text] { o = t->encode(text); });
  for (auto& p : pool) p.join();
  for (const auto& o : out) EXPECT_EQ(o, once);
}

TEST(Tokenizer, TokenBytesJoinToTheText) {
  for (const char* name : {"qwen", "gpt2", "smollm", "llama3", "nanochat"}) {
    const auto t = small(name);
    const std::string text = "Straße 中文 🙂 \t\x01 x\n";
    EXPECT_EQ(text_of(*t, t->encode(text)), text) << name;
  }
  EXPECT_EQ(small("qwen")->token_bytes(-1), "");
  EXPECT_EQ(small("qwen")->token_bytes(1 << 30), "");
}

TEST(Tokenizer, DecodeSkipsSpecialTokensAndUnknownIds) {
  const auto t = small("qwen");
  auto ids = t->encode("a<|im_end|>b<think>");
  ids.push_back(1 << 20);
  ids.push_back(-5);
  EXPECT_EQ(t->decode(ids), "a<|im_end|>b<think>");
  EXPECT_EQ(t->decode(ids, true), "ab<think>");
}

TEST(Tokenizer, LongRunsTakeTimeInProportion) {
  for (const char* name : {"qwen", "o200k", "llama2", "bert"}) {
    const auto t = small(name);
    for (const char* unit : {"a", " ", "\n", "=", "ab", "\xCC\x81\xCC\xA3", "中", "<", "'"}) {
      std::string s;
      while (s.size() < (1u << 19)) s += unit;
      const auto start = std::chrono::steady_clock::now();
      const auto ids = t->encode(s);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << name << " " << unit;
      EXPECT_LE(ids.size(), s.size() + 1);
    }
  }
}

TEST(Characters, AreTheSortedDistinctCodePoints) {
  const auto t = Tokenizer::characters("hello wörld\n");
  EXPECT_EQ(t->vocab_size(), 10);
  EXPECT_EQ(t->encode("he\n"), (std::vector<int32_t>{4, 3, 0}));
  EXPECT_EQ(t->decode(t->encode("wörld hello")), "wörld hello");
  EXPECT_THROW(t->encode("x"), Error);
  std::vector<Span> spans;
  t->encode_with_offsets("wör", {}, spans);
  EXPECT_EQ(spans, (std::vector<Span>{{0, 1}, {1, 3}, {3, 4}}));
  const std::string dir = testing::TempDir() + "/characters";
  t->save(dir);
  const auto again = Tokenizer::from_folder(dir);
  EXPECT_EQ(again->encode("wörld\n"), t->encode("wörld\n"));
  EXPECT_THROW(again->encode("x"), Error);
}

// A GGUF's tables of the small tokenizer: what llama.cpp's converter writes.
GgufTokenizerData gguf_of(const std::string& name, const std::string& pre) {
  const Json j = read_json_file(std::string(kSourceDir) + "/tests/golden/tokenizer/" + name + ".json").at("tokenizer");
  GgufTokenizerData g;
  g.model = "gpt2";
  g.pre = pre;
  size_t size = 0;
  for (const auto& [t, id] : j.at("model").at("vocab").items()) size = std::max(size, id.get<size_t>() + 1);
  for (const auto& a : j.at("added_tokens")) size = std::max(size, a.at("id").get<size_t>() + 1);
  g.tokens.resize(size + 2, "[PAD]");
  g.token_type.resize(size + 2, 5);
  for (const auto& [t, id] : j.at("model").at("vocab").items()) {
    g.tokens[id.get<size_t>()] = t;
    g.token_type[id.get<size_t>()] = 1;
  }
  for (const auto& a : j.at("added_tokens")) {
    const auto id = a.at("id").get<size_t>();
    g.tokens[id] = a.at("content");
    g.token_type[id] = a.at("special").get<bool>() ? 3 : 4;
  }
  for (const auto& m : j.at("model").at("merges"))
    g.merges.push_back(m[0].get<std::string>() + " " + m[1].get<std::string>());
  g.eos_id = 0;
  g.chat_template = "{{ messages }}";
  g.tool_template = "{{ tools }}";
  return g;
}

TEST(Gguf, GivesTheIdsOfTheFolderItWasMadeFrom) {
  const std::pair<const char*, const char*> kKinds[] = {
      {"qwen", "qwen2"}, {"smollm", "smollm"}, {"llama3", "llama-bpe"}, {"gpt2", "gpt-2"}, {"o200k", "gpt-4o"}};
  for (const auto& [name, pre] : kKinds) {
    const auto folder = small(name);
    const auto t = Tokenizer::from_gguf(gguf_of(name, pre));
    EXPECT_EQ(t->eos(), 0);
    EXPECT_EQ(t->chat_template(), "{{ messages }}");
    const std::string dir = testing::TempDir() + "/gguf_" + name;
    t->save(dir);
    const auto saved = Tokenizer::from_folder(dir);
    EXPECT_EQ(saved->chat_template(), "{{ messages }}");
    EXPECT_EQ(saved->tool_template(), "{{ tools }}");
    EXPECT_EQ(saved->eos(), 0);
    for (const char* text : {"Hello, world!  12345 \n\n x", "<|im_start|>user\nDON'T<|im_end|>",
                             "中文 e\xCC\x81 <think>", "def f():\n\treturn", "camelCase HTTPServer"}) {
      EXPECT_EQ(t->encode(text), folder->encode(text)) << name << " " << text;
      EXPECT_EQ(saved->encode(text), folder->encode(text)) << name << " " << text;
    }
  }
}

// Qwen3.5's letters hold marks, which its older pattern cuts off: what may be merged differs.
TEST(Gguf, Qwen35KeepsMarksWithTheirLetters) {
  GgufTokenizerData g;
  g.model = "gpt2";
  // म, the vowel sign ा and the two in one token, as bytes are spelled.
  const std::string letter = "\xC3\xA0\xC2\xA4\xC2\xAE", sign = "\xC3\xA0\xC2\xA4\xC2\xBE";
  const std::string first = "\xC3\xA0\xC2\xA4", ma = "\xC2\xAE", aa = "\xC2\xBE", a = "\xC3\xA0", b = "\xC2\xA4";
  g.tokens = {a, b, ma, aa, first, letter, sign, letter + sign};
  g.token_type.assign(g.tokens.size(), 1);
  g.merges = {a + " " + b, first + " " + ma, first + " " + aa, letter + " " + sign};
  const std::string text = "\xE0\xA4\xAE\xE0\xA4\xBE";
  g.pre = "qwen35";
  EXPECT_EQ(Tokenizer::from_gguf(g)->encode(text), (std::vector<int32_t>{7}));
  g.pre = "qwen2";
  EXPECT_EQ(Tokenizer::from_gguf(g)->encode(text), (std::vector<int32_t>{5, 6}));
}

TEST(Gguf, ReadsWordPiece) {
  GgufTokenizerData g;
  g.model = "bert";
  g.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\xE2\x96\x81hello", "\xE2\x96\x81wor", "ld", "\xE2\x96\x81!"};
  g.token_type = {3, 3, 3, 3, 1, 1, 1, 1};
  const auto t = Tokenizer::from_gguf(g);
  EXPECT_EQ(t->encode("Hello WORLD! xyz"), (std::vector<int32_t>{4, 5, 6, 7, 1}));
}

TEST(Gguf, RefusesWhatItCannotEncodeEqually) {
  auto g = gguf_of("qwen", "some-new-model");
  EXPECT_THROW(Tokenizer::from_gguf(g), Error);
  g.pre = "qwen2";
  g.model = "llama";
  EXPECT_THROW(Tokenizer::from_gguf(g), Error);
  g.model = "gpt2";
  g.token_type.pop_back();
  EXPECT_THROW(Tokenizer::from_gguf(g), Error);
  g.token_type.push_back(5);
  g.eos_id = 1 << 20;
  EXPECT_THROW(Tokenizer::from_gguf(g), Error);
  g.eos_id = 0;
  g.merges.push_back("no-such-token t");
  EXPECT_THROW(Tokenizer::from_gguf(g), Error);
}

// Which neighbours make a word is for Rust's \w to say: joiners do, fractions and small numbers do not. As tokenizers
// 0.23.
TEST(AddedTokens, SingleWordsStandApartFromWordCharacters) {
  const auto t = Tokenizer::from_json(
      R"({"added_tokens":[{"id":9,"content":"<x>","single_word":true,"lstrip":false,"rstrip":false,"normalized":false,"special":false}],
          "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},"decoder":{"type":"ByteLevel"},
          "model":{"type":"BPE","vocab":{"<":0,"x":1,">":2,"Â":3,"½":4,"â":5,"Ģ":6,"į":7,"a":8},"merges":[]}})",
      "single words");
  EXPECT_EQ(t->encode("<x>"), std::vector<int32_t>{9});
  EXPECT_EQ(t->encode("½<x>½"), (std::vector<int32_t>{3, 4, 9, 3, 4}));
  EXPECT_EQ(t->encode("a<x>"), (std::vector<int32_t>{8, 0, 1, 2}));
  EXPECT_EQ(t->encode("\u200d<x>"), (std::vector<int32_t>{5, 6, 7, 0, 1, 2}));
}

// "##" takes white space on its right (rstrip); " b" counts there all the same, and a token that takes space on its
// left counts where something is left of it. As tokenizers 0.23.
TEST(AddedTokens, OnesThatBeginInSpaceAlreadyTaken) {
  const auto t = Tokenizer::from_json(
      R"({"added_tokens":[{"id":4,"content":"##","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,"special":false},
                          {"id":5,"content":" b","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false},
                          {"id":6,"content":"\t","single_word":false,"lstrip":true,"rstrip":false,"normalized":false,"special":false}],
          "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},"decoder":{"type":"ByteLevel"},
          "model":{"type":"BPE","vocab":{"#":0,"b":1,"Ġ":2,"a":3},"merges":[]}})",
      "space taken");
  EXPECT_EQ(t->encode("## b"), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(t->encode("##  ba"), (std::vector<int32_t>{4, 5, 3}));
  EXPECT_EQ(t->encode("##\ta"), (std::vector<int32_t>{4, 3}));
  EXPECT_EQ(t->encode("a \ta"), (std::vector<int32_t>{3, 6, 3}));
}

TEST(Folder, OfQwen2sOldFilesIsReadAsQwen2Reads) {
  const std::string dir = testing::TempDir() + "/old_qwen2";
  fs::remove_all(dir);
  make_folders(dir);
  write_file_atomic(dir + "/vocab.json", R"({"1":0,"2":1,"12":2,"Ã":3,"©":4,"Ã©":5,"e":6,"Ì":7,"ģ":8})");
  write_file_atomic(dir + "/merges.txt", "1 2\nÃ ©\n");
  write_file_atomic(dir + "/added_tokens.json", R"({"<extra>":9})");
  for (const auto& [kind, ids] : {std::pair{"Qwen2Tokenizer", std::vector<int32_t>{0, 1, 9, 5}},
                                  {"GPT2Tokenizer", std::vector<int32_t>{2, 9, 6, 7, 8}}}) {
    write_file_atomic(dir + "/tokenizer_config.json", Json{{"tokenizer_class", kind}}.dump());
    EXPECT_EQ(Tokenizer::from_folder(dir)->encode("12<extra>e\xCC\x81"), ids) << kind;
  }
}

// Ids and texts by transformers 5.24.
TEST(Folder, SpecialTokensThatNobodyAddedAreAdded) {
  const std::string dir = testing::TempDir() + "/named_tokens";
  const auto open = [&](const Json& config, const Json& map = Json(), const Json& added = Json()) {
    fs::remove_all(dir);
    make_folders(dir);
    write_file_atomic(dir + "/tokenizer.json",
                      R"({"added_tokens":[{"id":5,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,)"
                      R"("normalized":false,"special":true}],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":)"
                      R"(false,"use_regex":false},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":)"
                      R"({"a":0,"<":1,"b":2,">":3,"<b>":4,"<s>":5},"merges":[]}})");
    write_file_atomic(dir + "/tokenizer_config.json", config.dump());
    if (!map.is_null()) write_file_atomic(dir + "/special_tokens_map.json", map.dump());
    if (!added.is_null()) write_file_atomic(dir + "/added_tokens.json", added.dump());
    return Tokenizer::from_folder(dir);
  };
  using Ids = std::vector<int32_t>;
  const auto known = open({{"eos_token", "<b>"}});  // the vocabulary has it
  EXPECT_EQ(known->eos(), 4);
  EXPECT_EQ(known->encode("a<b><s>"), (Ids{0, 4, 5}));
  EXPECT_TRUE(known->is_special(4));
  EXPECT_EQ(open(Json::object())->encode("a<b>"), (Ids{0, 1, 2, 3}));

  const auto named = open({{"pad_token", "<>"},
                           {"eos_token", "<a>"},
                           {"image_token", "<aa>"},
                           {"add_bos_token", true},
                           {"additional_special_tokens", {"<s>", {{"content", "<bb>"}, {"lstrip", true}}}}});
  EXPECT_EQ(named->eos(), 6);
  EXPECT_EQ(named->encode("<a><><aa><bb>"), (Ids{6, 7, 8, 9}));
  EXPECT_EQ(named->vocab_size(), 10);

  // A model with fewer rows: what no text can hold is left out, and texts must end.
  const auto with_rows = [&](int rows, const Json& config) {
    open(config);
    write_file_atomic(dir + "/config.json", Json{{"vocab_size", rows}}.dump());
    return Tokenizer::from_folder(dir);
  };
  EXPECT_EQ(with_rows(8, {{"pad_token", "<a>"}})->vocab_size(), 7);
  EXPECT_EQ(with_rows(6, {{"pad_token", "<a>"}})->vocab_size(), 6);
  EXPECT_EQ(with_rows(6, {{"pad_token", "<a>"}, {"eos_token", "<b>"}})->eos(), 4);
  try {
    with_rows(6, {{"eos_token", "<a>"}});
    FAIL() << "texts without end";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the eos_token \"<a>\" is not in its vocabulary"), std::string::npos)
        << e.what();
  }

  for (const Json& no_text : {Json(4), Json{"<b>"}, Json{{"content", 4}}}) {
    try {
      open({{"eos_token", no_text}});
      FAIL() << no_text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("the tokenizer's \"eos_token\" is of type "), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(open({{"eos_token", nullptr}})->eos(), -1);

  // The older file stands in for a configuration without added_tokens_decoder.
  const Json map{{"eos_token", {{"content", "<a>"}, {"normalized", false}}}, {"bos_token", "<s>"}};
  EXPECT_EQ(open({{"eos_token", "<b>"}}, map)->eos(), 6);
  EXPECT_EQ(open({{"eos_token", "<b>"}}, map)->bos(), 5);
  EXPECT_EQ(open({{"eos_token", "<b>"}, {"added_tokens_decoder", Json::object()}}, map)->eos(), 4);

  const auto old = open({{"eos_token", "<a>"}}, Json(), {{"<a>", 6}, {"<aa>", 7}});
  EXPECT_EQ(old->encode("<a><aa>"), (Ids{6, 7}));
  EXPECT_TRUE(old->is_special(6));
  EXPECT_FALSE(old->is_special(7));
  try {
    open(Json::object(), Json(), {{"<a>", 9}});
    FAIL() << "an id that no one else would give";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("has id 9, but Hugging Face gives it 6"), std::string::npos) << e.what();
  }
}

TEST(Folder, ReadsConfigTemplatesAndOldFiles) {
  const std::string dir = testing::TempDir() + "/folder";
  fs::remove_all(dir);
  make_folders(dir);
  write_file_atomic(dir + "/vocab.json", R"({"a":0,"b":1,"ab":2,"Ġ":3,"<|endoftext|>":4})");
  write_file_atomic(dir + "/merges.txt", "#version: 0.2\na b\n");
  write_file_atomic(
      dir + "/tokenizer_config.json",
      R"({"eos_token":{"content":"<|endoftext|>"},"chat_template":[{"name":"tool_use","template":"x"},{"name":"default","template":"y"}],
                        "added_tokens_decoder":{"5":{"content":"<new>","special":true}}})");
  const auto t = Tokenizer::from_folder(dir);
  EXPECT_EQ(t->encode("ab a<|endoftext|><new>"), (std::vector<int32_t>{2, 3, 0, 4, 5}));
  EXPECT_EQ(t->eos(), 4);
  EXPECT_EQ(t->bos(), -1);
  EXPECT_EQ(t->chat_template(), "y");
  EXPECT_EQ(t->tool_template(), "x");
  EXPECT_EQ(t->vocab_size(), 6);
  EXPECT_TRUE(t->is_special(5));
  write_file_atomic(dir + "/chat_template.jinja", "z");
  EXPECT_EQ(Tokenizer::from_folder(dir)->chat_template(), "z");
  EXPECT_EQ(Tokenizer::from_folder(dir)->tool_template(), "");
  EXPECT_THROW(Tokenizer::from_folder(dir + "/none"), Error);
}

}  // namespace
}  // namespace mxt::tokenizer
