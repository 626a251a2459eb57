// Prompts begin as earlier ones did: sequences are kept at chosen positions, in memory and on disk, and new ones go on from there.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/model.h"
#include "glint/session.h"
#include "glint/status.h"

namespace glint::engine {
class Snapshot;
}

namespace glint::serve {

struct PrefixCacheOptions {
  uint64_t ram_bytes = uint64_t{8} << 30;  // of host memory, for what is kept; 0: nothing is kept
  std::string directory = {};              // where it also goes; empty: nowhere. Made if it is not there
  uint64_t disk_bytes = uint64_t{64} << 30;
  uint64_t write_bytes_per_hour = uint64_t{8}
                                  << 30;  // to the disk, after a first burst of as many; 0: no limit
  // Tokens between checkpoints of a long prompt at its beginning; the distance grows to a quarter of the position.
  int64_t interval = 2048;
  int64_t least_tokens = 64;  // shorter beginnings are not worth a checkpoint
  bool mtp = false;           // sessions have the MTP block's caches
  std::function<std::chrono::steady_clock::time_point()> now = {};  // the clock; tests have their own
  std::function<void(const std::string& line)> log = {};  // what an operator should know; from any thread
};

// Why a checkpoint was taken.
enum class CacheKind : uint8_t {
  kMark,      // a place that many prompts share: the end of the system prompt
  kInterval,  // on the way through a long prompt
  kFork,      // where the prompt parts from another
  kPrompt,    // the last grid block of the prompt: for who asks again
  kEnd,       // of an answer, also of one that was broken off
};

// What came of a look-up.
enum class CacheMiss : uint8_t {
  kHit,
  kEmpty,                  // nothing is kept
  kNothingShared,          // no history begins as the prompt does
  kShorterThanCheckpoint,  // some do, but part from it before their first checkpoint
  kEvicted,                // there was a checkpoint
  kDamaged,                // its file is damaged, or gone
  kCount
};
std::string_view Name(CacheMiss why);  // "hit", "empty", ...: for metrics

struct CacheFound {
  // Null: nothing was found. Who holds it has it, whatever the cache drops meanwhile.
  std::shared_ptr<const engine::Snapshot> snapshot = {};
  uint64_t tokens = 0;  // of the prompt that it holds: fewer than all
  uint64_t shared =
      0;  // of the prompt that some kept history has; shared - tokens were prefilled for want of a checkpoint
  CacheMiss why = CacheMiss::kEmpty;
  bool from_disk = false;  // it came from there for this prompt
};

// Counters since the beginning, and the state now.
struct PrefixCacheStats {
  uint64_t finds[static_cast<size_t>(CacheMiss::kCount)] = {};  // by what came of them
  uint64_t found_on_disk = 0;
  uint64_t found_tokens = 0, lost_tokens = 0;         // lost: shared, but not found
  uint64_t kept = 0, kept_already = 0, not_kept = 0;  // not_kept: no memory, or not finite
  uint64_t not_finite = 0;                            // states with NaN or infinity, which are never kept
  uint64_t evicted_ram = 0, evicted_disk = 0;         // checkpoints
  uint64_t entries = 0, entries_ram = 0, entries_disk = 0;
  uint64_t ram_bytes = 0, disk_bytes = 0;            // now; ram: states and caches, each counted once
  uint64_t ram_state_bytes = 0, ram_rows_bytes = 0;  // of ram_bytes: fixed-size states; caches of tokens
  uint64_t written_bytes = 0, written_files = 0, read_bytes = 0;
  uint64_t writes_put_off = 0;  // by the limit of the rate
  uint64_t write_failures = 0, quarantined = 0, vanished = 0;
  uint64_t waiting_writes = 0;  // checkpoints in memory that are to go to the disk
  std::string disk = {};        // "on", "off", or why it rests: "another server uses it", "disk full"
};

// Threads: all functions from any thread. Fetch reads the disk, Keep and Open copy a state; nothing waits for a write, which a thread of its
// own does.
class PrefixCache {
 public:
  // kBadInput for options out of range, kIo where the directory can not be made or written.
  static Result<std::unique_ptr<PrefixCache>> Create(const Model& model, const PrefixCacheOptions& options);
  ~PrefixCache();  // leaves what is not written yet: Flush before
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest checkpoint in memory that is a proper beginning of the prompt. Never waits for the disk.
  CacheFound Find(std::span<const int32_t> prompt);
  // Brings what Find would want from the disk into memory, where that is longer than what memory has. To be called before the job is queued,
  // in a thread that may wait; who holds on to the result until Find keeps it in memory. Null: there is nothing at all.
  std::shared_ptr<const engine::Snapshot> Fetch(std::span<const int32_t> prompt);
  // A session that goes on from what was found, with room for `context` tokens. kNoRoom as Session::Create.
  Result<Session> Open(const CacheFound& found, int64_t context) const;

  struct Position {
    int64_t tokens;
    CacheKind kind;
    friend bool operator==(const Position&, const Position&) = default;
  };
  // Where a prompt of which `found` tokens are there is to be kept on its way: ascending, multiples of the grid's block, none twice.
  // marks: further places, such as the end of the system prompt, that the caller knows of.
  std::vector<Position> KeepAt(std::span<const int32_t> prompt, uint64_t found,
                               std::span<const Position> marks) const;
  // Keeps the session's sequence at the start of the grid block that its position lies in. In doubt it keeps nothing, and counts it.
  void Keep(const Session& session, CacheKind kind);
  // Drops all that the tokens begin with, from memory and disk: a request on them went wrong in a way that may be the state's.
  void Forget(std::span<const int32_t> tokens);

  // Waits until all that is worth it is on the disk, or for `until`. False: not all of it.
  bool Flush(std::chrono::steady_clock::time_point until);
  PrefixCacheStats stats() const;

 private:
  struct Impl;
  explicit PrefixCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace glint::serve
