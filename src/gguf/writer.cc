#include "gguf/writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/checked.h"
#include "base/printable.h"
#include "gguf/shard.h"

namespace glint::gguf {
namespace {

using Bytes = std::vector<std::byte>;

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::string_view kAlignmentKey = "general.alignment";

template <class T>
void PutNumber(Bytes& out, T value) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void PutText(Bytes& out, std::string_view text) {
  PutNumber<uint64_t>(out, text.size());
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), bytes, bytes + text.size());
}

void PutKind(Bytes& out, Kind kind) { PutNumber(out, static_cast<uint32_t>(kind)); }

template <class T>
Bytes Number(Kind kind, T value) {
  Bytes out;
  PutKind(out, kind);
  PutNumber(out, value);
  return out;
}

template <class T>
Bytes Numbers(Kind kind, const std::vector<T>& values) {
  Bytes out;
  PutKind(out, Kind::kArray);
  PutKind(out, kind);
  PutNumber<uint64_t>(out, values.size());
  for (const T value : values) PutNumber(out, value);
  return out;
}

// A value without its kind.
void PutValue(Bytes& out, const Value& value) {
  const auto u = [&] { return std::get<uint64_t>(value.data); };
  const auto i = [&] { return std::get<int64_t>(value.data); };
  switch (value.kind) {
    case Kind::kU8:
      return PutNumber(out, static_cast<uint8_t>(u()));
    case Kind::kI8:
      return PutNumber(out, static_cast<int8_t>(i()));
    case Kind::kU16:
      return PutNumber(out, static_cast<uint16_t>(u()));
    case Kind::kI16:
      return PutNumber(out, static_cast<int16_t>(i()));
    case Kind::kU32:
      return PutNumber(out, static_cast<uint32_t>(u()));
    case Kind::kI32:
      return PutNumber(out, static_cast<int32_t>(i()));
    case Kind::kU64:
      return PutNumber(out, u());
    case Kind::kI64:
      return PutNumber(out, i());
    case Kind::kF32:
      return PutNumber(out, static_cast<float>(std::get<double>(value.data)));
    case Kind::kF64:
      return PutNumber(out, std::get<double>(value.data));
    case Kind::kBool:
      return PutNumber(out, static_cast<uint8_t>(std::get<bool>(value.data)));
    case Kind::kString:
      return PutText(out, std::get<std::string_view>(value.data));
    case Kind::kArray: {
      const Array& array = *std::get<std::shared_ptr<const Array>>(value.data);
      PutKind(out, array.element);
      PutNumber<uint64_t>(out, array.values.size());
      for (const Value& element : array.values) PutValue(out, element);
    }
  }
}

}  // namespace

void Writer::SetU32(const std::string& key, uint32_t value) {
  if (key == kAlignmentKey) alignment_ = value;
  Put(key, Number(Kind::kU32, value));
}
void Writer::SetU16(const std::string& key, uint16_t value) { Put(key, Number(Kind::kU16, value)); }
void Writer::SetI32(const std::string& key, int32_t value) { Put(key, Number(Kind::kI32, value)); }
void Writer::SetU64(const std::string& key, uint64_t value) { Put(key, Number(Kind::kU64, value)); }
void Writer::SetF32(const std::string& key, float value) { Put(key, Number(Kind::kF32, value)); }
void Writer::SetBool(const std::string& key, bool value) {
  Put(key, Number(Kind::kBool, static_cast<uint8_t>(value)));
}

void Writer::SetString(const std::string& key, std::string_view value) {
  Bytes out;
  PutKind(out, Kind::kString);
  PutText(out, value);
  Put(key, std::move(out));
}

void Writer::SetStrings(const std::string& key, const std::vector<std::string>& values) {
  Bytes out;
  PutKind(out, Kind::kArray);
  PutKind(out, Kind::kString);
  PutNumber<uint64_t>(out, values.size());
  for (const std::string& value : values) PutText(out, value);
  Put(key, std::move(out));
}

void Writer::SetI32s(const std::string& key, const std::vector<int32_t>& values) {
  Put(key, Numbers(Kind::kI32, values));
}
void Writer::SetU32s(const std::string& key, const std::vector<uint32_t>& values) {
  Put(key, Numbers(Kind::kU32, values));
}
void Writer::SetF32s(const std::string& key, const std::vector<float>& values) {
  Put(key, Numbers(Kind::kF32, values));
}

void Writer::Set(const std::string& key, const Value& value) {
  if (key == kAlignmentKey && !AsUint(value, alignment_)) alignment_ = 0;
  Bytes out;
  PutKind(out, value.kind);
  PutValue(out, value);
  Put(key, std::move(out));
}

void Writer::Put(const std::string& key, std::vector<std::byte> encoded) {
  const auto same = [&](const Entry& entry) { return entry.key == key; };
  const auto there = std::find_if(entries_.begin(), entries_.end(), same);
  if (there != entries_.end()) {
    there->encoded = std::move(encoded);
  } else {
    entries_.push_back({key, std::move(encoded)});
  }
}

void Writer::AddTensor(std::string name, uint32_t type, std::vector<uint64_t> ne, uint64_t bytes,
                       Produce produce) {
  tensors_.push_back({std::move(name), type, std::move(ne), bytes,
                      [produce = std::move(produce)](uint64_t, const Sink& sink) { return produce(sink); },
                      false});
}

