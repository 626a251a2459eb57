#include "cli/version.h"

#include "cli/commit_of_build.h"  // made by the build (cmake/commit.cmake)

namespace glint::cli {
namespace {

std::string Compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#else
  return std::string("g++ ") + __VERSION__;
#endif
}

}  // namespace

Build ThisBuild() {
#ifdef GLINT_WITH_CUDA
  constexpr const char* kBackends = "cpu, cuda";
#else
  constexpr const char* kBackends = "cpu";
#endif
  return {.version = GLINT_VERSION, .commit = GLINT_COMMIT, .compiler = Compiler(), .backends = kBackends};
}

std::string VersionText() {
  const Build build = ThisBuild();
  return "glint " + build.version + " (backends: " + build.backends + ")";
}

}  // namespace glint::cli
