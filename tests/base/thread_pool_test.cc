#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <tuple>
#include <vector>

namespace glint {
namespace {

class Pool : public testing::TestWithParam<int> {};

TEST_P(Pool, CoversEveryIndexOnceInWholeGrains) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.threads(), GetParam());
  for (const size_t grain : {1, 3, 16}) {
    for (const size_t n : {0, 1, 2, 3, 4, 15, 16, 17, 47, 48, 49, 1000}) {
      std::vector<int> seen(n);
      std::atomic<int> wrong{0};
      pool.ParallelFor(n, grain, [&](size_t begin, size_t end, int worker) {
        if (begin >= end || end > n || begin % grain || (end % grain && end != n)) ++wrong;
        if (worker < 0 || worker >= pool.threads()) ++wrong;
        for (size_t i = begin; i < end; ++i) ++seen[i];
      });
      EXPECT_EQ(wrong, 0);
      EXPECT_EQ(seen, std::vector<int>(n, 1)) << n << " by " << grain;
    }
  }
}

TEST_P(Pool, SplitsTheSameWayEveryTimeAndEvenly) {
  ThreadPool pool(GetParam());
  const auto split = [&] {
    std::vector<std::pair<size_t, size_t>> parts(static_cast<size_t>(pool.threads()));
    pool.ParallelFor(1000, 8, [&](size_t begin, size_t end, int worker) {
      parts[static_cast<size_t>(worker)] = {begin, end};
    });
    return parts;
  };
  const auto first = split();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(split(), first);
  for (const auto& [begin, end] : first) EXPECT_LE(end - begin, (1000 / 8 / GetParam() + 1) * 8u);
}

// Many short loops in a row, each reading what the one before wrote on another thread.
TEST_P(Pool, OneLoopSeesTheWritesOfTheLast) {
  ThreadPool pool(GetParam());
  constexpr size_t kN = 64;
  std::vector<uint64_t> a(kN), b(kN);
  std::iota(a.begin(), a.end(), 0);
  for (int i = 0; i < 2000; ++i) {
    pool.ParallelFor(kN, 1, [&](size_t begin, size_t end, int) {
      for (size_t k = begin; k < end; ++k) b[k] = a[(k + 17) % kN] + 1;
    });
    std::swap(a, b);
  }
  for (size_t k = 0; k < kN; ++k) EXPECT_EQ(a[k], (k + 17 * 2000) % kN + 2000);
}

INSTANTIATE_TEST_SUITE_P(Threads, Pool, testing::Values(1, 2, 3, 4, 9));

TEST(AvailableCores, IsPositive) { EXPECT_GE(AvailableCores(), 1); }

}  // namespace
}  // namespace glint
