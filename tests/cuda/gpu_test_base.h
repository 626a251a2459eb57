// Tests that need a GPU: without one they skip; with GLINT_REQUIRE_GPU set (tools/gpu-check sets it) that is a failure.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "cuda/devices.h"

namespace glint::test {

// The base of a fixture, plain or with parameters.
template <class Base = testing::Test>
class GpuTest : public Base {
 protected:
  void SetUp() override {
    const auto devices = cuda::ListDevices();
    ASSERT_TRUE(devices.ok()) << devices.status().message();
    if (devices->empty()) {
      ASSERT_EQ(std::getenv("GLINT_REQUIRE_GPU"), nullptr) << "GLINT_REQUIRE_GPU is set and there is no GPU";
      GTEST_SKIP() << "no GPU here";
    }
  }
};

// The first entry whose bits differ, or -1. A NaN is a NaN: its payload is not part of the contract.
inline int64_t FirstDifference(std::span<const float> a, std::span<const float> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) ||
                      (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace glint::test
