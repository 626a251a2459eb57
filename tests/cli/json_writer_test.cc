#include "cli/json_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "base/json.h"

namespace glint::cli {
namespace {

TEST(JsonWriter, WritesWhatAParserReads) {
  JsonWriter json;
  json.BeginObject()
      .Member("text", "a \"quoted\" \\ line\nand\ttab")
      .Member("yes", true)
      .Member("int", int64_t{-5});
  json.Member("big", UINT64_MAX).Member("real", 0.1).Key("none").Null();
  json.Key("list").BeginArray(true).Value(1).Value(2).EndArray();
  json.Key("empty").BeginArray().EndArray().Key("object").BeginObject().EndObject();
  json.Key("nested")
      .BeginArray()
      .BeginObject()
      .Member("a", 1)
      .EndObject()
      .BeginArray(true)
      .EndArray()
      .EndArray();
  const std::string text = json.EndObject().Take();
  const auto parsed = ParseJson(text, "test");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message() << "\n" << text;
  EXPECT_EQ(parsed->Get<std::string>("text").value(), "a \"quoted\" \\ line\nand\ttab");
  EXPECT_EQ(parsed->Get<uint64_t>("big").value(), UINT64_MAX);
  EXPECT_EQ(parsed->Get<double>("real").value(), 0.1);
  EXPECT_EQ(parsed->Get<std::vector<int64_t>>("list").value(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(parsed->members().back().key, "nested");
  EXPECT_NE(text.find("[1, 2]"), std::string::npos) << text;
}

TEST(JsonWriter, NumbersJsonCannotSayAreNull) {
  JsonWriter json;
  json.BeginArray(true)
      .Value(std::numeric_limits<double>::quiet_NaN())
      .Value(std::numeric_limits<double>::infinity());
  EXPECT_EQ(json.EndArray().Take(), "[null, null]\n");
}

// Whatever the bytes: it parses, and nothing in it could steer a terminal.
TEST(JsonWriter, AnyBytesGiveValidHarmlessJson) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int repeat = 0; repeat < 500; ++repeat) {
    std::string bytes(rng() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng() % 3 ? rng() % 256 : 0xc2 + rng() % 2);
    JsonWriter json;
    const std::string text = json.BeginObject().Member(bytes, bytes).EndObject().Take();
    ASSERT_TRUE(ParseJson(text, "test").ok()) << text;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      ASSERT_TRUE(byte >= 0x20 || byte == '\n') << i;
      ASSERT_NE(byte, 0x7f);
      if (byte == 0xc2) {
        ASSERT_GE(static_cast<unsigned char>(text[i + 1]), 0xa0);
      }
    }
  }
}

}  // namespace
}  // namespace glint::cli
