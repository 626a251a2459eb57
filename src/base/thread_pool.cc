#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
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

struct ThreadPool::Impl {
  // The loop in progress; written before `round` is raised, read after it was seen raised.
  size_t n = 0, grain = 1;
  const std::function<void(size_t, size_t, int)>* fn = nullptr;
  bool stop = false;

  std::atomic<uint32_t> round{0};    // raised once per loop (release): publishes the fields above
  std::atomic<uint32_t> running{0};  // workers that have not finished it (release: publishes what fn wrote)
  bool spin = true;  // not where threads outnumber cores: a spinner would keep the worker from its core
  std::vector<std::thread> workers;

  void Part(int worker) const {
    const size_t units = n / grain + (n % grain != 0), threads = workers.size() + 1;
    const size_t share = units / threads, extra = units % threads, w = static_cast<size_t>(worker);
    const size_t first = w * share + std::min(w, extra), count = share + (w < extra);
    if (count == 0) return;
    const size_t last = first + count;
    (*fn)(first * grain, last == units ? n : last * grain, worker);
  }

  void Work(int worker) {
    for (uint32_t seen = 0;; ++seen) {
      WaitWhile(round, seen, spin);
      if (stop) return;
      Part(worker);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void Publish() {
    running.store(static_cast<uint32_t>(workers.size()), std::memory_order_relaxed);
    round.fetch_add(1, std::memory_order_release);
    round.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  const int others = std::max(threads, 1) - 1;
  impl_->spin = threads <= AvailableCores();
  impl_->workers.reserve(static_cast<size_t>(others));
  // The vector's size is part of the split, so every worker starts before any loop does: the first Publish comes later.
  try {
    for (int i = 0; i < others; ++i)
      impl_->workers.emplace_back([impl = impl_.get(), i] { impl->Work(i + 1); });
  } catch (const std::system_error&) {
    // The system refuses more threads: go on with those there are; results do not depend on their number.
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop = true;
  impl_->Publish();
  for (auto& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::ParallelFor(size_t n, size_t grain, const std::function<void(size_t, size_t, int)>& fn) {
  grain = std::max<size_t>(grain, 1);
  if (n == 0) return;
  if (impl_->workers.empty() || n <= grain) return fn(0, n, 0);
  impl_->n = n, impl_->grain = grain, impl_->fn = &fn;
  impl_->Publish();
  impl_->Part(0);
  for (uint32_t left; (left = impl_->running.load(std::memory_order_acquire)) != 0;)
    WaitWhile(impl_->running, left, impl_->spin);
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
