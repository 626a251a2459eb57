// The items of OpenAI's responses: what goes into a response, comes out of it, and is kept of it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serve/fields.h"
#include "serve/generation.h"
#include "serve/json_out.h"

namespace glint::serve {

struct ResponseItem {
  enum class Kind : uint8_t { kMessage, kCall, kResult, kReasoning };
  struct Part {
    std::string type;  // "input_text", "output_text", "refusal", "reasoning_text"
    std::string text;
    std::string logprobs = {};  // of output_text: JSON objects between commas
    bool operator==(const Part&) const = default;
  };

  Kind kind = Kind::kMessage;
  std::string id = {};               // empty: it has none yet
  std::string status = "completed";  // or "in_progress", "incomplete"
  std::string role = {};             // of messages: "user", "system", "developer", "assistant"
  // Of messages; of reasoning, what was thought; of results that came as a list.
  std::vector<Part> parts = {};
  std::vector<std::string> summary = {};  // of reasoning
  std::string sealed = {};                // of reasoning: encrypted_content
  std::string call_id = {}, name = {};    // of calls; results have the first
  std::string text = {};                  // a call's arguments; the result of one, if there are no parts
  bool operator==(const ResponseItem&) const = default;
};

// Nothing, and an error, for what is no item that a model of text can read. References are the caller's business
// (ItemReference).
std::optional<ResponseItem> ReadItem(const Json& json, const std::string& path, Trouble& trouble);
// The id that an item of type item_reference names; nothing for other items.
std::optional<std::string> ItemReference(const Json& json);
// `with_parts`: false leaves out what a stream adds later.
void WriteItem(const ResponseItem& item, JsonOut& out, bool with_parts = true);
// A part of a message or of reasoning.
void WritePart(const ResponseItem::Part& part, JsonOut& out);

// Ids that tell where an item is: KIND_KEYiNNNNN is number N of the input of the response resp_KEY, oNNNNN of its output.
std::string ItemId(ResponseItem::Kind kind, std::string_view key, bool output, size_t index);
// "resp_KEY" of such an id; empty for others.
std::string ResponseOfItem(std::string_view item_id);

// The reasoning as clients carry it that keep nothing but `encrypted_content`: readable by anybody, so no secret, but opaque.
std::string SealReasoning(std::string_view text);
// Nothing for what another server made.
std::optional<std::string> UnsealReasoning(std::string_view sealed);

// Items, in order, as the messages of a conversation. What an assistant said, thought and called until somebody else speaks is one
// message. A call that was cut off, and that nobody answered, becomes text.
class ItemConversation {
 public:
  ItemConversation(Trouble& trouble, std::vector<Message>& messages)
      : trouble_(trouble), messages_(messages) {}
  void Add(const ResponseItem& item, const std::string& path);
  // After the last: every call has to have its result.
  void Finish();

 private:
  struct OpenCall {
    size_t message = 0, call = 0;
    bool cut = false;
  };

  Message& Assistant();
  void AddCall(const ResponseItem& item, const std::string& path);
  void AddResult(const ResponseItem& item, const std::string& path);

  Trouble& trouble_;
  std::vector<Message>& messages_;
  bool in_turn_ = false;  // the last message is the assistant's, and not complete
  std::map<std::string, OpenCall, std::less<>> open_;
  std::set<std::string, std::less<>> ids_;  // of items
};

}  // namespace glint::serve
