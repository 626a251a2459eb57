#include "serve/response_items.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/printable.h"

namespace glint::serve {
namespace {

using Kind = ResponseItem::Kind;

constexpr std::string_view kTextOnly = "this model reads text alone";

// Types of items that the API has, and that come from tools it runs itself.
constexpr std::array<std::string_view, 26> kOtherTypes{"file_search_call",
                                                       "computer_call",
                                                       "computer_call_output",
                                                       "web_search_call",
                                                       "tool_search_call",
                                                       "tool_search_output",
                                                       "additional_tools",
                                                       "configuration_update",
                                                       "compaction",
                                                       "compaction_trigger",
                                                       "image_generation_call",
                                                       "code_interpreter_call",
                                                       "local_shell_call",
                                                       "local_shell_call_output",
                                                       "shell_call",
                                                       "shell_call_output",
                                                       "apply_patch_call",
                                                       "apply_patch_call_output",
                                                       "mcp_list_tools",
                                                       "mcp_approval_request",
                                                       "mcp_approval_response",
                                                       "mcp_call",
                                                       "custom_tool_call",
                                                       "custom_tool_call_output",
                                                       "program",
                                                       "program_output"};

// A list of parts of the types given. `path` is the list's.
std::vector<ResponseItem::Part> ReadParts(const Json& list, const std::string& path,
                                          std::initializer_list<std::string_view> types, Trouble& trouble) {
  std::vector<ResponseItem::Part> parts;
  for (size_t i = 0; i < list.items().size() && trouble.ok(); ++i) {
    Fields part(trouble, list.items()[i], trouble.Item(path, i));
    const auto type = part.RequireString("type");
    if (!type) break;
    if (*type == "input_image" || *type == "input_file" || *type == "input_audio") {
      trouble.Unsupported(part.PathOf("type"), fmt::format("'{}'; {}", *type, kTextOnly));
      break;
    }
    if (std::find(types.begin(), types.end(), *type) == types.end()) {
      std::string list_of_types;
      for (const std::string_view t : types)
        list_of_types += fmt::format("{}'{}'", list_of_types.empty() ? "" : ", ", t);
      trouble.Report(part.PathOf("type"),
                     fmt::format("'{}' is none of the supported values: {}.", *type, list_of_types));
      break;
    }
    const auto text = part.RequireString(*type == "refusal" ? "refusal" : "text");
    part.Ignore({"annotations", "logprobs", "prompt_cache_breakpoint", "parsed"});
    part.RefuseOthers();
    parts.push_back({*type, text.value_or("")});
  }
  return parts;
}

void ReadMessage(Fields& fields, Trouble& trouble, ResponseItem& item) {
  if (fields.Require("role") == nullptr) return;
  const auto role = fields.Word("role", {"assistant", "system", "developer", "user"});
  const Json* content = fields.Require("content");
  fields.Ignore({"phase"});
  if (!role || content == nullptr) return;
  item.role = *role;
  const bool assistant = *role == "assistant";
  if (const auto text = AsString(*content)) {
    item.parts = {{assistant ? "output_text" : "input_text", *text}};
  } else if (content->kind() != Json::Kind::kArray) {
    trouble.WrongType(fields.PathOf("content"), "a string or an array of content parts", *content);
  } else if (assistant) {
    item.parts = ReadParts(*content, fields.PathOf("content"), {"output_text", "refusal"}, trouble);
  } else {
    item.parts = ReadParts(*content, fields.PathOf("content"), {"input_text"}, trouble);
  }
}

void ReadCall(Fields& fields, Trouble& trouble, ResponseItem& item) {
  item.call_id = fields.RequireString("call_id").value_or("");
  item.name = fields.RequireString("name").value_or("");
  item.text = fields.RequireString("arguments").value_or("");
  fields.Refuse({"namespace"}, "this server has no tools in namespaces");
  fields.Ignore({"caller", "created_by", "async", "parsed_arguments"});
  const bool blank = item.text.find_first_not_of(" \t\r\n") == std::string::npos;
  if (blank || item.status == "incomplete") return;
  const Result<Json> parsed = ParseJson(item.text, "arguments");
  if (!parsed.ok() || parsed->kind() != Json::Kind::kObject) {
    trouble.Report(fields.PathOf("arguments"),
                   fmt::format("must be the text of a JSON object{}{}.", parsed.ok() ? "" : "; ",
                               parsed.ok() ? "" : parsed.status().message()));
  }
}

void ReadResult(Fields& fields, Trouble& trouble, ResponseItem& item) {
  item.call_id = fields.RequireString("call_id").value_or("");
  const Json* output = fields.Require("output");
  fields.Ignore({"caller", "created_by", "name"});
  fields.Refuse({"namespace"}, "this server has no tools in namespaces");
  if (output == nullptr) return;
  if (const auto text = AsString(*output)) {
    item.text = *text;
  } else if (output->kind() == Json::Kind::kArray) {
    item.parts = ReadParts(*output, fields.PathOf("output"), {"input_text"}, trouble);
  } else {
    trouble.WrongType(fields.PathOf("output"), "a string or an array of content parts", *output);
  }
}

void ReadReasoning(Fields& fields, Trouble& trouble, ResponseItem& item) {
  if (const Json* summary = fields.Array("summary")) {
    for (ResponseItem::Part& part : ReadParts(*summary, fields.PathOf("summary"), {"summary_text"}, trouble))
      item.summary.push_back(std::move(part.text));
  }
  if (const Json* content = fields.Array("content"))
    item.parts = ReadParts(*content, fields.PathOf("content"), {"reasoning_text"}, trouble);
  item.sealed = fields.String("encrypted_content").value_or("");
}

std::string Together(const std::vector<ResponseItem::Part>& parts) {
  std::string all;
  for (const ResponseItem::Part& part : parts) all += part.text;
  return all;
}

std::string ReasoningText(const ResponseItem& item) {
  if (!item.parts.empty()) return Together(item.parts);
  if (const auto text = UnsealReasoning(item.sealed)) return *text;
  std::string all;
  for (const std::string& part : item.summary) all += (all.empty() ? "" : "\n") + part;
  return all;
}

std::string_view Prefix(Kind kind) {
  switch (kind) {
    case Kind::kMessage:
      return "msg_";
    case Kind::kCall:
      return "fc_";
    case Kind::kResult:
      return "fco_";
    case Kind::kReasoning:
      return "rs_";
  }
  return "";
}

constexpr std::string_view kSixBits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::string_view kSeal = "glint1.";

}  // namespace

std::optional<std::string> ItemReference(const Json& json) {
  const Json* type = json.Find("type");
  const Json* id = json.Find("id");
  const bool by_type = type != nullptr && AsString(*type) == "item_reference";
  const bool bare = (type == nullptr || type->kind() == Json::Kind::kNull) && id != nullptr &&
                    json.members().size() <= 2 && json.Find("role") == nullptr;
  if (!by_type && !bare) return {};
  return id != nullptr ? AsString(*id).value_or("") : "";
}

std::optional<ResponseItem> ReadItem(const Json& json, const std::string& path, Trouble& trouble) {
  Fields fields(trouble, json, path);
  if (!trouble.ok()) return {};
  const auto type = fields.String("type");
  ResponseItem item;
  item.id = fields.String("id").value_or("");
  item.status = fields.Word("status", {"in_progress", "completed", "incomplete"}).value_or("completed");
  if (!type || *type == "message") {
    ReadMessage(fields, trouble, item);
  } else if (*type == "function_call") {
    item.kind = Kind::kCall;
    ReadCall(fields, trouble, item);
  } else if (*type == "function_call_output") {
    item.kind = Kind::kResult;
    ReadResult(fields, trouble, item);
  } else if (*type == "reasoning") {
    item.kind = Kind::kReasoning;
    ReadReasoning(fields, trouble, item);
  } else if (std::find(kOtherTypes.begin(), kOtherTypes.end(), *type) != kOtherTypes.end()) {
    trouble.Unsupported(fields.PathOf("type"),
                        fmt::format("'{}'; this server runs no tools of its own", *type));
  } else {
    trouble.Report(fields.PathOf("type"),
                   fmt::format("'{}' is none of the supported values: 'message', 'function_call', "
                               "'function_call_output', 'reasoning', 'item_reference'.",
                               *type));
  }
  if (!trouble.ok()) return {};
  fields.RefuseOthers();
  if (!trouble.ok()) return {};
  return item;
}

void WritePart(const ResponseItem::Part& part, JsonOut& out) {
  out.Begin('{').String("type", part.type);
  if (part.type == "output_text") {
    out.Key("annotations").Begin('[').End(']').Key("logprobs").Raw(fmt::format("[{}]", part.logprobs));
  }
  out.String(part.type == "refusal" ? "refusal" : "text", part.text).End('}');
}

void WriteItem(const ResponseItem& item, JsonOut& out, bool with_parts) {
  const auto write_parts = [&] {
    out.Begin('[');
    for (const ResponseItem::Part& part : item.parts)
      if (with_parts) WritePart(part, out);
    out.End(']');
  };
  out.Begin('{').String("id", item.id);
  switch (item.kind) {
    case Kind::kMessage:
      out.String("type", "message").String("status", item.status).Key("content");
      write_parts();
      out.String("role", item.role);
      break;
    case Kind::kCall:
      out.String("type", "function_call").String("status", item.status);
      out.String("arguments", with_parts ? item.text : "")
          .String("call_id", item.call_id)
          .String("name", item.name);
      break;
    case Kind::kResult:
      out.String("type", "function_call_output")
          .String("status", item.status)
          .String("call_id", item.call_id)
          .Key("output");
      if (item.parts.empty()) {
        out.String(item.text);
      } else {
        write_parts();
      }
      break;
    case Kind::kReasoning:
      out.String("type", "reasoning").Key("summary").Begin('[');
      for (const std::string& text : item.summary)
        if (with_parts) out.Begin('{').String("type", "summary_text").String("text", text).End('}');
      out.End(']');
      if (item.summary.empty() || !item.parts.empty()) {
        out.Key("content");
        write_parts();
      }
      if (with_parts && !item.sealed.empty()) out.String("encrypted_content", item.sealed);
      out.String("status", item.status);
      break;
  }
  out.End('}');
}

std::string ItemId(Kind kind, std::string_view key, bool output, size_t index) {
  return fmt::format("{}{}{}{:05}", Prefix(kind), key, output ? 'o' : 'i', index);
}

std::string ResponseOfItem(std::string_view item_id) {
  const size_t underline = item_id.find('_');
  const size_t letter = item_id.find_last_not_of("0123456789");
  if (underline == std::string_view::npos || letter == std::string_view::npos || letter <= underline + 1 ||
      letter + 6 > item_id.size())
    return {};
  if (item_id[letter] != 'i' && item_id[letter] != 'o') return {};
  return fmt::format("resp_{}", item_id.substr(underline + 1, letter - underline - 1));
}

std::string SealReasoning(std::string_view text) {
  std::string out(kSeal);
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    bits = bits << 8 | static_cast<uint8_t>(c);
    for (held += 8; held >= 6; held -= 6) out += kSixBits[bits >> (held - 6) & 63];
  }
  if (held > 0) out += kSixBits[bits << (6 - held) & 63];
  return out;
}

