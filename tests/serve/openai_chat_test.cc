#include "serve/openai_chat.h"

#include <cmath>
#include <limits>

#include "base/json.h"
#include "serve/api_error.h"
#include "tests/serve/api_test_support.h"

namespace glint::serve {
namespace {

const std::string kTool =
    R"({"type":"function","function":{"name":"get","description":"d","parameters":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number","maximum":1.50}}}}})";

// The least body, and members after it.
std::string Body(const std::string& more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) +
         "}";
}
std::string WithMessages(const std::string& messages) {
  return R"({"model":"m","messages":)" + messages + "}";
}
std::string WithTools(const std::string& more) { return Body("\"tools\":[" + kTool + "]," + more); }

GenerationRequest Chat(const std::string& body) { return Accept(ParseOpenAiChat, body); }

TEST(OpenAiChat, Defaults) {
  const GenerationRequest r = Chat(Body(""));
  EXPECT_EQ(r.model, "m");
  ASSERT_EQ(r.messages.size(), 1u);
  EXPECT_EQ(r.messages[0].role, Role::kUser);
  EXPECT_EQ(r.messages[0].content, "hi");
  EXPECT_EQ(r.sampler.temperature, 1.0f);
  EXPECT_EQ(r.sampler.top_p, 1.0f);
  EXPECT_FALSE(r.seeded);
  EXPECT_FALSE(r.max_tokens.has_value());
  EXPECT_FALSE(r.logprobs.has_value());
  EXPECT_TRUE(r.stop.empty());
  EXPECT_EQ(r.n, 1u);
  EXPECT_FALSE(r.stream);
  EXPECT_FALSE(r.skip_reasoning);
  EXPECT_TRUE(r.show_reasoning);
  EXPECT_EQ(r.chat.reasoning_effort, "");
  EXPECT_EQ(r.constraint, Constraint{});
  EXPECT_EQ(r.tool_choice, ToolChoice{});
}

TEST(OpenAiChat, ServersDefaultsHoldWhereNothingIsSaid) {
  RequestLimits limits = TestLimits();
  limits.sampler.temperature = 0.25f;
  limits.sampler.top_k = 7;
  const auto parsed = ParseOpenAiChat(Body(R"("top_k":0)"), limits);
  const auto& r = std::get<GenerationRequest>(parsed);
  EXPECT_EQ(r.sampler.temperature, 0.25f);
  EXPECT_EQ(r.sampler.top_k, 0);  // "off", not "none"
}

struct Accepted {
  std::string more;
  bool (*holds)(const GenerationRequest&);
};

