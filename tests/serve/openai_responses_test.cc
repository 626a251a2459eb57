#include "serve/openai_responses.h"

#include <algorithm>

#include "base/json.h"
#include "serve/api_error.h"
#include "tests/serve/api_test_support.h"

namespace glint::serve {
namespace {

const std::string kTool =
    R"({"type":"function","name":"get","description":"d","parameters":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number","maximum":1.50}}},"strict":true})";

std::string Body(const std::string& more) {
  return R"({"model":"m","input":"hi")" + (more.empty() ? "" : "," + more) + "}";
}
std::string WithInput(const std::string& input, const std::string& more = "") {
  return R"({"model":"m","input":)" + input + more + "}";
}

ResponsesRequest Read(const std::string& body, ResponseStore* store = nullptr) {
  Parsed<ResponsesRequest> parsed = ParseOpenAiResponses(body, TestLimits(), store);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << body << "\nrefused: " << error->message;
    return {};
  }
  return std::get<ResponsesRequest>(std::move(parsed));
}

ApiError Refused(const std::string& body, ResponseStore* store = nullptr) {
  const Parsed<ResponsesRequest> parsed = ParseOpenAiResponses(body, TestLimits(), store);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return *error;
  ADD_FAILURE() << body << "\naccepted";
  return {};
}

std::string Echo(const ResponsesRequest& r, std::string_view key) {
  for (const auto& [name, json] : r.echo)
    if (name == key) return json;
  return "none";
}

std::unique_ptr<ResponseStore> MemoryStore() { return std::move(ResponseStore::Open({})).value(); }

TEST(OpenAiResponses, Defaults) {
  const ResponsesRequest r = Read(Body(""));
  const GenerationRequest& g = r.generation;
  EXPECT_EQ(g.model, "m");
  ASSERT_EQ(g.messages.size(), 1u);
  EXPECT_EQ(g.messages[0].role, Role::kUser);
  EXPECT_EQ(g.messages[0].content, "hi");
  EXPECT_TRUE(r.store);
  EXPECT_FALSE(g.stream);
  EXPECT_FALSE(g.logprobs.has_value());
  EXPECT_FALSE(g.max_tokens.has_value());
  EXPECT_EQ(g.n, 1u);
  EXPECT_EQ(g.tool_choice, ToolChoice{});
  EXPECT_EQ(g.constraint, Constraint{});
  EXPECT_TRUE(g.show_reasoning);
  EXPECT_FALSE(r.reasoning_as_summary);
}

struct Accepted {
  std::string more;
  bool (*holds)(const ResponsesRequest&);
};

TEST(OpenAiResponses, EachFieldArrives) {
  using R = const ResponsesRequest&;
  const std::vector<Accepted> cases{
      {R"("temperature":0.7,"top_p":0.9)",
       [](R r) {
         return r.generation.sampler.temperature == 0.7f && r.generation.sampler.top_p == 0.9f &&
                Echo(r, "temperature") == "0.7" && Echo(r, "top_p") == "0.9";
       }},
      {R"("seed":5,"top_k":3,"presence_penalty":1,"stop":["x"])",
       [](R r) {
         const auto& g = r.generation;
         return g.seeded && g.sampler.seed == 5 && g.sampler.top_k == 3 && g.sampler.presence_penalty == 1 &&
                g.stop.size() == 1;
       }},
      {R"("max_output_tokens":7)",
       [](R r) { return r.generation.max_tokens == 7u && Echo(r, "max_output_tokens") == "7"; }},
      {R"("stream":true,"stream_options":{"include_obfuscation":false})",
       [](R r) { return r.generation.stream; }},
      {R"("store":false)", [](R r) { return !r.store; }},
      {R"("instructions":"be brief")",
       [](R r) {
         const auto& m = r.generation.messages;
         return m.size() == 2 && m[0].role == Role::kSystem && m[0].content == "be brief" &&
                r.old_messages == 1 && Echo(r, "instructions") == "\"be brief\"";
       }},
      {R"("reasoning":{"effort":"none"})", [](R r) { return r.generation.skip_reasoning; }},
      {R"("reasoning":{"effort":"minimal","summary":null})",
       [](R r) {
         return r.generation.chat.reasoning_effort == "low" &&
                Echo(r, "reasoning") == R"({"effort":"minimal","summary":null})";
       }},
      {R"("reasoning":{"effort":"high","summary":"auto"})",
       [](R r) {
         return r.generation.chat.reasoning_effort == "high" && r.reasoning_as_summary &&
                Echo(r, "reasoning") == R"({"effort":"high","summary":"auto"})";
       }},
      {R"("reasoning":{"generate_summary":"concise"})", [](R r) { return r.reasoning_as_summary; }},
      {R"("reasoning":{"context":"current_turn"})", [](R r) { return r.generation.chat.clear_thinking; }},
      {R"("reasoning":{"context":"all_turns"})", [](R r) { return !r.generation.chat.clear_thinking; }},
      {R"("include":["reasoning.encrypted_content"])",
       [](R r) { return r.sealed_reasoning && !r.generation.logprobs; }},
      {R"("include":["message.output_text.logprobs"],"top_logprobs":4)",
       [](R r) { return r.generation.logprobs == 4u && Echo(r, "top_logprobs") == "4"; }},
      {R"("top_logprobs":4)", [](R r) { return !r.generation.logprobs; }},
      {R"("text":{"format":{"type":"json_object"},"verbosity":"low"})",
       [](R r) {
         return r.generation.constraint.kind == Constraint::Kind::kJsonObject &&
                Echo(r, "text") == R"({"format":{"type":"json_object"},"verbosity":"low"})";
       }},
      {R"("text":{"format":{"type":"json_schema","name":"s","strict":true,"schema":{"type":"object","b":1,"a":[1.50,null]}}})",
       [](R r) {
         return r.generation.constraint ==
                    Constraint{Constraint::Kind::kJsonSchema, R"({"type":"object","b":1,"a":[1.5,null]})"} &&
                Echo(r, "text") ==
                    R"({"format":{"type":"json_schema","description":null,"name":"s","schema":{"type":"object","b":1,"a":[1.5,null]},"strict":true},"verbosity":"medium"})";
       }},
      {R"("metadata":{"k":"v"},"user":"u","prompt_cache_key":"p","safety_identifier":"s","prompt_cache_retention":"24h")",
       [](R r) {
         return Echo(r, "metadata") == R"({"k":"v"})" && Echo(r, "user") == "\"u\"" &&
                Echo(r, "prompt_cache_key") == "\"p\"" && Echo(r, "safety_identifier") == "\"s\"" &&
                Echo(r, "prompt_cache_retention") == "\"24h\"";
       }},
      {R"("truncation":"auto","parallel_tool_calls":false)",
       [](R r) {
         return Echo(r, "truncation") == "\"auto\"" && !r.generation.tool_choice.parallel &&
                Echo(r, "parallel_tool_calls") == "false";
       }},
      {R"("background":false,"conversation":null,"service_tier":"flex","max_tool_calls":3,"prompt_cache_options":{"mode":"implicit"})",
       [](R r) { return Echo(r, "service_tier") == "\"default\"" && Echo(r, "max_tool_calls") == "3"; }},
      {R"("tools":[],"tool_choice":"none")",
       [](R r) { return r.generation.tool_choice.kind == ToolChoice::Kind::kNone; }},
  };
  for (const Accepted& c : cases) EXPECT_TRUE(c.holds(Read(Body(c.more)))) << c.more;
}

