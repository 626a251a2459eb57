#include "model/glm_flash/recipe.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"

namespace glint::model {
namespace {

using quant::Type;

constexpr size_t kLongestPattern = 1000;

constexpr std::string_view kWeight = ".weight";

bool IsFloat(Type type) { return type == Type::kF32 || type == Type::kF16 || type == Type::kBF16; }

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// The parts between separators, trimmed; one empty part for an empty text.
std::vector<std::string_view> Parts(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(Trim(text.substr(begin, end - begin)));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

uint32_t Number(std::string_view digits) {
  uint32_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// "3-7" of a pattern's braces.
struct Range {
  uint32_t low = 0, high = 0;
};
std::optional<Range> AsRange(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view low = text.substr(0, dash), high = text.substr(dash + 1);
  if (!IsNumber(low) || !IsNumber(high)) return std::nullopt;
  return Range{Number(low), Number(high)};
}

// Tries each place of the pattern at each place of the text once: no pattern takes long.
class Matcher {
 public:
  Matcher(std::string_view pattern, std::string_view text)
      : pattern_(pattern), text_(text), failed_((pattern.size() + 1) * (text.size() + 1)) {}

  bool From(size_t p, size_t t) {
    if (failed_[p * (text_.size() + 1) + t]) return false;
    const bool matches = Try(p, t);
    if (!matches) failed_[p * (text_.size() + 1) + t] = true;
    return matches;
  }

 private:
  bool Try(size_t p, size_t t) {
    if (p == pattern_.size()) return t == text_.size();
    switch (pattern_[p]) {
      case '*':
        return From(p + 1, t) || (t < text_.size() && From(p, t + 1));
      case '?':
        return t < text_.size() && From(p + 1, t + 1);
      case '{': {
        const size_t close = pattern_.find('}', p);
        if (close == std::string_view::npos) return false;
        for (const std::string_view choice : Parts(pattern_.substr(p + 1, close - p - 1), ',')) {
          const size_t length = Length(choice, t);
          if (length != std::string_view::npos && From(close + 1, t + length)) return true;
        }
        return false;
      }
      default:
        return t < text_.size() && text_[t] == pattern_[p] && From(p + 1, t + 1);
    }
  }

  // How much of the text at `t` a choice of the braces takes; npos: it is not there.
  size_t Length(std::string_view choice, size_t t) const {
    const auto range = AsRange(choice);
    if (!range) return text_.substr(t).starts_with(choice) ? choice.size() : std::string_view::npos;
    const size_t end = std::min(text_.find_first_not_of("0123456789", t), text_.size());
    const std::string_view digits = text_.substr(t, end - t);
    if (!IsNumber(digits)) return std::string_view::npos;
    const uint32_t value = Number(digits);
    return value >= range->low && value <= range->high ? digits.size() : std::string_view::npos;
  }

  std::string_view pattern_, text_;
  std::vector<bool> failed_;
};

// A choice that is meant as a range and is none: names hold no such text.
bool IsBrokenRange(std::string_view choice) {
  return choice.find('-') != std::string_view::npos &&
         choice.find_first_not_of("0123456789- \t") == std::string_view::npos && !AsRange(choice);
}

// `at`: where it shows what is wrong.
Status CheckPattern(std::string_view pattern, size_t& at) {
  const auto bad = [&](std::string_view what) {
    return Status(Code::kBadInput, fmt::format("pattern {}: {}", Quoted(pattern), what));
  };
  at = 0;
  if (pattern.empty()) return bad("is empty");
  if (pattern.size() > kLongestPattern) return bad(fmt::format("has over {} characters", kLongestPattern));
  at = pattern.find_first_of(" \t=:");
  if (at != std::string_view::npos)
    return bad("holds a space, a colon or an equals sign, as no tensor's name does");
  for (at = 0; (at = pattern.find_first_of("{}", at)) != std::string_view::npos;) {
    const size_t close = pattern.find_first_of("{}", at + 1);
    if (pattern[at] == '}' || close == std::string_view::npos || pattern[close] == '{')
      return bad("braces must come in pairs, none inside another");
    for (const std::string_view choice : Parts(pattern.substr(at + 1, close - at - 1), ',')) {
      const auto range = AsRange(choice);
      if (choice.empty()) return bad("an empty choice in braces");
      if (IsBrokenRange(choice))
        return bad(
            fmt::format("{} is no range of whole numbers such as 3-7, of 9 digits at most", Quoted(choice)));
      if (range && range->low > range->high) return bad(fmt::format("{}: no number is in it", choice));
    }
    at = close + 1;
  }
  return {};
}

std::string RoleNames() {
  std::string names;
  for (int i = 0; i < static_cast<int>(Role::kCount); ++i)
    names += (i == 0 ? "" : ", ") + std::string(RuleName(static_cast<Role>(i)));
  return names;
}

RecipeSubject SubjectOf(const Tensor& tensor, std::string_view name, int64_t mtp_block) {
  return {name,
          tensor.kind->role,
          tensor.block == mtp_block,
          tensor.kind->vector != nullptr,
          static_cast<uint64_t>(tensor.kind->dims == 1 ? tensor.shape.count() : tensor.shape.columns),
          Type::kF32};
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view text) {
  return Matcher(pattern, text).From(0, 0);
}

Result<Recipe> Recipe::Read(std::string_view text, std::string_view where) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // some editors put it first
  Recipe recipe;
  recipe.text_ = text;
  recipe.where_ = where;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  int number = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view whole = text.substr(begin, end - begin);
    ++number;
    begin = end + 1;
    const std::string_view line = Trim(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    const Flaw flaw = recipe.AddLine(line, number);
    if (flaw.status.ok()) continue;
    return Status(flaw.status.code(), fmt::format("{}: line {}, column {}: {}", where, number,
                                                  flaw.at - whole.data() + 1, flaw.status.message()));
  }
  if (recipe.rules_.empty())
    return Status(Code::kBadInput,
                  fmt::format("{}: holds no rule such as 'role:experts = q4_k' or '* = q8_0'", where));
  return recipe;
}

Recipe::Flaw Recipe::AddLine(std::string_view line, int number) {
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos)
    return {{Code::kBadInput, fmt::format("{} is not 'PATTERN = TYPE'", Quoted(line))}, line.data()};
  const std::string_view left = Trim(line.substr(0, equals)), right = Trim(line.substr(equals + 1));
  const auto type_of = [&](std::string_view name) -> Result<Type> {
    const quant::Format* format = quant::Find(name);
    if (format != nullptr && format->runnable()) return format->type;
    return Status(Code::kBadInput,
                  fmt::format("{} is not a type; there are keep, {}", Quoted(name), quant::RunnableNames()));
  };
  // Of an empty part: the place after the equals sign.
  const auto place = [&](std::string_view part) {
    return part.data() != nullptr ? part.data() : line.data() + equals + 1;
  };
  if (left == "fallback") {
    if (has_fallback_)
      return {{Code::kBadInput, "a second fallback line; one line lists all types"}, line.data()};
    has_fallback_ = true;
    fallback_.clear();
    for (const std::string_view name : Parts(right, ',')) {
      const auto type = type_of(name);
      if (!type.ok()) return {type.status(), place(name)};
      fallback_.push_back(*type);
    }
    return {};
  }
  Rule rule;
  rule.line = number;
  rule.text = line;
  for (const std::string_view condition : Parts(left, '&')) {
    Flaw flaw = AddCondition(condition, rule);
    if (flaw.at == nullptr) flaw.at = line.data();
    if (!flaw.status.ok()) return flaw;
  }
  if (right != "keep") {
    const auto type = type_of(right);
    if (!type.ok()) return {type.status(), place(right)};
    rule.type = *type;
  }
  rules_.push_back(std::move(rule));
  return {};
}

Recipe::Flaw Recipe::AddCondition(std::string_view condition, Rule& rule) {
  constexpr std::string_view kRole = "role:";
  if (condition == "vectors") {
    rule.vectors = true;
    return {};
  }
  if (condition.starts_with(kRole)) {
    const std::string_view name = Trim(condition.substr(kRole.size()));
    for (int i = 0; i < static_cast<int>(Role::kCount); ++i) {
      if (RuleName(static_cast<Role>(i)) != name) continue;
      rule.roles.push_back(static_cast<Role>(i));
      return {};
    }
    return {{Code::kBadInput, fmt::format("there is no role {}; there are {}", Quoted(name), RoleNames())},
            condition.data() + kRole.size()};
  }
  rule.patterns.emplace_back(condition);
  size_t at = 0;
  Status status = CheckPattern(condition, at);
  if (status.ok()) return {};  // `at` is of the flaw, and there is none
  return {std::move(status), condition.data() != nullptr ? condition.data() + at : nullptr};
}

void Recipe::Use::Add(const RecipeSubject& subject) {
  bool first = true;
  for (size_t i = 0; i < matched_.size(); ++i) {
    if (!Matches(recipe_.rules_[i], subject)) continue;
    matched_[i] = true;
    if (first) decided_[i] = true;
    first = false;
  }
}

void Recipe::Use::Add(const Tensor& tensor, int64_t mtp_block) {
  const std::string name = tensor.Name();
  Add(SubjectOf(tensor, name, mtp_block));
}

std::vector<std::string> Recipe::Use::Idle() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < matched_.size(); ++i) {
    if (decided_[i] || recipe_.general_) continue;
    const Rule& rule = recipe_.rules_[i];
    out.push_back(fmt::format(
        "{}: line {}: {} {}", recipe_.where_, rule.line, Quoted(rule.text),
        matched_[i] ? "decides nothing: rules above it match all of its tensors" : "matches no tensor"));
  }
  return out;
}