TEST(OpenAiChat, EachFieldArrives) {
  using R = const GenerationRequest&;
  const std::vector<Accepted> cases{
      {R"("temperature":0)", [](R r) { return r.sampler.temperature == 0; }},
      {R"("temperature":2)", [](R r) { return r.sampler.temperature == 2; }},
      {R"("temperature":null)", [](R r) { return r.sampler.temperature == 1; }},
      {R"("top_p":0.5)", [](R r) { return r.sampler.top_p == 0.5f; }},
      {R"("top_p":0)", [](R r) { return r.sampler.top_k == 1 && r.sampler.top_p == 1; }},
      {R"("top_k":40)", [](R r) { return r.sampler.top_k == 40; }},
      {R"("top_k":-1)", [](R r) { return r.sampler.top_k == 0; }},
      {R"("min_p":0.05)", [](R r) { return r.sampler.min_p == 0.05f; }},
      {R"("repetition_penalty":1.25)", [](R r) { return r.sampler.repetition_penalty == 1.25f; }},
      {R"("presence_penalty":-2)", [](R r) { return r.sampler.presence_penalty == -2; }},
      {R"("frequency_penalty":1.5)", [](R r) { return r.sampler.frequency_penalty == 1.5f; }},
      {R"("seed":42)", [](R r) { return r.seeded && r.sampler.seed == 42; }},
      {R"("seed":0)", [](R r) { return r.seeded && r.sampler.seed == 0; }},
      {R"("seed":-1)",
       [](R r) { return r.seeded && r.sampler.seed == std::numeric_limits<uint64_t>::max(); }},
      {R"("n":128)", [](R r) { return r.n == 128 && r.choices() == 128; }},
      {R"("max_tokens":1)", [](R r) { return r.max_tokens == 1u; }},
      {R"("max_tokens":8.0)", [](R r) { return r.max_tokens == 8u; }},
      {R"("max_completion_tokens":7)", [](R r) { return r.max_tokens == 7u; }},
      {R"("max_tokens":null,"max_completion_tokens":7)", [](R r) { return r.max_tokens == 7u; }},
      {R"("stop":"a")", [](R r) { return r.stop == std::vector<std::string>{"a"}; }},
      {R"("stop":["a","\n\n"])",
       [](R r) {
         return r.stop == std::vector<std::string>{"a", "\n\n"};
       }},
      {R"("stop":null)", [](R r) { return r.stop.empty(); }},
      {R"("stop":[])", [](R r) { return r.stop.empty(); }},
      {R"("logprobs":true)", [](R r) { return r.logprobs == 0u; }},
      {R"("logprobs":true,"top_logprobs":20)", [](R r) { return r.logprobs == 20u; }},
      {R"("logprobs":false)", [](R r) { return !r.logprobs; }},
      {R"("logit_bias":{"5":-1.5,"999":100})",
       [](R r) {
         return r.sampler.logit_bias == std::vector<std::pair<int32_t, float>>{{5, -1.5f}, {999, 100.0f}};
       }},
      {R"("logit_bias":{"5":-100})", [](R r) { return std::isinf(r.sampler.logit_bias.at(0).second); }},
      {R"("stream":true)", [](R r) { return r.stream && !r.include_usage; }},
      {R"("stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false})",
       [](R r) { return r.stream && r.include_usage; }},
      {R"("stream":false,"stream_options":null)", [](R r) { return !r.stream; }},
      {R"("reasoning_effort":"none")", [](R r) { return r.skip_reasoning; }},
      {R"("reasoning_effort":"minimal")",
       [](R r) { return r.chat.reasoning_effort == "low" && !r.skip_reasoning; }},
      {R"("reasoning_effort":"low")", [](R r) { return r.chat.reasoning_effort == "low"; }},
      {R"("reasoning_effort":"medium")", [](R r) { return r.chat.reasoning_effort == "high"; }},
      {R"("reasoning_effort":"high")", [](R r) { return r.chat.reasoning_effort == "high"; }},
      {R"("reasoning_effort":"xhigh")", [](R r) { return r.chat.reasoning_effort.empty(); }},
      {R"("reasoning_effort":"max")", [](R r) { return r.chat.reasoning_effort.empty(); }},
      {R"("thinking":{"type":"disabled"})", [](R r) { return r.skip_reasoning; }},
      {R"("thinking":{"type":"enabled","clear_thinking":true})",
       [](R r) { return !r.skip_reasoning && r.chat.clear_thinking; }},
      {R"("enable_thinking":false)", [](R r) { return r.skip_reasoning; }},
      {R"("chat_template_kwargs":{"enable_thinking":false})",
       [](R r) { return r.skip_reasoning && r.warnings.empty(); }},
      {R"("chat_template_kwargs":{"thinking":false})", [](R r) { return r.skip_reasoning; }},
      {R"("chat_template_kwargs":{"reasoning_effort":"low"})",
       [](R r) { return r.chat.reasoning_effort == "low"; }},
      {R"("chat_template_kwargs":{"think":false})",
       [](R r) { return !r.skip_reasoning && r.warnings.size() == 1; }},
      {R"("response_format":{"type":"text"})", [](R r) { return r.constraint == Constraint{}; }},
      {R"("response_format":{"type":"json_object"})",
       [](R r) { return r.constraint.kind == Constraint::Kind::kJsonObject; }},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":{"type":"object","b":1,"a":[1.50,null]}}})",
       [](R r) {
         return r.constraint ==
                Constraint{Constraint::Kind::kJsonSchema, R"({"type":"object","b":1,"a":[1.5,null]})"};
       }},
      {R"("tool_choice":"none")", [](R r) { return r.tool_choice.kind == ToolChoice::Kind::kNone; }},
      // Known, and without effect.
      {R"("user":"u","metadata":{"k":"v"},"store":true,"service_tier":"auto","safety_identifier":"x","prompt_cache_key":"y")",
       [](R) { return true; }},
      {R"("verbosity":"low","modalities":["text"],"prediction":{"type":"content","content":"x"},"audio":null)",
       [](R) { return true; }},
      {R"("functions":[])", [](R) { return true; }},
  };
  for (const Accepted& c : cases) EXPECT_TRUE(c.holds(Chat(Body(c.more)))) << c.more;
}

