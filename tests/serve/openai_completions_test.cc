#include "serve/openai_completions.h"

#include "base/json.h"
#include "tests/serve/api_test_support.h"

namespace glint::serve {
namespace {

std::string Body(const std::string& more) {
  return R"({"model":"m","prompt":"p")" + (more.empty() ? "" : "," + more) + "}";
}
std::string WithPrompt(const std::string& prompt) { return R"({"model":"m","prompt":)" + prompt + "}"; }
GenerationRequest Complete(const std::string& body) { return Accept(ParseOpenAiCompletion, body); }

TEST(OpenAiCompletion, Prompts) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(Complete(WithPrompt(R"("")")).prompts, std::vector<RawPrompt>{std::string()});
  EXPECT_EQ(Complete(WithPrompt(R"(["a","b"])")).prompts,
            (std::vector<RawPrompt>{std::string("a"), std::string("b")}));
  EXPECT_EQ(Complete(WithPrompt("[0,999]")).prompts, (std::vector<RawPrompt>{Ids{0, 999}}));
  EXPECT_EQ(Complete(WithPrompt("[[1,2],[3]]")).prompts, (std::vector<RawPrompt>{Ids{1, 2}, Ids{3}}));
  EXPECT_EQ(Complete(R"({"model":"m","prompt":["a","b"],"n":3})").choices(), 6u);
}

TEST(OpenAiCompletion, EachFieldArrives) {
  EXPECT_EQ(Complete(Body("")).max_tokens, 16u);
  EXPECT_EQ(Complete(Body(R"("max_tokens":0,"echo":true)")).max_tokens, 0u);
  EXPECT_TRUE(Complete(Body(R"("echo":true)")).echo);
  EXPECT_EQ(Complete(Body(R"("logprobs":0)")).logprobs, 0u);
  EXPECT_EQ(Complete(Body(R"("logprobs":5)")).logprobs, 5u);
  EXPECT_EQ(Complete(Body(R"("logprobs":null)")).logprobs, std::nullopt);
  EXPECT_EQ(Complete(Body(R"("n":2,"best_of":2)")).n, 2u);
  const GenerationRequest r =
      Complete(Body(R"("temperature":0.5,"seed":3,"stop":["x"],"stream":true,"suffix":null)"));
  EXPECT_EQ(r.sampler.temperature, 0.5f);
  EXPECT_EQ(r.sampler.seed, 3u);
  EXPECT_EQ(r.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(r.stream);
}

TEST(OpenAiCompletion, RefusesAsTheApiDoes) {
  ExpectRefusals(
      ParseOpenAiCompletion,
      {
          {R"({"model":"m"})", "prompt", "missing_required_parameter", ""},
          {WithPrompt("3"), "prompt", "invalid_type", ""},
          {WithPrompt("[]"), "prompt", "empty_array", ""},
          {WithPrompt("[1000]"), "prompt[0]", "invalid_value", "1000 is no token id; they are 0 to 999"},
          {WithPrompt("[1,-1]"), "prompt[1]", "invalid_value", "-1 is no token id"},
          {WithPrompt(R"([1,"a"])"), "prompt[1]", "invalid_value", "no token id"},
          {WithPrompt(R"(["a",1])"), "prompt[1]", "invalid_type", "a string"},
          {WithPrompt(R"([[1],"a"])"), "prompt[1]", "invalid_type", "an array of token ids"},
          {WithPrompt("[1.0]"), "prompt[0]", "invalid_type", ""},
          {Body(R"("logprobs":6)"), "logprobs", "integer_above_max_value", ""},
          {Body(R"("logprobs":true)"), "logprobs", "invalid_type", ""},
          {Body(R"("max_tokens":-1)"), "max_tokens", "integer_below_min_value", ""},
          {Body(R"("suffix":"x")"), "suffix", "unsupported_parameter", ""},
          {Body(R"("best_of":2)"), "best_of", "unsupported_parameter", ""},
          {Body(R"("n":2,"best_of":1)"), "best_of", "", "greater than or equal to 'n'"},
          {Body(R"("messages":[])"), "messages", "unknown_parameter", ""},
          {Body(R"("tools":[])"), "tools", "unknown_parameter", ""},
          {Body(R"("response_format":{"type":"json_object"})"), "response_format", "unknown_parameter", ""},
          {Body(R"("grammar":"root ::= [0-9]")"), "grammar", "unknown_parameter", ""},
      });
}

std::unique_ptr<ResponseWriter> Writer(const std::string& more) {
  return MakeOpenAiCompletionWriter(Complete(Body(more)), TestNames());
}

const std::string kHead =
    R"({"id":"cmpl-X1","object":"text_completion","created":1700000000,"model":"glm","system_fingerprint":"fp",)";
const std::string kUsage =
    R"("usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}})";
