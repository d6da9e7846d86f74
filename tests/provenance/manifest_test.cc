#include <sys/stat.h>

#include "base/error.h"
#include "base/hash.h"
#include "provenance/integrity.h"
#include "provenance/receipt.h"
#include "provenance/support.h"

namespace mxt::provenance {
namespace {

Exit code_of(const std::string& manifest) {
  try {
    require_verified(verify(manifest), manifest);
    return Exit::kOk;
  } catch (const Error& e) {
    return e.code();
  }
}

TEST(Manifest, FreshOneVerifiesWithAllItsSubjects) {
  const RunFolder run;
  const std::string digest = run.write();
  const VerifyReport r = verify(run.manifest());
  for (const auto& f : r.findings) ADD_FAILURE() << f.field << " " << f.what;
  EXPECT_EQ(r.subjects.size(), 7u);
  EXPECT_EQ(r.manifest_digest, digest);
  EXPECT_EQ(r.signer, "");
  EXPECT_EQ(code_of(run.manifest()), Exit::kOk);
}

TEST(Manifest, IsAnInTotoStatement) {
  const RunFolder run;
  run.write();
  const Json m = read_json_file(run.manifest());
  EXPECT_EQ(m["_type"], "https://in-toto.io/Statement/v1");
  EXPECT_TRUE(m["predicateType"].is_string());
  EXPECT_EQ(m.size(), 4u);
  std::vector<std::string> names;
  for (const Json& s : m["subject"]) {
    names.push_back(s["name"]);
    EXPECT_EQ(s["digest"]["blake3"].get<std::string>().size(), 64u);
    EXPECT_EQ(s["digest"]["sha256"].get<std::string>().size(), 64u);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"recipe", "plan", "plan_choices", "dataset", "checkpoint", "eval", "quantized"}));
}

TEST(Manifest, DigestsAreThoseOfTheBytes) {
  const RunFolder run;
  run.write();
  const Json m = read_json_file(run.manifest());
  EXPECT_EQ(subject_digest(m, "plan"), blake3_hex(read_file(run.file("plan.json"))));
  EXPECT_EQ(subject_digest(m, "recipe"), blake3_hex(RunFolder::kRecipe));
  EXPECT_EQ(subject_digest(m, "plan_choices"), blake3_hex(R"({"choices":[1,2],"device":"cpu"})"));
  EXPECT_EQ(subject_digest(m, "eval"),
            blake3_hex(fmt::format(R"([{{"blake3":"{}","bytes":11,"path":"eval/results.json","sha256":"{}"}}])",
                                   blake3_hex("{\"acc\":0.5}"), sha256_hex("{\"acc\":0.5}"))));
  EXPECT_EQ(subject_digest(m, "nothing"), "");
}

TEST(Manifest, SubjectsDoNotDependOnDatesOrHosts) {
  const RunFolder a, b;
  a.write();
  b.write();
  const Json m = read_json_file(a.manifest()), n = read_json_file(b.manifest());
  EXPECT_EQ(m["subject"], n["subject"]);
  for (const Json& s : m["subject"]) EXPECT_EQ(s.dump().find("2026-05"), std::string::npos);
}

TEST(Manifest, MissingArtifactIsAnErrorWhenWritten) {
  const RunFolder run;
  ManifestBuilder b(run.file(""));
  EXPECT_THROW(b.add_file("plan", "nothing.json"), Error);
  EXPECT_THROW(b.add_folder("eval", "nothing"), Error);
  b.add_file("plan", "plan.json");
  EXPECT_THROW(b.add_file("plan", "plan.json"), Error);
}

// ---- tampering: what was touched is named ------------------------------------------------------------------------

TEST(PublishedCopy, VerifiesFromWithinItsFolders) {
  const RunFolder run, copy;
  run.write();
  fs::remove_all(copy.file(""));
  make_folders(copy.file("provenance"));
  for (const auto& e : fs::directory_iterator(run.file("")))
    if (const auto name = e.path().filename(); name == "checkpoint")
      fs::copy(e.path(), copy.file(""));
    else if (name != "dataset")
      fs::copy(e.path(), copy.file("provenance/" + name.string()), fs::copy_options::recursive);
  const fs::path here = fs::current_path();
  for (const auto& [from, name] : {std::pair("", "provenance/manifest.json"),
                                   {"provenance", "manifest.json"},
                                   {"provenance", "./manifest.json"},
                                   {"provenance/eval", "../manifest.json"}}) {
    fs::current_path(copy.file(from));
    const VerifyReport r = verify(name);
    fs::current_path(here);
    for (const Finding& f : r.findings) ADD_FAILURE() << from << " " << name << ": " << f.field << " " << f.what;
  }
}

