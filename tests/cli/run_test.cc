#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/json.h"
#include "base/printable.h"
#include "glint/session.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<int64_t> Ids(const testing::Outcome& o, std::string_view key = "ids") {
  const auto json = ParseJson(o.out, "stdout");
  EXPECT_TRUE(json.ok()) << o.out << o.err;
  if (!json.ok()) return {};
  return json->Get<std::vector<int64_t>>(key).value();
}

// A model without a tokenizer: what comes out is what the library computes with the same seedless choice.
TEST(Run, GreedyIdsAreTheSessions) {
  const auto o =
      RunGlint({"run", "-m", testing::MicroModel(), "--ids", "5,9,200", "-n", "12", "--greedy", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;

  auto model = Model::Open(testing::MicroModel());
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto session = Session::Create(*model, {.context = 64});
  ASSERT_TRUE(session.ok());
  std::vector<float> logits(static_cast<size_t>(model->vocab_size()));
  std::vector<int32_t> next{5, 9, 200};
  std::vector<int64_t> wanted;
  while (wanted.size() < 12) {
    ASSERT_TRUE(session->Append(next, LogitRows::kLast, logits).ok());
    next = {static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())};
    wanted.push_back(next[0]);
  }
  EXPECT_EQ(Ids(o), wanted);
  EXPECT_EQ(Ids(o, "prompt_ids"), (std::vector<int64_t>{5, 9, 200}));
  const auto json = ParseJson(o.out, "stdout");
  EXPECT_EQ(json->Get<std::string>("stop_reason").value(), "max_tokens");
  EXPECT_EQ(json->Get<int64_t>("generated_tokens").value(), 12);

  const auto plain =
      RunGlint({"run", "-m", testing::MicroModel(), "--ids", "5,9,200", "-n", "12", "--greedy"});
  std::string line;
  for (const int64_t id : wanted) line += (line.empty() ? "" : " ") + std::to_string(id);
  EXPECT_EQ(plain.out, line + "\n");
  EXPECT_EQ(std::count(plain.err.begin(), plain.err.end(), '\n'), 1) << plain.err;
  EXPECT_TRUE(Has(plain.err, "prompt 3 tokens") && Has(plain.err, "generated 12 tokens") &&
              Has(plain.err, "a token"))
      << plain.err;
}

TEST(Run, SeedThreadsAndLeversDoNotChangeTheText) {
  const std::vector<std::string> base{
      "run", "-m", testing::MicroModel(), "--ids", "1,2,3,4,5", "-n", "40", "--seed", "11", "--json"};
  const auto wanted = Ids(RunGlint(base));
  ASSERT_EQ(wanted.size(), 40u);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--threads", "1"}, {"--threads", "3"}, {"--without", "all"}}) {
    auto arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(Ids(RunGlint(arguments)), wanted) << more[1];
  }
  EXPECT_EQ(Ids(RunGlint(base, {.environment = {"GLINT_WITHOUT=all"}})), wanted);
  auto other = base;
  other[8] = "12";
  EXPECT_NE(Ids(RunGlint(other)), wanted);
}

TEST(Run, AShownSeedMakesTheTextAgain) {
  const std::vector<std::string> base{"run", "-m", testing::MicroModel(), "--ids", "7", "-n", "20", "--json"};
  const auto first = RunGlint(base);
  const auto json = ParseJson(first.out, "stdout");
  ASSERT_TRUE(json.ok());
  auto again = base;
  again.insert(again.end(), {"--seed", std::to_string(json->Get<int64_t>("seed").value())});
  EXPECT_EQ(Ids(RunGlint(again)), Ids(first));
}

TEST(Run, SamplingOptionsReachTheSampler) {
  const std::vector<std::string> base{
      "run", "-m", testing::MicroModel(), "--ids", "3", "-n", "30", "--seed", "5", "--json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return Ids(RunGlint(more));
  };
  const auto greedy = with({"--greedy"});
  EXPECT_EQ(with({"--temp", "0"}), greedy);
  EXPECT_EQ(with({"--top-k", "1"}), greedy);
  EXPECT_EQ(with({"--top-p", "0.000001"}), greedy);
  EXPECT_EQ(with({"--min-p", "0.999999"}), greedy);
  // A ban and a bias that nothing resists.
  const auto banned = with({"--greedy", "--logit-bias", std::to_string(greedy[0]) + "=-inf"});
  EXPECT_EQ(std::count(banned.begin(), banned.end(), greedy[0]), 0);
  EXPECT_EQ(with({"--logit-bias", "42=1000"}), std::vector<int64_t>(30, 42));
  // Penalties so strong that no id comes twice.
  for (const char* penalty : {"--presence-penalty", "--frequency-penalty"}) {
    auto ids = with({"--greedy", penalty, "1000"});
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end()) << penalty;
  }
}