TEST(OpenAiChat, RefusesAsTheApiDoes) {
  ExpectRefusals(
      ParseOpenAiChat,
      {
          {"", "", "", "not valid JSON"},
          {"{\"model\":", "", "", "not valid JSON"},
          {"[]", "", "invalid_type", "must be a JSON object, not an array"},
          {"{\"model\":\"m\",\"model\":\"m\"}", "", "", "not valid JSON"},
          {R"({"messages":[]})", "model", "missing_required_parameter",
           "Missing required parameter: 'model'."},
          {R"({"model":"m"})", "messages", "missing_required_parameter",
           "Missing required parameter: 'messages'."},
          {R"({"model":1,"messages":[]})", "model", "invalid_type",
           "Invalid type for 'model': expected a string, but got an integer instead."},
          {WithMessages("{}"), "messages", "invalid_type", "expected an array, but got an object"},
          {WithMessages("[]"), "messages", "empty_array", "Invalid 'messages': empty array."},
          {WithMessages("[1]"), "messages[0]", "invalid_type", "expected an object"},
          {WithMessages(R"([{"content":"x"}])"), "messages[0].role", "missing_required_parameter", ""},
          {WithMessages(R"([{"role":"robot","content":"x"}])"), "messages[0].role", "invalid_value",
           "'robot'"},
          {WithMessages(R"([{"role":"user"}])"), "messages[0].content", "missing_required_parameter", ""},
          {WithMessages(R"([{"role":"user","content":null}])"), "messages[0].content",
           "missing_required_parameter", ""},
          {WithMessages(R"([{"role":"user","content":1}])"), "messages[0].content", "invalid_type", ""},
          {WithMessages(R"([{"role":"user","content":"x","mood":1}])"), "messages[0].mood",
           "unknown_parameter", "Unknown parameter: 'messages[0].mood'."},
          {WithMessages(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"),
           "messages[0].content[0]", "unsupported_parameter", "text alone"},
          {WithMessages(R"([{"role":"user","content":[{"type":"text"}]}])"), "messages[0].content[0].text",
           "missing_required_parameter", ""},
          {WithMessages(R"([{"role":"assistant"}])"), "messages[0].content", "missing_required_parameter",
           ""},
          {WithMessages(R"([{"role":"tool","content":"x","tool_call_id":"a"}])"), "messages[0].role", "",
           "must be a response to a preceding message with 'tool_calls'"},
          {WithMessages(
               R"([{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"user","content":"x"}])"),
           "messages[0]", "", "must be followed by tool messages"},
          {WithMessages(
               R"([{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}])"),
           "messages[0]", "", "No response was found for: a"},
          {WithMessages(
               R"([{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"b","content":"x"}])"),
           "messages[1].role", "", "'b' names no unanswered call"},
          {WithMessages(
               R"([{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":"}}]}])"),
           "messages[0].tool_calls[0].function.arguments", "invalid_value", "JSON object"},
          {WithMessages(
               R"([{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"[]"}}]}])"),
           "messages[0].tool_calls[0].function.arguments", "invalid_value", "JSON object"},
          {Body(R"("foo":1)"), "foo", "unknown_parameter", "Unknown parameter: 'foo'."},
          {Body(R"("temperature":"1")"), "temperature", "invalid_type",
           "Invalid type for 'temperature': expected a decimal, but got a string instead."},
          {Body(R"("temperature":2.1)"), "temperature", "decimal_above_max_value",
           "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.1 instead."},
          {Body(R"("temperature":-0.1)"), "temperature", "decimal_below_min_value", ">= 0"},
          {Body(R"("top_p":1.5)"), "top_p", "decimal_above_max_value", ""},
          {Body(R"("top_k":-2)"), "top_k", "integer_below_min_value", ""},
          {Body(R"("min_p":1)"), "min_p", "decimal_above_max_value", ""},
          {Body(R"("repetition_penalty":0)"), "repetition_penalty", "decimal_below_min_value", ""},
          {Body(R"("presence_penalty":3)"), "presence_penalty", "decimal_above_max_value", ""},
          {Body(R"("frequency_penalty":-3)"), "frequency_penalty", "decimal_below_min_value", ""},
          {Body(R"("seed":1.5)"), "seed", "invalid_type", "an integer"},
          {Body(R"("seed":18446744073709551615)"), "seed", "integer_above_max_value", ""},
          {Body(R"("n":0)"), "n", "integer_below_min_value", ""},
          {Body(R"("n":129)"), "n", "integer_above_max_value",
           "Expected a value <= 128, but got 129 instead."},
          {Body(R"("max_tokens":0)"), "max_tokens", "integer_below_min_value", ""},
          {Body(R"("max_tokens":1e30)"), "max_tokens", "integer_above_max_value", ""},
          {Body(R"("max_tokens":true)"), "max_tokens", "invalid_type", "a boolean"},
          {Body(R"("max_tokens":1,"max_completion_tokens":1)"), "max_tokens", "", "at the same time"},
          {Body(R"("max_completion_tokens":-1)"), "max_completion_tokens", "integer_below_min_value", ""},
          {Body(R"("stop":["a","b","c","d","e"])"), "stop", "array_above_max_length", "maximum length 4"},
          {Body(R"("stop":"")"), "stop", "invalid_value", "empty"},
          {Body(R"("stop":["a",1])"), "stop[1]", "invalid_type", ""},
          {Body(R"("stop":1)"), "stop", "invalid_type", ""},
          {Body(R"("logprobs":5)"), "logprobs", "invalid_type", "a boolean"},
          {Body(R"("top_logprobs":1)"), "top_logprobs", "", "only allowed when 'logprobs'"},
          {Body(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "integer_above_max_value", ""},
          {Body(R"("logit_bias":{"1000":1})"), "logit_bias", "invalid_value",
           "'1000' is no token id; they are 0 to 999"},
          {Body(R"("logit_bias":{"a":1})"), "logit_bias", "invalid_value", "no token id"},
          {Body(R"("logit_bias":{"-1":1})"), "logit_bias", "invalid_value", "no token id"},
          {Body(R"("logit_bias":{"2147483648":1})"), "logit_bias", "invalid_value", "no token id"},
          {Body(R"("logit_bias":{"1":101})"), "logit_bias.1", "decimal_above_max_value", ""},
          {Body(R"("logit_bias":[])"), "logit_bias", "invalid_type", ""},
          {Body(R"("stream":"yes")"), "stream", "invalid_type", ""},
          {Body(R"("stream_options":{"include_usage":true})"), "stream_options", "",
           "only allowed when 'stream' is enabled"},
          {Body(R"("stream":true,"stream_options":{"usage":true})"), "stream_options.usage",
           "unknown_parameter", ""},
          {Body(R"("reasoning_effort":"huge")"), "reasoning_effort", "invalid_value", "'none', 'minimal'"},
          {Body(R"("thinking":{"type":"maybe"})"), "thinking.type", "invalid_value", ""},
          {Body(R"("response_format":{"type":"xml"})"), "response_format.type", "invalid_value", ""},
          {Body(R"("response_format":{})"), "response_format.type", "missing_required_parameter", ""},
          {Body(R"("response_format":{"type":"json_schema"})"), "response_format.json_schema",
           "missing_required_parameter", ""},
          {Body(R"("response_format":{"type":"json_schema","json_schema":{"name":"s"}})"),
           "response_format.json_schema.schema", "missing_required_parameter", ""},
          {Body(R"("response_format":{"type":"json_schema","json_schema":{"name":"a b","schema":{}}})"),
           "response_format.json_schema.name", "invalid_value", "does not match"},
          {Body(R"("response_format":{"type":"json_schema","json_schema":{"name":"s","schema":true}})"),
           "response_format.json_schema.schema", "invalid_type", ""},
          // What other servers call a form: one that is not known is not passed over.
          {Body(R"("guided_json":{"type":"object"})"), "guided_json", "unknown_parameter", ""},
          {Body(R"("grammar":"root ::= [0-9]")"), "grammar", "unknown_parameter", ""},
          {Body(R"("tools":[])"), "tools", "empty_array", ""},
          {Body(R"("tools":[{"type":"web_search"}])"), "tools[0].type", "invalid_value", ""},
          {Body(R"("tools":[{"type":"function","function":{"name":"a.b"}}])"), "tools[0].function.name",
           "invalid_value", ""},
          {Body(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"),
           "tools[0].function.parameters", "invalid_type", ""},
          {Body("\"tools\":[" + kTool + "," + kTool + "]"), "tools[1].function.name", "invalid_value",
           "comes twice"},
          {Body(R"("tool_choice":"auto")"), "tool_choice", "", "only allowed when 'tools' are specified"},
          {Body(R"("parallel_tool_calls":true)"), "parallel_tool_calls", "",
           "only allowed when 'tools' are specified"},
          {WithTools(R"("tool_choice":"any")"), "tool_choice", "invalid_value", "'required'"},
          {WithTools(R"("tool_choice":{"type":"function","function":{"name":"put"}})"), "tool_choice", "",
           "Tool choice 'put' not found in 'tools' parameter."},
          {WithTools(R"("tool_choice":{"type":"function"})"), "tool_choice.function",
           "missing_required_parameter", ""},
          {WithTools(R"("tool_choice":{"type":"allowed_tools"})"), "tool_choice.type",
           "unsupported_parameter", ""},
          {Body(R"("functions":[{"name":"f"}])"), "functions", "unsupported_parameter", "use 'tools'"},
          {Body(R"("modalities":["text","audio"])"), "modalities", "unsupported_parameter", ""},
          {Body(R"("audio":{"voice":"x"})"), "audio", "unsupported_parameter", ""},
          {Body(R"("web_search_options":{"a":1})"), "web_search_options", "unsupported_parameter", ""},
      });
}

TEST(OpenAiChat, Tools) {
  const GenerationRequest r = Chat(WithTools(R"("tool_choice":"required","parallel_tool_calls":false)"));
  ASSERT_EQ(r.chat.tools.size(), 1u);
  // Members in their order, numbers as Python writes them: what the template would render.
  EXPECT_EQ(
      r.chat.tools[0],
      R"({"type":"function","function":{"name":"get","description":"d","parameters":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number","maximum":1.5}}}}})");
  EXPECT_EQ(r.tool_choice, (ToolChoice{ToolChoice::Kind::kRequired, "", false}));
  EXPECT_EQ(Chat(WithTools(R"("tool_choice":"auto")")).tool_choice, ToolChoice{});
  EXPECT_EQ(Chat(WithTools(R"("tool_choice":{"type":"function","function":{"name":"get"}})")).tool_choice,
            (ToolChoice{ToolChoice::Kind::kNamed, "get", true}));
}

