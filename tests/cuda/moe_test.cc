// The stages of experts on the GPU against the CPU's products and against the definition of the choice, in shapes that the models of the
// other tests don't have: every format of the kernel of one row, hundreds of experts, ties, NaN.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "base/math.h"
#include "cpu/product.h"
#include "cuda/context.h"
#include "cuda/tables.h"
#include "cuda/weights.h"
#include "model/model_data.h"
#include "quant/format.h"
#include "tests/cuda/gpu_test_base.h"

namespace glint::test {
namespace {

using plan::Slot;
using quant::Type;

// A small model's: what is beside the experts must make sense, too.
model::HParams AnyHParams() {
  const auto model = model::LoadSynthetic("tiny,recipe=q8_0");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model->hparams;
}

// A layer whose experts are all there is, and the buffers of a pass over it.
class Layer {
 public:
  Layer(model::HParams hp, const model::MoeFfn& moe, int64_t rows) : hp_(std::move(hp)), rows_(rows) {
    weights_.layers.resize(1);
    weights_.layers[0].moe = moe;
    auto context = cuda::Context::Create(0);
    EXPECT_TRUE(context.ok()) << context.status().message();
    context_.emplace(std::move(*context));
    auto loaded = cuda::DeviceWeights::Load(*context_, hp_, weights_, {});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    on_device_ = std::move(*loaded);
    auto tables = cuda::DeviceTables::Load(*context_);
    EXPECT_TRUE(tables.ok()) << tables.status().message();
    tables_.emplace(std::move(*tables));
    uint64_t at = 0;
    for (size_t i = 0; i < places_.size(); ++i) {
      const auto slot = static_cast<Slot>(i);
      if (slot == Slot::kLogits) continue;
      places_[i] = {at, static_cast<uint64_t>(rows_ * plan::Width(slot, hp_)) * 4};
      at += (places_[i].bytes + 255) / 256 * 256;
    }
    buffers_ = Take(at, 0xff);
    digits_memory_ = Take(cuda::SlotDigits::Bytes(hp_, rows_), 0xff);
    scratch_ = Take(cuda::ScratchBytes(hp_, rows_, 64), 0xff);
    arrived_ = Take(256, 0);
  }

