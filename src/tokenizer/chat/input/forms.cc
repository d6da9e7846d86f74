#include "tokenizer/chat/input/forms.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "jinja/text/repr.h"
#include "jinja/values/from_json.h"
#include "tokenizer/chat/input/calculations.h"
#include "tokenizer/chat/input/conversation.h"
#include "tokenizer/chat/render/chat_run.h"

namespace mxt::tokenizer {
namespace {

// Words that no template has of its own.
constexpr const char *kCall = "qzcall", *kTool = "qztool", *kKey = "qzkey", *kValue = "qzvalue", *kSaid = "qzsaid";
// As Python's json.dumps writes it: a template may look for its braces.
constexpr const char* kArgumentText = R"({"qzkey": "qzvalue"})";
// A template that wants more than this for a few words is asked no further; its chats meet the usual limits.
constexpr uint64_t kSteps = 1'000'000;
constexpr size_t kBytes = size_t{16} << 20;

enum class Content : uint8_t { kAbsent, kNull, kEmpty };
constexpr Content kContents[] = {Content::kAbsent, Content::kNull, Content::kEmpty};

// How the chats that are tried go on around the call: some templates want tools, some a result, some none of them.
struct Setting {
  bool with_tools = true, with_result = true;
};
constexpr Setting kSettings[] = {{true, true}, {false, true}, {false, false}, {true, false}};

struct CallForm {
  bool object = true, bare = false, type = true;
  Content content = Content::kAbsent;
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class Prober {
 public:
  explicit Prober(const ChatTemplate& t) : t_(t), limits_(t.limits()) {
    limits_.steps = std::min(limits_.steps, kSteps);
    limits_.memory = std::min(limits_.memory, kBytes);
    limits_.output = std::min(limits_.output, kBytes);
  }

  Forms run() {
    Forms f;
    find_parts(f);
    if (t_.jinja().has_text("tool_calls"))
      find_calls(f);
    else
      find_empty(f);
    if (t_.jinja().reads("tools")) find_tools(f);
    f.calculates = t_.jinja().has_text("'python_output'");
    return f;
  }

 private:
  std::optional<std::string> render(const OrderedJson& messages, const OrderedJson& tools) {
    ChatInput in;
    in.messages = &messages;
    in.tools = tools.is_null() ? nullptr : &tools;
    in.now = 0;
    try {
      ChatRun run(t_, in, limits_);
      return run.render(run.whole()).text;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  OrderedJson said(const char* role) const {
    OrderedJson content = kSaid;
    if (parts_) content = OrderedJson::array({OrderedJson{{"type", "text"}, {"text", kSaid}}});
    return {{"role", role}, {"content", std::move(content)}};
  }
  static OrderedJson tool(bool bare) {
    OrderedJson f{{"name", kTool},
                  {"description", "d"},
                  {"parameters", {{"type", "object"}, {"properties", OrderedJson::object()}}}};
    return bare ? f : with_envelope(std::move(f));
  }

  void find_parts(Forms& f) {
    const auto text = render(OrderedJson::array({said("user")}), nullptr);
    if (text && has(*text, kSaid)) return;
    parts_ = true;
    const auto parts = render(OrderedJson::array({said("user")}), nullptr);
    f.parts = parts_ = parts && has(*parts, kSaid) && !has(*parts, "'text'");
  }

  static void put_content(Content c, OrderedJson& message) {
    if (c == Content::kNull) message["content"] = nullptr;
    if (c == Content::kEmpty) message["content"] = "";
  }

  std::optional<std::string> render_call(const Setting& s, const CallForm& c) {
    OrderedJson function{{"name", kCall}};
    function["arguments"] = c.object ? OrderedJson{{kKey, kValue}} : OrderedJson(kArgumentText);
    OrderedJson call = OrderedJson::object();
    call["id"] = "abcdefghi";  // some want nine letters
    if (c.type && !c.bare) call["type"] = "function";
    if (c.bare)
      call.update(function);
    else
      call["function"] = std::move(function);
    OrderedJson message{{"role", "assistant"}};
    put_content(c.content, message);
    message["tool_calls"] = OrderedJson::array({std::move(call)});
    OrderedJson messages = OrderedJson::array({said("user"), std::move(message)});
    if (s.with_result) {
      messages.push_back(said("tool"));
      messages.back()["tool_call_id"] = "abcdefghi";
      messages.back()["name"] = kCall;
    }
    return render(messages, s.with_tools ? OrderedJson::array({tool(false)}) : OrderedJson());
  }
  static bool good(const std::optional<std::string>& text, const CallForm& c) {
    if (!text || !has(*text, kCall)) return false;
    return c.object ? has(*text, kKey) && has(*text, kValue) && !has(*text, "'qzkey'") : has(*text, kArgumentText);
  }

  void find_calls(Forms& f) {
    for (const Setting& s : kSettings)
      for (const bool bare : {false, true})
        for (const Content content : kContents)
          for (const bool object : {true, false}) {
            const CallForm c{object, bare, true, content};
            if (good(render_call(s, c), c)) return compare_calls(s, c, f);
          }
  }
  // What else works where `works` does.
  void compare_calls(const Setting& s, const CallForm& works, Forms& f) {
    CallForm c = works;
    f.bare_calls = c.bare;
    c.object = true, f.object_arguments = good(render_call(s, c), c);
    c.object = false, f.text_arguments = good(render_call(s, c), c);
    c = works;
    c.type = false, f.needs_type = !c.bare && !good(render_call(s, c), c);
    c = works;
    bool* const allowed[] = {&f.no_content, &f.null_content, &f.empty_content};
    for (size_t i = 0; i < std::size(kContents); ++i) {
      c.content = kContents[i];
      const auto text = render_call(s, c);
      *allowed[i] = good(text, c) && (c.content != Content::kNull || !has(*text, "None"));
    }
  }

  // Of a template without a place for calls: what stands where an answer has no text, so that it is the call that is
  // left out.
  void find_empty(Forms& f) {
    bool* const allowed[] = {&f.no_content, &f.null_content, &f.empty_content};
    for (size_t i = 0; i < std::size(kContents); ++i) {
      OrderedJson message{{"role", "assistant"}};
      put_content(kContents[i], message);
      const auto text = render(OrderedJson::array({said("user"), std::move(message)}), nullptr);
      *allowed[i] = text && !has(*text, "None");
    }
  }

  void find_tools(Forms& f) {
    const OrderedJson messages = OrderedJson::array({said("system"), said("user")});
    const auto whole = render(messages, OrderedJson::array({tool(false)}));
    if (whole && has(*whole, kTool)) return;
    const auto bare = render(messages, OrderedJson::array({tool(true)}));
    f.bare_tools = bare && has(*bare, kTool);
  }

  const ChatTemplate& t_;
  jinja::Limits limits_;
  bool parts_ = false;
};

// As tojson writes it.
std::string json_as_text(const ChatTemplate& t, const OrderedJson& j) {
  jinja::Machine m(t.name(), t.limits());
  return jinja::to_json(m, jinja::from_json(m, j), {})->text;
}

void put_arguments(const Forms& forms, const ChatTemplate& t, OrderedJson& arguments) {
  if (arguments.is_string() && !forms.text_arguments)
    arguments = parse_ordered_json(std::string(arguments.get_ref<const std::string&>()), "arguments");
  else if (arguments.is_object() && !forms.object_arguments && forms.text_arguments)
    arguments = json_as_text(t, arguments);
}

void put_call(const Forms& forms, const ChatTemplate& t, OrderedJson& call) {
  OrderedJson& function = call["function"];
  put_arguments(forms, t, function["arguments"]);
  if (forms.bare_calls) {
    OrderedJson bare = std::move(function);
    for (const auto& [key, value] : call.items())
      if (key != "function" && key != "type" && key != "index" && !bare.contains(key)) bare[key] = std::move(value);
    call = std::move(bare);
  } else if (forms.needs_type && !call.contains("type")) {
    OrderedJson typed{{"type", "function"}};
    typed.update(call);
    call = std::move(typed);
  }
}

// What stands for no content beside calls: what came, where the calls come out with it.
void put_empty_content(const Forms& forms, OrderedJson& message) {
  const auto it = message.find("content");
  if (it == message.end() ? forms.no_content
                          : !it->is_string() || !it->get_ref<const std::string&>().empty() || forms.empty_content)
    return;
  if (forms.no_content)
    message.erase("content");
  else if (forms.null_content)
    message["content"] = nullptr;
  else if (forms.empty_content)
    message["content"] = "";
}

void put_calculations(const Forms& forms, const OrderedJson& message, OrderedJson& content, size_t i) {
  if (!forms.calculates && has_calculations(content))
    throw BadChat(fmt::format("messages[{}].content", i),
                  " holds calculations (parts of type python), which the model's chat template does not read: use a "
                  "model of nanochat's format, or write them as text");
  if (!forms.calculates || !content.is_string() || message["role"] != "assistant") return;
  if (OrderedJson parts = split_calculations(content.get_ref<const std::string&>()); !parts.is_null())
    content = std::move(parts);
}

}  // namespace

Forms find_forms(const ChatTemplate& t) { return Prober(t).run(); }

void put_in_form(const Forms& forms, const ChatTemplate& t, OrderedJson& messages, OrderedJson& tools) {
  const bool developer = t.jinja().has_text("developer");
  for (OrderedJson& m : messages) {
    // The system's newer name: templates that do not know it pass over such messages, or write a role that no model
    // saw.
    if (const auto role = m.find("role"); !developer && role != m.end() && *role == "developer") *role = "system";
    if (m.contains("tool_calls") && !m["tool_calls"].empty()) {
      put_empty_content(forms, m);
      for (OrderedJson& call : m["tool_calls"]) put_call(forms, t, call);
    }
    if (const auto content = m.find("content"); content != m.end())
      put_calculations(forms, m, *content, static_cast<size_t>(&m - &messages[0]));
    if (const auto content = m.find("content"); forms.parts && content != m.end() && content->is_string())
      *content = OrderedJson::array({OrderedJson{{"type", "text"}, {"text", std::move(*content)}}});
  }
  if (!forms.bare_tools || !tools.is_array()) return;
  for (OrderedJson& tool : tools)
    if (const auto f = tool.find("function"); f != tool.end() && f->is_object()) tool = OrderedJson(std::move(*f));
}

}  // namespace mxt::tokenizer
