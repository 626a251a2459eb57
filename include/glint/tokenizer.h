// Text to token ids and back, and the chat form of a conversation.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint {

namespace text {
class Tokenizer;
class ChatTemplate;
}  // namespace text

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object
  std::string id = {};    // what the result's tool_call_id names; may be empty
};

struct Message {
  Role role = Role::kUser;
  std::string content;
  std::string reasoning = {};  // assistant only
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {};  // tool results only: the id of the call they answer; may be empty
  // Assistant only: reasoning was given apart, be it empty. If neither this nor `reasoning` is set, it is looked for in the content.
  bool reasoning_apart = false;
};

struct ChatOptions {
  std::string reasoning_effort;  // "low", "high", anything else = the template's default (max)
  bool add_generation_prompt = true;
  bool clear_thinking = false;
  std::vector<std::string> tools;  // each a JSON object as the OpenAI API takes it
};

// A stretch of a rendered conversation. `special` text may contain control tokens; the other is a person's words and
// never turns into one.
struct ChatPart {
  std::string text;
  bool special = false;
};

// Ids become text as they come, never a broken UTF-8 sequence: bytes of an unfinished character are held back, and
// bytes that can't become one come out as U+FFFD.
class TextStream {
 public:
  explicit TextStream(std::shared_ptr<const text::Tokenizer> tokenizer, bool show_special = false);
  std::string Push(int32_t id);  // what has become certain
  std::string Finish();          // what is left

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool show_special_;
  std::string pending_;
};

// Immutable and safe to share between threads; copies are cheap. Made by Model.
class Tokenizer {
 public:
  Tokenizer(std::shared_ptr<const text::Tokenizer> tokenizer, std::shared_ptr<const text::ChatTemplate> chat);

  // Byte-level: any bytes are accepted, valid UTF-8 or not. With parse_special, control tokens spelled in the text become
  // their ids; without (the default), they stay text.
  std::vector<int32_t> Encode(std::string_view text, bool parse_special = false) const;
  // Exactly the bytes the ids stand for; control tokens by their spelling if show_special, else dropped.
  // kBadInput for an id out of range.
  Result<std::string> Decode(std::span<const int32_t> ids, bool show_special = true) const;
  TextStream Stream(bool show_special = false) const;

  // kUnsupported if the file's template is not one glint knows how to render.
  Result<std::vector<ChatPart>> RenderChat(std::span<const Message> messages,
                                           const ChatOptions& options = {}) const;
  Result<std::vector<int32_t>> EncodeChat(std::span<const Message> messages,
                                          const ChatOptions& options = {}) const;

  int32_t size() const;                       // ids that stand for something: [0, size)
  std::span<const int32_t> stop_ids() const;  // generation ends on any of them
  bool IsSpecial(int32_t id) const;
  int32_t Find(
      std::string_view token) const;  // id of a special or added token by its spelling, -1 if there is none

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::ChatTemplate> chat_;
};

}  // namespace glint
