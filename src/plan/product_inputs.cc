#include "plan/product_inputs.h"

namespace glint::plan {

std::vector<ProductInput> ProductInputs(const Step& step) {
  using Id = model::TensorId;
  using Kind = ProductInput::Kind;
  switch (step.stage) {
    case Stage::kHcPre:
      return {{step.site == Step::Site::kAttn ? Id::kHcAttnFn : Id::kHcFfnFn, Slot::kStreams}};
    case Stage::kKdaQkv:
      return {{Id::kKdaQ}, {Id::kKdaK}, {Id::kKdaV}};
    case Stage::kKdaGates:
      return {{Id::kKdaBeta},
              {Id::kKdaFa},
              {Id::kKdaGa},
              {Id::kKdaFb, Slot::kX, Kind::kThrough, Id::kKdaFa},
              {Id::kKdaGb, Slot::kX, Kind::kThrough, Id::kKdaGa}};
    case Stage::kKdaOut:
      return {{Id::kKdaOut, Slot::kMixedNormed}};
    case Stage::kDsaQ:
      return {{Id::kDsaQa}, {Id::kDsaQb, Slot::kQResid}};
    case Stage::kDsaKv:
      return {{Id::kDsaKva}};
    case Stage::kDsaIndex:
      return {{Id::kIndexQb, Slot::kQResid}, {Id::kIndexK}, {Id::kIndexProj}, {Id::kIndexGate}};
    case Stage::kDsaAttend:
      return {{Id::kDsaKb, Slot::kQ, Kind::kHeads}, {Id::kDsaVb, Slot::kMix, Kind::kHeads}};
    case Stage::kDsaOut:
      return {{Id::kDsaOut, Slot::kAttended}};
    case Stage::kFfnGateUp:
      return {{Id::kDenseGate}, {Id::kDenseUp}};
    case Stage::kFfnDown:
      return {{Id::kDenseDown, Slot::kFfnHidden}};
    case Stage::kMoeRoute:
      return {{Id::kRouter}};
    case Stage::kMoeGateUp:
      return {{Id::kExpertGate, Slot::kX, Kind::kRouted}, {Id::kExpertUp, Slot::kX, Kind::kRouted}};
    case Stage::kMoeDown:
      return {{Id::kExpertDown, Slot::kMoeHidden, Kind::kExpertRows}};
    case Stage::kMoeSharedGateUp:
      return {{Id::kSharedGate}, {Id::kSharedUp}};
    case Stage::kMoeSharedDown:
      return {{Id::kSharedDown, Slot::kSharedHidden}};
    case Stage::kMtpInput:
      return {{Id::kNextnEhProj, Slot::kJoined}};
    case Stage::kHeadLogits:
      return {{Id::kHead, Slot::kFinal}};
    default:
      return {};
  }
}

}  // namespace glint::plan
