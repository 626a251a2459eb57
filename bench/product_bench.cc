// Speed of the matrix products: bytes of weights per second for one activation row (decode) beside the read bandwidth measured in
// the same run, and multiply-adds per second for many rows (prefill). One thread.
//
//   product_bench [rows of the batch, 256] [FORMAT ...]
//
// Bandwidth and decode are measured in turns, five times, and the medians printed, by the thread's own clock: on a shared machine
// both wander together.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/product.h"

namespace glint::cpu {
namespace {

// Seconds this thread has run: on a shared machine the clock on the wall counts others' turns too.
double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Reads the buffer once in eight streams of 64-bit additions (vectorised by the compiler); returns bytes per second.
double ReadBandwidth(const std::vector<std::byte>& buffer) {
  static volatile uint64_t sink;
  const double start = Now();
  uint64_t sum[32] = {};
  for (size_t at = 0; at + 256 <= buffer.size(); at += 256) {
    uint64_t v[32];
    std::memcpy(v, buffer.data() + at, sizeof v);
    for (int i = 0; i < 32; ++i) sum[i] += v[i];
  }
  uint64_t total = 0;
  for (const uint64_t s : sum) total += s;
  sink = sink + total;
  return static_cast<double>(buffer.size()) / (Now() - start);
}

void Measure(const Kernels& kernels, quant::Type type, int64_t batch) {
  const quant::Format& format = *quant::Find(type);
  const int64_t columns = 4096;
  const size_t row_bytes = static_cast<size_t>(columns) / format.block_weights * format.block_bytes;
  const size_t bytes = size_t{192} << 20;  // well beyond the last-level cache
  const auto rows = static_cast<int64_t>(bytes / row_bytes);
  std::vector<std::byte> buffer(static_cast<size_t>(rows) * row_bytes);
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(columns * batch));
  for (auto& v : x) v = normal(rng);
  std::vector<float> sample(static_cast<size_t>(columns));
  for (auto& v : sample) v = normal(rng);
  format.encode(sample.data(), nullptr, buffer.data(), sample.size());
  for (size_t r = 1; r < static_cast<size_t>(rows); ++r)
    std::memcpy(buffer.data() + r * row_bytes, buffer.data(), row_bytes);

  const model::Matrix w{type, columns, rows, 1, buffer.data(), row_bytes};
  const How how{&kernels, nullptr, true};
  std::vector<float> y(static_cast<size_t>(rows));
  std::vector<double> read, decode, batched, rounding;
  const bool slow = std::strcmp(kernels.name, "scalar") == 0;
  for (int turn = 0; turn < (slow ? 1 : 5); ++turn) {
    read.push_back(ReadBandwidth(buffer));
    model::Matrix part = w;
    if (slow) part.rows = std::max<int64_t>(rows / 50, 1);
    const double start = Now();
    Product(how, part, 0, x.data(), columns, 1, y.data(), rows);
    decode.push_back(static_cast<double>(part.bytes()) / (Now() - start));
  }
  model::Matrix small = w;
  small.rows = slow ? 16 : 512;
  std::vector<float> ys(static_cast<size_t>(small.rows * batch));
  Activations prepared;
  for (int turn = 0; turn < (slow ? 1 : 5); ++turn) {
    double start = Now();
    Prepare(how, small, x.data(), columns, batch, prepared);
    rounding.push_back((Now() - start) / static_cast<double>(columns * batch));
    start = Now();
    Product(how, small, 0, prepared, ys.data(), small.rows);
    batched.push_back(static_cast<double>(small.rows * columns * batch) / (Now() - start));
  }
  const double decode_macs = Median(decode) / static_cast<double>(row_bytes) * static_cast<double>(columns);
  std::printf(
      "%-8s %-6s  1 row %7.2f GB/s of %6.2f read = %3.0f %%  %7.2f Gmac/s;  %lld rows %7.2f Gmac/s = %5.1f x "
      "per token; rounding %.2f ns a value\n",
      kernels.name, std::string(format.name).c_str(), Median(decode) * 1e-9, Median(read) * 1e-9,
      100 * Median(decode) / Median(read), decode_macs * 1e-9, static_cast<long long>(batch),
      Median(batched) * 1e-9, Median(batched) / decode_macs, Median(rounding) * 1e9);
}

}  // namespace
}  // namespace glint::cpu

int main(int argc, char** argv) {
  using namespace glint;
  const int64_t batch = argc > 1 ? std::max(std::atoll(argv[1]), 1ll) : 256;
  std::vector<std::string> names(argv + std::min(argc, 2), argv + argc);
  if (names.empty()) names = {"q8_0", "q4_k", "q6_k", "q5_0", "bf16", "f16", "f32"};
  for (const auto& name : names) {
    const quant::Format* const format = quant::Find(name);
    if (!format || !format->runnable()) {
      std::fprintf(stderr, "product_bench: no format '%s'\n", name.c_str());
      return 1;
    }
    for (const cpu::Kernels* kernels :
         {&cpu::ScalarKernels(), cpu::Avx2Kernels(), cpu::Avx512Kernels(), cpu::Avx512VbmiKernels(), cpu::NeonKernels()})
      if (kernels) cpu::Measure(*kernels, format->type, batch);
  }
}
