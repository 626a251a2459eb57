#include "cli/bench_arms.h"

#include <gtest/gtest.h>

namespace glint::cli {
namespace {

using Words = std::vector<std::string>;

TEST(BenchArms, WordsAreSplitAsAShellWould) {
  const std::vector<std::pair<std::string, Words>> cases{
      {"", {}},
      {"  \t\n", {}},
      {"a", {"a"}},
      {" a  b\tc ", {"a", "b", "c"}},
      {"'a b' c", {"a b", "c"}},
      {"\"a 'b'\" x", {"a 'b'", "x"}},
      {"a'b c'\"d e\"f", {"ab cd ef"}},
      {"'' \"\" x", {"", "", "x"}},
      {"a\\ b \\' \\\\", {"a b", "'", "\\"}},
      {"'a\\b' \"a\\\"b\"", {"a\\b", "a\"b"}},
      {"end\\", {"end\\"}},
  };
  for (const auto& [text, wanted] : cases) {
    const auto words = SplitWords(text);
    ASSERT_TRUE(words.ok()) << text;
    EXPECT_EQ(*words, wanted) << text;
  }
  for (const char* open : {"'", "a \"b", "\"a\\\""}) EXPECT_FALSE(SplitWords(open).ok()) << open;
}

TEST(BenchArms, FlagsAreThoseOfTheCommand) {
  const auto arm =
      ParseArm(" my arm : --threads 3 -m 'a b.gguf' --without threads,batch --chunk 16 --slow 2.5 ", {});
  ASSERT_TRUE(arm.ok()) << arm.status().message();
  EXPECT_EQ(arm->name, "my arm");
  EXPECT_EQ(arm->flags, "--threads 3 -m 'a b.gguf' --without threads,batch --chunk 16 --slow 2.5");
  EXPECT_EQ(arm->model.threads, 3);
  EXPECT_EQ(arm->model.path, "a b.gguf");
  EXPECT_EQ(SplitNames(arm->model.without), (Words{"threads", "batch"}));
  EXPECT_EQ(arm->chunk, 16);
  EXPECT_EQ(arm->slow, 2.5);
}

TEST(BenchArms, WhatAnArmLeavesOpenIsTheCommands) {
  ArmChoice common;
  common.model.path = "model.gguf";
  common.model.device = "cuda:1";
  common.model.threads = 4;
  common.model.without = {"batch"};
  common.chunk = 64;
  common.slow = 1;
  const auto arms = ParseArms(
      {"base:", "other: --synthetic tiny --device cpu --threads 1 --without threads --slow 0"}, common);
  ASSERT_TRUE(arms.ok()) << arms.status().message();
  ASSERT_EQ(arms->size(), 2u);
  const ArmChoice &base = (*arms)[0], &other = (*arms)[1];
  EXPECT_EQ(base.model.path, "model.gguf");
  EXPECT_EQ(base.model.device, "cuda:1");
  EXPECT_EQ(other.model.device, "cpu");
  EXPECT_EQ(base.model.threads, 4);
  EXPECT_EQ(base.model.without, Words{"batch"});
  EXPECT_EQ(base.chunk, 64);
  EXPECT_EQ(base.slow, 1);
  EXPECT_FALSE(other.model.path.has_value());
  EXPECT_EQ(other.model.synthetic, "tiny");
  EXPECT_EQ(other.model.threads, 1);
  EXPECT_EQ(other.model.without, (Words{"batch", "threads"}));
  EXPECT_EQ(other.chunk, 64);
  EXPECT_EQ(other.slow, 0);
}

TEST(BenchArms, WithoutArmsThereIsOne) {
  ArmChoice common;
  common.model.threads = 2;
  const auto arms = ParseArms({}, common);
  ASSERT_TRUE(arms.ok());
  ASSERT_EQ(arms->size(), 1u);
  EXPECT_EQ((*arms)[0].model.threads, 2);
}

TEST(BenchArms, ErrorsNameTheArm) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"nameless", "--arm 'nameless': wanted NAME: FLAGS"},
      {": --threads 1", "wanted NAME: FLAGS"},
      {"x: --theads 1", "arm 'x': unknown option --theads; did you mean --threads?"},
      {"x: --threads 0", "arm 'x': --threads: '0' is not a whole number"},
      {"x: --without treads", "arm 'x': unknown lever 'treads' (did you mean threads?)"},
      {"x: --device gpu", "arm 'x': --device: unknown device 'gpu'"},
      {"x: -m a --synthetic b", "arm 'x': give either --model or --synthetic"},
      {"x: stray", "arm 'x': unexpected argument 'stray'"},
      {"x: --help", "arm 'x': --help is no flag of an arm"},
      {"x: -m 'a", "arm 'x': the quote ' does not end"},
      {"x: --slow -1", "arm 'x': --slow"},
  };
  for (const auto& [text, message] : cases) {
    const auto arms = ParseArms({"first:", text}, {});
    ASSERT_FALSE(arms.ok()) << text;
    EXPECT_NE(arms.status().message().find(message), std::string::npos)
        << arms.status().message() << "\nwanted: " << message;
  }
  EXPECT_EQ(ParseArms({"a:", "b:", "a : --threads 1"}, {}).status().message(), "two arms have the name 'a'");
}

}  // namespace
}  // namespace glint::cli
