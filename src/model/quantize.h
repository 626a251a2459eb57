// A GGUF file or set becomes another, its tensors in other types.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "glint/status.h"
#include "model/glm_flash/recipe.h"
#include "model/imatrix.h"
#include "quant/format.h"

namespace glint::model {

struct QuantizeOptions {
  const ImportanceMatrix* importance = nullptr;  // outlives the call
  std::string importance_path;                   // for keys and checks: it is an input too
  std::vector<std::string> inputs;               // other files that are never overwritten: the recipe
  std::vector<std::string> others;               // files that are written too: the report
  uint64_t shard_bytes = 0;                      // the most in a file; 0: one file
  uint64_t piece_bytes = uint64_t{4} << 20;      // how often an unfinished run notes its progress
  bool replace = false;                          // an output that is there
  bool restart = false;                          // throw away what an unfinished run left
  bool dry = false;                              // checks everything, weights included, and writes nothing
  int threads = 0;                               // 0: one a core
  Progress progress;                             // bytes of output
};

struct QuantizedTensor {
  std::string name;
  std::vector<uint64_t> ne;
  quant::Type from, wanted, to;  // wanted: by the recipe; to: another where rows do not fit
  uint64_t bytes_before = 0, bytes = 0;
  bool kept = false;     // byte for byte
  bool weighed = false;  // by an importance matrix
  uint64_t unhit = 0;  // matrices (experts) that the text of the importance matrix never hit: weighed equally
  double relative_rms = 0;   // root of (sum of squared errors / sum of squares); 0 for kept ones and zeros
  double largest_block = 0;  // root mean square error of the worst block, by the tensor's root mean square
};

struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;  // in file order
  std::vector<std::string> paths, notes;
  uint64_t bytes = 0;             // of the files
  uint64_t written_tensors = 0;   // in them, scales that NVFP4 matrices got too
  uint64_t taken_over_bytes = 0;  // of tensors, made by an earlier run
};

// `input`: any shard. The result depends on input, recipe and importance alone, not on threads or interruptions. What a run that
// was killed or interrupted has made is used by the next with the same arguments (gguf::Writer::WriteSet). Memory: some 20 MB for
// each 4096 columns of the widest tensor; pages read are given back. Metadata are kept; general.file_type, quantization_version
// and, with an importance matrix, quantize.imatrix.* are set. Second scales of NVFP4 matrices are multiplied in and dropped where
// the matrix gets another type, and made where it becomes NVFP4.
// kBadInput, kBadFile, kUnsupported, kNoRoom, kIo; NaN or infinity is refused, naming tensor and place.
Result<QuantizeReport> Quantize(const std::string& input, const std::string& output, const Recipe& recipe,
                                const QuantizeOptions& options);

}  // namespace glint::model
