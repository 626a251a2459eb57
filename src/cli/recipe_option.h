// Recipes as options name them.
#pragma once
#include <string>

#include "glint/status.h"
#include "model/glm_flash/recipe.h"

namespace glint::cli {

// A shipped recipe by name, or a file.
Result<model::Recipe> ReadRecipe(const std::string& name);

}  // namespace glint::cli
