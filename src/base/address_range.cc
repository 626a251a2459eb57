#include "base/address_range.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>

namespace glint {

Result<AddressRange> AddressRange::Reserve(uint64_t bytes) {
  AddressRange range;
  if (bytes == 0) return range;
  void* const address = bytes > SIZE_MAX / 2 ? MAP_FAILED
                                             : mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    const int error = bytes > SIZE_MAX / 2 ? ENOMEM : errno;
    return Status(Code::kNoRoom, fmt::format("{} bytes of address space: {}", bytes,
                                             std::generic_category().message(error)));
  }
  range.data_ = static_cast<const std::byte*>(address);
  range.size_ = bytes;
  return range;
}

AddressRange::~AddressRange() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

}  // namespace glint
