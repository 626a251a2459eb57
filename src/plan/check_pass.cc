#include "plan/check_pass.h"

#include <fmt/core.h>

namespace glint::plan {

Status CheckPass(const model::HParams& hp, const Plan& plan, const Batch& batch,
                 bool (*is_ours)(const GridSequence&), std::string_view backend) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  if (rows > plan.max_rows) {
    return {Code::kInternal, fmt::format("a batch of {} rows for a plan of {}", rows, plan.max_rows)};
  }
  if (plan.pass == Pass::kMtp && rows > 0 && batch.hidden_in == nullptr) {
    return {Code::kInternal, "an MTP pass without hidden rows"};
  }
  for (const int32_t token : batch.tokens) {
    if (token < 0 || token >= hp.vocab_size) {
      return {Code::kBadInput,
              fmt::format("token id {} is not below the vocabulary's size {}", token, hp.vocab_size)};
    }
  }
  for (const int32_t row : batch.wanted) {
    if (row < 0 || row >= rows)
      return {Code::kInternal, fmt::format("logits wanted of row {} of {}", row, rows)};
  }
  if (batch.best != nullptr && (batch.usable_vocab < 1 || batch.usable_vocab > hp.vocab_size)) {
    return {Code::kInternal,
            fmt::format("the best of {} ids; the vocabulary has {}", batch.usable_vocab, hp.vocab_size)};
  }
  int64_t next_row = 0;
  for (const Segment& s : batch.segments) {
    const auto* state = dynamic_cast<const GridSequence*>(s.state);
    if (state == nullptr || !is_ours(*state) || s.first_row != next_row || s.rows < 1) {
      return {Code::kInternal,
              fmt::format("segments must be {} sequences and cover the rows in order", backend)};
    }
    next_row += s.rows;
    if (plan.pass == Pass::kMtp && !state->layout().mtp) {
      return {Code::kBadInput, "the sequence was made without caches for the MTP block"};
    }
    const int64_t position = plan.pass == Pass::kTrunk ? state->position() : state->mtp_position();
    if (s.position != position) {
      return {Code::kInternal,
              fmt::format("a segment begins at position {}, its sequence is at {}", s.position, position)};
    }
    if (position + s.rows > state->capacity()) {
      return {Code::kNoRoom,
              fmt::format("{} tokens do not fit: {} of {} are in use", s.rows, position, state->capacity())};
    }
  }
  if (next_row != rows) return {Code::kInternal, fmt::format("segments cover {} of {} rows", next_row, rows)};
  return {};
}

}  // namespace glint::plan
