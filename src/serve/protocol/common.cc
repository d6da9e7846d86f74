#include "base/entropy.h"
#include "serve/operator_state.h"

namespace mxt::serve {

std::string random_hex(int digits) {
  std::string out;
  for (uint32_t bits = 0; static_cast<int>(out.size()) < digits; bits >>= 4) {
    if (out.size() % 8 == 0) bits = unguessable();
    out += "0123456789abcdef"[bits & 15];
  }
  return out;
}

CommonFields read_common(const OperatorState& s, const Fields& f, const char* max_tokens_name, int64_t otherwise) {
  CommonFields c;
  infer::Request& r = c.request;
  const int64_t context = s.served.model->positions();
  r.max_tokens = f.integer(max_tokens_name, otherwise < 0 ? context : otherwise, 0, INT32_MAX);
  r.min_tokens = f.integer("min_tokens", 0, 0, context);
  r.sampling.temperature = f.number("temperature", 1, 0, 2);
  r.sampling.top_p = f.number("top_p", 1, 0, 1);
  if (r.sampling.top_p == 0) r.sampling.top_p = 1e-9;  // the most likely token alone
  r.sampling.top_k = std::max<int64_t>(0, f.integer("top_k", 0, -1, INT32_MAX));
  r.sampling.min_p = f.number("min_p", 0, 0, 1);
  r.sampling.presence_penalty = f.number("presence_penalty", 0, -2, 2);
  r.sampling.frequency_penalty = f.number("frequency_penalty", 0, -2, 2);
  r.sampling.repetition_penalty = f.number("repetition_penalty", 1, 0.01, 10);
  r.sampling.seed = f.has("seed") ? static_cast<uint64_t>(f.integer("seed", 0, INT64_MIN, INT64_MAX))
                                  : (static_cast<uint64_t>(unguessable()) << 32 | unguessable());
  if (const OrderedJson* bias = f.get("logit_bias")) {
    if (!bias->is_object() || bias->size() > 1024)
      refuse("logit_bias", "logit_bias must be an object of at most 1024 token ids");
    for (const auto& [key, v] : bias->items()) {
      if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos ||
          std::stoll(key) >= s.served.model->vocab())
        refuse("logit_bias", "logit_bias: \"{}\" is no token id of this model", key);
      if (!v.is_number() || v.get<double>() < -100 || v.get<double>() > 100)
        refuse("logit_bias", "logit_bias: a number from -100 to 100 is wanted");
      r.sampling.logit_bias.emplace_back(static_cast<int32_t>(std::stoll(key)), v.get<float>());
    }
  }
  if (const OrderedJson* stop = f.get("stop")) {
    const OrderedJson list = stop->is_string() ? OrderedJson::array({*stop}) : *stop;
    if (!list.is_array() || list.size() > 32) refuse("stop", "stop must be a text or a list of at most 32 texts");
    for (const auto& v : list) {
      if (!v.is_string() || v.get_ref<const std::string&>().size() > 4096)
        refuse("stop", "stop must hold texts of at most 4096 bytes");
      if (!v.get_ref<const std::string&>().empty()) c.stops.push_back(v.get<std::string>());
    }
  }
  c.keep_stop = f.flag("include_stop_str_in_output", false);
  c.skip_special = f.flag("skip_special_tokens", true);
  if (!f.flag("ignore_eos", false)) r.stop = s.served.stop;
  if (const OrderedJson* ids = f.get("stop_token_ids"))
    for (int32_t id : read_ids(*ids, "stop_token_ids")) {
      if (id >= s.served.model->vocab() || r.stop.size() > 64)
        refuse("stop_token_ids", "stop_token_ids holds an id outside the vocabulary, or too many");
      r.stop.push_back(id);
    }
  r.priority = f.integer("priority", 0, -1000, 1000);
  c.stream = f.flag("stream", false);
  if (const OrderedJson* o = f.get("stream_options")) {
    if (!c.stream) refuse("stream_options", "stream_options is for streams alone");
    if (!o->is_object()) refuse("stream_options", "stream_options must be an object");
    const Fields inside(*o, "stream_options.");
    inside.only({"include_usage", "include_obfuscation", "continuous_usage_stats"});
    c.include_usage = inside.flag("include_usage", false);
    c.each_usage = inside.flag("continuous_usage_stats", false);
    inside.flag("include_obfuscation", false);  // nothing is padded here
  }
  c.n = f.integer("n", 1, 1, s.settings.max_choices);
  return c;
}

}  // namespace mxt::serve
