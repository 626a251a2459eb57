#include "cli/version.h"

namespace glint::cli {

std::string VersionText() {
#ifdef GLINT_WITH_CUDA
  constexpr const char* kBackends = "cpu, cuda";
#else
  constexpr const char* kBackends = "cpu";
#endif
  return std::string("glint ") + GLINT_VERSION + " (backends: " + kBackends + ")";
}

}  // namespace glint::cli