TEST(OpenAiResponses, Tools) {
  const ResponsesRequest r =
      Read(Body("\"tools\":[" + kTool + R"(],"tool_choice":"required","parallel_tool_calls":false)"));
  ASSERT_EQ(r.generation.chat.tools.size(), 1u);
  // As chat completions have it, since the template wants it so.
  EXPECT_EQ(
      r.generation.chat.tools[0],
      R"({"type":"function","function":{"name":"get","description":"d","parameters":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number","maximum":1.5}}}}})");
  EXPECT_EQ(r.generation.tool_choice, (ToolChoice{ToolChoice::Kind::kRequired, "", false}));
  EXPECT_EQ(Echo(r, "tool_choice"), "\"required\"");
  EXPECT_EQ(
      Echo(r, "tools"),
      R"([{"type":"function","description":"d","name":"get","parameters":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number","maximum":1.5}}},"strict":true}])");
  const ResponsesRequest named =
      Read(Body("\"tools\":[" + kTool + R"(],"tool_choice":{"type":"function","name":"get"})"));
  EXPECT_EQ(named.generation.tool_choice, (ToolChoice{ToolChoice::Kind::kNamed, "get", true}));
  EXPECT_EQ(Echo(named, "tool_choice"), R"({"type":"function","name":"get"})");
}

