// The tensors and keys of a file or set, into another file or set, byte for byte: merging and splitting.
#pragma once
#include <string>

#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace glint::gguf {

// All keys but those that say how a file lies on the disk (split.*, general.alignment).
void CopyKeys(const File& from, Writer& to);
// The tensor as it is, a piece at a time; pages that were read are given back. `from` must outlive the writing.
void CopyTensor(const TensorInfo& from, Writer& to);
Result<Writer::SetSummary> Copy(const File& from, const std::string& path, Writer::SetOptions options);

// A hash that is cheap to take and changes with a set of files: sizes and times of change, names, types, shapes and samples of
// every tensor. For identities of runs.
std::string Fingerprint(const File& file);

}  // namespace glint::gguf
