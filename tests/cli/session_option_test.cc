// --session, /save and /load: what was said in several runs is what one run says.
#include "cli/session_option.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "cli/conversation.h"
#include "glint/model.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(SessionOption, WordsSurviveTheFile) {
  KeptWords words{.conversation = true,
                  .messages = {MakeMessage(Role::kSystem, "Be \"brief\"\n", ""),
                               MakeMessage(Role::kUser, "\xe7\x8b\x90", ""),
                               MakeMessage(Role::kAssistant, "a", "thought")},
                  .effort = "low"};
  const auto back = DecodeWords(EncodeWords(words));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(back->conversation);
  EXPECT_EQ(back->effort, "low");
  ASSERT_EQ(back->messages.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back->messages[i].role, words.messages[i].role);
    EXPECT_EQ(back->messages[i].content, words.messages[i].content);
    EXPECT_EQ(back->messages[i].reasoning, words.messages[i].reasoning);
  }
  EXPECT_EQ(DecodeWords(EncodeWords({.unread = {1, 0, 7}}))->unread, (std::vector<int32_t>{1, 0, 7}));
  EXPECT_TRUE(DecodeWords("").ok());
  for (const char* bad :
       {"x", "{}", "[]", "{\"kind\":\"poem\"}", "{\"kind\":\"text\"}",
        "{\"kind\":\"text\",\"unread\":[99999999999]}", "{\"kind\":\"conversation\",\"effort\":\"\"}",
        "{\"kind\":\"conversation\",\"effort\":\"\",\"messages\":{}}",
        "{\"kind\":\"conversation\",\"effort\":\"\",\"messages\":[{\"role\":\"user\",\"content\":\"\","
        "\"reasoning\":5}]}",
        "{\"kind\":\"conversation\",\"effort\":\"\",\"messages\":[{\"role\":\"fox\",\"content\":\"\"}]}"}) {
    EXPECT_FALSE(DecodeWords(bad).ok()) << bad;
  }
}

// The engine keeps an attachment as it is; what is wrong in it shows here, and not as a wrong prompt later.
TEST(SessionOption, UnreadIdsOfAnotherVocabularyAreRefused) {
  const TempDir folder;
  const std::string file = folder.Path("s");
  const auto model = Model::Open(testing::MicroModel());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto session = Session::Create(*model, {.context = 64});
  ASSERT_TRUE(session.ok()) << session.status().message();
  const auto vocab = static_cast<int32_t>(model->vocab_size());
  for (const int32_t id : {0, vocab - 1, -1, vocab}) {
    SCOPED_TRACE(id);
    ASSERT_TRUE(SaveSessionFile(*session, file, {.unread = {1, id}}).ok());
    KeptWords words;
    const auto back = LoadSessionFile(*model, file, {}, false, &words);
    EXPECT_EQ(back.ok(), id >= 0 && id < vocab);
    if (back.ok()) continue;
    EXPECT_TRUE(Has(back.status().message(), file)) << back.status().message();
    EXPECT_TRUE(Has(back.status().message(), "id " + std::to_string(id) + " is no token"))
        << back.status().message();
  }
}

