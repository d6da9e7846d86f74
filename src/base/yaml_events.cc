#include "base/yaml_events.h"

#include <yaml.h>

namespace mxt {
namespace {

YamlMark from(const yaml_mark_t& m) { return {static_cast<int>(m.line) + 1, static_cast<int>(m.column) + 1}; }
std::string from(const yaml_char_t* s) { return s ? reinterpret_cast<const char*>(s) : ""; }

}  // namespace

struct YamlEvents::Parser {
  yaml_parser_t p;
};

bool YamlEvent::is_null() const {
  return kind == Kind::kScalar && plain &&
         (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL");
}

YamlEvents::YamlEvents(std::string_view text) : parser_(std::make_unique<Parser>()) {
  if (!yaml_parser_initialize(&parser_->p)) throw std::bad_alloc();
  yaml_parser_set_encoding(&parser_->p, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&parser_->p, reinterpret_cast<const yaml_char_t*>(text.data()), text.size());
}

YamlEvents::~YamlEvents() { yaml_parser_delete(&parser_->p); }

YamlEvent YamlEvents::next() {
  using Kind = YamlEvent::Kind;
  yaml_event_t e;
  do {
    if (!yaml_parser_parse(&parser_->p, &e)) {
      const yaml_parser_t& p = parser_->p;
      if (p.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
      std::string what = p.problem ? p.problem : "cannot be read";
      if (p.context) what += std::string(" ") + p.context;
      throw YamlSyntaxError(p.error == YAML_READER_ERROR ? from(p.mark) : from(p.problem_mark), what);
    }
  } while (e.type == YAML_STREAM_START_EVENT);
  const std::unique_ptr<yaml_event_t, void (*)(yaml_event_t*)> owner(&e, yaml_event_delete);
  YamlEvent out;
  out.mark = from(e.start_mark);
  const auto node = [&](Kind kind, const auto& data) {
    out.kind = kind, out.tag = from(data.tag), out.anchor = from(data.anchor);
  };
  switch (e.type) {
    case YAML_DOCUMENT_START_EVENT:
      out.kind = Kind::kDocument;
      break;
    case YAML_DOCUMENT_END_EVENT:
      out.kind = Kind::kDocumentEnd;
      break;
    case YAML_SCALAR_EVENT:
      node(Kind::kScalar, e.data.scalar);
      out.text.assign(reinterpret_cast<const char*>(e.data.scalar.value), e.data.scalar.length);
      out.plain = e.data.scalar.style == YAML_PLAIN_SCALAR_STYLE && out.tag.empty();
      break;
    case YAML_ALIAS_EVENT:
      out.kind = Kind::kAlias, out.anchor = from(e.data.alias.anchor);
      break;
    case YAML_SEQUENCE_START_EVENT:
      node(Kind::kList, e.data.sequence_start);
      break;
    case YAML_SEQUENCE_END_EVENT:
      out.kind = Kind::kListEnd;
      break;
    case YAML_MAPPING_START_EVENT:
      node(Kind::kMap, e.data.mapping_start);
      break;
    case YAML_MAPPING_END_EVENT:
      out.kind = Kind::kMapEnd;
      break;
    default:
      out.kind = Kind::kEnd;
  }
  return out;
}

}  // namespace mxt
