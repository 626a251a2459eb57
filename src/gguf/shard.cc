#include "gguf/shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_set>

#include "base/checked.h"
#include "base/printable.h"
#include "gguf/cursor.h"

namespace glint::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in the file");

constexpr uint32_t kLastKind = static_cast<uint32_t>(Kind::kF64);
constexpr uint64_t kDefaultAlignment = 32;

// Least bytes that an element, key or tensor takes in a file: what is left of the file bounds every count.
constexpr uint64_t kKinds = kLastKind + 1;
constexpr uint64_t kLeastBytes[kKinds] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
constexpr uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

class HeaderReader {
 public:
  HeaderReader(const MappedFile& file, BlockSizeOf block_size)
      : file_(file), in_(file.bytes(), file.path()), block_size_(block_size) {}

  Result<Shard> Read() {
    const uint64_t tensor_count = ReadStart();
    for (uint64_t i = 0; in_.ok() && i < key_count_; ++i) ReadEntry(i);
    const uint64_t alignment = ReadAlignment();
    for (uint64_t i = 0; in_.ok() && i < tensor_count; ++i) ReadTensor(i, tensor_count, alignment);
    if (in_.ok()) PlaceTensors(alignment);
    if (!in_.ok()) return in_.status();
    return std::move(shard_);
  }

 private:
  // Magic, version and counts; gives the number of tensors.
  uint64_t ReadStart() {
    const auto magic = in_.Number<uint32_t>("the magic number");
    if (in_.ok() && magic != 0x46554747u) {
      const auto* b = reinterpret_cast<const char*>(file_.bytes().data());
      in_.Fail(
          Code::kBadFile, 0,
          fmt::format("starts with {}, not 'GGUF': this is no GGUF file", Quoted(std::string_view(b, 4))));
    }
    const uint64_t version_at = in_.at();
    shard_.version = in_.Number<uint32_t>("the version");
    if (in_.ok() && shard_.version != 2 && shard_.version != 3) {
      const uint32_t v = shard_.version;
      const bool swapped = v != 0 && (v & 0xffffu) == 0;
      in_.Fail(swapped || v == 1 ? Code::kUnsupported : Code::kBadFile, version_at,
               swapped  ? "big-endian GGUF; glint reads little-endian files only"
               : v == 1 ? "GGUF version 1; glint reads versions 2 and 3 (convert it anew)"
                        : fmt::format("GGUF version {}; glint reads versions 2 and 3", v));
    }
    const uint64_t tensors = ReadCount("tensors", kMaxTensors, kLeastTensorBytes);
    key_count_ = ReadCount("metadata keys", kMaxKeys, kLeastKeyBytes);
    return tensors;
  }

  uint64_t ReadCount(std::string_view what, uint64_t limit, uint64_t least_bytes) {
    const uint64_t at = in_.at();
    const auto count = in_.Number<uint64_t>(what);
    if (!in_.ok()) return 0;
    if (count > limit) {
      in_.Fail(Code::kBadFile, at, fmt::format("{} {}; glint reads at most {}", count, what, limit));
    } else if (count > in_.left() / least_bytes) {
      in_.Fail(Code::kBadFile, at,
               fmt::format("{} {} cannot be in the {} bytes that follow", count, what, in_.left()));
    }
    return in_.ok() ? count : 0;
  }

  void ReadEntry(uint64_t i) {
    in_.Enter(fmt::format("metadata key {} of {}", i + 1, key_count_));
    const uint64_t at = in_.at();
    const std::string_view key = in_.Text("a key", kMaxKeyBytes);
    if (!in_.ok()) return;
    if (key.empty()) return in_.Fail(Code::kBadFile, at, "an empty key");
    if (!ValidUtf8(key) || key.find('\0') != std::string_view::npos) {
      return in_.Fail(Code::kBadFile, at, fmt::format("the key {} is not valid UTF-8 text", Quoted(key)));
    }
    in_.Enter("key " + Quoted(key));
    if (!keys_.insert(key).second) return in_.Fail(Code::kBadFile, at, "comes twice");
    const Kind kind = ReadKind();
    Value value = kind == Kind::kArray ? ReadArray() : ReadScalar(kind);
    if (in_.ok()) shard_.metadata.emplace_back(key, std::move(value));
  }