TEST(OpenAiResponses, RefusesAsTheApiDoes) {
  const std::string call = R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})";
  const std::vector<Refusal> cases{
      {"[]", "", "invalid_type", "must be a JSON object"},
      {R"({"model":"m"})", "input", "missing_required_parameter", "must be provided"},
      {R"({"input":"x"})", "model", "missing_required_parameter", ""},
      {WithInput("5"), "input", "invalid_type", "a string or an array"},
      {WithInput("[]"), "input", "empty_array", ""},
      {WithInput("[1]"), "input[0]", "invalid_type", "an object"},
      {WithInput(R"([{"type":"thought"}])"), "input[0].type", "invalid_value", "'thought'"},
      {WithInput(R"([{"type":"web_search_call","id":"x"}])"), "input[0].type", "unsupported_parameter",
       "no tools of its own"},
      {WithInput(R"([{"content":"x"}])"), "input[0].role", "missing_required_parameter", ""},
      {WithInput(R"([{"role":"robot","content":"x"}])"), "input[0].role", "invalid_value", "'robot'"},
      {WithInput(R"([{"role":"user"}])"), "input[0].content", "missing_required_parameter", ""},
      {WithInput(R"([{"role":"user","content":[{"type":"output_text","text":"x"}]}])"),
       "input[0].content[0].type", "invalid_value", "'input_text'"},
      {WithInput(R"([{"role":"assistant","content":[{"type":"input_text","text":"x"}]}])"),
       "input[0].content[0].type", "invalid_value", "'output_text'"},
      {WithInput(R"([{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])"),
       "input[0].content[0].type", "unsupported_parameter", "text alone"},
      {WithInput(R"([{"role":"user","content":"x","mood":1}])"), "input[0].mood", "unknown_parameter", ""},
      {WithInput("[" + call + "]"), "input", "", "No tool output found for function call c."},
      {WithInput(R"([{"type":"function_call_output","call_id":"c","output":"x"}])"), "input", "",
       "No tool call found for function call output with call_id c."},
      {WithInput("[" + call + "," + call + "]"), "input[1].call_id", "invalid_value", "comes twice"},
      {WithInput(R"([{"type":"function_call","call_id":"c","name":"f","arguments":"[]"}])"),
       "input[0].arguments", "invalid_value", "JSON object"},
      {WithInput(
           R"([{"role":"user","content":"a","id":"msg_1"},{"role":"user","content":"b","id":"msg_1"}])"),
       "input", "", "Duplicate item found with id msg_1."},
      {Body(R"("foo":1)"), "foo", "unknown_parameter", "Unknown parameter: 'foo'."},
      {Body(R"("messages":[])"), "messages", "unknown_parameter", ""},
      {Body(R"("n":2)"), "n", "unknown_parameter", ""},
      {Body(R"("temperature":3)"), "temperature", "decimal_above_max_value", ""},
      {Body(R"("max_output_tokens":0)"), "max_output_tokens", "integer_below_min_value", ""},
      {Body(R"("top_logprobs":21)"), "top_logprobs", "integer_above_max_value", ""},
      {Body(R"("include":["everything"])"), "include[0]", "invalid_value", "'reasoning.encrypted_content'"},
      {Body(R"("background":true)"), "background", "unsupported_parameter", "nothing in the background"},
      {Body(R"("conversation":"conv_1")"), "conversation", "unsupported_parameter", "previous_response_id"},
      {Body(R"("prompt":{"id":"p"})"), "prompt", "unsupported_parameter", ""},
      {Body(R"("reasoning":{"effort":"huge"})"), "reasoning.effort", "invalid_value", ""},
      {Body(R"("text":{"format":{"type":"xml"}})"), "text.format.type", "invalid_value", ""},
      {Body(R"("text":{"format":{"type":"json_schema","schema":{}}})"), "text.format.name",
       "missing_required_parameter", ""},
      {Body(R"("text":{"format":{"type":"json_schema","name":"s","schema":[]}})"), "text.format.schema",
       "invalid_type", ""},
      {Body(R"("tools":[{"type":"web_search"}])"), "tools[0].type", "unsupported_parameter", "'web_search'"},
      {Body(R"("tools":[{"type":"function","function":{"name":"f"}}])"), "tools[0].name",
       "missing_required_parameter", ""},
      {Body(R"("tools":[{"type":"function","parameters":{}}])"), "tools[0].name",
       "missing_required_parameter", ""},
      {Body("\"tools\":[" + kTool + "," + kTool + "]"), "tools[1].name", "invalid_value", "comes twice"},
      {Body(R"("tool_choice":{"type":"function","name":"put"})"), "tool_choice", "",
       "Tool choice 'put' not found"},
      {Body(R"("tool_choice":"required")"), "tool_choice", "", "must be specified with 'tools'"},
      {Body(R"("metadata":{"k":1})"), "metadata.k", "invalid_type", ""},
      {Body(R"("stream_options":{})"), "stream_options", "", "only allowed when 'stream'"},
      {Body(R"("truncation":"middle")"), "truncation", "invalid_value", ""},
      {Body(R"("previous_response_id":"x'; --")"), "previous_response_id", "invalid_value",
       "begins with 'resp'"},
      {Body(R"("previous_response_id":"resp_1")"), "previous_response_id", "previous_response_not_found",
       "Previous response with id 'resp_1' not found."},
  };
  for (const Refusal& c : cases) {
    SCOPED_TRACE(c.body);
    const ApiError error = Refused(c.body);
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, c.param) << error.message;
    EXPECT_EQ(error.code, c.code);
    EXPECT_NE(error.message.find(c.message), std::string::npos) << error.message;
  }
}

