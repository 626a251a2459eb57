// Speed of the matrix products: bytes of weights per second for one activation row (decode) beside the read bandwidth measured in
// the same run, with one thread and with two, and multiply-adds per second for many rows (prefill), one thread.
//
//   product_bench [rows of the batch, 256] [FORMAT | KERNELS ...]    all formats, and all kernels but the scalar ones, if none is named
//
// Bandwidth and decode are measured in turns, five times, and the medians printed: on a shared machine both wander together. One thread is
// timed by its own clock, two by the one on the wall.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
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

double WallNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds the buffer up in eight streams of 64-bit additions (vectorised by the compiler).
void Read(const std::byte* data, size_t bytes) {
  static volatile uint64_t sink;
  uint64_t sum[32] = {};
  for (size_t at = 0; at + 256 <= bytes; at += 256) {
    uint64_t v[32];
    std::memcpy(v, data + at, sizeof v);
    for (int i = 0; i < 32; ++i) sum[i] += v[i];
  }
  uint64_t total = 0;
  for (const uint64_t s : sum) total += s;
  sink = sink + total;
}

// 64 different rows, repeated: any codes, scales and minima zero or of moderate size.
std::vector<std::byte> RandomRows(const quant::Format& format, size_t row_bytes, size_t rows) {
  std::mt19937_64 rng(1);
  std::vector<std::byte> buffer(rows * row_bytes);
  const size_t distinct = std::min<size_t>(rows, 64);
  quant::Unpacked u;
  const auto moderate = [&](const std::byte* block) {
    format.unpack(block, u);
    for (size_t i = 0; i < format.block_weights / format.unit; ++i)
      for (const float v : {u.scale[i], u.minimum[i]})
        if (v != 0 && !(std::fabs(v) > 0x1p-30f && std::fabs(v) < 0x1p20f)) return false;
    return true;
  };
  for (size_t at = 0; at < distinct * row_bytes; at += format.block_bytes) {
    if (!format.integer()) {
      std::normal_distribution<float> normal;
      const float v = normal(rng);
      format.encode(&v, nullptr, buffer.data() + at, 1);
      continue;
    }
    do {
      for (size_t i = 0; i < format.block_bytes; ++i) buffer[at + i] = static_cast<std::byte>(rng());
    } while (!moderate(buffer.data() + at));
  }
  for (size_t r = distinct; r < rows; ++r)
    std::memcpy(buffer.data() + r * row_bytes, buffer.data() + r % distinct * row_bytes, row_bytes);
  return buffer;
}

void Measure(const Kernels& kernels, quant::Type type, int64_t batch) {
  const quant::Format& format = *quant::Find(type);
  const int64_t columns = 4096;
  const size_t row_bytes = static_cast<size_t>(columns) / format.block_weights * format.block_bytes;
  const size_t bytes = size_t{192} << 20;  // well beyond the last-level cache
  const auto rows = static_cast<int64_t>(bytes / row_bytes);
  const auto buffer = RandomRows(format, row_bytes, static_cast<size_t>(rows));
  std::mt19937_64 rng(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(columns * batch));
  for (auto& v : x) v = normal(rng);

  const bool slow = std::strcmp(kernels.name, "scalar") == 0;
  model::Matrix w{type, columns, rows, 1, buffer.data(), row_bytes};
  if (slow) w.rows = std::max<int64_t>(rows / 50, 1);
  std::vector<float> y(static_cast<size_t>(rows));
  std::printf("%-10s %-7s", kernels.name, std::string(format.name).c_str());
  double decode_macs = 0;
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    const How how{&kernels, threads == 1 ? nullptr : &pool, true};
    const auto now = [threads] { return threads == 1 ? Now() : WallNow(); };
    std::vector<double> read, decode;
    for (int turn = 0; turn < (slow ? 1 : 5); ++turn) {
      double start = now();
      pool.ParallelFor(buffer.size() / 4096, 1, [&](size_t begin, size_t end, int) {
        Read(buffer.data() + begin * 4096, (end - begin) * 4096);
      });
      read.push_back(static_cast<double>(buffer.size()) / (now() - start));
      start = now();
      Product(how, w, 0, x.data(), columns, 1, y.data(), rows);
      decode.push_back(static_cast<double>(w.bytes()) / (now() - start));
    }
    const double macs = Median(decode) / static_cast<double>(row_bytes) * static_cast<double>(columns);
    if (threads == 1) decode_macs = macs;
    std::printf("  %d thread%s %6.2f GB/s of %6.2f = %3.0f %%, %6.2f Gw/s;", threads, threads == 1 ? "" : "s",
                Median(decode) * 1e-9, Median(read) * 1e-9, 100 * Median(decode) / Median(read), macs * 1e-9);
  }
  w.rows = slow ? 16 : 512;
  const How how{&kernels, nullptr, true};
  std::vector<float> ys(static_cast<size_t>(w.rows * batch));
  Activations prepared;
  Prepare(how, w, x.data(), columns, batch, prepared);
  std::vector<double> batched;
  for (int turn = 0; turn < (slow ? 1 : 3); ++turn) {
    const double start = Now();
    Product(how, w, 0, prepared, ys.data(), w.rows);
    batched.push_back(static_cast<double>(w.rows * columns * batch) / (Now() - start));
  }
  std::printf("  %lld rows %6.1f Gmac/s = %4.1f x\n", static_cast<long long>(batch), Median(batched) * 1e-9,
              Median(batched) / decode_macs);
  std::fflush(stdout);
}

std::vector<const Kernels*> Tables() {
  std::vector<const Kernels*> tables;
  for (const Kernels* t : {Avx2Kernels(), Avx512Kernels(), Avx512VbmiKernels(), NeonKernels()})
    if (t != nullptr) tables.push_back(t);
  return tables;
}

}  // namespace
}  // namespace glint::cpu

int main(int argc, char** argv) {
  using namespace glint;
  const int64_t batch = argc > 1 ? std::max(std::atoll(argv[1]), 1ll) : 256;
  std::vector<const quant::Format*> formats;
  std::vector<const cpu::Kernels*> tables;
  for (int i = 2; i < argc; ++i) {
    const quant::Format* const format = quant::Find(argv[i]);
    const cpu::Kernels* table = std::strcmp(argv[i], "scalar") == 0 ? &cpu::ScalarKernels() : nullptr;
    for (const cpu::Kernels* t : cpu::Tables())
      if (std::strcmp(argv[i], t->name) == 0) table = t;
    if (table != nullptr) {
      tables.push_back(table);
    } else if (format != nullptr && format->runnable()) {
      formats.push_back(format);
    } else {
      std::fprintf(stderr, "product_bench: neither a format nor kernels: '%s'\n", argv[i]);
      return 1;
    }
  }
  if (tables.empty()) tables = cpu::Tables();
  if (formats.empty())
    for (const auto& format : quant::Formats())
      if (format.runnable()) formats.push_back(&format);
  for (const quant::Format* format : formats)
    for (const cpu::Kernels* table : tables) cpu::Measure(*table, format->type, batch);
}
