#include <algorithm>
#include <vector>

#include "cuda/backend.h"
#include "cuda/hc_fused.h"

namespace glint::cuda {
namespace {

using plan::Lever;
using plan::Stage;

std::vector<Lever> MakeLevers() {
  const auto modifier = [](std::string_view name, std::vector<Stage> covers, std::string_view summary) {
    return Lever{name, Lever::Kind::kModifier, std::move(covers), true, 0, true, 1, 0, true, summary};
  };
  // {first, or second} run of stages, for as many rows as the fused kernels have blocks at once.
  const auto around = [](std::string_view name, std::vector<Stage> first, std::vector<Stage> second,
                         std::string_view summary) {
    Lever lever{name,
                Lever::Kind::kReplace,
                std::move(first),
                true,
                0,
                true,
                1,
                static_cast<int>(kMostFusedRows),
                true,
                summary};
    lever.or_covers = std::move(second);
    lever.across_layers = true;
    return lever;
  };
  Lever beside = around(
      "moe.beside",
      {Stage::kMoeRoute, Stage::kMoeGateUp, Stage::kMoeDown, Stage::kMoeSharedGateUp, Stage::kMoeSharedDown},
      {}, "the shared expert on a second stream beside the routed ones, for up to 8 rows");
  beside.keeps_inside = true;
  return {
      around("hc.moe", {Stage::kMoeCombine, Stage::kHcPost, Stage::kHcPre, Stage::kAttnNorm}, {},
             "hc.block with moe.combine before it in the same launch, for up to 8 rows"),
      around("hc.block", {Stage::kHcPost, Stage::kHcPre, Stage::kFfnNorm},
             {Stage::kHcPost, Stage::kHcPre, Stage::kAttnNorm},
             "all that lies between two sublayers in one launch, for up to 8 rows"),
      around("hc.fused", {Stage::kHcPre, Stage::kAttnNorm}, {Stage::kHcPre, Stage::kFfnNorm},
             "hc.pre and the norm behind it in one launch, for up to 8 rows"),
      beside,
      Lever{"kda.fused",
            Lever::Kind::kReplace,
            {Stage::kKdaQkv, Stage::kKdaConv, Stage::kKdaGates, Stage::kKdaRecur, Stage::kKdaNorm},
            true,
            0,
            true,
            1,
            static_cast<int>(kMostFusedRows),
            true,
            "all of KDA but its last product in two to five launches, for up to 8 rows"},
      Lever{
          "dsa.inputs",
          Lever::Kind::kReplace,
          {Stage::kDsaQ, Stage::kDsaKv, Stage::kDsaIndex},
          true,
          0,
          true,
          1,
          0,
          true,
          "dsa.q, dsa.kv and dsa.index with one launch for all products of an operand and one for all norms"},
      modifier("mma", plan::ProductStages(), "integer block products on int8 tensor cores"),
      modifier("graph", plan::AllStages(),
               "the launches of a pass of up to 8 rows captured once and replayed"),
  };
}

}  // namespace

std::span<const Lever> Levers() {
  static const std::vector<Lever> levers = MakeLevers();
  return levers;
}

}  // namespace glint::cuda