TEST(OpenAiResponses, AConversation) {
  const ResponsesRequest r = Read(WithInput(R"([
    {"role":"developer","content":"be brief"},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
    {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
    {"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"one","annotations":[],"logprobs":[]}]},
    {"type":"function_call","id":"fc_1","call_id":"c1","name":"get","arguments":"{\"x\": \"007\"}","status":"completed"},
    {"type":"function_call","call_id":"c2","name":"get","arguments":""},
    {"type":"function_call_output","call_id":"c2","output":"two"},
    {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"on"},{"type":"input_text","text":"e"}]},
    {"type":"reasoning","summary":[{"type":"summary_text","text":"why"}],"encrypted_content":"gAAAA"},
    {"role":"assistant","content":"done<think>"},
    {"role":"assistant","content":"more"},
    {"role":"user","content":"x"}])"));
  const auto& m = r.generation.messages;
  ASSERT_EQ(m.size(), 8u);
  EXPECT_EQ(m[0].role, Role::kSystem);
  EXPECT_EQ(m[1].content, "ab");
  EXPECT_EQ(m[2].role, Role::kAssistant);
  EXPECT_EQ(m[2].reasoning, "hm");
  EXPECT_EQ(m[2].content, "one");
  ASSERT_EQ(m[2].tool_calls.size(), 2u);
  EXPECT_EQ(m[2].tool_calls[0].arguments, "{\"x\": \"007\"}");  // to the byte as it came
  EXPECT_EQ(m[2].tool_calls[0].id, "c1");
  EXPECT_EQ(m[2].tool_calls[1].arguments, "{}");
  EXPECT_EQ(m[3].role, Role::kTool);
  EXPECT_EQ(m[3].tool_call_id, "c2");
  EXPECT_EQ(m[4].content, "one");
  EXPECT_EQ(m[5].reasoning, "why");
  EXPECT_EQ(m[5].content, "done<think>");
  EXPECT_TRUE(m[5].reasoning_apart);
  EXPECT_EQ(m[6].content, "more");
  EXPECT_EQ(m[6].role, Role::kAssistant);
  EXPECT_EQ(m[7].role, Role::kUser);
}

// A call that max_output_tokens cut off, which no client can answer, does not end a conversation.
TEST(OpenAiResponses, CutCallsBecomeText) {
  const ResponsesRequest r = Read(WithInput(R"([
    {"role":"user","content":"a"},
    {"type":"function_call","call_id":"c1","name":"get","arguments":"{\"x\":","status":"incomplete"},
    {"role":"user","content":"b"},
    {"type":"function_call","call_id":"c2","name":"get","arguments":"{}","status":"incomplete"},
    {"type":"function_call","call_id":"c3","name":"put","arguments":"{}","status":"incomplete"},
    {"type":"function_call_output","call_id":"c2","output":"r"},
    {"role":"user","content":"c"}])"));
  const auto& m = r.generation.messages;
  ASSERT_EQ(m.size(), 6u);
  EXPECT_EQ(m[1].content, "get{\"x\":");
  EXPECT_TRUE(m[1].tool_calls.empty());
  ASSERT_EQ(m[3].tool_calls.size(), 1u);
  EXPECT_EQ(m[3].tool_calls[0].id, "c2");
  EXPECT_EQ(m[3].content, "put{}");
}

TEST(ResponseItems, IdsTellTheirResponse) {
  using Kind = ResponseItem::Kind;
  for (const std::string key : {"a", "X1", "7i00001o1", "o", "00000000"}) {
    for (const size_t index : {size_t{0}, size_t{99'999}, size_t{123'456'789}}) {
      for (const bool output : {false, true})
        EXPECT_EQ(ResponseOfItem(ItemId(Kind::kMessage, key, output, index)), "resp_" + key);
    }
  }
  EXPECT_EQ(ItemId(Kind::kReasoning, "K", true, 3), "rs_Ko00003");
  for (const char* none :
       {"", "msg_", "msg_1", "i00001", "msg_i00001", "msg_Kx00001", "msg_Ki0001", "o00001_"})
    EXPECT_EQ(ResponseOfItem(none), "") << none;
}

TEST(ResponseItems, SealedReasoningComesBack) {
  std::string text;
  for (const char* piece : {"", "a", "b", "c", "\xe2\x98\x83", "\n\"\\", "\xf0\x9f\x8c\x8d"}) {
    text += piece;
    EXPECT_EQ(UnsealReasoning(SealReasoning(text)), text);
  }
  EXPECT_EQ(SealReasoning("Many hands"), "glint1.TWFueSBoYW5kcw");  // as RFC 4648 has it
  for (const char* other : {"", "gAAAA", "glint1.*", "glint1._w"})
    EXPECT_EQ(UnsealReasoning(other), std::nullopt) << other;
  const ResponsesRequest r =
      Read(WithInput(R"([{"type":"reasoning","summary":[],"encrypted_content":")" + SealReasoning("hm") +
                     R"("},{"role":"assistant","content":"x"},{"role":"user","content":"y"}])"));
  EXPECT_EQ(r.generation.messages.at(0).reasoning, "hm");
}

// Writers.

std::vector<AnswerEvent> Events() {
  std::vector<AnswerEvent> events{Reasoning("h"), Reasoning("m"), Text("he"), Text("llo\n\xe2\x80\xa8")};
  for (auto& e : Call(0, "get", {"{\"x\":", "1}"})) events.push_back(e);
  return events;
}

std::unique_ptr<ResponseWriter> Writer(const std::string& more, KeepResponse keep = nullptr) {
  return MakeOpenAiResponsesWriter(Read(Body(more)), TestNames(), std::move(keep));
}

