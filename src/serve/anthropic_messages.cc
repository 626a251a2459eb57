#include "serve/anthropic_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>

#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/json_out.h"
#include "serve/openai_common.h"
#include "serve/tools.h"

namespace glint::serve {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
constexpr int64_t kLeastBudget = 1024;
// Whoever sends reasoning back has to send this too, and clients take an empty one for none.
constexpr std::string_view kSignature = "Z2xpbnQ=";

void IgnoreMarks(Fields& block) { block.Ignore({"cache_control", "citations"}); }

// The text of a block of type "text".
std::string ReadText(Fields& block, Trouble& trouble) {
  const auto text = block.RequireString("text");
  IgnoreMarks(block);
  block.RefuseOthers();
  if (text && text->empty())
    trouble.Say(block.path(), fmt::format("{}: text content blocks must be non-empty", block.path()));
  return text.value_or("");
}

// A string, or blocks of text: of a system prompt or a tool's result.
std::string ReadTexts(const Json& content, const std::string& path, Trouble& trouble) {
  if (const auto text = AsString(content)) return *text;
  if (content.kind() != Json::Kind::kArray) {
    trouble.WrongType(path, "a string or an array of content blocks", content);
    return {};
  }
  std::string all;
  for (size_t i = 0; i < content.items().size() && trouble.ok(); ++i) {
    Fields block(trouble, content.items()[i], trouble.Item(path, i));
    const auto type = block.RequireString("type");
    if (!type) break;
    if (*type == "text") {
      all += ReadText(block, trouble);
    } else {
      trouble.Unsupported(block.PathOf("type"), fmt::format("'{}'; this model reads text alone", *type));
    }
  }
  return all;
}

bool IsToolId(std::string_view id) {
  return !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// The conversation as it is read: the calls of the last assistant turn have to be answered in the user turn that follows.
class Conversation {
 public:
  Conversation(Trouble& trouble, GenerationRequest& request) : trouble_(trouble), request_(request) {}

  void Read(const Json& json, const std::string& path) {
    Fields fields(trouble_, json, path);
    const auto role = fields.RequireString("role");
    const Json* content = fields.Require("content");
    fields.RefuseOthers();
    if (!role || content == nullptr) return;
    if (*role == "assistant") {
      ReadAssistant(*content, fields.PathOf("content"), path);
    } else if (*role == "user") {
      ReadUser(*content, fields.PathOf("content"), path);
    } else if (*role == "system") {
      RefuseOpen(path);
      Message message{Role::kSystem, ReadTexts(*content, fields.PathOf("content"), trouble_)};
      request_.messages.push_back(std::move(message));
    } else {
      trouble_.Report(fields.PathOf("role"),
                      fmt::format("Input should be 'user', 'assistant' or 'system', not '{}'", *role));
    }
  }

  // After the last message.
  void Finish() {
    if (!open_.empty()) RefuseOpen(calls_path_);
    if (trouble_.ok() && !request_.messages.empty() && request_.messages.back().role == Role::kAssistant) {
      trouble_.Say("messages",
                   "This model does not support assistant message prefill. The conversation must end with a "
                   "user message.");
    }
  }

 private:
  void RefuseOpen(const std::string& path) {
    if (open_.empty() || !trouble_.ok()) return;
    std::string ids;
    for (const std::string& id : open_) ids += (ids.empty() ? "" : ", ") + id;
    trouble_.Say(path, fmt::format("{}: `tool_use` ids were found without `tool_result` blocks immediately "
                                   "after: {}. Each `tool_use` block "
                                   "must have a corresponding `tool_result` block in the next message.",
                                   calls_path_, ids));
  }

  void ReadAssistant(const Json& content, const std::string& path, const std::string& message_path) {
    RefuseOpen(message_path);
    Message message;
    message.role = Role::kAssistant;
    message.reasoning_apart = true;  // blocks have types: no mark in the text means anything
    calls_path_ = message_path;
    if (const auto text = AsString(content)) {
      message.content = *text;
    } else if (content.kind() != Json::Kind::kArray) {
      trouble_.WrongType(path, "a string or an array of content blocks", content);
    }
    for (size_t i = 0; i < content.items().size() && trouble_.ok(); ++i) {
      Fields block(trouble_, content.items()[i], trouble_.Item(path, i));
      const auto type = block.RequireString("type");
      if (!type) break;
      if (*type == "text") {
        message.content += ReadText(block, trouble_);
      } else if (*type == "thinking") {
        if (const auto text = block.RequireString("thinking")) message.reasoning += *text;
        (void)block.RequireString("signature");
        block.RefuseOthers();
      } else if (*type == "redacted_thinking") {  // of another server: nothing that could be read
        (void)block.RequireString("data");
        block.RefuseOthers();
      } else if (*type == "tool_use") {
        ReadCall(block, message);
      } else {
        trouble_.Unsupported(block.PathOf("type"), fmt::format("'{}' in an assistant message", *type));
      }
    }
    request_.messages.push_back(std::move(message));
  }

  void ReadCall(Fields& block, Message& message) {
    const auto id = block.RequireString("id");
    const auto name = block.RequireString("name");
    const Json* input = block.Require("input");
    IgnoreMarks(block);
    block.Ignore({"caller", "toolset_name"});
    block.RefuseOthers();
    if (!id || !name || input == nullptr) return;
    if (input->kind() != Json::Kind::kObject)
      return trouble_.WrongType(block.PathOf("input"), "an object", *input);
    if (!IsToolId(*id))
      return trouble_.Report(block.PathOf("id"), "String should match pattern '^[a-zA-Z0-9_-]+$'");
    if (!open_.insert(*id).second)
      return trouble_.Say(block.path(), fmt::format("{}: `tool_use` ids must be unique", block.path()));
    message.tool_calls.push_back({*name, ToText(*input), *id});
  }

  void ReadUser(const Json& content, const std::string& path, const std::string& message_path) {
    std::string text;
    bool has_text = false, has_result = false;
    if (const auto whole = AsString(content)) {
      text = *whole;
      has_text = true;
      if (text.empty())
        trouble_.Say(path, fmt::format("{}: user messages must have non-empty content", message_path));
    } else if (content.kind() != Json::Kind::kArray) {
      trouble_.WrongType(path, "a string or an array of content blocks", content);
    } else if (content.items().empty()) {
      trouble_.Say(path, fmt::format("{}: user messages must have non-empty content", message_path));
    }
    for (size_t i = 0; i < content.items().size() && trouble_.ok(); ++i) {
      Fields block(trouble_, content.items()[i], trouble_.Item(path, i));
      const auto type = block.RequireString("type");
      if (!type) break;
      if (*type == "text") {
        text += ReadText(block, trouble_);
        has_text = true;
      } else if (*type == "tool_result") {
        ReadResult(block);
        has_result = true;
      } else {
        trouble_.Unsupported(block.PathOf("type"), fmt::format("'{}'; this model reads text alone", *type));
      }
    }
    RefuseOpen(message_path);
    if (has_text || !has_result) request_.messages.push_back({Role::kUser, std::move(text)});
  }

  void ReadResult(Fields& block) {
    const auto id = block.RequireString("tool_use_id");
    const Json* content = block.Take("content");
    (void)block.Bool("is_error");
    IgnoreMarks(block);
    block.RefuseOthers();
    if (!id) return;
    if (open_.erase(*id) == 0) {
      trouble_.Say(
          block.path(),
          fmt::format(
              "{}: unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must "
              "have a corresponding `tool_use` block in the previous message.",
              block.path(), *id));
    }
    Message message{Role::kTool,
                    content == nullptr ? "" : ReadTexts(*content, block.PathOf("content"), trouble_)};
    message.tool_call_id = *id;
    request_.messages.push_back(std::move(message));
  }

  Trouble& trouble_;
  GenerationRequest& request_;
  std::set<std::string> open_;  // ids of calls without a result
  std::string calls_path_;
};

void ReadMessages(Fields& fields, Trouble& trouble, GenerationRequest& request) {
  if (const Json* system = fields.Take("system")) {
    std::string text = ReadTexts(*system, "system", trouble);
    if (!text.empty()) request.messages.push_back({Role::kSystem, std::move(text)});
  }
  if (fields.Require("messages") == nullptr) return;
  const Json* messages = fields.Array("messages");
  if (messages == nullptr) return;
  if (messages->items().empty()) trouble.Say("messages", "messages: at least one message is required");
  Conversation conversation(trouble, request);
  for (size_t i = 0; i < messages->items().size() && trouble.ok(); ++i) {
    conversation.Read(messages->items()[i], trouble.Item("messages", i));
  }
  conversation.Finish();
}

void ReadTools(Fields& fields, Trouble& trouble, GenerationRequest& request, std::set<std::string>& names) {
  const Json* tools = fields.Array("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->items().size() && trouble.ok(); ++i) {
    Fields tool(trouble, tools->items()[i], trouble.Item("tools", i));
    if (const auto type = tool.String("type"); type && *type != "custom") {
      trouble.Unsupported(tool.PathOf("type"),
                          fmt::format("'{}'; this server runs no tools of its own", *type));
      break;
    }
    const auto name = tool.RequireString("name");
    const auto description = tool.String("description");
    const Json* schema = tool.Require("input_schema");
    if (schema != nullptr && schema->kind() != Json::Kind::kObject) {
      trouble.WrongType(tool.PathOf("input_schema"), "an object", *schema);
    }
    tool.Ignore({"cache_control", "strict", "input_examples", "defer_loading", "eager_input_streaming",
                 "allowed_callers"});
    tool.RefuseOthers();
    if (!name) continue;
    CheckToolName(*name, tool.PathOf("name"), names, trouble);
    request.chat.tools.push_back(ToolJson(*name, description.value_or(""), schema));
  }
}

void ReadToolChoice(Fields& fields, Trouble& trouble, const std::set<std::string>& names,
                    GenerationRequest& request) {
  const Json* choice = fields.Object("tool_choice");
  if (choice == nullptr) return;
  Fields members(trouble, *choice, "tool_choice");
  if (members.Require("type") == nullptr) return;
  const auto type = members.Word("type", {"auto", "any", "tool", "none"});
  ToolChoice& out = request.tool_choice;
  out.parallel = !members.Bool("disable_parallel_tool_use").value_or(false);
  if (type && *type == "none") out.kind = ToolChoice::Kind::kNone;
  if (type && *type == "any") out.kind = ToolChoice::Kind::kRequired;
  if (type && *type == "tool") {
    out.kind = ToolChoice::Kind::kNamed;
    if (const auto name = members.RequireString("name")) {
      out.name = *name;
      if (!names.contains(*name))
        trouble.Say("tool_choice", fmt::format("Tool '{}' not found in provided tools", *name));
    }
  }
  members.RefuseOthers();
  if (names.empty() && out.kind != ToolChoice::Kind::kNone) {
    trouble.Say("tool_choice", "tool_choice: may only be specified while providing tools");
  }
}

void ReadOutput(Fields& fields, Trouble& trouble, GenerationRequest& request) {
  const auto read_format = [&](Fields& parent, std::string_view key) {
    const Json* format = parent.Object(key);
    if (format == nullptr) return;
    Fields members(trouble, *format, parent.PathOf(key));
    if (members.Require("type") != nullptr) (void)members.Word("type", {"json_schema"});
    const Json* schema = members.Require("schema");
    members.Ignore({"name"});
    members.RefuseOthers();
    if (schema != nullptr) request.constraint = {Constraint::Kind::kJsonSchema, ToText(*schema)};
  };
  read_format(fields, "output_format");
  const Json* config = fields.Object("output_config");
  if (config == nullptr) return;
  Fields members(trouble, *config, "output_config");
  if (const auto effort = members.Word("effort", {"low", "medium", "high", "xhigh", "max"})) {
    request.chat.reasoning_effort = *effort == "low"                           ? "low"
                                    : *effort == "medium" || *effort == "high" ? "high"
                                                                               : "";
  }
  read_format(members, "format");
  members.Ignore({"task_budget"});
  members.RefuseOthers();
}

void ReadThinking(Fields& fields, Trouble& trouble, GenerationRequest& request) {
  request.show_reasoning = false;
  const Json* thinking = fields.Object("thinking");
  if (thinking == nullptr) return;
  Fields members(trouble, *thinking, "thinking");
  if (members.Require("type") == nullptr) return;
  const auto type = members.Word("type", {"enabled", "disabled", "adaptive", "between_tools"});
  if (!type) return;
  request.skip_reasoning = *type == "disabled";
  const auto display = members.Word("display", {"summarized", "omitted"});
  request.show_reasoning = *type != "disabled" && display != "omitted";
  if (*type == "enabled" && members.Require("budget_tokens") != nullptr) {
    const auto budget = members.Integer("budget_tokens", kLeastBudget, kMost);
    if (budget && request.max_tokens && *budget >= *request.max_tokens) {
      trouble.Say("max_tokens", "`max_tokens` must be greater than `thinking.budget_tokens`.");
    }
    // The model knows no budget, but it knows efforts.
    if (budget) request.chat.reasoning_effort = *budget < 4096 ? "low" : *budget < 16384 ? "high" : "";
    if (request.tool_choice.kind == ToolChoice::Kind::kRequired ||
        request.tool_choice.kind == ToolChoice::Kind::kNamed) {
      trouble.Say("tool_choice", "Thinking may not be enabled when tool_choice forces tool use.");
    }
  }
  members.RefuseOthers();
}

Parsed<GenerationRequest> Parse(std::string_view body, const RequestLimits& limits, bool count_only) {
  Parsed<Json> root = ParseBody(body, Dialect::kAnthropic);
  if (auto* error = std::get_if<ApiError>(&root)) return std::move(*error);
  Trouble trouble{Dialect::kAnthropic};
  Fields fields(trouble, std::get<Json>(root), "");
  GenerationRequest request;
  request.sampler = limits.sampler;
  if (const auto model = fields.RequireString("model")) request.model = *model;
  if (count_only) {
    fields.Ignore({"max_tokens", "stream", "stop_sequences", "temperature", "top_k", "top_p"});
  } else {
    if (fields.Require("max_tokens") != nullptr) {
      if (const auto most = fields.Integer("max_tokens", 1, kMost))
        request.max_tokens = static_cast<uint32_t>(*most);
    }
    request.stream = fields.Bool("stream").value_or(false);
    if (const auto v = fields.Number("temperature", 0, 1))
      request.sampler.temperature = static_cast<float>(*v);
    if (const auto v = fields.Integer("top_k", 0, kMost)) request.sampler.top_k = static_cast<int32_t>(*v);
    if (const auto v = fields.Number("top_p", 0, 1)) {
      request.sampler.top_p = static_cast<float>(*v);
      if (request.sampler.top_p == 0) request.sampler.top_p = 1, request.sampler.top_k = 1;
    }
    if (const Json* stop = fields.Array("stop_sequences")) {
      for (size_t i = 0; i < stop->items().size(); ++i) {
        const std::string path = trouble.Item("stop_sequences", i);
        const auto text = AsString(stop->items()[i]);
        if (!text) {
          trouble.WrongType(path, "a string", stop->items()[i]);
        } else if (text->find_first_not_of(" \t\r\n") == std::string::npos) {
          trouble.Report("stop_sequences", "each stop sequence must contain non-whitespace");
        } else {
          request.stop.push_back(*text);
        }
      }
    }
  }
  ReadMessages(fields, trouble, request);
  std::set<std::string> names;
  ReadTools(fields, trouble, request, names);
  ReadToolChoice(fields, trouble, names, request);
  ReadThinking(fields, trouble, request);
  ReadOutput(fields, trouble, request);
  if (const Json* metadata = fields.Object("metadata")) {
    Fields members(trouble, *metadata, "metadata");
    (void)members.String("user_id");
    members.RefuseOthers();
  }
  if (const Json* management = fields.Take("context_management"); management != nullptr) {
    request.warnings.emplace_back("context_management: nothing is taken out of the context");
  }
  fields.Ignore({"cache_control", "service_tier", "inference_geo", "speed", "diagnostics", "user_profile_id",
                 "workspace_id"});
  fields.Refuse({"container", "mcp_servers"}, "this server runs no tools of its own");
  fields.RefuseOthers();
  if (!trouble.ok()) return *trouble.error;
  return request;
}

std::string Frame(std::string_view event, std::string_view json) {
  return fmt::format("event: {}\ndata: {}\n\n", event, json);
}

struct Block {
  enum class Kind : uint8_t { kThinking, kText, kCall };
  Kind kind;
  std::string text;  // of a call: its arguments
  std::string name = {}, id = {};
  bool broken = false;
};

class MessagesWriter final : public ResponseWriter {
 public:
  MessagesWriter(const GenerationRequest& request, ResponseNames names)
      : names_(std::move(names)), stream_(request.stream), show_reasoning_(request.show_reasoning) {}

  std::string Begin(const Usage& usage) override {
    if (!stream_) return {};
    JsonOut out;
    out.Begin('{').String("type", "message_start").Key("message");
    WriteMessageHead(out);
    out.Key("content").Begin('[').End(']').Null("stop_reason").Null("stop_sequence").Key("usage");
    WriteMessageUsage(usage, out);
    return Frame("message_start", out.End('}').End('}').Take());
  }

  std::string Event(size_t, const AnswerEvent& event, const std::vector<TokenLogprob>&) override {
    switch (event.kind) {
      case AnswerEvent::Kind::kReasoning:
        if (!show_reasoning_) return {};
        return More(Block::Kind::kThinking, event.text);
      case AnswerEvent::Kind::kText:
        return More(Block::Kind::kText, event.text);
      case AnswerEvent::Kind::kCallBegin:
        return Open(
            {Block::Kind::kCall, "", event.text, fmt::format("toolu_{}{:03}", names_.id, event.call)});
      case AnswerEvent::Kind::kCallArguments:
        blocks_.back().text += event.text;
        return Delta("input_json_delta", "partial_json", event.text);
      case AnswerEvent::Kind::kCallEnd:
        blocks_.back().broken = event.broken;
        complete_calls_ += !event.broken;
        return Close();
      case AnswerEvent::Kind::kEnd:
        return {};
    }
    return {};
  }

  std::string Finish(size_t, const Outcome& outcome) override {
    outcome_ = outcome;
    return Close();
  }

  std::string End() override {
    JsonOut out;
    if (!stream_) {
      WriteMessageHead(out);
      out.Key("content").Begin('[');
      for (const Block& block : blocks_) WriteBlock(block, out);
      out.End(']');
    } else {
      out.Begin('{').String("type", "message_delta").Key("delta").Begin('{');
    }
    out.String("stop_reason", StopReason());
    if (outcome_.reason == FinishReason::kStopString) {
      out.String("stop_sequence", outcome_.stop);
    } else {
      out.Null("stop_sequence");
    }
    if (stream_) out.End('}');
    out.Key("usage");
    WriteMessageUsage(outcome_.usage, out);
    out.Key("timings");
    WriteTimings(outcome_, out);
    std::string json = out.End('}').Take();
    if (!stream_) return json;
    return Frame("message_delta", json) + Frame("message_stop", "{\"type\":\"message_stop\"}");
  }

  std::string Fail(const ApiError& error) override {
    const std::string body = AnthropicErrorBody(error, "req_" + names_.id);
    return stream_ ? Frame("error", body) : body;
  }

  std::string KeepAlive(const Progress& progress) override {
    if (!stream_) return {};
    return Frame("ping", fmt::format("{{\"type\":\"ping\",\"progress\":{{\"done\":{},\"total\":{}}}}}",
                                     progress.done, progress.total));
  }

 private:
  std::string StopReason() const {
    if (outcome_.reason == FinishReason::kLength) return "max_tokens";
    if (outcome_.reason == FinishReason::kStopString) return "stop_sequence";
    return complete_calls_ > 0 ? "tool_use" : "end_turn";
  }

  void WriteMessageHead(JsonOut& out) const {
    out.Begin('{').String("id", "msg_" + names_.id).String("type", "message").String("role", "assistant");
    out.String("model", names_.model);
  }

  // Of the API's three kinds of input tokens each token is one: read from the cache, or not.
  void WriteMessageUsage(const Usage& usage, JsonOut& out) const {
    out.Begin('{').Integer("input_tokens", usage.prompt - std::min(usage.cached, usage.prompt));
    out.Integer("cache_creation_input_tokens", uint64_t{0}).Integer("cache_read_input_tokens", usage.cached);
    out.Integer("output_tokens", usage.completion);
    out.Key("output_tokens_details").Begin('{').Integer("thinking_tokens", usage.reasoning).End('}').End('}');
  }

  // A block as it is in a whole message, or at its start.
  void WriteBlock(const Block& block, JsonOut& out, bool at_start = false) const {
    out.Begin('{');
    if (block.kind == Block::Kind::kThinking) {
      out.String("type", "thinking")
          .String("thinking", block.text)
          .String("signature", at_start ? "" : kSignature);
    } else if (block.kind == Block::Kind::kText) {
      out.String("type", "text").String("text", block.text);
    } else if (block.broken) {
      out.String("type", "text").String("text", block.name + block.text);
    } else {
      out.String("type", "tool_use").String("id", block.id).String("name", block.name);
      out.Key("input").Raw(block.text.empty() ? "{}" : block.text);
    }
    out.End('}');
  }

  std::string Open(Block block) {
    std::string frames = Close();
    open_ = true;
    blocks_.push_back(std::move(block));
    if (!stream_) return {};
    JsonOut out;
    out.Begin('{')
        .String("type", "content_block_start")
        .Integer("index", uint64_t{blocks_.size() - 1})
        .Key("content_block");
    WriteBlock(blocks_.back(), out, true);
    frames += Frame("content_block_start", out.End('}').Take());
    if (blocks_.size() == 1) frames += Frame("ping", "{\"type\":\"ping\"}");
    return frames;
  }

  std::string Delta(std::string_view type, std::string_view key, std::string_view text) const {
    if (!stream_) return {};
    JsonOut out;
    out.Begin('{')
        .String("type", "content_block_delta")
        .Integer("index", uint64_t{blocks_.size() - 1})
        .Key("delta");
    out.Begin('{').String("type", type).String(key, text).End('}');
    return Frame("content_block_delta", out.End('}').Take());
  }

  std::string More(Block::Kind kind, const std::string& text) {
    if (text.empty()) return {};
    std::string frames;
    if (!open_ || blocks_.back().kind != kind) frames = Open({kind, ""});
    blocks_.back().text += text;
    const bool thinking = kind == Block::Kind::kThinking;
    return frames +
           (thinking ? Delta("thinking_delta", "thinking", text) : Delta("text_delta", "text", text));
  }

  std::string Close() {
    if (!open_) return {};
    open_ = false;
    if (!stream_) return {};
    std::string frames;
    if (blocks_.back().kind == Block::Kind::kThinking)
      frames = Delta("signature_delta", "signature", kSignature);
    JsonOut out;
    out.Begin('{')
        .String("type", "content_block_stop")
        .Integer("index", uint64_t{blocks_.size() - 1})
        .End('}');
    return frames + Frame("content_block_stop", out.Take());
  }

  ResponseNames names_;
  bool stream_, show_reasoning_;
  bool open_ = false;  // the last block
  std::vector<Block> blocks_;
  size_t complete_calls_ = 0;
  Outcome outcome_;
};

}  // namespace

Parsed<GenerationRequest> ParseAnthropicMessages(std::string_view body, const RequestLimits& limits) {
  return Parse(body, limits, false);
}

Parsed<GenerationRequest> ParseAnthropicCountTokens(std::string_view body, const RequestLimits& limits) {
  return Parse(body, limits, true);
}

std::string AnthropicCountTokensBody(uint64_t tokens) {
  return JsonOut().Begin('{').Integer("input_tokens", tokens).End('}').Take();
}

std::unique_ptr<ResponseWriter> MakeAnthropicMessagesWriter(const GenerationRequest& request,
                                                            ResponseNames names) {
  return std::make_unique<MessagesWriter>(request, std::move(names));
}

}  // namespace glint::serve
