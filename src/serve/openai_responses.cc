#include "serve/openai_responses.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "base/printable.h"
#include "serve/api_error.h"
#include "serve/openai_common.h"
#include "serve/tools.h"

namespace glint::serve {
namespace {

constexpr size_t kMostTools = 128;
constexpr size_t kMostMetadata = 16, kMetadataKey = 64, kMetadataValue = 512;
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

std::string Quote(std::string_view text) { return JsonOut().String(text).Take(); }
std::string Number(double value) { return JsonOut().Number(value).Take(); }

ApiError BadId(std::string_view param, std::string_view id) {
  return {400,
          fmt::format("Invalid '{}': {}. Expected an ID that begins with 'resp', as a response has it.",
                      param, Quoted(id, 160)),
          std::string(param), "invalid_value"};
}

ApiError NotFound(std::string_view id) {
  return {404, fmt::format("Response with id '{}' not found.", Printable(id))};
}

// What is read, and what the response says of it.
class Reader {
 public:
  Reader(const Json& root, const RequestLimits& limits, ResponseStore* store)
      : fields_(trouble_, root, ""), limits_(limits), store_(store) {}

  Parsed<ResponsesRequest> Read() {
    ReadOpenAiSampling(fields_, trouble_, limits_, generation());
    if (const auto id = fields_.String("previous_response_id")) request_.previous = *id;
    ReadTools();
    ReadToolChoice();
    ReadText();
    ReadReasoning();
    ReadInclude();
    ReadMetadata();
    ReadRest();
    ReadInput();
    fields_.RefuseOthers();
    if (!trouble_.ok()) return *trouble_.error;
    WriteEcho();
    return std::move(request_);
  }

 private:
  GenerationRequest& generation() { return request_.generation; }

  void ReadTools() {
    const Json* tools = fields_.Array("tools");
    if (tools == nullptr) return;
    if (tools->items().size() > kMostTools) {
      trouble_.Report("tools",
                      fmt::format("array too long. Expected an array with maximum length {}, but got an "
                                  "array with length {} instead.",
                                  kMostTools, tools->items().size()),
                      "array_above_max_length");
    }
    JsonOut said;
    said.Begin('[');
    for (size_t i = 0; i < tools->items().size() && trouble_.ok(); ++i) {
      Fields tool(trouble_, tools->items()[i], trouble_.Item("tools", i));
      const auto type = tool.RequireString("type");
      if (!type) return;
      if (*type != "function") {
        return trouble_.Unsupported(
            tool.PathOf("type"),
            fmt::format("'{}'; this server runs no tools of its own, and takes 'function' alone",
                        Printable(*type)));
      }
      const auto name = tool.RequireString("name");
      const auto description = tool.String("description");
      const Json* parameters = tool.Object("parameters");
      const auto strict =
          tool.Bool("strict");  // calls that must come are held to it either way, free ones never
      tool.Ignore({"allowed_callers", "async", "cache_control", "defer_loading", "output_schema"});
      tool.RefuseOthers();
      if (!name) return;
      CheckToolName(*name, tool.PathOf("name"), names_, trouble_);
      generation().chat.tools.push_back(ToolJson(*name, description.value_or(""), parameters));
      said.Begin('{').String("type", "function");
      Optional(said, "description", description);
      said.String("name", *name).Key("parameters").Raw(parameters != nullptr ? ToText(*parameters) : "null");
      said.Key("strict").Raw(strict ? (*strict ? "true" : "false") : "null").End('}');
    }
    tools_ = said.End(']').Take();
  }

