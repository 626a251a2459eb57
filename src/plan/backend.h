// What a device must offer to run plans: the CPU is one, a GPU another.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "base/progress.h"
#include "glint/status.h"
#include "plan/limits.h"
#include "plan/plan.h"
#include "plan/state_part.h"

namespace glint::plan {

// The fixed-size part of a sequence's state at one position (recurrent blocks, conv rows, raw indexer rows). With it and
// the untouched per-token rows below, the sequence can return to that position.
class StateMark {
 public:
  virtual ~StateMark() = default;
  virtual int64_t position() const = 0;
  virtual uint64_t bytes() const = 0;
};

// All state of one sequence: whatever moves one part moves all. Threads: one caller at a time.
class SequenceState {
 public:
  virtual ~SequenceState() = default;
  virtual int64_t position() const = 0;      // tokens absorbed by the trunk
  virtual int64_t mtp_position() const = 0;  // rows absorbed by the MTP block
  virtual int64_t capacity() const = 0;      // tokens it has room for
  virtual uint64_t bytes() const = 0;        // memory reserved
  virtual Result<std::unique_ptr<StateMark>> Mark() const = 0;
  virtual Status Return(
      const StateMark& mark) = 0;  // mark taken from this sequence (or one it was cloned from)
  // Forgets tokens from `position` on. Free inside the current block of the grid; kBadInput further back.
  virtual Status Truncate(int64_t position) = 0;
  virtual Status TruncateMtp(int64_t position) = 0;
  virtual Result<std::unique_ptr<SequenceState>> Clone() const = 0;
  virtual void Clear() = 0;  // to the empty sequence; never fails

  // The same state by parts, for session files and instruments. All of it that matters were the sequence at these positions
  // (its own; or, while a pass runs, those it will have after it), in an order that depends on the model and the positions
  // alone; parts without rows are left out. How far the MTP block's raw rows reach back also depends on where it was cut.
  virtual std::vector<StatePart> Parts(int64_t position, int64_t mtp_position) const = 0;
  // [rows][width] of a part, or of a stretch of its rows. kBadInput for what no sequence of this model and capacity holds.
  virtual Status Read(const StatePart& part, float* out) const = 0;
  virtual Status Write(const StatePart& part, const float* in) = 0;
  // After all parts of these positions were written: the sequence stands there. Marks taken before are void.
  virtual Status Place(int64_t position, int64_t mtp_position) = 0;
  // Becomes equal to a sequence of the same model and backend; capacities may differ if its tokens fit (else kNoRoom). Marks
  // of `other` hold for this one as for a clone, its own are void. After an error it is as before.
  virtual Status CopyFrom(const SequenceState& other) = 0;
};

// Consecutive rows of a batch that belong to one sequence and append to it.
struct Segment {
  SequenceState* state;
  int64_t position;  // of its first row
  int first_row, rows;
};

struct Batch {
  std::span<const int32_t> tokens;    // [rows]; in the MTP pass the *next* token of each row
  std::span<const Segment> segments;  // cover all rows in order
  const float* hidden_in = nullptr;   // MTP pass: [rows][D]
  std::span<const int32_t> wanted;    // rows whose logits are wanted, ascending
  float* logits = nullptr;            // null, or [wanted][vocab]
  float* final_out = nullptr;         // null, or [rows][D]: copy of the final-norm rows
  // null, or [wanted]: the highest logit's id below usable_vocab; lower of equals; never of NaN or -infinity; -1: none is left.
  int32_t* best = nullptr;
  int64_t usable_vocab = 0;  // at most vocab; read only with `best`
};

// Lets instruments and tests look at what a step left behind. Only slots the plan keeps at that step are valid.
struct StepView {
  const Plan& plan;
  const Step& step;
  int rows;
  const void* (*slot)(const void* self, Slot slot);  // null if the plan has no such slot
  const void* self;
  const float* Floats(Slot s) const { return static_cast<const float*>(slot(self, s)); }
  const int32_t* Ints(Slot s) const { return static_cast<const int32_t*>(slot(self, s)); }
};
using Observer = std::function<void(const StepView&)>;

// When a step ran, in seconds by the device's own clock; start counts from the beginning of the pass.
struct StepTime {
  double start = 0, seconds = 0;
  double clock =
      0;  // right behind it: what reading the clock took, as far as the device knows that; no part of `seconds`
};

// A pass carried out step by step, for instruments. Its buffers are its own, laid out as its plan says, so several may be in
// progress at once over different states. The plan, and what the batch points to, must outlive it.
// Threads: one call at a time for a backend and all its executions.
class Execution {
 public:
  virtual ~Execution() = default;
  virtual Status RunStep(size_t step) = 0;  // of the plan; in any order, any number of times
  // The batch's rows of a slot in host memory, 4 bytes an entry: [rows][Width(slot)]; of kLogits the wanted rows. kInternal if
  // the plan keeps no such slot. What a slot holds outside its life (plan/buffers.h) is undefined.
  virtual Status Read(Slot slot, void* out) const = 0;
  virtual Status Write(Slot slot, const void* in) = 0;
  // `from`: of the same backend, over as many rows.
  virtual Status CopySlot(const Execution& from, Slot slot) = 0;
  virtual Status Finish() = 0;  // advances the states: the pass is done
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual std::span<const Lever> levers() const = 0;
  // Memory of the device's own that the model's weights take; 0 where they are used as they lie in the host's.
  virtual uint64_t weight_bytes() const { return 0; }
  // What the memory that states and buffers come from can still give.
  virtual MemoryRoom Room() const { return AvailableMemory(); }
  // Rows that a pass of a prompt takes at most: long enough to read weights seldom, short enough to report progress and to bound
  // buffers. The bits don't depend on it.
  virtual int64_t prompt_rows() const { return 512; }
  // Bytes a sequence of that capacity will reserve; stated before it is taken.
  virtual uint64_t StateBytes(int64_t capacity, bool mtp) const = 0;
  virtual Result<std::unique_ptr<SequenceState>> NewState(int64_t capacity, bool mtp) = 0;
  // Runs the plan over the batch and advances the states. Inputs were checked by the caller (ids in range, room left).
  // One call at a time.
  virtual Status Run(const Plan& plan, const Batch& batch, const Observer& observer = {}) = 0;
  // As Run, and when each step ran: times[plan.steps.size()]. *whole: seconds of the pass from outside, with all that is
  // no step of it.
  virtual Status RunTimed(const Plan& plan, const Batch& batch, std::span<StepTime> times, double* whole) = 0;
  // Ceilings of this device, measured now with all that the backend uses of it (about a second; kNoRoom if there is not
  // enough memory free to tell its bandwidth from the caches').
  virtual Result<Limits> MeasureLimits(const Progress& progress = {}) = 0;
  // The same pass, to be carried out step by step. Run is the fast way. An empty batch is kInternal.
  virtual Result<std::unique_ptr<Execution>> Begin(const Plan& plan, const Batch& batch) = 0;
};

}  // namespace glint::plan
