#include "replay.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/threads.h"
#include "kernels/plan.h"
#include "pipeline.h"

namespace mxt::app {
namespace {

// Digest of every file of a subject that is a folder, or of the subject itself.
std::map<std::string, std::string> parts(const Json& manifest, const std::string& subject) {
  std::map<std::string, std::string> out;
  const auto at = Json::json_pointer("/predicate/subjects/" + subject + "/files");
  if (manifest.contains(at))
    for (const Json& f : manifest[at]) out[f["path"].get<std::string>()] = f["blake3"].get<std::string>();
  else if (const std::string d = provenance::subject_digest(manifest, subject); !d.empty())
    out[subject] = d;
  return out;
}

void compare(const Json& was, const Json& is, const std::string& subject, std::vector<provenance::Finding>& out) {
  const auto a = parts(was, subject), b = parts(is, subject);
  for (const auto& [path, digest] : a) {
    const auto it = b.find(path);
    if (it == b.end())
      out.push_back({path, "was not made by the replay (subject " + subject + ")"});
    else if (it->second != digest)
      out.push_back({path, fmt::format("came out differently: BLAKE3 {}…, the manifest says {}… (subject {})",
                                       it->second.substr(0, 16), digest.substr(0, 16), subject)});
  }
  for (const auto& [path, digest] : b)
    if (!a.contains(path)) out.push_back({path, "was made by the replay alone (subject " + subject + ")"});
}

}  // namespace

std::vector<provenance::Finding> replay(const std::string& manifest_path, const std::string& work, int threads) {
  const Json was = read_json_file(manifest_path);
  const fs::path parent = fs::path(manifest_path).parent_path();
  const std::string run = parent.empty() ? "." : parent.string();
  if (provenance::subject_digest(was, "checkpoint").empty())
    fail_input("{}: names no checkpoint: there is nothing to replay", manifest_path);
  const auto trainer = Json::json_pointer("/predicate/identities/trainer/name");
  if (was.contains(trainer))
    fail_input("{}: trained by {}, another program, which cannot be replayed bit for bit: nothing was run",
               manifest_path, was[trainer].get<std::string>());
  if (fs::exists(work) && !fs::is_empty(work))
    fail_input("{}: the replay needs an empty folder: choose another --work", work);
  Pipeline::Options o;
  o.verb = "replay";
  o.recipe_path = run + "/recipe.yaml";
  o.plan_path = run + "/plan.json";
  o.out = work;
  // Without a word on threads as many as the plan was made for: more are another plan.
  const int planned = kernels::plan_from_json(read_file(o.plan_path), o.plan_path).device.threads;
  o.threads = threads > 0 ? threads : std::min(planned, num_threads());
  o.write_receipt = false;
  o.sign = false;  // another machine may replay, without the key
  o.report = false;
  Pipeline p(o);
  const bool before = p.before();
  if (before) {
    p.learn_tokenizer();
    p.plan();
    p.prepare();
  }
  if (!before || !p.train()) fail_input("the replay was interrupted");
  p.manifest();
  const Json is = read_json_file(work + "/manifest.json");
  std::vector<provenance::Finding> out;
  // Another base explains all that follows, so it is named first.
  const auto base_of = [](const std::string& folder) {
    const std::string record = folder + "/train.json";
    return fs::exists(record) ? read_json_file(record).value("base", std::string()) : std::string();
  };
  if (const std::string before = base_of(run); !before.empty() && before != base_of(work))
    out.push_back({"base model", "model.name (or init_adapter) is not what the run was made from"});
  for (const char* subject : {"plan_choices", "dataset", "checkpoint"})
    if (!provenance::subject_digest(was, subject).empty()) compare(was, is, subject, out);
  return out;
}

}  // namespace mxt::app
