#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace glint {
namespace {

// How often a waiting thread looks again before it sleeps in the kernel. A step of a decode takes tens of microseconds, and
// waking a sleeper as long; a few thousand looks bridge the gap between two loops without starving other processes.
constexpr int kLooks = 4000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once `value` is no longer `old`.
void WaitWhile(const std::atomic<uint32_t>& value, uint32_t old, bool spin) {
  for (int look = 0; spin && look < kLooks; ++look) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// Cores that a cgroup's quota leaves, read from the files of version 2 and 1; 0 where there is no limit to be seen.
int CgroupCores() {
  double least = 0;
  const auto limit = [&least](double quota, double period) {
    if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
  };
  std::string path;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::")) path = line.substr(3);
  for (;; path.resize(path.rfind('/'))) {  // the quota of every ancestor counts
    while (path.ends_with('/')) path.pop_back();
    std::ifstream file("/sys/fs/cgroup" + path + "/cpu.max");
    double quota, period;
    if (file >> quota >> period) limit(quota, period);  // "max" does not parse: no limit
    if (path.rfind('/') == std::string::npos) break;
  }
  double quota = 0, period = 0;
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
      period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period) limit(quota, period);
  return least == 0 ? 0 : std::max(1, static_cast<int>(std::min(least + 0.5, 1e6)));
}

}  // namespace

// A part of a loop, in chunks that are taken one by one, from the first on.
struct alignas(64) Part {
  // Which loop it belongs to (high half) and how many of its chunks are not taken yet (low half): one word, so that a
  // thread which comes late finds nothing to take, whatever loop is in progress by then. The loop's number wraps after 2^32
  // loops; to be fooled, a thread would have to sleep through exactly that many between two instructions.
  std::atomic<uint64_t> left{0};
};

struct ThreadPool::Impl {
  // Chunks of a part: enough for others to help where its own thread is kept from running, few enough to cost nothing.
  static constexpr size_t kChunks = 4;

  // The loop in progress. Written before the parts are filled (release), read after a chunk was taken (acquire); no
  // loop ends before the chunks taken from it are done, so nobody reads while they are written.
  size_t n = 0, grain = 1;
  const std::function<void(size_t, size_t, int)>* fn = nullptr;
  uint32_t chunks = 0;

  std::atomic<uint32_t> round{0};   // the loop's number; raised when its parts are filled
  std::atomic<uint32_t> done{0};    // chunks finished (release: publishes what fn wrote)
  std::atomic<bool> failed{false};  // fn threw; `thrown` is whose thread set it first
  std::exception_ptr thrown;
  std::atomic<bool> stop{false};
  bool spin = true;  // not where threads outnumber cores: a spinner would keep the worker from its core
  std::vector<Part> parts;  // one per thread that was asked for
  std::vector<std::thread> workers;

  // Units (grains) of a part: [first, first + count).
  std::pair<size_t, size_t> Units(size_t part) const {
    const size_t units = n / grain + (n % grain != 0);
    const size_t share = units / parts.size(), extra = units % parts.size();
    return {part * share + std::min(part, extra), share + (part < extra)};
  }

  void Run(size_t part, uint32_t left, int worker) {
    const auto [first, count] = Units(part);
    const size_t of = std::min(count, kChunks), chunk = of - left;
    const size_t begin = first + count * chunk / of, end = first + count * (chunk + 1) / of;
    const uint32_t all = chunks;
    try {
      if (!failed.load(std::memory_order_relaxed)) (*fn)(begin * grain, std::min(n, end * grain), worker);
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_relaxed)) thrown = std::current_exception();
    }
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == all) done.notify_one();
  }

  // Works on the loop `now`: first on the part of its own, which it worked on in the loops before, then on what
  // others have not come to.
  void Join(uint32_t now, int worker) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const size_t part = (static_cast<size_t>(worker) + i) % parts.size();
      uint64_t left = parts[part].left.load(std::memory_order_acquire);
      while (left >> 32 == now && static_cast<uint32_t>(left) != 0) {
        if (!parts[part].left.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel,
                                                    std::memory_order_acquire)) {
          continue;
        }
        Run(part, static_cast<uint32_t>(left), worker);
        left = parts[part].left.load(std::memory_order_acquire);
      }
    }
  }

  void Work(int worker) {
    for (uint32_t seen = 0;;) {
      WaitWhile(round, seen, spin);
      if (stop.load(std::memory_order_acquire)) return;
      seen = round.load(std::memory_order_acquire);
      Join(seen, worker);
    }
  }

  // Fills the parts and wakes the workers; returns the loop's number.
  uint32_t Publish() {
    const uint32_t now = round.load(std::memory_order_relaxed) + 1;
    done.store(0, std::memory_order_relaxed);
    chunks = 0;
    for (size_t p = 0; p < parts.size(); ++p)
      chunks += static_cast<uint32_t>(std::min(Units(p).second, kChunks));
    for (size_t p = 0; p < parts.size(); ++p) {
      parts[p].left.store(uint64_t{now} << 32 | std::min(Units(p).second, kChunks),
                          std::memory_order_release);
    }
    round.store(now, std::memory_order_release);
    round.notify_all();
    return now;
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  const int others = std::max(threads, 1) - 1;
  impl_->spin = threads <= AvailableCores();
  impl_->parts = std::vector<Part>(static_cast<size_t>(others) + 1);
  impl_->workers.reserve(static_cast<size_t>(others));
  try {
    for (int i = 0; i < others; ++i)
      impl_->workers.emplace_back([impl = impl_.get(), i] { impl->Work(i + 1); });
  } catch (const std::exception&) {
    // The system refuses more threads, or the memory for one: go on with those there are; results do not depend on their number, and parts
    // without a thread of their own are done by the others.
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->round.fetch_add(1, std::memory_order_release);
  impl_->round.notify_all();
  for (auto& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::ParallelFor(size_t n, size_t grain, const std::function<void(size_t, size_t, int)>& fn) {
  grain = std::max<size_t>(grain, 1);
  if (n == 0) return;
  if (impl_->workers.empty() || n <= grain) return fn(0, n, 0);
  impl_->n = n, impl_->grain = grain, impl_->fn = &fn;
  impl_->Join(impl_->Publish(), 0);
  for (uint32_t done; (done = impl_->done.load(std::memory_order_acquire)) != impl_->chunks;)
    WaitWhile(impl_->done, done, impl_->spin);
  if (!impl_->failed.load(std::memory_order_relaxed)) return;  // `done` ordered it
  impl_->failed.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(impl_->thrown, nullptr));
}

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0
                  ? CPU_COUNT(&set)
                  : static_cast<int>(std::thread::hardware_concurrency());
  if (const int quota = CgroupCores(); quota > 0) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

}  // namespace glint
