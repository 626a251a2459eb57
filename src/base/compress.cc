#include "base/compress.h"

#include <zstd.h>

#include <algorithm>

namespace glint {

std::vector<std::byte> Compress(std::span<const std::byte> bytes, size_t planes) {
  std::vector<std::byte> shuffled(bytes.size()), frame(ZSTD_compressBound(bytes.size()));
  const size_t each = bytes.size() / planes;
  for (size_t p = 0; p < planes; ++p) {
    for (size_t i = 0; i < each; ++i) shuffled[p * each + i] = bytes[i * planes + p];
  }
  const size_t size = ZSTD_compress(frame.data(), frame.size(), shuffled.data(), shuffled.size(), 1);
  frame.resize(ZSTD_isError(size) != 0 ? 0 : size);
  return frame;
}

bool Decompress(std::span<const std::byte> frame, size_t planes, std::span<std::byte> out) {
  // The frame states its size, as ZSTD_compress writes it, and nothing follows it.
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != out.size() ||
      ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) {
    return false;
  }
  std::vector<std::byte> shuffled(out.size());
  if (ZSTD_decompress(shuffled.data(), shuffled.size(), frame.data(), frame.size()) != out.size())
    return false;
  const size_t each = out.size() / planes;
  for (size_t p = 0; p < planes; ++p) {
    for (size_t i = 0; i < each; ++i) out[i * planes + p] = shuffled[p * each + i];
  }
  return true;
}

}  // namespace glint
