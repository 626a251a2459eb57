// GGUF v2 and v3 files, read with suspicion: every count, offset, size and alignment is checked before it is
// used.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/file.h"
#include "glint/status.h"

namespace glint::gguf {

// Value kinds by their number in the file.
enum class Kind : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// One metadata value. Integers of any width are widened; arrays keep their element kind. Strings point into
// the mapping and may hold any bytes.
struct Array;
struct Value {
  Kind kind = Kind::kU32;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, std::shared_ptr<const Array>> data;
};
struct Array {
  Kind element = Kind::kU32;
  std::vector<Value> values;  // arrays of arrays are refused
};

// Bounds beyond those of the format, so that no file, however made, takes memory out of proportion. Published
// files stay below a tenth of each.
inline constexpr uint64_t kMaxKeys = 1u << 16, kMaxTensors = 1u << 20;
inline constexpr uint64_t kMaxArrayElements = 1u << 24;                     // of all arrays of a file
inline constexpr uint64_t kMaxKeyBytes = 65535, kMaxTensorNameBytes = 255;  // the format says 65535 and 64

std::string_view Name(Kind kind);            // "u32", "string", ...
bool Equal(const Value& a, const Value& b);  // kind and value; NaN equals itself

struct TensorInfo {
  std::string name;
  uint32_t type = 0;  // quant::Type by number; unknown numbers are kept, not computed with
  std::array<uint64_t, 4> ne = {1, 1, 1, 1};  // ne[0] fastest
  int dims = 0;
  uint64_t bytes = 0;   // of the data; 0 if the type is unknown
  uint64_t offset = 0;  // absolute, in its file
  int file = 0;         // index of the shard
  const std::byte* data = nullptr;
  uint64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

// How many weights a block of a type holds and its bytes; {0, 0} for a number it does not know. Given by the
// caller so that this layer knows no weight formats.
struct BlockSize {
  uint32_t weights, bytes;
};
using BlockSizeOf = BlockSize (*)(uint32_t type);

// A file or a whole split set, mapped. Movable; all views stay valid while it lives.
class File {
 public:
  // `path` may be any shard of a set named -0000i-of-0000N.gguf; the others are found beside it, and all must
  // be there and agree (split.count, split.no, split.tensors.count, no tensor twice). Errors: "FILE: what
  // (tensor, offset)".
  static Result<File> Open(const std::string& path, BlockSizeOf block_size);

  uint32_t version() const { return version_; }
  const std::vector<std::string>& paths() const { return paths_; }
  uint64_t file_bytes() const;
  // Metadata of the first shard, in file order.
  const std::vector<std::pair<std::string, Value>>& metadata() const { return metadata_; }
  const Value* Find(std::string_view key) const;
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* FindTensor(std::string_view name) const;

  // Typed reads: kNotFound if the key is absent, kBadFile if it has another kind or does not fit. Integers of
  // any width and sign are taken if the value fits; floats take f32 and f64.
  Result<uint64_t> GetUint(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string> GetString(std::string_view key) const;
  Result<std::vector<uint64_t>> GetUints(
      std::string_view key) const;  // a lone value counts as an array of one, in all three
  Result<std::vector<double>> GetFloats(std::string_view key) const;
  Result<std::vector<std::string>> GetStrings(std::string_view key) const;

 private:
  uint32_t version_ = 0;
  std::vector<std::string> paths_;
  std::vector<MappedFile> files_;
  std::vector<std::pair<std::string, Value>> metadata_;
  std::unordered_map<std::string, size_t> metadata_index_, tensor_index_;
  std::vector<TensorInfo> tensors_;
};

// The paths of a split set given any one of them; just {path} if the name is not of that form.
Result<std::vector<std::string>> SplitPaths(const std::string& path);

}  // namespace glint::gguf
