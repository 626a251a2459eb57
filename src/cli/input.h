// What a command works on: an argument, a file, or stdin; text or token ids.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "glint/status.h"

namespace glint::cli {

// All of stdin. kBadInput beyond 1 GiB, or "interrupted".
Result<std::string> ReadStdin();

// The argument, or the file ("-" is stdin), or stdin if it is not a terminal. `what` names the missing thing in the error.
Result<std::string> ReadText(const std::optional<std::string>& argument,
                             const std::optional<std::string>& file, std::string_view what);

// "1,2,3" (commas or white space between), or "@FILE" for a file of the same form. The error names the first entry that is no id.
Result<std::vector<int32_t>> ParseIds(const std::string& text);

// What is wrong with a list that is spelled out, which has at least `fewest` entries; what an @FILE holds shows when it is read.
Status CheckIds(const std::string& list, size_t fewest);
// Adds --ids, checked while parsing.
void DeclareIds(Options& options, std::optional<std::string>* list, const std::string& help,
                size_t fewest = 1);

}  // namespace glint::cli