bool Recipe::Matches(const Rule& rule, const RecipeSubject& subject) {
  if (rule.vectors && !subject.vector) return false;
  for (const Role role : rule.roles) {
    if (role == Role::kMtp ? !subject.mtp : subject.role != role) return false;
  }
  const std::string_view whole = subject.name;
  return std::all_of(rule.patterns.begin(), rule.patterns.end(), [&](const std::string& pattern) {
    return MatchesPattern(pattern, whole) ||
           (whole.ends_with(kWeight) &&
            MatchesPattern(pattern, whole.substr(0, whole.size() - kWeight.size())));
  });
}

Result<Recipe> Recipe::Parse(std::string_view name) {
  std::string names;
  for (const ShippedRecipe& shipped : ShippedRecipes()) {
    if (shipped.name == name) {
      auto recipe = Read(shipped.text, shipped.name);
      if (recipe.ok()) recipe->general_ = true;
      return recipe;
    }
    names += std::string(shipped.name) + ", ";
  }
  const quant::Format* format = quant::Find(name);
  if (format != nullptr && format->runnable()) return Plain(format->type, format->type);
  return Status(Code::kBadInput, fmt::format("unknown recipe \"{}\"; there are {}and the names of types: {}",
                                             name, names, quant::RunnableNames()));
}

