// The arms of `glint bench`: what is compared, as given on the command line.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cli/model_options.h"

namespace glint::cli {

// What may differ between arms: model, levers, threads, and how a prompt is handed over.
struct ArmChoice {
  std::string name, flags;  // flags: as given, for reports
  ModelChoice model;
  std::optional<int64_t> chunk;
  std::optional<double> slow;
  bool check = false;

  // Adds the options of a model and --chunk, --slow, --check.
  void Declare(Options& options);
};

// "NAME: FLAGS". The flags are split as a shell would (SplitWords) and read by the same code as the command's own; what they leave
// open is as in `common`: a model or threads of the arm's own take its place, levers add to its levers. kBadInput names the arm.
Result<ArmChoice> ParseArm(const std::string& text, const ArmChoice& common);

// All of them; kBadInput if two have one name. No `texts`: one arm, `common`.
Result<std::vector<ArmChoice>> ParseArms(const std::vector<std::string>& texts, const ArmChoice& common);

// White space parts words, but not between quotes ("..." or '...', which are taken away); a backslash takes the next
// character as it is, except between single quotes. kBadInput for a quote that does not end.
Result<std::vector<std::string>> SplitWords(std::string_view text);

}  // namespace glint::cli
