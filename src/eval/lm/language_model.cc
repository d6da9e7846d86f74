#include "eval/lm/language_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "eval/python/literal.h"
#include "formats/weight_source.h"
#include "infer/calculator.h"
#include "infer/continuations.h"
#include "infer/end_of_turn.h"
#include "infer/engine.h"
#include "infer/scorer.h"

namespace mxt::eval {

struct LanguageModel::Loaded {
  std::unique_ptr<infer::Model> model;
};

LanguageModel::LanguageModel(ModelChoice choice, const std::atomic<bool>* stop)
    : choice_(std::move(choice)), stop_(stop) {
  const auto source = formats::WeightSource::open(choice_.path);
  const tokenizer::Tokenizer& tok = *choice_.tokenizer;
  max_length_ = source->config().max_positions;
  const formats::RopeScaling& rope = source->config().rope_scaling;
  if (rope.kind == formats::RopeScaling::Kind::kLongRope) brief_ = rope.original_max_positions;
  stops_ = infer::end_of_turn(tok, choice_.chat.get(), source->config());
  // What the tokenizer puts before its texts, whatever its configuration names.
  const std::vector<int32_t>& before = tok.template_prefix();
  prefix_token_ = !before.empty() ? before[0] : tok.bos() >= 0 ? tok.bos() : tok.eos();
  if (prefix_token_ < 0)
    fail_input("{}: the tokenizer has neither a BOS nor an EOS token to begin a text with", choice_.path);
}

LanguageModel::~LanguageModel() = default;

std::string LanguageModel::identity() const {
  if (identity_.empty()) {
    Blake3 h;
    h.update(formats::WeightSource::open(choice_.path)->digest_text());
    // A folder's config, tokenizer and template beside its weights; a GGUF file holds its own.
    if (fs::is_directory(choice_.path))
      for (const std::string& f : list_files(choice_.path))
        if (!f.ends_with(".safetensors") && f.find('/') == std::string::npos &&
            (f.ends_with(".json") || f.ends_with(".jinja") || f.ends_with(".txt")))
          h.update(f + " " + hash_file(choice_.path + "/" + f).blake3 + "\n");
    if (!choice_.adapter.empty())
      for (const std::string& f : list_files(choice_.adapter))
        if (f.ends_with(".safetensors") || f.ends_with(".json"))
          h.update(f + " " + hash_file(choice_.adapter + "/" + f).blake3 + "\n");
    identity_ = h.hex() + (choice_.type == DType::kF32 ? " float32" : " bfloat16");
  }
  return identity_;
}

std::string LanguageModel::eos_text() const {
  return choice_.tokenizer->eos() >= 0 ? choice_.tokenizer->token(choice_.tokenizer->eos()) : "";
}

LanguageModel::Loaded& LanguageModel::load(int64_t tokens) {
  int64_t positions = std::min(max_length_, (tokens + 255) / 256 * 256);
  if (tokens <= brief_) positions = std::min(positions, brief_);
  if (!loaded_ || loaded_->model->positions() < positions ||
      (loaded_->model->positions() <= brief_) != (positions <= brief_)) {
    loaded_.reset();  // one copy of the weights at a time
    loaded_ = std::make_unique<Loaded>();
    loaded_->model = std::make_unique<infer::Model>(choice_.path, choice_.adapter, choice_.type, positions,
                                                    *choice_.ops, infer::Weights::kForMany);
  }
  return *loaded_;
}

std::vector<int32_t> LanguageModel::encode(const std::string& text) const {
  return choice_.rendered ? choice_.tokenizer->encode(text) : choice_.tokenizer->encode_with_prefix(text);
}

// White space at the end of the context belongs to the continuation; both are encoded as one text and cut by the
// context's length.
LanguageModel::Pair LanguageModel::encode_pair(const std::string& given_context,
                                               const std::string& given_continuation) const {
  if (given_context.empty()) {
    std::vector<int32_t> c = choice_.tokenizer->encode(given_continuation);
    if (!c.empty() && c[0] == prefix_token_) return {{c[0]}, {c.begin() + 1, c.end()}};
    return {{prefix_token_}, std::move(c)};
  }
  const std::string context = strip(given_context, false, true);
  const std::string continuation = given_context.substr(context.size()) + given_continuation;
  const std::vector<int32_t> whole = encode(context + continuation), head = encode(context);
  const size_t n = std::min(head.size(), whole.size());
  return {head, {whole.begin() + static_cast<ptrdiff_t>(n), whole.end()}};
}

std::string LanguageModel::key(const Request& r, int64_t repeat) const {
  Json j = {{"model", identity()},
            {"type", static_cast<int>(r.type)},
            {"context", r.context},
            {"continuation", r.continuation},
            {"generation", Json::parse(r.generation.dump())},
            {"repeat", repeat}};
  if (choice_.rendered) j["rendered"] = true;
  return blake3_hex(j.dump(-1, ' ', false, Json::error_handler_t::replace)).substr(0, 32);
}

bool LanguageModel::run(const std::vector<Request*>& requests, int64_t repeats, RequestCache& cache) {
  std::vector<Request*> likelihood, rolling, generation;
  for (Request* r : requests) {
    r->responses.clear();
    if (r->type == OutputType::kGenerate)
      generation.push_back(r);
    else
      (r->type == OutputType::kRolling ? rolling : likelihood).push_back(r);
  }
  return run_likelihood(likelihood, cache) && run_rolling(rolling, cache) && run_generation(generation, repeats, cache);
}

bool LanguageModel::run_likelihood(const std::vector<Request*>& requests, RequestCache& cache) {
  std::vector<infer::Continuation> rows;
  std::vector<Request*> waiting;
  std::vector<std::string> keys;
  for (Request* r : requests) {
    std::string k = key(*r, 0);
    if (const OrderedJson* found = cache.find(k)) {
      r->responses = {*found};
      continue;
    }
    const Pair p = encode_pair(r->context, r->continuation);
    infer::Continuation c;
    c.ids = p.context;
    c.ids.insert(c.ids.end(), p.continuation.begin(), p.continuation.end());
    c.scored = static_cast<int64_t>(p.continuation.size());
    if (c.scored == 0 || c.ids.size() < 2) {  // nothing to be surprised by
      r->responses = {OrderedJson::array({0.0, true})};
      continue;
    }
    if (c.scored > max_length_)
      fail_input("a continuation has {} tokens, the model's context is {}", c.scored, max_length_);
    if (const int64_t over = static_cast<int64_t>(c.ids.size()) - (max_length_ + 1); over > 0)
      c.ids.erase(c.ids.begin(), c.ids.begin() + over);
    c.scored = std::min(c.scored, static_cast<int64_t>(c.ids.size()) - 1);
    rows.push_back(std::move(c));
    waiting.push_back(r);
    keys.push_back(std::move(k));
  }
  return score_new(rows, keys, cache, [&](size_t i, const infer::ContinuationScore& s) {
    waiting[i]->responses = {OrderedJson::array({s.logprob, s.greedy})};
  });
}

bool LanguageModel::score_new(const std::vector<infer::Continuation>& rows, const std::vector<std::string>& keys,
                              RequestCache& cache,
                              const std::function<void(size_t, const infer::ContinuationScore&)>& take) {
  log::Progress progress("log-likelihoods", static_cast<double>(rows.size()));
  size_t done = 0;
  for (const bool beyond : {false, true}) {
    std::vector<infer::Continuation> some;
    std::vector<size_t> place;
    int64_t longest = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t tokens = std::ssize(rows[i].ids) - 1;  // the last one is predicted alone
      if ((tokens > brief_) != beyond) continue;
      some.push_back(rows[i]);
      place.push_back(i);
      longest = std::max(longest, tokens);
    }
    if (some.empty()) continue;
    infer::ContinuationScorer scorer(*load(longest).model, choice_.batch);
    scorer.score(
        some,
        [&](size_t i, const infer::ContinuationScore& s) {
          take(place[i], s);
          cache.put(keys[place[i]], OrderedJson::array({s.logprob, s.greedy}));
          progress.update(static_cast<double>(++done));
        },
        [&] { return !stopped(); });
  }
  return done == rows.size();
}

