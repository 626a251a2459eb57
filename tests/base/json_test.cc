#include "base/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <random>

#include "tests/base/temp_dir.h"

namespace glint {
namespace {

TEST(Json, ReadsValuesByPath) {
  const auto json = ParseJson(
      R"({"a": {"b": [1, 2.0, 3], "c": "x\u00e9\ud83e\udd8a\n", "d": -5, "t": true, "n": null}, "e": 1e-5,
          "big": 18446744073709551615, "names": ["p", "q"], "f": 10000.0})",
      "f.json");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json->Get<std::vector<uint64_t>>("a.b"), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(*json->Get<std::vector<double>>("a.b"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(*json->Get<std::string>("a.c"), "xé🦊\n");
  EXPECT_EQ(*json->Get<int64_t>("a.d"), -5);
  EXPECT_EQ(*json->Get<bool>("a.t"), true);
  EXPECT_EQ(*json->Get<double>("e"), 1e-5);
  EXPECT_EQ(*json->Get<uint64_t>("big"), UINT64_MAX);
  EXPECT_EQ(*json->Get<uint64_t>("f"), 10000u);
  EXPECT_EQ(*json->Get<double>("a.d"), -5);
  EXPECT_EQ(*json->Get<std::vector<std::string>>("names"), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(json->At("a.x"), nullptr);
  EXPECT_EQ(json->members().front().key, "a");
  EXPECT_EQ(json->members().back().key, "f");  // order of the file
  EXPECT_EQ(json->Get<uint64_t>("a.x").status().code(), Code::kNotFound);
  EXPECT_EQ(json->Get<uint64_t>("a.n").status().code(), Code::kNotFound);
}

TEST(Json, SaysWhatIsThereAndWhatIsWanted) {
  test::TempDir dir;
  const std::string path =
      dir.Write("config.json", R"({"a": {"s": "x", "neg": -1, "half": 0.5, "mixed": [1, "x"]}})");
  const auto file = ReadJson(path);
  ASSERT_TRUE(file.ok());
  const auto error = [&](auto result) {
    EXPECT_EQ(result.status().code(), Code::kBadFile);
    return result.status().message();
  };
  EXPECT_EQ(error(file->Get<uint64_t>("a.s")),
            path + ": 'a.s': is a string; wanted is a whole number of at least 0");
  EXPECT_EQ(error(file->Get<uint64_t>("a.neg")),
            path + ": 'a.neg': is -1; wanted is a whole number of at least 0");
  EXPECT_EQ(error(file->Get<int64_t>("a.half")), path + ": 'a.half': is 0.5; wanted is a whole number");
  EXPECT_EQ(error(file->Get<std::vector<double>>("a.mixed")),
            path + ": 'a.mixed[1]': is a string; wanted is a number");
  EXPECT_EQ(error(file->Get<std::string>("a")), path + ": 'a': is an object; wanted is a string");
  EXPECT_EQ(*file->GetOr<uint64_t>("a.none", 7), 7u);
  EXPECT_FALSE(file->GetOr<uint64_t>("a.s", 7).ok());
}

TEST(Json, RefusesBadTextWithItsOffset) {
  struct Case {
    std::string text, offset;
  };
  const Case cases[] = {{"", "0x0"},
                        {"{", "0x1"},
                        {"[1,]", "0x3"},
                        {"[1] x", "0x4"},
                        {"{\"a\":1} {", "0x8"},
                        {"nul", "0x3"},
                        {"[01]", "0x2"},
                        {"[\"\x01\"]", "0x2"},
                        {"[\"\xff\"]", "0x2"},
                        {"[\"\xed\xa0\x80\"]", ""},
                        {"[\"\\ud800\"]", ""},
                        {"[NaN]", "0x1"},
                        {"// c\n1", "0x0"},
                        {"[1e999]", ""},
                        {"\xef\xbb\xbf[]", "0x0"}};
  for (const Case& c : cases) {
    const auto json = ParseJson(c.text, "f.json");
    ASSERT_FALSE(json.ok()) << c.text;
    EXPECT_EQ(json.status().code(), Code::kBadFile);
    EXPECT_TRUE(json.status().message().starts_with("f.json: ")) << json.status().message();
    EXPECT_NE(json.status().message().find("(offset " + c.offset), std::string::npos)
        << c.text << ": " << json.status().message();
  }
  JsonLimits later;
  later.offset = 0x100;
  EXPECT_NE(ParseJson("[x]", "f", later).status().message().find("0x101"), std::string::npos);
}

TEST(Json, RefusesAKeyThatComesTwice) {
  const auto status = ParseJson(R"({"x": {"b": 1, "a": 2, "b": 3}})", "f.json").status();
  EXPECT_EQ(status.code(), Code::kBadFile);
  EXPECT_NE(status.message().find("'b' comes twice"), std::string::npos) << status.message();
  EXPECT_TRUE(ParseJson(R"({"x": {"b": 1}, "b": {"b": 2}})", "f.json").ok());
}

TEST(Json, KeepsItsLimits) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  JsonLimits limits;
  limits.depth = 10;
  EXPECT_TRUE(ParseJson(nested(10), "f", limits).ok());
  EXPECT_FALSE(ParseJson(nested(11), "f", limits).ok());
  EXPECT_FALSE(ParseJson(std::string(1 << 20, '['), "f").ok());
  limits.values = 4;
  EXPECT_TRUE(ParseJson("[1,2,3]", "f", limits).ok());
  EXPECT_FALSE(ParseJson("[1,2,3,4]", "f", limits).ok());
}

// The C library rounds correctly, and knows nothing of our parser.
TEST(Json, RoundsEveryDoubleAsTheCLibrary) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 20000; ++repeat) {
    char text[64];
    const double wide = std::bit_cast<double>(rng() & ~(uint64_t{1} << 62));  // below 2, any exponent
    snprintf(text, sizeof text, repeat % 2 ? "%.17e" : "%.20g",
             repeat % 4 < 2 ? wide : 1e6 * static_cast<double>(rng()) * 0x1p-64);
    if (std::string_view(text).find("nan") != std::string_view::npos) continue;
    const double want = strtod(text, nullptr);
    const auto json = ParseJson(text, "f");
    // Below the least normal number libraries differ in what they call out of range.
    if (want != 0 && std::abs(want) < 0x1p-1022) continue;
    ASSERT_TRUE(json.ok()) << text << ": " << json.status().message();
    ASSERT_EQ(std::bit_cast<uint64_t>(*json->Get<double>("")), std::bit_cast<uint64_t>(want)) << text;
  }
}

}  // namespace
}  // namespace glint
