// What main.cc knows of a subcommand: its name, and a function that declares its options and returns its work.
#pragma once
#include <functional>
#include <string_view>

#include "cli/options.h"
#include "glint/status.h"

namespace glint::cli {

// Does the work once the options are parsed. The value is the exit code (0, or 130 after Ctrl-C); a failed Status is printed
// by main.cc and exits with 1. A Status with an empty message means that stdout was closed by its reader: nothing to say.
// Options outlives it.
using Work = std::function<Result<int>()>;

struct Subcommand {
  std::string_view name, summary;
  Work (*declare)(Options& options);
};

Work DeclareRun(Options& options);
Work DeclareChat(Options& options);
Work DeclareServe(Options& options);
Work DeclareConvert(Options& options);
Work DeclareQuantize(Options& options);
Work DeclareMerge(Options& options);
Work DeclareSplit(Options& options);
Work DeclarePerplexity(Options& options);
Work DeclareImatrix(Options& options);
Work DeclareCompare(Options& options);
Work DeclareInspect(Options& options);
Work DeclareTokenize(Options& options);
Work DeclareDetokenize(Options& options);
Work DeclareLogits(Options& options);
Work DeclarePlan(Options& options);
Work DeclareBench(Options& options);
Work DeclareBenchServe(Options& options);
Work DeclareVerify(Options& options);
Work DeclareProfile(Options& options);

}  // namespace glint::cli