TEST(OpenAiChat, AConversation) {
  const GenerationRequest r = Chat(WithMessages(R"([
    {"role":"developer","content":"be brief"},
    {"role":"user","name":"Ann","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]},
    {"role":"assistant","content":null,"reasoning_content":"","refusal":null,"audio":null,"annotations":[],"tool_calls":[
      {"id":"c1","type":"function","function":{"name":"get","arguments":"{\"x\": \"007\"}"}},
      {"id":"c2","type":"function","function":{"name":"get","arguments":""}}]},
    {"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"two"}]},
    {"role":"tool","tool_call_id":"c1","content":"one"},
    {"role":"assistant","content":"done","reasoning":"why"},
    {"role":"assistant","content":"<think>x</think>y"}])"));
  ASSERT_EQ(r.messages.size(), 7u);
  EXPECT_EQ(r.messages[0].role, Role::kSystem);
  EXPECT_EQ(r.messages[1].content, "ab");
  EXPECT_EQ(r.messages[2].content, "");
  EXPECT_TRUE(r.messages[2].reasoning_apart);
  ASSERT_EQ(r.messages[2].tool_calls.size(), 2u);
  EXPECT_EQ(r.messages[2].tool_calls[0].arguments, "{\"x\": \"007\"}");  // to the byte as it came
  EXPECT_EQ(r.messages[2].tool_calls[1].arguments, "{}");
  EXPECT_EQ(r.messages[2].tool_calls[1].id, "c2");
  EXPECT_EQ(r.messages[3].role, Role::kTool);
  EXPECT_EQ(r.messages[3].content, "two");
  EXPECT_EQ(r.messages[3].tool_call_id, "c2");
  EXPECT_EQ(r.messages[5].reasoning, "why");
  EXPECT_TRUE(r.messages[5].reasoning_apart);
  EXPECT_FALSE(r.messages[6].reasoning_apart);  // then the template looks for it
}

TEST(OpenAiChat, NestingIsBounded) {
  for (const char bracket : {'[', '{'}) {
    std::string deep;
    for (int i = 0; i < 10'000; ++i) deep += bracket == '[' ? "[" : "{\"a\":";
    const auto parsed = ParseOpenAiChat(Body("\"metadata\":" + deep), TestLimits());
    EXPECT_TRUE(std::holds_alternative<ApiError>(parsed));
  }
}

std::unique_ptr<ResponseWriter> Writer(const std::string& more) {
  return MakeOpenAiChatWriter(Chat(Body(more)), TestNames());
}

const std::string kHead = R"({"id":"chatcmpl-X1","object":"chat.completion)";
const std::string kTail =
    R"("created":1700000000,"model":"glm","service_tier":"default","system_fingerprint":"fp",)";
const std::string kUsage =
    R"("usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}})";
