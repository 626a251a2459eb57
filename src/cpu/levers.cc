// All levers of the CPU, in one table, and which function serves a stage.
#include <array>

#include "cpu/backend.h"
#include "cpu/product.h"
#include "cpu/stages.h"

namespace glint::cpu {
namespace {

using plan::Lever;
using plan::Stage;

// The large products of branches: neither a router's, nor the indexer's, nor the head's.
std::vector<Stage> CoarseStages() {
  return {Stage::kKdaQkv,          Stage::kKdaOut,       Stage::kDsaQ,      Stage::kDsaOut,
          Stage::kFfnGateUp,       Stage::kFfnDown,      Stage::kMoeGateUp, Stage::kMoeDown,
          Stage::kMoeSharedGateUp, Stage::kMoeSharedDown};
}

std::vector<Stage> AllBut(Stage left_out) {
  auto stages = plan::AllStages();
  std::erase(stages, left_out);
  return stages;
}

// These reproduce the canonical bits; tests/cpu/pass_test.cc holds each to it, on and off.
Lever Modifier(std::string_view name, std::vector<Stage> covers, int min_rows, bool available,
               std::string_view summary) {
  return {name, Lever::Kind::kModifier, std::move(covers), true, 0, true, min_rows, 0, available, summary};
}
Lever Replace(std::string_view name, Stage stage, int min_rows, std::string_view summary) {
  return {name, Lever::Kind::kReplace, {stage}, true, 0, true, min_rows, 0, true, summary};
}

// Other bits, within `tolerance` of the canonical ones, so off by default; `glint verify --with NAME` holds it to that.
Lever Tolerant(std::string_view name, std::vector<Stage> covers, double tolerance, std::string_view summary) {
  return {name, Lever::Kind::kModifier, std::move(covers), false, tolerance, false, 1, 0, true, summary};
}

std::vector<Lever> MakeLevers() {
  return {
      Modifier("simd.avx2", plan::AllStages(), 1, Avx2Kernels() != nullptr,
               "products and vector loops with AVX2 and FMA"),
      Modifier("simd.avx512", plan::AllStages(), 1, Avx512Kernels() != nullptr,
               "products and vector loops with AVX-512 (wins over simd.avx2)"),
      Modifier("simd.neon", plan::AllStages(), 1, NeonKernels() != nullptr,
               "products and vector loops with NEON"),
      Modifier("threads", AllBut(Stage::kResidual), 1, true,
               "outputs, heads, rows or pools shared out over the threads"),
      Modifier("batch", plan::ProductStages(), 2, true,
               "weights read once for all rows, an expert's once for all its rows"),
      Tolerant("act.int8", CoarseStages(), 0.05,
               "activations rounded to one signed byte where no choice depends on them"),
      Replace("kda.block", Stage::kKdaRecur, 2, "rows of a block go over S together: read once a block"),
  };
}

// In the order of plan::Stage.
constexpr std::array<StageFunction, static_cast<size_t>(Stage::kCount)> kCanonical = {
    Embed,         HcPre,      AttnNorm,  KdaQkv,     KdaConv,   KdaGates,  KdaRecur, KdaNorm,
    KdaOut,        DsaQ,       DsaKv,     DsaIndex,   DsaSelect, DsaAttend, DsaOut,   HcPost,
    Residual,      FfnNorm,    FfnGateUp, FfnDown,    MoeRoute,  MoeGateUp, MoeDown,  MoeSharedGateUp,
    MoeSharedDown, MoeCombine, HeadNorm,  HeadLogits, MtpInput};

}  // namespace

std::span<const plan::Lever> Levers() {
  static const std::vector<Lever> levers = MakeLevers();
  return levers;
}

StageFunction Canonical(plan::Stage stage) { return kCanonical[static_cast<size_t>(stage)]; }

StageFunction Replacement(const plan::Lever& lever) { return lever.name == "kda.block" ? KdaBlock : nullptr; }

}  // namespace glint::cpu
