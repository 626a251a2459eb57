#include "cli/recipe_option.h"

#include <fmt/core.h>

#include "base/file.h"
#include "base/printable.h"

namespace glint::cli {

Result<model::Recipe> ReadRecipe(const std::string& name) {
  for (const model::ShippedRecipe& shipped : model::ShippedRecipes())
    if (shipped.name == name) return model::Recipe::Read(shipped.text, shipped.name);
  constexpr uint64_t kLongest = uint64_t{1} << 20;
  const auto text = ReadFile(name, kLongest);
  if (text.ok()) return model::Recipe::Read(*text, Printable(name));
  if (text.status().code() != Code::kNotFound) return text.status();
  std::string names;
  for (const model::ShippedRecipe& shipped : model::ShippedRecipes())
    names += (names.empty() ? "" : ", ") + std::string(shipped.name);
  return Status(Code::kNotFound, fmt::format("{}; nor is it the name of a recipe that comes with glint: {}",
                                             text.status().message(), names));
}

}  // namespace glint::cli