TEST(Run, AFullContextIsAReason) {
  const auto o =
      RunGlint({"run", "-m", testing::MicroModel(), "--ids", "1,2,3", "--ctx", "10", "-n", "50", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.out, "\"context_full\"")) << o.out;
  EXPECT_EQ(Ids(o).size(), 8u);  // seven more were appended, and the last one needs no room
  EXPECT_TRUE(Has(o.err, "context is full"));
  const auto none = RunGlint({"run", "-m", testing::MicroModel(), "--ids", "1,2,3", "--ctx", "2"});
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(Has(none.err, "the prompt has 3 tokens, the context room for 2")) << none.err;
}

TEST(Run, RefusesWhatMakesNoSense) {
  const auto message = [](const std::vector<std::string>& arguments, const testing::Setup& setup = {}) {
    const auto o = RunGlint(arguments, setup);
    EXPECT_EQ(o.code, 1);
    EXPECT_EQ(o.out, "");
    return o.err;
  };
  const std::string micro = testing::MicroModel();
  EXPECT_TRUE(Has(message({"run", "-m", micro, "text"}), "has no tokenizer: give token ids with --ids"));
  EXPECT_TRUE(Has(message({"run", "-m", micro, "--ids", "256"}), "256"));
  EXPECT_TRUE(Has(message({"run", "-m", micro, "--ids", "@/no/such/file"}), "/no/such/file"));
  EXPECT_TRUE(Has(message({"run", "-m", micro, "--ids", "1", "--logit-bias", "256=1"}), "not below 256"));
  EXPECT_TRUE(Has(message({"run", "-m", micro, "--ids", "1", "--ctx", "2000000000"}), "context"));
}

TEST(Run, AWordThatIsNoDeviceIsAWrongCommandLine) {
  for (const std::string word : {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999"}) {
    const auto o = RunGlint({"run", "--synthetic", "tiny", "-n", "1", "--device", word});
    EXPECT_EQ(o.code, 2) << word;
    EXPECT_TRUE(Has(o.err, "unknown device '" + word + "'; there are: auto, cpu, cuda, cuda:N")) << o.err;
  }
  EXPECT_EQ(RunGlint({"plan", "--synthetic", "tiny", "--device", "gpu"}).code, 2);
}

TEST(Run, SyntheticModelsNeedNoPrompt) {
  const auto o = RunGlint({"run", "--synthetic", "tiny", "-n", "6", "--seed", "1", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Ids(o).size(), 6u);
}

class RunStories : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  }
};

TEST_F(RunStories, ArgumentFileAndStdinAreTheSame) {
  const test::TempDir folder;
  folder.Write("prompt", "Once upon a time\n");  // one newline at the end is dropped
  const std::vector<std::string> how{"-n", "20", "--greedy"};
  const auto run = [&](std::vector<std::string> what, const testing::Setup& setup = {}) {
    what.insert(what.begin(), "run");
    what.insert(what.end(), how.begin(), how.end());
    const auto o = RunGlint(what, setup);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  const std::string text = run({"Once upon a time"});
  EXPECT_GT(text.size(), 20u);
  EXPECT_EQ(run({"-f", folder.Path("prompt")}), text);
  EXPECT_EQ(run({"-f", "-"}, {.input = "Once upon a time\n"}), text);
  EXPECT_EQ(run({}, {.input = "Once upon a time"}), text);
  EXPECT_NE(run({"Once upon a time\n"}), text);
}

TEST_F(RunStories, ChatAnswersAndStopsByItself) {
  const auto o =
      RunGlint({"run", "--chat", "Tell me a story about a fox.", "--seed", "1", "--ctx", "400", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok());
  EXPECT_GT(json->Get<std::string>("text").value().size(), 100u);
  const std::string reason = json->Get<std::string>("stop_reason").value();
  EXPECT_TRUE(reason == "stop" || reason == "context_full") << reason;
  EXPECT_FALSE(Has(json->Get<std::string>("text").value(), "<|"));
}

TEST_F(RunStories, JsonTextIsTheStreamedText) {
  const std::vector<std::string> base{"run", "The king said", "-n", "30", "--seed", "4"};
  auto with_json = base;
  with_json.push_back("--json");
  const auto json = ParseJson(RunGlint(with_json).out, "stdout");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->Get<std::string>("text").value(), RunGlint(base).out);
}

// Tokens of this model are often single bytes once the temperature is high: every write must be whole characters.
TEST_F(RunStories, StreamsWholeCharactersOnly) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_DIRECT), 0);  // packet mode: a read gives what one write wrote
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    testing::internal::Become({"run", "Once", "-n", "200", "--temp", "20", "--seed", "3"}, {});
  }
  close(ends[1]);
  char bytes[65536];
  int writes = 0;
  for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0; ++writes) {
    ASSERT_TRUE(ValidUtf8({bytes, static_cast<size_t>(got)})) << Printable({bytes, static_cast<size_t>(got)});
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GT(writes, 20);
}