const std::string kTimings =
    R"("timings":{"queue_ms":0.5,"prefill_tokens":6,"prefill_ms":20.0,"cached_tokens":4,"decode_tokens":7,"decode_ms":30.25})";

std::string Frame(const std::string& delta, const std::string& finish = "null",
                  const std::string& more = "") {
  return "data: " + kHead + ".chunk\"," + kTail + R"("choices":[{"index":0,"delta":)" + delta +
         R"(,"logprobs":null,"finish_reason":)" + finish + "}]" + more + "}\n\n";
}

std::vector<AnswerEvent> Events() {
  std::vector<AnswerEvent> events{Reasoning("hm"), Text("he"), Text("llo\n\xe2\x80\xa8")};
  for (auto& e : Call(0, "get", {"{\"x\":", "1}"})) events.push_back(e);
  return events;
}

TEST(OpenAiChat, StreamToTheByte) {
  const std::string want =
      Frame(R"({"role":"assistant","content":"","refusal":null})") + Frame(R"({"reasoning_content":"hm"})") +
      Frame(R"({"content":"he"})") + Frame(R"({"content":"llo\n\u2028"})") +
      Frame(
          R"({"tool_calls":[{"index":0,"id":"call_X100000","type":"function","function":{"name":"get","arguments":""}}]})") +
      Frame(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]})") +
      Frame(R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})") +
      Frame("{}", "\"tool_calls\"", "," + kTimings) + "data: [DONE]\n\n";
  EXPECT_EQ(Written(*Writer(R"("stream":true)"), Events(), TestOutcome()), want);
}

