// What the command line promises before any model is loaded: help, suggestions, exit codes, quiet ends.
#include <gtest/gtest.h>

#include <set>

#include "model/glm_flash/recipe.h"
#include "tests/cli/program.h"
#include "tests/support/sanitizers.h"

namespace glint::cli {
namespace {

using testing::RunGlint;

const std::vector<std::string> kCommands{"run",         "chat",       "serve",   "convert",  "inspect",
                                         "tokenize",    "detokenize", "logits",  "plan",     "bench",
                                         "bench-serve", "verify",     "profile", "quantize", "merge",
                                         "split",       "perplexity", "imatrix", "compare"};

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Help, GlintAloneGivesTheOverview) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, {"--help"}, {"-h"}, {"help"}}) {
    const auto o = RunGlint(arguments);
    EXPECT_EQ(o.code, 0);
    EXPECT_EQ(o.err, "");
    for (const std::string& command : kCommands)
      EXPECT_TRUE(Has(o.out, "\n  " + command + " ")) << command << "\n" << o.out;
  }
}

TEST(Help, EveryCommandHasHelpWithExamples) {
  for (const std::string& command : kCommands) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{command, "--help"}, {command, "-h"}, {"help", command}}) {
      const auto o = RunGlint(arguments);
      EXPECT_EQ(o.code, 0) << command;
      EXPECT_TRUE(Has(o.out, "Usage: glint " + command)) << o.out;
      EXPECT_TRUE(Has(o.out, "Examples:\n  ")) << o.out;
    }
  }
}

TEST(Help, SyntheticModelsAreNamed) {
  for (const char* command : {"run", "bench", "profile", "verify", "plan"}) {
    std::string words;  // lines are broken anywhere between them
    for (const char c : RunGlint({command, "--help"}).out)
      if (c != '\n' && (c != ' ' || !words.ends_with(' '))) words += c;
    for (const model::ShippedRecipe& recipe : model::ShippedRecipes())
      EXPECT_TRUE(Has(words, std::string(recipe.name) + ", ")) << command << ": " << recipe.name;
    for (const char* name :
         {"glm-5.3-flash (", "tiny (", "experts_used", "Recipes (q8_0 if none is named)", "iq3_xxs"})
      EXPECT_TRUE(Has(words, name)) << command << ": " << name;
  }
}

TEST(Help, UsageErrorsExitWithTwoAndSuggest) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"rnu"}, "glint: unknown command 'rnu'; did you mean run?"},
      {{"--verison"}, "unknown option '--verison'"},
      {{"frobnicate"}, "unknown command 'frobnicate'\n"},
      {{"run", "--tempp", "1", "x"}, "glint run: unknown option --tempp; did you mean --temp?"},
      {{"run", "one", "two"}, "unexpected argument 'two'"},
      {{"run", "-n"}, "needs a value"},
      {{"run", ""}, "the prompt is empty"},
      {{"run", "x", "--temp", "-1"}, "from 0 to 100"},
      {{"run", "x", "--top-p", "0"}, "--top-p"},
      {{"run", "x", "--logit-bias", "5"}, "ID=VALUE"},
      {{"run", "x", "--greedy", "--temp", "1"}, "contradict"},
      {{"run", "x", "--ids", "1"}, "not both"},
      {{"run", "x", "-m", "a", "--synthetic", "b"}, "not both"},
      {{"run", "x", "--system", "y"}, "belong to --chat"},
      {{"run", "x", "--chat", "--think", "hard"}, "'hard' is not low, high or max"},
      {{"run", "x", "--with", "dot.axv2"}, "unknown lever 'dot.axv2'"},
      {{"run", "x", "--without", "al"}, "did you mean all?"},
      {{"plan", "--with", "nothing-like-it"}, "there are: "},
      {{"chat", "--think", "hard"}, "low, high or max"},
      {{"convert", "a", "b", "--type", "q9"}, "there are f32"},
      {{"convert", "a"}, "OUT.gguf"},
      {{"logits", "--ids", "1"}, "--out FILE is missing"},
      {{"logits", "--out", "x"}, "--ids LIST or -f FILE"},
      {{"logits", "--out", "x", "--ids", "1", "--rows", "some"}, "not all or last"},
      {{"inspect", "a", "-m", "b"}, "one of them"},
      {{"bench", "--ctx", "5,x"}, "--ctx: 'x' is not a whole number"},
      {{"bench", "--ctx", ","}, "--ctx: the list is empty"},
      {{"bench", "--prefill", "0", "--decode", "0"}, "nothing to measure"},
      {{"bench", "--blocks", "3", "--seconds", "1"}, "not both"},
      {{"bench", "--csv", "x", "--plot", "./x"}, "name one file"},
      {{"verify", ""}, "the prompt is empty"},
      {{"run", "x", "--seed", "18446744073709551616"}, "a whole number from 0 to 18446744073709551615"},
      {{"run", "x", "--seed", "-1"}, "a whole number from 0"},
      {{"bench", "--arm", "fast: --theads 2"},
       "arm 'fast': unknown option --theads; did you mean --threads?"},
      {{"tokenize", "--json", "--ids", "x"}, "not both"},
  };
  for (const auto& [arguments, message] : cases) {
    std::string line;
    for (const std::string& argument : arguments) line += argument + " ";
    SCOPED_TRACE(line);
    const auto o = RunGlint(arguments);
    EXPECT_EQ(o.code, 2);
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(Has(o.err, message)) << o.err << "wanted: " << message;
    EXPECT_TRUE(Has(o.err, "--help`.\n")) << o.err;
  }
}

