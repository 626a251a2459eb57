// A model's weights in device memory.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/progress.h"
#include "cuda/devices.h"
#include "cuda/matrix.h"
#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"
#include "model/synthetic_fill.h"

namespace glint::cuda {

// Owns device memory; immutable after loading, so that several contexts of one device may share it.
class DeviceWeights {
 public:
  // What Load will take, for messages and plans.
  static uint64_t Bytes(const model::Weights& weights);
  // Streams the weights to the device. Their host bytes are read once and not needed afterwards, but the addresses are: they are what
  // Find goes by. `fill`: matrices that it describes are made on the device and not read here (ModelData::synthetic).
  // kUnsupported: a type without kernels (names tensor and type). kNoRoom: says what is needed and what is free; found out before
  // anything is taken. Stops with kBadInput when `progress` returns false; it counts bytes of matrices. After an error nothing is kept.
  static Result<std::unique_ptr<DeviceWeights>> Load(const Context& context, const model::HParams& hp,
                                                     const model::Weights& weights, const Progress& progress,
                                                     const model::SyntheticFill* fill = nullptr);
  ~DeviceWeights();
  DeviceWeights(const DeviceWeights&) = delete;
  DeviceWeights& operator=(const DeviceWeights&) = delete;

  // The device twin of a matrix or vector of the weights that were loaded, found by its address; of anything else, one without data.
  Matrix Find(const model::Matrix& w) const;
  const float* Find(model::Vector v) const;
  uint64_t bytes() const { return bytes_; }

 private:
  class Loader;
  explicit DeviceWeights(int device) : device_(device) {}
  std::unordered_map<const void*, Matrix> matrices_;
  std::unordered_map<const void*, const float*> vectors_;
  std::vector<void*> allocations_;
  uint64_t bytes_ = 0;
  int device_;
};

}  // namespace glint::cuda
