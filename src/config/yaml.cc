#include "config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/text.h"

namespace mxt::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 32;         // a recipe needs seven
constexpr size_t kMaxNodes = 20'000;  // after aliases are expanded: an alias bomb ends here

// Ends the parse. Never leaves this file.
struct Stop {
  YamlProblem problem;
};

YamlMark from(const YAML::Mark& m) {
  if (m.is_null()) return {};
  return {m.line + 1, m.column + 1};
}

// Builds the tree from yaml-cpp's events.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::vector<YamlProblem>* problems) : problems_(problems) {}
  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& m, YAML::anchor_t anchor) override {
    YamlNode n;
    n.mark = from(m);
    n.plain = true;
    add(std::move(n), anchor);
  }
  void OnScalar(const YAML::Mark& m, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    YamlNode n;
    n.kind = YamlNode::Kind::kScalar;
    n.mark = from(m);
    n.text = text;
    n.plain = tag == "?";
    if (!n.plain && tag != "!" && tag != "tag:yaml.org,2002:str") refuse_tag(n.mark, tag);
    add(std::move(n), anchor);
  }
  void OnSequenceStart(const YAML::Mark& m, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    if (tag != "?" && tag != "!" && tag != "tag:yaml.org,2002:seq") refuse_tag(from(m), tag);
    open(YamlNode::Kind::kList, m, anchor);
  }
  void OnMapStart(const YAML::Mark& m, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    if (tag != "?" && tag != "!" && tag != "tag:yaml.org,2002:map") refuse_tag(from(m), tag);
    open(YamlNode::Kind::kMap, m, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }
  void OnAlias(const YAML::Mark& m, YAML::anchor_t anchor) override {
    for (const Frame& f : stack_)
      if (f.anchor == anchor)
        throw Stop{{from(m), "", "this alias stands inside its own anchor, so it has no end: write the value out"}};
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) throw Stop{{from(m), "", "this alias has no anchor before it"}};
    if (static_cast<int>(stack_.size()) + it->second.depth > kMaxDepth) too_deep(m);
    count(it->second.nodes, from(m));
    for (Frame& f : stack_) f.nodes += it->second.nodes;
    if (!stack_.empty()) stack_.back().depth = std::max(stack_.back().depth, it->second.depth + 1);
    YamlNode copy = it->second.node;
    // A message about an aliased value points at where it is used.
    if (copy.kind == YamlNode::Kind::kScalar || copy.kind == YamlNode::Kind::kNull) copy.mark = from(m);
    place(std::move(copy));
  }

 private:
  struct Frame {
    YamlNode node;
    YAML::anchor_t anchor = 0;
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
  [[noreturn]] static void too_deep(const YAML::Mark& m) {
    throw Stop{{from(m), "", fmt::format("nested deeper than {} levels", kMaxDepth)}};
  }
  void count(size_t nodes, YamlMark m) {
    total_ += nodes;
    if (total_ > kMaxNodes)
      throw Stop{
          {m, "", fmt::format("more than {} values once aliases are written out: a recipe is smaller", kMaxNodes)}};
  }
  void open(YamlNode::Kind kind, const YAML::Mark& m, YAML::anchor_t anchor) {
    if (static_cast<int>(stack_.size()) >= kMaxDepth) too_deep(m);
    if (!stack_.empty() && stack_.back().node.kind == YamlNode::Kind::kMap && !stack_.back().has_key)
      throw Stop{{from(m), "", "a key must be text"}};
    count(1, from(m));
    Frame f;
    f.node.kind = kind;
    f.node.mark = from(m);
    f.anchor = anchor;
    stack_.push_back(std::move(f));
  }
  void add(YamlNode n, YAML::anchor_t anchor) {
    count(1, n.mark);
    if (anchor) anchors_.insert_or_assign(anchor, Anchored{n, 1, 1});
    for (Frame& f : stack_) ++f.nodes;
    place(std::move(n));
  }
  void close() {
    Frame f = std::move(stack_.back());
    stack_.pop_back();
    for (YamlNode& m : f.merges) merge(f.node, std::move(m));
    if (f.anchor) anchors_.insert_or_assign(f.anchor, Anchored{f.node, f.nodes, f.depth});
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
  std::map<YAML::anchor_t, Anchored> anchors_;
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
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    Builder builder(&result.problems);
    if (!parser.HandleNextDocument(builder))
      throw Stop{{{}, "", "the file is empty: `mindxtrain init` writes a recipe"}};
    result.root = builder.take_root();
    std::vector<YamlProblem> ignored;
    Builder second(&ignored);
    if (parser.HandleNextDocument(second))
      throw Stop{{second.take_root().mark, "", "a second document: a recipe file holds one"}};
    result.parsed = true;
  } catch (const Stop& s) {
    result.problems.push_back(s.problem);
  } catch (const YAML::Exception& e) {
    result.problems.push_back({from(e.mark), "", fmt::format("not valid YAML: {}", e.msg)});
  }
  return result;
}

}  // namespace mxt::config
