// What `glint --version` prints.
#pragma once
#include <string>

namespace glint::cli {

// Version and the backends compiled in, e.g. "glint 0.1.0 (backends: cpu, cuda)". One line, without a
// newline.
std::string VersionText();

}  // namespace glint::cli
