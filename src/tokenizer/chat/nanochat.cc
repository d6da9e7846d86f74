#include "tokenizer/chat/nanochat.h"

namespace mxt::tokenizer {

const std::vector<std::string>& nanochat_specials() {
  static const std::vector<std::string> kSpecials = {
      "<|bos|>",  "<|user_start|>", "<|user_end|>", "<|assistant_start|>", "<|assistant_end|>", kPythonStart,
      kPythonEnd, kOutputStart,     kOutputEnd};
  return kSpecials;
}

const char* const kNanochatTemplate =
    R"jinja({{- bos_token -}}
{%- set ns = namespace(turn=0) -%}
{%- for message in messages -%}
  {%- if message.role == 'system' and loop.first -%}
    {%- if messages | length < 2 or messages[1].role != 'user' -%}
      {{- raise_exception('a system message must be followed by a user message') -}}
    {%- endif -%}
  {%- elif message.role != ('user' if ns.turn % 2 == 0 else 'assistant') -%}
    {{- raise_exception('roles must alternate: user, assistant, user, …') -}}
  {%- elif message.role == 'user' -%}
    {{- '<|user_start|>' -}}
    {%- if ns.turn == 0 and messages[0].role == 'system' -%}
      {{- messages[0].content -}}{{- '\n\n' -}}
    {%- endif -%}
    {{- message.content -}}{{- '<|user_end|>' -}}
    {%- set ns.turn = ns.turn + 1 -%}
  {%- else -%}
    {{- '<|assistant_start|>' -}}
    {%- if message.content is string -%}
      {%- generation -%}{{- message.content -}}{%- endgeneration -%}
    {%- else -%}
      {%- for part in message.content -%}
        {%- if part.type == 'python' -%}
          {%- generation -%}{{- '<|python_start|>' -}}{{- part.text -}}{{- '<|python_end|>' -}}{%- endgeneration -%}
        {%- elif part.type == 'python_output' -%}
          {{- '<|output_start|>' -}}{{- part.text -}}{{- '<|output_end|>' -}}
        {%- else -%}
          {%- generation -%}{{- part.text -}}{%- endgeneration -%}
        {%- endif -%}
      {%- endfor -%}
    {%- endif -%}
    {%- generation -%}{{- '<|assistant_end|>' -}}{%- endgeneration -%}
    {%- set ns.turn = ns.turn + 1 -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant_start|>' -}}{%- endif -%}
)jinja";

}  // namespace mxt::tokenizer