const std::string kHead = R"({"id":"resp_X1","object":"response","created_at":1700000000,"status":)";
std::string Said(const std::string& reasoning = R"({"effort":null,"summary":null})") {
  return R"("instructions":null,"max_output_tokens":null,"max_tool_calls":null,"parallel_tool_calls":true,"previous_response_id":null,"prompt_cache_key":null,"prompt_cache_retention":null,"reasoning":)" +
         reasoning +
         R"(,"safety_identifier":null,"service_tier":"default","temperature":1.0,"text":{"format":{"type":"text"},"verbosity":"medium"},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1.0,"truncation":"disabled","user":null,"metadata":{},"store":false,)";
}
const std::string kUsage =
    R"("usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":17},"timings":{"queue_ms":0.5,"prefill_tokens":6,"prefill_ms":20.0,"cached_tokens":4,"decode_tokens":7,"decode_ms":30.25}})";
const std::string kThought =
    R"({"id":"rs_X1o00000","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"status":"completed"})";
const std::string kPart = R"({"type":"output_text","annotations":[],"logprobs":[],"text":"hello\n\u2028"})";
const std::string kMessage = R"({"id":"msg_X1o00001","type":"message","status":"completed","content":[)" +
                             kPart + R"(],"role":"assistant"})";
const std::string kCall =
    R"({"id":"fc_X1o00002","type":"function_call","status":"completed","arguments":"{\"x\":1}","call_id":"call_X1000","name":"get"})";
const std::string kWhole =
    kHead +
    R"("completed","background":false,"completed_at":1700000000,"error":null,"incomplete_details":null,"model":"glm","output":[)" +
    kThought + "," + kMessage + "," + kCall + "]," + Said() + kUsage;
const std::string kBegun =
    kHead +
    R"("in_progress","background":false,"completed_at":null,"error":null,"incomplete_details":null,"model":"glm","output":[],)" +
    Said() + R"("usage":null})";

std::string Frame(int number, const std::string& type, const std::string& more) {
  return "event: response." + type + "\ndata: {\"type\":\"response." + type +
         "\",\"sequence_number\":" + std::to_string(number) + "," + more + "}\n\n";
}

TEST(OpenAiResponses, WholeToTheByte) { EXPECT_EQ(Written(*Writer(""), Events(), TestOutcome()), kWhole); }

TEST(OpenAiResponses, StreamToTheByte) {
  const std::string rs = R"("item_id":"rs_X1o00000","output_index":0,)",
                    msg = R"("item_id":"msg_X1o00001","output_index":1,)",
                    fc = R"("item_id":"fc_X1o00002","output_index":2,)";
  const std::string want =
      Frame(0, "created", "\"response\":" + kBegun) + Frame(1, "in_progress", "\"response\":" + kBegun) +
      Frame(
          2, "output_item.added",
          R"("output_index":0,"item":{"id":"rs_X1o00000","type":"reasoning","summary":[],"content":[],"status":"in_progress"})") +
      Frame(3, "content_part.added", rs + R"("content_index":0,"part":{"type":"reasoning_text","text":""})") +
      Frame(4, "reasoning_text.delta", rs + R"("content_index":0,"delta":"h")") +
      Frame(5, "reasoning_text.delta", rs + R"("content_index":0,"delta":"m")") +
      Frame(6, "reasoning_text.done", rs + R"("content_index":0,"text":"hm")") +
      Frame(7, "content_part.done",
            rs + R"("content_index":0,"part":{"type":"reasoning_text","text":"hm"})") +
      Frame(8, "output_item.done", R"("output_index":0,"item":)" + kThought) +
      Frame(
          9, "output_item.added",
          R"("output_index":1,"item":{"id":"msg_X1o00001","type":"message","status":"in_progress","content":[],"role":"assistant"})") +
      Frame(
          10, "content_part.added",
          msg +
              R"("content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""})") +
      Frame(11, "output_text.delta", msg + R"("content_index":0,"delta":"he","logprobs":[])") +
      Frame(12, "output_text.delta", msg + R"("content_index":0,"delta":"llo\n\u2028","logprobs":[])") +
      Frame(13, "output_text.done", msg + R"("content_index":0,"text":"hello\n\u2028","logprobs":[])") +
      Frame(14, "content_part.done", msg + R"("content_index":0,"part":)" + kPart) +
      Frame(15, "output_item.done", R"("output_index":1,"item":)" + kMessage) +
      Frame(
          16, "output_item.added",
          R"("output_index":2,"item":{"id":"fc_X1o00002","type":"function_call","status":"in_progress","arguments":"","call_id":"call_X1000","name":"get"})") +
      Frame(17, "function_call_arguments.delta", fc + R"("delta":"{\"x\":")") +
      Frame(18, "function_call_arguments.delta", fc + R"("delta":"1}")") +
      Frame(19, "function_call_arguments.done", fc + R"("arguments":"{\"x\":1}","name":"get")") +
      Frame(20, "output_item.done", R"("output_index":2,"item":)" + kCall) +
      Frame(21, "completed", "\"response\":" + kWhole);
  EXPECT_EQ(Written(*Writer(R"("stream":true)"), Events(), TestOutcome()), want);
}

