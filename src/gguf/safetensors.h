// safetensors files, one or a sharded set with an index, mapped and checked.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "glint/status.h"

namespace glint::gguf {

struct SafeTensor {
  std::string name;
  std::string dtype;            // "F32", "F16", "BF16", "F8_E4M3", "I32", ... as in the file
  std::vector<uint64_t> shape;  // slowest first
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // absolute in its file
  int file = 0;
};

// Data lies in the file and overlaps no other; for the format's own dtypes it has the size that the shape
// wants. It may lie at any byte: read it through copies. Errors: "FILE: tensor 'NAME': what (offset)".
class SafeTensors {
 public:
  // One file.
  static Result<SafeTensors> OpenFile(const std::string& path);
  // DIR/model.safetensors, or else DIR/model.safetensors.index.json with its shards: each tensor named must
  // be in the file that the index says, each tensor there must be named, and shards lie in the same
  // directory.
  static Result<SafeTensors> OpenDirectory(const std::string& directory);

  const std::vector<SafeTensor>& tensors() const { return tensors_; }
  const SafeTensor* Find(std::string_view name) const;
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  Status Add(const std::string& path);
  std::vector<std::string> paths_;
  std::vector<MappedFile> files_;
  std::vector<SafeTensor> tensors_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace glint::gguf