TEST(OpenAiChat, StreamWithUsage) {
  const std::string want =
      Frame(R"({"role":"assistant","content":"","refusal":null})", "null", ",\"usage\":null") +
      Frame(R"({"content":"a"})", "null", ",\"usage\":null") +
      Frame("{}", "\"length\"", ",\"usage\":null," + kTimings) + "data: " + kHead + ".chunk\"," + kTail +
      R"("choices":[],)" + kUsage + "}\n\ndata: [DONE]\n\n";
  EXPECT_EQ(Written(*Writer(R"("stream":true,"stream_options":{"include_usage":true})"), {Text("a")},
                    TestOutcome(FinishReason::kLength)),
            want);
}

TEST(OpenAiChat, WholeToTheByte) {
  const std::string want =
      kHead + "\"," + kTail +
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"hello\n\u2028","refusal":null,"annotations":[],"reasoning_content":"hm","tool_calls":[{"id":"call_X100000","type":"function","function":{"name":"get","arguments":"{\"x\":1}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],)" +
      kUsage + "," + kTimings + "}";
  EXPECT_EQ(Written(*Writer(""), Events(), TestOutcome()), want);
}

TEST(OpenAiChat, FinishReasons) {
  const auto finish = [](const std::vector<AnswerEvent>& events, FinishReason reason) {
    const std::string body = Written(*Writer(""), events, TestOutcome(reason, "x"));
    const Result<Json> json = ParseJson(body, "body");
    return json->Find("choices")->items()[0].Get<std::string>("finish_reason").value();
  };
  EXPECT_EQ(finish({Text("a")}, FinishReason::kStop), "stop");
  EXPECT_EQ(finish({Text("a")}, FinishReason::kStopString), "stop");
  EXPECT_EQ(finish({Text("a")}, FinishReason::kLength), "length");
  EXPECT_EQ(finish(Call(0, "f", {"{}"}), FinishReason::kStop), "tool_calls");
  EXPECT_EQ(finish(Call(0, "f", {"{}"}), FinishReason::kLength), "length");
}

// A turn that ends with its reasoning has an empty answer, and not none.
TEST(OpenAiChat, ContentIsNullBesideCallsOnly) {
  EXPECT_NE(Written(*Writer(""), {Reasoning("r")}, TestOutcome()).find(R"("content":"",)"),
            std::string::npos);
  EXPECT_NE(Written(*Writer(""), Call(0, "f", {"{}"}), TestOutcome()).find(R"("content":null,)"),
            std::string::npos);
}

TEST(OpenAiChat, Logprobs) {
  const std::vector<TokenLogprob> tokens{
      {"a", -0.5, {{"a", -0.5}, {"b", -std::numeric_limits<double>::infinity()}}}, {"\xe2\x98", -1.0, {}}};
  const std::string entries =
      R"({"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-9999.0,"bytes":[98]}]},{"token":")"
      "\xef\xbf\xbd\xef\xbf\xbd"
      R"(","logprob":-1.0,"bytes":[226,152],"top_logprobs":[]})";
  for (const bool stream : {false, true}) {
    auto writer =
        Writer(std::string(R"("logprobs":true,"top_logprobs":2,"stream":)") + (stream ? "true" : "false"));
    std::string all = InOrder({writer->Begin({}), writer->Event(0, Text("a"), tokens),
                               writer->Finish(0, TestOutcome()), writer->End()});
    EXPECT_NE(all.find(R"("logprobs":{"content":[)" + entries + R"(],"refusal":null})"), std::string::npos)
        << all;
  }
}

