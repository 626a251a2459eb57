// The table of weight formats. A format is one file (src/quant/<name>.h) with its layout and definition, and one line
// in format.cc. Types that glint can size but not compute with are in the table too, without functions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "glint/status.h"

namespace glint::quant {

// Numbers as GGUF stores them.
enum class Type : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

// One block in the form every integer product is defined on (docs/design.md, "Integer block products"):
// weight i = scale[i / unit] * code[i] + minimum[i / unit], scale and minimum exact in float. decode gives that weight as a float:
// rounded once where there is a minimum, exact where there is none (MXFP4 alone can exceed the largest float).
// Capacity for 256 weights in units of 16.
struct Unpacked {
  int8_t code[256];
  float scale[16];
  float minimum[16];  // all zero in a format without minima
};

struct Format {
  Type type;
  std::string_view name;  // lower case, as in `--type q8_0`
  size_t block_weights;   // a row's length is a multiple of it
  size_t block_bytes;
  // `weights` is a multiple of block_weights; pointers to blocks need no alignment. decode is the definition.
  void (*decode)(const std::byte* blocks, float* out, size_t weights) = nullptr;
  // Rounds to the format as well as this format's file says; NaN and infinity in `in` are the caller's to refuse. Null where
  // there is no encoder yet. importance: [weights], what an error of each weight costs: sum importance (in - decoded)^2 is kept
  // small; finite, not negative; null: all the same.
  void (*encode)(const float* in, const float* importance, std::byte* blocks, size_t weights) = nullptr;
  // Integer formats only (null for F32, F16, BF16): unit is 16 or 32.
  size_t unit = 0;
  bool minima = false;  // whether the canonical product has the second fma of a unit
  void (*unpack)(const std::byte* block, Unpacked& out) = nullptr;

  bool runnable() const { return decode != nullptr; }
  bool integer() const { return unpack != nullptr; }
};

std::span<const Format> Formats();
const Format* Find(Type type);              // null: a number glint does not know
const Format* Find(std::string_view name);  // null: no such name; case does not matter
std::string_view Name(Type type);           // "q8_0", or "unknown"
// The formats that weights may have and those that glint can make, for messages: "f32, f16, ...".
std::string RunnableNames();
std::string EncodableNames();

// Bytes of a row. kBadInput if the columns are not a whole number of blocks (the message says the multiple wanted) or
// the product overflows.
Result<uint64_t> RowBytes(const Format& format, uint64_t columns);

}  // namespace glint::quant
