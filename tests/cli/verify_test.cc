#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using testing::MicroModel;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Verify, SaysWhatItComparedAndThatItIsClean) {
  const auto o = RunGlint({"verify", "-m", MicroModel(), "-n", "2"});
  ASSERT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_TRUE(Has(o.out, "and 2 more, in passes of ")) << o.out;
  EXPECT_TRUE(Has(o.out, "MTP block")) << o.out;
  EXPECT_TRUE(Has(o.out, "levers: ")) << o.out;
  EXPECT_TRUE(Has(o.out, "parts of states")) << o.out;
  EXPECT_TRUE(Has(o.out, "clean: the same bits everywhere\n")) << o.out;
  // The same passes again, word for word.
  EXPECT_EQ(RunGlint({"verify", "-m", MicroModel(), "-n", "2"}).out, o.out);

  const auto none = RunGlint({"verify", "-m", MicroModel(), "--ids", "1,2,3", "-n", "0", "--without", "all"});
  EXPECT_EQ(none.code, 0);
  EXPECT_TRUE(Has(none.out, "no lever served a step")) << none.out;
}

TEST(Verify, TriesEachLeverAndPairs) {
  const auto each =
      RunGlint({"verify", "-m", MicroModel(), "--ids", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18", "-n",
                "1", "--each", "--no-mtp"});
  ASSERT_EQ(each.code, 0) << each.out << each.err;
  for (const char* lever : {"threads", "batch", "kda.block"}) {
    EXPECT_TRUE(Has(each.out, std::string("\n") + lever + " ")) << each.out;
  }
  EXPECT_FALSE(Has(each.out, "MTP")) << each.out;
  EXPECT_FALSE(Has(each.out, "DIFFERS")) << each.out;

  const auto pairs =
      RunGlint({"verify", "-m", MicroModel(), "--ids", "1,2,3,4,5", "-n", "0", "--pairs", "--json"});
  ASSERT_EQ(pairs.code, 0) << pairs.out << pairs.err;
  const auto json = boost::json::parse(pairs.out).as_object();
  EXPECT_TRUE(json.at("clean").as_bool());
  EXPECT_EQ(json.at("tried").as_string(), "pairs");
  EXPECT_EQ(json.at("prompt_ids").as_array().size(), 5u);
  const auto& cases = json.at("cases").as_array();
  ASSERT_GT(cases.size(), 3u);
  for (const auto& c : cases) {
    EXPECT_EQ(c.at("levers").as_array().size(), 2u);
    EXPECT_TRUE(c.at("difference").is_null());
  }
  EXPECT_GT(json.at("steps").to_number<uint64_t>(), 0u);
  EXPECT_GT(json.at("state_values").to_number<uint64_t>(), 0u);
}

TEST(Verify, RefusesWhatMakesNoSense) {
  EXPECT_EQ(RunGlint({"verify", "--each", "--pairs"}).code, 2);
  EXPECT_EQ(RunGlint({"verify", "text", "--ids", "1"}).code, 2);
  EXPECT_EQ(RunGlint({"verify", "--with", "nosuch"}).code, 2);
  const auto text = RunGlint({"verify", "-m", MicroModel(), "some text"});
  EXPECT_EQ(text.code, 1);
  EXPECT_TRUE(Has(text.err, "--ids")) << text.err;
  const test::TempDir folder;
  folder.Write("none", "\n");
  const auto empty = RunGlint({"verify", "-m", MicroModel(), "--ids", "@" + folder.Path("none")});
  EXPECT_EQ(empty.code, 1);
  EXPECT_TRUE(Has(empty.err, "no tokens")) << empty.err;
}

TEST(Verify, RunAndChatTakeCheck) {
  const std::vector<std::string> run{"run",          "-m", MicroModel(), "--ids",
                                     "5,6,7,8,9,10", "-n", "4",          "--greedy"};
  auto checked = run;
  checked.push_back("--check");
  const auto a = RunGlint(run), b = RunGlint(checked);
  EXPECT_EQ(b.code, 0) << b.err;
  EXPECT_EQ(a.out, b.out);
  if (!testing::HaveStories()) GTEST_SKIP();
  const auto chat = RunGlint({"chat", "-m", testing::StoriesModel(), "-n", "3", "--seed", "1", "--check"},
                             {.input = "Hello.\n"});
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(
      chat.out,
      RunGlint({"chat", "-m", testing::StoriesModel(), "-n", "3", "--seed", "1"}, {.input = "Hello.\n"}).out);
}

}  // namespace
}  // namespace glint::cli
