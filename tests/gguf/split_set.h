// Cuts an opened GGUF into a split set as published ones are: all keys and no tensor in the first part.
#pragma once
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "gguf/writer.h"

namespace glint::test {

// Adds a tensor of an opened file, which must live until the writer has written.
inline void AddCopy(gguf::Writer& writer, const gguf::TensorInfo& tensor) {
  const std::span<const std::byte> data(tensor.data, static_cast<size_t>(tensor.bytes));
  writer.AddTensor(tensor.name, tensor.type, {tensor.ne.begin(), tensor.ne.begin() + tensor.dims},
                   tensor.bytes, [data](const gguf::Writer::Sink& sink) { return sink(data); });
}

// Writes PREFIX-0000i-of-0000N.gguf for N = `parts` (at least 2), tensors in their order and even numbers; gives the paths.
inline Result<std::vector<std::string>> WriteSplitSet(const gguf::File& file, const std::string& prefix,
                                                      size_t parts) {
  std::vector<std::string> paths;
  const auto& tensors = file.tensors();
  for (size_t i = 0; i < parts; ++i) {
    gguf::Writer writer;
    if (i == 0) {
      for (const auto& [key, value] : file.metadata()) {
        if (key != "general.alignment" && !key.starts_with("split.")) writer.Set(key, value);
      }
    } else {
      for (size_t t = tensors.size() * (i - 1) / (parts - 1); t < tensors.size() * i / (parts - 1); ++t) {
        AddCopy(writer, tensors[t]);
      }
    }
    writer.SetU16("split.no", static_cast<uint16_t>(i));
    writer.SetU16("split.count", static_cast<uint16_t>(parts));
    writer.SetI32("split.tensors.count", static_cast<int32_t>(tensors.size()));
    char suffix[64];
    snprintf(suffix, sizeof suffix, "-%05zu-of-%05zu.gguf", i + 1, parts);
    paths.push_back(prefix + suffix);
    if (Status s = writer.Write(paths.back(), file.paths()); !s.ok()) return s;
  }
  return paths;
}

}  // namespace glint::test
