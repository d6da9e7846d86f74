#include "config/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "base/yaml_events.h"

namespace mxt::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 32;         // a recipe needs seven
constexpr size_t kMaxNodes = 20'000;  // after aliases are expanded: an alias bomb ends here

// Ends the parse. Never leaves this file.
struct Stop {
  YamlProblem problem;
};

// Builds the tree from the events of one document.
class Builder {
 public:
  explicit Builder(std::vector<YamlProblem>* problems) : problems_(problems) {}
  YamlNode take_root() { return std::move(root_); }

  void take(const YamlEvent& e) {
    using Kind = YamlEvent::Kind;
    switch (e.kind) {
      case Kind::kScalar:
        return scalar(e);
      case Kind::kAlias:
        return alias(e.mark, e.anchor);
      case Kind::kList:
        if (!e.tag.empty() && e.tag != "!" && e.tag != "tag:yaml.org,2002:seq") refuse_tag(e.mark, e.tag);
        return open(YamlNode::Kind::kList, e.mark, e.anchor);
      case Kind::kMap:
        if (!e.tag.empty() && e.tag != "!" && e.tag != "tag:yaml.org,2002:map") refuse_tag(e.mark, e.tag);
        return open(YamlNode::Kind::kMap, e.mark, e.anchor);
      case Kind::kListEnd:
      case Kind::kMapEnd:
        return close();
      default:
        return;
    }
  }

 private:
  void scalar(const YamlEvent& e) {
    YamlNode n;
    n.mark = e.mark, n.plain = e.plain;
    if (!e.is_null()) n.kind = YamlNode::Kind::kScalar, n.text = e.text;
    if (!e.tag.empty() && e.tag != "!" && e.tag != "tag:yaml.org,2002:str") refuse_tag(n.mark, e.tag);
    add(std::move(n), e.anchor);
  }
  void alias(YamlMark m, const std::string& anchor) {
    for (const Frame& f : stack_)
      if (f.anchor == anchor)
        throw Stop{{m, "", "this alias stands inside its own anchor, so it has no end: write the value out"}};
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) throw Stop{{m, "", "this alias has no anchor before it"}};
    if (static_cast<int>(stack_.size()) + it->second.depth > kMaxDepth) too_deep(m);
    count(it->second.nodes, m);
    for (Frame& f : stack_) f.nodes += it->second.nodes;
    if (!stack_.empty()) stack_.back().depth = std::max(stack_.back().depth, it->second.depth + 1);
    YamlNode copy = it->second.node;
    // A message about an aliased value points at where it is used.
    if (copy.kind == YamlNode::Kind::kScalar || copy.kind == YamlNode::Kind::kNull) copy.mark = m;
    place(std::move(copy));
  }

  struct Frame {
    YamlNode node;
    std::string anchor;
    size_t nodes = 1;
    int depth = 1;
    bool has_key = false;  // map: a key has been read and its value is next
    bool key_is_merge = false;
    std::string key;
    YamlMark key_mark;
    std::vector<YamlNode> merges;
    std::set<std::string> seen;
  };
  struct Anchored {
    YamlNode node;
    size_t nodes;
    int depth;
  };

  [[noreturn]] static void refuse_tag(YamlMark m, const std::string& tag) {
    throw Stop{{m, "", fmt::format("the tag {} is not allowed here: remove it", tag)}};
  }
  [[noreturn]] static void too_deep(YamlMark m) {
    throw Stop{{m, "", fmt::format("nested deeper than {} levels", kMaxDepth)}};
  }
  void count(size_t nodes, YamlMark m) {
    total_ += nodes;
    if (total_ > kMaxNodes)
      throw Stop{
          {m, "", fmt::format("more than {} values once aliases are written out: a recipe is smaller", kMaxNodes)}};
  }
  void open(YamlNode::Kind kind, YamlMark m, const std::string& anchor) {
    if (static_cast<int>(stack_.size()) >= kMaxDepth) too_deep(m);
    if (!stack_.empty() && stack_.back().node.kind == YamlNode::Kind::kMap && !stack_.back().has_key)
      throw Stop{{m, "", "a key must be text"}};
    count(1, m);
    Frame f;
    f.node.kind = kind;
    f.node.mark = m;
    f.anchor = anchor;
    stack_.push_back(std::move(f));
  }
  void add(YamlNode n, const std::string& anchor) {
    count(1, n.mark);
    if (!anchor.empty()) anchors_.insert_or_assign(anchor, Anchored{n, 1, 1});
    for (Frame& f : stack_) ++f.nodes;
    place(std::move(n));
  }
  void close() {
    Frame f = std::move(stack_.back());
    stack_.pop_back();
    for (YamlNode& m : f.merges) merge(f.node, std::move(m));
    if (!f.anchor.empty()) anchors_.insert_or_assign(f.anchor, Anchored{f.node, f.nodes, f.depth});
    for (Frame& outer : stack_) ++outer.nodes;
    if (!stack_.empty()) stack_.back().depth = std::max(stack_.back().depth, f.depth + 1);
    place(std::move(f.node));
  }
  // YAML 1.1's merge key: keys that the map has itself win, then earlier maps of the list.
  static void merge(YamlNode& into, YamlNode&& what) {
    for (auto& e : what.entries)
      if (!into.find(e.key)) into.entries.push_back(std::move(e));
  }
  void place(YamlNode n) {
    if (stack_.empty()) {
      root_ = std::move(n);
      return;
    }
    Frame& f = stack_.back();
    if (f.node.kind == YamlNode::Kind::kList) {
      f.node.items.push_back(std::move(n));
    } else if (!f.has_key) {
      take_key(f, n);
    } else {
      f.has_key = false;
      if (f.key_is_merge)
        add_merge(f, std::move(n));
      else if (f.seen.insert(f.key).second)
        f.node.entries.push_back({f.key, f.key_mark, std::move(n)});
      // A second value of the same key was reported when the key was read; the first stays.
    }
  }
  void take_key(Frame& f, const YamlNode& n) {
    if (n.kind != YamlNode::Kind::kScalar) throw Stop{{n.mark, "", "a key must be text"}};
    f.has_key = true;
    f.key = n.text;
    f.key_mark = n.mark;
    f.key_is_merge = n.plain && n.text == "<<";
    if (f.key_is_merge || !f.seen.contains(f.key)) return;
    int first = 0;
    for (const auto& e : f.node.entries)
      if (e.key == f.key) first = e.mark.line;
    problems_->push_back({n.mark, path_to(f.key), fmt::format("stands twice (first in line {}): keep one", first)});
  }
  void add_merge(Frame& f, YamlNode n) {
    if (n.kind == YamlNode::Kind::kMap) {
      f.merges.push_back(std::move(n));
      return;
    }
    const bool maps =
        n.kind == YamlNode::Kind::kList &&
        std::all_of(n.items.begin(), n.items.end(), [](const YamlNode& i) { return i.kind == YamlNode::Kind::kMap; });
    if (!maps) throw Stop{{f.key_mark, "", "<< takes a map or a list of maps"}};
    for (YamlNode& i : n.items) f.merges.push_back(std::move(i));
  }
  std::string path_to(const std::string& key) const {
    std::string p;
    for (const Frame& f : stack_)
      if (&f != &stack_.back() && f.node.kind == YamlNode::Kind::kMap) p += f.key + ".";
    return p + key;
  }

  std::vector<YamlProblem>* problems_;
  std::vector<Frame> stack_;
  std::map<std::string, Anchored> anchors_;
  YamlNode root_;
  size_t total_ = 0;
};