std::vector<int32_t> LanguageModel::encode_plain(const std::string& text) const {
  const tokenizer::Span all{0, text.size()};
  std::vector<int32_t> ids = {prefix_token_};
  choice_.tokenizer->encode_append(text, ids, {&all, 1});
  return ids;
}

bool LanguageModel::score(const std::vector<infer::Continuation>& rows, RequestCache& cache,
                          std::vector<infer::ContinuationScore>* out) {
  out->assign(rows.size(), {});
  std::vector<infer::Continuation> waiting;
  std::vector<size_t> index;
  std::vector<std::string> keys;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json j = {{"model", identity()}, {"ids", rows[i].ids}, {"scored", rows[i].scored}};
    std::string k = blake3_hex(j.dump()).substr(0, 32);
    if (const OrderedJson* found = cache.find(k)) {
      (*out)[i] = {found->at(0), found->at(1)};
      continue;
    }
    infer::Continuation c = rows[i];
    if (const int64_t over = static_cast<int64_t>(c.ids.size()) - max_length_; over > 0)
      c.ids.erase(c.ids.begin(), c.ids.begin() + over);
    if (c.scored >= static_cast<int64_t>(c.ids.size()))
      fail_input("a continuation has {} tokens, the model's context is {}", c.scored, max_length_);
    waiting.push_back(std::move(c));
    index.push_back(i);
    keys.push_back(std::move(k));
  }
  return score_new(waiting, keys, cache, [&](size_t i, const infer::ContinuationScore& s) { (*out)[index[i]] = s; });
}

