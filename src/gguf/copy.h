// The tensors and keys of a file or set, into another file or set, byte for byte: merging and splitting.
#pragma once
#include <string>

#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace glint::gguf {

// Of a tensor's name: llama.cpp keeps it in 64 bytes with a NUL. Longer ones are worth a warning.
inline constexpr uint64_t kUsualTensorNameBytes = 63;

// All keys but those that say how a file lies on the disk (split.*).
void CopyKeys(const File& from, Writer& to);
// The tensor, one of `file`, as it is, a piece at a time; pages that were read are given back. `file` must outlive the writing.
// kUnsupported for a type whose size is not known.
Status CopyTensor(const File& file, const TensorInfo& from, Writer& to);
Result<Writer::SetSummary> Copy(const File& from, const std::string& path, Writer::SetOptions options);

// A hash that is cheap to take and changes with a set of files: sizes and times of change, names, types, shapes and samples of
// every tensor. For identities of runs.
std::string Fingerprint(const File& file);

}  // namespace glint::gguf
