// Exit codes: 2 for what is wrong in the command line itself, 1 for what only a file, the model or the machine makes impossible.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using testing::RunGlint;
using Words = std::vector<std::string>;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string Line(const Words& words) {
  std::string line = "glint";
  for (const std::string& word : words) line += " '" + word + "'";
  return line;
}

void ExpectUsage(const Words& arguments, const std::string& message, const testing::Setup& setup = {}) {
  SCOPED_TRACE(Line(arguments));
  const auto o = RunGlint(arguments, setup);
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_TRUE(Has(o.err, message)) << o.err << "wanted: " << message;
  EXPECT_TRUE(Has(o.err, "--help`.\n")) << o.err;
}

// What each command wants beside the option under test, so that this alone is wrong.
const std::map<std::string, Words> kBeside{
    {"run", {"--chat"}},
    {"chat", {}},
    {"serve", {"-m", "/no/such/model.gguf", "--port", "0"}},
    {"convert", {"no-dir", "out.gguf"}},
    {"quantize", {"in.gguf", "out.gguf"}},
    {"merge", {"in.gguf", "out.gguf"}},
    {"split", {"in.gguf", "out.gguf"}},
    {"inspect", {}},
    {"tokenize", {}},
    {"detokenize", {"1"}},
    {"logits", {"--out", "x.npy"}},
    {"plan", {}},
    {"bench", {}},
    {"bench-serve", {}},
    {"perplexity", {}},
    {"imatrix", {"-o", "x.gguf"}},
    {"compare", {"a.gguf", "b.gguf"}},
    {"verify", {}},
    {"profile", {}},
};

Words Beside(const std::string& command, const std::string& option) {
  Words words = kBeside.at(command);
  if (command == "run" && option == "--ids") return {};
  if (command == "quantize" && option != "--type" && option != "--recipe")
    words = words + Words{"--type", "f16"};
  if (command == "logits" && option != "--ids" && option != "--file") words = words + Words{"--ids", "1"};
  return words;
}

// Of the word that stands for a value in the help: values that are wrong whatever the model, the files and the machine are. An
// option with a new word gets its line here.
const std::map<std::string, Words> kWrong{
    {"N", {"5x", "-99", "nan", "", "1e999", "99999999999999999999"}},
    {"K", {"5x", "-1", "1.5", ""}},
    {"T", {"5x", "-1", "nan", "inf", ""}},
    {"P", {"5x", "-0.1", "1.1", "nan", ""}},
    {"X", {"5x", "nan", "inf", "1e39", ""}},
    {"S", {"5x", "-1", "nan", "inf", ""}},
    {"PERCENT", {"5x", "5%", "-1", "nan", "inf", ""}},
    {"SIZE", {"5x", "-1G", "nan", "inf", "0", "1e3", ""}},
    {"SIZE|0", {"5x", "-1G", "nan", "inf", "1e3", ""}},
    {"N,...", {"5x", "1,-99", "0,nan", ","}},
    {"LIST", {"1,2,x", "-1", "1.5", "2147483648", "", " , ", "@"}},
    {"ID=VALUE", {"5", "x=1", "-1=1", "1=", "1=nan", "1=inf", "1=1e39", "2147483648=1", ""}},
    {"SPEC",
     {"", "huge", "tiny,", "tiny,layers", "tiny,layers=0", "tiny,layers=2x", "tiny,lairs=2", "tiny,seed=-1",
      "tiny,recipe=q9", "tiny,vocab=99999999999999999999", "tiny,experts=1,experts_used=2"}},
    {"TYPE", {"q9", ""}},
    {"EFFORT", {"hard", ""}},
    {"all|last", {"some", ""}},
    {"prefill|decode", {"both", ""}},
    {"NAME,...", {"no-such-lever"}},
    {"STAGE,...", {"no.such_stage"}},
    {"\"NAME: FLAGS\"", {"", "x", ": --threads 1"}},
    {"FILE", {""}},
    {"TEXT", {""}},
    {"PATH", {""}},
    {"BASE", {""}},
    {"OUT.gguf", {"", "folder/", ".."}},
    {"NAME", {""}},
    {"KEY", {""}},
    {"ORIGIN", {""}},
    {"DIR", {""}},
    {"URL", {"", "http://", "https://localhost", "ftp://localhost", "http://localhost:x"}},
    {"FORM", {"xml", ""}},
    {"LEVEL", {"loud", ""}},
    {"WHEN", {"never", ""}},
    {"A-B", {"5x", "0", "3-2", "-1", "1-", ""}},
    {"SHARE", {"5x", "-0.1", "1.1", "nan", ""}},
    {"R", {"5x", "0", "-1", "nan", "inf", ""}},
    {"MS", {"5x", "0", "-1", "nan", "inf", ""}},
};