std::vector<LanguageModel::Pair> rolling_windows(const std::vector<int32_t>& tokens, int32_t prefix,
                                                 int64_t max_length) {
  std::vector<LanguageModel::Pair> out;
  const int64_t n = static_cast<int64_t>(tokens.size());
  if (n == 0) return out;
  const int64_t first = std::min(max_length, n);
  out.push_back({{prefix}, {tokens.begin(), tokens.begin() + first}});
  for (int64_t predicted = first; predicted < n;) {
    const int64_t count = std::min(n - predicted, max_length), end = predicted + count;
    // Read: the max_length tokens before the last one; what is predicted overlaps all but the first of them.
    const int64_t begin = std::max<int64_t>(end - max_length - 1, 0);
    out.push_back(
        {{tokens.begin() + begin, tokens.begin() + predicted}, {tokens.begin() + predicted, tokens.begin() + end}});
    predicted = end;
  }
  return out;
}

bool LanguageModel::run_rolling(const std::vector<Request*>& requests, RequestCache& cache) {
  struct Window {
    size_t request;
    Pair pair;
  };
  std::vector<Window> windows;
  std::vector<Request*> waiting;
  std::vector<std::string> keys;
  std::vector<size_t> left;
  for (Request* r : requests) {
    std::string k = key(*r, 0);
    if (const OrderedJson* found = cache.find(k)) {
      r->responses = {*found};
      continue;
    }
    // Read behind the prefix once, whether the text brings it along or not; it is never predicted.
    std::vector<int32_t> tokens = choice_.tokenizer->encode(r->continuation);
    if (!tokens.empty() && tokens[0] == prefix_token_) tokens.erase(tokens.begin());
    const std::vector<Pair> pairs = rolling_windows(tokens, prefix_token_, max_length_);
    if (pairs.empty()) {
      r->responses = {OrderedJson(0.0)};
      continue;
    }
    for (const Pair& p : pairs) windows.push_back({waiting.size(), p});
    left.push_back(pairs.size());
    waiting.push_back(r);
    keys.push_back(std::move(k));
  }
  if (windows.empty()) return true;
  const auto tokens_of = [](const Window& w) {
    return std::ssize(w.pair.context) + std::ssize(w.pair.continuation) - 1;
  };
  const auto middle =
      std::stable_partition(windows.begin(), windows.end(), [&](const Window& w) { return tokens_of(w) <= brief_; });
  const auto brief = static_cast<size_t>(middle - windows.begin());
  std::vector<double> sums(waiting.size(), 0);
  log::Progress progress("rolling log-likelihoods", static_cast<double>(windows.size()));
  for (const auto& [begin, end] : {std::pair{size_t{0}, brief}, {brief, windows.size()}}) {
    if (begin == end) continue;
    int64_t longest = 0;
    for (size_t i = begin; i < end; ++i) longest = std::max<int64_t>(longest, tokens_of(windows[i]));
    infer::Scorer scorer(*load(longest).model, std::max<int64_t>(longest, 1024));
    for (size_t i = begin; i < end;) {
      if (stopped()) return false;
      std::vector<std::vector<int32_t>> inputs, targets;
      const size_t first = i;
      for (; i < end && static_cast<int64_t>(i - first) < choice_.batch; ++i) {
        const Pair& p = windows[i].pair;
        std::vector<int32_t> in = p.context, out(p.context.size() - 1, -100);
        in.insert(in.end(), p.continuation.begin(), p.continuation.end() - 1);
        out.insert(out.end(), p.continuation.begin(), p.continuation.end());
        inputs.push_back(std::move(in));
        targets.push_back(std::move(out));
      }
      const auto scores = scorer.score_targets(inputs, targets);
      for (size_t w = first; w < i; ++w) {
        double sum = 0;
        for (size_t t = 0; t < scores[w - first].size(); ++t)  // a model's own NaN counts
          if (targets[w - first][t] != -100) sum += static_cast<double>(scores[w - first][t]);
        const size_t r = windows[w].request;
        sums[r] += sum;
        if (--left[r] == 0) {
          waiting[r]->responses = {OrderedJson(sums[r])};
          cache.put(keys[r], waiting[r]->responses[0]);
        }
      }
      progress.update(static_cast<double>(i));
    }
  }
  return true;
}

