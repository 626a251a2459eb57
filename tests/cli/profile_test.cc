#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "engine/session_impl.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using namespace testing;
namespace json = boost::json;

bool Has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Small and quick: random weights, no measuring of memory.
std::vector<std::string> Quick(std::vector<std::string> more) {
  std::vector<std::string> arguments{"profile", "--synthetic", "tiny",   "--no-limits", "--rounds", "1",
                                     "--ctx",   "20",          "--rows", "12",          "--tokens", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(ProfileCommand, PrintsATableThatAddsUpInBothPhases) {
  const auto o = RunGlint(Quick({}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.out, "context: 32 random ids, seed 1\n")) << o.out;
  EXPECT_TRUE(Has(o.out, "\nprefill: a pass of 12 tokens from depth 20: "));
  EXPECT_TRUE(Has(o.out, "\ndecode: 2 tokens from depth 20: "));
  for (const char* row : {"\nkda.recur ", "\nhead.logits ", "\n(of the pass, in no step) ",
                          "\n(outside: sampling, ...) ", "\n(timing the steps) ", "\nall "})
    EXPECT_TRUE(Has(o.out, row)) << row;
  EXPECT_TRUE(Has(o.out, "kda.block"));  // the lever that served a prompt's recurrence
  EXPECT_TRUE(Has(o.out, "100.0 %"));
  EXPECT_TRUE(Has(o.out, "bandwidth is not known"));
}

TEST(ProfileCommand, JsonRowsAddUpToTheTotal) {
  const auto o =
      RunGlint(Quick({"--json", "--per-layer", "--repeat", "kda.qkv,kda.recur", "--ablate", "moe.route"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto root = json::parse(o.out).as_object();
  EXPECT_TRUE(root.at("read_bytes_per_second").is_null());
  const auto& phases = root.at("phases").as_array();
  ASSERT_EQ(phases.size(), 2u);
  for (const auto& value : phases) {
    const auto& phase = value.as_object();
    const auto number = [](const json::object& object, const char* key) {
      return object.at(key).to_number<double>();
    };
    const double total = number(phase.at("seconds").as_object(), "median");
    double sum = number(phase, "seconds_in_no_step") + number(phase, "seconds_outside") +
                 number(phase, "seconds_timing");
    double shares = 0;
    bool layers = false;
    for (const auto& row : phase.at("rows_by_stage").as_array()) {
      const auto& r = row.as_object();
      sum += number(r.at("seconds").as_object(), "median");
      shares += number(r, "share");
      layers = layers || r.contains("layer");
      EXPECT_TRUE(r.at("share_of_read").is_null());
    }
    EXPECT_NEAR(sum, total, 1e-6 * total);
    const double untimed = number(phase.at("untimed_seconds").as_object(), "median");
    EXPECT_NEAR(number(phase, "share_of_untimed") * untimed, total - number(phase, "seconds_timing"),
                1e-6 * total);
    EXPECT_LE(shares, 1 + 1e-9);
    EXPECT_TRUE(layers);
    const auto& repeat = phase.at("repeat").as_array();
    ASSERT_EQ(repeat.size(), 2u);
    EXPECT_EQ(repeat[0].as_object().at("output").as_string(), "unchanged");
    EXPECT_TRUE(
        Has(std::string(repeat[1].as_object().at("refused").as_string()), "advances the sequence's state"));
    const auto& ablate = phase.at("ablate").as_array();
    ASSERT_EQ(ablate.size(), 1u);
    EXPECT_EQ(ablate[0].as_object().at("output").as_string(), "invalid, dropped");
    EXPECT_EQ(ablate[0].as_object().at("stage").as_string(), "moe.route");
  }
}

TEST(ProfileCommand, PricesNameTheLeverAndSayWhatBecameOfTheOutput) {
  const auto o = RunGlint(Quick({"--only", "decode", "--repeat", "moe.gate_up", "--ablate", "kda.recur"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(Has(o.out, "prefill:"));
  EXPECT_TRUE(Has(o.out, "OUTPUT OF THESE PASSES IS INVALID"));
  EXPECT_TRUE(Has(o.out, "the logits stayed the same bits"));
  EXPECT_TRUE(Has(o.out, "moe.gate_up  canonical + "));
}

TEST(ProfileCommand, SaysWhatFillsTheContext) {
  const auto ids = RunGlint(Quick({"--ids", "5,6,7", "--only", "decode"}));
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_TRUE(Has(ids.out, "context: 21 tokens, the 3 of --ids over and over\n")) << ids.out;
  const glint::test::TempDir folder;
  const std::string text = folder.Path("text.txt");
  std::ofstream(text) << std::string(100, 'x');
  const auto file = RunGlint(Quick({"-f", text, "--only", "decode"}));
  ASSERT_EQ(file.code, 0) << file.err;
  EXPECT_TRUE(Has(file.out, "context: 21 tokens of " + text)) << file.out;
}

TEST(ProfileCommand, WritesATraceWholeOrNotAtAll) {
  const glint::test::TempDir folder;
  const std::string trace = folder.Path("trace.json");
  const auto o = RunGlint(Quick({"--chrome-trace", trace}));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto root = json::parse(ReadAll(trace)).as_object();
  EXPECT_GT(root.at("traceEvents").as_array().size(), 100u);
  // Not over the model, nor to where nothing can be.
  const auto nowhere = RunGlint(Quick({"--chrome-trace", folder.Path("no/such/trace.json")}));
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_EQ(nowhere.out, "");
  if (HaveStories()) {
    const auto before = std::filesystem::file_size(StoriesModel());
    const auto over = RunGlint({"profile", "-m", StoriesModel(), "--no-limits", "--rounds", "1", "--ctx", "1",
                                "--tokens", "1", "--only", "decode", "--chrome-trace", StoriesModel()});
    EXPECT_EQ(over.code, 1);
    EXPECT_EQ(std::filesystem::file_size(StoriesModel()), before);
  }
}

TEST(ProfileCommand, SaysWhereTheContextIsMadeUp) {
  const auto o = RunGlint({"profile", "--synthetic", "tiny", "--no-limits", "--rounds", "1", "--ctx", "100",
                           "--tokens", "2", "--only", "decode", "--fill-from", "32"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.out, "random ids, seed 1, made up from about 32\n")) << o.out;
}

TEST(ProfileCommand, RefusesWithTheListOfStages) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--ablate", ""}, "--ablate: the list is empty"},
      {{"--repeat", ","}, "--repeat: the list is empty"},
      {{"--ablate", "kda"}, "unknown stage 'kda'; there are: embed, hc.pre,"},
      {{"--repeat", "kda.qkv,nothing"}, "unknown stage 'nothing'"},
      {{"--only", "both"}, "'both' is not prefill or decode"},
      {{"--ids", "1", "-f", "x"}, "not both"},
      {{"--ids", "1", "--seed", "2"}, "--seed is of random ids"},
      {{"--rows", std::to_string(engine::kChunkRows + 1)}, std::to_string(engine::kChunkRows)},
  };
  for (const auto& [more, message] : cases) {
    std::vector<std::string> arguments{"profile", "--synthetic", "tiny"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto o = RunGlint(arguments);
    EXPECT_EQ(o.code, 2) << message;
    EXPECT_TRUE(Has(o.err, message)) << o.err;
  }
  const auto o = RunGlint(Quick({"--ablate", "mtp.input"}));
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "mtp.input is not in this pass of this model")) << o.err;
}

}  // namespace
}  // namespace glint::cli