TEST(OpenAiResponses, ReasoningAsSummary) {
  const std::string asked = R"("reasoning":{"summary":"auto"})";
  const std::string item =
      R"({"id":"rs_X1o00000","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"status":"completed"})";
  EXPECT_NE(Written(*Writer(asked), {Reasoning("hm"), Text("x")}, TestOutcome()).find(item),
            std::string::npos);
  const std::string rs = R"("item_id":"rs_X1o00000","output_index":0,"summary_index":0,)";
  const std::string want =
      Frame(
          2, "output_item.added",
          R"("output_index":0,"item":{"id":"rs_X1o00000","type":"reasoning","summary":[],"status":"in_progress"})") +
      Frame(3, "reasoning_summary_part.added", rs + R"("part":{"type":"summary_text","text":""})") +
      Frame(4, "reasoning_summary_text.delta", rs + R"("delta":"hm")") +
      Frame(5, "reasoning_summary_text.done", rs + R"("text":"hm")") +
      Frame(6, "reasoning_summary_part.done", rs + R"("part":{"type":"summary_text","text":"hm"})") +
      Frame(7, "output_item.done", R"("output_index":0,"item":)" + item);
  EXPECT_NE(
      Written(*Writer(asked + R"(,"stream":true)"), {Reasoning("hm"), Text("x")}, TestOutcome()).find(want),
      std::string::npos);
}

TEST(OpenAiResponses, SealedReasoningIsWrittenWhereAskedFor) {
  const std::string all = Written(*Writer(R"("include":["reasoning.encrypted_content"],"store":false)"),
                                  {Reasoning("hm"), Text("x")}, TestOutcome());
  EXPECT_NE(all.find("\"encrypted_content\":\"" + SealReasoning("hm") + "\""), std::string::npos) << all;
}

std::string StatusOf(const std::string& body) {
  return ParseJson(body, "body")->Get<std::string>("status").value();
}