TEST_F(RunStories, CtrlCEndsItWithASummary) {
  int out[2], err[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(err, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], 1), dup2(err[1], 2);
    testing::internal::Become({"run", "Once upon a time", "--ignore-stop", "--ctx", "2000"}, {});
  }
  close(out[1]), close(err[1]);
  char bytes[4096];
  ASSERT_GT(read(out[0], bytes, sizeof bytes), 0);  // it has begun
  kill(child, SIGINT);
  while (read(out[0], bytes, sizeof bytes) > 0) continue;
  const ssize_t got = read(err[0], bytes, sizeof bytes);
  const std::string summary(bytes, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  int status = 0;
  waitpid(child, &status, 0);
  close(out[0]), close(err[0]);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_TRUE(Has(summary, "interrupted")) << summary;
}

// A log that gets both streams has the summary on a line of its own; stdout alone ends where the text ends.
TEST_F(RunStories, ASharedLogKeepsTheSummaryApart) {
  int both[2];
  ASSERT_EQ(pipe2(both, O_CLOEXEC), 0);
  const std::vector<std::string> arguments = {"run", "Once upon a time", "-n", "5", "--greedy"};
  const pid_t child = fork();
  if (child == 0) {
    dup2(both[1], 1), dup2(both[1], 2);
    testing::internal::Become(arguments, {});
  }
  close(both[1]);
  std::string log;
  char bytes[4096];
  for (ssize_t got; (got = read(both[0], bytes, sizeof bytes)) > 0;)
    log.append(bytes, static_cast<size_t>(got));
  close(both[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const auto apart = RunGlint(arguments);
  ASSERT_FALSE(apart.out.ends_with('\n'));
  EXPECT_TRUE(log.starts_with(apart.out + "\nprompt ")) << log;
}

TEST(CpuOnly, CommandsThatKnowTheCpuAloneRefuseAGpu) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"plan", "--device", "cuda:0"},
           {"imatrix", "--ids", "1,2", "-o", "nowhere.gguf", "--device", "cuda"}}) {
    SCOPED_TRACE(arguments[0]);
    const auto run = RunGlint(arguments);
    EXPECT_EQ(run.code, 2);
    EXPECT_TRUE(Has(run.err, "knows the CPU only")) << run.err;
  }
  EXPECT_EQ(RunGlint({"plan", "--device", "cpu"}).code, 0);
}

// A terminal gets control characters of the text escaped, a pipe as they are.
TEST_F(RunStories, ATerminalIsNotSteeredByTheText) {
  const auto tokens = ParseJson(RunGlint({"tokenize", "--json", "\x1b"}).out, "stdout");
  ASSERT_TRUE(tokens.ok());
  const int64_t escape = tokens->Find("tokens")->items()[0].Get<int64_t>("id").value();
  const std::vector<std::string> arguments{
      "run", "x", "-n", "3", "--logit-bias", std::to_string(escape) + "=1000"};
  EXPECT_EQ(RunGlint(arguments).out, "\x1b\x1b\x1b");
  testing::OnTerminal terminal(arguments);
  EXPECT_EQ(terminal.WaitForEnd(), 0);
  // On a slow machine a progress bar comes and goes, which clears its line; the text may not.
  constexpr std::string_view kClearLine = "\x1b[K";
  std::string rest = terminal.screen();
  for (size_t at; (at = rest.find(kClearLine)) != std::string::npos;) rest.erase(at, kClearLine.size());
  EXPECT_FALSE(Has(rest, "\x1b")) << Printable(terminal.screen());
  EXPECT_TRUE(Has(rest, "\\x1b\\x1b\\x1b")) << Printable(terminal.screen());
}

}  // namespace
}  // namespace glint::cli