  Kind ReadKind() {
    const uint64_t at = in_.at();
    const auto kind = in_.Number<uint32_t>("the value type");
    if (in_.ok() && kind > kLastKind) {
      in_.Fail(Code::kBadFile, at, fmt::format("value type {}; GGUF has 0 to {}", kind, kLastKind));
    }
    return in_.ok() ? static_cast<Kind>(kind) : Kind::kU8;
  }

  Value ReadScalar(Kind kind) {
    constexpr std::string_view kWhat = "the value";
    switch (kind) {
      case Kind::kU8:
        return {kind, uint64_t{in_.Number<uint8_t>(kWhat)}};
      case Kind::kI8:
        return {kind, int64_t{in_.Number<int8_t>(kWhat)}};
      case Kind::kU16:
        return {kind, uint64_t{in_.Number<uint16_t>(kWhat)}};
      case Kind::kI16:
        return {kind, int64_t{in_.Number<int16_t>(kWhat)}};
      case Kind::kU32:
        return {kind, uint64_t{in_.Number<uint32_t>(kWhat)}};
      case Kind::kI32:
        return {kind, int64_t{in_.Number<int32_t>(kWhat)}};
      case Kind::kU64:
        return {kind, in_.Number<uint64_t>(kWhat)};
      case Kind::kI64:
        return {kind, in_.Number<int64_t>(kWhat)};
      case Kind::kF32:
        return {kind, double{in_.Number<float>(kWhat)}};
      case Kind::kF64:
        return {kind, in_.Number<double>(kWhat)};
      case Kind::kString:
        return {kind, in_.Text("a string")};
      case Kind::kBool: {
        const uint64_t at = in_.at();
        const auto byte = in_.Number<uint8_t>(kWhat);
        if (byte > 1)
          in_.Fail(Code::kBadFile, at, fmt::format("a bool of value {}; it must be 0 or 1", byte));
        return {kind, byte == 1};
      }
      case Kind::kArray:
        break;
    }
    return {};
  }

  Value ReadArray() {
    const uint64_t at = in_.at();
    const Kind element = ReadKind();
    if (in_.ok() && element == Kind::kArray) in_.Fail(Code::kUnsupported, at, "an array of arrays");
    const uint64_t count_at = in_.at();
    const auto count = in_.Number<uint64_t>("the array length");
    if (!in_.ok()) return {};
    if (count > in_.left() / kLeastBytes[static_cast<size_t>(element)]) {
      in_.Fail(Code::kBadFile, count_at,
               fmt::format("an array of {} {} values cannot be in the {} bytes that follow", count,
                           Name(element), in_.left()));
      return {};
    }
    if (count > kMaxArrayElements - array_elements_) {
      in_.Fail(Code::kUnsupported, count_at,
               fmt::format("an array of {} values; glint reads at most {} in all arrays of a file", count,
                           kMaxArrayElements));
      return {};
    }
    array_elements_ += count;
    auto array = std::make_shared<Array>();
    array->element = element;
    array->values.reserve(static_cast<size_t>(count));
    for (uint64_t i = 0; in_.ok() && i < count; ++i) array->values.push_back(ReadScalar(element));
    return {Kind::kArray, std::shared_ptr<const Array>(std::move(array))};
  }

  uint64_t ReadAlignment() {
    const Value* const value = shard_.Find("general.alignment");
    if (!in_.ok() || value == nullptr) return kDefaultAlignment;
    uint64_t alignment = 0;
    in_.Enter("key 'general.alignment'");
    if (!AsUint(*value, alignment)) {
      in_.Fail(Code::kBadFile, in_.at(), fmt::format("is of type {}; wanted is u32", Name(value->kind)));
    } else if (!ValidAlignment(alignment)) {
      in_.Fail(Code::kBadFile, in_.at(),
               fmt::format("is {}; it must be a power of two from 8 to 2^30", alignment));
    }
    return alignment;
  }

