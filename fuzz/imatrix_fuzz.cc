// Any bytes as an importance file.
#include "fuzz/input.h"
#include "model/imatrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const glint::fuzz::InputFile input(data, size);
  const auto matrix = glint::model::ImportanceMatrix::Read(input.path());
  volatile float sum = 0;
  if (!matrix.ok()) return 0;
  for (const auto& [name, importance] : matrix->tensors())
    sum = sum + importance.mean.back() + importance.counts.back();
  return 0;
}
