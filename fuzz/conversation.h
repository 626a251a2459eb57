// A conversation out of JSON, in the shape of the usual chat requests; wrong or missing members count as empty.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "glint/tokenizer.h"

namespace glint::fuzz {

struct Conversation {
  std::vector<Message> messages;
  ChatOptions options;
  std::string source;  // of a template
};

inline std::string TextOf(const Json& json, std::string_view key) {
  auto text = json.Get<std::string>(key);
  return text.ok() ? *text : std::string();
}

inline Conversation ConversationOf(const Json& json) {
  Conversation out;
  if (const Json* messages = json.Find("messages")) {
    for (const Json& m : messages->items()) {
      Message& message = out.messages.emplace_back();
      const std::string role = TextOf(m, "role");
      message.role = role == "system"      ? Role::kSystem
                     : role == "assistant" ? Role::kAssistant
                     : role == "tool"      ? Role::kTool
                                           : Role::kUser;
      message.content = TextOf(m, "content");
      message.reasoning = TextOf(m, "reasoning");
      message.tool_call_id = TextOf(m, "tool_call_id");
      if (const Json* calls = m.Find("tool_calls")) {
        for (const Json& c : calls->items())
          message.tool_calls.push_back({TextOf(c, "name"), TextOf(c, "arguments"), TextOf(c, "id")});
      }
    }
  }
  out.options.reasoning_effort = TextOf(json, "effort");
  out.options.add_generation_prompt = json.Get<bool>("generate").ok();
  out.options.clear_thinking = json.Get<bool>("clear").ok();
  if (const Json* tools = json.Find("tools")) {
    for (const Json& tool : tools->items()) out.options.tools.push_back(TextOf(tool, "json"));
  }
  out.source = TextOf(json, "template");
  return out;
}

}  // namespace glint::fuzz
