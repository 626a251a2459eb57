#include "model/synthetic_fill.h"

#include <algorithm>
#include <cstring>

namespace glint::model {

void SyntheticFill::Read(const Source& source, uint64_t offset, std::span<std::byte> out) const {
  const Pool& pool = pools[source.pool];
  while (!out.empty()) {
    const uint64_t chunk = offset / pool.chunk_bytes, inside = offset % pool.chunk_bytes;
    const size_t take = std::min(out.size(), pool.chunk_bytes - static_cast<size_t>(inside));
    std::memcpy(out.data(), pool.bytes.data() + Draw(source.key, chunk) % kChunks * pool.chunk_bytes + inside,
                take);
    out = out.subspan(take);
    offset += take;
  }
}

}  // namespace glint::model
