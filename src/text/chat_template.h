// Chat templates glint can render natively, told from one another by their source.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"
#include "glint/tokenizer.h"

namespace glint::text {

// Immutable; safe to share between threads.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;

  // Recognises the Jinja source of a file: a known template by its fingerprint (then exact() is true), or one of the
  // GLM-5.3-Flash family by the marks that all its versions bear: that one is rendered as the released template, which
  // need not be what the file's own source would give, so exact() is false and callers should say so. Null with
  // kUnsupported if it is neither; the message says what to do.
  static Result<std::shared_ptr<const ChatTemplate>> Recognise(std::string_view jinja);
  // A template by its name; kBadInput, with the names there are, if there is none. exact() is true.
  static Result<std::shared_ptr<const ChatTemplate>> ByName(std::string_view name);

  virtual std::string_view name() const = 0;
  // Whether what is rendered is what the file's own source would give, byte for byte.
  virtual bool exact() const { return true; }

  // What people, tools and the model wrote comes out as parts that are not special. Empty tool arguments count as {}.
  // kBadInput: tool arguments or a tool description that are not a JSON object (names message and call).
  virtual Result<std::vector<ChatPart>> Render(std::span<const Message> messages,
                                               const ChatOptions& options) const = 0;
};

}  // namespace glint::text
