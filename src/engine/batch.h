// One pass over several sequences at once: the weights are read once for all of them.
#pragma once
#include <cstdint>
#include <span>

#include "glint/model.h"
#include "glint/session.h"
#include "glint/status.h"

namespace glint::engine {

// What one session is to absorb, and what is wanted back. At most one of `logits` and `best`, by `which`:
struct BatchWork {
  Session* session = nullptr;
  std::span<const int32_t> tokens = {};  // 1 to MostBatchRows
  LogitRows which = LogitRows::kNone;    // rows whose logits or choices are wanted
  std::span<float> logits = {};          // float[rows][vocab_size]: natural logits, as from Session::Append
  std::span<int32_t> best = {};  // int32_t[rows]: greedy choices in their place, as from Session::AppendBest
  Status status = {};            // how it went
};

// Rows that a pass takes at most, all sessions together.
int64_t MostBatchRows(const Model& model);
// Positions of the grid: passes over prompts that end at a multiple of it do the least work. The bits don't depend on it.
int64_t GridBlock(const Model& model);

// Appends to all of them. Each session's bits are those it has alone (docs/design.md, promise 2), and each has a status of its own: what is
// wrong with one (ids out of range, no room, a device that failed for it) leaves it as it was and does not touch the others. Works are taken in
// order and packed into passes of at most MostBatchRows rows; none is cut, so a longer one is refused (kBadInput): its caller cuts it.
// A session that appears twice is served once and then refused; so is one of another model. Sessions that are checked, timed or observed have
// a pass of their own.
// Should a shared pass fail as a whole, its sessions are served one by one, so that only those fail which fail alone. The exceptions: where the
// device fails, it fails for all of the pass; and where memory runs out in the middle of a pass, those of its sessions which leave a
// block of the grid are lost, as Session says.
// Logits that lie one behind another in memory, in the order of the works, are written there directly; if some works of a call want logits
// and others choices, they are copied once more.
// Threads: one call at a time for each of the sessions; calls for one model take turns.
void AppendTogether(const Model& model, std::span<BatchWork> works);

}  // namespace glint::engine
