// Matrix products on the GPU in the canonical arithmetic (docs/design.md, "Integer block products"): the CPU's bits, whatever the
// kernel and the number of rows.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "cuda/context.h"
#include "cuda/digits.h"

namespace glint::cuda {

struct PairGroup;
struct ProductArgs;

// Which slice and which row of x each output row r takes.
struct Pairs {
  enum class Kind : uint8_t {
    kSame,    // slice 0, row r of x
    kHeads,   // slice r mod `slices`, row r of x: rows are [row][head]
    kExperts  // slice ids[r], row r / per_row of x: rows are [row][expert used] (per_row 1: row r itself)
  };
  Kind kind = Kind::kSame;
  const int32_t* ids = nullptr;  // device, [rows of y]
  int64_t per_row = 1;
  // kExperts: the launch before this one is a gated one of experts (ProductGate), which lets this begin only when the ids are there.
  // So weights may be asked for without a wait.
  bool chosen = false;
};

// Rows of activations in device memory that several matrices are applied to: rounded to digits once, when the first integer matrix
// asks, unless they are rows of a slot whose digits are there. Rows are x_stride floats apart.
class Operand {
 public:
  // The digits come from c.scratch and live as long as the step.
  Operand(const StepContext& c, const float* x, int64_t x_stride, int64_t rows, int64_t columns)
      : c_(c), x_(x), x_stride_(x_stride), rows_(rows), columns_(columns) {}
  // Rows whose digits a kernel of the step has made; without any (TakeDigits) they are made like the others.
  Operand(const StepContext& c, const float* x, int64_t x_stride, int64_t rows, int64_t columns,
          const Digits& digits)
      : c_(c), x_(x), x_stride_(x_stride), rows_(rows), columns_(columns), digits_(digits) {}
  // y[r][o] = W[slice of r][o] . x[row of r], for out_rows rows y_stride floats apart (0: as many as x has).
  Status Times(const model::Matrix& w, float* y, int64_t y_stride, Pairs pairs = {}, int64_t out_rows = 0);
  // The same of several matrices: in one launch where they are of one type and width.
  struct Target {
    const model::Matrix* w;
    float* y;
    int64_t y_stride;
    int64_t x_column = 0;  // where w's columns begin in the rows of x: a multiple of 32
  };
  Status TimesAll(std::initializer_list<Target> targets, Pairs pairs = {}, int64_t out_rows = 0);
  // SwiGLU of gate's and up's products, in one launch, where every weight row meets one row of x: else (and for shapes and formats that
  // it does not serve) false, and nothing is done.
  struct Gated {
    float* h;  // [out_rows][gate.rows]
    float limit;
    Digits digits;  // of h, to be made on the way; or none
  };
  Result<bool> TimesGated(const model::Matrix& gate, const model::Matrix& up, const Gated& to, Pairs pairs,
                          int64_t out_rows);

 private:
  Status Round();
  bool Groups(const Pairs& pairs, int64_t out_rows, int64_t slices) const;
  // A launch without targets yet, for matrices like w.
  ProductArgs Begin(const Matrix& w, const Pairs& pairs, int64_t out_rows) const;
  // Sorts the pairs by expert, once for all matrices of this operand, and tells the launch.
  Status GroupPairs(const int32_t* ids, int64_t pairs, int64_t experts, int group_rows, ProductArgs& args);
  // Serves the targets of `args`, all of `type`, and forgets them.
  Status Launch(ProductArgs& args, quant::Type type);
  Status Floats(const Matrix& w, const Target& target, const Pairs& pairs, int64_t out_rows);

  const StepContext& c_;
  const float* x_;
  int64_t x_stride_, rows_, columns_;
  Digits digits_;
  int32_t* order_ = nullptr;  // [pairs], then their number of groups
  PairGroup* pair_groups_ = nullptr;
};

// Room in c.scratch for the digits of rows that the step's own kernels round on the way, a warp a block of 32 columns. None where
// whole warps would not fill the rows, or where there is no room.
inline Digits TakeDigits(const StepContext& c, int64_t rows, int64_t columns) {
  if (columns % 256 != 0) return {};
  auto* const memory = c.scratch.Take<std::byte>(Digits::Bytes(rows, columns));
  return memory == nullptr ? Digits{} : Digits::At(memory, rows, columns);
}

// Row token of slice 0, decoded: out[r] = W[ids of the batch's rows][...], [rows][columns], out_stride floats apart.
Status DecodeRows(const StepContext& c, const model::Matrix& w, float* out, int64_t out_stride);

}  // namespace glint::cuda
