// The template released with GLM-5.3-Flash (spec/gguf.md section 9), for messages whose content is text. What the
// section leaves open was read off the released source, whose rendering this equals byte for byte.
#include <fmt/core.h>

#include <set>

#include "text/known_templates.h"
#include "text/python_json.h"

namespace glint::text {
namespace {

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";

Status Named(const Status& status, const std::string& where) {
  return {status.code(), where + ": " + status.message()};
}

Status RenderTools(std::span<const std::string> tools, PartWriter& out) {
  out.Special(
      "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n");
  for (size_t i = 0; i < tools.size(); ++i) {
    const auto tool = ObjectMembers(tools[i]);
    if (!tool.ok()) return Named(tool.status(), fmt::format("tool {}", i));
    std::vector<RawMember> members = tool.value();
    for (const RawMember& member : tool.value()) {
      if (member.key != "function") continue;
      const auto function = ObjectMembers(member.value);
      if (!function.ok()) return Named(function.status(), fmt::format("tool {}, \"function\"", i));
      members = function.value();
    }
    bool deferred = false;
    std::string line = "{";
    for (const RawMember& member : members) {
      if (member.key == "defer_loading") deferred = IsTruthy(member.value);
      if (member.key == "defer_loading" || member.key == "strict") continue;
      // The key is not escaped: the template writes it between quotes as it is.
      line += (line.size() > 1 ? ", \"" : "\"") + member.key + "\": " + PythonDumps(member.value);
    }
    if (!deferred) out.Plain(line + "}\n");
  }
  out.Special(
      "</tools>\n\nFor each function call, output the function name and arguments within the following XML "
      "format:\n"
      "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value>"
      "<arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>");
  return {};
}

Status RenderCall(const ToolCall& call, PartWriter& out) {
  const auto arguments =
      ObjectMembers(PythonStrip(call.arguments).empty() ? "{}" : std::string_view(call.arguments));
  if (!arguments.ok())
    return Named(arguments.status(), fmt::format("arguments of the call of \"{}\"", call.name));
  out.Special("<tool_call>");
  out.Plain(call.name);
  for (const RawMember& argument : arguments.value()) {
    out.Special("<arg_key>");
    out.Plain(argument.key);
    out.Special("</arg_key><arg_value>");
    out.Plain(IsString(argument.value) ? DecodeString(argument.value) : PythonDumps(argument.value));
    out.Special("</arg_value>");
  }
  out.Special("</tool_call>");
  return {};
}

Status RenderAssistant(const Message& message, bool keep_reasoning, PartWriter& out) {
  std::string_view content = message.content, reasoning = message.reasoning;
  // A client that keeps no reasoning apart sends it back inside the content.
  const bool apart = message.reasoning_apart || !reasoning.empty();
  if (const size_t end = content.find(kEndThink); !apart && end != std::string_view::npos) {
    reasoning = content.substr(0, end);
    if (const size_t begin = reasoning.rfind(kThink); begin != std::string_view::npos) {
      reasoning.remove_prefix(begin + kThink.size());
    }
    content.remove_prefix(content.rfind(kEndThink) + kEndThink.size());
  }
  out.Special("<|assistant|><think>");
  if (keep_reasoning) out.Plain(reasoning);
  out.Special("</think>");
  out.Plain(PythonStrip(content));
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    if (Status status = RenderCall(message.tool_calls[i], out); !status.ok()) {
      return Named(status, fmt::format("tool call {}", i));
    }
  }
  return {};
}

// The results of one group, `calls` being those they answer: in the order of the calls if every result answers one of them
// and no id is missing or stands twice, else as they come.
std::vector<const Message*> Ordered(std::span<const Message> results, std::span<const ToolCall> calls) {
  std::vector<const Message*> as_they_come, ordered;
  std::set<std::string_view> call_ids, result_ids;
  bool sortable = !calls.empty();
  for (const ToolCall& call : calls)
    sortable = sortable && !call.id.empty() && call_ids.insert(call.id).second;
  for (const Message& result : results) {
    as_they_come.push_back(&result);
    sortable =
        sortable && call_ids.contains(result.tool_call_id) && result_ids.insert(result.tool_call_id).second;
  }
  if (!sortable) return as_they_come;
  for (const ToolCall& call : calls) {
    for (const Message* result : as_they_come) {
      if (result->tool_call_id == call.id) ordered.push_back(result);
    }
  }
  return ordered;
}

class GlmFlash final : public ChatTemplate {
 public:
  explicit GlmFlash(bool exact) : exact_(exact) {}
  std::string_view name() const override { return "glm-5.3-flash"; }
  bool exact() const override { return exact_; }

  Result<std::vector<ChatPart>> Render(std::span<const Message> messages,
                                       const ChatOptions& options) const override {
    PartWriter out;
    const std::string& effort = options.reasoning_effort;
    out.Special("[gMASK]<sop><|system|>Reasoning Effort: ");
    out.Special(effort == "low" ? "Low" : effort == "high" ? "High" : "Max");
    if (!options.tools.empty()) {
      if (Status status = RenderTools(options.tools, out); !status.ok()) return status;
    }
    size_t after_last_user = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == Role::kUser) after_last_user = i + 1;
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      switch (message.role) {
        case Role::kSystem:
          out.Special("<|system|>");
          out.Plain(message.content);
          break;
        case Role::kUser:
          out.Special("<|user|>");
          out.Plain(message.content);
          break;
        case Role::kAssistant: {
          const bool keep_reasoning = !options.clear_thinking || i >= after_last_user;
          if (Status status = RenderAssistant(message, keep_reasoning, out); !status.ok()) {
            return Named(status, fmt::format("message {}", i));
          }
          break;
        }
        case Role::kTool: {
          size_t end = i;
          while (end < messages.size() && messages[end].role == Role::kTool) ++end;
          const bool answers = i > 0 && messages[i - 1].role == Role::kAssistant;
          out.Special("<|observation|>");
          for (const Message* result :
               Ordered(messages.subspan(i, end - i),
                       answers ? std::span(messages[i - 1].tool_calls) : std::span<const ToolCall>())) {
            out.Special("<tool_response>");
            out.Plain(result->content);
            out.Special("</tool_response>");
          }
          i = end - 1;
          break;
        }
      }
    }
    if (options.add_generation_prompt) out.Special("<|assistant|><think>");
    return out.Take();
  }

 private:
  bool exact_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> GlmFlashTemplate(bool exact) { return std::make_shared<GlmFlash>(exact); }

}  // namespace glint::text
