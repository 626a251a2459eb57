// Any bytes as a safetensors file.
#include "gguf/safetensors.h"

#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const glint::fuzz::InputFile input(data, size);
  const auto file = glint::gguf::SafeTensors::OpenFile(input.path());
  volatile unsigned sum = 0;
  if (!file.ok()) return 0;
  for (const auto& tensor : file->tensors()) sum = sum + glint::fuzz::Touch(tensor);
  return 0;
}
