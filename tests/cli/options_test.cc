#include "cli/options.h"

#include <gtest/gtest.h>

namespace glint::cli {
namespace {

struct Fixture {
  Options options{"glint test", "Tests."};
  std::optional<std::string> word, positional;
  std::optional<int64_t> count;
  std::optional<double> heat;
  std::vector<std::string> list;
  bool flag = false;

  Fixture() {
    options.Positional("WORD", &positional, "A positional");
    options.Value("-w,--word", "W", &word, "A word");
    options.Value("-n,--count", "N", &count, 1, 10, "A count");
    options.Value("--heat", "T", &heat, -1, 2, "A number");
    options.List("--item", "X", &list, "Items");
    options.Flag("--flag", &flag, "A flag");
    options.Examples({"glint test --flag"});
  }
  Options::Parsed Parse(const std::vector<std::string>& arguments) { return options.Parse(arguments); }
};

TEST(Options, ReadsEveryKind) {
  Fixture f;
  const auto parsed =
      f.Parse({"--word", "a b", "-n", "7", "--heat=-0.5", "--item", "x", "--item=y", "--flag", "rest"});
  ASSERT_EQ(parsed.kind, Options::Parsed::Kind::kRun) << parsed.text;
  EXPECT_EQ(f.word, "a b");
  EXPECT_EQ(f.count, 7);
  EXPECT_EQ(f.heat, -0.5);
  EXPECT_EQ(f.list, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(f.flag);
  EXPECT_EQ(f.positional, "rest");
}

TEST(Options, NothingGivenLeavesEverythingUnset) {
  Fixture f;
  ASSERT_EQ(f.Parse({}).kind, Options::Parsed::Kind::kRun);
  EXPECT_FALSE(f.word || f.positional || f.count || f.heat || f.flag);
  EXPECT_TRUE(f.list.empty());
}

TEST(Options, TheLastOfARepeatedValueCounts) {
  Fixture f;
  ASSERT_EQ(f.Parse({"-n", "1", "-n", "2"}).kind, Options::Parsed::Kind::kRun);
  EXPECT_EQ(f.count, 2);
}

TEST(Options, NegativeNumbersAreValues) {
  Fixture f;
  ASSERT_EQ(f.Parse({"--heat", "-1"}).kind, Options::Parsed::Kind::kRun);
  EXPECT_EQ(f.heat, -1);
}

TEST(Options, ADashDashEndsTheOptions) {
  Fixture f;
  ASSERT_EQ(f.Parse({"--", "--flag"}).kind, Options::Parsed::Kind::kRun);
  EXPECT_EQ(f.positional, "--flag");
  EXPECT_FALSE(f.flag);
}

// A prompt may be any word, the empty one and names of commands too.
TEST(Options, PositionalsMayBeAnything) {
  for (const std::string text : {"", "chat", "run", "a\nb", "\xff"}) {
    Fixture f;
    ASSERT_EQ(f.Parse({text}).kind, Options::Parsed::Kind::kRun);
    EXPECT_EQ(f.positional, text);
  }
}

TEST(Options, SaysWhatIsWrong) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--cuont", "3"}, "unknown option --cuont; did you mean --count?"},
      {{"--xyzzy"}, "unknown option --xyzzy"},
      {{"--count"}, "needs a value"},
      {{"--count", "11"}, "--count: '11' is not a whole number from 1 to 10"},
      {{"--count", "0"}, "from 1 to 10"},
      {{"--count", "3x"}, "'3x'"},
      {{"--count", "0x3"}, "'0x3'"},
      {{"--count", "99999999999999999999"}, "from 1 to 10"},
      {{"--heat", "nan"}, "'nan'"},
      {{"--heat", "2.5"}, "from -1 to 2"},
      {{"one", "two"}, "unexpected argument 'two'"},
  };
  for (const auto& [arguments, message] : cases) {
    Fixture f;
    const auto parsed = f.Parse(arguments);
    EXPECT_EQ(parsed.kind, Options::Parsed::Kind::kUsageError) << message;
    EXPECT_NE(parsed.text.find(message), std::string::npos) << parsed.text << "\nwanted: " << message;
  }
}

TEST(Options, ChecksRunAfterParsing) {
  Fixture f;
  f.options.Check([&]() -> Status { return f.flag ? Status(Code::kBadInput, "no flags today") : Status(); });
  const auto parsed = f.Parse({"--flag"});
  EXPECT_EQ(parsed.kind, Options::Parsed::Kind::kUsageError);
  EXPECT_EQ(parsed.text, "no flags today");
}

TEST(Options, HelpListsAllInLinesThatFit) {
  Fixture f;
  f.options.Value("--long", "N", &f.count, 0, 1,
                  std::string("words ") + std::string(30, 'x') +
                      " and so on and so on and so on and so on and so on and so on");
  const auto parsed = f.Parse({"--help"});
  ASSERT_EQ(parsed.kind, Options::Parsed::Kind::kHelp);
  for (const std::string part :
       {"glint test", "WORD", "--word", "--heat", "Examples:", "glint test --flag"}) {
    EXPECT_NE(parsed.text.find(part), std::string::npos) << part << " is missing in\n" << parsed.text;
  }
  size_t begin = 0;
  for (size_t end; (end = parsed.text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 100u) << parsed.text.substr(begin, end - begin);
  }
}

TEST(Options, NearestFindsTyposOnly) {
  const std::vector<std::string> names{"run", "chat", "inspect", "tokenize", "detokenize"};
  EXPECT_EQ(Nearest("rnu", names), "run");
  EXPECT_EQ(Nearest("inspct", names), "inspect");
  EXPECT_EQ(Nearest("tokenise", names), "tokenize");
  EXPECT_EQ(Nearest("frobnicate", names), "");
  EXPECT_EQ(Nearest("", names), "");
}

TEST(Options, NumbersAreReadWholeOrNotAtAll) {
  EXPECT_EQ(ParseInteger("-5"), -5);
  EXPECT_EQ(ParseInteger("9223372036854775807"), INT64_MAX);
  for (const char* bad : {"", "+5", " 5", "5 ", "5.0", "9223372036854775808"})
    EXPECT_FALSE(ParseInteger(bad)) << bad;
  EXPECT_EQ(ParseNumber("1e-3"), 1e-3);
  EXPECT_TRUE(ParseNumber("-inf").has_value());
  for (const char* bad : {"", "nan", "1,5", "0x10", "1 "}) EXPECT_FALSE(ParseNumber(bad)) << bad;
}

}  // namespace
}  // namespace glint::cli
