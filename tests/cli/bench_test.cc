// The command as a person runs it. No number that it prints is looked at: those depend on the machine.
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::vector<std::string> kSmall{"bench",    "--synthetic", "tiny",  "--prefill", "4",
                                      "--decode", "2",           "--ctx", "8,3,8"};

std::vector<std::string> Small(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = kSmall;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Bench, ComparesArmsAndWritesFiles) {
  const TempDir folder;
  const auto o = RunGlint(Small({"--arm", "base:", "--arm", "plain: --without all --chunk 3", "--blocks", "2",
                                 "--csv", folder.Path("x.csv"), "--plot", folder.Path("x.svg")}));
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part :
       {"prefill", "decode", "base", "plain", "against base", "too few samples to tell: 4 pairs"})
    EXPECT_TRUE(Has(o.out, part)) << part << "\n" << o.out;
  EXPECT_TRUE(Has(o.err, "note: 2 blocks are too few to tell whether arms differ")) << o.err;
  const std::string csv = folder.Read("x.csv");
  // 2 depths, 2 phases, 2 arms, 2 * 2 samples and 1 of warm-up; the line of names.
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2 * 2 * 2 * 5 + 1);
  EXPECT_TRUE(folder.Read("x.svg").starts_with("<svg "));
  EXPECT_EQ(folder.List().size(), 2u);
}

