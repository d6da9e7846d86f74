// Help as wide as the terminal.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "help.h"
#include "model_files.h"

namespace mxt::app {
namespace {

constexpr size_t kLeastWidth = 20, kLeastText = 24, kIndent = 6;

// COLUMNS where it is said, else the terminal's; 0: there is none, and lines stay whole.
size_t terminal_width() {
  const std::string said = environment("COLUMNS");
  size_t columns = 0;
  std::from_chars(said.data(), said.data() + said.size(), columns);
  winsize size{};
  if (columns == 0 && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns == 0 ? 0 : std::max(columns, kLeastWidth);
}

size_t characters(std::string_view s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Where a line's text begins: behind its indentation, or behind the name and the spaces after it.
size_t text_begin(std::string_view line) {
  const size_t word = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", word);
  const size_t text = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  return text == std::string_view::npos ? word : text;
}

// A word longer than a line is cut, behind a comma where it has one.
std::string_view piece_of(std::string_view& word, size_t room) {
  size_t n = 0, behind = 0, seen = 0;
  for (; n < word.size() && seen < room; ++seen) {
    if (word[n] == ',') behind = n + 1;
    do ++n;
    while (n < word.size() && (word[n] & 0xC0) == 0x80);
  }
  if (n < word.size() && behind > 0) n = behind;
  const std::string_view piece = word.substr(0, n);
  word.remove_prefix(n);
  return piece;
}

// `mark` ends every line but the last: the backslash of a command that goes on.
void wrap_words(std::string_view text, size_t indent, size_t width, std::string_view mark, std::string& out) {
  const size_t room = width - indent - mark.size();
  size_t used = 0;
  const auto begin_line = [&] {
    out.append(mark).append("\n").append(indent, ' ');
    used = 0;
  };
  for (std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    const size_t n = characters(word);
    if (used > 0 && used + 1 + n > room) begin_line();
    if (used > 0) out += ' ', ++used;
    while (!word.empty()) {
      if (used == room) begin_line();
      const std::string_view piece = piece_of(word, room - used);
      out.append(piece);
      used += characters(piece);
      if (!word.empty()) begin_line();
    }
  }
}

void wrap_line(std::string_view line, size_t width, std::string& out) {
  if (characters(line) <= width) {
    out.append(line);
    return;
  }
  size_t text = text_begin(line);
  const std::string_view name = trim(line.substr(0, text));
  size_t indent = text;
  if (width < text + kLeastText) {  // no room beside the name: below it
    indent = name.empty() && text <= kIndent ? text : kIndent;
    if (!name.empty()) {
      const size_t at = std::min(line.find_first_not_of(' '), line.size());
      out.append(at, ' ');
      wrap_words(name, at + 2, width, "", out);
      out += '\n';
    }
    out.append(indent, ' ');
  } else {
    out.append(line.substr(0, text));
  }
  const bool command = line.substr(text).starts_with("example:");
  if (name.empty() && !command) indent += text < kLeastText ? 2 : 0;
  if (width < indent + kLeastText / 2) indent = 0;
  wrap_words(line.substr(text), command ? indent + 2 : indent, width, command ? " \\" : "", out);
}

class AsWideAsTheTerminal : public CLI::Formatter {
 public:
  explicit AsWideAsTheTerminal(size_t width) : width_(width) {}
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    const std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    std::string out;
    for (const std::string_view line : split(text, '\n')) {
      if (!out.empty() || line.data() != text.data()) out += '\n';
      wrap_line(line, width_, out);
    }
    return out;
  }

 private:
  size_t width_;
};

}  // namespace

void fit_help(CLI::App& app) {
  if (const size_t width = terminal_width()) app.formatter(std::make_shared<AsWideAsTheTerminal>(width));
}

}  // namespace mxt::app
