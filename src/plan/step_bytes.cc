#include "plan/step_bytes.h"

#include <algorithm>
#include <cmath>

#include "plan/weight_bytes.h"

namespace glint::plan {
namespace {

constexpr double kFloat = 4;

double D(int64_t n) { return static_cast<double>(n); }

class Counter {
 public:
  Counter(const Step& step, const model::HParams& hp, const model::Weights& weights, const PassShape& shape)
      : step_(step), hp_(hp), weights_(weights), shape_(shape) {}

  double Weights(Stage stage) const {
    const double one = static_cast<double>(WeightBytes(hp_, weights_, stage, step_.layer, step_.site));
    const double row = static_cast<double>(weights_.embedding.row_bytes);
    switch (stage) {
      case Stage::kEmbed:
        return one * D(shape_.rows);
      case Stage::kMtpInput:
        return one + row * D(shape_.rows - 1);
      case Stage::kMoeGateUp:
      case Stage::kMoeDown:
        return one / D(hp_.experts_used) * Experts();
      case Stage::kHeadLogits:
        return shape_.wanted > 0 ? one : 0;
      default:
        return one;
    }
  }

  double State(Stage stage) const {
    const int64_t first = shape_.position, rows = shape_.rows, end = first + rows;
    switch (stage) {
      case Stage::kKdaConv: {  // the rows before the pass that its taps reach, and its own for those to come
        const int64_t ring = hp_.block + hp_.conv_kernel - 1;
        return kFloat * 3 * D(hp_.kda_width()) *
               D(std::min(first, hp_.conv_kernel - 1) + std::min(rows, ring));
      }
      case Stage::kKdaRecur: {
        // S is read once a pass at least; each block that ends writes it, and a pass over several keeps it at hand between. Of an open
        // block the rows before the pass are read (kF, delta; the last one's G), and what is open after it is written (and G).
        const double s = D(hp_.kda_heads * hp_.kda_head_dim * hp_.kda_head_dim), row = D(hp_.kda_width());
        const bool folds = end / hp_.block > first / hp_.block;
        const int64_t open_before = first % hp_.block, open_after = std::min(end % hp_.block, rows);
        return kFloat *
               (s * (folds ? 2 : 1) + row * D(2 * open_before + (open_before > 0 ? 1 : 0) + 3 * open_after));
      }
      case Stage::
          kDsaIndex: {  // raw rows (key and gate): those of the open pool before, the pass's own for the ring
        const int64_t ring = hp_.block + hp_.index_kpool;
        const int64_t open = end / hp_.index_kpool > first / hp_.index_kpool ? first % hp_.index_kpool : 0;
        return kFloat * 2 * D(hp_.index_head_dim) * D(open + std::min(rows, ring));
      }
      default:
        return 0;
    }
  }

  double Cache(Stage stage) const {
    const int64_t first = shape_.position, rows = shape_.rows, end = first + rows, pool = hp_.index_kpool;
    const double latent = D(shape_.cache_entry * hp_.kv_lora_rank);
    const double pooled = D(shape_.cache_entry * hp_.index_head_dim);
    switch (stage) {
      case Stage::kDsaKv:
        return latent * D(rows);
      case Stage::kDsaIndex:
        return pooled * D(end / pool - first / pool);
      case Stage::kDsaSelect:  // while all pools fit, no score is computed
        return end / pool > hp_.pools_kept() ? pooled * D(end / pool) : 0;
      case Stage::kDsaAttend: {
        // Rows may choose different positions; at most each visible one is read.
        double selected = 0;
        for (int64_t visible = first + 1; visible <= end && selected < D(end); ++visible) {
          const int64_t pools = visible / pool;
          selected += D(pools <= hp_.pools_kept() ? visible : hp_.pools_kept() * pool + visible % pool);
        }
        return latent * std::min(selected, D(end));
      }
      default:
        return 0;
    }
  }

  double Activations(const std::vector<Slot>& slots) const {
    double bytes = 0;
    for (const Slot slot : slots) {
      bytes += kFloat * D(Width(slot, hp_) * (slot == Slot::kLogits ? shape_.wanted : shape_.rows));
    }
    return bytes;
  }

 private:
  double Experts() const {
    const auto layer = static_cast<size_t>(std::max(step_.layer, 0));
    return layer < shape_.experts.size() ? shape_.experts[layer] : ExpectedExperts(hp_, shape_.rows);
  }

  const Step& step_;
  const model::HParams& hp_;
  const model::Weights& weights_;
  const PassShape& shape_;
};

}  // namespace

double ExpectedExperts(const model::HParams& hp, int64_t rows) {
  const double all = D(hp.experts), used = D(hp.experts_used);
  return all == 0 ? 0 : all * (1 - std::pow(1 - used / all, D(rows)));
}

StepBytes BytesOf(const Step& step, const model::HParams& hp, const model::Weights& weights,
                  const PassShape& shape) {
  const Counter counter(step, hp, weights, shape);
  StepBytes bytes;
  for (const Stage stage : step.covers) {
    bytes.weights += counter.Weights(stage);
    bytes.state += counter.State(stage);
    bytes.cache += counter.Cache(stage);
  }
  bytes.activations = counter.Activations(step.in) + counter.Activations(step.out);
  return bytes;
}

}  // namespace glint::plan
