#include "cli/bench_arms.h"

#include <fmt/core.h>

namespace glint::cli {
namespace {

constexpr double kMostSlow = 1000;  // per cent

std::string Trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

void AddBefore(std::vector<std::string>& list, const std::vector<std::string>& more) {
  list.insert(list.begin(), more.begin(), more.end());
}

}  // namespace

void ArmChoice::Declare(Options& options) {
  model.DeclareSource(options);
  model.DeclareLevers(options);
  options.Value("--chunk", "N", &chunk, 1, INT32_MAX,
                "Prompt tokens given to the model at a time; without it all of a sample");
  options.Value("--slow", "PERCENT", &slow, 0, kMostSlow,
                "To check the instrument: make every call take that much longer");
  options.Flag("--check", &check,
               "Verify every step of a prefill and a decode sample at each depth first, untimed, as `glint "
               "verify` does");
}

Result<std::vector<std::string>> SplitWords(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (quote == 0 && space) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return Status(Code::kBadInput, fmt::format("the quote {} does not end", quote));
  return words;
}

Result<ArmChoice> ParseArm(const std::string& text, const ArmChoice& common) {
  const size_t colon = text.find(':');
  ArmChoice arm;
  arm.name = Trimmed(text.substr(0, colon));
  if (colon == std::string::npos || arm.name.empty()) {
    return Status(Code::kBadInput,
                  fmt::format("--arm '{}': wanted NAME: FLAGS, e.g. --arm \"two: --threads 2\"", text));
  }
  arm.flags = Trimmed(text.substr(colon + 1));
  const auto wrong = [&](const std::string& what) {
    return Status(Code::kBadInput, fmt::format("arm '{}': {}", arm.name, what));
  };
  const auto words = SplitWords(arm.flags);
  if (!words.ok()) return wrong(words.status().message());

  Options options("arm", "The flags of an arm.");
  arm.Declare(options);
  const Options::Parsed parsed = options.Parse(*words);
  if (parsed.kind == Options::Parsed::Kind::kHelp) return wrong("--help is no flag of an arm");
  if (parsed.kind != Options::Parsed::Kind::kRun) return wrong(parsed.text);

  if (!arm.model.path && !arm.model.synthetic) {
    arm.model.path = common.model.path;
    arm.model.synthetic = common.model.synthetic;
  }
  if (!arm.model.device) arm.model.device = common.model.device;
  if (!arm.model.threads) arm.model.threads = common.model.threads;
  if (!arm.chunk) arm.chunk = common.chunk;
  if (!arm.slow) arm.slow = common.slow;
  arm.check = arm.check || common.check;
  AddBefore(arm.model.with, common.model.with);
  AddBefore(arm.model.without, common.model.without);
  return arm;
}

Result<std::vector<ArmChoice>> ParseArms(const std::vector<std::string>& texts, const ArmChoice& common) {
  std::vector<ArmChoice> arms;
  for (const std::string& text : texts) {
    auto arm = ParseArm(text, common);
    if (!arm.ok()) return arm.status();
    for (const ArmChoice& other : arms) {
      if (other.name == arm->name) {
        return Status(Code::kBadInput, fmt::format("two arms have the name '{}'", arm->name));
      }
    }
    arms.push_back(std::move(*arm));
  }
  if (arms.empty()) {
    arms.push_back(common);
    arms.back().name = "glint";
  }
  return arms;
}

}  // namespace glint::cli