// What the scanner would let pass: bytes that are not text, and tabs where YAML counts spaces.
void check_bytes(std::string_view text) {
  if (text.size() > kMaxBytes)
    throw Stop{{{}, "", fmt::format("{} bytes: a recipe has at most {}", text.size(), kMaxBytes)}};
  int line = 1, column = 1;
  bool indent = true;
  for (size_t i = 0; i < text.size(); ++i, ++column) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\n') {
      ++line;
      column = 0;
      indent = true;
      continue;
    }
    if (c == '\t' && indent && !trim(text.substr(i, text.find('\n', i) - i)).empty())
      throw Stop{{{line, column}, "", "a tab in the indentation: use spaces"}};
    if (c != ' ') indent = false;  // after a tab, too: the rest of the line is blank
    if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7f)
      throw Stop{{{line, column}, "", fmt::format("control character 0x{:02x}: remove it", c)}};
    if (c >= 0x80) {
      // Check this run of non-ASCII bytes as a whole.
      size_t end = i;
      while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
      if (!is_valid_utf8(text.substr(i, end - i)))
        throw Stop{{{line, column}, "", "invalid UTF-8: save the file as UTF-8"}};
      column += static_cast<int>(end - i) - 1;
      i = end - 1;
    }
  }
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const auto& e : entries)
    if (e.key == key) return &e.value;
  return nullptr;
}

std::string_view YamlNode::kind_name() const {
  switch (kind) {
    case Kind::kMap:
      return "a map";
    case Kind::kList:
      return "a list";
    case Kind::kScalar:
      return "a single value";
    case Kind::kNull:
      return "nothing";
  }
  return "";
}

YamlResult parse_yaml(std::string_view text) {
  YamlResult result;
  try {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    check_bytes(text);
    YamlEvents events(text);
    if (events.next().kind == YamlEvent::Kind::kEnd)
      throw Stop{{{}, "", "the file is empty: `mindxtrain init` writes a recipe"}};
    Builder builder(&result.problems);
    for (YamlEvent e = events.next(); e.kind != YamlEvent::Kind::kDocumentEnd; e = events.next()) builder.take(e);
    result.root = builder.take_root();
    if (events.next().kind != YamlEvent::Kind::kEnd)
      throw Stop{{events.next().mark, "", "a second document: a recipe file holds one"}};
    result.parsed = true;
  } catch (const Stop& s) {
    result.problems.push_back(s.problem);
  } catch (const YamlSyntaxError& e) {
    result.problems.push_back({e.mark, "", fmt::format("not valid YAML: {}", e.what())});
  }
  return result;
}

}  // namespace mxt::config
