// The grid form of kda.recur against the plain recurrence (spec/model.md 5.3) in double precision, and kda.block against it
// bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/cpu/bench.h"

namespace glint::test {
namespace {

using plan::Slot;

enum class Decays { kMild, kMixed, kAtTheBound };

struct Inputs {
  std::vector<float> qkv, decay, beta, s;
};

Inputs Random(const model::HParams& hp, int rows, Decays decays, std::mt19937_64& rng) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  const int64_t width = hp.kda_width(), dim = hp.kda_head_dim;
  Inputs in;
  in.qkv.resize(rows * 3 * width), in.decay.resize(rows * width), in.beta.resize(rows * hp.kda_heads);
  in.s.resize(hp.kda_heads * dim * dim);
  for (float& x : in.qkv) x = normal(rng);
  for (int r = 0; r < rows; ++r) {  // q and k to unit length, as kda.conv leaves them; q scaled
    for (int64_t head = 0; head < 2 * hp.kda_heads; ++head) {
      float* x = in.qkv.data() + r * 3 * width + head * dim;
      double sum = 0;
      for (int64_t i = 0; i < dim; ++i) sum += static_cast<double>(x[i]) * x[i];
      const double scale =
          1 / std::sqrt(sum) / (head < hp.kda_heads ? std::sqrt(static_cast<double>(dim)) : 1);
      for (int64_t i = 0; i < dim; ++i) x[i] = static_cast<float>(x[i] * scale);
    }
  }
  for (float& g : in.decay) {
    const float u = uniform(rng);
    g = decays == Decays::kMild         ? -0.01f * u
        : decays == Decays::kAtTheBound ? -5.0f + 1e-4f * u
        : uniform(rng) < 0.5f           ? -5.0f * u
                                        : -0.02f * u;
  }
  for (float& b : in.beta) b = uniform(rng);
  for (float& s : in.s) s = normal(rng);
  return in;
}

// Token by token. Returns the outputs; s becomes the state after them.
std::vector<double> Recurrence(const model::HParams& hp, const Inputs& in, int rows, std::vector<double>& s) {
  const int64_t width = hp.kda_width(), dim = hp.kda_head_dim;
  std::vector<double> out(rows * width);
  s.assign(in.s.begin(), in.s.end());
  for (int r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < hp.kda_heads; ++h) {
      double* state = s.data() + h * dim * dim;
      const float* q = in.qkv.data() + r * 3 * width + h * dim;
      for (int64_t i = 0; i < dim; ++i) {
        for (int64_t j = 0; j < dim; ++j)
          state[i * dim + j] *= std::exp(static_cast<double>(in.decay[r * width + h * dim + i]));
      }
      for (int64_t j = 0; j < dim; ++j) {
        double read = 0;
        for (int64_t i = 0; i < dim; ++i) read += state[i * dim + j] * q[width + i];
        const double delta = in.beta[r * hp.kda_heads + h] * (q[2 * width + j] - read);
        for (int64_t i = 0; i < dim; ++i) {
          state[i * dim + j] += q[width + i] * delta;
          out[r * width + h * dim + j] += state[i * dim + j] * q[i];
        }
      }
    }
  }
  return out;
}

struct Result {
  std::vector<float> out, state;
};

// The rows in pieces of `piece`, the first at the start of a block with the state of `in`.
Result RunGrid(const SmallModel& m, const Inputs& in, int rows, int piece, cpu::StageFunction stage,
               const cpu::Kernels& kernels, int threads) {
  const int64_t width = m.hp.kda_width();
  Bench bench(m, rows, 4096, threads);
  const cpu::KdaState state = bench.state->Kda(0);
  std::copy(in.s.begin(), in.s.end(), state.s);
  Result result;
  const int64_t start = 5 * m.hp.block;
  for (int at = 0; at < rows; at += piece) {
    const int count = std::min(piece, rows - at);
    std::copy_n(in.qkv.begin() + at * 3 * width, count * 3 * width, bench.Floats(Slot::kQkv));
    std::copy_n(in.decay.begin() + at * width, count * width, bench.Floats(Slot::kDecay));
    std::copy_n(in.beta.begin() + at * m.hp.kda_heads, count * m.hp.kda_heads, bench.Floats(Slot::kBeta));
    bench.Run(stage, 0, start + at, count, kernels, false);
    result.out.insert(result.out.end(), bench.Floats(Slot::kMixed),
                      bench.Floats(Slot::kMixed) + count * width);
  }
  result.state.assign(state.s, state.s + in.s.size());
  return result;
}

class KdaRecur : public testing::TestWithParam<Decays> {
 protected:
  void SetUp() override {
    MakeSmall(model_, seed_, false);
    rng_.seed(seed_);
  }
  const uint64_t seed_ = std::random_device{}();
  SmallModel model_;
  std::mt19937_64 rng_;
};

INSTANTIATE_TEST_SUITE_P(
    Decays, KdaRecur, testing::Values(Decays::kMild, Decays::kMixed, Decays::kAtTheBound), [](const auto& p) {
      return p.param == Decays::kMild ? "Mild" : p.param == Decays::kMixed ? "Mixed" : "AtTheBound";
    });

// Factoring exp(G_t - G_s) as E_t F_s costs the relative error of two exponentials and of G's rounding, 8e-6 at the bound
// (docs/design.md); sums of 16 rows and K terms stay below 3e-5 of the largest output.
TEST_P(KdaRecur, AgreesWithThePlainRecurrenceInDouble) {
  SCOPED_TRACE(seed_);
  const int block = static_cast<int>(model_.hp.block);
  for (const int rows : {1, 2, block - 1, block, block + 1, 2 * block, 3 * block + 4}) {
    SCOPED_TRACE(rows);
    const Inputs in = Random(model_.hp, rows, GetParam(), rng_);
    std::vector<double> state;
    const auto want = Recurrence(model_.hp, in, rows, state);
    const Result got = RunGrid(model_, in, rows, rows, cpu::KdaRecur, cpu::ScalarKernels(), 1);
    double largest = 0;
    for (const double x : want) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], got.out[i], 3e-5 * largest) << i;
    if (rows % block != 0) continue;  // S stands at the last boundary
    largest = 0;
    for (const double x : state) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < state.size(); ++i)
      ASSERT_NEAR(state[i], got.state[i], 3e-5 * largest) << "state " << i;
  }
}

TEST_P(KdaRecur, TheBlockLeverHasTheCanonicalBitsForEveryCut) {
  SCOPED_TRACE(seed_);
  const int block = static_cast<int>(model_.hp.block), rows = 3 * block + 4;
  const Inputs in = Random(model_.hp, rows, GetParam(), rng_);
  const Result want = RunGrid(model_, in, rows, 1, cpu::KdaRecur, cpu::ScalarKernels(), 1);
  for (const cpu::StageFunction stage : {&cpu::KdaRecur, &cpu::KdaBlock}) {
    for (const cpu::Kernels* kernels : AllKernels()) {
      for (const int threads : {1, 2, 4}) {
        for (const int piece : {1, 2, 7, block - 1, block, block + 1, 2 * block + 3, rows}) {
          SCOPED_TRACE(testing::Message()
                       << kernels->name << " threads " << threads << " pieces of " << piece);
          const Result got = RunGrid(model_, in, rows, piece, stage, *kernels, threads);
          ASSERT_EQ(0, std::memcmp(want.out.data(), got.out.data(), want.out.size() * 4));
          ASSERT_EQ(0, std::memcmp(want.state.data(), got.state.data(), want.state.size() * 4));
        }
      }
    }
  }
}

}  // namespace
}  // namespace glint::test