TEST(Tamper, OneFlippedByteOfAnyArtifactNamesTheFile) {
  const RunFolder run;
  run.write();
  for (const char* name : {"recipe.yaml", "plan.json", "dataset/manifest.json", "dataset/shard-00000.bin",
                           "checkpoint/adapter_model.safetensors", "checkpoint/adapter_config.json",
                           "eval/results.json", "quantized/model.gguf"}) {
    const std::string was = read_file(run.file(name));
    for (size_t at : {size_t{0}, was.size() / 2, was.size() - 1}) {
      std::string bytes = was;
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
      run.put(name, bytes);
      const VerifyReport r = verify(run.manifest());
      ASSERT_EQ(r.findings.size(), 1u) << name;
      EXPECT_EQ(r.findings[0].field, name);
      EXPECT_NE(r.findings[0].what.find("changed"), std::string::npos);
      EXPECT_EQ(code_of(run.manifest()), Exit::kVerifyFailed);
    }
    run.put(name, was);
  }
  EXPECT_TRUE(verify(run.manifest()).ok());
}

TEST(Tamper, MissingExtraAndShortenedFilesAreNamed) {
  const RunFolder run;
  run.write();
  run.put("checkpoint/extra.bin", "x");
  run.put("dataset/shard-00000.bin", "short");
  fs::remove(run.file("eval/results.json"));
  const VerifyReport r = verify(run.manifest());
  std::vector<std::string> all;
  for (const auto& f : r.findings) all.push_back(f.field + " " + f.what);
  EXPECT_EQ(all, (std::vector<std::string>{
                     "checkpoint/extra.bin is not in the manifest (subject checkpoint)",
                     "dataset/shard-00000.bin was changed: it has 5 bytes, the manifest says 3000 (subject dataset)",
                     "eval/results.json is missing (subject eval)"}));
}

TEST(Tamper, VerifyingEndsBetweenFilesWhereItIsStopped) {
  const RunFolder run;
  run.write();
  const std::atomic<bool> stop{true};
  try {
    verify(run.manifest(), {.stop = &stop});
    FAIL() << "read to its end";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kInterrupted);
  }
}

TEST(Tamper, AFileOfAnotherSizeIsNotRead) {
  const RunFolder run;
  run.write();
  fs::resize_file(run.file("checkpoint/adapter_config.json"), uint64_t{1} << 42);
  const VerifyReport r = verify(run.manifest());
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_NE(r.findings[0].what.find("has 4398046511104 bytes, the manifest says 8"), std::string::npos);
}

TEST(Tamper, AnAddedFileOfAnyNameIsNamed) {
  const RunFolder run;
  run.write();
  for (const char* name :
       {".hidden", ".lock", ".results.json.1.0.tmp", ".work/x", "sub/.y", " ", "a\xff", "\x1b[31m"}) {
    const std::string path = std::string("eval/") + name;
    make_folders(fs::path(run.file(path)).parent_path().string());
    run.put(path, "");
    const VerifyReport r = verify(run.manifest());
    ASSERT_EQ(r.findings.size(), 1u) << name;
    EXPECT_EQ(r.findings[0].field, path);
    EXPECT_EQ(r.findings[0].what, "is not in the manifest (subject eval)");
    fs::remove(run.file(path));
  }
  EXPECT_TRUE(verify(run.manifest()).ok());
}

