// The options that every command with a model shares, and the opening of that model.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "glint/model.h"

namespace glint::cli {

struct ModelChoice {
  std::optional<std::string> path, synthetic, device;
  std::optional<int64_t> threads;
  std::vector<std::string> with, without;

  // Adds -m and --synthetic. The latter's words are checked while parsing, and so are the environment's levers.
  void DeclareSource(Options& options);
  // Adds --device, --threads, --with, --without. Lever names are checked while parsing.
  void DeclareLevers(Options& options);

  // The file or directory named, or the default model.
  Result<std::string> Path() const;
  // What Open() opens, for messages: the path, or the synthetic model's description.
  std::string Source() const;
  // Threads and levers.
  ModelOptions Settings() const;
  // Of commands that have no use for a GPU: to ask for one is a wrong command line.
  void CpuOnly(Options& options);
  // With a progress bar. Errors begin with the path. mtp_if_any: with the MTP block, if the model has one. notes: what is worth knowing
  // of the model goes to stderr. `also` is told of the progress too.
  Result<Model> Open(bool mtp_if_any = false, bool notes = true,
                     const std::function<void(uint64_t done, uint64_t total)>& also = {}) const;
};

// Names in $GLINT_WITH and $GLINT_WITHOUT that no lever has: as wrong as in the options that these stand for.
Status CheckLeverEnvironment();

// "a,b" and "c" given separately -> a, b, c.
std::vector<std::string> SplitNames(const std::vector<std::string>& given);

}  // namespace glint::cli
