#include "cuda/devices.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "cuda/probe.h"
#include "cuda/status.h"
#include "tests/cuda/gpu_test_base.h"

namespace glint::cuda {
namespace {

TEST(Devices, ListingNeedsNoGpu) {
  const auto devices = ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  for (const DeviceInfo& d : *devices) {
    EXPECT_FALSE(d.name.empty());
    EXPECT_GE(d.major, 8) << d.name;
    EXPECT_GT(d.memory_bytes, uint64_t{1} << 30) << d.name;
  }
}

TEST(Devices, AnUnknownDeviceIsAnError) {
  for (const int ordinal : {-1, 1000}) {
    const auto context = Context::Create(ordinal);
    ASSERT_FALSE(context.ok());
    EXPECT_EQ(context.status().code(), Code::kNotFound);
    EXPECT_NE(context.status().message().find(std::to_string(ordinal)), std::string::npos);
  }
}

TEST(CudaStatus, NamesTheErrorAndWhatWasBeingDone) {
  EXPECT_TRUE(Check(cudaSuccess, "nothing").ok());
  const Status s = Check(cudaErrorInvalidConfiguration, "launching kda.recur");
  EXPECT_EQ(s.code(), Code::kDevice);
  EXPECT_NE(s.message().find("launching kda.recur: cudaErrorInvalidConfiguration"), std::string::npos)
      << s.message();
  EXPECT_EQ(Check(cudaErrorMemoryAllocation, "weights").code(), Code::kNoRoom);
}

TEST(CudaStatus, ChecksFailWhereATestWantsThemTo) {
  const auto failures = [](int64_t n, bool once) {
    const FailingChecks failing(n, cudaErrorDeviceUninitialized, once);
    std::string pattern;
    for (int i = 0; i < 4; ++i) pattern += Check(cudaSuccess, "a call").ok() ? '.' : 'x';
    EXPECT_EQ(failing.made(), 4);
    return pattern;
  };
  EXPECT_EQ(failures(0, false), "xxxx");
  EXPECT_EQ(failures(2, false), "..xx");
  EXPECT_EQ(failures(2, true), "..x.");
  EXPECT_EQ(failures(4, false), "....");
  const FailingChecks failing(0, cudaErrorDeviceUninitialized);
  const Status own = Check(cudaErrorInvalidValue, "a call");  // what the runtime says itself stands
  EXPECT_NE(own.message().find("cudaErrorInvalidValue"), std::string::npos) << own.message();
}

TEST(CudaStatus, NothingFailsAfterwards) { EXPECT_TRUE(Check(cudaSuccess, "a call").ok()); }

// Memory of the current device, filled with NaN bytes first.
class DeviceFloats {
 public:
  explicit DeviceFloats(size_t n) {
    EXPECT_EQ(cudaMalloc(&data_, n * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xff, n * sizeof(float)), cudaSuccess);
  }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  ~DeviceFloats() { cudaFree(data_); }
  float* data() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

using Probe = test::GpuTest<>;

// One warp, around a block of 256, several blocks and one more. Each device of the machine, each with its own
// context.
TEST_F(Probe, EveryGpuHasTheHostsArithmetic) {
  const auto devices = ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  for (const DeviceInfo& device : *devices) {
    SCOPED_TRACE(device.name);
    auto context = Context::Create(device.ordinal);
    ASSERT_TRUE(context.ok()) << context.status().message();
    for (const size_t n : {size_t{1}, size_t{32}, size_t{255}, size_t{256}, size_t{257}, size_t{100001}}) {
      std::vector<float> host(3 * n), fused(n + 1), separate(n + 1);
      for (float& x : host) x = uniform(rng);
      DeviceFloats in(3 * n), out(2 * (n + 1));  // one entry behind each output that must stay NaN
      ASSERT_EQ(cudaMemcpy(in.data(), host.data(), 3 * n * sizeof(float), cudaMemcpyHostToDevice),
                cudaSuccess);
      // The copy and the fills run on the default stream, which the context's stream does not wait for.
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      const ProbeArgs args{in.data(),  in.data() + n,      in.data() + 2 * n,
                           out.data(), out.data() + n + 1, static_cast<int>(n)};
      ASSERT_TRUE(Check(LaunchProbe(args, context->stream()), "launching the probe").ok());
      ASSERT_TRUE(context->Wait().ok());
      ASSERT_EQ(cudaMemcpy(fused.data(), args.fused, (n + 1) * sizeof(float), cudaMemcpyDeviceToHost),
                cudaSuccess);
      ASSERT_EQ(cudaMemcpy(separate.data(), args.separate, (n + 1) * sizeof(float), cudaMemcpyDeviceToHost),
                cudaSuccess);
      for (size_t i = 0; i < n; ++i) {
        const float a = host[i], b = host[n + i], c = host[2 * n + i];
        const float product = a * b;
        ASSERT_EQ(std::bit_cast<uint32_t>(fused[i]), std::bit_cast<uint32_t>(std::fma(a, b, c))) << i;
        ASSERT_EQ(std::bit_cast<uint32_t>(separate[i]), std::bit_cast<uint32_t>(product + c)) << i;
      }
      EXPECT_TRUE(std::isnan(fused[n]));
      EXPECT_TRUE(std::isnan(separate[n]));
    }
  }
}

}  // namespace
}  // namespace glint::cuda
