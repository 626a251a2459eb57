// Where the model is that commands use when none is named.
#pragma once
#include <string>

#include "glint/status.h"

namespace glint::cli {

// $GLINT_MODEL if set and not empty; else the embedded model: in the source tree this binary was built from, or where
// `cmake --install` puts it (../share/glint/models/stories/stories.gguf seen from the binary). kNotFound names the places looked at.
Result<std::string> DefaultModel();

}  // namespace glint::cli
