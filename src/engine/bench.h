// Times prefill and decode of several arms (a model and its settings) at several depths, in an order that cancels drift.
// What the numbers mean is docs/bench.md; what is made of them, engine/bench_analysis.h.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "glint/model.h"
#include "glint/status.h"

namespace glint::engine {

enum class BenchPhase : uint8_t { kPrefill, kDecode };
std::string_view Name(BenchPhase phase);  // "prefill", "decode"

// What a sample times.
struct BenchWork {
  BenchPhase phase = BenchPhase::kPrefill;
  int rows = 1;  // tokens of a pass of decode
  bool operator==(const BenchWork&) const = default;
};

struct BenchSettings {
  std::vector<int64_t> depths;  // tokens already in the context when a sample begins; ascending, each once
  int64_t prefill = 0;          // tokens of a prefill sample; 0: not measured
  int64_t decode = 0;           // passes of a decode sample; 0: not measured
  // Tokens of a decode pass, ascending, each once. 1 is decoding; more are what a verify of drafts reads: they continue the sequence
  // together, and the greedy choice after each of them comes back.
  std::vector<int> rows = {1};
  // In a block every arm is measured twice (BlockOrder). At each depth there are at least `blocks`, and as many more, up to
  // `most_blocks`, as by the time of the first would go into `seconds`. (How long it takes decides, never what came out: stopping
  // when arms differ would find differences that are none.)
  int blocks = 1, most_blocks = 1;
  double seconds = 0;
  int64_t real_tokens =
      0;  // 0, or how many of a context's are read: what is kept of the others repeats them (synthetic_depth.h)
  int warmup = 1;  // samples of each arm before the first block of a depth, kept apart

  std::vector<BenchWork> Works() const;  // what is measured at each depth, in this order
  int64_t Tokens(const BenchWork& work) const {
    return work.phase == BenchPhase::kPrefill ? prefill : decode * work.rows;
  }
  int64_t Sample() const;  // tokens of the longest one
  // Tokens that an arm's sequence must have, which is also the room that its session reserves.
  int64_t Context() const;
};

struct BenchArm {
  std::string name;
  Model model;
  std::vector<int32_t>
      tokens;         // [at least settings.Context()]: fill the context, then are read and "generated"
  int64_t chunk = 0;  // tokens given to the session at a time in prefill; 0: all of a sample
  // For checking the instrument: after each call the clock runs on until this share of the call's time has gone
  // by as well. 0.03 makes the arm 3 % slower in seconds, whatever the machine does.
  double slow = 0;
  bool check = false;  // at each depth, a prefill and a decode sample are verified first, untimed
};

struct BenchSample {
  int arm = 0, depth = 0;  // indices
  BenchPhase phase = BenchPhase::kPrefill;
  int block = 0;     // -1: warm-up
  int position = 0;  // in the block, from 0; of a warm-up, its number
  double seconds = 0;
  int rows = 1;  // of a pass of decode

  BenchWork Work() const { return {phase, rows}; }
};

struct BenchRun {
  std::vector<BenchSample> samples;  // in the order they were taken
  bool complete = false;             // false: interrupted; the last block may lack samples
};

// The order of the arms in a block: each twice, mirrored (A B B A), so that a drift of the machine that is linear over the block adds
// the same to all. In every group of as many blocks as there are arms each arm is first once, in an order drawn for the group: what a
// place in the block costs falls on all alike, and what comes and goes in step with the blocks favours none. The same for the
// same arguments.
std::vector<int> BlockOrder(int arms, int block);

struct BenchControl {
  Progress progress;                  // called between samples and while contexts fill, never inside a sample
  std::function<bool()> interrupted;  // asked between the calls of a sample too
};

// Each arm has a session of its own. A depth is reached once: the context grows to a little before it and is marked there; a
// sample returns to the mark, appends the last tokens before the depth untimed (so that what the return moved and woke is not
// measured), and then times what follows the depth.
// Errors name the arm. kInternal if a check found a difference. kNoRoom, before any work, if the sessions of all arms together do not fit in memory.
Result<BenchRun> RunBench(std::span<const BenchArm> arms, const BenchSettings& settings,
                          const BenchControl& control);

// Bytes that a pass of that many tokens of one sequence, with the logits of all, has to move at that depth (plan/step_bytes.h): weights,
// state and caches, of experts as many as an even choice would give on average. Activations are left out: at a few rows they
// stay in the processor.
Result<double> DecodeBytes(const Model& model, int64_t depth, int rows = 1);

// Seeded ids, uniform in [0, vocab).
std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab, uint64_t seed);

}  // namespace glint::engine
