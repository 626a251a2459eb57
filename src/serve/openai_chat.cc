#include "serve/openai_chat.h"

#include <fmt/core.h>

#include <limits>
#include <set>

#include "serve/api_error.h"
#include "serve/openai_common.h"
#include "serve/tools.h"

namespace glint::serve {
namespace {

constexpr std::string_view kTextOnly = "this model reads text alone";
constexpr size_t kMostTools = 128;

// A string, or parts whose texts stand one after the other, as the model's template joins them.
std::string ReadContent(const Json& content, const std::string& path, Trouble& trouble) {
  if (const auto text = AsString(content)) return *text;
  if (content.kind() != Json::Kind::kArray) {
    trouble.WrongType(path, "a string or an array of content parts", content);
    return {};
  }
  std::string all;
  for (size_t i = 0; i < content.items().size(); ++i) {
    Fields part(trouble, content.items()[i], trouble.Item(path, i));
    const auto type = part.RequireString("type");
    if (!type) continue;
    if (*type == "text" || *type == "refusal") {
      if (const auto text = part.RequireString(*type)) all += *text;
      part.Ignore({"prompt_cache_breakpoint", "cache_control"});
      part.RefuseOthers();
    } else if (*type == "image_url" || *type == "input_audio" || *type == "file") {
      trouble.Unsupported(part.path(), kTextOnly);
    } else {
      trouble.Report(part.PathOf("type"),
                     fmt::format("'{}' is none of the supported values: 'text', 'refusal'.", *type));
    }
  }
  return all;
}

void ReadCalls(const Json& calls, const std::string& path, Trouble& trouble, Message& message) {
  for (size_t i = 0; i < calls.items().size(); ++i) {
    Fields call(trouble, calls.items()[i], trouble.Item(path, i));
    const auto id = call.RequireString("id");
    (void)call.Word("type", {"function"});
    call.Ignore({"index"});  // of a stream's deltas, which some clients send back as they came
    const Json* object = call.Require("function");
    call.RefuseOthers();
    if (object == nullptr) continue;
    Fields function(trouble, *object, call.PathOf("function"));
    const auto name = function.RequireString("name");
    const auto arguments = function.RequireString("arguments");
    function.RefuseOthers();
    if (!id || !name || !arguments) continue;
    const bool blank = arguments->find_first_not_of(" \t\r\n") == std::string::npos;
    if (!blank) {
      const Result<Json> parsed = ParseJson(*arguments, "arguments");
      if (!parsed.ok() || parsed->kind() != Json::Kind::kObject) {
        trouble.Report(function.PathOf("arguments"),
                       fmt::format("must be the text of a JSON object{}{}.", parsed.ok() ? "" : "; ",
                                   parsed.ok() ? "" : parsed.status().message()));
      }
    }
    message.tool_calls.push_back({*name, blank ? "{}" : *arguments, *id});
  }
}

// What the results of the calls before may name.
struct OpenCalls {
  std::set<std::string> ids;
  std::string path;  // of the message with the calls
};

void RefuseOpen(const OpenCalls& open, Trouble& trouble) {
  if (open.ids.empty() || !trouble.ok()) return;
  trouble.error = ApiError{
      400,
      fmt::format(
          "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
          "'tool_call_id'. No response was found for: {}",
          *open.ids.begin()),
      open.path};
}

void ReadMessage(const Json& json, const std::string& path, Trouble& trouble, OpenCalls& open, bool& answered,
                 GenerationRequest& request) {
  Fields fields(trouble, json, path);
  const auto role = fields.RequireString("role");
  if (!role) return;
  Message message;
  const Json* content = fields.Take("content");
  if (content != nullptr) message.content = ReadContent(*content, fields.PathOf("content"), trouble);
  (void)fields.String("name");
  if (*role == "tool") {
    message.role = Role::kTool;
    if (const auto id = fields.RequireString("tool_call_id")) {
      if (open.ids.erase(*id) == 0 && trouble.ok()) {
        trouble.error = ApiError{
            400,
            answered
                ? fmt::format("'tool_call_id' '{}' names no unanswered call of the assistant message before.",
                              *id)
                : "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
            path + ".role"};
      }
      message.tool_call_id = *id;
    }
    if (content == nullptr) trouble.Missing(fields.PathOf("content"));
  } else {
    RefuseOpen(open, trouble);
    open = {};
    answered = false;
    if (*role == "assistant") {
      message.role = Role::kAssistant;
      for (const std::string_view key : {"reasoning_content", "reasoning"}) {
        const auto reasoning = fields.String(key);
        if (!reasoning || message.reasoning_apart) continue;
        message.reasoning = *reasoning;
        message.reasoning_apart = true;
      }
      if (const Json* calls = fields.Array("tool_calls")) {
        ReadCalls(*calls, fields.PathOf("tool_calls"), trouble, message);
        open.path = path;
        for (const ToolCall& call : message.tool_calls) {
          if (!open.ids.insert(call.id).second)
            trouble.Report(fields.PathOf("tool_calls"), fmt::format("the id '{}' comes twice.", call.id));
        }
        answered = !message.tool_calls.empty();
      }
      if (const auto refusal = fields.String("refusal"); refusal && content == nullptr)
        message.content = *refusal;
      if (content == nullptr && message.tool_calls.empty() && message.content.empty() &&
          !message.reasoning_apart) {
        trouble.Missing(fields.PathOf("content"));
      }
      fields.Refuse({"audio", "function_call"}, "tool_calls and text are what glint reads");
      fields.Ignore({"annotations", "phase"});
    } else if (*role == "user" || *role == "system" || *role == "developer") {
      message.role = *role == "user" ? Role::kUser : Role::kSystem;
      if (content == nullptr) trouble.Missing(fields.PathOf("content"));
    } else {
      trouble.Report(
          fields.PathOf("role"),
          fmt::format(
              "'{}' is none of the supported values: 'system', 'assistant', 'user', 'tool', and 'developer'.",
              *role));
    }
  }
  fields.RefuseOthers();
  request.messages.push_back(std::move(message));
}

void ReadMessages(Fields& fields, Trouble& trouble, GenerationRequest& request) {
  if (fields.Require("messages") == nullptr) return;
  const Json* messages = fields.Array("messages");
  if (messages == nullptr) return;
  if (messages->items().empty()) {
    trouble.Report("messages",
                   "empty array. Expected an array with minimum length 1, but got an empty array instead.",
                   "empty_array");
  }
  OpenCalls open;
  bool answered = false;
  for (size_t i = 0; i < messages->items().size() && trouble.ok(); ++i) {
    ReadMessage(messages->items()[i], trouble.Item("messages", i), trouble, open, answered, request);
  }
  RefuseOpen(open, trouble);
}

void ReadTools(Fields& fields, Trouble& trouble, GenerationRequest& request, std::set<std::string>& names) {
  const Json* tools = fields.Array("tools");
  if (tools == nullptr) return;
  if (tools->items().empty()) {
    trouble.Report("tools",
                   "empty array. Expected an array with minimum length 1, but got an empty array instead.",
                   "empty_array");
  } else if (tools->items().size() > kMostTools) {
    trouble.Report("tools",
                   fmt::format("array too long. Expected an array with maximum length {}, but got an array "
                               "with length {} instead.",
                               kMostTools, tools->items().size()),
                   "array_above_max_length");
  }
  for (size_t i = 0; i < tools->items().size() && trouble.ok(); ++i) {
    const Json& tool = tools->items()[i];
    Fields outer(trouble, tool, trouble.Item("tools", i));
    const auto type = outer.RequireString("type");
    if (!type) continue;
    if (*type != "function") {
      trouble.Report(outer.PathOf("type"),
                     fmt::format("'{}' is none of the supported values: 'function'.", *type));
      continue;
    }
    const Json* object = outer.Require("function");
    outer.Ignore({"cache_control"});
    outer.RefuseOthers();
    if (object == nullptr) continue;
    Fields function(trouble, *object, outer.PathOf("function"));
    const auto name = function.RequireString("name");
    (void)function.String("description");
    (void)function.Object("parameters");
    (void)function.Bool("strict");
    function.RefuseOthers();
    if (name) CheckToolName(*name, function.PathOf("name"), names, trouble);
    request.chat.tools.push_back(ToText(tool));
  }
}

void ReadToolChoice(Fields& fields, Trouble& trouble, const std::set<std::string>& names,
                    GenerationRequest& request) {
  const Json* choice = fields.Take("tool_choice");
  const auto parallel = fields.Bool("parallel_tool_calls");
  ToolChoice& out = request.tool_choice;
  out.parallel = parallel.value_or(true);
  if (parallel && names.empty()) {
    trouble.Say("parallel_tool_calls", "'parallel_tool_calls' is only allowed when 'tools' are specified.");
  }
  if (choice == nullptr) return;
  const auto word = AsString(*choice);
  if (word && *word == "none") {
    out.kind = ToolChoice::Kind::kNone;  // allowed without tools, where it means nothing
    return;
  }
  if (names.empty()) trouble.Say("tool_choice", "'tool_choice' is only allowed when 'tools' are specified.");
  if (word) {
    if (*word == "auto") return;
    if (*word == "required") {
      out.kind = ToolChoice::Kind::kRequired;
      return;
    }
    trouble.Report(
        "tool_choice",
        fmt::format("'{}' is none of the supported values: 'none', 'auto', and 'required'.", *word));
    return;
  }
  if (choice->kind() != Json::Kind::kObject)
    return trouble.WrongType("tool_choice", "a string or an object", *choice);
  Fields members(trouble, *choice, "tool_choice");
  const auto type = members.RequireString("type");
  if (!type) return;
  if (*type != "function") {
    trouble.Unsupported("tool_choice.type",
                        fmt::format("'{}' is none of the supported values: 'function'", *type));
    return;
  }
  const Json* function = members.Require("function");
  members.RefuseOthers();
  if (function == nullptr) return;
  Fields inner(trouble, *function, "tool_choice.function");
  const auto name = inner.RequireString("name");
  inner.RefuseOthers();
  if (!name) return;
  if (!names.contains(*name)) {
    trouble.Say("tool_choice", fmt::format("Tool choice '{}' not found in 'tools' parameter.", *name));
  }
  out.kind = ToolChoice::Kind::kNamed;
  out.name = *name;
}

void ReadResponseFormat(Fields& fields, Trouble& trouble, GenerationRequest& request) {
  const Json* format = fields.Object("response_format");
  if (format == nullptr) return;
  Fields members(trouble, *format, "response_format");
  if (members.Require("type") == nullptr) return;
  const auto type = members.Word("type", {"text", "json_object", "json_schema"});
  if (type && *type == "json_object") request.constraint.kind = Constraint::Kind::kJsonObject;
  if (type && *type == "json_schema") {
    const Json* object = members.Require("json_schema");
    if (object != nullptr) {
      Fields inner(trouble, *object, "response_format.json_schema");
      std::set<std::string> names;
      if (const auto name = inner.RequireString("name"))
        CheckToolName(*name, inner.PathOf("name"), names, trouble);
      (void)inner.String("description");
      (void)inner.Bool("strict");  // enforced either way
      const Json* schema = inner.Require("schema");
      inner.RefuseOthers();
      if (schema != nullptr) {
        if (schema->kind() != Json::Kind::kObject)
          trouble.WrongType(inner.PathOf("schema"), "an object", *schema);
        request.constraint = {Constraint::Kind::kJsonSchema, ToText(*schema)};
      }
    }
  }
  members.RefuseOthers();
}

void ReadReasoning(Fields& fields, Trouble& trouble, GenerationRequest& request) {
  if (const auto effort = ReadEffort(fields, "reasoning_effort")) SetEffort(*effort, request);
  if (const Json* thinking = fields.Object("thinking")) {
    Fields members(trouble, *thinking, "thinking");
    if (const auto type = members.Word("type", {"enabled", "disabled"}))
      request.skip_reasoning = *type == "disabled";
    if (const auto clear = members.Bool("clear_thinking")) request.chat.clear_thinking = *clear;
    members.RefuseOthers();
  }
  if (const auto on = fields.Bool("enable_thinking")) request.skip_reasoning = !*on;
  if (const Json* arguments = fields.Object("chat_template_kwargs")) {
    Fields members(trouble, *arguments, "chat_template_kwargs");
    for (const std::string_view key : {"enable_thinking", "thinking"}) {
      if (const auto on = members.Bool(key)) request.skip_reasoning = !*on;
    }
    if (const auto effort = ReadEffort(members, "reasoning_effort")) SetEffort(*effort, request);
    if (const auto clear = members.Bool("clear_thinking")) request.chat.clear_thinking = *clear;
    for (const Json::Member& member : arguments->members()) {
      static const std::set<std::string_view> kKnown{"enable_thinking", "thinking", "reasoning_effort",
                                                     "clear_thinking"};
      if (!kKnown.contains(member.key))
        request.warnings.push_back(
            fmt::format("chat_template_kwargs.{}: the template has no such switch", member.key));
    }
  }
}

struct Choice {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  size_t complete_calls = 0;
  std::string logprobs;  // JSON of the entries, joined
  Outcome outcome;
};

std::string_view FinishWord(FinishReason reason, bool calls) {
  if (reason == FinishReason::kLength) return "length";
  return calls && reason == FinishReason::kStop ? "tool_calls" : "stop";
}

class ChatWriter final : public ResponseWriter {
 public:
  ChatWriter(const GenerationRequest& request, ResponseNames names)
      : names_(std::move(names)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(request.logprobs.has_value()),
        show_reasoning_(request.show_reasoning),
        n_(request.n),
        choices_(request.choices()) {}

  std::string Begin(const Usage&) override {
    std::string frames;
    for (size_t i = 0; stream_ && i < choices_.size(); ++i) {
      JsonOut delta;
      delta.Begin('{').String("role", "assistant").String("content", "").Null("refusal").End('}');
      frames += Chunk(i, delta.Take());
    }
    return frames;
  }

  std::string Event(size_t choice, const AnswerEvent& event,
                    const std::vector<TokenLogprob>& tokens) override {
    Choice& c = choices_[choice];
    JsonOut delta;
    switch (event.kind) {
      case AnswerEvent::Kind::kReasoning:
        if (!show_reasoning_) return {};
        c.reasoning += event.text;
        delta.Begin('{').String("reasoning_content", event.text).End('}');
        return Chunk(choice, delta.Take());
      case AnswerEvent::Kind::kText: {
        c.content += event.text;
        const std::string entries = logprobs_ ? LogprobEntries(tokens) : "";
        c.logprobs += (c.logprobs.empty() || entries.empty() ? "" : ",") + entries;
        delta.Begin('{').String("content", event.text).End('}');
        return Chunk(choice, delta.Take(), entries);
      }
      case AnswerEvent::Kind::kCallBegin:
        c.calls.push_back({event.text, "", fmt::format("call_{}{:02}{:03}", names_.id, choice, event.call)});
        return CallChunk(choice, event.call, &c.calls.back(), "");
      case AnswerEvent::Kind::kCallArguments:
        c.calls.back().arguments += event.text;
        return CallChunk(choice, event.call, nullptr, event.text);
      case AnswerEvent::Kind::kCallEnd:
        c.complete_calls += !event.broken;
        return {};
      case AnswerEvent::Kind::kEnd:
        return {};
    }
    return {};
  }

  std::string Finish(size_t choice, const Outcome& outcome) override {
    Choice& c = choices_[choice];
    c.outcome = outcome;
    return Chunk(choice, "{}", "", FinishWord(outcome.reason, c.complete_calls > 0), &outcome);
  }

  std::string End() override {
    std::vector<Outcome> outcomes;
    for (const Choice& c : choices_) outcomes.push_back(c.outcome);
    const Outcome all = Together(outcomes, n_);
    if (!stream_) return Whole(all);
    std::string frames;
    if (include_usage_) {
      JsonOut out = Head("chat.completion.chunk");
      out.Key("choices").Begin('[').End(']').Key("usage");
      WriteUsage(all.usage, out);
      frames = DataFrame(out.End('}').Take());
    }
    return frames + std::string(kDoneFrame);
  }

  std::string Fail(const ApiError& error) override {
    return stream_ ? OpenAiErrorFrames(error) : OpenAiErrorBody(error);
  }

  std::string KeepAlive(const Progress& progress) override { return stream_ ? CommentFrame(progress) : ""; }

 private:
  JsonOut Head(std::string_view object) const {
    JsonOut out;
    out.Begin('{')
        .String("id", "chatcmpl-" + names_.id)
        .String("object", object)
        .Integer("created", names_.created);
    out.String("model", names_.model).String("service_tier", "default");
    if (names_.fingerprint.empty()) {
      out.Null("system_fingerprint");
    } else {
      out.String("system_fingerprint", names_.fingerprint);
    }
    return out;
  }

  void WriteLogprobs(std::string_view entries, bool wanted, JsonOut& out) const {
    if (!wanted) {
      out.Null("logprobs");
    } else {
      out.Key("logprobs")
          .Begin('{')
          .Key("content")
          .Raw(fmt::format("[{}]", entries))
          .Null("refusal")
          .End('}');
    }
  }

  std::string Chunk(size_t choice, std::string_view delta, std::string_view entries = "",
                    std::string_view finish = "", const Outcome* outcome = nullptr) const {
    if (!stream_) return {};
    JsonOut out = Head("chat.completion.chunk");
    out.Key("choices").Begin('[').Begin('{').Integer("index", uint64_t{choice}).Key("delta").Raw(delta);
    WriteLogprobs(entries, !entries.empty(), out);
    if (finish.empty()) {
      out.Null("finish_reason");
    } else {
      out.String("finish_reason", finish);
    }
    out.End('}').End(']');
    if (include_usage_) out.Null("usage");
    if (outcome != nullptr) {
      out.Key("timings");
      WriteTimings(*outcome, out);
    }
    return DataFrame(out.End('}').Take());
  }

  std::string CallChunk(size_t choice, size_t index, const ToolCall* begun,
                        std::string_view arguments) const {
    JsonOut delta;
    delta.Begin('{').Key("tool_calls").Begin('[').Begin('{').Integer("index", uint64_t{index});
    if (begun != nullptr) delta.String("id", begun->id).String("type", "function");
    delta.Key("function").Begin('{');
    if (begun != nullptr) delta.String("name", begun->name);
    delta.String("arguments", arguments).End('}').End('}').End(']').End('}');
    return Chunk(choice, delta.Take());
  }

  std::string Whole(const Outcome& all) const {
    JsonOut out = Head("chat.completion");
    out.Key("choices").Begin('[');
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& c = choices_[i];
      out.Begin('{').Integer("index", uint64_t{i}).Key("message").Begin('{').String("role", "assistant");
      // Null only beside calls: an answer that ends with its reasoning has said nothing, but it is an answer.
      if (c.content.empty() && !c.calls.empty()) {
        out.Null("content");
      } else {
        out.String("content", c.content);
      }
      out.Null("refusal").Key("annotations").Begin('[').End(']');
      if (!c.reasoning.empty()) out.String("reasoning_content", c.reasoning);
      if (!c.calls.empty()) {
        out.Key("tool_calls").Begin('[');
        for (const ToolCall& call : c.calls) {
          out.Begin('{').String("id", call.id).String("type", "function").Key("function").Begin('{');
          out.String("name", call.name).String("arguments", call.arguments).End('}').End('}');
        }
        out.End(']');
      }
      out.End('}');
      WriteLogprobs(c.logprobs, logprobs_, out);
      out.String("finish_reason", FinishWord(c.outcome.reason, c.complete_calls > 0)).End('}');
    }
    out.End(']').Key("usage");
    WriteUsage(all.usage, out);
    out.Key("timings");
    WriteTimings(all, out);
    return out.End('}').Take();
  }

