#include "grammar/numbers.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/regex.h"

namespace glint::grammar {
namespace {

constexpr size_t kMostDigits = 40;
constexpr size_t kStates = 65'536;

std::string Digits(size_t least, size_t most) {
  return most == 0 ? "" : fmt::format("[0-9]{{{},{}}}", least, std::max(least, most));
}

// As many digits as `s` has, and a number not below (above) it.
std::string SameLength(std::string_view s, bool at_least) {
  if (s.empty()) return "";
  const char c = s[0];
  std::string out = "(?:" + std::string(1, c) + SameLength(s.substr(1), at_least);
  const size_t rest = s.size() - 1;
  if (at_least && c < '9') out += fmt::format("|[{}-9]{}", static_cast<char>(c + 1), Digits(rest, rest));
  if (!at_least && c > '0') out += fmt::format("|[0-{}]{}", static_cast<char>(c - 1), Digits(rest, rest));
  return out + ")";
}

// Whole numbers from 0 on, not below (above) n. Some have leading zeros: what they are intersected with has none.
std::string Whole(std::string_view n, bool at_least) {
  std::string same = SameLength(n, at_least);
  if (at_least) {
    if (n == "0") return "(?:0|[1-9][0-9]*)";
    return fmt::format("(?:{}|[1-9][0-9]{{{},}})", same, n.size());
  }
  if (n.size() == 1) return same;
  return fmt::format("(?:0|[1-9]{}|{})", Digits(0, n.size() - 2), same);
}

struct Parts {
  std::string whole, fraction;  // digits; the fraction without zeros at its end
};

Parts Split(std::string_view digits) {
  const size_t point = digits.find('.');
  Parts out{std::string(digits.substr(0, point)), ""};
  if (point != std::string_view::npos) out.fraction = digits.substr(point + 1);
  while (!out.fraction.empty() && out.fraction.back() == '0') out.fraction.pop_back();
  return out;
}

constexpr std::string_view kFraction = "(?:\\.[0-9]+)?";

// Digits after the point, at least one: not below 0.f.
std::string FractionAtLeast(std::string_view f, bool exclusive) {
  if (f.empty()) return exclusive ? "[0-9]*[1-9][0-9]*" : "[0-9]*";
  const char c = f[0];
  std::string out = fmt::format("(?:{}{}", c, FractionAtLeast(f.substr(1), exclusive));
  if (c < '9') out += fmt::format("|[{}-9][0-9]*", static_cast<char>(c + 1));
  return out + ")";
}

// Digits after the point, at least one: not above 0.f; f is not empty and has no zero at its end.
std::string FractionAtMost(std::string_view f, bool exclusive) {
  const char c = f[0];
  const bool last = f.size() == 1;
  std::string out = "(?:";
  if (c > '0') out += fmt::format("[0-{}][0-9]*", static_cast<char>(c - 1));
  if (!last || !exclusive) {
    if (c > '0') out += "|";
    out += c;
    if (last)
      out += "0*";
    else
      out += fmt::format("(?:{})?", FractionAtMost(f.substr(1), exclusive));
  }
  return out + ")";
}

// The whole number after (before) n, without sign.
std::string Next(std::string n, int by) {
  Wide value = 0;
  for (const char c : n) value = value * 10 + (c - '0');
  return PlainDecimal(value + by);
}

std::string AtLeast(std::string_view digits, bool exclusive) {
  const Parts p = Split(digits);
  std::string same;
  if (p.fraction.empty())
    same = exclusive ? "\\." + FractionAtLeast("", true) : std::string(kFraction);
  else
    same = "\\." + FractionAtLeast(p.fraction, exclusive);
  return fmt::format("(?:{}{}|{}{})", p.whole, same, Whole(Next(p.whole, 1), true), kFraction);
}

// Empty if there is none.
std::string AtMost(std::string_view digits, bool exclusive) {
  const Parts p = Split(digits);
  std::string out;
  if (p.whole != "0") out = Whole(Next(p.whole, -1), false) + std::string(kFraction);
  std::string same;
  if (p.fraction.empty() && !exclusive) same = p.whole + "(?:\\.0+)?";
  if (!p.fraction.empty()) same = fmt::format("{}(?:\\.{})?", p.whole, FractionAtMost(p.fraction, exclusive));
  if (!same.empty()) out += (out.empty() ? "" : "|") + same;
  return out.empty() ? out : "(?:" + out + ")";
}

Result<CharDfa> Compile(const std::string& pattern) {
  return CompileRegex("^(?:" + pattern + ")$",
                      {.nesting = 512, .parts = 200'000, .states = kStates, .work = 40'000'000});
}

// Those not below (above) a bound of any sign: negative ones mirror.
Result<CharDfa> Beyond(const Bound& bound, bool at_least) {
  const bool negative = bound.digits[0] == '-';
  const std::string_view magnitude = std::string_view(bound.digits).substr(negative ? 1 : 0);
  if (at_least != negative) return Compile((negative ? "-" : "") + AtLeast(magnitude, bound.exclusive));
  const std::string near = AtMost(magnitude, bound.exclusive);
  // at_least a negative bound: the numbers from 0 on, and small negative ones; at most a positive one: the other way round.
  std::string far = negative ? fmt::format("{}{}", Whole("0", true), kFraction) : "-" + AtLeast("0", true);
  if (!near.empty()) far += negative ? "|-" + near : "|" + near;
  return Compile(far);
}

}  // namespace

std::string PlainDecimal(Wide value) {
  const bool negative = value < 0;
  std::string out;
  do {
    const auto digit = static_cast<int>(value % 10);
    out += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    value /= 10;
  } while (value != 0);
  if (negative) out += '-';
  std::reverse(out.begin(), out.end());
  return out;
}

std::string PlainDecimal(double value) {
  char text[512];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr;
  std::string out(text, end);
  return out == "-0" ? "0" : out;
}

Result<CharDfa> WholeNumbers(std::optional<Wide> lo, std::optional<Wide> hi) {
  Result<CharDfa> out = Compile(fmt::format("-?(?:0|[1-9]{})", Digits(0, kMostDigits)));
  for (const bool at_least : {true, false}) {
    const std::optional<Wide>& bound = at_least ? lo : hi;
    if (!bound || !out.ok()) continue;
    const Wide b = *bound;
    std::string numbers;
    const auto either = [&](const std::string& more) { numbers += (numbers.empty() ? "" : "|") + more; };
    if (at_least) {
      either(Whole(b > 0 ? PlainDecimal(b) : "0", true));
      if (b < 0) either("-(?:" + Whole(PlainDecimal(-b), false) + ")");
    } else {
      if (b >= 0) either(Whole(PlainDecimal(b), false));
      either("-(?:" + Whole(b < 0 ? PlainDecimal(-b) : "1", true) + ")");
    }
    auto part = Compile(numbers);
    if (!part.ok()) return part;
    out = Intersect(*out, *part, kStates);
  }
  if (!out.ok()) return out;
  // No "-0".
  auto no_zero = Compile("0|-?[1-9][0-9]{0,60}");
  if (!no_zero.ok()) return no_zero;
  return Intersect(*out, *no_zero, kStates);
}

Result<CharDfa> Decimals(const std::optional<Bound>& lo, const std::optional<Bound>& hi) {
  // Any number of digits in the conditions, which keeps them small; how many there may be is one of its own.
  auto out = Compile(fmt::format("(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?|-{}", AtLeast("0", true)));
  for (const bool at_least : {true, false}) {
    const std::optional<Bound>& bound = at_least ? lo : hi;
    if (!bound || !out.ok()) continue;
    auto part = Beyond(*bound, at_least);
    if (!part.ok()) return part;
    out = Intersect(*out, *part, kStates);
  }
  if (!out.ok()) return out;
  auto length = Compile(fmt::format("-?[0-9]{{1,{}}}(?:\\.[0-9]{{1,{}}})?", kMostDigits + 1, kMostDigits));
  if (!length.ok()) return length;
  return Intersect(*out, *length, kStates);
}

}  // namespace glint::grammar
