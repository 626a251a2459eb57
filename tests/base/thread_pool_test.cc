#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
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

// The caller takes the chunks of workers that do not come: here they can't, since they are all stuck in one chunk each until
// everything else is done.
TEST_P(Pool, NobodyWaitsForAThreadThatHasNotBegun) {
  ThreadPool pool(GetParam());
  constexpr size_t kN = 1000;
  std::atomic<size_t> done{0};
  pool.ParallelFor(kN, 1, [&](size_t begin, size_t end, int worker) {
    if (worker != 0) {
      while (done.load() + (end - begin) * static_cast<size_t>(pool.threads() - 1) < kN - kN / 8) {
      }
    }
    done += end - begin;
  });
  EXPECT_EQ(done, kN);
}

TEST_P(Pool, AWorkerIsNeverInTwoCallsAtOnce) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(static_cast<size_t>(pool.threads()));
  std::atomic<int> wrong{0};
  for (int i = 0; i < 200; ++i) {
    pool.ParallelFor(97, 2, [&](size_t, size_t, int worker) {
      if (inside[static_cast<size_t>(worker)]++ != 0) ++wrong;
      --inside[static_cast<size_t>(worker)];
    });
  }
  EXPECT_EQ(wrong, 0);
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

// What one of the calls throws arrives at the caller, once nobody works any more; the pool is as good as before.
TEST_P(Pool, AnExceptionReachesTheCaller) {
  ThreadPool pool(GetParam());
  for (const size_t bad : {0, 13, 99}) {
    std::atomic<int> inside{0};
    const auto loop = [&] {
      pool.ParallelFor(100, 1, [&](size_t begin, size_t end, int) {
        ++inside;
        if (begin <= bad && bad < end) {
          --inside;
          throw std::runtime_error("from a range");
        }
        --inside;
      });
    };
    EXPECT_THROW(loop(), std::runtime_error);
    EXPECT_EQ(inside, 0);
    std::atomic<size_t> covered{0};
    pool.ParallelFor(100, 1, [&](size_t begin, size_t end, int) { covered += end - begin; });
    EXPECT_EQ(covered, 100u);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Pool, testing::Values(1, 2, 3, 4, 9));

TEST(AvailableCores, IsPositive) { EXPECT_GE(AvailableCores(), 1); }

}  // namespace
}  // namespace glint
