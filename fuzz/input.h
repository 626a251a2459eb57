// The fuzzer's bytes as a file: the readers map files, so that is what they get.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace glint::fuzz {

class InputFile {
 public:
  InputFile(const uint8_t* data, size_t size) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() { close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// Reads both ends of a tensor's data: outside the mapping, that faults.
template <class Tensor>
unsigned Touch(const Tensor& tensor) {
  if (tensor.bytes == 0) return 0;
  return static_cast<unsigned>(tensor.data[0]) + static_cast<unsigned>(tensor.data[tensor.bytes - 1]);
}

}  // namespace glint::fuzz
