// NVFP4: 64 weights of 4-bit floats (E2M1) in 4 units of 16, each under an unsigned 8-bit float (E4M3); 4.5 bits a weight.
// Source: the public GGUF block formats, type 40. (Files of this type may carry one more scale for a whole tensor, in a tensor of
// its own: not a matter of the block.)
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/fit.h"
#include "quant/fit_kernels.h"
#include "quant/format.h"
#include "quant/fp4.h"

namespace glint::quant {

struct NVFP4 {
  static constexpr size_t kWeights = 64, kBytes = 36, kUnit = 16, kUnits = kWeights / kUnit;
  static constexpr bool kMinima = false;
  // The least magnitude that a block alone, without a second scale, has no place for: half a code above the largest, 6 * 448.
  static constexpr float kTooLarge = 7 * 448;

  struct Block {                        // as on disk
    std::array<uint8_t, kUnits> scale;  // see Scale
    std::array<uint8_t, kWeights / 2>
        code;  // unit u: code i in the low nibble of byte 8 u + i, code i + 8 in the high one
  };           // weight = scale / 2 * doubled code, exact: 4 + 4 significant bits
  static_assert(sizeof(Block) == kBytes);

  // Half of the E4M3 value, whose codes are doubled. The top bit, a sign elsewhere, is not read; 0x7f, a NaN in E4M3, stands for 0,
  // but 0xff for 480: so the gguf package has it.
  static float Scale(uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if (bits == 0x7f) return 0;
    if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
    const auto high = static_cast<uint32_t>(exponent + 119), low = static_cast<uint32_t>(mantissa);
    return std::bit_cast<float>(high << 23 | low << 20);
  }

  static void Unpack(const std::byte* in, Unpacked& out) {
    Block b;
    std::memcpy(&b, in, kBytes);
    for (size_t u = 0; u < kUnits; ++u) {
      for (size_t i = 0; i < 8; ++i) {
        const uint8_t byte = b.code[u * 8 + i];
        out.code[u * kUnit + i] = kFp4Doubled[byte & 15];
        out.code[u * kUnit + i + 8] = kFp4Doubled[byte >> 4];
      }
      out.scale[u] = Scale(b.scale[u]);
      out.minimum[u] = 0;
    }
  }

  // The second scale of a tensor whose largest magnitude is `largest`: a power of two (1 for zeros), so that dividing by it is exact. It
  // puts the largest weight into [512, 1024), whose unit then has a scale of 85 to 341 of the 448 there are, whether its largest
  // code is 6 or 3; units keep all their 4 bits of scale down to weights 2^-13 times the largest. Without it weights of the usual
  // size, 0.02, have scales among E4M3's subnormal numbers, and lose four times as much as they must.
  // What is encoded is weight / TensorScale(largest); the scale goes into the tensor that model::Matrix::scales comes from.
  static float TensorScale(float largest) {
    if (!(largest > 0)) return 1;
    return std::ldexp(1.0f, std::max(std::ilogb(largest) - 9, -126));
  }

  // Of 16 scales around the one at which the unit's largest weight has the largest code, 6, the one that loses least: those where it is
  // clipped by up to 2^-6/8, and those where it gets 4 or 3.
  static void Encode(const float* in, const float* importance, std::byte* out) {
    Block b{};
    for (size_t u = 0; u < kUnits; ++u, in += kUnit) {
      const ScaledBlock<kUnit> scaled(in, importance ? importance + u * kUnit : nullptr);
      if (scaled.largest == 0) continue;
      const int nearest = ScaleBits(scaled.largest / 6);
      int bits[kFitLanes];
      float step[kFitLanes], error[kFitLanes];
      for (int l = 0; l < static_cast<int>(kFitLanes); ++l) {
        bits[l] = std::clamp(nearest + l - 6, 0, kLargestScale);
        step[l] = 2 * Scale(static_cast<uint8_t>(bits[l])) * scaled.inverse;
      }
      BestFitKernels().fp4_error(scaled.x, scaled.w, kUnit, step, error);
      const size_t best = Least16(error);
      b.scale[u] = static_cast<uint8_t>(bits[best]);
      uint8_t code[kUnit];
      Fp4Codes(scaled.x, kUnit, step[best], code);
      for (size_t i = 0; i < 8; ++i) b.code[u * 8 + i] = static_cast<uint8_t>(code[i] | code[i + 8] << 4);
    }
    std::memcpy(out, &b, kBytes);
  }

 private:
  static constexpr int kLargestScale = 0x7e;  // 448

  // The E4M3 number at or below a positive scale: its bits are those of a float's exponent and mantissa, moved.
  static int ScaleBits(float scale) {
    if (scale < 0x1p-6f) return static_cast<int>(scale * 0x1p9f);
    return std::min(static_cast<int>((std::bit_cast<uint32_t>(scale) >> 20) - (120u << 3)), kLargestScale);
  }
};

}  // namespace glint::quant
