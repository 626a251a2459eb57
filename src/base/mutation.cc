#include "base/mutation.h"

#ifdef GLINT_MUTATIONS
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace glint {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Mutation::kCount)> kNames = {
    "none",
    "dot16_tree",
    "scale_of_the_block_before",
    "part_too_long",
    "minima_of_half_the_digits",
    "comb_transposed",
    "streams_swapped",
    "conv_ring_stale",
    "decay_without_bias",
    "older_delta",
    "block_not_folded",
    "pool_from_another_slot",
    "selects_one_pool_less",
    "selects_not_itself",
    "attends_not_to_the_last",
    "weights_with_the_bias",
    "experts_unsorted",
    "up_not_clamped",
    "mean_without_a_stream",
    "mtp_halves_swapped",
    "tie_to_the_higher",
    "simd_tail_dropped",
    "simd_sums_of_one_half",
    "batch_without_last_row",
    "threads_leave_a_piece",
    "block_from_the_pass",
    "lever_never_folds",
    "expert_gets_one_row",
    "mark_keeps_half",
    "truncate_keeps_a_row",
    "mtp_not_truncated",
    "copy_without_pooled_keys",
    "clear_keeps_state",
    "conv_ring_one_short",
    "load_forgets_a_part",
    "load_takes_any_model",
    "checksum_not_checked",
    "life_one_step_short",
    "logits_of_the_row_before",
    "mtp_row_survives_a_rewind",
    "greedy_tie_to_the_higher",
    "best_of_a_later_block"};
static_assert(!kNames.back().empty(), "a name for each");

Mutation FromEnvironment() {
  const char* given = std::getenv("GLINT_MUTATION");
  if (given == nullptr) return Mutation::kNone;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == given) return static_cast<Mutation>(i);
  }
  std::fprintf(stderr, "GLINT_MUTATION: no mutation is called '%s'\n", given);
  std::exit(2);
}

std::atomic<Mutation> g_mutation{FromEnvironment()};

}  // namespace

bool Mutated(Mutation mutation) { return g_mutation.load(std::memory_order_relaxed) == mutation; }
void Mutate(Mutation mutation) { g_mutation.store(mutation, std::memory_order_relaxed); }
std::string_view Name(Mutation mutation) { return kNames[static_cast<size_t>(mutation)]; }

}  // namespace glint
#endif
