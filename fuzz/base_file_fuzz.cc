// Any bytes as a base file, as they are and with checksums put right, so that what lies behind them is reached.
#include <cstring>
#include <span>
#include <vector>

#include "base/hash.h"
#include "engine/base_file.h"

namespace {

void ReadAll(std::span<const std::byte> bytes) {
  auto reader = glint::engine::BaseReader::Parse(bytes, "input");
  if (!reader.ok()) return;
  constexpr uint64_t kLargest = 1u << 16;  // larger rows cost time and show nothing new
  if (reader->header().vocab > kLargest) return;
  std::vector<double> row(static_cast<size_t>(reader->header().vocab));
  for (uint64_t i = 0; i < reader->header().rows; ++i)
    if (!reader->Next(row).ok()) return;
}

void Put(std::vector<std::byte>& bytes, size_t at, uint64_t value) {
  std::memcpy(&bytes[at], &value, sizeof value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  ReadAll(bytes);
  constexpr size_t kHeader = 144, kHash = 24, kSectionHead = 24;  // docs/file-formats.md, "Base files"
  if (size < kHeader + kSectionHead) return 0;
  Put(bytes, 16, size);
  glint::Hasher hasher;
  hasher.AddBytes(std::span(bytes).first(kHash));
  hasher.AddBytes(std::span(bytes).subspan(kHash + 8, kHeader - kHash - 8));
  Put(bytes, kHash, hasher.Value().low);
  for (size_t at = kHeader; size - at >= kSectionHead;) {
    const size_t begin = at + kSectionHead;
    uint64_t length = 0;
    std::memcpy(&length, &bytes[at + 8], sizeof length);
    // One that reaches beyond the end, or leaves no room for another, becomes the last.
    if (length > size - begin || size - begin - length < kSectionHead) length = size - begin;
    Put(bytes, at + 8, length);
    Put(bytes, at + 16, glint::Hash64(std::span(bytes).subspan(begin, static_cast<size_t>(length))));
    at = begin + static_cast<size_t>(length);
  }
  ReadAll(bytes);
  return 0;
}