  void ReadToolChoice() {
    ToolChoice& out = generation().tool_choice;
    out.parallel = fields_.Bool("parallel_tool_calls").value_or(true);
    const Json* choice = fields_.Take("tool_choice");
    if (choice == nullptr) return;
    const auto word = AsString(*choice);
    if (word && (*word == "none" || *word == "auto" || *word == "required")) {
      if (*word == "none") out.kind = ToolChoice::Kind::kNone;
      if (*word == "required") out.kind = ToolChoice::Kind::kRequired;
      if (*word == "required" && names_.empty())
        trouble_.Say("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.");
      tool_choice_ = Quote(*word);
      return;
    }
    if (word) {
      return trouble_.Report(
          "tool_choice",
          fmt::format("'{}' is none of the supported values: 'none', 'auto', and 'required'.", *word));
    }
    if (choice->kind() != Json::Kind::kObject)
      return trouble_.WrongType("tool_choice", "a string or an object", *choice);
    Fields members(trouble_, *choice, "tool_choice");
    const auto type = members.RequireString("type");
    if (!type) return;
    if (*type != "function")
      return trouble_.Unsupported(
          "tool_choice.type",
          fmt::format("'{}' is none of the supported values: 'function'", Printable(*type)));
    const auto name = members.RequireString("name");
    members.RefuseOthers();
    if (!name) return;
    if (!names_.contains(*name))
      trouble_.Say("tool_choice", fmt::format("Tool choice '{}' not found in 'tools' parameter.", *name));
    out.kind = ToolChoice::Kind::kNamed;
    out.name = *name;
    tool_choice_ = JsonOut().Begin('{').String("type", "function").String("name", *name).End('}').Take();
  }

  void ReadText() {
    std::string format = R"({"type":"text"})", verbosity = "medium";
    if (const Json* text = fields_.Object("text")) {
      Fields members(trouble_, *text, "text");
      verbosity = members.Word("verbosity", {"low", "medium", "high"}).value_or("medium");
      if (const Json* json = members.Object("format")) format = ReadFormat(*json);
      members.RefuseOthers();
    }
    text_ = JsonOut().Begin('{').Key("format").Raw(format).String("verbosity", verbosity).End('}').Take();
  }

  std::string ReadFormat(const Json& json) {
    Fields format(trouble_, json, "text.format");
    JsonOut said;
    said.Begin('{');
    if (format.Require("type") == nullptr) return "null";
    const auto type = format.Word("type", {"text", "json_object", "json_schema"});
    if (!type) return "null";
    said.String("type", *type);
    Constraint& constraint = generation().constraint;
    if (*type == "json_object") constraint.kind = Constraint::Kind::kJsonObject;
    if (*type == "json_schema") {
      std::set<std::string> names;
      const auto name = format.RequireString("name");
      if (name) CheckToolName(*name, format.PathOf("name"), names, trouble_);
      const auto description = format.String("description");
      const bool strict = format.Bool("strict").value_or(false);  // enforced either way
      const Json* schema = format.Require("schema");
      if (schema != nullptr && schema->kind() != Json::Kind::kObject)
        trouble_.WrongType(format.PathOf("schema"), "an object", *schema);
      if (!trouble_.ok()) return "null";
      constraint = {Constraint::Kind::kJsonSchema, ToText(*schema)};
      Optional(said, "description", description);
      said.String("name", *name).Key("schema").Raw(constraint.schema).Key("strict").Bool(strict);
    }
    format.RefuseOthers();
    return said.End('}').Take();
  }

  void ReadReasoning() {
    std::optional<std::string> effort, summary;
    if (const Json* reasoning = fields_.Object("reasoning")) {
      Fields members(trouble_, *reasoning, "reasoning");
      effort = ReadEffort(members, "effort");
      if (effort) SetEffort(*effort, generation());
      summary = members.Word("summary", {"auto", "concise", "detailed", "none"});
      const auto old_name = members.Word("generate_summary", {"auto", "concise", "detailed"});
      if (!summary) summary = old_name;
      if (summary == "none") summary.reset();
      request_.reasoning_as_summary = summary.has_value();
      const auto context = members.Word("context", {"auto", "current_turn", "all_turns"});
      if (context) generation().chat.clear_thinking = *context == "current_turn";
      members.Ignore({"mode"});
      members.RefuseOthers();
    }
    JsonOut said;
    said.Begin('{');
    Optional(said, "effort", effort);
    Optional(said, "summary", summary);
    reasoning_ = said.End('}').Take();
  }

