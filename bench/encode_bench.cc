// What rounding to each format loses, and how fast it goes: the table of docs/quantization.md, "Encoding". One thread.
//
//   encode_bench [--ggml libggml-base.so] [FORMAT ...]
//
// Weights are 128 rows of 1,024, normal, Student's t with 4 degrees of freedom or Laplace, drawn from fixed seeds; importance is
// log-normal (sigma 1) by column; "unweighted" is the plain error of what was made with it. Errors are relative: sqrt(sum w (x - decoded)^2 / sum w x^2), in per cent; w is 1 without importance.
// NVFP4 is given weights under the second scale of a tensor. With --ggml, that library's quantisers get the same weights and stand
// beside ours, decoded by glint; it is only loaded, and everything else works without it.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "quant/format.h"
#include "quant/nvfp4.h"

namespace glint::quant {
namespace {

constexpr size_t kRows = 128, kColumns = 1024, kCount = kRows * kColumns;

struct Peer {
  // type, weights, blocks, first row, rows, columns, importance of a row's columns or null; bytes written
  size_t (*quantize)(int, const float*, void*, int64_t, int64_t, int64_t, const float*) = nullptr;
  bool (*needs_importance)(int) = nullptr;

  bool Load(const char* path) {
    void* const library = dlopen(path, RTLD_NOW);
    if (!library) return false;
    void* const chunk = dlsym(library, "ggml_quantize_chunk");
    void* const needs = dlsym(library, "ggml_quantize_requires_imatrix");
    if (!chunk || !needs) return false;
    std::memcpy(&quantize, &chunk, sizeof quantize);
    std::memcpy(&needs_importance, &needs, sizeof needs_importance);
    return true;
  }
};

// Seconds this thread has run: on a shared machine the clock on the wall counts others' turns too.
double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

const char* const kNames[] = {"normal", "Student t4", "Laplace"};

std::vector<float> Weights(int distribution) {
  std::mt19937_64 rng(static_cast<uint64_t>(distribution) + 1);
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> student(4);
  std::exponential_distribution<float> exponential;
  std::vector<float> x(kCount);
  for (auto& v : x) {
    v = 0.02f * (distribution == 0   ? normal(rng)
                 : distribution == 1 ? student(rng)
                                     : (rng() % 2 ? 1.0f : -1.0f) * exponential(rng));
  }
  return x;
}

struct Score {
  double weighted = NAN, plain = NAN;  // errors in per cent
  double speed = NAN;                  // million weights per second, the median of three
};

struct Data {
  std::vector<float> x, importance;  // importance: empty, or of all weights

  Score Measure(const Format& format, const std::function<void(std::byte*)>& encode) const {
    std::vector<std::byte> blocks(kCount / format.block_weights * format.block_bytes);
    double seconds[3];
    for (double& s : seconds) {
      const double start = Now();
      encode(blocks.data());
      s = Now() - start;
    }
    std::sort(seconds, seconds + 3);
    std::vector<float> decoded(kCount);
    format.decode(blocks.data(), decoded.data(), kCount);
    double lost = 0, all = 0, plain_lost = 0, plain_all = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double v = x[i], off = v - decoded[i], w = importance.empty() ? 1.0 : importance[i];
      lost += w * off * off, all += w * v * v;
      plain_lost += off * off, plain_all += v * v;
    }
    return {100 * std::sqrt(lost / all), 100 * std::sqrt(plain_lost / plain_all),
            static_cast<double>(kCount) / seconds[1] * 1e-6};
  }
};

// ours, theirs and the ratio of the squared errors
std::string Pair(double ours, double theirs) {
  char text[64];
  const int decimals = ours < 2 ? 3 : 2;
  if (std::isnan(theirs))
    std::snprintf(text, sizeof text, "%.*f | - | -", decimals, ours);
  else
    std::snprintf(text, sizeof text, "%.*f | %.*f | %+.1f %%", decimals, ours, decimals, theirs,
                  100 * (ours * ours / (theirs * theirs) - 1));
  return text;
}

std::string Speeds(double ours, double theirs) {
  char text[64];
  std::snprintf(text, sizeof text, std::isnan(theirs) ? "%.3g" : "%.3g (%.3g)", ours, theirs);
  return text;
}

void Row(const Format& format, const Peer& peer, int distribution, const std::vector<float>& by_column) {
  std::vector<float> x = Weights(distribution);
  if (format.type == Type::kNVFP4) {
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    for (auto& v : x) v /= NVFP4::TensorScale(largest);
  }
  Score ours[2], theirs[2];
  for (const bool weighed : {false, true}) {
    Data data{x, {}};
    for (size_t i = 0; weighed && i < kCount; ++i) data.importance.push_back(by_column[i % kColumns]);
    const float* const importance = weighed ? data.importance.data() : nullptr;
    ours[weighed] =
        data.Measure(format, [&](std::byte* out) { format.encode(x.data(), importance, out, kCount); });
    const int type = static_cast<int>(format.type);
    if (!peer.quantize || (!weighed && peer.needs_importance(type))) continue;
    theirs[weighed] = data.Measure(
        format, [&](std::byte* out) { peer.quantize(type, x.data(), out, 0, kRows, kColumns, importance); });
  }
  std::printf("| %s | %s | %s | %s | %s | %s | %s |\n", std::string(format.name).c_str(),
              kNames[distribution], Pair(ours[0].plain, theirs[0].plain).c_str(),
              Pair(ours[1].weighted, theirs[1].weighted).c_str(),
              Pair(ours[1].plain, theirs[1].plain).c_str(), Speeds(ours[0].speed, theirs[0].speed).c_str(),
              Speeds(ours[1].speed, theirs[1].speed).c_str());
  std::fflush(stdout);
}

}  // namespace
}  // namespace glint::quant

int main(int argc, char** argv) {
  using namespace glint::quant;
  Peer peer;
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.size() >= 2 && names[0] == "--ggml") {
    if (!peer.Load(names[1].c_str())) {
      std::fprintf(stderr, "encode_bench: %s: %s\n", names[1].c_str(), dlerror());
      return 1;
    }
    names.erase(names.begin(), names.begin() + 2);
  }
  std::vector<const Format*> formats;
  for (const auto& name : names) formats.push_back(Find(name));
  for (const Format& format : Formats())
    if (names.empty() && format.integer() && format.encode) formats.push_back(&format);
  std::mt19937_64 rng(4);
  std::lognormal_distribution<float> log_normal(0, 1);
  std::vector<float> by_column(kColumns);
  for (auto& v : by_column) v = log_normal(rng);
  std::printf(
      "| format | weights | no importance: ours | theirs | squared | with importance: ours | theirs | "
      "squared | "
      "unweighted: ours | theirs | squared | M weights/s | with importance |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (size_t i = 0; i < formats.size(); ++i) {
    if (!formats[i] || !formats[i]->encode) {
      std::fprintf(stderr, "encode_bench: no format '%s' that can be made\n", names[i].c_str());
      return 1;
    }
    for (int distribution = 0; distribution < 3; ++distribution)
      Row(*formats[i], peer, distribution, by_column);
  }
}
