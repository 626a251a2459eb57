// What a stage gets to work with on the GPU (the twin of cpu/context.h), and the table of the canonical stages.
//
// A stage only enqueues work on c.stream; it never waits and never asks the device anything, so that a plan's steps can be captured
// as a graph. Everything that changes from token to token (ids, positions, whose state) is therefore read from device memory by the
// kernels: RowView and SegmentView. Grids depend on c.rows, c.segments and the model's shape alone.
//
// Arithmetic: the bits of the CPU's canonical stages (docs/design.md, "The canonical arithmetic, in full"), entry by entry.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "cuda/devices.h"
#include "cuda/digits.h"
#include "cuda/matrix.h"
#include "model/glm_flash/hparams.h"
#include "model/glm_flash/weights.h"
#include "plan/plan.h"

namespace glint::cuda {

class DeviceTables;
class DeviceWeights;

// One layer's state of one sequence: device addresses; those of the other kind of layer are null. Shapes and rings: plan/state_layout.h.
struct LayerState {
  float *s, *kf, *delta, *g, *conv;
  float *latent, *pooled, *raw_key, *raw_gate;
};

// Rows of the batch that continue one sequence. `layers`: [hp.layers + 1], the last for the MTP block.
struct SegmentView {
  const LayerState* layers;
  int64_t position;  // of its first row
  int32_t first_row, rows;
};

// A row of the batch: everything a kernel that works row by row needs.
struct RowView {
  const LayerState* layers;
  int64_t position;
  int32_t token;
  int32_t segment;  // index of its segment
};

// The batch in device memory.
struct DeviceBatch {
  const RowView* rows = nullptr;          // [rows]
  const SegmentView* segments = nullptr;  // [segments]
  const int32_t* wanted = nullptr;        // [wanted], ascending rows
  const float* hidden_in = nullptr;       // MTP pass: [rows][D]
  float* logits = nullptr;                // [wanted][vocab]
  int32_t* best = nullptr;     // null, or [wanted]: in the host's pinned memory, which the device writes to
  float* final_out = nullptr;  // null, or [rows][D]: a copy of the final-norm rows
  // Counts blocks of a kernel of which the last to finish has more to do. 0 between kernels: that block sets it back.
  uint32_t* arrived = nullptr;
};

// Device memory that one step may use while it runs: handed out from the start again in every step. Its size is ScratchBytes.
class Scratch {
 public:
  Scratch(std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  // `count` entries at a multiple of 256 bytes, not initialised; null once there is no room (Full() then says so).
  template <class T>
  T* Take(int64_t count) {
    const uint64_t at = (used_ + 255) / 256 * 256, wanted = static_cast<uint64_t>(count) * sizeof(T);
    if (at > bytes_ || wanted > bytes_ - at) {
      full_ = true;
      return nullptr;
    }
    used_ = at + wanted;
    return reinterpret_cast<T*>(base_ + at);
  }
  bool Full() const { return full_; }

 private:
  std::byte* base_;
  uint64_t bytes_, used_ = 0;
  bool full_ = false;
};

// Enough for any one step over `rows` rows of sequences of at most `capacity` tokens.
uint64_t ScratchBytes(const model::HParams& hp, int64_t rows, int64_t capacity);

// How a step's work is carried out, set by the modifiers of a plan's step. All give the same bits.
struct How {
  bool tensor_cores = false;  // lever mma: integer block products on int8 tensor cores
};

struct StepContext {
  const model::HParams& hp;
  const model::Weights& weights;  // the host's: shapes, and keys for on_device
  const DeviceWeights& on_device;
  const DeviceTables& tables;
  const plan::Step& step;
  plan::Pass pass;
  const model::Layer* layer;  // null outside layers
  int64_t rows, segments, wanted;
  int64_t capacity;  // the largest of the batch's sequences: bounds positions
  DeviceBatch batch;
  How how;
  int64_t conv_ring, raw_ring;  // rows in the rings of every state (plan/state_layout.h)
  std::span<const plan::BufferLayout::Place> places;
  std::byte* buffers;  // device memory
  Scratch& scratch;
  const DeviceInfo& device;
  cudaStream_t stream;
  Side side;
  SlotDigits* digits = nullptr;  // or null: none are kept
  bool early = false;            // launches may begin before those before them have ended (cuda/async.cuh)

  float* Floats(plan::Slot slot) const {
    return reinterpret_cast<float*>(buffers + places[static_cast<size_t>(slot)].offset);
  }
  int32_t* Ints(plan::Slot slot) const {
    return reinterpret_cast<int32_t*>(buffers + places[static_cast<size_t>(slot)].offset);
  }
  // The slot's digits, for the kernel of this step that writes the slot; none where they are not kept.
  Digits MakeDigits(plan::Slot slot) const { return digits == nullptr ? Digits{} : digits->Make(slot); }
  // Those of the rows at x, if it is a slot of this step whose digits are made; else null.
  const Digits* DigitsOf(const float* x, int64_t x_stride, int64_t columns) const;
  // This step on the side stream.
  StepContext Beside(Scratch& its_scratch) const;
  int layer_index() const { return step.layer; }
  Matrix On(const model::Matrix& w) const;  // its device twin
  const float* On(model::Vector v) const;
  // After the launches of a part of a step: what the runtime said of them, naming the step's stage.
  Status Launched(std::string_view what = {}) const;
};

using StageFunction = Status (*)(const StepContext&);

Status Embed(const StepContext& c);
Status HcPre(const StepContext& c);
Status AttnNorm(const StepContext& c);
Status KdaQkv(const StepContext& c);
Status KdaConv(const StepContext& c);
Status KdaGates(const StepContext& c);
Status KdaRecur(const StepContext& c);
Status KdaNorm(const StepContext& c);
Status KdaOut(const StepContext& c);
Status DsaQ(const StepContext& c);
Status DsaKv(const StepContext& c);
Status DsaIndex(const StepContext& c);
Status DsaSelect(const StepContext& c);
Status DsaAttend(const StepContext& c);
Status DsaOut(const StepContext& c);
Status HcPost(const StepContext& c);
Status Residual(const StepContext& c);
Status FfnNorm(const StepContext& c);
Status FfnGateUp(const StepContext& c);
Status FfnDown(const StepContext& c);
Status MoeRoute(const StepContext& c);
Status MoeGateUp(const StepContext& c);
Status MoeDown(const StepContext& c);
Status MoeSharedGateUp(const StepContext& c);
Status MoeSharedDown(const StepContext& c);
Status MoeCombine(const StepContext& c);
Status HeadNorm(const StepContext& c);
Status HeadLogits(const StepContext& c);
Status MtpInput(const StepContext& c);

StageFunction Canonical(plan::Stage stage);

// Levers that replace stages.
Status HcFused(const StepContext& c);    // hc.pre and the norm behind it
Status HcBlock(const StepContext& c);    // and the hc.post before them
Status KdaFused(const StepContext& c);   // kda.qkv to kda.norm
Status DsaInputs(const StepContext& c);  // dsa.q, dsa.kv and dsa.index
Status MoeBeside(const StepContext& c);  // moe.route to moe.shared_down

// Null: no lever of the GPU's that replaces stages.
StageFunction Replacement(const plan::Lever& lever);

}  // namespace glint::cuda
