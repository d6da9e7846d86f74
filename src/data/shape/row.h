// One parsed row and typed access to its columns by our names; every error says where and what to do.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/shape/example.h"

namespace mxt::data {

// The row as an object: JSON as it stands, CSV cells as texts. Checks UTF-8.
OrderedJson row_object(const Record& record);

class RowView {
 public:
  RowView(const OrderedJson& row, const Layout& layout, const std::string& where)
      : row_(row), layout_(layout), where_(where) {}

  const OrderedJson* find(std::string_view ours) const;  // nullptr where absent or null
  const OrderedJson& need(std::string_view ours) const;
  const std::string& text(std::string_view ours) const;  // a required text
  std::string optional_text(std::string_view ours) const;
  [[noreturn]] void wrong_type(std::string_view ours, const OrderedJson& value, std::string_view wanted) const;
  const std::string& where() const { return where_; }

 private:
  const OrderedJson& row_;
  const Layout& layout_;
  const std::string& where_;
};

// chat.cc: the shapes that are conversations, as OpenAI messages.
Example read_chat(const RowView& row, Shape shape);
void check_messages(const OrderedJson& messages, const std::string& where, std::string_view column);

}  // namespace mxt::data
