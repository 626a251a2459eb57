// What a device can do at most, as measured on it: the ceilings that times are compared with.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace glint::plan {

// A rate measured several times over, in units a second. The best pass is the ceiling; how far the median lies below it tells how quiet
// the machine was.
struct Rate {
  double best = 0, median = 0;
};

// Seconds. The best pass is the cost.
struct Cost {
  double best = 0, median = 0;
};

// What it costs to give work to a device that has a host.
struct HostLimits {
  Cost launch;        // of a kernel that does nothing, in a graph of many, one after the other
  Cost early_launch;  // the same where each may begin before the one before it has ended; 0: the device can't
  Cost barrier;       // until all blocks of a running kernel, one a multiprocessor, have met
  int64_t launches = 0, barriers = 0;  // in a pass
  Rate to_device, from_device;         // bytes a second, of pinned host memory
  uint64_t copy_bytes = 0;
};

struct Limits {
  int threads = 0;           // that measured together (devices without threads: 0)
  int passes = 0;            // of each kind
  Rate read;                 // bytes a second, reading memory far larger than the caches
  uint64_t read_bytes = 0;   // the size of that memory
  Rate integer_products;     // multiply-adds a second of the integers of canonical products: 16-bit digits
  Rate byte_products;        // the same of 8-bit integers; 0 where the device has no instruction for them
  Rate float_products;       // fused multiply-adds a second, fp32
  std::string instructions;  // which ones: "avx512"
  std::optional<HostLimits> host;  // nothing for the CPU
};

}  // namespace glint::plan