  void ReadInclude() {
    static const std::set<std::string_view> kKnown{"file_search_call.results",
                                                   "web_search_call.results",
                                                   "web_search_call.action.sources",
                                                   "message.input_image.image_url",
                                                   "computer_call_output.output.image_url",
                                                   "code_interpreter_call.outputs",
                                                   "reasoning.encrypted_content",
                                                   "message.output_text.logprobs"};
    const auto top = fields_.Integer("top_logprobs", 0, 20);
    top_logprobs_ = static_cast<uint32_t>(top.value_or(0));
    const Json* include = fields_.Array("include");
    if (include == nullptr) return;
    for (size_t i = 0; i < include->items().size(); ++i) {
      const std::string path = trouble_.Item("include", i);
      const auto word = AsString(include->items()[i]);
      if (!word) return trouble_.WrongType(path, "a string", include->items()[i]);
      if (!kKnown.contains(*word)) {
        std::string list;
        for (const std::string_view known : kKnown)
          list += fmt::format("{}'{}'", list.empty() ? "" : ", ", known);
        return trouble_.Report(
            path, fmt::format("'{}' is none of the supported values: {}.", Printable(*word), list));
      }
      request_.sealed_reasoning |= *word == "reasoning.encrypted_content";
      if (*word == "message.output_text.logprobs") generation().logprobs = top_logprobs_;
    }
  }

  void ReadMetadata() {
    const Json* metadata = fields_.Object("metadata");
    if (metadata == nullptr) return;
    if (metadata->members().size() > kMostMetadata) {
      trouble_.Report(
          "metadata",
          fmt::format(
              "too many properties. Expected an object with at most {} properties, but got an object with {} "
              "properties instead.",
              kMostMetadata, metadata->members().size()),
          "object_above_max_properties");
    }
    for (const Json::Member& member : metadata->members()) {
      const std::string path = trouble_.Member("metadata", member.key);
      const auto value = AsString(member.value);
      if (!value) return trouble_.WrongType(path, "a string", member.value);
      if (member.key.size() > 4 * kMetadataKey || value->size() > 4 * kMetadataValue) {
        return trouble_.Report(
            path, fmt::format("a key has at most {} characters, its value {}.", kMetadataKey, kMetadataValue),
            "string_above_max_length");
      }
    }
    metadata_ = ToText(*metadata);
  }

  void ReadRest() {
    GenerationRequest& generation = request_.generation;
    instructions_ = fields_.String("instructions");
    const auto most = fields_.Integer("max_output_tokens", 1, kMost);
    if (most) generation.max_tokens = static_cast<uint32_t>(*most);
    most_calls_ = fields_.Integer("max_tool_calls", 1, kMost);  // of tools that the server runs: none
    generation.stream = fields_.Bool("stream").value_or(false);
    if (const Json* options = fields_.Object("stream_options")) {
      if (!generation.stream)
        trouble_.Say("stream_options",
                     "The 'stream_options' parameter is only allowed when 'stream' is enabled.");
      Fields members(trouble_, *options, "stream_options");
      (void)members.Bool("include_obfuscation");
      members.RefuseOthers();
    }
    request_.store = fields_.Bool("store").value_or(true);
    truncation_ = fields_.Word("truncation", {"auto", "disabled"}).value_or("disabled");
    user_ = fields_.String("user");
    safety_identifier_ = fields_.String("safety_identifier");
    cache_key_ = fields_.String("prompt_cache_key");
    cache_retention_ = fields_.Word("prompt_cache_retention", {"in_memory", "in-memory", "24h"});
    if (fields_.Bool("background").value_or(false)) {
      trouble_.Unsupported("background",
                           "this server answers while the client waits, with 'stream' as it writes; it runs "
                           "nothing in the background");
    }
    fields_.Refuse({"conversation"},
                   "this server keeps responses, and no conversations; use 'previous_response_id'");
    fields_.Refuse({"prompt"}, "this server keeps no templates of prompts; use 'instructions' and 'input'");
    fields_.Refuse({"context_management"}, "this server shortens no conversation");
    fields_.Refuse({"moderation"}, "this server has nothing of the kind");
    fields_.Ignore(
        {"access_programs", "background_options", "image", "prompt_cache_options", "service_tier"});
  }