const std::string kTimings =
    R"("timings":{"queue_ms":0.5,"prefill_tokens":6,"prefill_ms":20.0,"cached_tokens":4,"decode_tokens":7,"decode_ms":30.25})";

TEST(OpenAiCompletion, WholeAndStreamToTheByte) {
  const std::vector<AnswerEvent> events{Text("a"), Text("\"b")};
  EXPECT_EQ(Written(*Writer(""), events, TestOutcome()),
            kHead + R"("choices":[{"text":"a\"b","index":0,"logprobs":null,"finish_reason":"stop"}],)" +
                kUsage + "," + kTimings + "}");
  const auto chunk = [](const std::string& text, const std::string& finish, const std::string& more) {
    return "data: " + kHead + R"("choices":[{"text":")" + text +
           R"(","index":0,"logprobs":null,"finish_reason":)" + finish + "}]" + more + "}\n\n";
  };
  EXPECT_EQ(Written(*Writer(R"("stream":true)"), events, TestOutcome(FinishReason::kLength)),
            chunk("a", "null", "") + chunk("\\\"b", "null", "") + chunk("", "\"length\"", "," + kTimings) +
                "data: [DONE]\n\n");
  EXPECT_EQ(Written(*Writer(R"("stream":true,"stream_options":{"include_usage":true})"), {Text("a")},
                    TestOutcome()),
            chunk("a", "null", ",\"usage\":null") + chunk("", "\"stop\"", ",\"usage\":null," + kTimings) +
                "data: " + kHead + "\"choices\":[]," + kUsage + "}\n\ndata: [DONE]\n\n");
}

// Offsets count characters, the chosen token is always among the top ones, and the first token of a prompt follows nothing.
TEST(OpenAiCompletion, Logprobs) {
  auto writer = Writer(R"("logprobs":1,"echo":true)");
  std::string all = writer->Begin({});
  all += writer->Event(0, Text("\xc3\xa4z"), {{"\xc3\xa4", {}, {}}, {"z", -2.0, {{"y", -1.0}}}});
  all += writer->Event(0, Text("q"), {{"q", -0.5, {{"q", -0.5}}}});
  all += InOrder({writer->Finish(0, TestOutcome()), writer->End()});
  EXPECT_NE(
      all.find(
          R"("logprobs":{"tokens":["ä","z","q"],"token_logprobs":[null,-2.0,-0.5],"top_logprobs":[null,{"y":-1.0,"z":-2.0},{"q":-0.5}],"text_offset":[0,1,2]})"),
      std::string::npos)
      << all;
  auto none = Writer(R"("logprobs":0)");
  all = InOrder({none->Event(0, Text("q"), {{"q", -0.5, {}}}), none->Finish(0, TestOutcome()), none->End()});
  EXPECT_NE(
      all.find(
          R"("logprobs":{"tokens":["q"],"token_logprobs":[-0.5],"top_logprobs":null,"text_offset":[0]})"),
      std::string::npos)
      << all;
  // Parts of characters are told apart.
  auto parts = Writer(R"("logprobs":2)");
  all = InOrder({parts->Event(0, Text("\xef\xbf\xbd"), {{"\xe2", -0.5, {{"\xe3", -0.75}}}}),
                 parts->Finish(0, TestOutcome()), parts->End()});
  EXPECT_NE(all.find(R"("top_logprobs":[{"bytes:\\xe3":-0.75,"bytes:\\xe2":-0.5}])"), std::string::npos)
      << all;
}

TEST(OpenAiCompletion, KeepAlive) {
  EXPECT_EQ(Writer(R"("stream":true)")->KeepAlive({3, 9}), ": prefill 3/9\n\n");
  EXPECT_EQ(Writer("")->KeepAlive({3, 9}), "");
}

TEST(OpenAiCompletion, TwoPromptsWithTwoAnswers) {
  auto writer =
      MakeOpenAiCompletionWriter(Complete(R"({"model":"m","prompt":["a","b"],"n":2})"), TestNames());
  std::string all;
  for (size_t i : {3, 1, 0, 2})
    all += InOrder({writer->Event(i, Text(std::to_string(i)), {}), writer->Finish(i, TestOutcome())});
  all += writer->End();
  const Result<Json> json = ParseJson(all, "body");
  ASSERT_TRUE(json.ok()) << all;
  const auto& choices = json->Find("choices")->items();
  ASSERT_EQ(choices.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(choices[i].Get<std::string>("text").value(), std::to_string(i));
  EXPECT_EQ(json->Get<int64_t>("usage.prompt_tokens").value(), 20);
  EXPECT_EQ(json->Get<int64_t>("usage.completion_tokens").value(), 28);
}

}  // namespace
}  // namespace glint::serve