GenerationSettings generation_settings(const OrderedJson& kwargs) {
  GenerationSettings g;
  double temperature = 0;
  OrderedJson do_sample;
  int64_t priority = 99;
  for (const auto& [k, v] : kwargs.items()) {
    auto number = [&]() -> double {
      if (v.is_number()) return v.get<double>();
      if (v.is_string()) {
        double d = 0;
        const std::string& s = v.get_ref<const std::string&>();
        if (const auto [p, ec] = std::from_chars(s.data(), s.data() + s.size(), d);
            ec == std::errc() && p == s.data() + s.size())
          return d;
      }
      fail_input("generation_kwargs: {} is a number", k);
    };
    const char* const lengths[] = {"max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"};
    const auto length = std::find(std::begin(lengths), std::end(lengths), k);
    if (length != std::end(lengths)) {
      if (length - std::begin(lengths) < priority && !v.is_null()) {
        priority = length - std::begin(lengths);
        g.max_tokens = static_cast<int64_t>(number());
      }
    } else if (k == "until") {
      if (v.is_string())
        g.until = {v.get<std::string>()};
      else if (v.is_array())
        for (const OrderedJson& u : v) {
          if (!u.is_string()) fail_input("generation_kwargs: until holds {}: a list of texts is wanted", u.dump());
          g.until.push_back(u.get<std::string>());
        }
      else if (!v.is_null())
        fail_input("generation_kwargs: until is {}: text or a list of texts is wanted", v.dump());
    } else if (k == "temperature")
      temperature = number();
    else if (k == "do_sample") {
      if (!v.is_null() && !v.is_boolean())
        fail_input("generation_kwargs: do_sample is {}: true or false is wanted", v.dump());
      do_sample = v;
    } else if (k == "top_p")
      g.top_p = number();
    else if (k == "min_p")
      g.min_p = number();
    else if (k == "top_k")
      g.top_k = static_cast<int64_t>(number());
    else
      fail_missing("generation_kwargs: {} is not supported here", k);
  }
  if (g.max_tokens < 1) fail_input("generation_kwargs: max_gen_toks is at least 1");
  if (temperature < 0) fail_input("generation_kwargs: temperature is {}: it is at least 0", temperature);
  const bool sample = do_sample.is_null() ? temperature > 0 : do_sample.get<bool>();
  g.temperature = sample ? temperature : 0;
  return g;
}

std::string cut_at_stops(std::string text, const std::vector<std::string>& stops) {
  for (const std::string& s : stops)
    if (!s.empty()) text = text.substr(0, text.find(s));
  return text;
}

