// Recipes: what a text means, and what is said of one that means nothing.
#include "model/glm_flash/recipe.h"

#include <gtest/gtest.h>

#include <string>

namespace glint::model {
namespace {

using quant::Type;

Type TypeOf(const Recipe& recipe, const char* name, Role role, bool mtp = false, uint64_t columns = 4096,
            bool vector = false, Type present = Type::kBF16) {
  return recipe.TypeFor(RecipeSubject{name, role, mtp, vector, columns, present});
}

Recipe Must(const std::string& text) {
  auto recipe = Recipe::Read(text, "test");
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  return recipe.ok() ? *recipe : Recipe();
}

TEST(Recipe, TheFirstRuleThatMatchesDecides) {
  const Recipe recipe = Must(
      "blk.{0-2}.* = q6_k   # the first blocks\n"
      "\n"
      "  blk.*.ffn_gate_exps=iq2_s\r\n"
      "role:kda = q8_0\n"
      "role:router = keep\n"
      "* = q4_k\n");
  EXPECT_EQ(TypeOf(recipe, "blk.2.ffn_gate_exps.weight", Role::kExperts), Type::kQ6_K);
  EXPECT_EQ(TypeOf(recipe, "blk.3.ffn_gate_exps.weight", Role::kExperts), Type::kIQ2_S);
  EXPECT_EQ(TypeOf(recipe, "blk.20.ffn_gate_exps.weight", Role::kExperts), Type::kIQ2_S);  // 20 is not 2
  EXPECT_EQ(TypeOf(recipe, "blk.3.attn_q.weight", Role::kKda), Type::kQ8_0);
  EXPECT_EQ(TypeOf(recipe, "blk.3.ffn_gate_inp.weight", Role::kRouter), Type::kBF16);
  EXPECT_EQ(TypeOf(recipe, "blk.3.ffn_up_exps.weight", Role::kExperts), Type::kQ4_K);
  EXPECT_EQ(TypeOf(Must("role:head = q8_0\n"), "token_embd.weight", Role::kEmbedding),
            Type::kBF16);  // no rule
}

TEST(Recipe, RolesMtpAndSeveralConditions) {
  const Recipe recipe =
      Must("role:mtp & role:experts = q3_k\nrole:mtp = q5_k\nrole:experts & *down* = q2_k\n* = q8_0\n");
  EXPECT_EQ(TypeOf(recipe, "blk.45.ffn_up_exps.weight", Role::kExperts, true), Type::kQ3_K);
  EXPECT_EQ(TypeOf(recipe, "blk.45.attn_q_a.weight", Role::kDsa, true), Type::kQ5_K);
  EXPECT_EQ(TypeOf(recipe, "blk.4.ffn_down_exps.weight", Role::kExperts), Type::kQ2_K);
  EXPECT_EQ(TypeOf(recipe, "blk.4.ffn_up_exps.weight", Role::kExperts), Type::kQ8_0);
  for (int i = 0; i < static_cast<int>(Role::kCount); ++i) {
    const Role role = static_cast<Role>(i);
    if (role == Role::kMtp) continue;
    const Recipe one = Must("role:" + std::string(RuleName(role)) + " = q8_0\n");
    EXPECT_EQ(TypeOf(one, "x.weight", role), Type::kQ8_0) << RuleName(role);
    EXPECT_EQ(TypeOf(one, "x.weight", role == Role::kKda ? Role::kDsa : Role::kKda), Type::kBF16)
        << RuleName(role);
  }
}

TEST(Recipe, VectorsTakeNoBlocks) {
  const Recipe blocks = Must("* = q8_0\n"), floats = Must("vectors = f16\n* = q8_0\n");
  EXPECT_EQ(TypeOf(blocks, "output_norm.weight", Role::kNorm, false, 4096, true, Type::kF32), Type::kF32);
  EXPECT_EQ(TypeOf(floats, "output_norm.weight", Role::kNorm, false, 4096, true, Type::kF32), Type::kF16);
  EXPECT_EQ(TypeOf(floats, "output.weight", Role::kHead), Type::kQ8_0);
}

TEST(Recipe, RowsThatAreNoWholeBlocksFallBack) {
  const Recipe stated = Must("* = q4_k\n"), own = Must("fallback = q5_0, f32\n* = q4_k\n");
  struct Case {
    uint64_t columns;
    Type stated, own;
  };
  for (const Case& c : {Case{256, Type::kQ4_K, Type::kQ4_K}, Case{255, Type::kF16, Type::kF32},
                        Case{128, Type::kQ8_0, Type::kQ5_0}, Case{288, Type::kQ8_0, Type::kQ5_0},
                        Case{16, Type::kF16, Type::kF32}, Case{4, Type::kF16, Type::kF32}}) {
    EXPECT_EQ(TypeOf(stated, "blk.0.ssm_f_b.weight", Role::kKda, false, c.columns), c.stated) << c.columns;
    EXPECT_EQ(TypeOf(own, "blk.0.ssm_f_b.weight", Role::kKda, false, c.columns), c.own) << c.columns;
  }
}

TEST(Recipe, Patterns) {
  struct Case {
    const char *pattern, *name;
    bool matches;
  };
  for (const Case& c : {Case{"*", "", true},
                        Case{"", "a", false},
                        Case{"a?c", "abc", true},
                        Case{"a?c", "ac", false},
                        Case{"a*c", "ac", true},
                        Case{"a*c", "abcabc", true},
                        Case{"a*c", "abcab", false},
                        Case{"blk.{0-2}.x", "blk.2.x", true},
                        Case{"blk.{0-2}.x", "blk.3.x", false},
                        Case{"blk.{0-2}.x", "blk.12.x", false},
                        Case{"blk.{0-2,7,10-12}.x", "blk.11.x", true},
                        Case{"blk.{0-2,7,10-12}.x", "blk.7.x", true},
                        Case{"blk.{0-2,7}.x", "blk.77.x", false},
                        Case{"{a,ab}c", "abc", true},
                        Case{"{ab,a}bc", "abc", true},
                        Case{"x.{up,down}", "x.down", true},
                        Case{"x.{up,down}", "x.dow", false},
                        Case{"**b", "aab", true},
                        Case{"a.b", "axb", false},
                        Case{"*{1-3}*", "blk.2.x", true},
                        Case{"*{7-9}*", "blk.2.x", false}}) {
    EXPECT_EQ(MatchesPattern(c.pattern, c.name), c.matches) << c.pattern << " and " << c.name;
  }
}

// Backtracking would try more ways than there are atoms: that this test ends is what it tests.
TEST(Recipe, NoPatternTakesForEver) {
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "*{a,aa}";
  EXPECT_FALSE(MatchesPattern(pattern + "b", std::string(255, 'a')));
}

TEST(Recipe, AByteOrderMarkIsNoPartOfTheFirstRule) {
  const auto recipe = Recipe::Read("\xef\xbb\xbf* = q4_k\n", "r");
  ASSERT_TRUE(recipe.ok()) << recipe.status().message();
  EXPECT_EQ(recipe->TypeFor(RecipeSubject{"a", Role::kOther, false, false, 256, Type::kF32}), Type::kQ4_K);
}

TEST(Recipe, RulesThatComeToNothingAreTold) {
  const auto recipe = Recipe::Read("a* = q4_k\n\nab = q8_0\nz = q8_0\n* = q6_k\n", "r");
  ASSERT_TRUE(recipe.ok());
  Recipe::Use use(*recipe);
  for (const char* name : {"ab", "ac", "b"})
    use.Add(RecipeSubject{name, Role::kOther, false, false, 256, Type::kF32});
  EXPECT_EQ(use.Idle(), (std::vector<std::string>{
                            "r: line 3: 'ab = q8_0' decides nothing: rules above it match all of its tensors",
                            "r: line 4: 'z = q8_0' matches no tensor"}));
  EXPECT_TRUE(Recipe::Use(*Recipe::Parse("ds4")).Idle().empty());
}

TEST(Recipe, ErrorsSayLineAndRemedy) {
  struct Case {
    const char *text, *message;
  };
  for (const Case& c :
       {Case{"", "holds no rule"},
        Case{"# only this\n\n", "holds no rule"},
        Case{"* = q8_0\nnonsense\n", "r: line 2, column 1: 'nonsense' is not 'PATTERN = TYPE'"},
        Case{"\n\n* = q9\n", "r: line 3, column 5: 'q9' is not a type; there are keep, f32"},
        Case{"* =\n", "line 1"},
        Case{" = q8_0\n", "is empty"},
        Case{"role:kdaa = q8_0\n", "there is no role 'kdaa'; there are embedding"},
        Case{"blk.{3.x = q8_0\n", "braces"},
        Case{"blk.3}.x = q8_0\n", "braces"},
        Case{"{{a}} = q8_0\n", "braces"},
        Case{"blk.{7-3}.x = q8_0\n", "no number is in it"},
        Case{"{a,} = q8_0\n", "an empty choice"},
        Case{"two words = q8_0\n", "a space"},
        Case{"rule:kda = q8_0\n", "a colon"},
        Case{"a & = q8_0\n", "is empty"},
        Case{"* = q8_1\n", "'q8_1' is not a type"},
        Case{"fallback = q5_0, nope\n* = q8_0\n", "'nope'"},
        Case{"blk.{-}.x = q8_0\n", "r: line 1, column 5: pattern 'blk.{-}.x': '-' is no range"},
        Case{"* = q8_0\n  blk.{0-99999999999999999999999}.* = q4_k # all\n", "r: line 2, column 7: pattern"},
        Case{"blk.{3-} = q8_0\n", "is no range"},
        Case{"role:kda & role:no = q8_0\n", "column 17: there is no role 'no'"},
        Case{"fallback = q5_0\n* = q8_0\nfallback = f16\n", "line 3, column 1: a second fallback"},
        Case{"fallback = q5_0\n", "holds no rule"}}) {
    const auto recipe = Recipe::Read(c.text, "r");
    ASSERT_FALSE(recipe.ok()) << c.text;
    EXPECT_EQ(recipe.status().code(), Code::kBadInput);
    EXPECT_NE(recipe.status().message().find(c.message), std::string::npos) << recipe.status().message();
  }
  EXPECT_FALSE(Recipe::Read(std::string(1001, '*') + " = q8_0", "r").ok());
}

TEST(Recipe, ATextGivesItselfBack) {
  for (const ShippedRecipe& shipped : ShippedRecipes()) {
    const auto recipe = Recipe::Parse(shipped.name);
    ASSERT_TRUE(recipe.ok()) << recipe.status().message();
    EXPECT_EQ(recipe->text(), shipped.text);
  }
  const Recipe plain = Recipe::Plain(Type::kQ8_0, Type::kQ4_K);
  EXPECT_TRUE(Recipe::Read(plain.text(), "again").ok());
  EXPECT_FALSE(Recipe::Parse("no-such").ok());
}

}  // namespace
}  // namespace glint::model