  // The conversation: instructions, what was said before, and the input.
  void ReadInput() {
    const Json* input = fields_.Take("input");
    if (input == nullptr && request_.previous.empty() && trouble_.ok()) {
      trouble_.error = ApiError{
          400,
          "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
          "input", "missing_required_parameter"};
    }
    if (!trouble_.ok()) return;
    std::vector<Message>& messages = generation().messages;
    if (instructions_ && !instructions_->empty()) messages.push_back({Role::kSystem, *instructions_});
    ItemConversation conversation(trouble_, messages);
    if (!request_.previous.empty()) ReadPrevious(conversation);
    request_.old_messages = messages.size();
    if (input != nullptr) ReadItems(*input, conversation);
    if (trouble_.ok()) conversation.Finish();
    if (trouble_.ok() && messages.empty()) {
      trouble_.Report("input",
                      "empty array. Expected an array with minimum length 1, but got an empty array instead.",
                      "empty_array");
    }
  }

  void ReadPrevious(ItemConversation& conversation) {
    if (!IsResponseId(request_.previous)) {
      trouble_.error = BadId("previous_response_id", request_.previous);
      return;
    }
    std::optional<StoredConversation> found;
    if (store_ != nullptr) {
      Result<std::optional<StoredConversation>> stored = store_->Conversation(request_.previous);
      if (!stored.ok()) {
        trouble_.error = FromStatus(stored.status(), "previous_response_id");
        return;
      }
      found = std::move(stored).value();
    }
    if (!found) {
      trouble_.error =
          ApiError{400, fmt::format("Previous response with id '{}' not found.", request_.previous),
                   "previous_response_id", "previous_response_not_found"};
      return;
    }
    JsonOut all;
    all.Begin('[');
    for (const std::string& text : found->items) {
      const Result<Json> items = ParseJson(text, "stored items", {.depth = 72});
      if (!items.ok()) {
        trouble_.error = FromStatus(Status(Code::kInternal, items.status().message()));
        return;
      }
      for (const Json& json : items->items()) {
        const auto item = ReadItem(json, "previous_response_id", trouble_);
        if (!item) return;
        conversation.Add(*item, "previous_response_id");
        WriteItem(*item, all);
      }
    }
    request_.before = all.End(']').Take();
    request_.previous_tokens = std::move(found->tokens);
  }

  void ReadItems(const Json& input, ItemConversation& conversation) {
    if (const auto text = AsString(input)) {
      ResponseItem item;
      item.role = "user";
      item.parts = {{"input_text", *text}};
      conversation.Add(item, "input");
      request_.input.push_back(std::move(item));
      return;
    }
    if (input.kind() != Json::Kind::kArray)
      return trouble_.WrongType("input", "a string or an array of items", input);
    for (size_t i = 0; i < input.items().size() && trouble_.ok(); ++i) {
      const std::string path = trouble_.Item("input", i);
      const Json& json = input.items()[i];
      const auto reference = ItemReference(json);
      auto item = reference ? ReadReference(*reference) : ReadItem(json, path, trouble_);
      if (!item) return;
      conversation.Add(*item, path);
      request_.input.push_back(std::move(*item));
    }
  }