TEST(Tamper, ALinkOrAnotherKindInAFilesPlaceIsNamed) {
  const RunFolder run;
  run.write();
  for (const std::string name : {"plan.json", "eval/results.json"}) {
    const std::string path = run.file(name), elsewhere = run.file("elsewhere");
    fs::rename(path, elsewhere);
    fs::create_symlink(elsewhere, path);  // the same bytes
    EXPECT_EQ(verify(run.manifest()).findings.at(0).field, name);
    EXPECT_NE(verify(run.manifest()).findings.at(0).what.find("symbolic link"), std::string::npos);
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(verify(run.manifest()).findings.at(0).field, name);
    fs::remove(path);
    fs::rename(elsewhere, path);
  }
  for (const char* name : {"recipe.yaml", "plan.json", "manifest.dsse.json", "receipt.json"}) {
    const std::string path = run.file(name), elsewhere = run.file("elsewhere");
    const bool had = fs::exists(path);
    if (had) fs::rename(path, elsewhere);
    fs::create_symlink(name, path);  // in a circle
    EXPECT_NO_THROW(EXPECT_EQ(verify(run.manifest()).ok(), !had && path.ends_with("dsse.json"))) << name;
    fs::remove(path);
    if (had) fs::rename(elsewhere, path);
  }
  fs::rename(run.file("checkpoint"), run.file("moved"));
  fs::create_symlink(run.file("moved"), run.file("checkpoint"));
  EXPECT_EQ(verify(run.manifest()).findings.at(0).what.find("stands behind the symbolic link checkpoint"), 0u);
  fs::remove(run.file("checkpoint"));
  fs::rename(run.file("moved"), run.file("checkpoint"));
  fs::create_symlink("results.json", run.file("eval/more.json"));
  EXPECT_EQ(verify(run.manifest()).findings.at(0).field, "eval/more.json");
  EXPECT_THROW(run.write(), Error);  // and no manifest is made of one
}

TEST(Tamper, TheReceiptMustFollowFromTheManifest) {
  const RunFolder run;
  run.write();
  const OrderedJson good = make_receipt(read_json_file(run.manifest()), config::Receipt());
  run.put("receipt.json", good.dump(2) + "\n");
  EXPECT_TRUE(verify(run.manifest()).ok());
  for (const auto& [key, value] : good.items()) {
    OrderedJson edited = good;
    edited[key] = "edited";
    run.put("receipt.json", edited.dump(2) + "\n");
    const VerifyReport r = verify(run.manifest());
    ASSERT_EQ(r.findings.size(), 1u) << key;
    EXPECT_EQ(r.findings[0].field, "receipt.json");
    EXPECT_EQ(r.findings[0].what.find(key + " was edited"), 0u) << r.findings[0].what;
  }
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(), good.dump(), good.dump(2) + "\n\n"}) {
    run.put("receipt.json", text);
    EXPECT_EQ(verify(run.manifest()).findings.at(0).field, "receipt.json") << text;
  }
  EXPECT_EQ(code_of(run.file("receipt.json")), Exit::kVerifyFailed);  // given in the manifest's place
  run.write();
  EXPECT_FALSE(fs::exists(run.file("receipt.json")));  // a new manifest makes an old receipt stale
  const auto said = verify(run.manifest(), {.of_a_run = true}).subjects;
  EXPECT_NE(std::find(said.begin(), said.end(), "receipt.json: not here, not checked"), said.end());
}

TEST(Receipt, OfAnotherVersionMaySayLessAndNothingElse) {
  for (const bool other : {true, false}) {
    const RunFolder run(other ? Json("0123456789abcdef") : Json());
    run.write();
    OrderedJson receipt = make_receipt(read_json_file(run.manifest()), config::Receipt());
    for (const char* line : {"price", "energy_method"}) ASSERT_EQ(receipt.erase(line), 1u);
    run.put("receipt.json", receipt.dump(2) + "\n");
    EXPECT_EQ(verify(run.manifest()).ok(), other);
    receipt["price"] = "mine";
    run.put("receipt.json", receipt.dump(2) + "\n");
    EXPECT_EQ(verify(run.manifest()).findings.at(0).what.find("price was edited"), other ? 0u : std::string::npos);
    receipt.erase("price");
    receipt["cost_usd"] = 0.5;
    run.put("receipt.json", receipt.dump(2) + "\n");
    EXPECT_FALSE(verify(run.manifest()).ok());
  }
}

TEST(Tamper, RecordsBesideTheSubjectsAreNamed) {
  const RunFolder run;
  run.put("metrics.jsonl", "{}\n");
  ManifestBuilder b(run.file(""));
  b.add_file("plan", "plan.json");
  b.add_record("metrics.jsonl");
  b.set("environment", {{"host", "a"}});
  b.write();
  EXPECT_TRUE(verify(run.manifest()).ok());
  run.put("metrics.jsonl", "{ }\n");
  EXPECT_EQ(verify(run.manifest()).findings.at(0).field, "metrics.jsonl");
  fs::remove(run.file("metrics.jsonl"));
  EXPECT_EQ(verify(run.manifest()).findings.at(0).what, "is missing");
}