bool LanguageModel::run_generation(const std::vector<Request*>& requests, int64_t repeats, RequestCache& cache) {
  struct Asked {
    Request* request;
    size_t repeat;
    std::string key;
    std::vector<std::string> until;
    size_t longest = 0;  // stop string, bytes
  };
  std::vector<infer::Request> prompts;
  std::vector<Asked> asked;
  const tokenizer::Tokenizer& tok = *choice_.tokenizer;
  const std::string eos = eos_text();
  int64_t longest = 0;
  for (Request* r : requests) {
    r->responses.assign(static_cast<size_t>(repeats), OrderedJson());
    GenerationSettings g = generation_settings(r->generation);
    if (!eos.empty() && std::find(g.until.begin(), g.until.end(), eos) == g.until.end()) g.until.push_back(eos);
    std::vector<int32_t> ids;
    for (int64_t k = 0; k < repeats; ++k) {
      std::string id = key(*r, g.temperature > 0 ? k : 0);
      if (const OrderedJson* found = cache.find(id)) {
        r->responses[static_cast<size_t>(k)] = *found;
        continue;
      }
      if (ids.empty()) {
        if (max_length_ <= g.max_tokens)
          fail_input("max_gen_toks is {}, which leaves no room in the model's context of {}", g.max_tokens,
                     max_length_);
        ids = encode(r->context);
        if (ids.empty()) ids = {prefix_token_};
        if (const int64_t over = static_cast<int64_t>(ids.size()) - (max_length_ - g.max_tokens); over > 0)
          ids.erase(ids.begin(), ids.begin() + over);
      }
      infer::Request p;
      p.prompt = ids;
      p.max_tokens = g.max_tokens;
      p.stop = stops_;
      p.tool = infer::make_calculator(tok);
      p.sampling.temperature = g.temperature;
      p.sampling.top_k = g.top_k;
      p.sampling.top_p = g.top_p;
      p.sampling.min_p = g.min_p;
      p.sampling.seed = std::stoull(id.substr(0, 16), nullptr, 16);
      longest = std::max(longest, static_cast<int64_t>(ids.size()) + g.max_tokens);
      prompts.push_back(std::move(p));
      Asked a{r, static_cast<size_t>(k), std::move(id), g.until};
      for (const std::string& u : g.until) a.longest = std::max(a.longest, u.size());
      asked.push_back(std::move(a));
      if (g.temperature <= 0 && repeats > 1) break;  // the others are equal: filled below
    }
  }
  if (!prompts.empty()) {
    // Longest first, so that the last ones to finish are short.
    std::vector<size_t> order(prompts.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return prompts[a].prompt.size() > prompts[b].prompt.size(); });
    std::vector<infer::Request> sorted;
    for (size_t i : order) sorted.push_back(std::move(prompts[i]));
    infer::EngineSettings settings;
    settings.batch = choice_.batch;
    infer::Engine engine(*load(longest).model, settings);
    log::Progress progress("answers", static_cast<double>(sorted.size()));
    std::vector<std::vector<int32_t>> tails(sorted.size());  // last tokens of each answer, for the stop strings
    size_t done = 0;
    engine.generate(
        sorted,
        [&](size_t i, int32_t id) {
          if (stopped()) return false;
          const Asked& a = asked[order[i]];
          std::vector<int32_t>& t = tails[i];
          t.push_back(id);
          if (t.size() > a.longest + 4) t.erase(t.begin());
          const std::string text = tok.decode(t);
          return std::none_of(a.until.begin(), a.until.end(),
                              [&](const std::string& u) { return !u.empty() && text.find(u) != std::string::npos; });
        },
        [&](size_t i, const infer::Answer& answer) {
          if (stopped()) return;
          const Asked& a = asked[order[i]];
          const OrderedJson text = cut_at_stops(infer::answer_text(tok, answer.tokens), a.until);
          a.request->responses[a.repeat] = text;
          cache.put(a.key, text);
          progress.update(static_cast<double>(++done));
        });
    if (stopped() && done < sorted.size()) return false;
  }
  for (Request* r : requests)
    for (OrderedJson& response : r->responses)
      if (response.is_null()) response = OrderedJson(r->responses[0]);
  return true;
}

}  // namespace mxt::eval