  template <class T>
  void Put(Slot slot, const std::vector<T>& values) {
    ASSERT_EQ(cudaMemcpy(At(slot), values.data(), values.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
  }
  template <class T>
  std::vector<T> Get(Slot slot) {
    std::vector<T> values(places_[static_cast<size_t>(slot)].bytes / 4);
    EXPECT_EQ(cudaMemcpy(values.data(), At(slot), values.size() * 4, cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }
  template <class Function>
  void Run(bool keep_digits, const Function& function) {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cuda::Scratch scratch(scratch_.data(), scratch_.bytes());
    cuda::SlotDigits digits(hp_, rows_, digits_memory_.data());
    const plan::Step step{};
    cuda::How how;
    how.tensor_cores = true;
    cuda::DeviceBatch batch;
    batch.arrived = reinterpret_cast<uint32_t*>(arrived_.data());
    const cuda::StepContext c{hp_,
                              weights_,
                              *on_device_,
                              *tables_,
                              step,
                              plan::Pass::kTrunk,
                              weights_.layers.data(),
                              rows_,
                              1,
                              0,
                              0,
                              batch,
                              how,
                              0,
                              0,
                              places_,
                              buffers_.data(),
                              scratch,
                              context_->device(),
                              context_->stream(),
                              context_->side(),
                              keep_digits ? &digits : nullptr,
                              context_->device().compiled_major >= 9};
    const Status status = function(c);
    ASSERT_TRUE(status.ok()) << status.message();
    const Status end = context_->Wait();
    ASSERT_TRUE(end.ok()) << end.message();
  }

 private:
  cuda::DeviceMemory Take(uint64_t bytes, int value) {
    auto memory = cuda::DeviceMemory::Take(*context_, std::max<uint64_t>(bytes, 256), "a test");
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    EXPECT_EQ(cudaMemset(memory->data(), value, memory->bytes()), cudaSuccess);
    return std::move(*memory);
  }
  std::byte* At(Slot slot) { return buffers_.data() + places_[static_cast<size_t>(slot)].offset; }

  model::HParams hp_;
  int64_t rows_;
  model::Weights weights_;
  std::optional<cuda::Context> context_;
  std::unique_ptr<cuda::DeviceWeights> on_device_;
  std::optional<cuda::DeviceTables> tables_;
  std::vector<plan::BufferLayout::Place> places_{static_cast<size_t>(Slot::kCount)};
  cuda::DeviceMemory buffers_, digits_memory_, scratch_, arrived_;
};

std::vector<float> Normals(std::mt19937_64& rng, int64_t n, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(rng);
  return values;
}

// ---- the chosen experts' products ----

// A matrix of any codes, signs and scales, of sane magnitudes: the bytes are random but for the exponent of each block's own scale.
struct AnyMatrix {
  AnyMatrix(std::mt19937_64& rng, Type type, int64_t slices, int64_t rows, int64_t columns,
            bool with_scales) {
    const quant::Format& format = *quant::Find(type);
    w.type = type, w.columns = columns, w.rows = rows, w.slices = slices;
    w.row_bytes = *quant::RowBytes(format, static_cast<uint64_t>(columns));
    bytes.resize(w.bytes());
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    for (size_t at = 0; at < bytes.size(); at += format.block_bytes) {
      // Half numbers of 2^-8 to 2^-7; IQ1_M has the highest bits of its own in those of its last byte.
      std::byte& high = bytes[at + (type == Type::kIQ1_M ? format.block_bytes - 1 : 1)];
      high = type == Type::kIQ1_M ? (high & std::byte{15}) | std::byte{0x20}
                                  : (high & std::byte{3}) | std::byte{0x1c};
    }
    if (with_scales) {
      scales = Normals(rng, slices);
      w.scales = scales.data();
    }
    w.data = bytes.data();
  }
  model::Matrix w;
  std::vector<std::byte> bytes;
  std::vector<float> scales;
};

class GpuProductExperts : public GpuTest<testing::TestWithParam<Type>> {};

INSTANTIATE_TEST_SUITE_P(Grids, GpuProductExperts,
                         testing::Values(Type::kIQ3_XXS, Type::kIQ3_S, Type::kIQ2_XXS, Type::kIQ2_XS,
                                         Type::kIQ2_S, Type::kIQ1_S, Type::kIQ1_M),
                         [](const auto& p) { return std::string(quant::Name(p.param)); });

// Gate and up with SwiGLU in one launch, with the digits of its outcome (256 rows) and without (96), then down.
TEST_P(GpuProductExperts, HaveTheCpusBits) {
  struct Case {
    int64_t rows, used, hidden, width;
    bool scales, keep_digits;
  };
  for (const Case& k : {Case{1, 8, 1280, 256, true, true}, Case{3, 8, 256, 256, false, true},
                        Case{1, 1, 2304, 256, false, false}, Case{2, 5, 512, 96, true, false},
                        Case{1, 8, 4096, 512, false, true}}) {
    const uint64_t seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", rows " << k.rows << ", used " << k.used
                                    << ", hidden " << k.hidden << ", width " << k.width);
    std::mt19937_64 rng(seed);
    const int64_t experts = 9, pairs = k.rows * k.used;
    AnyMatrix gate(rng, GetParam(), experts, k.width, k.hidden, k.scales),
        up(rng, GetParam(), experts, k.width, k.hidden, k.scales),
        down(rng, k.width % 256 == 0 ? GetParam() : Type::kQ8_0, experts, k.hidden, k.width, k.scales);
    // A scale that is not a number, in one expert.
    if (GetParam() != Type::kIQ1_M) gate.bytes[1] = std::byte{0x7e};
    model::HParams hp = AnyHParams();
    hp.hidden = k.hidden, hp.experts = experts, hp.experts_used = k.used, hp.expert_ffn = k.width;
    hp.swiglu_limit = 7;
    model::MoeFfn moe;
    moe.gate = gate.w, moe.up = up.w, moe.down = down.w;
    Layer layer(hp, moe, k.rows);

    const std::vector<float> x = Normals(rng, k.rows * k.hidden);
    std::vector<int32_t> ids;
    for (int64_t r = 0; r < k.rows; ++r) {
      std::vector<int32_t> all(static_cast<size_t>(experts));
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), rng);
      std::sort(all.begin(), all.begin() + k.used);
      ids.insert(ids.end(), all.begin(), all.begin() + k.used);
    }
    const cpu::How how{&cpu::FastestKernels(), nullptr, true};
    std::vector<float> hidden(static_cast<size_t>(pairs * k.width)), g(static_cast<size_t>(k.width)),
        u = g, out(static_cast<size_t>(pairs * k.hidden));
    for (int64_t p = 0; p < pairs; ++p) {
      const int32_t e = ids[static_cast<size_t>(p)];
      cpu::Product(how, gate.w, e, x.data() + p / k.used * k.hidden, k.hidden, 1, g.data(), k.width);
      cpu::Product(how, up.w, e, x.data() + p / k.used * k.hidden, k.hidden, 1, u.data(), k.width);
      float* const h = hidden.data() + p * k.width;
      cpu::ScalarKernels().swiglu(g.data(), u.data(), hp.swiglu_limit, h, k.width);
      cpu::Product(how, down.w, e, h, k.width, 1, out.data() + p * k.hidden, k.hidden);
    }

    ASSERT_NO_FATAL_FAILURE(layer.Put(Slot::kX, x));
    ASSERT_NO_FATAL_FAILURE(layer.Put(Slot::kExpertIds, ids));
    ASSERT_NO_FATAL_FAILURE(layer.Run(k.keep_digits, [&](const cuda::StepContext& c) {
      const Status s = cuda::MoeGateUp(c);
      return s.ok() ? cuda::MoeDown(c) : s;
    }));
    const auto of_hidden = layer.Get<float>(Slot::kMoeHidden), of_out = layer.Get<float>(Slot::kExpertOut);
    const int64_t at = FirstDifference(hidden, of_hidden);
    ASSERT_EQ(at, -1) << "pair " << at / k.width << ", column " << at % k.width << ": "
                      << hidden[static_cast<size_t>(at)] << " on the CPU, "
                      << of_hidden[static_cast<size_t>(at)] << " on the GPU";
    const int64_t other = FirstDifference(out, of_out);
    ASSERT_EQ(other, -1) << "pair " << other / k.hidden << ", output " << other % k.hidden << ": "
                         << out[static_cast<size_t>(other)] << " on the CPU, "
                         << of_out[static_cast<size_t>(other)] << " on the GPU";
  }
}

// ---- the router ----

class GpuRoute : public GpuTest<> {};

// Straight from the definition: the highest sums of sigmoid and bias, ties to the lower id, NaN last; in ascending id.
void Choose(const model::HParams& hp, const float* logits, const float* bias, int32_t* ids, float* weights) {
  std::vector<float> score(static_cast<size_t>(hp.experts));
  for (size_t e = 0; e < score.size(); ++e) score[e] = Sigmoid(logits[e]) + bias[e];
  std::vector<int32_t> order(score.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = score[static_cast<size_t>(a)], y = score[static_cast<size_t>(b)];
    return std::isnan(y) ? !std::isnan(x) : x > y;
  });
  std::copy_n(order.begin(), hp.experts_used, ids);
  std::sort(ids, ids + hp.experts_used);
  float sum = 0;
  for (int64_t k = 0; k < hp.experts_used; ++k) sum += weights[k] = Sigmoid(logits[ids[k]]);
  for (int64_t k = 0; k < hp.experts_used; ++k) {
    weights[k] *= hp.routed_scale;
    if (hp.norm_topk) weights[k] /= sum + hp.router_eps;
  }
}

TEST_F(GpuRoute, ChoosesByTheDefinition) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  for (const int64_t experts : {33, 288, 384, 385, 1024}) {
    for (const int64_t used : {1, 8, 33}) {
      model::HParams hp = AnyHParams();
      hp.hidden = 48, hp.experts = experts, hp.experts_used = used;
      hp.routed_scale = 2.5f, hp.norm_topk = used != 1, hp.swiglu_limit = 7;
      std::vector<float> router = Normals(rng, experts * hp.hidden, 0.2f),
                         bias = Normals(rng, experts, 0.05f);
      // Ties of neighbours and of experts a warp apart: the same weights and bias.
      for (int64_t e = 0; e + 32 < experts; e += 7)
        for (const int64_t other : {e + 1, e + 32}) {
          std::copy_n(router.begin() + e * hp.hidden, hp.hidden, router.begin() + other * hp.hidden);
          bias[static_cast<size_t>(other)] = bias[static_cast<size_t>(e)];
        }
      bias[5] = std::numeric_limits<float>::quiet_NaN();
      bias[9] = std::numeric_limits<float>::infinity();
      bias[20] = -std::numeric_limits<float>::infinity();
      model::MoeFfn moe;
      moe.router.type = Type::kF32;
      moe.router.columns = hp.hidden, moe.router.rows = experts, moe.router.slices = 1;
      moe.router.row_bytes = static_cast<size_t>(hp.hidden) * 4;
      moe.router.data = reinterpret_cast<const std::byte*>(router.data());
      moe.router_bias = bias;
      for (int64_t rows = 1; rows <= 9; rows += used == 8 ? 1 : 4) {
        SCOPED_TRACE(testing::Message() << experts << " experts, " << used << " used, " << rows << " rows");
        Layer layer(hp, moe, rows);
        std::vector<float> x = Normals(rng, rows * hp.hidden);
        if (rows > 1) {
          std::fill_n(x.begin(), hp.hidden, 0.0f);  // all sigmoids are equal
          x[static_cast<size_t>(hp.hidden)] = std::numeric_limits<float>::quiet_NaN();  // none is a number
        }
        if (rows > 2) std::fill_n(x.begin() + 2 * hp.hidden, hp.hidden, 1e6f);  // they are 0 or 1
        std::vector<float> logits(static_cast<size_t>(rows * experts)),
            weights(static_cast<size_t>(rows * used));
        std::vector<int32_t> ids(weights.size());
        const cpu::How how{&cpu::ScalarKernels(), nullptr, false};
        cpu::Product(how, moe.router, 0, x.data(), hp.hidden, rows, logits.data(), experts);
        for (int64_t r = 0; r < rows; ++r)
          Choose(hp, logits.data() + r * experts, bias.data(), ids.data() + r * used,
                 weights.data() + r * used);
        ASSERT_NO_FATAL_FAILURE(layer.Put(Slot::kX, x));
        // Twice: what the first leaves behind is there for the second.
        for (int turn = 0; turn < 2; ++turn) {
          ASSERT_NO_FATAL_FAILURE(layer.Run(true, cuda::MoeRoute));
          ASSERT_EQ(layer.Get<int32_t>(Slot::kExpertIds), ids);
          ASSERT_EQ(FirstDifference(logits, layer.Get<float>(Slot::kRouterLogits)), -1);
          ASSERT_EQ(FirstDifference(weights, layer.Get<float>(Slot::kExpertWeights)), -1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace glint::test
