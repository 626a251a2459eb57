// Which weight format each tensor of a model gets: for quantize, convert, synthetic models and the census.
//
// A recipe is a text, one rule a line; the first rule that matches a tensor decides:
//
//   # comment
//   vectors = keep                          norms, biases, convolutions: what is computed with as floats
//   role:router = keep
//   role:mtp & role:experts = q4_k          all conditions of a line must hold
//   blk.{0-2,45}.ffn_down_exps = q6_k       names as glint inspect shows them, ".weight" may be left out;
//   * = iq2_s                               * any text, ? any character, {a,b} one of them, {3-7} a number
//   fallback = q5_0, f16                    for rows that are no whole number of blocks; without it q8_0, f16
//
// `keep` leaves the type as it is (f32 where there is none yet: conversion, synthetic weights), and so does matching no rule.
// Vectors take float types only: a rule with a block type leaves them as they are.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"
#include "model/census.h"
#include "model/glm_flash/tensors.h"
#include "quant/format.h"

namespace glint::model {

// What a rule can ask of a tensor.
struct RecipeSubject {
  std::string_view name;  // dialect A
  Role role = Role::kOther;
  bool mtp = false;  // of the MTP block
  bool vector = false;
  uint64_t columns = 1;                     // of a row
  quant::Type present = quant::Type::kF32;  // its type now
};

class Recipe {
 public:
  // `where` names the text in messages ("my.recipe: line 3, column 5: ...", in bytes from 1).
  static Result<Recipe> Read(std::string_view text, std::string_view where);

  // A shipped recipe (ShippedRecipes) or the name of a format, which stands for Plain of it; kBadInput for another name, with
  // the list.
  static Result<Recipe> Parse(std::string_view name);

  // Weight matrices of `type`, routed experts of `experts`. What stays as it is: vectors, routers and the indexer's head
  // weights; hc fn stays beside float types and becomes Q8_0 beside quantised ones.
  static Recipe Plain(quant::Type type, quant::Type experts);

  // The type that the first matching rule asks for, and what it comes to where rows are no whole number of blocks.
  quant::Type Wanted(const RecipeSubject& subject) const;
  quant::Type TypeFor(const RecipeSubject& subject) const;

  // The same for a tensor that has no type yet. mtp_block: hp.layers.
  quant::Type Wanted(const Tensor& tensor, int64_t mtp_block) const;
  quant::Type TypeFor(const Tensor& tensor, int64_t mtp_block) const;

  const std::string& text() const { return text_; }  // Read gives an equal recipe back

  // Rules that come to nothing, of a model whose tensors are all told to it.
  class Use {
   public:
    explicit Use(const Recipe& recipe)
        : recipe_(recipe), matched_(recipe.rules_.size()), decided_(matched_) {}
    void Add(const RecipeSubject& subject);
    void Add(const Tensor& tensor, int64_t mtp_block);
    // "my.recipe: line 3: 'blk.99.* = q4_k' matches no tensor", and of those that come too late. None of Parse's and Plain's
    // recipes, which are for any model.
    std::vector<std::string> Idle() const;

   private:
    const Recipe& recipe_;
    std::vector<bool> matched_, decided_;
  };

 private:
  struct Rule {
    std::vector<std::string> patterns;  // of names
    std::vector<Role> roles;
    bool vectors = false;
    std::optional<quant::Type> type;  // none: keep
    int line = 0;
    std::string text;
  };
  static bool Matches(const Rule& rule, const RecipeSubject& subject);
  struct Flaw {
    Status status;
    const char* at = nullptr;  // in the line, where it shows
  };
  Flaw AddLine(std::string_view line, int number);
  static Flaw AddCondition(std::string_view condition, Rule& rule);

  std::string text_, where_;
  bool has_fallback_ = false;
  bool general_ = false;  // made for any model: rules that match nothing are no mistake
  std::vector<Rule> rules_;
  std::vector<quant::Type> fallback_{quant::Type::kQ8_0, quant::Type::kF16};
};

struct ShippedRecipe {
  std::string_view name, summary, text;
};
// ds4, q8_0-q4_k, q8_0-iq3_xxs, q4_k, ud-iq3_xxs (A to E of spec/budget.md section 2) and q4_k_m.
const std::vector<ShippedRecipe>& ShippedRecipes();

// Whether `text` matches a pattern of names as above. Time: the product of both lengths at most.
bool MatchesPattern(std::string_view pattern, std::string_view text);

// Bytes of a tensor of a known type whose rows are whole blocks.
uint64_t TensorBytes(const Tensor& tensor, quant::Type type);

}  // namespace glint::model
