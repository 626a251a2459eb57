#include "cpu/moe_groups.h"

#include "base/mutation.h"

namespace glint::cpu {

std::vector<ExpertGroup> GroupByExpert(const StepContext& c) {
  const int32_t* const ids = c.Ints(plan::Slot::kExpertIds);
  const int64_t pairs = c.rows * c.hp.experts_used;
  std::vector<ExpertGroup> groups;
  if (!c.how.batched || c.rows == 1) {
    for (int64_t p = 0; p < pairs; ++p) groups.push_back({ids[p], {static_cast<int32_t>(p)}});
    return groups;
  }
  std::vector<int32_t> group_of(static_cast<size_t>(c.hp.experts), -1);
  for (int64_t p = 0; p < pairs; ++p) {
    int32_t& g = group_of[ids[p]];
    if (g < 0) {
      g = static_cast<int32_t>(groups.size());
      groups.push_back({ids[p], {}});
    }
    if (Mutated(Mutation::kExpertGetsOneRow) && !groups[g].pairs.empty()) continue;
    groups[g].pairs.push_back(static_cast<int32_t>(p));
  }
  return groups;
}

namespace {

// The group's rows of `from`, in order, prepared for weights of w's kind.
void Gather(const model::Matrix& w, const Activations& from, const ExpertGroup& group, int64_t pairs_per_row,
            Scratch& scratch, size_t area, Activations& to) {
  const auto n = static_cast<int64_t>(group.pairs.size());
  const auto row = [&](int64_t i) { return group.pairs[i] / pairs_per_row; };
  to.rows = n;
  to.columns = from.columns;
  to.padded = from.padded;
  if (!quant::Find(w.type)->integer()) {
    float* const x = scratch.Floats(area, n * from.columns);
    for (int64_t i = 0; i < n; ++i)
      std::copy_n(from.x + row(i) * from.x_stride, from.columns, x + i * from.columns);
    to.x = x;
    to.x_stride = from.columns;
    return;
  }
  to.order = from.order;
  const int64_t blocks = from.padded / kDigitColumns;
  const auto take = [&](const auto& source, int64_t width, auto& target) {  // [blocks][rows][width]
    target.resize(static_cast<size_t>(blocks * n * width));
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t i = 0; i < n; ++i) {
        std::copy_n(source.data() + (b * from.rows + row(i)) * width, width,
                    target.data() + (b * n + i) * width);
      }
    }
  };
  take(from.digits, kDigitColumns, to.digits);
  take(from.scales, 1, to.scales);
  take(from.sums, 2, to.sums);
}

}  // namespace

void GroupProduct(const StepContext& c, const model::Matrix& w, const ExpertGroup& group, int64_t begin,
                  int64_t end, const Activations& x, int64_t pairs_per_row, Scratch& scratch, size_t area,
                  size_t prepared, float* y, int64_t y_stride, bool packed) {
  const auto n = static_cast<int64_t>(group.pairs.size());
  Activations& rows = scratch.Prepared(prepared);
  Gather(w, x, group, pairs_per_row, scratch, area, rows);
  if (packed || n == 1) {
    float* const first = packed ? y : y + group.pairs[0] * y_stride;
    ProductPart(*c.how.kernels, w, group.expert, begin, end, rows, 0, n, first, y_stride);
    return;
  }
  // The pairs' rows of y do not lie at one distance, so the products go by way of a tile.
  float* const tile = scratch.Floats(area + 1, n * w.rows);
  ProductPart(*c.how.kernels, w, group.expert, begin, end, rows, 0, n, tile, w.rows);
  for (int64_t i = 0; i < n; ++i) {
    std::copy(tile + i * w.rows + begin, tile + i * w.rows + end, y + group.pairs[i] * y_stride + begin);
  }
}

}  // namespace glint::cpu