// Any value is as good as another until something is looked up by it.
bool AnyValue(const std::string& command, const std::string& option) {
  return option == "--system" || (command == "convert" && option == "--name") ||
         (command == "inspect" && option == "--key");
}

class ExitCodesOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Commands, ExitCodesOf, ::testing::ValuesIn([] {
                           Words names;
                           for (const auto& [name, words] : kBeside) names.push_back(name);
                           return names;
                         }()),
                         [](const auto& command) {
                           std::string name = command.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Every option that the help lists.
TEST_P(ExitCodesOf, AValueThatIsWrongByItselfIsAWrongCommandLine) {
  const std::string command = GetParam();
  std::string help = RunGlint({command, "--help"}).out;
  help.resize(help.find("\nExamples:"));
  const std::regex shape(R"(  (?:-\w, )?(--[a-z-]+)(?: (\S+|".*"))?(?:  .*)?)");
  std::istringstream lines(help);
  size_t options = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (!std::regex_match(line, found, shape)) continue;
    const std::string option = found[1], placeholder = found[2];
    if (option == "--help") continue;
    ++options;
    if (placeholder.empty()) {
      ExpectUsage(Words{command} + Beside(command, option) + Words{option + "=maybe"},
                  option + " takes no value");
      continue;
    }
    ExpectUsage({command, option}, option + " needs a value");
    if (AnyValue(command, option)) continue;
    const auto wrong = kWrong.find(placeholder);
    ASSERT_NE(wrong, kWrong.end()) << command << " " << option << ": what is a wrong " << placeholder << "?";
    for (const std::string& value : wrong->second) {
      // Messages name the option, or else the value.
      const Words arguments = Words{command} + Beside(command, option) + Words{option, value};
      SCOPED_TRACE(Line(arguments));
      const auto o = RunGlint(arguments);
      EXPECT_EQ(o.code, 2);
      EXPECT_EQ(o.out, "");
      EXPECT_TRUE(Has(o.err, option) || Has(o.err, value.empty() ? "\"\": names no file" : value)) << o.err;
      EXPECT_TRUE(Has(o.err, "--help`.\n")) << o.err;
    }
  }
  EXPECT_GE(options, 2u) << help;
}

TEST(ExitCodes, ArgumentsThatAreWrongByThemselves) {
  for (const Words& arguments : {Words{"convert", "", "x.gguf"},
                                 {"convert", "x", ""},
                                 {"merge", "", "x"},
                                 {"split", "x", ""},
                                 {"quantize", "", "x", "--type", "f16"},
                                 {"compare", "", "x"},
                                 {"inspect", ""}})
    ExpectUsage(arguments, arguments[0] == "split" ? "one of them" : "names no file");
  ExpectUsage({"detokenize", "1", "2,x"}, "entry 2, 'x', is not a token id");
  ExpectUsage({"detokenize", "1", "-5"}, "'-5', is not a token id");
  ExpectUsage({"detokenize", "@"}, "no file's name");
  ExpectUsage({"help", "run", "chat"}, "unexpected argument 'chat'");
  ExpectUsage({"--version", "x"}, "unexpected argument 'x'");
  ExpectUsage({"plan", "x"}, "unexpected argument 'x'");
  // In the flags of an arm.
  for (const auto& [flags, message] :
       {std::pair("--threads 0", "--threads: '0'"), std::pair("-m ''", "\"\": names no file"),
        std::pair("--device gpu", "--device: unknown device 'gpu'"),
        std::pair("--no-such", "unknown option --no-such"),
        std::pair("--synthetic tiny,x=1", "--synthetic: unknown synthetic option")})
    ExpectUsage({"bench", "--arm", std::string("a: ") + flags}, std::string("arm 'a': ") + message);
  // Of float numbers that are used as float32.
  ExpectUsage({"run", "x", "--top-p", "1e-60"}, "--top-p");
  ExpectUsage({"run", "x", "--min-p", "0.99999999999"}, "--min-p");
  ExpectUsage({"run", "x", "--repeat-penalty", "1e-320"}, "--repeat-penalty");
}

