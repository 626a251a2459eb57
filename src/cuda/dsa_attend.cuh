// Parts of dsa.attend that live in files of their own.
#pragma once
#include <cstdint>

#include "cuda/context.h"
#include "cuda/digits.h"
#include "cuda/dsa_groups.h"

namespace glint::cuda {

struct AttendArgs {
  const RowView* rows;      // of the group
  const int32_t* selected;  // [rows][width], ascending
  const int32_t* counts;    // [rows]
  float* query;             // [rows][heads][rank]; in the end the mix takes its place
  float* scores;            // [rows][width][lanes]: of all heads
  float* tops;              // [rows][tiles][lanes]: the largest scores of top_entries entries each
  float* sums;              // [rows][heads][parts] the sum of its weights; few rows
  float* mixes;             // [rows][heads][parts][rank]; few rows
  Digits digits;            // none, or of the mixes joined, [rows * heads][rank]; few rows
  int64_t heads, lanes, rank, width, tiles, parts;
  int64_t top_entries;  // a multiple of kAttendTile
  float scale;
  int layer;
};

// Exp (math.cuh) of what is not above zero, or NaN: the same bits, without branches and in fewer steps.
__device__ inline float ExpNotAboveZero(float x) {
  const float shifted = fmaf(x, 1.44269504f, 12582912.0f), n = shifted - 12582912.0f;
  float r = fmaf(n, -0.693145752f, x);
  r = fmaf(n, -1.42860677e-6f, r);
  float p = 1.38145383e-3f;
  p = fmaf(p, r, 8.36874545e-3f);
  p = fmaf(p, r, 4.16683890e-2f);
  p = fmaf(p, r, 1.66665211e-1f);
  p = fmaf(p, r, 4.99999940e-1f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  p *= __int_as_float((__float_as_int(shifted) + 127) << 23);  // n is in the last nine bits
  const float otherwise = x < 0 ? 0.0f : x;                    // small, or NaN
  return x >= -87.33654f ? p : otherwise;
}

// Rows of which each has blocks of its own that keep its queries in shared memory: whether the device has got so much of it; the scores,
// which set args.top_entries; and from them the mix, joined and divided, on any device.
bool HasRoomForScoresByRow(const StepContext& c, int64_t rank);
Status ScoreByRow(const StepContext& c, AttendArgs& args, int64_t rows);
Status MixByRow(const StepContext& c, const AttendArgs& args, int64_t rows);

}  // namespace glint::cuda
