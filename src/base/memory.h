// How much memory this process can still take.
#pragma once
#include <cstdint>
#include <string>

namespace glint {

struct MemoryRoom {
  uint64_t bytes = 0;      // what can be taken without swapping or being killed
  std::string limited_by;  // "the machine's available memory", "the control group's limit" and so on
};

// The smallest of MemAvailable, what every control group (v1 or v2) above this process leaves, and what is left of the process's own
// limit on its address space (ulimit -v); page cache that the kernel would give back counts as room. UINT64_MAX where the system
// does not say.
MemoryRoom AvailableMemory();

// "12.3 GB", "456 MB", "789 bytes": powers of ten, three digits.
std::string FormatBytes(uint64_t bytes);

}  // namespace glint