Recipe Recipe::Plain(Type type, Type experts) {
  const std::string text = fmt::format(
      "vectors = keep\n*.ffn_gate_inp = keep\n*.indexer.proj = keep\nrole:hc = {}\nrole:experts = {}\n* = "
      "{}\n",
      IsFloat(type) ? "keep" : "q8_0", quant::Name(experts), quant::Name(type));
  auto recipe = Read(text, quant::Name(type));
  if (!recipe.ok()) return {};  // names of types make good rules
  recipe->general_ = true;
  return std::move(*recipe);
}

Type Recipe::Wanted(const RecipeSubject& subject) const {
  const auto rule = std::find_if(rules_.begin(), rules_.end(),
                                 [&](const Rule& candidate) { return Matches(candidate, subject); });
  if (rule == rules_.end() || !rule->type) return subject.present;
  return subject.vector && !IsFloat(*rule->type) ? subject.present : *rule->type;
}

Type Recipe::TypeFor(const RecipeSubject& subject) const {
  const auto fits = [&](Type type) { return subject.columns % quant::Find(type)->block_weights == 0; };
  const Type wanted = Wanted(subject);
  if (wanted == subject.present || fits(wanted)) return wanted;
  const auto next = std::find_if(fallback_.begin(), fallback_.end(), fits);
  return next != fallback_.end() ? *next : Type::kF16;
}

Type Recipe::Wanted(const Tensor& tensor, int64_t mtp_block) const {
  const std::string name = tensor.Name();
  return Wanted(SubjectOf(tensor, name, mtp_block));
}

Type Recipe::TypeFor(const Tensor& tensor, int64_t mtp_block) const {
  const std::string name = tensor.Name();
  return TypeFor(SubjectOf(tensor, name, mtp_block));
}

uint64_t TensorBytes(const Tensor& tensor, Type type) {
  const quant::Format& format = *quant::Find(type);
  return static_cast<uint64_t>(tensor.shape.count()) / format.block_weights * format.block_bytes;
}

}  // namespace glint::model
