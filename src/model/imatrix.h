// Importance matrices: what errors of a model's weights cost, by input channel, measured on a text.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint::model {

// Of one tensor: an error of weight [matrix][row][column] costs in proportion to the mean square of what that column is
// multiplied with.
struct Importance {
  uint64_t columns = 0, matrices = 1;  // matrices: experts or heads of a 3-D tensor, ne[2]
  std::vector<float> mean;    // [matrices][columns]: means of squared activations; finite, not negative
  std::vector<float> counts;  // [matrices]: rows seen; 0: never hit, its means (0) say nothing
};

// Of chunks, and of tokens in one. Other tools keep both as 32-bit numbers, some with a sign.
inline constexpr uint64_t kMostChunks = INT32_MAX;

// A file in GGUF form as llama.cpp writes and reads it: general.type "imatrix", and for every tensor NAME of a model NAME.in_sum2
// [columns, matrices], sums of squares, and NAME.counts [1, matrices], both float32.
class ImportanceMatrix {
 public:
  // kBadFile for anything else, naming file and tensor; the older form that is no GGUF is told apart.
  static Result<ImportanceMatrix> Read(const std::string& path);
  // `inputs` are never overwritten; kBadInput for more than kMostChunks. Tensors are written in the order of their names.
  // `replace`: false refuses a file that is there.
  Status Write(const std::string& path, std::span<const std::string> inputs, bool replace = true) const;

  // By the GGUF name of the model's tensor, such as "blk.3.ffn_up_exps.weight"; null if it was not measured.
  const Importance* Find(std::string_view tensor) const;
  void Add(std::string tensor, Importance importance);  // replaces an earlier one
  const std::map<std::string, Importance, std::less<>>& tensors() const { return tensors_; }

  std::vector<std::string> datasets;  // what it was measured on
  uint64_t chunks = 0, chunk_tokens = 0;

 private:
  std::map<std::string, Importance, std::less<>> tensors_;
};

}  // namespace glint::model