TEST(OpenAiResponses, EndsThatAreNone) {
  const std::string cut = Written(*Writer(""), {Text("a")}, TestOutcome(FinishReason::kLength));
  EXPECT_EQ(StatusOf(cut), "incomplete");
  EXPECT_NE(cut.find(R"("incomplete_details":{"reason":"max_output_tokens"})"), std::string::npos);
  EXPECT_NE(cut.find(R"("type":"message","status":"incomplete")"), std::string::npos);
  const std::string stream =
      Written(*Writer(R"("stream":true)"), {Text("a")}, TestOutcome(FinishReason::kLength));
  EXPECT_NE(stream.find("event: response.incomplete\n"), std::string::npos);
  EXPECT_EQ(stream.find("event: response.completed\n"), std::string::npos);
  EXPECT_EQ(StatusOf(Written(*Writer(""), {Text("a")}, TestOutcome(FinishReason::kStopString, "x"))),
            "completed");
  EXPECT_EQ(StatusOf(Written(*Writer(""), {Text("a")}, TestOutcome(FinishReason::kCancelled))), "cancelled");
  // A call that turned out to be none: what was said of it cannot be taken back, and what was not is text.
  std::vector<AnswerEvent> broken = Call(0, "get", {"{\"x\":"});
  broken.back().broken = true;
  broken.push_back(Text("rest"));
  const std::string all = Written(*Writer(""), broken, TestOutcome());
  EXPECT_NE(all.find(R"("status":"incomplete","arguments":"{\"x\":")"), std::string::npos) << all;
  EXPECT_NE(all.find(R"("text":"rest")"), std::string::npos);
  // Nothing said is an empty answer, as long as the model ended it.
  EXPECT_NE(Written(*Writer(""), {}, TestOutcome()).find(R"("text":"")"), std::string::npos);
  EXPECT_NE(Written(*Writer(""), {Reasoning("r")}, TestOutcome()).find(R"("text":""}],"role":"assistant")"),
            std::string::npos);
  EXPECT_NE(Written(*Writer(""), {}, TestOutcome(FinishReason::kLength)).find(R"("output":[])"),
            std::string::npos);
}

TEST(OpenAiResponses, FailuresAndKeepAlive) {
  EXPECT_EQ(Writer("")->Fail({500, "no"}),
            R"({"error":{"message":"no","type":"server_error","param":null,"code":null}})");
  auto begun = Writer(R"("stream":true)");
  const std::string all =
      InOrder({begun->Begin({}), begun->Event(0, Text("a"), {}), begun->Fail({429, "busy"})});
  const size_t at = all.find("event: response.failed\n");
  ASSERT_NE(at, std::string::npos) << all;
  EXPECT_NE(all.find(R"("status":"failed")", at), std::string::npos);
  EXPECT_NE(all.find(R"("error":{"code":"rate_limit_exceeded","message":"busy"})", at), std::string::npos);
  const std::string early = Writer(R"("stream":true)")->Fail({500, "no"});
  EXPECT_TRUE(early.starts_with("event: response.created\n")) << early;
  EXPECT_EQ(Writer(R"("stream":true)")->KeepAlive({3, 9}), ": prefill 3/9\n\n");
  EXPECT_EQ(Writer("")->KeepAlive({3, 9}), "");
}

TEST(OpenAiResponses, Logprobs) {
  const std::vector<TokenLogprob> tokens{{"a", -0.5, {{"a", -0.5}}}};
  const std::string entry =
      R"("logprobs":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]}])";
  for (const bool stream : {false, true}) {
    auto writer =
        Writer(std::string(R"("include":["message.output_text.logprobs"],"top_logprobs":1,"stream":)") +
               (stream ? "true" : "false"));
    const std::string all = InOrder({writer->Begin({}), writer->Event(0, Text("a"), tokens),
                                     writer->Finish(0, TestOutcome()), writer->End()});
    size_t found = 0;
    for (size_t at = all.find(entry); at != std::string::npos; at = all.find(entry, at + 1)) ++found;
    EXPECT_EQ(found, stream ? 5u : 1u) << all;  // delta, done, part, item, response
  }
}

// The store.

StoredResponse Answer(ResponseStore& store, const std::string& body, const std::string& key,
                      const std::vector<AnswerEvent>& events) {
  StoredResponse kept;
  ResponseNames names = TestNames();
  names.id = key;
  auto writer = MakeOpenAiResponsesWriter(Read(body, &store), names, [&](StoredResponse& response) {
    kept = response;
    return store.Put(response).ok();
  });
  EXPECT_EQ(Written(*writer, events, TestOutcome()), kept.body);
  return kept;
}

TEST(OpenAiResponses, GoOnFromWhatIsKept) {
  const auto store = MemoryStore();
  std::vector<AnswerEvent> events{Reasoning("hm"), Text("well")};
  for (auto& e : Call(0, "get", {"{\"x\":1}"})) events.push_back(e);
  const std::string tools = R"(,"tools":[)" + kTool + "]";
  const StoredResponse first = Answer(
      *store, WithInput(R"([{"role":"user","content":"one"}])", R"(,"instructions":"be brief")" + tools), "A",
      events);
  EXPECT_EQ(first.id, "resp_A");
  EXPECT_NE(first.body.find("\"store\":true"), std::string::npos);
  const std::string next =
      WithInput(R"([{"type":"function_call_output","call_id":"call_A000","output":"r"}])",
                R"(,"previous_response_id":"resp_A")" + tools);
  const ResponsesRequest r = Read(next, store.get());
  const auto& m = r.generation.messages;
  ASSERT_EQ(m.size(), 3u);  // instructions are of one response
  EXPECT_EQ(r.old_messages, 2u);
  EXPECT_EQ(m[0].content, "one");
  EXPECT_EQ(m[1].reasoning, "hm");
  EXPECT_EQ(m[1].content, "well");
  EXPECT_EQ(m[1].tool_calls.at(0).arguments, "{\"x\":1}");
  EXPECT_EQ(m[2].role, Role::kTool);
  EXPECT_EQ(Echo(r, "previous_response_id"), "\"resp_A\"");
  Answer(*store, next, "B", {Text("done")});
  const ResponsesRequest third = Read(Body(R"("previous_response_id":"resp_B")"), store.get());
  ASSERT_EQ(third.generation.messages.size(), 5u);
  EXPECT_EQ(third.generation.messages[3].content, "done");
  EXPECT_EQ(third.generation.messages[4].content, "hi");
  // Without input, the conversation is what there is.
  EXPECT_EQ(Read(R"({"model":"m","previous_response_id":"resp_B"})", store.get()).generation.messages.size(),
            4u);
  // A call that nobody answered, and an item that is there already.
  EXPECT_NE(Refused(Body(R"("previous_response_id":"resp_A")"), store.get())
                .message.find("No tool output found for function call call_A000"),
            std::string::npos);
  EXPECT_NE(Refused(WithInput(R"([{"role":"assistant","content":"done","id":"msg_Bo00000"}])",
                              R"(,"previous_response_id":"resp_B")"),
                    store.get())
                .message.find("Duplicate item"),
            std::string::npos);
  // The first leaves; what goes on from it does not notice.
  EXPECT_TRUE(store->Delete("resp_A").value());
  EXPECT_EQ(Refused(Body(R"("previous_response_id":"resp_A")"), store.get()).code,
            "previous_response_not_found");
  EXPECT_EQ(Read(Body(R"("previous_response_id":"resp_B")"), store.get()).generation.messages.size(), 5u);
}

TEST(OpenAiResponses, References) {
  const auto store = MemoryStore();
  Answer(*store, Body(""), "A", {Text("well")});
  const ResponsesRequest r = Read(
      WithInput(
          R"([{"type":"item_reference","id":"msg_Ai00000"},{"id":"msg_Ao00000"},{"role":"user","content":"x"}])"),
      store.get());
  ASSERT_EQ(r.generation.messages.size(), 3u);
  EXPECT_EQ(r.generation.messages[0].content, "hi");
  EXPECT_EQ(r.generation.messages[1].content, "well");
  EXPECT_EQ(r.generation.messages[1].role, Role::kAssistant);
  for (const char* id : {"msg_Ao00001", "msg_Bo00000", "", "x"}) {
    const ApiError error =
        Refused(WithInput(std::string(R"([{"type":"item_reference","id":")") + id + "\"}]"), store.get());
    EXPECT_EQ(error.status, 404) << id;
    EXPECT_EQ(error.param, "input");
  }
}

TEST(OpenAiResponses, WhatIsNotKeptSaysSo) {
  const auto offered = [](const std::string& more, FinishReason reason, bool keeps) {
    int asked = 0;
    auto writer = Writer(more, [&](StoredResponse&) { return ++asked, keeps; });
    const std::string all = Written(*writer, {Text("a")}, TestOutcome(reason));
    return std::pair(asked, all.find("\"store\":true") != std::string::npos);
  };
  EXPECT_EQ(offered("", FinishReason::kStop, true), std::pair(1, true));
  EXPECT_EQ(offered("", FinishReason::kLength, true), std::pair(1, true));
  EXPECT_EQ(offered("", FinishReason::kStop, false),
            std::pair(1, false));  // the disk is full, perhaps: the answer is not lost
  EXPECT_EQ(offered(R"("store":false)", FinishReason::kStop, true), std::pair(0, false));
  EXPECT_EQ(offered("", FinishReason::kCancelled, true), std::pair(0, false));
}

std::string Ok(const Parsed<std::string>& body) {
  if (const auto* error = std::get_if<ApiError>(&body)) return "error: " + error->message;
  return std::get<std::string>(body);
}
ApiError Bad(const Parsed<std::string>& body) {
  if (const auto* error = std::get_if<ApiError>(&body)) return *error;
  ADD_FAILURE() << std::get<std::string>(body);
  return {};
}

TEST(OpenAiResponses, AreAskedForAndDeleted) {
  const auto store = MemoryStore();
  const StoredResponse kept = Answer(*store, Body(""), "A", {Text("well")});
  EXPECT_EQ(Ok(OpenAiResponseBody(store.get(), "resp_A", {})), kept.body);
  EXPECT_EQ(Ok(OpenAiResponseBody(store.get(), "resp_A", {{"stream", "false"}})), kept.body);
  EXPECT_EQ(Bad(OpenAiResponseBody(store.get(), "resp_A", {{"stream", "true"}})).status, 400);
  EXPECT_EQ(Bad(OpenAiResponseBody(store.get(), "resp_B", {})),
            (ApiError{404, "Response with id 'resp_B' not found."}));
  EXPECT_EQ(Bad(OpenAiResponseBody(nullptr, "resp_A", {})).status, 404);
  EXPECT_EQ(Bad(OpenAiResponseBody(store.get(), "../A", {})).code, "invalid_value");
  EXPECT_EQ(OpenAiCancelResponse(store.get(), "resp_A"),
            (ApiError{400, "Cannot cancel a synchronous response."}));
  EXPECT_EQ(OpenAiCancelResponse(store.get(), "resp_B").status, 404);
  EXPECT_EQ(Ok(OpenAiDeleteResponse(store.get(), "resp_A")),
            R"({"id":"resp_A","object":"response","deleted":true})");
  EXPECT_EQ(Bad(OpenAiDeleteResponse(store.get(), "resp_A")).status, 404);
  EXPECT_EQ(Bad(OpenAiResponseBody(store.get(), "resp_A", {})).status, 404);
}

TEST(OpenAiResponses, InputItemsByPages) {
  const auto store = MemoryStore();
  std::string input;
  for (int i = 0; i < 45; ++i)
    input += (i == 0 ? "[" : ",") + std::string(R"({"role":"user","content":"t)") + std::to_string(i) + "\"}";
  Answer(*store, WithInput(input + "]"), "A", {Text("well")});
  const std::string item =
      R"({"id":"msg_Ai00044","type":"message","status":"completed","content":[{"type":"input_text","text":"t44"}],"role":"user"})";
  EXPECT_EQ(Ok(OpenAiInputItems(store.get(), "resp_A", {{"limit", "1"}})),
            R"({"object":"list","data":[)" + item +
                R"(],"first_id":"msg_Ai00044","last_id":"msg_Ai00044","has_more":true})");
  for (const std::string order : {"asc", "desc"}) {
    std::vector<std::string> ids;
    std::string after;
    for (int page = 0; page < 10; ++page) {
      const Result<Json> json = ParseJson(
          Ok(OpenAiInputItems(store.get(), "resp_A", {{"order", order}, {"after", after}})), "page");
      ASSERT_TRUE(json.ok());
      for (const Json& one : json->Find("data")->items()) ids.push_back(one.Get<std::string>("id").value());
      EXPECT_LE(json->Find("data")->items().size(), 20u);
      if (!json->Get<bool>("has_more").value()) break;
      after = json->Get<std::string>("last_id").value();
    }
    if (order == "desc") std::reverse(ids.begin(), ids.end());
    ASSERT_EQ(ids.size(), 45u);
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(ids[i], ItemId(ResponseItem::Kind::kMessage, "A", false, i));
  }
  EXPECT_EQ(Ok(OpenAiInputItems(store.get(), "resp_A", {{"after", "msg_Ai00000"}})),
            R"({"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false})");
  for (const QueryPairs& query : std::vector<QueryPairs>{
           {{"limit", "0"}}, {{"limit", "101"}}, {{"limit", "x"}}, {{"order", "up"}}, {{"after", "x"}}})
    EXPECT_EQ(Bad(OpenAiInputItems(store.get(), "resp_A", query)).param, query[0].first);
  EXPECT_EQ(Bad(OpenAiInputItems(store.get(), "resp_B", {})).status, 404);
}

}  // namespace
}  // namespace glint::serve
