// A float matrix as a NumPy file (format 1.0, little endian, C order) that appears whole or not at all.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "glint/status.h"

namespace glint::cli {

class NpyWriter {
 public:
  // `inputs`: files that must not be overwritten; `replace`: false refuses any file that is there.
  static Result<NpyWriter> Create(const std::string& path, uint64_t rows, uint64_t columns,
                                  std::span<const std::string> inputs = {}, bool replace = true);
  Status Append(std::span<const float> values);  // row after row, cut anywhere
  Status Commit();                               // kInternal unless exactly rows * columns values came

 private:
  NpyWriter(AtomicFile file, uint64_t values) : file_(std::move(file)), missing_(values) {}
  AtomicFile file_;
  uint64_t missing_;
};

}  // namespace glint::cli
