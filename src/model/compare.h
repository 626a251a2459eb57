// What differs between two GGUF files of a model: metadata, and weights tensor by tensor.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "glint/status.h"

namespace glint::model {

struct TensorDifference {
  std::string name;
  std::string type_a, type_b;
  uint64_t bytes_a = 0, bytes_b = 0;
  bool same = false;         // type, shape and bytes
  std::string incomparable;  // why the numbers below were not made; empty if they were
  // As quantize reports them, with A as the truth. 0 where A is all zeros and B equals it, infinite where B does not.
  double relative_rms = 0;  // root of (sum of squared differences / sum of A's squares)
  double worst_block = 0;   // root mean square difference of the worst block, by A's root mean square
  uint64_t worst_row = 0, worst_column = 0;  // where that block begins; rows count through all slices
  uint64_t not_numbers = 0;  // weights that are NaN or infinite in one file; they are in no sum
};

struct KeyDifference {
  std::string key, a, b;  // values as text; empty: the file has no such key
};

struct FileComparison {
  uint64_t bytes_a = 0, bytes_b = 0;
  std::vector<TensorDifference> tensors;    // those in both, in A's order
  std::vector<std::string> only_a, only_b;  // names
  std::vector<KeyDifference> keys;          // split.* aside
};

// Paths: any shard of a set. Streams: pages read are given back. The same whatever the threads (0: one a core).
Result<FileComparison> CompareFiles(const std::string& a, const std::string& b, int threads,
                                    const Progress& progress);

}  // namespace glint::model