std::optional<std::string> UnsealReasoning(std::string_view sealed) {
  if (!sealed.starts_with(kSeal)) return {};
  sealed.remove_prefix(kSeal.size());
  std::string text;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : sealed) {
    const size_t value = kSixBits.find(c);
    if (value == std::string_view::npos) return {};
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held >= 8) text += static_cast<char>(bits >> (held -= 8) & 255);
  }
  if (!ValidUtf8(text)) return {};
  return text;
}

Message& ItemConversation::Assistant() {
  if (!in_turn_) {
    messages_.push_back({Role::kAssistant, ""});
    messages_.back().reasoning_apart = true;  // items have types: no mark in the text means anything
    in_turn_ = true;
  }
  return messages_.back();
}

void ItemConversation::AddCall(const ResponseItem& item, const std::string& path) {
  Message& message = Assistant();
  const bool blank = item.text.find_first_not_of(" \t\r\n") == std::string::npos;
  const bool cut = item.status == "incomplete";
  if (cut) {
    const Result<Json> parsed = ParseJson(item.text, "arguments");
    if (!blank && (!parsed.ok() || parsed->kind() != Json::Kind::kObject)) {
      message.content += item.name + item.text;
      return;
    }
  }
  if (!open_.emplace(item.call_id, OpenCall{messages_.size() - 1, message.tool_calls.size(), cut}).second)
    return trouble_.Report(trouble_.Member(path, "call_id"),
                           fmt::format("the id '{}' comes twice.", item.call_id));
  message.tool_calls.push_back({item.name, blank ? "{}" : item.text, item.call_id});
}

