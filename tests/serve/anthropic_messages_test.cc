#include "serve/anthropic_messages.h"

#include "base/json.h"
#include "tests/serve/api_test_support.h"

namespace glint::serve {
namespace {

std::string Body(const std::string& more) {
  return R"({"model":"m","max_tokens":5000,"messages":[{"role":"user","content":"hi"}])" +
         (more.empty() ? "" : "," + more) + "}";
}
std::string WithMessages(const std::string& messages, const std::string& more = "") {
  return R"({"model":"m","max_tokens":9,"messages":)" + messages + more + "}";
}
GenerationRequest Messages(const std::string& body) { return Accept(ParseAnthropicMessages, body); }

const std::string kTools =
    R"("tools":[{"name":"get","description":"d","input_schema":{"type":"object","z":1,"a":2},"cache_control":{"type":"ephemeral"}}])";

TEST(AnthropicMessages, EachFieldArrives) {
  using R = const GenerationRequest&;
  struct Accepted {
    std::string more;
    bool (*holds)(R);
  };
  const std::vector<Accepted> cases{
      {"",
       [](R r) {
         return r.model == "m" && r.max_tokens == 5000u && r.messages.size() == 1 && !r.stream &&
                !r.show_reasoning && !r.skip_reasoning;
       }},
      {R"("stream":true)", [](R r) { return r.stream; }},
      {R"("temperature":0.5)", [](R r) { return r.sampler.temperature == 0.5f; }},
      {R"("top_k":0)", [](R r) { return r.sampler.top_k == 0; }},
      {R"("top_k":5)", [](R r) { return r.sampler.top_k == 5; }},
      {R"("top_p":0.9)", [](R r) { return r.sampler.top_p == 0.9f; }},
      {R"("stop_sequences":["a","b","c","d","e"])", [](R r) { return r.stop.size() == 5; }},
      {R"("system":"s")",
       [](R r) {
         return r.messages.size() == 2 && r.messages[0].role == Role::kSystem && r.messages[0].content == "s";
       }},
      {R"("system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}},{"type":"text","text":"t"}])",
       [](R r) { return r.messages[0].content == "st"; }},
      {R"("thinking":{"type":"enabled","budget_tokens":1024})",
       [](R r) { return r.show_reasoning && r.chat.reasoning_effort == "low"; }},
      {R"("thinking":{"type":"enabled","budget_tokens":4999})",
       [](R r) { return r.show_reasoning && r.chat.reasoning_effort == "high"; }},
      {R"("thinking":{"type":"disabled"})", [](R r) { return r.skip_reasoning && !r.show_reasoning; }},
      {R"("thinking":{"type":"adaptive"})",
       [](R r) { return !r.skip_reasoning && r.show_reasoning && r.chat.reasoning_effort.empty(); }},
      {R"("thinking":{"type":"adaptive","display":"omitted"})",
       [](R r) { return !r.skip_reasoning && !r.show_reasoning; }},
      {R"("output_config":{"effort":"low"})", [](R r) { return r.chat.reasoning_effort == "low"; }},
      {R"("output_config":{"effort":"max","format":{"type":"json_schema","schema":{"type":"object"}}})",
       [](R r) {
         return r.constraint == Constraint{Constraint::Kind::kJsonSchema, R"({"type":"object"})"};
       }},
      {kTools,
       [](R r) {
         return r.chat.tools.at(0) ==
                R"({"type":"function","function":{"name":"get","description":"d","parameters":{"type":"object","z":1,"a":2}}})";
       }},
      {kTools + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})",
       [](R r) {
         return r.tool_choice == ToolChoice{ToolChoice::Kind::kAuto, "", false};
       }},
      {kTools + R"(,"tool_choice":{"type":"any"})",
       [](R r) { return r.tool_choice.kind == ToolChoice::Kind::kRequired; }},
      {kTools + R"(,"tool_choice":{"type":"tool","name":"get"})",
       [](R r) {
         return r.tool_choice == ToolChoice{ToolChoice::Kind::kNamed, "get", true};
       }},
      {kTools + R"(,"tool_choice":{"type":"none"})",
       [](R r) { return r.tool_choice.kind == ToolChoice::Kind::kNone; }},
      {R"("metadata":{"user_id":"u"},"service_tier":"auto","cache_control":{"type":"ephemeral"})",
       [](R) { return true; }},
      {R"("context_management":{"edits":[]})", [](R r) { return r.warnings.size() == 1; }},
  };
  for (const Accepted& c : cases) EXPECT_TRUE(c.holds(Messages(Body(c.more)))) << c.more;
}