void collect(const Json& j, const std::string& at, std::vector<std::string>& out) {
  if (j.is_structured() && !j.empty()) {
    if (j.is_object())
      for (const auto& [k, v] : j.items()) collect(v, at + "/" + k, out);
    else
      for (size_t i = 0; i < j.size(); ++i) collect(j[i], at + "/" + std::to_string(i), out);
  } else if (!at.starts_with("/predicate/integrity")) {
    out.push_back(at);
  }
}

TEST(Tamper, EditOfAnyFieldOfTheManifestNamesTheField) {
  const RunFolder run;
  run.write();
  const OrderedJson was = parse_ordered_json(read_file(run.manifest()), "m");
  std::vector<std::string> fields;
  collect(Json(was), "", fields);
  EXPECT_GT(fields.size(), 60u);
  for (const auto& at : fields) {
    OrderedJson m = was;
    OrderedJson& v = m[OrderedJson::json_pointer(at)];
    if (v.is_string())
      v = v.get<std::string>() + "x";
    else if (v.is_number())
      v = v.get<double>() + 1;
    else
      v = "edited";
    run.put("manifest.json", manifest_text(m));
    try {
      const VerifyReport r = verify(run.manifest());
      ASSERT_FALSE(r.ok()) << at;
      EXPECT_EQ(r.findings[0].field, at);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kVerifyFailed);
      EXPECT_NE(std::string(e.what()).find(at), std::string::npos) << e.what();
    }
  }
}

TEST(Tamper, RemovedAndAddedFieldsAreNamed) {
  const RunFolder run;
  run.write();
  const OrderedJson was = parse_ordered_json(read_file(run.manifest()), "m");
  OrderedJson m = was;
  m["predicate"]["energy"].erase("kwh");
  run.put("manifest.json", manifest_text(m));
  EXPECT_EQ(verify(run.manifest()).findings[0].field, "/predicate/energy/kwh");
  m = was;
  m["predicate"]["energy"]["more"] = 1;
  run.put("manifest.json", manifest_text(m));
  EXPECT_EQ(verify(run.manifest()).findings[0].field, "/predicate/energy/more");
  EXPECT_EQ(verify(run.manifest()).findings[0].what, "was added to the manifest");
}

TEST(Tamper, EditOfTheIntegrityPartIsNamed) {
  const RunFolder run;
  run.write();
  const OrderedJson was = parse_ordered_json(read_file(run.manifest()), "m");
  OrderedJson m = was;
  m["predicate"]["integrity"]["blake3"] = std::string(64, '0');
  run.put("manifest.json", manifest_text(m));
  EXPECT_EQ(verify(run.manifest()).findings[0].field, "/predicate/integrity");
  m = was;
  m["predicate"]["integrity"]["fields"]["/predicate/energy/kwh"] = "0000000000000000";
  run.put("manifest.json", manifest_text(m));
  ASSERT_EQ(verify(run.manifest()).findings.size(), 1u);
  EXPECT_EQ(verify(run.manifest()).findings[0].field, "/predicate/integrity/fields /predicate/energy/kwh");
  m = was;
  m["predicate"].erase("integrity");
  run.put("manifest.json", manifest_text(m));
  EXPECT_EQ(verify(run.manifest()).findings[0].field, "/predicate/integrity");
}

TEST(Tamper, AConsistentLieAboutAFileIsStillFound) {
  // The edit brings its own integrity part along; the file's bytes speak against it.
  const RunFolder run;
  run.write();
  OrderedJson m = parse_ordered_json(read_file(run.manifest()), "m");
  m["subject"][1]["digest"]["blake3"] = std::string(64, 'a');
  m["predicate"]["integrity"]["fields"] = leaf_digests(Json(m));
  m["predicate"]["integrity"]["blake3"] = whole_digest(Json(m));
  run.put("manifest.json", manifest_text(m));
  const VerifyReport r = verify(run.manifest());
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].field, "plan.json");
}

TEST(Tamper, EveryFlippedBitOfTheManifestIsFound) {
  const RunFolder run;
  run.write();
  const std::string was = read_file(run.manifest());
  for (size_t at = 0; at < was.size(); at += 61) {
    std::string bytes = was;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 7)));
    run.put("manifest.json", bytes);
    EXPECT_EQ(code_of(run.manifest()), Exit::kVerifyFailed)
        << "byte " << at << " " << was.substr(at > 20 ? at - 20 : 0, 40);
  }
}