  ResponseNames names_;
  bool stream_, include_usage_, logprobs_, show_reasoning_;
  size_t n_;
  std::vector<Choice> choices_;
};

}  // namespace

Parsed<GenerationRequest> ParseOpenAiChat(std::string_view body, const RequestLimits& limits) {
  Parsed<Json> root = ParseBody(body, Dialect::kOpenAi);
  if (auto* error = std::get_if<ApiError>(&root)) return std::move(*error);
  Trouble trouble;
  Fields fields(trouble, std::get<Json>(root), "");
  GenerationRequest request;
  ReadOpenAiCommon(fields, trouble, limits, request);
  ReadMessages(fields, trouble, request);
  std::set<std::string> names;
  ReadTools(fields, trouble, request, names);
  ReadToolChoice(fields, trouble, names, request);
  ReadResponseFormat(fields, trouble, request);
  ReadReasoning(fields, trouble, request);

  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto most = fields.Integer("max_tokens", 1, kMost),
             most_completion = fields.Integer("max_completion_tokens", 1, kMost);
  if (most && most_completion) {
    trouble.Say("max_tokens",
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.");
  }
  if (most || most_completion) request.max_tokens = static_cast<uint32_t>(most ? *most : *most_completion);

  const bool logprobs = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, 20);
  if (top && !logprobs)
    trouble.Say("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is enabled.");
  if (logprobs) request.logprobs = static_cast<uint32_t>(top.value_or(0));

  if (const Json* modalities = fields.Array("modalities")) {
    for (const Json& item : modalities->items())
      if (AsString(item) != "text") trouble.Unsupported("modalities", "this model writes text alone");
  }
  fields.Refuse({"audio", "web_search_options", "moderation"}, "this server has nothing of the kind");
  fields.Refuse({"functions", "function_call"}, "deprecated; use 'tools' and 'tool_choice'");
  (void)fields.Word("verbosity", {"low", "medium", "high"});
  fields.Ignore({"metadata", "prediction", "prompt_cache_key", "prompt_cache_options",
                 "prompt_cache_retention", "safety_identifier", "service_tier", "store"});
  fields.RefuseOthers();
  if (!trouble.ok()) return *trouble.error;
  return request;
}

std::unique_ptr<ResponseWriter> MakeOpenAiChatWriter(const GenerationRequest& request, ResponseNames names) {
  return std::make_unique<ChatWriter>(request, std::move(names));
}

}  // namespace glint::serve
