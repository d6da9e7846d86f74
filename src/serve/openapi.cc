// The API's description, OpenAPI 3.1.
#include <nlohmann/json.hpp>

#include "serve/operator_state.h"

namespace mxt::serve {
namespace {

OrderedJson ref(const char* name) { return {{"$ref", std::string("#/components/schemas/") + name}}; }
OrderedJson typed(const char* type) { return {{"type", type}}; }
OrderedJson list_of(OrderedJson items) { return {{"type", "array"}, {"items", std::move(items)}}; }
OrderedJson number_schema(double least, double most, double otherwise) {
  return {{"type", "number"}, {"minimum", least}, {"maximum", most}, {"default", otherwise}};
}

OrderedJson content(OrderedJson schema) { return {{"application/json", {{"schema", std::move(schema)}}}}; }

OrderedJson operation(const char* summary, OrderedJson request, OrderedJson answer, bool open = false) {
  OrderedJson o{{"summary", summary}};
  if (open) o["security"] = OrderedJson::array();
  if (!request.is_null()) o["requestBody"] = {{"required", true}, {"content", content(std::move(request))}};
  o["responses"] = {
      {"200",
       {{"description", "OK; with \"stream\": true a text/event-stream of chunks that ends in data: [DONE]"},
        {"content", content(std::move(answer))}}},
      {"default", {{"description", "Refused"}, {"content", content(ref("Error"))}}}};
  return o;
}

OrderedJson common() {
  return {{"model", typed("string")},
          {"temperature", number_schema(0, 2, 1)},
          {"top_p", number_schema(0, 1, 1)},
          {"top_k", {{"type", "integer"}, {"minimum", -1}}},
          {"min_p", number_schema(0, 1, 0)},
          {"n", {{"type", "integer"}, {"minimum", 1}, {"default", 1}}},
          {"seed", typed("integer")},
          {"stop", {{"anyOf", {typed("string"), list_of(typed("string"))}}}},
          {"stop_token_ids", list_of(typed("integer"))},
          {"presence_penalty", number_schema(-2, 2, 0)},
          {"frequency_penalty", number_schema(-2, 2, 0)},
          {"repetition_penalty", number_schema(0.01, 10, 1)},
          {"logit_bias", {{"type", "object"}, {"additionalProperties", number_schema(-100, 100, 0)}}},
          {"max_tokens", {{"type", "integer"}, {"minimum", 0}}},
          {"min_tokens", {{"type", "integer"}, {"minimum", 0}}},
          {"ignore_eos", typed("boolean")},
          {"priority", typed("integer")},
          {"stream", typed("boolean")},
          {"stream_options",
           {{"type", "object"},
            {"properties", {{"include_usage", typed("boolean")}, {"continuous_usage_stats", typed("boolean")}}}}}};
}

OrderedJson with(OrderedJson properties, OrderedJson required, const OrderedJson& more) {
  properties.update(more);
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

}  // namespace

std::string openapi_document() {
  const OrderedJson prompt{
      {"anyOf",
       {typed("string"), list_of(typed("string")), list_of(typed("integer")), list_of(list_of(typed("integer")))}}};
  const OrderedJson any = typed("object");
  OrderedJson schemas;
  schemas["Error"] = {{"type", "object"},
                      {"properties",
                       {{"error",
                         {{"type", "object"},
                          {"properties",
                           {{"message", typed("string")},
                            {"type", typed("string")},
                            {"param", {{"type", {"string", "null"}}}},
                            {"code", {{"type", {"string", "null"}}}}}}}}}}};
  schemas["ChatRequest"] = with(common(), {"messages"},
                                {{"messages", list_of(any)},
                                 {"max_completion_tokens", typed("integer")},
                                 {"logprobs", typed("boolean")},
                                 {"top_logprobs", typed("integer")},
                                 {"tools", list_of(any)},
                                 {"tool_choice", {{"anyOf", {typed("string"), any}}}},
                                 {"parallel_tool_calls", typed("boolean")},
                                 {"response_format", any},
                                 {"chat_template_kwargs", any},
                                 {"add_generation_prompt", typed("boolean")},
                                 {"continue_final_message", typed("boolean")},
                                 {"reasoning_effort", typed("string")}});
  schemas["CompletionRequest"] = with(
      common(), {"prompt"},
      {{"prompt", prompt}, {"echo", typed("boolean")}, {"logprobs", typed("integer")}, {"best_of", typed("integer")}});
  schemas["EmbeddingRequest"] = {{"type", "object"},
                                 {"properties",
                                  {{"model", typed("string")},
                                   {"input", prompt},
                                   {"encoding_format", {{"enum", {"float", "base64"}}}},
                                   {"dimensions", typed("integer")}}},
                                 {"required", {"input"}}};
  schemas["TokenizeRequest"] = {{"type", "object"},
                                {"properties",
                                 {{"prompt", typed("string")},
                                  {"messages", list_of(any)},
                                  {"tools", list_of(any)},
                                  {"add_generation_prompt", typed("boolean")},
                                  {"continue_final_message", typed("boolean")},
                                  {"return_token_strs", typed("boolean")}}}};
  schemas["DetokenizeRequest"] = {
      {"type", "object"}, {"properties", {{"tokens", list_of(typed("integer"))}}}, {"required", {"tokens"}}};

  OrderedJson paths;
  paths["/v1/chat/completions"]["post"] = operation("Answer a conversation", ref("ChatRequest"), any);
  paths["/v1/completions"]["post"] = operation("Continue a text or token ids", ref("CompletionRequest"), any);
  paths["/v1/embeddings"]["post"] = operation("Hidden states averaged over the text", ref("EmbeddingRequest"), any);
  paths["/v1/models"]["get"] = operation("The model and its adapters", nullptr, any);
  paths["/tokenize"]["post"] = operation("Text or messages to token ids", ref("TokenizeRequest"), any);
  paths["/detokenize"]["post"] = operation("Token ids to text", ref("DetokenizeRequest"), any);
  paths["/tokenizer_info"]["get"] = operation("The tokenizer's special tokens and chat template", nullptr, any);
  paths["/health"]["get"] = operation("Whether requests are taken", nullptr, any, true);
  paths["/metrics"]["get"] = {
      {"summary", "Prometheus metrics"},
      {"responses", {{"200", {{"description", "OK"}, {"content", {{"text/plain", {{"schema", typed("string")}}}}}}}}}};
  paths["/v1/training/jobs"]["get"] = operation("Training jobs", nullptr, any);
  paths["/v1/training/jobs"]["post"] =
      operation("Start `mindxtrain run` on a recipe",
                {{"type", "object"},
                 {"properties", {{"recipe", typed("string")}, {"name", typed("string")}}},
                 {"required", {"recipe"}}},
                any);
  const OrderedJson id =
      OrderedJson::array({{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", typed("string")}}});
  for (const auto& [path, method, summary] :
       {std::tuple{"/v1/training/jobs/{id}", "get", "One job"},
        {"/v1/training/jobs/{id}/cancel", "post", "Stop a job; its state is saved"},
        {"/v1/training/jobs/{id}/resume", "post", "Go on with a job that was cancelled or has failed"},
        {"/v1/training/jobs/{id}/events", "get", "Its metrics as they are written, as server-sent events"}}) {
    paths[path][method] = operation(summary, nullptr, any);
    paths[path][method]["parameters"] = id;
  }
  const OrderedJson document{
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "mindXtrain"},
        {"version", "1"},
        {"description", "OpenAI-compatible API of a model served by mindxtrain."}}},
      {"security", OrderedJson::array({{{"key", OrderedJson::array()}}})},
      {"paths", std::move(paths)},
      {"components",
       {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}, {"schemas", std::move(schemas)}}}};
  return document.dump();
}

}  // namespace mxt::serve