TEST(Tamper, AnotherSpellingOfTheSameValuesIsSaid) {
  const RunFolder run;
  run.write();
  run.put("manifest.json", Json::parse(read_file(run.manifest())).dump());
  const VerifyReport r = verify(run.manifest());
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].field, "manifest.json");
}

TEST(Hostile, PathsThatLeaveTheRunAreRefused) {
  for (const char* path : {"/etc/passwd", "../outside", "checkpoint/../../x", ""}) {
    const RunFolder run;
    run.write();
    OrderedJson m = parse_ordered_json(read_file(run.manifest()), "m");
    m["predicate"]["subjects"]["plan"]["path"] = path;
    m["predicate"]["subjects"]["dataset"]["files"][0]["path"] = path;
    m["predicate"]["integrity"]["fields"] = leaf_digests(Json(m));
    m["predicate"]["integrity"]["blake3"] = whole_digest(Json(m));
    run.put("manifest.json", manifest_text(m));
    const VerifyReport r = verify(run.manifest());
    ASSERT_GE(r.findings.size(), 2u);
    EXPECT_EQ(r.findings[0].field, "/predicate/subjects/dataset/files");
    EXPECT_EQ(r.findings[1].field, "/predicate/subjects/plan/path");
  }
}

TEST(Hostile, FilesThatAreNoManifest) {
  const RunFolder run;
  for (const char* text :
       {"", "[]", "{}", "null", "{\"_type\":1}", "{\"_type\":\"https://in-toto.io/Statement/v1\"}",
        "{\"_type\":\"https://in-toto.io/Statement/v1\",\"predicateType\":\"urn:mindxtrain:run:v1\","
        "\"predicate\":{\"integrity\":{\"blake3\":\"\",\"fields\":{}},\"subjects\":{\"a\":7}}}",
        "{\"_type\":\"https://in-toto.io/Statement/v1\",\"predicateType\":\"urn:mindxtrain:run:v1\","
        "\"predicate\":{\"integrity\":[],\"subjects\":[]},\"subject\":[7,{\"name\":3,\"digest\":[]}]}"}) {
    run.put("manifest.json", text);
    EXPECT_EQ(code_of(run.manifest()), Exit::kVerifyFailed) << text;
  }
  fs::remove(run.manifest());
  EXPECT_EQ(code_of(run.manifest()), Exit::kBadInput);
}

TEST(RecipeOfRun, SameRunInOtherWordsIsTheSame) {
  const RunFolder run;
  run.write();
  const auto same = config::parse_recipe(std::string("# words\n") + RunFolder::kRecipe + "train: {}\n", "r");
  EXPECT_TRUE(verify(run.manifest(), {.recipe = &same}).ok());
  const auto other = config::parse_recipe(std::string(RunFolder::kRecipe) + "train: {optimizer: {lr: 0.5}}\n", "r");
  const VerifyReport r = verify(run.manifest(), {.recipe = &other});
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].field, "recipe");
  EXPECT_EQ(r.findings[0].what, "train.optimizer.lr: the run had 0.0001, this recipe has 0.5");
}

TEST(ReceiptText, HoldsTheFieldsThatAreAskedFor) {
  const RunFolder run;
  run.write();
  const Json m = read_json_file(run.manifest());
  config::Receipt settings;
  const OrderedJson all = make_receipt(m, settings);
  EXPECT_EQ(all["energy_kwh"], 0.125);
  EXPECT_EQ(all["gfx_arch"], "none");
  EXPECT_EQ(all["eval_report"]["tool_calls"]["exact"], 0.96);
  EXPECT_EQ(all["yaml_hash"], "blake3:" + subject_digest(m, "recipe"));
  EXPECT_TRUE(all["container_digest"].is_null());
  const std::string text = receipt_text(all);
  EXPECT_NE(text.find("energy_kwh          0.125\n"), std::string::npos) << text;
  EXPECT_NE(text.find("not known here"), std::string::npos) << text;
  EXPECT_NE(text.find("container_digest"), text.npos) << text;
  EXPECT_EQ(text.find("container_digest    "), text.npos) << text;
  settings.include = {config::ReceiptField::kYamlHash};
  EXPECT_FALSE(make_receipt(m, settings).contains("energy_kwh"));
  settings.output = run.file("deep/receipt.json");
  write_receipt(all, settings);
  EXPECT_EQ(read_json_file(settings.output)["run"], "r");
}

}  // namespace
}  // namespace mxt::provenance
