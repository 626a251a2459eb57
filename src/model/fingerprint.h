// What tells models apart where their states and numbers are kept: session files, records of measurements.
#pragma once
#include <string>

#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"
#include "model/synthetic_fill.h"

namespace glint::model {

// 32 hexadecimal digits of what decides the bits of the trunk's numbers: hyper-parameters; name (dialect A), type and shape of
// every tensor as bound; the values of vectors whole; of a matrix that has more than 4,096 bytes, eight stretches of 512,
// evenly spaced from its first byte to its last. So it is the same for a file, a copy of it, a split set, another dialect and
// the checkpoint that it was converted from with unchanged types; and it costs a few reads a tensor. Two models that differ in
// single weights between the stretches alone are not told apart: quantising, training and merging change all of them.
// `fill`: of a synthetic model whose weights lie elsewhere (ModelData::synthetic); the fingerprint is that of the same model here.
std::string TrunkFingerprint(const HParams& hp, const Weights& weights, const SyntheticFill* fill = nullptr);

// The same of the MTP block, apart because a model may be opened without it; empty if it is not bound.
std::string MtpFingerprint(const HParams& hp, const Weights& weights, const SyntheticFill* fill = nullptr);

}  // namespace glint::model
