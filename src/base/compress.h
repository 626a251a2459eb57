// zstd, for files of our own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace glint {

// One zstd frame (level 1) of `bytes`. `planes`: bytes i, i + planes, i + 2 planes ... are put together first, which shows what
// numbers of that size have in common; bytes.size() is a multiple of it. Empty if memory is short.
std::vector<std::byte> Compress(std::span<const std::byte> bytes, size_t planes);

// Undoes Compress. False, and `out` is undefined, unless `frame` is one whole frame of exactly out.size() bytes: nothing is ever
// written or allocated beyond that, whatever the frame says of itself.
bool Decompress(std::span<const std::byte> frame, size_t planes, std::span<std::byte> out);

}  // namespace glint
