#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/printable.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::OnTerminal;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Chat : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  }
  std::vector<std::string> Home() const { return {"XDG_STATE_HOME=" + home_.path(), "LC_ALL=C.UTF-8"}; }
  TempDir home_;
};

TEST_F(Chat, AScriptGetsAnswersAloneOnStdout) {
  const std::vector<std::string> arguments{"chat", "--greedy", "-n", "24"};
  const auto o = RunGlint(arguments, {.input = "Tell me a story.\n"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, RunGlint({"run", "--chat", "Tell me a story.", "--greedy", "-n", "24"}).out + "\n");
  EXPECT_FALSE(Has(o.out, "> "));
  EXPECT_TRUE(Has(o.err, "--max-tokens reached"));
  // A last line without its end, and one with a DOS end.
  EXPECT_EQ(RunGlint(arguments, {.input = "Tell me a story."}).out, o.out);
  EXPECT_EQ(RunGlint(arguments, {.input = "Tell me a story.\r\n"}).out, o.out);
  EXPECT_EQ(RunGlint(arguments, {.input = "\n  \n"}).out, "");
}

// The second answer is what the whole conversation, read from its beginning, would have given: whatever was reused is right.
TEST_F(Chat, ReusedStateAnswersLikeAFreshReading) {
  const TempDir folder;
  const std::vector<std::string> arguments{"chat", "--greedy", "-n", "20"};
  const auto both = RunGlint(arguments, {.input = "Tell me a story.\nTell me a story about a fox.\n"});
  ASSERT_EQ(both.code, 0) << both.err;
  const std::string first = RunGlint(arguments, {.input = "Tell me a story.\n"}).out;
  ASSERT_TRUE(both.out.starts_with(first));
  std::string answer = first.substr(0, first.size() - 1);
  // The template trims the content.
  answer.erase(0, answer.find_first_not_of(" \n\t"));
  answer.erase(answer.find_last_not_of(" \n\t") + 1);
  const std::string prompt = "[gMASK]<sop><|user|>\nTell me a story.<|assistant|>\n<think></think>\n" +
                             answer +
                             "<|user|>\nTell me a story about a fox.<|assistant|>\n<think></think>\n";
  folder.Write("prompt", prompt + "\n");
  const auto fresh = RunGlint({"run", "--special", "-f", folder.Path("prompt"), "--greedy", "-n", "20"});
  EXPECT_EQ(both.out.substr(first.size()), fresh.out + "\n");
}

TEST_F(Chat, ResetForgets) {
  const std::vector<std::string> arguments{"chat", "--greedy", "-n", "16"};
  const auto o = RunGlint(arguments, {.input = "Tell me a story.\n/reset\nTell me a story.\n"});
  ASSERT_EQ(o.code, 0);
  EXPECT_EQ(o.out.substr(0, o.out.size() / 2), o.out.substr(o.out.size() / 2));
}

TEST_F(Chat, LinesJoinByBackslashAndFence) {
  const std::vector<std::string> arguments{"chat", "--greedy", "-n", "12"};
  const TempDir folder;
  const auto direct = [&](const std::string& message) {
    folder.Write("m", message + "\n");
    return RunGlint({"run", "--chat", "-f", folder.Path("m"), "--greedy", "-n", "12"}).out + "\n";
  };
  EXPECT_EQ(RunGlint(arguments, {.input = "Tell me\\\na story.\n"}).out, direct("Tell me\na story."));
  EXPECT_EQ(RunGlint(arguments, {.input = "```\na\\\n\nb\n```\n"}).out, direct("```\na\\\n\nb\n```"));
  // An end of input inside a block still sends it.
  EXPECT_EQ(RunGlint(arguments, {.input = "```\nhalf"}).out, direct("```\nhalf"));
}

TEST_F(Chat, CommandsExplainThemselves) {
  const auto o = RunGlint({"chat", "--seed", "5", "-n", "3"},
                          {.input = "/help\n/stats\n/think\n/think low\n/think hard\n/hepl\n/nonsense\nTell "
                                    "me a story.\n/stats\n/exit\nnever read\n"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.out, "/think low|high|max"));
  EXPECT_TRUE(Has(o.err, "0 turns; 0 of ")) << o.err;
  EXPECT_TRUE(Has(o.err, "1 turn; ")) << o.err;
  EXPECT_TRUE(Has(o.err, "seed 5"));
  EXPECT_TRUE(Has(o.err, "takes low, high or max"));
  EXPECT_TRUE(Has(o.err, "reasoning effort low"));
  EXPECT_TRUE(Has(o.err, "unknown command /hepl; did you mean /help?"));
  EXPECT_TRUE(Has(o.err, "/help lists them"));
}

TEST_F(Chat, AMessageThatDoesNotFitIsRefused) {
  const auto o = RunGlint({"chat", "--ctx", "40", "-n", "3"}, {.input = std::string(2000, 'x') + "\n"});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "the context has room for 40; /reset")) << o.err;
}

