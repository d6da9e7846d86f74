// Which names of a block are its own before they are set.
#pragma once

#include "jinja/syntax/ast.h"

namespace mxt::jinja {

// Jinja decides when it compiles which block a name belongs to: one that a block sets, without having read it first, is
// the block's own from its start, so that a loop or macro inside that reads it too early finds nothing, not an outer
// variable. Fills in Frame::missing everywhere. Throws TemplateLimit where that takes too long; `name` is the
// template's.
void resolve_scopes(Ast& ast, std::string_view name);

}  // namespace mxt::jinja