TEST(OpenAiChat, SeveralChoices) {
  auto writer = Writer(R"("n":2)");
  const std::string all = InOrder({writer->Begin({}), writer->Event(1, Text("two"), {}),
                                   writer->Event(0, Text("one"), {}), writer->Finish(1, TestOutcome()),
                                   writer->Finish(0, TestOutcome(FinishReason::kLength)), writer->End()});
  const Result<Json> json = ParseJson(all, "body");
  ASSERT_TRUE(json.ok()) << all;
  const auto& choices = json->Find("choices")->items();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].Get<std::string>("message.content").value(), "one");
  EXPECT_EQ(choices[1].Get<std::string>("message.content").value(), "two");
  EXPECT_EQ(choices[1].Get<int64_t>("index").value(), 1);
  // The prompt was read once.
  EXPECT_EQ(json->Get<int64_t>("usage.prompt_tokens").value(), 10);
  EXPECT_EQ(json->Get<int64_t>("usage.completion_tokens").value(), 14);
}

TEST(OpenAiChat, FailuresAndKeepAlive) {
  const std::string body = R"({"error":{"message":"no","type":"server_error","param":null,"code":null}})";
  EXPECT_EQ(Writer("")->Fail({500, "no"}), body);
  EXPECT_EQ(Writer(R"("stream":true)")->Fail({500, "no"}), "data: " + body + "\n\ndata: [DONE]\n\n");
  EXPECT_EQ(Writer(R"("stream":true)")->KeepAlive({3, 9}), ": prefill 3/9\n\n");
  EXPECT_EQ(Writer("")->KeepAlive({3, 9}), "");
}

