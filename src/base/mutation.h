// Bugs on purpose: each names one way the engine could be wrong, and a line of code that is so while it is switched on. Only in builds made
// for it (the preset "mutations"), so that a test can show which check catches each (tests/mutations/, docs/testing.md). In
// every other build Mutated() is false while compiling, and nothing of it is in the program.
#pragma once
#include <cstdint>
#ifdef GLINT_MUTATIONS
#include <string_view>
#endif

namespace glint {

enum class Mutation : uint8_t {
  kNone,
  // Products and kernels of the scalar table, the definition.
  kDot16Tree,
  kScaleOfTheBlockBefore,
  kPartTooLong,
  kMinimaOfHalfTheDigits,
  // Canonical stages.
  kCombTransposed,
  kStreamsSwapped,
  kConvRingStale,
  kDecayWithoutBias,
  kOlderDelta,
  kBlockNotFolded,
  kPoolFromAnotherSlot,
  kSelectsOnePoolLess,
  kSelectsNotItself,
  kAttendsNotToTheLast,
  kWeightsWithTheBias,
  kExpertsUnsorted,
  kUpNotClamped,
  kMeanWithoutAStream,
  kMtpHalvesSwapped,
  kTieToTheHigher,
  // Levers.
  kSimdTailDropped,
  kSimdSumsOfOneHalf,
  kBatchWithoutLastRow,
  kThreadsLeaveAPiece,
  kBlockFromThePass,
  kLeverNeverFolds,
  kExpertGetsOneRow,
  // State of sequences.
  kMarkKeepsHalf,
  kTruncateKeepsARow,
  kMtpNotTruncated,
  kCopyWithoutPooledKeys,
  kClearKeepsState,
  kConvRingOneShort,
  // Session files.
  kLoadForgetsAPart,
  kLoadTakesAnyModel,
  kChecksumNotChecked,
  // Planner and engine.
  kLifeOneStepShort,
  kLogitsOfTheRowBefore,
  kMtpRowSurvivesARewind,
  kGreedyTieToTheHigher,
  kBestOfALaterBlock,
  kCount
};

#ifdef GLINT_MUTATIONS
bool Mutated(Mutation mutation);
// Switches it on, and all others off. Not while anything runs.
void Mutate(Mutation mutation);
// "comb_transposed" for kCombTransposed. The program takes the name from $GLINT_MUTATION.
std::string_view Name(Mutation mutation);
#else
consteval bool Mutated(Mutation) { return false; }
#endif

}  // namespace glint
