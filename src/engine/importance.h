// `glint imatrix`: mean squares of what each input channel of a model's matrices is multiplied with, over a text.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/progress.h"
#include "glint/model.h"
#include "model/imatrix.h"

namespace glint::engine {

struct MeasuredImportance {
  model::ImportanceMatrix matrix;
  std::vector<std::string> never_hit;  // "blk.3.{ffn_up_exps.weight, ...}: 2 of 8 experts"
};

// Bytes that a measurement takes beside the model.
struct ImportanceMemory {
  uint64_t sums = 0, buffers = 0, state = 0, decoded = 0;
  uint64_t total() const { return sums + buffers + state + decoded; }
  Status CheckRoom(const MemoryRoom& room) const;  // kNoRoom, with all of these figures
};
Result<ImportanceMemory> MemoryForImportance(const Model& model, size_t tokens, int64_t context);

// The text in chunks of `context` tokens, each from an empty state: the trunk, and the MTP block where the model was opened with
// one, fed with the trunk's hidden states and the tokens that follow. Sums are taken in double precision in the order of the
// tokens, so the result does not depend on threads. kBadInput for an empty text; kNoRoom before anything is taken; kBadFile for
// activations that are no numbers.
Result<MeasuredImportance> MeasureImportance(const Model& model, std::span<const int32_t> ids,
                                             int64_t context, const Progress& progress = {});

}  // namespace glint::engine
