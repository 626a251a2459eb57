// Numbers between bounds, as patterns over their decimal digits.
#pragma once
#include <optional>
#include <string>

#include "glint/status.h"
#include "grammar/char_dfa.h"

namespace glint::grammar {

__extension__ using Wide = __int128;

// Whole numbers as JSON writes them, without exponent, from lo to hi (both included; none: no bound). Numbers beyond a bound's own
// length have at most 40 digits.
Result<CharDfa> WholeNumbers(std::optional<Wide> lo, std::optional<Wide> hi);

struct Bound {
  std::string digits;      // "12.5", "-3": plain decimal
  bool exclusive = false;  // the bound itself is not allowed
};
// Numbers with or without a fraction, without exponent, and without a minus before a zero.
Result<CharDfa> Decimals(const std::optional<Bound>& lo, const std::optional<Bound>& hi);

// A finite double in plain decimal notation, exactly the shortest digits that give it back.
std::string PlainDecimal(double value);
std::string PlainDecimal(Wide value);

}  // namespace glint::grammar
