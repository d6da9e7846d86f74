#include "tokenizer/chat/tools_as_text.h"

namespace mxt::tokenizer {
namespace {

// Consecutive results are one message of the user's, since templates want turns to alternate. The text has no ids, so
// results that name their calls stand in the order of these. Arguments that are text are JSON already.
constexpr std::string_view kBeginning =
    R"({%- set rewritten = namespace(messages=[], tools='', text='', ids=[], results=[], ordered=[]) -%}
{%- if tools -%}
{%- for tool in tools -%}
{%- set rewritten.tools = rewritten.tools ~ '\n' ~ ((tool.function if tool.function is defined else tool) | tojson) -%}
{%- endfor -%}
{%- set rewritten.tools = 'You can call these functions:\n<tools>' ~ rewritten.tools ~ '\n</tools>\nWrite each call as\n<tool_call>\n{"name": NAME, "arguments": {ARGUMENTS}}\n</tool_call>' -%}
{%- if not messages or messages[0].role != 'system' -%}
{%- set rewritten.messages = [{'role': 'system', 'content': rewritten.tools}] -%}
{%- endif -%}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'system' and loop.first and rewritten.tools -%}
{%- set rewritten.messages = [{'role': 'system', 'content': message.content ~ '\n\n' ~ rewritten.tools}] -%}
{%- elif message.role == 'assistant' and message.tool_calls -%}
{%- set rewritten.text = message.content if message.content else '' -%}
{%- set rewritten.ids = [] -%}
{%- for call in message.tool_calls -%}
{%- if call.id is defined and call.id not in rewritten.ids -%}
{%- set rewritten.ids = rewritten.ids + [call.id] -%}
{%- endif -%}
{%- set function = call.function if call.function is defined else call -%}
{%- set rewritten.text = rewritten.text ~ ('\n' if rewritten.text else '') ~ '<tool_call>\n{"name": ' ~ (function.name | tojson) ~ ', "arguments": ' ~ (function.arguments if function.arguments is string else (function.arguments | tojson)) ~ '}\n</tool_call>' -%}
{%- endfor -%}
{%- set rewritten.messages = rewritten.messages + [{'role': 'assistant', 'content': rewritten.text}] -%}
{%- elif message.role == 'tool' -%}
{%- set rewritten.results = rewritten.results + [message] -%}
{%- if loop.last or loop.nextitem.role != 'tool' -%}
{%- set rewritten.ordered = [] -%}
{%- for id in rewritten.ids -%}
{%- for result in rewritten.results -%}
{%- if result.tool_call_id is defined and result.tool_call_id == id -%}
{%- set rewritten.ordered = rewritten.ordered + [result] -%}
{%- endif -%}
{%- endfor -%}
{%- endfor -%}
{%- set rewritten.text = '' -%}
{%- for result in (rewritten.ordered if rewritten.ordered | length == rewritten.results | length else rewritten.results) -%}
{%- set rewritten.text = rewritten.text ~ ('\n' if rewritten.text else '') ~ '<tool_response>\n' ~ result.content ~ '\n</tool_response>' -%}
{%- endfor -%}
{%- set rewritten.messages = rewritten.messages + [{'role': 'user', 'content': rewritten.text}] -%}
{%- set rewritten.results = [] -%}
{%- endif -%}
{%- else -%}
{%- set rewritten.messages = rewritten.messages + [message] -%}
{%- endif -%}
{%- endfor -%}
{%- set messages = rewritten.messages -%}
{%- set tools = none %})";

}  // namespace

std::string with_tools_as_text(std::string_view source) {
  if (source.starts_with(kBeginning)) return std::string(source);
  return std::string(kBeginning) + std::string(source);
}

}  // namespace mxt::tokenizer