void ItemConversation::AddResult(const ResponseItem& item, const std::string&) {
  const auto call = open_.find(item.call_id);
  if (call == open_.end()) {
    return trouble_.Say("input", fmt::format("No tool call found for function call output with call_id {}.",
                                             Printable(item.call_id)));
  }
  open_.erase(call);
  in_turn_ = false;
  Message message{Role::kTool, item.parts.empty() ? item.text : Together(item.parts)};
  message.tool_call_id = item.call_id;
  messages_.push_back(std::move(message));
}

void ItemConversation::Add(const ResponseItem& item, const std::string& path) {
  if (!item.id.empty() && !ids_.insert(item.id).second) {
    return trouble_.Say(
        "input",
        fmt::format("Duplicate item found with id {}. Remove duplicate items from your input and try again.",
                    Printable(item.id)));
  }
  // What may follow in the same turn: anything while a call waits, and what comes later than all that is there.
  const auto begins_turn = [&](bool later) {
    if (in_turn_ && messages_.back().tool_calls.empty() && !later) in_turn_ = false;
  };
  switch (item.kind) {
    case Kind::kMessage: {
      if (item.role != "assistant") {
        in_turn_ = false;
        messages_.push_back({item.role == "user" ? Role::kUser : Role::kSystem, Together(item.parts)});
        break;
      }
      begins_turn(!in_turn_ || messages_.back().content.empty());
      Assistant().content += Together(item.parts);
      break;
    }
    case Kind::kReasoning:
      begins_turn(!in_turn_ || messages_.back().content.empty());
      Assistant().reasoning += ReasoningText(item);
      break;
    case Kind::kCall:
      AddCall(item, path);
      break;
    case Kind::kResult:
      AddResult(item, path);
      break;
  }
}

void ItemConversation::Finish() {
  for (const auto& [id, call] : open_) {
    if (!call.cut)
      return trouble_.Say("input", fmt::format("No tool output found for function call {}.", Printable(id)));
  }
  // From the back, so that the places of those before stay what they are.
  std::vector<OpenCall> cut;
  for (const auto& [id, call] : open_) cut.push_back(call);
  std::sort(cut.begin(), cut.end(), [](const OpenCall& a, const OpenCall& b) {
    return std::pair(a.message, a.call) > std::pair(b.message, b.call);
  });
  for (const OpenCall& call : cut) {
    Message& message = messages_[call.message];
    const auto at = message.tool_calls.begin() + static_cast<std::ptrdiff_t>(call.call);
    message.content += at->name + at->arguments;
    message.tool_calls.erase(at);
  }
}

}  // namespace glint::serve
