#include "cli/recipe_option.h"

#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/printable.h"

namespace glint::cli {

namespace {

// A file, or a pipe or device: <(command).
Result<std::string> ReadStream(const std::string& path, uint64_t limit) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind != std::filesystem::file_type::fifo && kind != std::filesystem::file_type::character)
    return ReadFile(path, limit);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "re"), std::fclose);
  if (stream == nullptr) return SystemError(path, "cannot be opened");
  std::string text(static_cast<size_t>(limit) + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stream.get()));
  if (std::ferror(stream.get()) != 0) return SystemError(path, "cannot be read");
  if (text.size() > limit)
    return Status(Code::kBadFile,
                  fmt::format("{}: more than the {} bytes that are read", Printable(path), limit));
  return text;
}

}  // namespace

Result<model::Recipe> ReadRecipe(const std::string& name) {
  for (const model::ShippedRecipe& shipped : model::ShippedRecipes())
    if (shipped.name == name) return model::Recipe::Parse(shipped.name);
  constexpr uint64_t kLongest = uint64_t{1} << 20;
  const auto text = ReadStream(name, kLongest);
  if (text.ok()) return model::Recipe::Read(*text, Printable(name));
  if (text.status().code() != Code::kNotFound) return text.status();
  std::string names;
  for (const model::ShippedRecipe& shipped : model::ShippedRecipes())
    names += (names.empty() ? "" : ", ") + std::string(shipped.name);
  return Status(Code::kNotFound, fmt::format("{}; nor is it the name of a recipe that comes with glint: {}",
                                             text.status().message(), names));
}

}  // namespace glint::cli
