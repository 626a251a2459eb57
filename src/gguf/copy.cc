#include "gguf/copy.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "base/printable.h"

namespace glint::gguf {
namespace {

constexpr size_t kPiece = size_t{4} << 20;

std::span<const std::byte> DataOf(const TensorInfo& tensor) {
  return {tensor.data, static_cast<size_t>(tensor.bytes)};
}

}  // namespace

void CopyKeys(const File& from, Writer& to) {
  for (const auto& [key, value] : from.metadata())
    if (!key.starts_with("split.")) to.Set(key, value);
}

Status CopyTensor(const File& file, const TensorInfo& from, Writer& to) {
  if (from.bytes == 0)
    return {
        Code::kUnsupported,
        fmt::format("{}: {} is of type number {}, whose size is not known, so its data can not be copied",
                    Printable(file.paths()[static_cast<size_t>(from.file)]), Quoted(from.name), from.type)};
  const std::vector<uint64_t> ne(from.ne.begin(), from.ne.begin() + std::clamp(from.dims, 1, 4));
  to.AddLongTensor(from.name, from.type, ne, from.bytes, [&from](uint64_t begin, const Writer::Sink& sink) {
    const auto data = DataOf(from);
    for (size_t at = static_cast<size_t>(begin); at < data.size(); at += kPiece) {
      const auto piece = data.subspan(at, std::min(kPiece, data.size() - at));
      if (Status s = sink(piece); !s.ok()) return s;
      MappedFile::Release(piece);
    }
    return Status();
  });
  return {};
}

Result<Writer::SetSummary> Copy(const File& from, const std::string& path, Writer::SetOptions options) {
  Writer writer;
  CopyKeys(from, writer);
  for (const TensorInfo& tensor : from.tensors())
    if (Status s = CopyTensor(from, tensor, writer); !s.ok()) return s;
  options.identity = "copy of " + Fingerprint(from);
  options.inputs = from.paths();
  return writer.WriteSet(path, options);
}

std::string Fingerprint(const File& file) {
  constexpr size_t kSamples = 16, kSampleBytes = 64, kAround = size_t{128} << 10;
  Hasher hasher;
  for (const std::string& path : file.paths()) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) continue;
    hasher.AddNumber(static_cast<uint64_t>(status.st_size));
    hasher.AddNumber(static_cast<uint64_t>(status.st_mtim.tv_sec));
    hasher.AddNumber(static_cast<uint64_t>(status.st_mtim.tv_nsec));
  }
  for (const TensorInfo& tensor : file.tensors()) {
    hasher.AddText(tensor.name);
    hasher.AddNumber(tensor.type);
    for (const uint64_t n : tensor.ne) hasher.AddNumber(n);
    const auto data = DataOf(tensor);
    for (size_t i = 0; i < kSamples; ++i) {
      const size_t at = data.size() / kSamples * i;
      const auto sample = data.subspan(at, std::min(kSampleBytes, data.size() - at));
      hasher.AddBytes(sample);
      // The kernel maps the pages around a sample too: of a large file that would soon be gigabytes.
      MappedFile::Release(data.subspan(at, std::min(kAround, data.size() - at)));
    }
  }
  return Hex(hasher.Value());
}

}  // namespace glint::gguf
