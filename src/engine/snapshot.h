// A copy of a sequence at one position, in host memory: sessions are made from it again, on any backend, with the very bits.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "glint/model.h"
#include "glint/session.h"
#include "glint/status.h"
#include "plan/state_part.h"

namespace glint::engine {

// How the caches of tokens (latent rows and pooled keys of the trunk's DSA layers) are cut into pieces that snapshots share: a function of
// the model alone.
struct RowsLayout {
  struct Layer {
    int layer = 0;
    int64_t latent_width = 0, pooled_width = 0;  // floats a row
    int64_t latent_at = 0, pooled_at = 0;        // within a piece, in floats
  };
  std::vector<Layer> layers;
  int64_t tokens = 0;  // of a piece: a multiple of the grid's block and of the pool
  int64_t pools = 0;   // of a piece
  int64_t floats = 0;  // of a piece

  static RowsLayout Of(const Model& model);
  const Layer* Find(int layer) const;  // null: it has no such caches
};

// The caches of the tokens of one piece, never changed.
class RowsPiece {
 public:
  using Gauge = std::shared_ptr<std::atomic<uint64_t>>;
  // gauge: null, or counts the bytes of all pieces alive.
  RowsPiece(std::vector<float> floats, Gauge gauge);
  RowsPiece(const RowsPiece&) = delete;
  RowsPiece& operator=(const RowsPiece&) = delete;
  ~RowsPiece();
  std::span<const float> floats() const { return floats_; }

 private:
  const std::vector<float> floats_;
  const Gauge gauge_;
};

struct SnapshotData {
  struct Own {
    plan::StatePart part;
    std::vector<float> floats;
  };
  std::string model, mtp_model, tokenizer;  // fingerprints; mtp_model: empty without its rows
  std::vector<int32_t> tokens;
  int64_t mtp_position = 0;
  bool mtp = false;                                    // with the MTP block's rows
  std::vector<Own> own;                                // in the order of the state's parts
  std::vector<std::shared_ptr<const RowsPiece>> rows;  // of whole pieces; the rows left over are in `own`
};

// What snapshots are made of beside the tokens. The caches only ever grow, and are a function of the tokens before them: they are kept in
// pieces of one or a few blocks of the grid, and snapshots of sequences with the same beginning share them. All else (recurrent states, what
// the unfinished block and the open pool need, the MTP block's rows) is each snapshot's own.
//
// Never changed once made; any number of threads may use one at once.
class Snapshot {
 public:
  // Of the session at `position`, which lies in the current block of its grid. Pieces whose tokens are those of `like` (null: none) are
  // shared with it. gauge: for the new ones.
  // kBadInput for another position; kUnsupported if a number is not finite: such a state is good for nothing. Else as Session::Save.
  static Result<std::shared_ptr<const Snapshot>> Take(const Session& session, int64_t position,
                                                      const Snapshot* like = nullptr,
                                                      RowsPiece::Gauge gauge = nullptr);
  explicit Snapshot(SnapshotData data) : data_(std::move(data)) {}
  // A session that goes on from there. options.context: at least the tokens. options.mtp: only if the session of which it was taken had it.
  // kBadInput for another model than that it was taken with; kBadFile if the data is not this model's state.
  Result<Session> Restore(const Model& model, const SessionOptions& options) const;

  int64_t position() const { return static_cast<int64_t>(data_.tokens.size()); }
  const SnapshotData& data() const { return data_; }
  uint64_t own_bytes() const;  // without the pieces

 private:
  const SnapshotData data_;
};

// Whether no number is NaN or infinite.
bool AllFinite(std::span<const float> floats);

}  // namespace glint::engine
