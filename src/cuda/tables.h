// The grids of the IQ formats in device memory, for the kernels that look codes up in them.
#pragma once
#include <cstdint>

#include "cuda/devices.h"
#include "cuda/memory.h"
#include "quant/format.h"

namespace glint::cuda {

class DeviceTables {
 public:
  static Result<DeviceTables> Load(const Context& context);
  // The grid of a format; null for formats that have none.
  const uint8_t* For(quant::Type type) const;
  // What the format's decoder makes of it in shared memory (Decoder::FillTable), made once in device memory for kernels that look codes
  // up seldom enough to go through L1; null likewise.
  const uint8_t* Spread(quant::Type type) const;

 private:
  DeviceMemory memory_;  // the grids, then the tables made of them
};

}  // namespace glint::cuda