  // Leaves `offset` relative to the data section, whose place is known only after the last tensor.
  void ReadTensor(uint64_t i, uint64_t count, uint64_t alignment) {
    in_.Enter(fmt::format("tensor {} of {}", i + 1, count));
    const uint64_t at = in_.at();
    const std::string_view name = in_.Text("a tensor name", kMaxTensorNameBytes);
    if (!in_.ok()) return;
    if (name.empty()) return in_.Fail(Code::kBadFile, at, "an empty name");
    if (!ValidUtf8(name) || name.find('\0') != std::string_view::npos) {
      return in_.Fail(Code::kBadFile, at, fmt::format("the name {} is not valid UTF-8 text", Quoted(name)));
    }
    in_.Enter("tensor " + Quoted(name));
    if (!names_.insert(name).second) return in_.Fail(Code::kBadFile, at, "comes twice");
    TensorInfo tensor;
    tensor.name = name;
    ReadShape(tensor);
    const uint64_t type_at = in_.at();
    tensor.type = in_.Number<uint32_t>("the type");
    if (in_.ok()) SetBytes(tensor, type_at);
    const uint64_t offset_at = in_.at();
    tensor.offset = in_.Number<uint64_t>("the data offset");
    if (in_.ok() && tensor.offset % alignment != 0) {
      in_.Fail(
          Code::kBadFile, offset_at,
          fmt::format("data offset 0x{:x} is not a multiple of the alignment {}", tensor.offset, alignment));
    }
    offset_fields_.push_back(offset_at);
    if (in_.ok()) shard_.tensors.push_back(std::move(tensor));
  }