TEST(Help, FailuresExitWithOneAndNameTheCommandOnce) {
  const test::TempDir folder;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", "x", "-m", "/no/such/model.gguf"},
        {"inspect", "/no/such/model.gguf"},
        {"tokenize", "x", "-m", "/no/such/model.gguf"},
        {"plan", "-m", "/no/such/model.gguf"},
        {"logits", "--ids", "1", "--out", folder.Path("x.npy"), "-m", "/no/such/model.gguf"}}) {
    const auto o = RunGlint(arguments);
    EXPECT_EQ(o.code, 1);
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(o.err.starts_with("glint " + arguments[0] + ": /no/such/model.gguf: ")) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

TEST(Help, TheModelOfTheEnvironmentIsUsed) {
  const auto o = RunGlint({"inspect"}, {.environment = {"GLINT_MODEL=/no/such/model.gguf"}});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "/no/such/model.gguf")) << o.err;
}

TEST(Help, MessagesHoldNoTerminalCodes) {
  const std::string evil = "/tmp/\x1b[2Jevil\r\xc2\x9b";
  for (const auto& o : {RunGlint({"inspect", evil}), RunGlint({evil}), RunGlint({"run", "--" + evil}),
                        RunGlint({"run", "x", "--with", evil}), RunGlint({"detokenize", evil})}) {
    EXPECT_NE(o.code, 0);
    for (const char c : o.err) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << o.err;
    EXPECT_FALSE(Has(o.err, "\xc2\x9b"));
  }
}

TEST(Help, AReaderThatLeavesEndsItQuietly) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    testing::internal::Become({"run", "--help"}, {});
  }
  close(ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(Help, AClosedStdoutIsAnError) {
  const auto o = RunGlint({"--help"}, {.no_stdin = true, .no_stdout = true});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "stdout")) << o.err;
}

TEST(Help, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/full", O_WRONLY), 1);
    testing::internal::Become({"--help"}, {});
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(Help, VersionIsOneLine) {
  const auto o = RunGlint({"--version"});
  EXPECT_EQ(o.code, 0);
  EXPECT_TRUE(o.out.starts_with("glint "));
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1);
}

class HelpOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Commands, HelpOf, ::testing::ValuesIn(kCommands), [](const auto& command) {
  std::string name = command.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Every example in the help text is run as it stands, in an empty folder; the placeholders for a user's own files are given.
// Under a sanitizer what measures the embedded model (minutes there) measures a smaller one.
TEST_P(HelpOf, TheExamplesWork) {
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const std::string command = GetParam();
  const test::TempDir folder;
  std::filesystem::create_directory(folder.Path("bin"));
  std::filesystem::create_symlink(GLINT_PROGRAM, folder.Path("bin/glint"));
  std::filesystem::create_directory(folder.Path("path"));
  std::filesystem::create_directory(folder.Path("path/to"));
  std::filesystem::create_directory_symlink(testing::MicroModel(), folder.Path("path/to/checkpoint"));
  folder.Write("text.txt", "Once upon a time\n");
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  testing::KeepToOneCore();
  const std::string help = RunGlint({command, "--help"}).out;
  const size_t examples = help.find("Examples:\n");
  ASSERT_NE(examples, std::string::npos);
  std::istringstream lines(help.substr(examples));
  for (std::string example; std::getline(lines, example);) {
    if (!example.starts_with("  ") || example.starts_with("  python3")) continue;  // that one needs numpy
    const bool measures = command == "bench" || command == "profile";
    if (test::kAnySanitizer && measures && !Has(example, "--synthetic")) example += " --synthetic tiny";
    // It serves until it is told to end; a port of its own keeps it out of the way of others on this machine.
    if (command == "serve")
      example +=
          " --port 0 >said.txt & until grep -q listening said.txt || ! kill -0 $!; do sleep 0.05; done; "
          "kill -TERM $!; wait $!";
    SCOPED_TRACE(example);
    const std::string model =
        command == "convert" ? "rm -f model.gguf" : "cp -f '" + testing::StoriesModel() + "' model.gguf";
    const std::string script = "cd '" + folder.path() + "' && PATH=\"$PWD/bin:$PATH\" && " + model + " && {" +
                               example + "; } </dev/null >out.txt 2>err.txt";
    EXPECT_EQ(WEXITSTATUS(std::system(script.c_str())), 0) << folder.Read("err.txt");
  }
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace glint::cli
