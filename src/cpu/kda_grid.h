// The parts of the grid form (docs/design.md, "The grid form of kda.recur") that its canonical stage and its
// levers share.
#pragma once
#include "cpu/context.h"

namespace glint::cpu {

// One head's rows of the unfinished block and its state: pointers to row 0, rows `stride` floats apart.
struct GridHead {
  float *s, *kf, *delta, *g;  // s [K][K]; others [block] rows of K
  int64_t dim, stride;
};

// One head of one row of the pass.
struct GridRow {
  const float *q, *k, *v, *decay;
  float beta;
  float* out;
};

GridHead HeadOf(const StepContext& c, const SegmentView& segment, int64_t head);
GridRow RowOf(const StepContext& c, const SegmentView& segment, int64_t row, int64_t head);

// Leaves G_t and kF_t of row t of the block in the state, and gives kE and qE [K].
void Decay(const Kernels& kernels, const GridHead& head, int64_t t, const GridRow& row, float* ke, float* qe);
// sums[r][j] = sum over i of weights[r][i] S[i][j], from +0: the part of m (with kE) and of o (with qE) that is in S.
void ReadState(const Kernels& kernels, const GridHead& head, const float* weights, int64_t rows, float* sums);
// Given m and o with their sums over i done: the terms of rows s <= t of the block; leaves delta_t in the
// state and the output in row.out. weights: scratch [2 * block].
void Finish(const Kernels& kernels, const GridHead& head, int64_t t, const GridRow& row, const float* ke,
            const float* qe, float* m, float* o, float* weights);
// After the block's last row: S takes in its rows.
void Fold(const Kernels& kernels, const GridHead& head, int64_t block, float* decay);

}  // namespace glint::cpu
