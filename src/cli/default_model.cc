#include "cli/default_model.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>

namespace glint::cli {

Result<std::string> DefaultModel() {
  const char* named = std::getenv("GLINT_MODEL");
  if (named && *named) return std::string(named);

  std::error_code error;
  // Installed first: a program that was installed does not depend on the tree that it was built in.
  const auto binary = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string installed = (binary.parent_path() / GLINT_INSTALLED_MODELS / "stories" / "stories.gguf")
                                    .lexically_normal()
                                    .string();
  if (!error && std::filesystem::exists(installed, error)) return installed;
  const std::string in_source = GLINT_SOURCE_MODELS "/stories/stories.gguf";
  if (std::filesystem::exists(in_source, error)) return in_source;
  return Status(
      Code::kNotFound,
      fmt::format("no model given and the embedded one is neither {} nor {}; name one with -m FILE or "
                  "the environment variable GLINT_MODEL",
                  in_source, installed));
}

}  // namespace glint::cli
