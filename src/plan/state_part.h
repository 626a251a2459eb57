// The state of a sequence taken apart: what session files keep and verify compares.
#pragma once
#include <cstdint>
#include <string_view>

namespace glint::plan {

// One stretch of a sequence's state: rows of floats, the same on every backend.
struct StatePart {
  enum class Kind : uint8_t {  // numbers are part of the session files' format: new ones go to the end
    kKdaState,  // S[i][j] of all heads at the start of the current block: one row is (head, key channel i)
    kKdaKf,     // rows of the unfinished block (docs/design.md, "The grid form of kda.recur")
    kKdaDelta,
    kKdaG,
    kConv,       // inputs of the convolution that any position of the current block may read: q | k | v
    kLatent,     // one row a token
    kPooledKey,  // one row a complete pool
    kRawKey,     // rows that rebuild the open pool, also after truncation inside the current block
    kRawGate,
    kCount
  };
  Kind kind = Kind::kKdaState;
  int layer = 0;                // trunk layer; hp.layers: the MTP block
  int64_t first = 0, rows = 0;  // absolute positions (kPooledKey: pool numbers; kKdaState: first 0)
  int64_t width = 0;            // floats a row
  friend bool operator==(const StatePart&, const StatePart&) = default;
};

std::string_view Name(StatePart::Kind kind);

}  // namespace glint::plan