  std::optional<ResponseItem> ReadReference(const std::string& id) {
    const std::string response = ResponseOfItem(id);
    if (store_ != nullptr && IsResponseId(response)) {
      const Result<std::optional<StoredResponse>> stored = store_->Get(response);
      if (!stored.ok()) {
        trouble_.error = FromStatus(stored.status(), "input");
        return {};
      }
      if (stored->has_value()) {
        for (const std::string* text : {&(*stored)->input, &(*stored)->output}) {
          const Result<Json> items = ParseJson(*text, "stored items", {.depth = 72});
          if (!items.ok()) continue;
          for (const Json& json : items->items()) {
            const Json* other = json.Find("id");
            if (other != nullptr && AsString(*other) == id) return ReadItem(json, "input", trouble_);
          }
        }
      }
    }
    if (trouble_.ok()) {
      trouble_.error = ApiError{
          404,
          fmt::format(
              "Item with id '{}' not found. Items are kept with the responses that have them, and those "
              "with 'store' alone.",
              Printable(id)),
          "input"};
    }
    return {};
  }

  template <class Text>
  static void Optional(JsonOut& out, std::string_view key, const std::optional<Text>& text) {
    if (text) {
      out.String(key, *text);
    } else {
      out.Null(key);
    }
  }
  static std::string OrNull(const std::optional<std::string>& text) { return text ? Quote(*text) : "null"; }
  static std::string OrNull(const std::optional<int64_t>& value) {
    return value ? std::to_string(*value) : "null";
  }

  // A float as it was asked for: 0.7, and not 0.699999988079071.
  static std::string Shortest(float value) {
    const std::string text = fmt::format("{}", value);
    double number = value;
    (void)std::from_chars(text.data(), text.data() + text.size(), number);
    return Number(number);
  }

  void WriteEcho() {
    const GenerationRequest& g = request_.generation;
    request_.echo = {
        {"instructions", OrNull(instructions_)},
        {"max_output_tokens", g.max_tokens ? std::to_string(*g.max_tokens) : "null"},
        {"max_tool_calls", OrNull(most_calls_)},
        {"parallel_tool_calls", g.tool_choice.parallel ? "true" : "false"},
        {"previous_response_id", request_.previous.empty() ? "null" : Quote(request_.previous)},
        {"prompt_cache_key", OrNull(cache_key_)},
        {"prompt_cache_retention",
         cache_retention_ == "in-memory" ? "\"in_memory\"" : OrNull(cache_retention_)},
        {"reasoning", reasoning_},
        {"safety_identifier", OrNull(safety_identifier_)},
        {"service_tier", "\"default\""},
        {"temperature", Shortest(g.sampler.temperature)},
        {"text", text_},
        {"tool_choice", tool_choice_},
        {"tools", tools_},
        {"top_logprobs", std::to_string(top_logprobs_)},
        {"top_p", Shortest(g.sampler.top_p)},
        {"truncation", Quote(truncation_)},
        {"user", OrNull(user_)},
        {"metadata", metadata_},
    };
  }

