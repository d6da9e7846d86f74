// One parsed row and typed access to its columns by our names; every error says where and what to do.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/shape/example.h"

namespace mxt::data {

// The row as an object: JSON as it stands, CSV cells as texts. Checks UTF-8.
OrderedJson row_object(const Record& record);

// open_row.cc: the row as the shapes read it. Lists of messages that stand as JSON text, as in tables without nested
// columns, are lists (of answers only where both of a pair are such), and the members of OpenAI's input, {"messages",
// "tools"}, stand as columns: the prompt, and by their own names. Opening an open row changes nothing.
OrderedJson open_row(const Record& record, const Layout& layout);
bool is_turns(const OrderedJson& value);  // a list of messages, also as JSON text
bool says_turns(std::string_view text);   // such JSON text, or a list as Python prints it
// {"messages": …}; as JSON text only beside a `chosen` of messages.
bool is_openai_input(const OrderedJson& prompt, const OrderedJson* chosen);
OrderedJson openai_input(const OrderedJson& value, const std::string& at);  // as an object

class RowView {
 public:
  RowView(const OrderedJson& row, const Layout& layout, const std::string& where)
      : row_(row), layout_(layout), where_(where) {}

  const OrderedJson* find(std::string_view ours) const;  // nullptr where absent or null
  const OrderedJson& need(std::string_view ours) const;
  const std::string& text(std::string_view ours) const;  // a required text
  std::string optional_text(std::string_view ours) const;
  std::string text_or_number(std::string_view ours) const;  // a number digit by digit
  [[noreturn]] void wrong_type(std::string_view ours, const OrderedJson& value, std::string_view wanted) const;
  const std::string& where() const { return where_; }

 private:
  const OrderedJson& row_;
  const Layout& layout_;
  const std::string& where_;
};

// The column "images", "image" or "file_name" (imagefolder's, of a picture): a source, or a list of them (in tables
// {"path"}); none where it is absent.
std::vector<std::string> read_sources(const RowView& row);

// A column of token ids, and -100 where `negative_ok`.
std::vector<int32_t> read_numbers(const RowView& row, const char* column, bool negative_ok);

// preference.cc: pairs of answers and answers with a label. A pair's prompt is its own column, or what both answers
// begin with: of texts the common beginning, of conversations the common messages (as TRL has it).
Example read_preference(const RowView& row);
Example read_labelled(const RowView& row);
Example read_token_answers(const RowView& row, Shape shape);
// A prompt and the answer that samples are measured against: as a completion, or a conversation that ends with it.
Example read_reference(const RowView& row);

// chat.cc: the shapes that are conversations, as OpenAI messages.
Example read_chat(const RowView& row, Shape shape);
// One conversation of two lists, of which the second's assistant turns are trained on.
Example chat_of(const RowView& row, const OrderedJson& prompt, std::string_view prompt_column,
                const OrderedJson& completion, std::string_view completion_column);

}  // namespace mxt::data