TEST(AnthropicMessages, AnAgentsConversation) {
  const GenerationRequest r = Messages(WithMessages(R"([
    {"role":"user","content":[{"type":"text","text":"go"}]},
    {"role":"assistant","content":[
      {"type":"thinking","thinking":"hm","signature":"s"},
      {"type":"redacted_thinking","data":"x"},
      {"type":"text","text":"two calls"},
      {"type":"tool_use","id":"toolu_1","name":"get","input":{"q":"007","n":7,"f":1.0,"l":[1,{"a":null}]},"cache_control":{"type":"ephemeral"}},
      {"type":"tool_use","id":"toolu_2","name":"get","input":{}}]},
    {"role":"user","content":[
      {"type":"tool_result","tool_use_id":"toolu_2","content":[{"type":"text","text":"b"}],"is_error":true},
      {"type":"tool_result","tool_use_id":"toolu_1","content":"a","cache_control":{"type":"ephemeral"}},
      {"type":"text","text":"and?"}]},
    {"role":"assistant","content":"x</think>y"},
    {"role":"user","content":"bye"}])"));
  ASSERT_EQ(r.messages.size(), 7u);
  EXPECT_EQ(r.messages[1].reasoning, "hm");
  EXPECT_TRUE(r.messages[1].reasoning_apart);
  EXPECT_EQ(r.messages[1].content, "two calls");
  ASSERT_EQ(r.messages[1].tool_calls.size(), 2u);
  EXPECT_EQ(r.messages[1].tool_calls[0].arguments, R"({"q":"007","n":7,"f":1.0,"l":[1,{"a":null}]})");
  EXPECT_EQ(r.messages[1].tool_calls[1].arguments, "{}");
  EXPECT_EQ(r.messages[2].role, Role::kTool);
  EXPECT_EQ(r.messages[2].content, "b");
  EXPECT_EQ(r.messages[2].tool_call_id, "toolu_2");
  EXPECT_EQ(r.messages[3].tool_call_id, "toolu_1");
  EXPECT_EQ(r.messages[4].role, Role::kUser);
  EXPECT_EQ(r.messages[4].content, "and?");
  EXPECT_EQ(r.messages[5].content, "x</think>y");
  EXPECT_TRUE(r.messages[5].reasoning_apart);
}

