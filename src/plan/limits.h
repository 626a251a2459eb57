// What a device can do at most, as measured on it: the ceilings that times are compared with.
#pragma once
#include <cstdint>
#include <string>

namespace glint::plan {

// A rate measured several times over, in units a second. The best pass is the ceiling; how far the median lies below it tells how quiet
// the machine was.
struct Rate {
  double best = 0, median = 0;
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
};

}  // namespace glint::plan
