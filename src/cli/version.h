// What was built: for `glint --version`, and for results that must say what they were made with.
#pragma once
#include <string>

namespace glint::cli {

struct Build {
  std::string version;  // "0.1.0"
  std::string
      commit;  // 12 digits, "-dirty" after them if files differed from it; "unknown" outside a git checkout
  std::string compiler;  // "g++ 12.2.0"
  std::string backends;  // compiled in, e.g. "cpu, cuda"
};

Build ThisBuild();

// Version and the backends compiled in, e.g. "glint 0.1.0 (backends: cpu, cuda)". One line, without a
// newline.
std::string VersionText();

}  // namespace glint::cli