TEST(AnthropicMessages, RefusesAsTheApiDoes) {
  const std::string call =
      R"({"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]})";
  const std::string user = R"({"role":"user","content":"x"})";
  ExpectRefusals(
      ParseAnthropicMessages,
      {
          {"nonsense", "", "", "not valid JSON"},
          {"3", "", "", "must be a JSON object"},
          {R"({"max_tokens":1,"messages":[]})", "model", "", "model: Field required"},
          {R"({"model":"m","messages":[{"role":"user","content":"x"}]})", "max_tokens", "",
           "max_tokens: Field required"},
          {R"({"model":"m","max_tokens":0,"messages":[{"role":"user","content":"x"}]})", "max_tokens", "",
           "max_tokens: integer below"},
          {R"({"model":"m","max_tokens":1})", "messages", "", "messages: Field required"},
          {WithMessages("[]"), "messages", "", "at least one message is required"},
          {WithMessages("1"), "messages", "", "Input should be an array"},
          {WithMessages(R"([{"role":"tool","content":"x"}])"), "messages.0.role", "",
           "messages.0.role: Input should be 'user'"},
          {WithMessages(R"([{"role":"user"}])"), "messages.0.content", "", "Field required"},
          {WithMessages(R"([{"role":"user","content":""}])"), "messages.0.content", "", "non-empty content"},
          {WithMessages(R"([{"role":"user","content":[]}])"), "messages.0.content", "", "non-empty content"},
          {WithMessages(R"([{"role":"user","content":[{"type":"text","text":""}]}])"), "messages.0.content.0",
           "", "text content blocks must be non-empty"},
          {WithMessages(R"([{"role":"user","content":[{"type":"image","source":{}}]}])"),
           "messages.0.content.0.type", "", "text alone"},
          {WithMessages(R"([{"role":"user","content":"x","name":"n"}])"), "messages.0.name", "",
           "messages.0.name: Extra inputs are not permitted"},
          {WithMessages("[" + user + R"(,{"role":"assistant","content":"Sure"}])"), "messages", "",
           "prefill"},
          {WithMessages("[" + user + "," + call + "," + user + "]"), "messages.2", "",
           "`tool_use` ids were found without `tool_result` blocks immediately after: t"},
          {WithMessages("[" + user + "," + call + "]"), "messages.1", "", "without `tool_result`"},
          {WithMessages(R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"q"}]}])"),
           "messages.0.content.0", "", "unexpected `tool_use_id` found in `tool_result` blocks: q"},
          {WithMessages(
               "[" + user +
               R"(,{"role":"assistant","content":[{"type":"tool_use","id":"a b","name":"f","input":{}}]}])"),
           "messages.1.content.0.id", "", "pattern"},
          {WithMessages(
               "[" + user +
               R"(,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"{}"}]}])"),
           "messages.1.content.0.input", "", "Input should be an object"},
          {WithMessages("[" + user +
                        R"(,{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}])"),
           "messages.1.content.0.signature", "", "Field required"},
          {Body(R"("temperature":1.1)"), "temperature", "", "<= 1"},
          {Body(R"("top_p":-1)"), "top_p", "", ">= 0"},
          {Body(R"("top_k":-1)"), "top_k", "", ">= 0"},
          {Body(R"("stop_sequences":[" "])"), "stop_sequences", "", "non-whitespace"},
          {Body(R"("stop_sequences":"x")"), "stop_sequences", "", "an array"},
          {Body(R"("stream":1)"), "stream", "", "a boolean"},
          {Body(R"("foo":1)"), "foo", "", "foo: Extra inputs are not permitted"},
          {Body(R"("thinking":{"type":"enabled"})"), "thinking.budget_tokens", "", "Field required"},
          {Body(R"("thinking":{"type":"enabled","budget_tokens":1023})"), "thinking.budget_tokens", "",
           ">= 1024"},
          {Body(R"("thinking":{"type":"enabled","budget_tokens":5000})"), "max_tokens", "",
           "greater than `thinking.budget_tokens`"},
          {Body(R"("thinking":{"type":"on"})"), "thinking.type", "", "'enabled'"},
          {Body(kTools +
                R"(,"tool_choice":{"type":"any"},"thinking":{"type":"enabled","budget_tokens":1024})"),
           "tool_choice", "", "Thinking may not be enabled when tool_choice forces tool use."},
          {Body(R"("tool_choice":{"type":"any"})"), "tool_choice", "", "while providing tools"},
          {Body(kTools + R"(,"tool_choice":{"type":"tool","name":"put"})"), "tool_choice", "",
           "'put' not found"},
          {Body(kTools + R"(,"tool_choice":{"type":"tool"})"), "tool_choice.name", "", "Field required"},
          {Body(R"("tools":[{"name":"f"}])"), "tools.0.input_schema", "", "Field required"},
          {Body(R"("tools":[{"name":"f g","input_schema":{}}])"), "tools.0.name", "", "does not match"},
          {Body(R"("tools":[{"type":"bash_20250124","name":"bash"}])"), "tools.0.type", "", "not supported"},
          {Body(R"("output_config":{"effort":"huge"})"), "output_config.effort", "", "'low'"},
          {Body(R"("output_config":{"format":{"type":"json_schema"}})"), "output_config.format.schema", "",
           "Field required"},
          {Body(R"("system":[{"type":"image"}])"), "system.0.type", "", "text alone"},
          {Body(R"("metadata":{"name":"x"})"), "metadata.name", "", "Extra inputs"},
          {Body(R"("mcp_servers":[{}])"), "mcp_servers", "", "not supported"},
      });
}

