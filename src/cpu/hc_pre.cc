// spec/model.md 4.1: three small mixes of the streams (pre, post, comb) and the collapsed input of a
// sublayer.
#include <algorithm>

#include "base/math.h"
#include "base/mutation.h"
#include "cpu/stages.h"

namespace glint::cpu {
namespace {

// 1 / RMS of all streams of a row: the sum of squares in parts of 1,024 columns, parts in order, so that a device may share them out.
float InverseRmsOfStreams(const Kernels& kernels, const float* x, int64_t n, float eps) {
  constexpr int64_t kPart = 1024;
  float sum = kernels.dot16(x, x, std::min(n, kPart));
  for (int64_t at = kPart; at < n; at += kPart) sum += kernels.dot16(x + at, x + at, std::min(n - at, kPart));
  return 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
}

// M[j][h], j source stream, h destination: softmax of each row plus eps, a column step, then iters - 1 times
// a row step and a column step. `m` holds the logits and receives the matrix. All sums in index order.
void Sinkhorn(float* m, int64_t n, int64_t iters, float eps) {
  for (int64_t j = 0; j < n; ++j) {
    float* const row = m + j * n;
    float top = row[0];
    for (int64_t h = 1; h < n; ++h) top = std::max(top, row[h]);
    float sum = 0;
    for (int64_t h = 0; h < n; ++h) {
      row[h] = Exp(row[h] - top);
      sum += row[h];
    }
    for (int64_t h = 0; h < n; ++h) row[h] = row[h] / sum + eps;
  }
  const auto columns = [&] {
    for (int64_t h = 0; h < n; ++h) {
      float sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += m[j * n + h];
      sum += eps;
      for (int64_t j = 0; j < n; ++j) m[j * n + h] /= sum;
    }
  };
  columns();
  for (int64_t i = 1; i < iters; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float* const row = m + j * n;
      float sum = 0;
      for (int64_t h = 0; h < n; ++h) sum += row[h];
      sum += eps;
      for (int64_t h = 0; h < n; ++h) row[h] /= sum;
    }
    columns();
  }
}

}  // namespace

void HcPre(const StepContext& c) {
  const int64_t d = c.hp.hidden, n = c.hp.hc_mult, mix = c.hp.hc_mix();
  const model::HcSite& site = c.step.site == plan::Step::Site::kAttn ? c.layer->hc_attn : c.layer->hc_ffn;
  const float* const streams = c.Floats(plan::Slot::kStreams);
  float* const collapsed = c.Floats(plan::Slot::kCollapsed);
  float* const post = c.Floats(plan::Slot::kPost);
  float* const comb = c.Floats(plan::Slot::kComb);

  float* const z = c.scratch.Floats(0, c.rows * mix);
  Operand(c, c.how, streams, n * d, c.rows, c.scratch).Times(site.fn, 0, z, mix);

  c.Parallel(c.rows, 1, [&](int64_t begin, int64_t end, Scratch&) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const x = streams + r * n * d;
      float* const zr = z + r * mix;
      const float rms = InverseRmsOfStreams(*c.how.kernels, x, n * d, c.hp.rms_eps);
      // The norm is a scalar, so it is applied to the products. Slices of z: n pre, n post, n * n comb.
      const auto logit = [&](int64_t i, int slice) {
        return std::fma(zr[i] * rms, site.scale[slice], site.base[i]);
      };
      float* const out = collapsed + r * d;
      std::fill(out, out + d, 0.0f);
      float* const pre = zr;  // each logit is used once
      for (int64_t h = 0; h < n; ++h) {
        pre[h] = Sigmoid(logit(h, 0)) + c.hp.hc_eps;
        post[r * n + h] = 2.0f * Sigmoid(logit(n + h, 1));
      }
      CombineArgs args{};
      args.a = pre;
      args.a_step = 1;
      args.x = Mutated(Mutation::kStreamsSwapped) ? x + (n - 1) * d : x;
      args.x_stride = Mutated(Mutation::kStreamsSwapped) ? -d : d;
      args.n = n;
      args.dst = out;
      args.rows = 1;
      args.width = d;
      c.how.kernels->combine(args);
      float* const m = comb + r * n * n;
      for (int64_t i = 0; i < n * n; ++i) m[i] = logit(2 * n + i, 2);
      Sinkhorn(m, n, c.hp.sinkhorn_iters, c.hp.hc_eps);
    }
  });
}

}  // namespace glint::cpu