TEST(SessionOption, SeveralRunsGiveTheTextOfOne) {
  const TempDir folder;
  const std::string file = folder.Path("s"), model = testing::MicroModel();
  const auto whole = RunGlint({"run", "-m", model, "--ids", "5,9,200", "-n", "18", "--greedy"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::string text;
  // A run of no tokens, at the beginning or in between, leaves a text that goes on.
  const std::vector<std::string> lengths{"0", "6", "0", "6", "0", "6"};
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::string> arguments{"run", "-m", model, "--session", file, "-n", lengths[i], "--greedy"};
    if (i == 0) arguments.insert(arguments.end(), {"--ids", "5,9,200"});
    const auto part = RunGlint(arguments);
    ASSERT_EQ(part.code, 0) << part.err;
    if (lengths[i] != "0") text += (text.empty() ? "" : " ") + part.out.substr(0, part.out.size() - 1);
  }
  EXPECT_EQ(text + "\n", whole.out);
  // Damaged, of another model, of the other kind: refused, and left as they are.
  const std::string good = folder.Read("s");
  EXPECT_TRUE(Has(RunGlint({"run", "--synthetic", "tiny", "--session", file}).err, "another model"));
  folder.Write("cut", good.substr(0, good.size() / 2));
  const auto cut = RunGlint({"run", "-m", model, "--session", folder.Path("cut")});
  EXPECT_EQ(cut.code, 1);
  EXPECT_TRUE(Has(cut.err, "cut off")) << cut.err;
  EXPECT_EQ(folder.Read("cut"), good.substr(0, good.size() / 2));
  EXPECT_EQ(folder.Read("s"), good);
}

TEST(SessionOption, AStoppedTextGoesOn) {
  const TempDir folder;
  const std::string file = folder.Path("s"), model = testing::MicroModel();
  std::vector<std::string> arguments{"run", "-m", model,  "--session", file,    "--ids",
                                     "5,9", "-n", "4000", "--greedy",  "--ctx", "4096"};
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    close(ends[0]), close(ends[1]);
    testing::internal::Become(arguments, {});
  }
  close(ends[1]);
  std::string shown;
  char buffer[4096];
  ssize_t got = read(ends[0], buffer, sizeof buffer);  // it has begun
  kill(child, SIGINT);
  for (; got > 0; got = read(ends[0], buffer, sizeof buffer)) shown.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status;
  const auto rest = RunGlint({"run", "-m", model, "--session", file, "-n", "8", "--greedy"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  const auto count = std::to_string(std::count(shown.begin(), shown.end(), ' ') + 1 + 8);
  const auto whole = RunGlint({"run", "-m", model, "--ids", "5,9", "-n", count, "--greedy", "--ctx", "4096"});
  EXPECT_EQ(shown.substr(0, shown.size() - 1) + " " + rest.out, whole.out);
}

// A reader that leaves (head, a closed pager) ends the program, not the text.
TEST(SessionOption, ATextNobodyReadsOnIsKept) {
  const TempDir folder;
  const std::string file = folder.Path("s"), model = testing::MicroModel();
  const auto unread = RunGlint({"run", "-m", model, "--session", file, "--ids", "5,9", "-n", "8", "--greedy"},
                               {.no_stdout = true});
  EXPECT_EQ(unread.code, 1);
  EXPECT_TRUE(Has(unread.err, "stdout")) << unread.err;
  const auto rest = RunGlint({"run", "-m", model, "--session", file, "-n", "8", "--greedy"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  const auto whole = RunGlint({"run", "-m", model, "--ids", "5,9", "-n", "9", "--greedy"});
  // The first token was made and not shown.
  EXPECT_EQ(rest.out, whole.out.substr(whole.out.find(' ') + 1));
}

TEST(SessionOption, AConversationGoesOn) {
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const TempDir folder;
  const std::string file = folder.Path("talk");
  const std::vector<std::string> plain{"chat", "--greedy", "-n", "16"};
  const auto whole =
      RunGlint(plain, {.input = "Tell me a story.\nTell me a story about a fox.\nAnd a hen?\n"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::vector<std::string> kept = plain;
  kept.insert(kept.end(), {"--session", file});
  std::string text = RunGlint(kept, {.input = "Tell me a story.\n"}).out;
  text +=
      RunGlint({"run", "--greedy", "-n", "16", "--session", file, "--chat", "Tell me a story about a fox."})
          .out +
      "\n";
  text += RunGlint(kept, {.input = "And a hen?\n"}).out;
  EXPECT_EQ(text, whole.out);
  EXPECT_TRUE(Has(RunGlint({"run", "x", "--session", file}).err, "holds a conversation"));
  // By command; a file that can not be loaded leaves the conversation as it is.
  const std::string other = folder.Path("other");
  const auto commands = RunGlint(plain, {.input = "Tell me a story.\n/save " + other + "\n/reset\n/load " +
                                                  other + "\nTell me a story about a fox.\nAnd a hen?\n"});
  EXPECT_EQ(commands.code, 0) << commands.err;
  EXPECT_EQ(commands.out, whole.out);
  EXPECT_EQ(RunGlint(plain, {.input = "/load " + folder.Path("none") + "\n"}).code, 1);
}

TEST(SessionOption, NoConversationIsLostToASlip) {
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const TempDir folder;
  const std::string own = folder.Path("own"), other = folder.Path("other");
  const std::vector<std::string> plain{"chat", "--greedy", "-n", "4"};
  ASSERT_EQ(RunGlint(plain, {.input = "One.\n/save " + other + "\nTwo.\n/save " + other + "\n"}).code, 0);
  const std::string kept = folder.Read("other");
  // A file of somebody else is not replaced, unless it is asked for.
  const auto refused = RunGlint(plain, {.input = "Three.\n/save " + other + "\n"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(Has(refused.err, "exists; /save! ")) << refused.err;
  EXPECT_EQ(folder.Read("other"), kept);
  for (const char* save : {"/save ", "/save! "}) {
    const auto directory = RunGlint(plain, {.input = save + folder.Path("") + "\n"});
    EXPECT_EQ(directory.code, 1);
    EXPECT_TRUE(Has(directory.err, "is a directory")) << directory.err;
    EXPECT_FALSE(Has(directory.err, "exists")) << directory.err;
  }
  // Loading another conversation keeps that of --session, and does not end up in its file.
  std::vector<std::string> sessions = plain;
  sessions.insert(sessions.end(), {"--session", own});
  const auto loaded = RunGlint(sessions, {.input = "Four.\n/load " + other + "\nFive.\n"});
  ASSERT_EQ(loaded.code, 0) << loaded.err;
  EXPECT_TRUE(Has(loaded.err, "kept only by /save")) << loaded.err;
  EXPECT_EQ(folder.Read("other"), kept);
  const auto stats = RunGlint(sessions, {.input = "/stats\n"});
  EXPECT_TRUE(Has(stats.err, "1 turn; ")) << stats.err;
  ASSERT_EQ(RunGlint(plain, {.input = "Six.\n/save! " + other + "\n"}).code, 0);
  EXPECT_NE(folder.Read("other"), kept);
}

}  // namespace
}  // namespace glint::cli
