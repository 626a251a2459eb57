#include "cli/files.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "gguf/gguf.h"
#include "model/glm_flash/recipe.h"

namespace glint::cli {
namespace {

// All files that reading this path may read.
void Expand(const std::string& path, std::vector<std::string>& out) {
  if (path == "-") return;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      // Of a checkpoint; what else lies there is not read, so a file made earlier may be made again.
      const std::string name = entry->path().string();
      if (name.ends_with(".safetensors") || name.ends_with(".json") || name.ends_with(".jinja"))
        out.push_back(name);
    }
    return;
  }
  const auto parts = gguf::SplitPaths(path);
  if (parts.ok()) out.insert(out.end(), parts->begin(), parts->end());
  out.push_back(path);
}

}  // namespace

void CommandFiles::ReadsAll(std::function<std::vector<std::string>()> paths) {
  reads_.push_back(std::move(paths));
}

void CommandFiles::Reads(const std::string* path) {
  ReadsAll([path] { return std::vector{*path}; });
}

void CommandFiles::Reads(const Text* path) {
  ReadsAll([path] { return *path ? std::vector{**path} : std::vector<std::string>(); });
}

void CommandFiles::ReadsIds(const Text* list) {
  ReadsAll([list]() -> std::vector<std::string> {
    if (!*list || !(*list)->starts_with('@')) return {};
    return {(*list)->substr(1)};
  });
}

void CommandFiles::ReadsRecipe(const Text* name) {
  ReadsAll([name]() -> std::vector<std::string> {
    const auto& shipped = model::ShippedRecipes();
    const auto is = [&](const model::ShippedRecipe& recipe) { return recipe.name == **name; };
    if (!*name || std::any_of(shipped.begin(), shipped.end(), is)) return {};
    return {**name};
  });
}

void CommandFiles::Writes(const std::string* path, const bool* force, Form form) {
  writes_.push_back({[path] { return path; }, force, form});
}

void CommandFiles::Writes(const Text* path, const bool* force, Form form) {
  writes_.push_back({[path] { return *path ? &**path : nullptr; }, force, form});
}

std::vector<std::string> CommandFiles::Inputs() const {
  std::vector<std::string> out;
  for (const auto& read : reads_)
    for (const std::string& path : read()) Expand(path, out);
  return out;
}

std::vector<std::string> CommandFiles::Outputs() const {
  std::vector<std::string> out;
  for (const Output& output : writes_)
    if (const std::string* path = output.path(); path != nullptr && output.form != Form::kSet)
      out.push_back(*path);
  return out;
}

Status CommandFiles::CheckNames() const {
  for (const auto& read : reads_)
    for (const std::string& path : read())
      if (path.empty()) return {Code::kBadInput, "\"\": names no file"};
  for (const Output& output : writes_) {
    const std::string* const path = output.path();
    if (path == nullptr) continue;
    if (Status s = CheckNamesFile(*path); !s.ok()) return s;
  }
  return {};
}

Status CommandFiles::Check() const {
  const std::vector<std::string> inputs = Inputs();
  std::vector<std::string> before;
  for (const Output& output : writes_) {
    const std::string* const path = output.path();
    if (path == nullptr) continue;
    if (Status s = CheckNotInput(*path, inputs); !s.ok()) return s;
    if (Status s = CheckNotOutput(*path, before); !s.ok()) return s;
    before.push_back(*path);
    if (output.form != Form::kFile) continue;
    // Made and taken back: shows now, not after hours, what would be in the way.
    const auto file = AtomicFile::Create(*path, inputs, 0666, *output.force);
    if (!file.ok()) return file.status();
  }
  return {};
}

}  // namespace glint::cli