TEST(ExitCodes, OptionsThatContradictEachOther) {
  ExpectUsage({"perplexity", "--ids", "1"}, "wanted 2 or more");
  ExpectUsage({"perplexity", "--ids", "1,2,3", "--ctx", "2", "--first", "2"}, "--first");
  ExpectUsage({"perplexity", "--ids", "1,2,3", "--ctx", "8", "--first", "6"}, "stride of at most 2");
  ExpectUsage({"bench", "--arm", "a:", "--arm", "a:"}, "two arms have the name 'a'");
}

TEST(ExitCodes, TheEnvironmentIsReadLikeTheOptionsItStandsFor) {
  for (const auto& command :
       {Words{"plan"}, {"run", "x"}, {"tokenize", "x"}, {"compare", "a", "b", "--ids", "1,2"}}) {
    ExpectUsage(command, "$GLINT_WITHOUT: unknown lever 'foo'", {.environment = {"GLINT_WITHOUT=batch,foo"}});
    ExpectUsage(command, "$GLINT_WITH: unknown lever 'all'", {.environment = {"GLINT_WITH=all"}});
  }
  // Nothing is like not set.
  const testing::Setup nothing{.environment = {"GLINT_WITH=", "GLINT_WITHOUT=,", "GLINT_MODEL="}};
  EXPECT_EQ(RunGlint({"plan", "--levers"}, nothing).code, 0);
  EXPECT_EQ(RunGlint({"--help"}, {.environment = {"GLINT_WITH=foo"}}).code, 0);
}

// The other side: right in itself, and impossible with this model, file or machine.
TEST(ExitCodes, WhatOnlyTheModelFilesOrMachineMakeImpossibleFails) {
  const test::TempDir folder;
  folder.Write("ids", "1,2,x");
  const Words micro{"-m", testing::MicroModel()};
  const std::vector<std::pair<Words, std::string>> cases{
      {Words{"run", "--ids", "1,256"} + micro, "256"},
      {Words{"run", "--ids", "1", "--ctx", "2000000000"} + micro, "takes 1 to "},
      {{"run", "--synthetic", "tiny", "--ctx", "2000000000"}, "takes 1 to 4096"},
      {Words{"run", "--ids", "1", "--logit-bias", "256=1"} + micro, "not below 256"},
      {Words{"run", "--ids", "@" + folder.Path("ids")} + micro, "entry 3, 'x'"},
      {Words{"run", "--ids", "@" + folder.Path("none")} + micro, "cannot be opened"},
      {{"run", "--synthetic", "tiny", "--device", "cuda:99", "-n", "1"}, "99"},
      {Words{"plan", "-m", folder.Path("none")}, "cannot be opened"},
      {{"quantize", "a", folder.Path("b"), "--recipe", folder.Path("none")},
       "nor is it the name of a recipe"},
      {{"plan", "--synthetic", "tiny,mtp=0", "--mtp"}, "MTP"},
      {{"inspect", "--synthetic", "tiny", "--key", "x"}, "no key 'x'"},
  };
  for (const auto& [arguments, message] : cases) {
    SCOPED_TRACE(Line(arguments));
    const auto o = RunGlint(arguments);
    EXPECT_EQ(o.code, 1);
    EXPECT_TRUE(Has(o.err, message)) << o.err << "wanted: " << message;
    EXPECT_FALSE(Has(o.err, "--help`")) << o.err;
  }
}

}  // namespace
}  // namespace glint::cli
