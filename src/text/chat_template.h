// Chat templates glint can render natively, told from one another by their source.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "glint/status.h"
#include "glint/tokenizer.h"

namespace glint::text {

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Recognises the Jinja source of a file. Null with kUnsupported if it is not one of those glint renders
  // byte for byte.
  static Result<std::shared_ptr<const ChatTemplate>> Recognise(const std::string& jinja);
  virtual std::string_view name() const = 0;
  virtual Result<std::vector<ChatPart>> Render(std::span<const Message> messages,
                                               const ChatOptions& options) const = 0;
};

}  // namespace glint::text
