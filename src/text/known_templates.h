// The templates behind ChatTemplate, and what they share.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace glint::text {

std::shared_ptr<const ChatTemplate> GlmFlashTemplate(bool exact);
std::shared_ptr<const ChatTemplate> StoriesTemplate();

// Collects parts; neighbours of one kind become one.
class PartWriter {
 public:
  void Special(std::string_view text) { Add(text, true); }  // the template's own text
  void Plain(std::string_view text) { Add(text, false); }   // anybody else's
  std::vector<ChatPart> Take() { return std::move(parts_); }

 private:
  void Add(std::string_view text, bool special) {
    if (text.empty()) return;
    if (parts_.empty() || parts_.back().special != special) parts_.push_back({"", special});
    parts_.back().text += text;
  }
  std::vector<ChatPart> parts_;
};

// Python's str.strip(): white space is the property White_Space and U+001C to U+001F. Ill-formed bytes are kept.
std::string_view PythonStrip(std::string_view text);

}  // namespace glint::text