TEST_F(Chat, ATerminalHasPromptEditingAndHistory) {
  {
    OnTerminal terminal({"chat", "--seed", "1", "-n", "8"}, Home());
    ASSERT_TRUE(terminal.WaitFor("> ")) << Printable(terminal.screen());
    terminal.Type("/stacs\x7f\x7fts\r");  // two backspaces
    ASSERT_TRUE(terminal.WaitFor("0 turns")) << Printable(terminal.screen());
    ASSERT_TRUE(terminal.WaitFor("> "));
    terminal.Type("Tell me a story.\r");
    ASSERT_TRUE(terminal.WaitFor("--max-tokens reached")) << Printable(terminal.screen());
    ASSERT_TRUE(terminal.WaitFor("> "));
    terminal.Type("\x1b[A\x1b[A\r");  // up, up: /stats
    ASSERT_TRUE(terminal.WaitFor("1 turn;")) << Printable(terminal.screen());
    ASSERT_TRUE(terminal.WaitFor("> "));
    terminal.Type("\x04");
    EXPECT_EQ(terminal.WaitForEnd(), 0);
  }
  struct stat file {};
  ASSERT_EQ(stat(home_.Path("glint/history").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_TRUE(Has(home_.Read("glint/history"), "Tell"));
  OnTerminal again({"chat", "-n", "8"}, Home());
  ASSERT_TRUE(again.WaitFor("> "));
  again.Type("\x1b[A\r");  // the last entry of the first conversation
  EXPECT_TRUE(again.WaitFor("0 turns")) << Printable(again.screen());
  again.Type("/exit\r");
  EXPECT_EQ(again.WaitForEnd(), 0);
}

TEST_F(Chat, CtrlCStopsTheAnswerAndNotTheProgram) {
  OnTerminal terminal({"chat", "--seed", "1", "--logit-bias", "4078=-inf", "--logit-bias", "4085=-inf",
                       "--logit-bias", "4087=-inf"},
                      Home());
  ASSERT_TRUE(terminal.WaitFor("> ")) << Printable(terminal.screen());
  terminal.Type("Tell me a story.\r");
  ASSERT_TRUE(terminal.WaitFor("story.\r\n"));
  ASSERT_TRUE(terminal.WaitFor(" "));  // the answer has begun
  terminal.Type("\x03");
  ASSERT_TRUE(terminal.WaitFor("(stopped)")) << Printable(terminal.screen());
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("half a line\x03");
  ASSERT_TRUE(terminal.WaitFor("(/exit or Ctrl-D leaves)")) << Printable(terminal.screen());
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("\x03");
  ASSERT_TRUE(terminal.WaitFor("(/exit or Ctrl-D leaves)")) << Printable(terminal.screen());
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("/stats\r");
  ASSERT_TRUE(terminal.WaitFor(" of context used")) << Printable(terminal.screen());
  terminal.Type("/exit\r");
  EXPECT_EQ(terminal.WaitForEnd(), 0);
}

TEST_F(Chat, APasteOfSeveralLinesIsOneMessage) {
  OnTerminal terminal({"chat", "--seed", "1", "-n", "4"}, Home());
  ASSERT_TRUE(terminal.WaitFor("> "));
  EXPECT_TRUE(Has(terminal.screen(), "\x1b[?2004h"));
  terminal.Type("\x1b[200~Tell me\r\na\tstory\nnow.\r\x1b[201~\r");
  ASSERT_TRUE(terminal.WaitFor("--max-tokens reached")) << Printable(terminal.screen());
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("/stats\r");
  EXPECT_TRUE(terminal.WaitFor("1 turn;")) << Printable(terminal.screen());
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("\xc3\xa9\x7f/exit\r");  // a character of two bytes is one backspace
  EXPECT_EQ(terminal.WaitForEnd(), 0) << Printable(terminal.screen());
}

// Typed while an answer was coming, and so before the prompt: Ctrl-D still leaves. Linux hands it on as NUL.
TEST_F(Chat, CtrlDTypedAheadLeaves) {
  OnTerminal terminal({"chat", "--seed", "1", "-n", "200"}, Home());
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("Tell me a story.\r");
  ASSERT_TRUE(terminal.WaitFor("story.\r\n"));
  terminal.Type("\x04");
  EXPECT_EQ(terminal.WaitForEnd(), 0) << Printable(terminal.screen());
}

// By itself and not by the signal: the terminal gets its mode back.
TEST_F(Chat, TerminationEndsTheProgram) {
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) {
    OnTerminal terminal({"chat"}, Home());
    ASSERT_TRUE(terminal.WaitFor("> "));
    kill(terminal.child(), number);
    EXPECT_EQ(terminal.WaitForEnd(), 128 + number);
    EXPECT_TRUE(Has(terminal.screen(), "\x1b[?2004l")) << Printable(terminal.screen());
  }
}

TEST_F(Chat, ADumbTerminalGetsNoEscapes) {
  auto environment = Home();
  environment.push_back("TERM=dumb");
  OnTerminal terminal({"chat", "--seed", "1", "-n", "4"}, environment);
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("hello\r");
  ASSERT_TRUE(terminal.WaitFor("--max-tokens reached")) << Printable(terminal.screen());
  terminal.Type("/exit\r");
  EXPECT_EQ(terminal.WaitForEnd(), 0);
  EXPECT_FALSE(Has(terminal.screen(), "\x1b")) << Printable(terminal.screen());
}

TEST(ChatWithout, AModelWithoutTokenizerSaysSo) {
  const auto o = RunGlint({"chat", "-m", testing::MicroModel()}, {.input = "hello\n"});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "has no tokenizer")) << o.err;
}

}  // namespace
}  // namespace glint::cli
