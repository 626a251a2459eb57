// A fixed set of threads that share the iterations of a loop.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

namespace glint {

// Splits [0, n) into one contiguous part per worker, the same parts every time for the same (n, grain, threads): rows of
// a weight stay with the core that touched them before. A part is worked on in a few chunks, and who is done helps with
// what others have not begun, so that a thread which other programs keep from its core delays nobody by more than a
// chunk. No result may depend on who did what; glint's do not.
// Threads: one ParallelFor at a time per pool (the engine holds it); never call it from inside the function.
class ThreadPool {
 public:
  // threads >= 1; the caller is one of them, so 1 starts no thread. Where the system refuses to start so many, there are fewer.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls fn(begin, end, worker) on disjoint ranges that cover [0, n), any number of times per worker; range bounds are
  // multiples of `grain` (but for n itself). worker is in [0, threads()) and names the calling thread: never in two calls at
  // once. Returns when all are done, and then throws what fn threw first on any thread; ranges not begun by then are left out.
  void ParallelFor(size_t n, size_t grain,
                   const std::function<void(size_t begin, size_t end, int worker)>& fn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What the machine can run at once for this process (affinity and cgroup limits counted), at least 1.
int AvailableCores();

}  // namespace glint