TEST(Bench, TheJsonNamesWhatRan) {
  const auto o = RunGlint(
      Small({"--arm", "a: --threads 1", "--arm", "b: --threads 2 --without all", "-b", "1", "--json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_TRUE(*json->Get<bool>("complete"));
  const auto& arms = json->Find("arms")->items();
  ASSERT_EQ(arms.size(), 2u);
  EXPECT_EQ(*arms[0].Get<int64_t>("threads"), 1);
  EXPECT_EQ(*arms[1].Get<int64_t>("threads"), 2);
  EXPECT_FALSE(arms[0].Find("decode_levers")->items().empty());
  EXPECT_TRUE(arms[1].Find("decode_levers")->items().empty());
  EXPECT_EQ(*arms[1].Get<std::string>("source"), "tiny");
  EXPECT_EQ(*json->Get<std::vector<int64_t>>("settings.depths"), (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(json->Find("samples")->items().size(), 2u * 2 * 2 * 3);
}

TEST(Bench, SaysWhereContextsAreMadeUp) {
  const TempDir folder;
  const std::vector<std::string> more{"--ctx", "100",   "--fill-from",        "32",     "-b",
                                      "1",     "--csv", folder.Path("x.csv"), "--force"};
  const std::string wanted = "random ids, seed 1, made up from about 32";
  std::vector<std::string> arguments{"bench", "--synthetic", "tiny", "--prefill", "0", "--decode", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto table = RunGlint(arguments);
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(Has(table.out, "context: " + wanted + "\n")) << table.out;
  EXPECT_TRUE(Has(folder.Read("x.csv"), "\"" + wanted + "\""));
  arguments.push_back("--json");
  const auto o = RunGlint(arguments);
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json->Get<std::string>("settings.context"), wanted);
  EXPECT_EQ(*json->Get<int64_t>("settings.fill_from"), 32);
}

TEST(Bench, ChecksArmsAndMeasuresTheMachineFirst) {
  const auto o = RunGlint(Small({"--arm", "a: --check", "--arm", "b:", "-b", "1", "--json", "--limits"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const auto& arms = json->Find("arms")->items();
  EXPECT_TRUE(*arms[0].Get<bool>("checked"));
  EXPECT_FALSE(*arms[1].Get<bool>("checked"));
  // One measurement serves both: they have the same threads.
  const double read = *arms[0].Get<double>("limits.read_bytes_per_second.best");
  EXPECT_GT(read, 0);
  EXPECT_EQ(*arms[1].Get<double>("limits.read_bytes_per_second.best"), read);
}

TEST(Bench, MeasuresPassesOfSeveralRows) {
  const auto o = RunGlint(Small({"--rows", "3,1,3", "-b", "1", "--json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json->Get<std::vector<int64_t>>("settings.rows"), (std::vector<int64_t>{1, 3}));
  const auto& results = json->Find("results")->items();
  ASSERT_EQ(results.size(), 2u * 3);  // two depths: prefill, one row, three
  for (const size_t depth : {0, 3}) {
    const Json& three = results[depth + 2];
    EXPECT_EQ(*three.Get<int64_t>("rows"), 3);
    EXPECT_GT(*three.Get<double>("times_one_row.seconds"), 0);
    EXPECT_GT(*three.Get<double>("times_one_row.bytes"), 1);
    EXPECT_LT(*three.Get<double>("times_one_row.bytes"), 3);
    EXPECT_GT(*three.Get<double>("expected_experts"), *results[depth + 1].Get<double>("expected_experts"));
  }
  EXPECT_EQ(json->Find("samples")->items().size(), 2u * 3 * 3);
  for (const auto& [rows, message] : std::vector<std::pair<std::string, std::string>>{
           {"0", "--rows: '0' is not a whole number from 1 to 512"},
           {"1,x", "--rows: 'x' is not"},
           {",", "empty"}}) {
    const auto bad = RunGlint(Small({"--rows", rows}));
    EXPECT_EQ(bad.code, 2);
    EXPECT_TRUE(Has(bad.err, message)) << bad.err;
  }
  EXPECT_EQ(RunGlint({"bench", "--synthetic", "tiny", "--rows", "2", "--decode", "0"}).code, 2);
}

TEST(Bench, ReadsATextRoundAndRound) {
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const TempDir folder;
  const std::string text = folder.Write("text.txt", "Once upon a time\n");
  const auto o = RunGlint({"bench", "-f", text, "--ctx", "40", "--prefill", "2", "--decode", "1", "-b", "1"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.out, "context: " + text)) << o.out;
  folder.Write("empty.txt", "");
  EXPECT_TRUE(Has(RunGlint({"bench", "-f", folder.Path("empty.txt")}).err, "the text is empty"));
  const auto none = RunGlint({"bench", "-m", testing::MicroModel(), "-f", text});
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(Has(none.err, "no tokenizer")) << none.err;
}

TEST(Bench, FilesThatCanNotBeWrittenShowBeforeTheWork) {
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const TempDir folder;
  std::filesystem::copy(testing::StoriesModel(), folder.Path("model.gguf"));
  const std::string text = folder.Write("text.txt", "Once upon a time\n");
  for (const std::string& out :
       {std::string("no/x.csv"), std::string("model.gguf"), std::string("text.txt")}) {
    // Enough work to time out if it began.
    const auto o = RunGlint({"bench", "-m", folder.Path("model.gguf"), "-f", text, "--blocks", "10000",
                             "--csv", folder.Path(out)});
    EXPECT_EQ(o.code, 1);
    EXPECT_EQ(o.out, "");
  }
  EXPECT_EQ(folder.Read("text.txt"), "Once upon a time\n");
  EXPECT_EQ(folder.List().size(), 2u);
}

TEST(Bench, SaysWhatDoesNotFit) {
  const auto o = RunGlint({"bench", "-m", testing::MicroModel(), "--ctx", "1000000000"});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(Has(o.err, "--ctx: '1000000000' is not a whole number from 0 to")) << o.err;
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const auto deep = RunGlint({"bench", "--arm", "x:", "--ctx", "100000"});
  EXPECT_EQ(deep.code, 1);
  EXPECT_TRUE(Has(deep.err, "arm 'x': context is 100128 tokens")) << deep.err;
}

// Ctrl-C while it measures: what is there is printed and called partial.
TEST(Bench, AnInterruptionPrintsWhatThereIs) {
  testing::OnTerminal program(
      {"bench", "--synthetic", "tiny", "--ctx", "4", "--blocks", "10000", "--decode", "4"});
  ASSERT_TRUE(program.WaitFor("measuring"));
  program.Type("\x03");
  EXPECT_EQ(program.WaitForEnd(), 130);
  EXPECT_TRUE(Has(program.screen(), "tokens/s")) << program.screen();
  EXPECT_TRUE(Has(program.screen(), "partial results")) << program.screen();
}

}  // namespace
}  // namespace glint::cli
