// Options from a file: the same values as from the command line, and an error with its line for whatever is none of them.
#include "cli/config_file.h"

#include <gtest/gtest.h>

#include <random>

#include "cli/options.h"
#include "tests/base/temp_dir.h"

namespace glint::cli {
namespace {

using Kind = ConfigEntry::Kind;

struct Fixture {
  Options options{"glint test", "Tests."};
  std::optional<std::string> word, other;
  std::optional<int64_t> count;
  std::optional<double> heat;
  std::optional<uint64_t> seed;
  std::vector<std::string> list;
  bool flag = false;
  const test::TempDir folder;

  Fixture() {
    options.Value("-w,--word", "W", &word, "A word");
    options.Value("--other-word", "W", &other, "Another");
    options.Group("Numbers");
    options.Value("-n,--count", "N", &count, 1, 10, "A count");
    options.Value("--heat", "T", &heat, -1, 2, "A number");
    options.Value("--seed", "N", &seed, "A seed");
    options.List("--item", "X", &list, "Items");
    options.Flag("--flag", &flag, "A flag");
    options.Configurable();
  }
  Options::Parsed Parse(const std::string& file, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.end(), {"--config", folder.Write("c.toml", file)});
    return options.Parse(arguments);
  }
};

TEST(ConfigFile, GivesWhatTheCommandLineDoesNot) {
  Fixture f;
  const auto parsed = f.Parse(
      "# a comment\nword = 'from the file'\nother-word = \"\"\"two\nlines\"\"\"\ncount = 0x07\nheat = 1\n"
      "seed = 1_000\nitem = [\"a\", \"b\"]\nflag = true\n",
      {"--word", "typed", "--item", "c"});
  ASSERT_EQ(parsed.kind, Options::Parsed::Kind::kRun) << parsed.text;
  EXPECT_EQ(f.word, "typed");
  EXPECT_EQ(f.other, "two\nlines");
  EXPECT_EQ(f.count, 7);
  EXPECT_EQ(f.heat, 1.0);
  EXPECT_EQ(f.seed, 1000u);
  EXPECT_EQ(f.list, std::vector<std::string>{"c"});
  EXPECT_TRUE(f.flag);
}

TEST(ConfigFile, SaysWhichLineIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"word = 'a'\ncuont = 3\n", "c.toml:2: unknown key 'cuont'; did you mean count?"},
      {"config = 'x'\n", "c.toml:1: unknown key 'config'"},
      {"\n\ncount = 11\n", "c.toml:3: count: '11' is not a whole number from 1 to 10"},
      {"count = '7'\n", "c.toml:1: count wants a whole number, and this is a string"},
      {"count = 7.0\n", "count wants a whole number, and this is a number"},
      {"word = 7\n", "word wants a string, and this is a whole number"},
      {"flag = 1\n", "flag wants true or false, and this is a whole number"},
      {"word = ['a']\n", "word wants a string, and this is a list of strings"},
      {"heat = nan\n", "c.toml:1: heat: 'nan' is not a number"},
      {"seed = -1\n", "c.toml:1: seed: '-1' is not"},
      {"item = ['a', 3]\n", "c.toml:1: 'item': a list holds strings alone"},
      {"word = 'a'\n[http]\nport = 3\n", "c.toml:2: 'http': is a table"},
      {"word = 2026-11-30\n", "c.toml:1: 'word': is a date or a time"},
      {"word = 'a'\nword = 'b'\n", "c.toml:2: "},
      {"word = 'a\n", "c.toml:1: "},
      {"word\n", "c.toml:1: "},
      {"word = '\xff'\n", "c.toml:1: "},
  };
  for (const auto& [file, message] : cases) {
    SCOPED_TRACE(file);
    Fixture f;
    const auto parsed = f.Parse(file);
    EXPECT_EQ(parsed.kind, Options::Parsed::Kind::kUsageError);
    EXPECT_NE(parsed.text.find(message), std::string::npos) << parsed.text << "\nwanted: " << message;
    EXPECT_EQ(parsed.text.find('\n'), std::string::npos) << parsed.text;
  }
  // The kind is checked where the command line wins, too.
  Fixture f;
  EXPECT_EQ(f.Parse("count = 'x'\n", {"--count", "3"}).kind, Options::Parsed::Kind::kUsageError);
}

TEST(ConfigFile, MissingOrTooLargeIsAnError) {
  Fixture f;
  const auto missing = f.options.Parse({"--config", f.folder.Path("none")});
  EXPECT_EQ(missing.kind, Options::Parsed::Kind::kUsageError);
  EXPECT_NE(missing.text.find(f.folder.Path("none")), std::string::npos) << missing.text;
  Fixture g;
  EXPECT_EQ(g.Parse("# " + std::string(size_t{2} << 20, 'x') + "\n").kind,
            Options::Parsed::Kind::kUsageError);
}

// What --print-config prints means the same again.
TEST(ConfigFile, PrintedIsReadBack) {
  Fixture f;
  auto printed = f.Parse("heat = 0.5\nword = \"a \\\"b\\\" \\\\ \\u0001 \\u00e9\"\n",
                         {"--print-config", "--item", "x", "--item", "y\ny", "-n", "3", "--flag"});
  ASSERT_EQ(printed.kind, Options::Parsed::Kind::kHelp) << printed.text;
  EXPECT_NE(printed.text.find("\n## Numbers\n"), std::string::npos) << printed.text;
  EXPECT_NE(printed.text.find("\n# A seed\n# seed = N\n"), std::string::npos) << printed.text;
  EXPECT_NE(printed.text.find("\ncount = 3  # --count\n"), std::string::npos) << printed.text;
  EXPECT_NE(printed.text.find("c.toml:1\n"), std::string::npos) << printed.text;
  EXPECT_EQ(printed.text.find("print-config ="), std::string::npos) << printed.text;
  Fixture g;
  ASSERT_EQ(g.Parse(printed.text).kind, Options::Parsed::Kind::kRun);
  EXPECT_EQ(g.word, f.word);
  EXPECT_EQ(g.count, 3);
  EXPECT_EQ(g.heat, 0.5);
  EXPECT_EQ(g.list, (std::vector<std::string>{"x", "y\ny"}));
  EXPECT_TRUE(g.flag);
  EXPECT_FALSE(g.seed || g.other);
}

TEST(ConfigFile, StringsOfAnyBytesAreReadBack) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const std::vector<std::string> pieces{"a",        "\"",       "\\", "\n", "\x7f",
                                        "\xc2\x85", "\xc3\xa9", "#",  "=",  std::string(1, '\1')};
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::string text;
    for (size_t n = rng() % 8; n > 0; --n) text += pieces[rng() % pieces.size()];
    const auto entries = ParseConfig("key = " + TomlString(text) + "\n", "c");
    ASSERT_TRUE(entries.ok()) << entries.status().message();
    ASSERT_EQ(entries->at(0).values.at(0), text);
  }
  EXPECT_EQ(TomlString("a\xff"), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace glint::cli
