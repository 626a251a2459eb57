#include "quant/format.h"

#include <fmt/core.h>

#include <array>

#include "base/checked.h"
#include "quant/bf16.h"
#include "quant/f16.h"
#include "quant/f32.h"
#include "quant/iq1_m.h"
#include "quant/iq1_s.h"
#include "quant/iq2_s.h"
#include "quant/iq2_xs.h"
#include "quant/iq2_xxs.h"
#include "quant/iq3_s.h"
#include "quant/iq3_xxs.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"

namespace glint::quant {
namespace {

template <class F>
constexpr Format Float(Type type, std::string_view name) {
  Format format{type, name, F::kWeights, F::kBytes, F::Decode};
  // Every weight is rounded to the nearest by itself, so that importance decides nothing.
  format.encode = [](const float* in, const float*, std::byte* blocks, size_t weights) {
    F::Encode(in, blocks, weights);
  };
  return format;
}

// What a block stands for: scale * code, exact in float, plus the minimum, rounded once; every format's file says so of its own.
template <class F>
void Decode(const std::byte* blocks, float* out, size_t weights) {
  Unpacked u;
  for (size_t at = 0; at < weights; at += F::kWeights, blocks += F::kBytes) {
    F::Unpack(blocks, u);
    for (size_t i = 0; i < F::kWeights; ++i) {
      const float product = u.scale[i / F::kUnit] * static_cast<float>(u.code[i]);
      out[at + i] = F::kMinima ? product + u.minimum[i / F::kUnit] : product;  // + 0 would lose a minus zero
    }
  }
}

template <class F>
constexpr Format Integer(Type type, std::string_view name) {
  Format format{type, name, F::kWeights, F::kBytes, Decode<F>, nullptr, F::kUnit, F::kMinima, F::Unpack};
  if constexpr (requires { F::Encode; }) {
    format.encode = [](const float* in, const float* importance, std::byte* blocks, size_t weights) {
      for (size_t i = 0; i < weights; i += F::kWeights, blocks += F::kBytes)
        F::Encode(in + i, importance == nullptr ? nullptr : importance + i, blocks);
    };
  }
  return format;
}

// Sizes of the formats without functions: the public GGUF formats.
constexpr std::array kFormats{
    Float<F32>(Type::kF32, "f32"),
    Float<F16>(Type::kF16, "f16"),
    Float<BF16>(Type::kBF16, "bf16"),
    Integer<Q8_0>(Type::kQ8_0, "q8_0"),
    Integer<Q6_K>(Type::kQ6_K, "q6_k"),
    Integer<Q5_K>(Type::kQ5_K, "q5_k"),
    Integer<Q5_0>(Type::kQ5_0, "q5_0"),
    Integer<Q5_1>(Type::kQ5_1, "q5_1"),
    Integer<Q4_K>(Type::kQ4_K, "q4_k"),
    Integer<Q4_0>(Type::kQ4_0, "q4_0"),
    Integer<Q4_1>(Type::kQ4_1, "q4_1"),
    Integer<Q3_K>(Type::kQ3_K, "q3_k"),
    Integer<Q2_K>(Type::kQ2_K, "q2_k"),
    Integer<IQ4_NL>(Type::kIQ4_NL, "iq4_nl"),
    Integer<IQ4_XS>(Type::kIQ4_XS, "iq4_xs"),
    Integer<IQ3_S>(Type::kIQ3_S, "iq3_s"),
    Integer<IQ3_XXS>(Type::kIQ3_XXS, "iq3_xxs"),
    Integer<IQ2_S>(Type::kIQ2_S, "iq2_s"),
    Integer<IQ2_XS>(Type::kIQ2_XS, "iq2_xs"),
    Integer<IQ2_XXS>(Type::kIQ2_XXS, "iq2_xxs"),
    Integer<IQ1_M>(Type::kIQ1_M, "iq1_m"),
    Integer<IQ1_S>(Type::kIQ1_S, "iq1_s"),
    Integer<MXFP4>(Type::kMXFP4, "mxfp4"),
    Integer<NVFP4>(Type::kNVFP4, "nvfp4"),
    Integer<TQ1_0>(Type::kTQ1_0, "tq1_0"),
    Integer<TQ2_0>(Type::kTQ2_0, "tq2_0"),
    Format{Type::kQ8_1, "q8_1", 32, 36},
    Format{Type::kQ8_K, "q8_k", 256, 292},
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

template <class Wanted>
std::string Names(Wanted wanted) {
  std::string names;
  for (const Format& format : kFormats)
    if (wanted(format)) names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
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

std::string RunnableNames() {
  return Names([](const Format& format) { return format.runnable(); });
}

std::string EncodableNames() {
  return Names([](const Format& format) { return format.encode != nullptr; });
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
