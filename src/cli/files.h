// The files that a command reads and writes, looked at before its work: no output takes the place of another of them.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "glint/status.h"

namespace glint::cli {

// Filled while a command is declared, with places that parsing fills; these outlive it.
class CommandFiles {
 public:
  using Text = std::optional<std::string>;

  // A file, a split set (by any part), or a checkpoint's directory and its files; "-" is none.
  void Reads(const std::string* path);
  void Reads(const Text* path);
  void ReadsIds(const Text* list);     // "@FILE", or ids that are in no file
  void ReadsRecipe(const Text* name);  // a file, or the name of one that comes with glint
  // What is known only once everything is parsed.
  void ReadsAll(std::function<std::vector<std::string>()> paths);

  enum class Form {
    kFile,  // one file; may be tried out before the work
    kSet,  // a name that parts, a journal and the like derive theirs from: gguf::Writer::WriteSet looks at these
    kSession,  // read and written; Session::Save looks at what it replaces
  };
  // `force`: whether a file that is there may be replaced.
  void Writes(const std::string* path, const bool* force, Form form = Form::kFile);
  void Writes(const Text* path, const bool* force, Form form = Form::kFile);

  // kBadInput for a name that no file can have, whatever lies on the disk: a wrong command line.
  Status CheckNames() const;
  // kBadInput for an output that is an input or another output, or one that is there and may not be replaced; kNotFound and kIo
  // for a place that can't be written to. Files are told apart by device and inode.
  Status Check() const;
  // Everything that is read; and everything written, but for sets.
  std::vector<std::string> Inputs() const;
  std::vector<std::string> Outputs() const;

 private:
  struct Output {
    std::function<const std::string*()> path;  // null: not wanted
    const bool* force;
    Form form;
  };
  std::vector<std::function<std::vector<std::string>()>> reads_;
  std::vector<Output> writes_;
};

}  // namespace glint::cli