TEST(AnthropicMessages, CountTokens) {
  const GenerationRequest r =
      Accept(ParseAnthropicCountTokens,
             R"({"model":"m","system":"s","messages":[{"role":"user","content":"x"}],)" + kTools + "}");
  EXPECT_EQ(r.messages.size(), 2u);
  EXPECT_EQ(r.chat.tools.size(), 1u);
  ExpectRefusals(ParseAnthropicCountTokens, {{R"({"model":"m"})", "messages", "", "Field required"}});
  EXPECT_EQ(AnthropicCountTokensBody(12), R"({"input_tokens":12})");
}

std::unique_ptr<ResponseWriter> Writer(const std::string& more) {
  return MakeAnthropicMessagesWriter(Messages(Body(more)), TestNames());
}

std::vector<AnswerEvent> Events() {
  std::vector<AnswerEvent> events{Reasoning("h"), Reasoning("m"), Text("a"), Text("b")};
  for (auto& e : Call(0, "get", {"{\"q\":", "1}"})) events.push_back(e);
  for (auto& e : Call(1, "get", {"{}"})) events.push_back(e);
  return events;
}

const std::string kThinking = R"("thinking":{"type":"adaptive"})";
const std::string kUsage =
    R"("usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":7,"output_tokens_details":{"thinking_tokens":2}})";
const std::string kTimings =
    R"("timings":{"queue_ms":0.5,"prefill_tokens":6,"prefill_ms":20.0,"cached_tokens":4,"decode_tokens":7,"decode_ms":30.25})";

std::string Frame(const std::string& name, const std::string& rest) {
  return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + rest + "}\n\n";
}
std::string Delta(int index, const std::string& delta) {
  return Frame("content_block_delta",
               ",\"index\":" + std::to_string(index) + ",\"delta\":{\"type\":" + delta + "}");
}
std::string Start(int index, const std::string& block) {
  return Frame("content_block_start",
               ",\"index\":" + std::to_string(index) + ",\"content_block\":{\"type\":" + block + "}");
}
std::string Stop(int index) { return Frame("content_block_stop", ",\"index\":" + std::to_string(index)); }

const std::string kMessageStart = Frame(
    "message_start",
    R"(,"message":{"id":"msg_X1","type":"message","role":"assistant","model":"glm","content":[],"stop_reason":null,"stop_sequence":null,)" +
        kUsage + "}");

TEST(AnthropicMessages, StreamToTheByte) {
  const std::string want =
      kMessageStart + Start(0, R"("thinking","thinking":"","signature":"")") + Frame("ping", "") +
      Delta(0, R"("thinking_delta","thinking":"h")") + Delta(0, R"("thinking_delta","thinking":"m")") +
      Delta(0, R"("signature_delta","signature":"Z2xpbnQ=")") + Stop(0) + Start(1, R"("text","text":"")") +
      Delta(1, R"("text_delta","text":"a")") + Delta(1, R"("text_delta","text":"b")") + Stop(1) +
      Start(2, R"("tool_use","id":"toolu_X1000","name":"get","input":{})") +
      Delta(2, R"("input_json_delta","partial_json":"{\"q\":")") +
      Delta(2, R"("input_json_delta","partial_json":"1}")") + Stop(2) +
      Start(3, R"("tool_use","id":"toolu_X1001","name":"get","input":{})") +
      Delta(3, R"("input_json_delta","partial_json":"{}")") + Stop(3) +
      Frame("message_delta",
            R"(,"delta":{"stop_reason":"tool_use","stop_sequence":null},)" + kUsage + "," + kTimings) +
      Frame("message_stop", "");
  EXPECT_EQ(Written(*Writer("\"stream\":true," + kThinking), Events(), TestOutcome()), want);
}