TEST(ApiErrors, Bodies) {
  EXPECT_EQ(
      OpenAiErrorBody(UnknownModel("x")),
      R"({"error":{"message":"The model 'x' does not exist here; /v1/models lists those that do.","type":"invalid_request_error","param":"model","code":"model_not_found"}})");
  EXPECT_EQ(
      OpenAiErrorBody(OpenAiContextOverflow(90, 20, 100)),
      R"({"error":{"message":"This model's maximum context length is 100 tokens. However, you requested 110 tokens (90 in the messages, 20 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}})");
  EXPECT_EQ(
      AnthropicErrorBody(AnthropicContextOverflow(101, 1, 100), "req_1"),
      R"({"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 101 tokens > 100 maximum"},"request_id":"req_1"})");
  EXPECT_EQ(Overloaded(3).status, 429);
  EXPECT_EQ(Overloaded(3).retry_after_s, 3u);
  const std::vector<std::pair<int, std::string>> types{{400, "invalid_request_error"},
                                                       {401, "authentication_error"},
                                                       {403, "permission_error"},
                                                       {404, "not_found_error"},
                                                       {413, "request_too_large"},
                                                       {429, "rate_limit_error"},
                                                       {500, "api_error"},
                                                       {503, "overloaded_error"},
                                                       {504, "timeout_error"},
                                                       {529, "overloaded_error"}};
  for (const auto& [status, type] : types)
    EXPECT_EQ(AnthropicErrorBody({status, "m"}),
              R"({"type":"error","error":{"type":")" + type + R"(","message":"m"},"request_id":null})");
  EXPECT_EQ(FromStatus(Status(Code::kUnsupported, "no"), "response_format").status, 400);
  EXPECT_EQ(FromStatus(Status(Code::kDevice, "no")).status, 500);
  // A message that quotes bytes of the request is UTF-8 all the same.
  EXPECT_NE(OpenAiErrorBody({400, "\xff"}).find("\xef\xbf\xbd"), std::string::npos);
}

}  // namespace
}  // namespace glint::serve
