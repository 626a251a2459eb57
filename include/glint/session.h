// One sequence and all of its state.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/model.h"
#include "glint/status.h"

namespace glint {

namespace engine {
struct SessionImpl;
}

struct SessionOptions {
  int64_t context = 4096;  // tokens it has room for; at most the model's context length (if it states one)
  bool mtp = false;        // also keep the MTP block's caches
  // Every pass is verified: all its steps are done once more by the canonical stages, over a copy of the state, and all outputs and states
  // compared (`glint verify` says more). As slow as the canonical plan. A difference is kInternal with a report; the session is then
  // as before the call.
  bool check = false;
};

// Names a position of a session that it can return to. Valid until the session is rewound to before it.
struct CheckpointId {
  uint64_t value = 0;
};

// Which rows' logits an Append returns.
enum class LogitRows : uint8_t { kNone, kLast, kAll };

// Threads: one call at a time per session; sessions of one model may be used from different threads (their passes take
// turns). After an error a session is as before the call, unless the code is kDevice: then all calls that would change or save it are
// refused with kDevice, what it says of itself (position, tokens) may be of any time during the failed call, and it can be destroyed; the
// program and other sessions are none the worse. If memory runs out
// inside a pass that ends a block of the grid, and was the only pass of its call, the state is lost: until the session is reset or rewound to a
// checkpoint, all else is refused with kNoRoom.
class Session {
 public:
  // Says what memory it needs and refuses (kNoRoom, with the numbers) what the machine does not have.
  static Result<Session> Create(const Model& model, const SessionOptions& options = {});
  // Bytes that Create would reserve for caches and state, with `check` also for the copy of the state and for buffers to compare with;
  // the buffers of a pass belong to the model otherwise.
  static uint64_t MemoryNeeded(const Model& model, const SessionOptions& options);

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Appends tokens and advances the state. `logits` is float[rows][vocab_size], the caller's: rows is 0, 1 (the last token)
  // or tokens.size(), as `which` says. Natural logits: not divided by a temperature. Empty `tokens` does nothing.
  // The bits do not depend on how the tokens were cut into calls, on the threads, or on the levers (docs/design.md).
  // kBadInput: an id out of range, or a wrong size of `logits`. kNoRoom: the context is full (says how many still fit).
  // `progress` (tokens done, total) is called between chunks; returning false stops there with kBadInput "interrupted",
  // and the tokens done so far stay appended (position() tells).
  Status Append(std::span<const int32_t> tokens, LogitRows which, std::span<float> logits,
                const std::function<bool(uint64_t, uint64_t)>& progress = {});

  // As Append with the logits of the last token, of which only the greedy choice comes back: what a Sampler of temperature 0 without
  // penalties or bias chooses (the highest logit below usable_vocab, ties to the lower id), or -1 where that would find no id left.
  // The logits themselves stay where they were computed, which on a GPU saves their way to the host. Empty `tokens` leaves *best.
  Status AppendBest(std::span<const int32_t> tokens, int32_t* best,
                    const std::function<bool(uint64_t, uint64_t)>& progress = {});

  // As AppendBest with the choice after each token, int32_t[tokens.size()]: what a verify of drafts wants to know, from one pass.
  Status AppendBestOfEach(std::span<const int32_t> tokens, std::span<int32_t> best,
                          const std::function<bool(uint64_t, uint64_t)>& progress = {});

  // As Append without progress, and also copies out the trunk's final-norm rows float[tokens.size()][hidden_size] (input of the MTP block).
  Status AppendWithHidden(std::span<const int32_t> tokens, LogitRows which, std::span<float> logits,
                          std::span<float> hidden);

  // The MTP block over rows that continue its own cache: `next` are the tokens after each row, `hidden` the rows' trunk
  // hidden states (or the block's own h' when drafting), float[rows][hidden_size]. Writes the logits float[rows][vocab_size] and h'
  // float[rows][hidden_size] of all rows; either may be empty if it is not wanted. kBadInput if the session was made without mtp.
  Status AppendMtp(std::span<const int32_t> next, std::span<const float> hidden, std::span<float> logits,
                   std::span<float> hidden_out);
  // Forgets the MTP block's rows from `position` on (drafts that were not accepted).
  Status TruncateMtp(int64_t position);

  int64_t position() const;  // tokens in the sequence
  int64_t mtp_position() const;
  int64_t capacity() const;
  std::span<const int32_t> tokens() const;
  uint64_t memory_bytes() const;  // reserved for caches, state and checkpoints, and for `check`

  // Checkpoints are explicit: an older recurrent state cannot be derived, only kept. Rewind goes back to one and drops
  // those after it. RewindTo goes to any position inside the current block of the grid (always free), or to the
  // position of a checkpoint; otherwise kBadInput naming the nearest positions it could go to. MTP rows go along: a checkpoint brings its
  // own back, and a position inside the block keeps those whose next token is still there.
  Result<CheckpointId> Checkpoint();
  Status Rewind(CheckpointId id);
  void Forget(CheckpointId id);  // frees its memory; an id that is gone already is nothing
  Status RewindTo(int64_t position);
  std::vector<int64_t> Rewindable() const;  // ascending positions of checkpoints and of the current block
  // An independent sequence with the same tokens and state (checkpoints are not taken along).
  Result<Session> Fork() const;
  void Reset();  // to the empty sequence, without checkpoints

  // Writes the sequence to a file: tokens, state and MTP rows; checkpoints stay behind. The file belongs to this model and
  // vocabulary, holds on any machine and backend, appears whole or not at all, and is for its owner's eyes (mode 0600).
  // `attachment`: text of the caller's that goes along, up to 64 MiB. kBadInput for a path at which there is something else than a
  // session file; kNoRoom for a full disk. `progress` (bytes done, total); returning false stops with kBadInput "interrupted".
  Status Save(const std::string& path, std::string_view attachment = {},
              const std::function<bool(uint64_t, uint64_t)>& progress = {}) const;
  // The sequence of such a file, which continues with the bits it would have had. options.context 0: the room that it had when it
  // was saved. options.mtp false: its MTP rows, if it has any, are left out. kBadFile: no session file, or a damaged one;
  // kUnsupported: of another version of the format; kBadInput: of another model or vocabulary, or saved without MTP rows where
  // they are wanted; kNoRoom: a context too small for its tokens, or more than the memory there is.
  static Result<Session> Load(const Model& model, const std::string& path,
                              const SessionOptions& options = {.context = 0},
                              std::string* attachment = nullptr,
                              const std::function<bool(uint64_t, uint64_t)>& progress = {});

  engine::SessionImpl& impl() { return *impl_; }  // for instruments and tests
  const engine::SessionImpl& impl() const { return *impl_; }

 private:
  explicit Session(std::unique_ptr<engine::SessionImpl> impl);
  std::unique_ptr<engine::SessionImpl> impl_;
};

}  // namespace glint
