// Bytes a step has to move: what its time is compared with (spec/budget.md sections 2 and 3). Not what an implementation happens to
// move: each weight, state and cache row in use is counted once a pass, whoever reads it how often, so that all levers of a stage are
// held to the same bytes.
#pragma once
#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace glint::plan {

// One sequence's rows of a pass.
struct PassShape {
  int64_t rows = 1;
  int64_t position = 0;  // of the first row
  int64_t wanted = 1;    // rows whose logits are wanted
  // Distinct experts that the rows chose, by layer ([hp.layers], one more for the MTP block; entries of other layers don't matter).
  // Empty: what an even random choice would give on average.
  std::span<const double> experts = {};
  // Bytes of an entry of the latent rows and of the pooled keys; the CPU keeps floats.
  int64_t cache_entry = 4;
};

struct StepBytes {
  double weights = 0;      // matrices and vectors; chosen experts and embedding rows only
  double state = 0;        // recurrent blocks, convolution rows, raw indexer rows: read and written
  double cache = 0;        // latent rows and pooled keys: read and written
  double activations = 0;  // slots in and out; at a few rows they stay in a cache
  double total() const { return weights + state + cache + activations; }
  StepBytes& operator+=(const StepBytes& o) {
    weights += o.weights, state += o.state, cache += o.cache, activations += o.activations;
    return *this;
  }
  StepBytes& operator*=(double factor) {
    weights *= factor, state *= factor, cache *= factor, activations *= factor;
    return *this;
  }
};

StepBytes BytesOf(const Step& step, const model::HParams& hp, const model::Weights& weights,
                  const PassShape& shape);

// Experts that `rows` rows choose between them if each takes experts_used of all at random.
double ExpectedExperts(const model::HParams& hp, int64_t rows);

}  // namespace glint::plan