  Trouble trouble_;
  Fields fields_;
  const RequestLimits& limits_;
  ResponseStore* store_;
  ResponsesRequest request_;
  std::set<std::string> names_;  // of tools
  uint32_t top_logprobs_ = 0;
  std::optional<int64_t> most_calls_;
  std::optional<std::string> instructions_, user_, safety_identifier_, cache_key_, cache_retention_;
  std::string truncation_;
  // JSON.
  std::string tools_ = "[]", tool_choice_ = "\"auto\"", text_, reasoning_, metadata_ = "{}";
};

Parsed<StoredResponse> Find(ResponseStore* store, std::string_view id) {
  if (!IsResponseId(id)) return BadId("response_id", id);
  if (store == nullptr) return NotFound(id);
  Result<std::optional<StoredResponse>> found = store->Get(id);
  if (!found.ok()) return FromStatus(found.status());
  if (!found->has_value()) return NotFound(id);
  return std::move(**found);
}

std::string_view Value(const QueryPairs& query, std::string_view key) {
  for (const auto& [name, value] : query)
    if (name == key) return value;
  return {};
}

}  // namespace

Parsed<ResponsesRequest> ParseOpenAiResponses(std::string_view body, const RequestLimits& limits,
                                              ResponseStore* store) {
  Parsed<Json> root = ParseBody(body, Dialect::kOpenAi);
  if (auto* error = std::get_if<ApiError>(&root)) return std::move(*error);
  return Reader(std::get<Json>(root), limits, store).Read();
}

Parsed<std::string> OpenAiResponseBody(ResponseStore* store, std::string_view id, const QueryPairs& query) {
  Parsed<StoredResponse> found = Find(store, id);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const std::string_view stream = Value(query, "stream");
  if (stream == "true" || stream == "1" || !Value(query, "starting_after").empty()) {
    return ApiError{400, "This response cannot be streamed because it was not created with background=true.",
                    "stream"};
  }
  return std::move(std::get<StoredResponse>(found).body);
}

Parsed<std::string> OpenAiDeleteResponse(ResponseStore* store, std::string_view id) {
  if (!IsResponseId(id)) return BadId("response_id", id);
  if (store == nullptr) return NotFound(id);
  const Result<bool> gone = store->Delete(id);
  if (!gone.ok()) return FromStatus(gone.status());
  if (!*gone) return NotFound(id);
  return JsonOut()
      .Begin('{')
      .String("id", id)
      .String("object", "response")
      .Key("deleted")
      .Bool(true)
      .End('}')
      .Take();
}

Parsed<std::string> OpenAiInputItems(ResponseStore* store, std::string_view id, const QueryPairs& query) {
  Parsed<StoredResponse> found = Find(store, id);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const std::string_view limit_text = Value(query, "limit"), order = Value(query, "order"),
                         after = Value(query, "after");
  int64_t limit = 20;
  if (!limit_text.empty()) {
    const char* const end = limit_text.data() + limit_text.size();
    const auto read = std::from_chars(limit_text.data(), end, limit);
    if (read.ec != std::errc() || read.ptr != end || limit < 1 || limit > 100) {
      return ApiError{400,
                      fmt::format("Invalid 'limit': expected an integer from 1 to 100, but got {} instead.",
                                  Quoted(limit_text)),
                      "limit", "invalid_value"};
    }
  }
  if (!order.empty() && order != "asc" && order != "desc") {
    return ApiError{
        400,
        fmt::format("Invalid 'order': {} is none of the supported values: 'asc' and 'desc'.", Quoted(order)),
        "order", "invalid_value"};
  }
  const Result<Json> items = ParseJson(std::get<StoredResponse>(found).input, "stored items", {.depth = 72});
  if (!items.ok()) return FromStatus(Status(Code::kInternal, items.status().message()));
  std::vector<const Json*> list;
  for (const Json& item : items->items()) list.push_back(&item);
  if (order != "asc") std::reverse(list.begin(), list.end());
  const auto id_of = [](const Json* item) {
    return item->Get<std::string>("id").ok() ? item->Get<std::string>("id").value() : "";
  };
  auto first = list.begin();
  if (!after.empty()) {
    first = std::find_if(list.begin(), list.end(), [&](const Json* item) { return id_of(item) == after; });
    if (first == list.end()) {
      return ApiError{400,
                      fmt::format("Invalid 'after': this response has no input item {}.", Quoted(after, 160)),
                      "after", "invalid_value"};
    }
    ++first;
  }
  const auto last = list.end() - first > limit ? first + limit : list.end();
  JsonOut out;
  out.Begin('{').String("object", "list").Key("data").Begin('[');
  for (auto item = first; item != last; ++item) out.Raw(ToText(**item));
  out.End(']');
  if (first == last) {
    out.Null("first_id").Null("last_id");
  } else {
    out.String("first_id", id_of(*first)).String("last_id", id_of(*(last - 1)));
  }
  return out.Key("has_more").Bool(last != list.end()).End('}').Take();
}

ApiError OpenAiCancelResponse(ResponseStore* store, std::string_view id) {
  Parsed<StoredResponse> found = Find(store, id);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  return {400, "Cannot cancel a synchronous response."};
}

}  // namespace glint::serve
