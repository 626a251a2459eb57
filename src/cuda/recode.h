// Formats whose bits are put in another order before they are laid out (cuda/tiles.h), so that a kernel finds the signs of four weights
// with one shift: in the highest bits of four bytes. The same information: one block of the file becomes one string, whose fields are
//   IQ3_XXS  points [64]; sign words [8]; eight scales of 4 bits [4]; d [2]: 102 bytes, four more than in the file, for the eighth sign
//            of eight weights is written out
//   IQ3_S    points [64]; sign words [8]; ninth bits of the points [8]; eight scales [4]; d [2]: 110 bytes, as in the file
//   IQ2_S    points [32]; sign words [8]; high bits of the points [4] of 2; sixteen scales [8]; d [2]: 82 bytes, as in the file
// and the codes of one format (six bits, of which the file has four and two apart) so that three of four blocks of 32 columns take one
// instruction for four weights:
//   Q6_K     codes [192]; sixteen scales [16]; d [2]: 210 bytes, as in the file
// Byte 32 (3 h + k) + c of the codes, for k = 0..2 and column c of a block: the code of block 4 h + k, and above it bits 2 k and
// 2 k + 1 of the code of block 4 h + 3.
// Group j = 0..7 of a block of 32 columns is its weights 4 j ... Bit 8 i + b of sign word j is the sign of weight i of group j of
// block b; bit b of ninth byte j is bit 8 of that group's point;
// bits 2 b and 2 b + 1 of half word t of the high bits are bits 8 and 9 of point t (of eight weights) of block b.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define GLINT_HOST_DEVICE __host__ __device__
#else
#define GLINT_HOST_DEVICE
#endif

namespace glint::cuda {

enum class Recoding : uint8_t { kNone, kIq3Xxs, kIq3S, kIq2S, kQ6K };

// Threads that share a string's making.
inline constexpr uint32_t kRecoders = 16;

constexpr uint32_t RecodedBytes(Recoding recoding) {
  return recoding == Recoding::kIq3Xxs ? 102
         : recoding == Recoding::kIq3S ? 110
         : recoding == Recoding::kIq2S ? 82
                                       : 210;
}

GLINT_HOST_DEVICE inline uint32_t Word32(const uint8_t* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}
GLINT_HOST_DEVICE inline void PutWord32(uint32_t word, uint8_t* p) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(word >> (8 * i));
}

// Sign word of group j; signs(b, j): bits 0..3 are the signs of group j of block b.
template <class Signs>
GLINT_HOST_DEVICE inline uint32_t SignWord(uint32_t j, const Signs& signs) {
  uint32_t word = 0;
  for (uint32_t b = 0; b < 8; ++b)
    for (uint32_t i = 0; i < 4; ++i) word |= (signs(b, j) >> i & 1u) << (8 * i + b);
  return word;
}

// The share of thread `part` of kRecoders. `in`: the block; `out`: RecodedBytes.
GLINT_HOST_DEVICE inline void RecodeIq3Xxs(const uint8_t* in, uint8_t* out, uint32_t part) {
  const uint8_t* const words = in + 66;
  for (uint32_t i = 0; i < 4; ++i) out[4 * part + i] = in[2 + 4 * part + i];
  if (part < 8) {
    const auto signs = [&](uint32_t b, uint32_t j) {
      uint32_t eight = Word32(words + 4 * b) >> (7 * (j / 2)) & 127u, parity = eight ^ eight >> 4;
      parity ^= parity >> 2;
      eight |= ((parity ^ parity >> 1) & 1u) << 7;
      return eight >> (j % 2 * 4);
    };
    PutWord32(SignWord(part, signs), out + 64 + 4 * part);
  } else if (part == 8) {
    uint32_t scales = 0;
    for (uint32_t b = 0; b < 8; ++b) scales |= Word32(words + 4 * b) >> 28 << (4 * b);
    PutWord32(scales, out + 96);
  } else if (part == 9) {
    out[100] = in[0], out[101] = in[1];
  }
}

// The same where all eight signs of eight weights are in a byte.
GLINT_HOST_DEVICE inline uint32_t SignWordOfBytes(uint32_t j, const uint8_t* bytes) {
  return SignWord(j, [=](uint32_t b, uint32_t) { return uint32_t{bytes[4 * b + j / 2]} >> (j % 2 * 4); });
}

GLINT_HOST_DEVICE inline void RecodeIq3S(const uint8_t* in, uint8_t* out, uint32_t part) {
  const uint8_t* const high = in + 66;
  for (uint32_t i = 0; i < 4; ++i) out[4 * part + i] = in[2 + 4 * part + i];
  if (part < 8) {
    PutWord32(SignWordOfBytes(part, in + 74), out + 64 + 4 * part);
  } else {
    const uint32_t j = part - 8;
    uint32_t ninth = 0;
    for (uint32_t b = 0; b < 8; ++b) ninth |= (high[b] >> j & 1u) << b;
    out[96 + j] = static_cast<uint8_t>(ninth);
    if (j < 4) out[104 + j] = in[106 + j];
    if (j < 2) out[108 + j] = in[j];
  }
}

GLINT_HOST_DEVICE inline void RecodeIq2S(const uint8_t* in, uint8_t* out, uint32_t part) {
  const uint8_t* const high = in + 66;
  for (uint32_t i = 0; i < 2; ++i) out[2 * part + i] = in[2 + 2 * part + i];
  if (part < 8) {
    PutWord32(SignWordOfBytes(part, in + 34), out + 32 + 4 * part);
  } else {
    const uint32_t j = part - 8;
    out[72 + j] = in[74 + j];
    if (j < 4) {
      uint32_t bits = 0;
      for (uint32_t b = 0; b < 8; ++b) bits |= (high[b] >> (2 * j) & 3u) << (2 * b);
      out[64 + 2 * j] = static_cast<uint8_t>(bits), out[65 + 2 * j] = static_cast<uint8_t>(bits >> 8);
    } else if (j < 6) {
      out[76 + j] = in[j - 4];
    }
  }
}

GLINT_HOST_DEVICE inline void RecodeQ6K(const uint8_t* in, uint8_t* out, uint32_t part) {
  const auto code = [in](uint32_t block, uint32_t column) {
    const uint32_t h = block / 4, b = block % 4,
                   low = in[64 * h + 32 * (b % 2) + column] >> (b / 2 * 4) & 15u,
                   high = in[128 + 32 * h + column] >> (2 * b) & 3u;
    return low | high << 4;
  };
  for (uint32_t h = 0; h < 2; ++h) {
    for (uint32_t column = part; column < 32; column += kRecoders) {
      const uint32_t fourth = code(4 * h + 3, column);
      for (uint32_t k = 0; k < 3; ++k)
        out[32 * (3 * h + k) + column] =
            static_cast<uint8_t>(code(4 * h + k, column) | (fourth >> (2 * k) & 3u) << 6);
    }
  }
  out[192 + part] = in[192 + part];
  if (part < 2) out[208 + part] = in[208 + part];
}

GLINT_HOST_DEVICE inline void Recode(Recoding recoding, const uint8_t* in, uint8_t* out, uint32_t part) {
  recoding == Recoding::kIq3Xxs ? RecodeIq3Xxs(in, out, part)
  : recoding == Recoding::kIq3S ? RecodeIq3S(in, out, part)
  : recoding == Recoding::kIq2S ? RecodeIq2S(in, out, part)
                                : RecodeQ6K(in, out, part);
}

}  // namespace glint::cuda
