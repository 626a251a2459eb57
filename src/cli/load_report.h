// What `glint bench-serve` says of its loads.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cli/json_writer.h"
#include "serve/load.h"

namespace glint::cli {

struct LoadRun {
  std::string name;  // "8 users" or "2.5 a second"
  serve::LoadOptions options;
  serve::LoadResult result;
};

// Answers of all runs by what became of them.
struct LoadSums {
  size_t whole = 0, left = 0, failed = 0,
         refused = 0;  // refused: of failed, 429 and 503, as a server under too much load should say
  size_t checked = 0, other = 0;
};
LoadSums Sum(const std::vector<LoadRun>& runs);

// A row a run; then what went wrong, by kind, and the first answers that differ.
std::string LoadTable(const std::vector<LoadRun>& runs, std::string_view server);
std::string LoadJson(const std::vector<LoadRun>& runs, std::string_view server);

}  // namespace glint::cli
