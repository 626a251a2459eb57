// The greedy choice on the GPU against the host's.
#include "cuda/best.h"

#include <cuda_runtime_api.h>

#include <limits>
#include <random>
#include <vector>

#include "cuda/memory.h"
#include "plan/best.h"
#include "tests/cuda/gpu_test_base.h"

namespace glint::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class GpuBest : public GpuTest<> {};

TEST_F(GpuBest, IsTheHostsChoice) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  auto context = cuda::Context::Create(0);
  ASSERT_TRUE(context.ok()) << context.status().message();
  auto memory = cuda::DeviceMemory::Take(*context, uint64_t{32} << 20, "a test");
  auto pinned = cuda::PinnedMemory::Take(4096, "a test");
  ASSERT_TRUE(memory.ok() && pinned.ok());
  auto* const arrived = reinterpret_cast<uint32_t*>(memory->data());
  auto* const keys = reinterpret_cast<uint64_t*>(memory->data() + 256);
  auto* const logits = reinterpret_cast<float*>(memory->data() + 65536);
  auto* const best = reinterpret_cast<int32_t*>(pinned->data());
  ASSERT_EQ(cudaMemset(arrived, 0, sizeof(*arrived)), cudaSuccess);

  for (const int64_t rows : {1, 2, 5, 8, 31, 32, 40}) {
    for (const int64_t vocab : {1, 31, 257, 1000, 4099, 154880}) {
      if (rows * vocab > 7'000'000) continue;
      for (int kind = 0; kind < 4; ++kind) {
        const int64_t usable = kind == 3 ? (vocab + 1) / 2 : vocab;
        SCOPED_TRACE(testing::Message() << rows << " rows of " << vocab << ", of which " << usable
                                        << " are usable, kind " << kind);
        std::vector<float> host(static_cast<size_t>(rows * vocab));
        std::normal_distribution<float> normal;
        for (float& x : host) {
          x = kind == 0 ? normal(rng) : static_cast<float>(rng() % 7) - 3.0f;  // otherwise ties everywhere
          if (kind == 1 && rng() % 3 == 0) x = rng() % 2 == 0 ? std::nanf("") : -kInfinity;
          if (kind == 2) x = rng() % 2 == 0 ? -0.0f : 0.0f;
        }
        // The best of all lies beyond what is usable; one row has nothing to choose.
        if (usable < vocab) std::fill_n(host.end() - (vocab - usable), vocab - usable, 100.0f);
        if (kind == 1) std::fill_n(host.begin(), vocab, std::nanf(""));
        ASSERT_EQ(cudaMemcpy(logits, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice),
                  cudaSuccess);
        ASSERT_EQ(cudaMemset(keys, 0xff, sizeof(uint64_t) * static_cast<size_t>(cuda::BestKeys(rows))),
                  cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        std::fill_n(best, rows, -7);
        cuda::LaunchBest({logits, rows, vocab, usable, keys, arrived, best}, context->stream());
        ASSERT_EQ(cudaGetLastError(), cudaSuccess);
        ASSERT_TRUE(context->Wait().ok()) << context->Wait().message();
        for (int64_t r = 0; r < rows; ++r) {
          const auto row =
              std::span(host).subspan(static_cast<size_t>(r * vocab), static_cast<size_t>(usable));
          ASSERT_EQ(best[r], plan::BestId(row)) << "row " << r;
        }
      }
    }
  }
  uint32_t left = 1;
  ASSERT_EQ(cudaMemcpy(&left, arrived, sizeof(left), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(left, 0u) << "the counter is not set back";
}

}  // namespace
}  // namespace glint::test
