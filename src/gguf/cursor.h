// Reads fields one after the other from the header of a file. The first failure sticks: later reads give
// zeros and move nothing, so a reader checks ok() where it would act on a value, not after each field.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "glint/status.h"

namespace glint::gguf {

class Cursor {
 public:
  // `path` names the file in messages and must outlive the cursor.
  Cursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  // The part of the file that messages of later failures name: "tensor 5 of 12".
  void Enter(std::string part) { part_ = std::move(part); }
  // Keeps an earlier failure.
  void Fail(Code code, uint64_t offset, std::string_view what);

  template <class T>
  T Number(std::string_view what) {
    T value{};
    if (!Need(sizeof(T), what)) return value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  // A u64 length and as many bytes.
  std::string_view Text(std::string_view what, uint64_t limit = UINT64_MAX);

 private:
  bool Need(uint64_t bytes, std::string_view what);
  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t at_ = 0;
  std::string part_ = "header";
  Status status_;
};

}  // namespace glint::gguf
