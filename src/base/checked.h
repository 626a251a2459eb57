// Arithmetic on numbers that came from a file: overflow is an answer, not an accident.
#pragma once
#include <concepts>
#include <optional>

namespace glint {

template <std::unsigned_integral T>
std::optional<T> CheckedAdd(T a, T b) {
  T out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <std::unsigned_integral T>
std::optional<T> CheckedMul(T a, T b) {
  T out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// The smallest multiple of `to` (a power of two) not below a.
template <std::unsigned_integral T>
std::optional<T> CheckedAlign(T a, T to) {
  const auto sum = CheckedAdd<T>(a, static_cast<T>(to - 1));
  if (!sum) return std::nullopt;
  return static_cast<T>(*sum & ~static_cast<T>(to - 1));
}

// Whether [offset, offset + bytes) lies within [0, size).
template <std::unsigned_integral T>
constexpr bool Within(T offset, T bytes, T size) {
  return offset <= size && bytes <= size - offset;
}

}  // namespace glint
