// The canonical stages, each the definition of its arithmetic (docs/design.md, "The canonical arithmetic, in
// full"), one file each. How a stage is carried out (which kernels, threads, batching) comes from the context
// and never changes a bit.
#pragma once
#include "cpu/context.h"

namespace glint::cpu {

using StageFunction = void (*)(const StepContext&);

void Embed(const StepContext& c);
void HcPre(const StepContext& c);
void AttnNorm(const StepContext& c);
void KdaQkv(const StepContext& c);
void KdaConv(const StepContext& c);
void KdaGates(const StepContext& c);
void KdaRecur(const StepContext& c);
void KdaNorm(const StepContext& c);
void KdaOut(const StepContext& c);
void DsaQ(const StepContext& c);
void DsaKv(const StepContext& c);
void DsaIndex(const StepContext& c);
void DsaSelect(const StepContext& c);
void DsaAttend(const StepContext& c);
void DsaOut(const StepContext& c);
void HcPost(const StepContext& c);
void Residual(const StepContext& c);
void FfnNorm(const StepContext& c);
void FfnGateUp(const StepContext& c);
void FfnDown(const StepContext& c);
void MoeRoute(const StepContext& c);
void MoeGateUp(const StepContext& c);
void MoeDown(const StepContext& c);
void MoeSharedGateUp(const StepContext& c);
void MoeSharedDown(const StepContext& c);
void MoeCombine(const StepContext& c);
void HeadNorm(const StepContext& c);
void HeadLogits(const StepContext& c);
void MtpInput(const StepContext& c);

// Replacements (levers), with the stage each serves.
void KdaBlock(const StepContext& c);  // kda.recur

StageFunction Canonical(plan::Stage stage);
// The function of a kReplace lever of this backend; null if it has none.
StageFunction Replacement(const plan::Lever& lever);

}  // namespace glint::cpu
