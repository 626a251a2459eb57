// The checks that glint's tests rest on, small and as functions: each says what it found wrong, or nothing.
#pragma once
#include <string>

namespace glint::test {

// The canonical plan against the numbers of another implementation (tests/data/reference/micro): logits of prompts in one pass and token
// by token, chosen experts, MTP logits.
std::string CheckReference();
// `glint verify` of micro and of small quantised models: the plan, and each lever alone.
std::string CheckVerify();
// A prompt in one pass, in pieces and token by token: the same bits. The last row's logits are those of the last row.
std::string CheckSameBits();
// Rewinds, checkpoints, forks, resets and dropped drafts against a cold run of the same tokens.
std::string CheckStates();
// A session saved and loaded goes on as the one that was saved; damaged files and those of another model are refused.
std::string CheckSessionFiles();
// Quantised products against the same sum in double precision.
std::string CheckDouble();
// Every kernel table against the formulas of docs/design.md, "The canonical arithmetic, in full", written out once more: the same bits.
std::string CheckFormulas();
// Ties of ranks and of greedy sampling go to the lower index.
std::string CheckTies();

}  // namespace glint::test
