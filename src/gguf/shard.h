// The header of one GGUF file, parsed and checked against the file it stands in.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "gguf/gguf.h"

namespace glint::gguf {

struct Shard {
  uint32_t version = 0;
  std::vector<std::pair<std::string, Value>> metadata;  // keys unique
  std::vector<TensorInfo> tensors;  // names unique; data inside the file, aligned, disjoint

  const Value* Find(std::string_view key) const;  // linear
};

Result<Shard> ReadShard(const MappedFile& file, BlockSizeOf block_size);

// Whether general.alignment may have this value.
bool ValidAlignment(uint64_t alignment);
// The value as an unsigned number, if it is an integer that fits.
bool AsUint(const Value& value, uint64_t& out);

}  // namespace glint::gguf
