// Writes a GGUF v3 file that appears whole or not at all.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/progress.h"
#include "gguf/gguf.h"

namespace glint::gguf {

// Collects keys and tensor declarations, then streams tensor data in the order declared. A key set twice
// keeps its place and takes the later value. Data is aligned to 32 bytes, the format's default, so
// general.alignment is not for callers to set.
class Writer {
 public:
  void SetU32(const std::string& key, uint32_t value);
  void SetU16(const std::string& key, uint16_t value);
  void SetI32(const std::string& key, int32_t value);
  void SetU64(const std::string& key, uint64_t value);
  void SetF32(const std::string& key, float value);
  void SetBool(const std::string& key, bool value);
  void SetString(const std::string& key, std::string value);
  void SetStrings(const std::string& key, std::vector<std::string> values);
  void SetI32s(const std::string& key, std::vector<int32_t> values);
  void SetU32s(const std::string& key, std::vector<uint32_t> values);
  void SetF32s(const std::string& key, std::vector<float> values);
  void Set(const std::string& key, const Value& value);  // as read from another file

  // Fills exactly `bytes` of the tensor by calling `sink` any number of times; called once, during Write.
  using Sink = std::function<Status(std::span<const std::byte>)>;
  using Produce = std::function<Status(const Sink& sink)>;
  void AddTensor(std::string name, uint32_t type, std::vector<uint64_t> ne, uint64_t bytes, Produce produce);

  uint64_t tensor_bytes() const;
  // `inputs`: files the output is made from, never overwritten. Errors leave no file. kInternal if a tensor
  // produced another size, or for names and shapes that no reader would take.
  Status Write(const std::string& path, std::span<const std::string> inputs,
               const Progress& progress = {}) const;

 private:
  struct Entry {
    std::string key;
    std::vector<std::byte> encoded;
  };  // kind and value as in the file
  struct Pending {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> ne;
    uint64_t bytes;
    Produce produce;
  };
  void Put(const std::string& key, std::vector<std::byte> encoded);  // replaces an earlier value
  std::vector<Entry> entries_;
  std::vector<Pending> tensors_;
};

}  // namespace glint::gguf
