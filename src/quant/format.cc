#include "quant/format.h"

#include <fmt/core.h>

#include <array>

#include "base/checked.h"
#include "quant/bf16.h"
#include "quant/f16.h"
#include "quant/f32.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace glint::quant {
namespace {

template <class F>
constexpr Format Float(Type type, std::string_view name) {
  return {type, name, F::kWeights, F::kBytes, F::Decode, F::Encode};
}

template <class F>
constexpr Format Integer(Type type, std::string_view name) {
  return {type,
          name,
          F::kWeights,
          F::kBytes,
          [](const std::byte* blocks, float* out, size_t weights) {
            for (size_t i = 0; i < weights; i += F::kWeights, blocks += F::kBytes) F::Decode(blocks, out + i);
          },
          [](const float* in, std::byte* blocks, size_t weights) {
            for (size_t i = 0; i < weights; i += F::kWeights, blocks += F::kBytes) F::Encode(in + i, blocks);
          },
          F::kUnit,
          F::kMinima,
          F::Unpack};
}

// Sizes of the formats without functions: the public GGUF block formats.
constexpr std::array kFormats{
    Float<F32>(Type::kF32, "f32"),
    Float<F16>(Type::kF16, "f16"),
    Float<BF16>(Type::kBF16, "bf16"),
    Integer<Q8_0>(Type::kQ8_0, "q8_0"),
    Integer<Q6_K>(Type::kQ6_K, "q6_k"),
    Integer<Q5_0>(Type::kQ5_0, "q5_0"),
    Integer<Q4_K>(Type::kQ4_K, "q4_k"),
    Format{Type::kQ4_0, "q4_0", 32, 18},
    Format{Type::kQ4_1, "q4_1", 32, 20},
    Format{Type::kQ5_1, "q5_1", 32, 24},
    Format{Type::kQ8_1, "q8_1", 32, 36},
    Format{Type::kQ2_K, "q2_k", 256, 84},
    Format{Type::kQ3_K, "q3_k", 256, 110},
    Format{Type::kQ5_K, "q5_k", 256, 176},
    Format{Type::kQ8_K, "q8_k", 256, 292},
    Format{Type::kIQ1_S, "iq1_s", 256, 50},
    Format{Type::kIQ1_M, "iq1_m", 256, 56},
    Format{Type::kIQ2_XXS, "iq2_xxs", 256, 66},
    Format{Type::kIQ2_XS, "iq2_xs", 256, 74},
    Format{Type::kIQ2_S, "iq2_s", 256, 82},
    Format{Type::kIQ3_XXS, "iq3_xxs", 256, 98},
    Format{Type::kIQ3_S, "iq3_s", 256, 110},
    Format{Type::kIQ4_NL, "iq4_nl", 32, 18},
    Format{Type::kIQ4_XS, "iq4_xs", 256, 136},
    Format{Type::kTQ1_0, "tq1_0", 256, 54},
    Format{Type::kTQ2_0, "tq2_0", 256, 66},
    Format{Type::kMXFP4, "mxfp4", 32, 17},
    Format{Type::kNVFP4, "nvfp4", 64, 36},
    Format{Type::kI8, "i8", 1, 1},
    Format{Type::kI16, "i16", 1, 2},
    Format{Type::kI32, "i32", 1, 4},
    Format{Type::kI64, "i64", 1, 8},
    Format{Type::kF64, "f64", 1, 8},
};

constexpr char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool SameName(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (Lower(a[i]) != Lower(b[i])) return false;
  return true;
}

}  // namespace

std::span<const Format> Formats() { return kFormats; }

const Format* Find(Type type) {
  for (const Format& format : kFormats)
    if (format.type == type) return &format;
  return nullptr;
}

const Format* Find(std::string_view name) {
  for (const Format& format : kFormats)
    if (SameName(format.name, name)) return &format;
  return nullptr;
}

std::string_view Name(Type type) {
  const Format* const format = Find(type);
  return format ? format->name : "unknown";
}

Result<uint64_t> RowBytes(const Format& format, uint64_t columns) {
  if (columns % format.block_weights != 0)
    return Status(Code::kBadInput, fmt::format("{} columns; {} needs a multiple of {}", columns, format.name,
                                               format.block_weights));
  const auto bytes = CheckedMul<uint64_t>(columns / format.block_weights, format.block_bytes);
  if (!bytes)
    return Status(Code::kBadInput,
                  fmt::format("{} columns of {}: more bytes than 64 bits can count", columns, format.name));
  return *bytes;
}

}  // namespace glint::quant