TEST(AnthropicMessages, WholeToTheByte) {
  EXPECT_EQ(
      Written(*Writer(kThinking), Events(), TestOutcome()),
      R"({"id":"msg_X1","type":"message","role":"assistant","model":"glm","content":[{"type":"thinking","thinking":"hm","signature":"Z2xpbnQ="},{"type":"text","text":"ab"},{"type":"tool_use","id":"toolu_X1000","name":"get","input":{"q":1}},{"type":"tool_use","id":"toolu_X1001","name":"get","input":{}}],"stop_reason":"tool_use","stop_sequence":null,)" +
          kUsage + "," + kTimings + "}");
}

TEST(AnthropicMessages, ReasoningThatWasNotAskedForStaysOut) {
  const std::string whole = Written(*Writer(""), {Reasoning("secret"), Text("a")}, TestOutcome());
  EXPECT_EQ(whole.find("secret"), std::string::npos);
  const std::string stream =
      Written(*Writer(R"("stream":true)"), {Reasoning("secret"), Text("a")}, TestOutcome());
  EXPECT_EQ(stream.find("secret"), std::string::npos);
  EXPECT_NE(stream.find(Start(0, R"("text","text":"")")), std::string::npos);
}

TEST(AnthropicMessages, StopReasons) {
  const auto end = [](const std::vector<AnswerEvent>& events, const Outcome& outcome) {
    return Written(*Writer(""), events, outcome);
  };
  EXPECT_NE(end({Text("a")}, TestOutcome()).find(R"("stop_reason":"end_turn","stop_sequence":null)"),
            std::string::npos);
  EXPECT_NE(end({Text("a")}, TestOutcome(FinishReason::kLength))
                .find(R"("stop_reason":"max_tokens","stop_sequence":null)"),
            std::string::npos);
  EXPECT_NE(end({Text("a")}, TestOutcome(FinishReason::kStopString, "\n"))
                .find(R"("stop_reason":"stop_sequence","stop_sequence":"\n")"),
            std::string::npos);
  EXPECT_NE(end({}, TestOutcome()).find(R"("content":[],)"), std::string::npos);
}

// A call that was cut off after its first pieces went out is no call: a whole message keeps what there was as text.
TEST(AnthropicMessages, BrokenCall) {
  AnswerEvent broken = Of(AnswerEvent::Kind::kCallEnd, "");
  broken.broken = true;
  const std::vector<AnswerEvent> events{Of(AnswerEvent::Kind::kCallBegin, "get"),
                                        Of(AnswerEvent::Kind::kCallArguments, "{\"q\":\"x"), broken};
  const std::string whole = Written(*Writer(""), events, TestOutcome());
  ASSERT_TRUE(ParseJson(whole, "body").ok()) << whole;
  EXPECT_NE(whole.find(R"({"type":"text","text":"get{\"q\":\"x"})"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("stop_reason":"end_turn")"), std::string::npos) << whole;
}

TEST(AnthropicMessages, FailuresAndKeepAlive) {
  const std::string body =
      R"({"type":"error","error":{"type":"overloaded_error","message":"no"},"request_id":"req_X1"})";
  EXPECT_EQ(Writer("")->Fail({529, "no"}), body);
  EXPECT_EQ(Writer(R"("stream":true)")->Fail({529, "no"}), "event: error\ndata: " + body + "\n\n");
  EXPECT_EQ(Writer(R"("stream":true)")->KeepAlive({3, 9}),
            "event: ping\ndata: {\"type\":\"ping\",\"progress\":{\"done\":3,\"total\":9}}\n\n");
  EXPECT_EQ(Writer("")->KeepAlive({3, 9}), "");
}

}  // namespace
}  // namespace glint::serve
