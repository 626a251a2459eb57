#include "cpu/limits.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/memory.h"
#include "cpu/limit_loops.h"
#include "cpu/state.h"

namespace glint::cpu {
namespace {

constexpr uint64_t kUsualRead = uint64_t{1} << 30;
// The part of the free memory that may be taken for a moment.
constexpr uint64_t kShareOfFree = 4;
// What threads take at a time.
constexpr size_t kReadPiece = size_t{1} << 20;
static_assert(kReadPiece % kReadUnit == 0);

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

uint64_t CacheBytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  return static_cast<uint64_t>(
      std::max({sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE), 0L}));
#else
  return 0;
#endif
}

// What the compiler cannot know is unused.
std::atomic<uint64_t> sink;

class Meter {
 public:
  Meter(ThreadPool& pool, const Progress& progress, const LimitOptions& options)
      : pool_(pool), progress_(progress), options_(options) {}

  static constexpr int kKinds = 4;

  // `pass` returns how much it did.
  template <class Pass>
  Status Measure(Pass pass, plan::Rate* rate) {
    std::vector<double> rates;
    for (int i = 0; i < options_.passes; ++i) {
      const double start = Seconds();
      const double done = pass();
      rates.push_back(done / (Seconds() - start));
      ++done_;
      if (progress_ && !progress_(done_, Total())) return Interrupted();
    }
    std::sort(rates.begin(), rates.end());
    *rate = {rates.back(), rates[rates.size() / 2]};
    return {};
  }

  Status Read(uint64_t bytes, plan::Rate* rate) {
    auto pages = Pages::Reserve(bytes, "measuring the read bandwidth");
    if (!pages.ok()) return pages.status();
    std::byte* const data = pages->data();
    const size_t pieces = bytes / kReadPiece;
    // Large pages where they can be had: a ceiling should not be one of the page tables.
    madvise(data, bytes, MADV_HUGEPAGE);
    // A few pieces at a time, since taking a gigabyte from the system may last.
    constexpr size_t kAtATime = 64;
    for (size_t first = 0; first < pieces; first += kAtATime) {
      if (progress_ && !progress_(0, Total())) return Interrupted();
      pool_.ParallelFor(std::min(kAtATime, pieces - first), 1, [&](size_t begin, size_t end, int) {
        std::memset(data + (first + begin) * kReadPiece, 0x5a, (end - begin) * kReadPiece);
      });
    }
    return Measure(
        [&] {
          pool_.ParallelFor(pieces, 1, [&](size_t begin, size_t end, int) {
            const uint64_t sum = BestLimitLoops().read(data + begin * kReadPiece, (end - begin) * kReadPiece);
            sink.fetch_xor(sum, std::memory_order_relaxed);
          });
          return static_cast<double>(bytes);
        },
        rate);
  }

  Status Multiply(uint64_t (*loop)(uint64_t rounds), plan::Rate* rate) {
    if (loop == nullptr) return {};
    uint64_t rounds = 1024;
    const auto pass = [&] {
      std::atomic<uint64_t> done{0};
      // Several pieces a thread: one that is kept from its core is helped.
      pool_.ParallelFor(static_cast<size_t>(pool_.threads()) * 4, 1, [&](size_t begin, size_t end, int) {
        for (size_t i = begin; i < end; ++i) done.fetch_add(loop(rounds), std::memory_order_relaxed);
      });
      return static_cast<double>(done.load(std::memory_order_relaxed));
    };
    for (;; rounds *= 2) {
      const double start = Seconds();
      pass();
      if (Seconds() - start >= options_.seconds || rounds >= uint64_t{1} << 40) break;
    }
    return Measure(pass, rate);
  }

 private:
  uint64_t Total() const { return static_cast<uint64_t>(options_.passes) * kKinds; }
  static Status Interrupted() { return {Code::kBadInput, "interrupted"}; }

  ThreadPool& pool_;
  const Progress& progress_;
  const LimitOptions& options_;
  uint64_t done_ = 0;
};

}  // namespace

Result<plan::Limits> MeasureLimits(ThreadPool& pool, const Progress& progress, const LimitOptions& options) {
  plan::Limits limits;
  limits.threads = pool.threads();
  limits.passes = options.passes;
  limits.instructions = BestLimitLoops().name;
  limits.read_bytes = options.read_bytes;
  if (limits.read_bytes == 0) {
    const uint64_t caches = CacheBytes();
    const MemoryRoom room = AvailableMemory();
    limits.read_bytes = std::min(std::max(kUsualRead, 4 * caches), room.bytes / kShareOfFree);
    if (limits.read_bytes < std::max<uint64_t>(2 * caches, 4 * kReadPiece)) {
      return Status(
          Code::kNoRoom,
          fmt::format("the read bandwidth is measured over twice the caches or more ({}), and at most a "
                      "quarter of what is free; {} leaves {}",
                      FormatBytes(2 * caches), room.limited_by, FormatBytes(room.bytes)));
    }
  }
  limits.read_bytes = std::max<uint64_t>(limits.read_bytes / kReadPiece, 1) * kReadPiece;

  const LimitLoops& loops = BestLimitLoops();
  Meter meter(pool, progress, options);
  if (auto status = meter.Read(limits.read_bytes, &limits.read); !status.ok()) return status;
  if (auto status = meter.Multiply(loops.digits, &limits.integer_products); !status.ok()) return status;
  if (auto status = meter.Multiply(loops.bytes, &limits.byte_products); !status.ok()) return status;
  if (auto status = meter.Multiply(loops.floats, &limits.float_products); !status.ok()) return status;
  return limits;
}

}  // namespace glint::cpu