void Writer::AddLongTensor(std::string name, uint32_t type, std::vector<uint64_t> ne, uint64_t bytes,
                           ProduceFrom produce) {
  tensors_.push_back({std::move(name), type, std::move(ne), bytes, std::move(produce), true});
}

uint64_t Writer::tensor_bytes() const {
  uint64_t sum = 0;
  for (const Pending& tensor : tensors_) sum += tensor.bytes;
  return sum;
}

uint64_t Writer::KeyBytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += sizeof(uint64_t) + entry.key.size() + entry.encoded.size();
  return bytes;
}

uint64_t Writer::EntryBytes(const Pending& tensor) {
  const size_t numbers = sizeof(uint32_t) + tensor.ne.size() * sizeof(uint64_t) + sizeof tensor.type;
  return sizeof(uint64_t) + tensor.name.size() + numbers + sizeof(uint64_t);
}

Result<Bytes> Writer::Header(const std::string& path, std::span<const Pending> tensors,
                             uint64_t* data_bytes) const {
  const auto wrong = [&](std::string_view what) {
    return Status(Code::kInternal, fmt::format("{}: {}", Printable(path), what));
  };
  if (!ValidAlignment(alignment_))
    return wrong(
        fmt::format("cannot align data to {} bytes: a power of two from 8 to 2^30 is wanted", alignment_));
  Bytes header;
  PutNumber(header, uint32_t{0x46554747});  // "GGUF"
  PutNumber(header, uint32_t{3});
  PutNumber<uint64_t>(header, tensors.size());
  PutNumber<uint64_t>(header, entries_.size());
  for (const Entry& entry : entries_) {
    if (entry.key.empty() || entry.key.size() > kMaxKeyBytes) {
      return wrong("cannot write the key " + Quoted(entry.key));
    }
    PutText(header, entry.key);
    header.insert(header.end(), entry.encoded.begin(), entry.encoded.end());
  }
  std::unordered_set<std::string_view> names;
  *data_bytes = 0;
  for (const Pending& tensor : tensors) {
    const bool zero = std::find(tensor.ne.begin(), tensor.ne.end(), uint64_t{0}) != tensor.ne.end();
    if (tensor.name.empty() || tensor.name.size() > kMaxTensorNameBytes || tensor.ne.empty() ||
        tensor.ne.size() > 4 || zero) {
      return wrong(
          fmt::format("cannot write tensor {}: names have 1 to {} bytes, shapes 1 to 4 dimensions above 0",
                      Quoted(tensor.name), kMaxTensorNameBytes));
    }
    if (!names.insert(tensor.name).second) return wrong("tensor " + Quoted(tensor.name) + " is added twice");
    PutText(header, tensor.name);
    PutNumber(header, static_cast<uint32_t>(tensor.ne.size()));
    for (const uint64_t ne : tensor.ne) PutNumber(header, ne);
    PutNumber(header, tensor.type);
    PutNumber(header, *data_bytes);
    const auto end = CheckedAdd(*data_bytes, tensor.bytes);
    const auto aligned = end ? CheckedAlign(*end, alignment_) : end;
    if (!aligned || *aligned > INT64_MAX) return wrong("tensor " + Quoted(tensor.name) + " is too large");
    *data_bytes = *aligned;
  }
  header.resize(static_cast<size_t>((header.size() + alignment_ - 1) / alignment_ * alignment_));
  return header;
}

Status Writer::Write(const std::string& path, std::span<const std::string> inputs, const Progress& progress,
                     bool replace) const {
  const auto wrong = [&](std::string_view what) {
    return Status(Code::kInternal, fmt::format("{}: {}", Printable(path), what));
  };
  uint64_t data_bytes = 0;
  const auto header = Header(path, tensors_, &data_bytes);
  if (!header.ok()) return header.status();
  auto file = AtomicFile::Create(path, inputs, 0666, replace);
  if (!file.ok()) return file.status();
  const uint64_t total = header->size() + data_bytes;
  if (Status s = file->Reserve(total); !s.ok()) return s;
  if (Status s = file->Write(*header); !s.ok()) return s;
  const auto stopped = [&] { return progress && !progress(file->size(), total); };
  Status interrupted(Code::kBadInput, "interrupted");
  if (stopped()) return interrupted;
  for (const Pending& tensor : tensors_) {
    const uint64_t end = file->size() + tensor.bytes;
    const Sink sink = [&](std::span<const std::byte> bytes) -> Status {
      if (bytes.size() > end - file->size()) {
        return wrong(
            fmt::format("tensor {} gives more than its {} bytes", Quoted(tensor.name), tensor.bytes));
      }
      if (Status s = file->Write(bytes); !s.ok()) return s;
      return stopped() ? interrupted : Status();
    };
    if (Status s = tensor.produce(0, sink); !s.ok()) return s;
    if (file->size() != end) {
      return wrong(fmt::format("tensor {} gave {} of its {} bytes", Quoted(tensor.name),
                               tensor.bytes - (end - file->size()), tensor.bytes));
    }
    const Bytes padding(static_cast<size_t>((alignment_ - end % alignment_) % alignment_));
    if (Status s = file->Write(padding); !s.ok()) return s;
  }
  if (stopped()) return interrupted;
  return file->Commit();
}

}  // namespace glint::gguf
