// Any bytes as a GGUF file.
#include "fuzz/input.h"
#include "gguf/gguf.h"

using glint::gguf::BlockSize;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const glint::fuzz::InputFile input(data, size);
  const auto file = glint::gguf::File::Open(input.path(), [](uint32_t type) {
    return type == 0   ? BlockSize{1, 4}
           : type == 1 ? BlockSize{1, 2}
           : type == 8 ? BlockSize{32, 34}
                       : BlockSize{0, 0};
  });
  volatile unsigned sum = 0;
  if (!file.ok()) return 0;
  for (const auto& tensor : file->tensors()) sum = sum + glint::fuzz::Touch(tensor);
  for (const auto& [key, value] : file->metadata()) {
    sum = sum + (file->GetUints(key).ok() ? 1u : 0u) + (file->GetFloats(key).ok() ? 1u : 0u);
    const auto texts = file->GetStrings(key);
    if (!texts.ok()) continue;
    for (const auto& text : *texts) sum = sum + static_cast<unsigned>(text.size());
  }
  return 0;
}
