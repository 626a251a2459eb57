// Errors as values. Nothing in glint throws across an interface, and no input, however bad, aborts the process.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace glint {

enum class Code : uint8_t {
  kOk,
  kBadInput,     // an argument or request of the caller is wrong
  kBadFile,      // a file's content is not what it should be
  kNotFound,     // a file, tensor or name does not exist
  kNoRoom,       // memory, disk or context would not suffice
  kIo,           // the system refused a read or write
  kUnsupported,  // well-formed, but not something glint does
  kDevice,       // the accelerator failed
  kInternal,     // our own mistake
};

// Functions that return one of these, or a Result, throw nothing of their own: where the system gives no more memory they return kNoRoom. (A
// function without one, that returns a string or a list by value, may throw std::bad_alloc as copying it would; and an exception of a
// callback goes through.)
//
// Success, or a code and a message that says what was wrong, where (file, tensor, byte offset), and what would
// be right. Cheap to move; an ok Status holds no memory.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value or the Status that explains its absence. value() on an error is a programming mistake.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace glint