  void ReadShape(TensorInfo& tensor) {
    const uint64_t at = in_.at();
    const auto dims = in_.Number<uint32_t>("the number of dimensions");
    if (!in_.ok()) return;
    if (dims < 1 || dims > 4) {
      return in_.Fail(Code::kBadFile, at, fmt::format("{} dimensions; GGUF has 1 to 4", dims));
    }
    tensor.dims = static_cast<int>(dims);
    uint64_t elements = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      const uint64_t ne_at = in_.at();
      const auto ne = in_.Number<uint64_t>("the dimensions");
      if (!in_.ok()) return;
      if (ne == 0) return in_.Fail(Code::kBadFile, ne_at, fmt::format("dimension {} is 0", d));
      const auto product = CheckedMul(elements, ne);
      if (!product || *product > INT64_MAX) {
        return in_.Fail(Code::kBadFile, ne_at,
                        fmt::format("dimension {} of {}: more than 2^63 weights", d, ne));
      }
      tensor.ne[d] = ne;
      elements = *product;
    }
  }

  void SetBytes(TensorInfo& tensor, uint64_t type_at) {
    const BlockSize block = block_size_(tensor.type);
    if (block.weights == 0) return;
    if (tensor.ne[0] % block.weights != 0) {
      return in_.Fail(Code::kBadFile, type_at,
                      fmt::format("rows of {} weights; type {} needs a multiple of {}", tensor.ne[0],
                                  tensor.type, block.weights));
    }
    const auto bytes = CheckedMul(tensor.elements() / block.weights, uint64_t{block.bytes});
    if (!bytes) return in_.Fail(Code::kBadFile, type_at, "more than 2^64 bytes of data");
    tensor.bytes = *bytes;
  }

  void PlaceTensors(uint64_t alignment) {
    const uint64_t file_bytes = file_.bytes().size();
    const auto data = CheckedAlign(in_.at(), alignment);  // at() is below 2^63, alignment at most 2^30
    std::vector<size_t> order(shard_.tensors.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      TensorInfo& tensor = shard_.tensors[i];
      in_.Enter("tensor " + Quoted(tensor.name));
      const auto start = CheckedAdd(*data, tensor.offset);
      if (!start || !Within(*start, tensor.bytes, file_bytes)) {
        return in_.Fail(
            Code::kBadFile, offset_fields_[i],
            fmt::format("{} bytes of data at offset 0x{:x} + 0x{:x} reach beyond the end of the file at "
                        "0x{:x}; is it cut short?",
                        tensor.bytes, *data, tensor.offset, file_bytes));
      }
      tensor.offset = *start;
      if (tensor.bytes > 0) tensor.data = file_.bytes().data() + tensor.offset;
    }
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const TensorInfo &x = shard_.tensors[a], &y = shard_.tensors[b];
      return std::pair(x.offset, x.bytes) < std::pair(y.offset, y.bytes);
    });
    // Each tensor begins where the one before it ends, as every writer lays them. Bytes between two tensors would mean that the
    // type or the shape of the first one is not what its data was written as.
    uint64_t expected = *data;
    const TensorInfo* before = nullptr;
    for (const size_t i : order) {
      const TensorInfo& tensor = shard_.tensors[i];
      in_.Enter("tensor " + Quoted(tensor.name));
      if (before != nullptr && before->offset + before->bytes > tensor.offset) {
        return in_.Fail(Code::kBadFile, offset_fields_[i],
                        fmt::format("data at 0x{:x} overlaps that of {}, 0x{:x} to 0x{:x}", tensor.offset,
                                    Quoted(before->name), before->offset, before->offset + before->bytes));
      }
      const bool size_known = before == nullptr || before->bytes > 0;
      if (size_known && tensor.offset > expected) {
        const std::string of =
            before == nullptr ? "in front of it" : fmt::format("after {}", Quoted(before->name));
        return in_.Fail(Code::kBadFile, offset_fields_[i],
                        fmt::format("data at 0x{:x} should begin at 0x{:x}: {} bytes {} belong to no tensor, "
                                    "so a type, shape or offset is wrong",
                                    tensor.offset, expected, tensor.offset - expected, of));
      }
      before = &tensor;
      // Within the file, so below 2^63; the padding of the last tensor may be missing.
      expected = *CheckedAlign(tensor.offset + tensor.bytes, alignment);
    }
  }

  const MappedFile& file_;
  Cursor in_;
  BlockSizeOf block_size_;
  uint64_t key_count_ = 0, array_elements_ = 0;
  std::unordered_set<std::string_view> keys_, names_;
  std::vector<uint64_t> offset_fields_;  // where each tensor's data offset is stored
  Shard shard_;
};

}  // namespace

std::string_view Name(Kind kind) {
  constexpr std::string_view kNames[kKinds] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                               "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<size_t>(kind);
  return i < kKinds ? kNames[i] : "unknown";
}

bool Equal(const Value& a, const Value& b) {
  if (a.kind != b.kind || a.data.index() != b.data.index()) return false;
  if (const auto* x = std::get_if<std::shared_ptr<const Array>>(&a.data)) {
    const auto& y = std::get<std::shared_ptr<const Array>>(b.data);
    return (*x)->element == y->element &&
           std::equal((*x)->values.begin(), (*x)->values.end(), y->values.begin(), y->values.end(), Equal);
  }
  if (const auto* x = std::get_if<double>(&a.data)) {
    const double y = std::get<double>(b.data);
    return *x == y || (std::isnan(*x) && std::isnan(y));
  }
  return a.data == b.data;
}

bool AsUint(const Value& value, uint64_t& out) {
  if (const auto* u = std::get_if<uint64_t>(&value.data)) return out = *u, true;
  const auto* i = std::get_if<int64_t>(&value.data);
  if (i == nullptr || *i < 0) return false;
  out = static_cast<uint64_t>(*i);
  return true;
}

bool ValidAlignment(uint64_t alignment) {
  return std::has_single_bit(alignment) && alignment >= 8 && alignment <= (uint64_t{1} << 30);
}

const Value* Shard::Find(std::string_view key) const {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<Shard> ReadShard(const MappedFile& file, BlockSizeOf block_size) {
  return HeaderReader(file, block_size).Read();
}

}  // namespace glint::gguf
