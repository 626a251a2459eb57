#include "serve/prefix_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/no_room.h"
#include "engine/batch.h"
#include "engine/session_impl.h"
#include "engine/snapshot.h"
#include "engine/snapshot_file.h"
#include "serve/cache_directory.h"
#include "serve/prefix_tree.h"

namespace glint::serve {
namespace {

using Clock = std::chrono::steady_clock;  // setting the machine's time changes nothing
using engine::Snapshot;
using SnapshotPtr = std::shared_ptr<const Snapshot>;

constexpr size_t kMostInRam = 4096, kMostGone = 1024;  // checkpoints; places where there was one
// The ends of a line of checkpoints are needed next: the last answer, its prompt, and the answer before it for who edits that prompt.
constexpr int kNeededNext = 3;
constexpr auto kLockRetry = std::chrono::seconds(5), kFirstRest = std::chrono::seconds(10),
               kLongestRest = std::chrono::seconds(600);

struct Entry;
struct Known {
  std::shared_ptr<Entry> entry = {};
  std::optional<CacheMiss> gone = {};  // there was one
  uint64_t gone_number = 0;            // its place in Impl::gone
};
using Tree = PrefixTree<Known>;
using Node = Tree::Node;

// A checkpoint: in memory, on disk, or both.
struct Entry {
  CacheKind kind = CacheKind::kEnd;
  Node* node = nullptr;  // null: no longer in the tree
  SnapshotPtr ram = {};
  std::optional<CacheFile> file = {};
  int loading = 0;        // threads that read its files
  bool writing = false;   // the writer is at it
  bool no_write = false;  // it would not last on the disk
  bool put_off = false;
  bool just_read = false;
  uint64_t used = 0;  // the greater, the later
};

bool Needed(const Known& known) { return known.entry != nullptr || known.gone.has_value(); }

// What is written first.
int Urgency(CacheKind kind) {
  switch (kind) {
    case CacheKind::kEnd:
      return 4;
    case CacheKind::kMark:
      return 3;
    case CacheKind::kFork:
      return 2;
    case CacheKind::kPrompt:
      return 1;
    case CacheKind::kInterval:
      return 0;
  }
  return 0;
}

}  // namespace

std::string_view Name(CacheMiss why) {
  static constexpr std::array<std::string_view, static_cast<size_t>(CacheMiss::kCount)> kNames = {
      "hit", "empty", "nothing_shared", "shorter_than_checkpoint", "evicted", "damaged"};
  return why < CacheMiss::kCount ? kNames[static_cast<size_t>(why)] : "unknown";
}

struct PrefixCache::Impl {
  Impl(const Model& of, const PrefixCacheOptions& chosen)
      : model(of), options(chosen), block(engine::GridBlock(of)), layout(engine::RowsLayout::Of(of)) {}

  const Model model;
  const PrefixCacheOptions options;
  const int64_t block;
  const engine::RowsLayout layout;
  const engine::RowsPiece::Gauge gauge = std::make_shared<std::atomic<uint64_t>>(0);

  std::mutex loading;        // one thread reads the disk at a time: ten with the same prompt read it once
  mutable std::mutex mutex;  // of all that follows
  mutable Tree tree;
  std::list<std::shared_ptr<Entry>> entries;
  std::map<uint64_t, Node*> gone;  // the oldest first
  uint64_t next_gone = 0;
  uint64_t tick = 0, state_bytes = 0, largest_state = 0;
  size_t in_ram = 0;
  PrefixCacheStats counted;

  // The disk.
  std::unique_ptr<CacheDirectory> directory;  // null: none, or another server has it
  std::string resting = {};                   // why nothing is written for now
  Clock::time_point rest_until, filled_at;
  Clock::duration next_rest = kFirstRest;
  double may_write = 0;  // bytes
  bool changed = false, stop = false, busy = false;
  uint64_t rounds = 0;  // of the writer
  std::condition_variable wake, rested;
  std::thread writer;

  Clock::time_point Now() const { return options.now ? options.now() : Clock::now(); }
  void Log(const std::string& line) const {
    if (options.log) options.log(line);
  }
  uint64_t RamBytes() const { return state_bytes + *gauge; }

  // Entries.
  void Use(Entry& entry);
  std::shared_ptr<Entry> At(const Tree::Walk& walk, size_t tokens) const;
  std::shared_ptr<Entry> Add(std::span<const int32_t> tokens, CacheKind kind);
  void RemoveIfNothing(Entry& entry, CacheMiss why);
  void Gone(Node* node, CacheMiss why);
  void ForgetGone(Node* node);
  void SetRam(Entry& entry, SnapshotPtr snapshot);
  void DropRam(Entry& entry);
  void DropFile(Entry& entry);
  template <class Has, class May>
  Entry* Victim(Has&& has, May&& may);
  template <class Has>
  std::pair<Entry*, int64_t> Nearest(const Tree::Walk& walk, Has&& has) const;
  void MakeRoom(uint64_t bytes, const Entry* but);

  // The disk.
  Status OpenDirectory();
  void TakeOver(std::vector<CacheDirectory::Found> found);
  void KeepToDiskBudget();
  void Blame(Entry& entry, const std::string& path, const Status& status);
  struct Write {
    std::shared_ptr<Entry> entry;
    SnapshotPtr snapshot;
    CacheFile file = {};     // as it will be
    std::string fresh = {};  // caches to be written, the last of file.rows; empty: none
    int64_t first = 0, end = 0;
  };
  std::optional<Write> NextWrite();
  bool MakeDiskRoom(Entry& entry, uint64_t bytes);
  uint64_t PlanRows(Write& write) const;
  void Run();
  void Do(Write write, std::unique_lock<std::mutex>& lock);
  void Refill();
};

void PrefixCache::Impl::Use(Entry& entry) {
  entry.used = ++tick;
  // What many lines begin with is needed with each of them.
  for (Node* node = entry.node; node != nullptr; node = node->parent) {
    Entry* const above = node->value.entry.get();
    if (above != nullptr && (above->kind == CacheKind::kMark || node->children.size() > 1))
      above->used = tick;
  }
}

// The entry of exactly those tokens.
std::shared_ptr<Entry> PrefixCache::Impl::At(const Tree::Walk& walk, size_t tokens) const {
  Node* const node = walk.path.back();
  return node->end == static_cast<int64_t>(tokens) ? node->value.entry : nullptr;
}

std::shared_ptr<Entry> PrefixCache::Impl::Add(std::span<const int32_t> tokens, CacheKind kind) {
  Node* const node = tree.Insert(tokens);
  if (node->value.entry == nullptr) {
    ForgetGone(node);
    node->value.entry = std::make_shared<Entry>();
    node->value.entry->node = node;
    node->value.entry->kind = kind;
    entries.push_back(node->value.entry);
  }
  return node->value.entry;
}

void PrefixCache::Impl::ForgetGone(Node* node) {
  if (!node->value.gone) return;
  gone.erase(node->value.gone_number);
  node->value.gone.reset();
}

void PrefixCache::Impl::Gone(Node* node, CacheMiss why) {
  ForgetGone(node);
  node->value.gone = why;
  node->value.gone_number = next_gone++;
  gone.emplace(node->value.gone_number, node);
  while (gone.size() > kMostGone) {
    Node* const oldest = gone.begin()->second;
    ForgetGone(oldest);
    tree.Prune(oldest, Needed);
  }
}

void PrefixCache::Impl::RemoveIfNothing(Entry& entry, CacheMiss why) {
  if (entry.node == nullptr || entry.ram != nullptr || entry.file || entry.writing) return;
  Node* const node = std::exchange(entry.node, nullptr);
  const auto at =
      std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.get() == &entry; });
  const auto holds = *at;  // until the end
  entries.erase(at);
  node->value.entry.reset();
  Gone(node, why);
}

void PrefixCache::Impl::SetRam(Entry& entry, SnapshotPtr snapshot) {
  state_bytes += snapshot->own_bytes();
  largest_state = std::max(largest_state, snapshot->own_bytes());
  ++in_ram;
  entry.ram = std::move(snapshot);
}

void PrefixCache::Impl::DropRam(Entry& entry) {
  if (entry.ram == nullptr) return;
  state_bytes -= entry.ram->own_bytes();
  --in_ram;
  entry.ram.reset();
}

void PrefixCache::Impl::DropFile(Entry& entry) {
  if (!entry.file) return;
  if (directory != nullptr) directory->RemoveState(*entry.file);
  entry.file.reset();
}

// Who goes first of those that `has` and `may` say yes to; they stand among all that `has` does. A longer checkpoint of the same line makes those before it redundant, but for the last few:
// of these goes the one that leaves the smallest gap for its distance from the end. If there are none, it is the least recently used.
template <class Has, class May>
Entry* PrefixCache::Impl::Victim(Has&& has, May&& may) {
  Entry *redundant = nullptr, *oldest = nullptr;
  double least = 0;
  struct Below {
    int count = 0;    // checkpoints on the longest line below
    int64_t end = 0;  // of that line
  };
  const auto look = [&](const auto& self, Node& node, int64_t before) -> Below {
    Entry* entry = node.value.entry.get();
    if (entry != nullptr && !has(*entry)) entry = nullptr;
    Below below{0, node.end};
    int lines = 0;
    for (auto& [first, child] : node.children) {
      const Below b = self(self, *child, entry != nullptr ? node.end : before);
      if (b.count > 0) ++lines;
      if (b.count > below.count) below = b;
    }
    if (entry == nullptr) return below;
    const bool choice = may(*entry);
    if (choice && below.count >= kNeededNext && lines == 1 && entry->kind != CacheKind::kMark) {
      const double gap =
          static_cast<double>(node.end - before) / static_cast<double>(below.end - node.end + 1);
      if (redundant == nullptr || gap < least) redundant = entry, least = gap;
    }
    if (choice && (oldest == nullptr || entry->used < oldest->used)) oldest = entry;
    ++below.count;
    return below;
  };
  look(look, tree.root(), 0);
  return redundant != nullptr ? redundant : oldest;
}

// An entry that shares the most tokens with those of the walk, and how many.
template <class Has>
std::pair<Entry*, int64_t> PrefixCache::Impl::Nearest(const Tree::Walk& walk, Has&& has) const {
  const auto any = [&](const auto& self, Node& node, const Node* but) -> Entry* {
    if (node.value.entry != nullptr && has(*node.value.entry)) return node.value.entry.get();
    for (auto& [first, child] : node.children) {
      if (child.get() == but) continue;
      if (Entry* found = self(self, *child, nullptr)) return found;
    }
    return nullptr;
  };
  if (Entry* found = any(any, *walk.below, nullptr)) return {found, walk.shared};
  const Node* done = walk.below;
  for (auto it = walk.path.rbegin(); it != walk.path.rend(); ++it) {
    if (*it == done) continue;
    if (Entry* found = any(any, **it, done)) return {found, (*it)->end};
    done = *it;
  }
  return {nullptr, 0};
}

// Drops checkpoints from memory until there is room for so many bytes more. Those that somebody holds would free nothing.
void PrefixCache::Impl::MakeRoom(uint64_t bytes, const Entry* but) {
  while (RamBytes() + bytes > options.ram_bytes || in_ram > kMostInRam) {
    Entry* const victim = Victim([](const Entry& e) { return e.ram != nullptr; },
                                 [&](const Entry& e) { return &e != but && e.ram.use_count() == 1; });
    if (victim == nullptr) return;
    ++counted.evicted_ram;
    DropRam(*victim);
    RemoveIfNothing(*victim, CacheMiss::kEvicted);
  }
}

// ---------------------------------------------------------------------------------------------- the disk

Status PrefixCache::Impl::OpenDirectory() {
  auto opened = CacheDirectory::Open(model, options.directory, options.mtp);
  if (!opened.ok()) return opened.status();
  uint64_t bad = 0;
  auto found = (*opened)->Scan(&bad);
  directory = std::move(*opened);
  counted.quarantined += bad;
  if (bad > 0)
    Log(fmt::format("prefix cache: {} damaged or foreign files set aside in {}", bad, directory->folder()));
  TakeOver(std::move(found));
  return {};
}

void PrefixCache::Impl::TakeOver(std::vector<CacheDirectory::Found> found) {
  for (auto& one : found) {
    const auto entry = Add(one.tokens, one.kind);
    entry->file = std::move(one.file);
    entry->used = ++tick;
  }
  KeepToDiskBudget();  // which may have been cut since
}

// Drops files from the disk until the rest is within the budget.
void PrefixCache::Impl::KeepToDiskBudget() {
  while (directory->bytes() > options.disk_bytes) {
    Entry* const victim = Victim([](const Entry& e) { return e.file.has_value(); },
                                 [](const Entry& e) { return e.loading == 0; });
    if (victim == nullptr) return;
    ++counted.evicted_disk;
    DropFile(*victim);
    victim->no_write = true;
    RemoveIfNothing(*victim, CacheMiss::kEvicted);
  }
}

// A file could not be read: it, and whatever needs it, is no longer there.
void PrefixCache::Impl::Blame(Entry& entry, const std::string& path, const Status& status) {
  const bool vanished = status.code() == Code::kNotFound;
  const bool damaged = status.code() == Code::kBadFile || status.code() == Code::kBadInput ||
                       status.code() == Code::kUnsupported || status.code() == Code::kIo;
  if ((!vanished && !damaged) || directory == nullptr || !entry.file) return;
  const std::string name = path.substr(path.rfind('/') + 1);
  if (vanished) {
    ++counted.vanished;
  } else {
    ++counted.quarantined;
    directory->Quarantine(name);
  }
  Log(fmt::format("prefix cache: {}; it is left out", status.message()));
  std::vector<std::shared_ptr<Entry>> lost;
  for (const auto& e : entries) {
    if (!e->file) continue;
    const bool needs =
        e->file->name == name || std::any_of(e->file->rows.begin(), e->file->rows.end(),
                                             [&](const RowsUse& use) { return use.name == name; });
    if (needs) lost.push_back(e);
  }
  for (const auto& e : lost) {
    DropFile(*e);
    RemoveIfNothing(*e, CacheMiss::kDamaged);
  }
  changed = true;  // those that memory still has are written again
  wake.notify_one();
}

void PrefixCache::Impl::Refill() {
  const auto now = Now();
  const double passed = std::chrono::duration<double>(now - filled_at).count();
  const auto most = static_cast<double>(options.write_bytes_per_hour);
  if (passed > 0) may_write = std::min(most, may_write + most * passed / 3600);
  filled_at = now;
}

// Which caches the write needs that are on the disk, and which it must bring: says how many bytes these are.
uint64_t PrefixCache::Impl::PlanRows(Write& write) const {
  const auto& tokens = write.snapshot->data().tokens;
  const auto walk = tree.Follow(tokens);
  const auto [near, common] =
      Nearest(walk, [&](const Entry& e) { return e.file.has_value() && &e != write.entry.get(); });
  const int64_t all = std::ssize(write.snapshot->data().rows) * layout.tokens;
  const int64_t limit = std::min(all, common / layout.tokens * layout.tokens);
  int64_t covered = 0;
  if (near != nullptr) {
    for (const RowsUse& use : near->file->rows) {
      if (use.first >= limit) break;
      covered = std::min(use.end, limit);
      write.file.rows.push_back({use.name, use.first, covered});
    }
  }
  if (covered == all) return 0;
  write.first = covered, write.end = all;
  write.fresh = CacheDirectory::RowsName(std::span(tokens).first(static_cast<size_t>(all)), covered);
  return static_cast<uint64_t>((all - covered) / layout.tokens * layout.floats) * sizeof(float) +
         static_cast<uint64_t>(all) * sizeof(int32_t);
}

// Room in the budget, by dropping others; false if the entry itself would be the first to go again.
bool PrefixCache::Impl::MakeDiskRoom(Entry& entry, uint64_t bytes) {
  if (bytes > options.disk_bytes) return false;
  while (directory->bytes() + bytes > options.disk_bytes) {
    Entry* const victim = Victim([&](const Entry& e) { return e.file || &e == &entry; },
                                 [](const Entry& e) { return e.loading == 0; });
    if (victim == nullptr || victim == &entry) return false;
    ++counted.evicted_disk;
    DropFile(*victim);
    victim->no_write = true;
    RemoveIfNothing(*victim, CacheMiss::kEvicted);
  }
  return true;
}

std::optional<PrefixCache::Impl::Write> PrefixCache::Impl::NextWrite() {
  if (directory == nullptr || Now() < rest_until) return {};
  Refill();
  const auto most = static_cast<double>(options.write_bytes_per_hour);
  while (true) {
    std::shared_ptr<Entry> best;
    for (const auto& e : entries) {
      if (e->ram == nullptr || e->file || e->writing || e->no_write) continue;
      const auto rank = [](const Entry& x) { return std::pair(Urgency(x.kind), x.used); };
      if (best == nullptr || rank(*e) > rank(*best)) best = e;
    }
    if (best == nullptr) return {};
    Write write{.entry = best, .snapshot = best->ram};
    write.file.name = CacheDirectory::StateName(best->ram->data().tokens);
    uint64_t bytes = PlanRows(write) + best->ram->own_bytes();
    if (options.write_bytes_per_hour > 0) {
      // What others' lines hardly need leaves half of what may be written to the rest.
      const double reserve = Urgency(best->kind) < 2 ? most / 2 : 0;
      if (may_write < std::min(most, static_cast<double>(bytes) + reserve)) {
        if (!std::exchange(best->put_off, true)) ++counted.writes_put_off;
        return {};
      }
    }
    if (!MakeDiskRoom(*best, bytes)) {
      best->no_write = true;
      continue;
    }
    // Room was made, perhaps of what this was to build upon.
    write.file.rows.clear(), write.fresh.clear();
    if (PlanRows(write) + best->ram->own_bytes() > bytes) continue;
    directory->Use(write.file.rows);
    if (!write.fresh.empty() && directory->Has(write.fresh)) {
      write.file.rows.push_back({write.fresh, write.first, write.end});
      directory->Use({write.file.rows.back()});
      write.fresh.clear();
    }
    best->writing = true;
    return write;
  }
}

void PrefixCache::Impl::Do(Write write, std::unique_lock<std::mutex>& lock) {
  const CacheKind kind = write.entry->kind;
  lock.unlock();
  engine::FileBytes rows, state;
  Status status;
  if (!write.fresh.empty()) {
    status = engine::SaveRows(model, *write.snapshot, write.first, write.end, directory->PathOf(write.fresh),
                              &rows);
  }
  auto uses = write.file.rows;
  if (!write.fresh.empty()) uses.push_back({write.fresh, write.first, write.end});
  if (status.ok()) {
    status = engine::SaveState(*write.snapshot, directory->PathOf(write.file.name),
                               CacheDirectory::Attachment(kind, uses), &state);
  }
  write.snapshot.reset();
  lock.lock();
  Entry& entry = *write.entry;
  entry.writing = entry.put_off = false;
  may_write -= static_cast<double>(rows.bytes + state.bytes);
  counted.written_bytes += rows.bytes + state.bytes;
  counted.written_files += (rows.bytes > 0 ? 1 : 0) + (state.bytes > 0 ? 1 : 0);
  if (rows.bytes > 0) {
    directory->AddRows(write.fresh, rows.bytes);
    directory->Use({uses.back()});
  }
  if (status.ok()) {
    write.file.bytes = state.bytes;
    write.file.rows = std::move(uses);
    directory->AddState(write.file);
    resting.clear();
    next_rest = kFirstRest;
    entry.file = std::move(write.file);
    if (entry.node == nullptr) DropFile(entry);  // it was thrown away meanwhile
  } else {
    directory->Release(rows.bytes > 0 ? uses : write.file.rows);
    ++counted.write_failures;
    rest_until = Now() + next_rest;
    resting = status.message();
    Log(fmt::format("prefix cache: {}; nothing is written for {} s", status.message(),
                    std::chrono::duration_cast<std::chrono::seconds>(next_rest).count()));
    next_rest = std::min<Clock::duration>(2 * next_rest, kLongestRest);
    if (status.code() == Code::kNotFound) (void)directory->Remake();
  }
  RemoveIfNothing(entry, CacheMiss::kEvicted);
  KeepToDiskBudget();  // room was made for what the files hold, and they have headers too
}

void PrefixCache::Impl::Run() {
  std::unique_lock lock(mutex);
  Clock::time_point next_try = Now() + kLockRetry;
  while (!stop) {
    changed = false;
    if (directory == nullptr && Now() >= next_try) {
      next_try = Now() + kLockRetry;
      if (Status status = OpenDirectory(); status.ok())
        Log("prefix cache: the directory is free now, and used");
    }
    if (auto write = NextWrite()) {
      busy = true;
      Do(std::move(*write), lock);
      busy = false;
      continue;
    }
    ++rounds;
    rested.notify_all();
    wake.wait_for(lock, std::chrono::seconds(1), [this] { return changed || stop; });
  }
}

// ---------------------------------------------------------------------------------------------- the interface

Result<std::unique_ptr<PrefixCache>> PrefixCache::Create(const Model& model,
                                                         const PrefixCacheOptions& options) try {
  const int64_t block = engine::GridBlock(model);
  if (options.interval < block || options.least_tokens < 1) {
    return Status(Code::kBadInput,
                  fmt::format("checkpoints every {} tokens, from {} tokens on; at least {} and 1",
                              options.interval, options.least_tokens, block));
  }
  auto impl = std::make_unique<Impl>(model, options);
  Impl& made = *impl;
  std::unique_ptr<PrefixCache> cache(new PrefixCache(std::move(impl)));
  made.may_write = static_cast<double>(options.write_bytes_per_hour);
  made.filled_at = made.rest_until = made.Now();
  if (options.directory.empty() || options.ram_bytes == 0) return cache;
  if (Status status = made.OpenDirectory(); !status.ok()) {
    if (status.code() != Code::kBadInput) return status;
    made.Log(fmt::format("prefix cache: {}; it is kept in memory only until then", status.message()));
  }
  made.writer = std::thread([&made] { made.Run(); });
  return cache;
} catch (const std::system_error& error) {
  return Status(Code::kNoRoom, fmt::format("no thread for the prefix cache: {}", error.what()));
} catch (...) {
  return NoRoomOrRethrow();
}

PrefixCache::PrefixCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PrefixCache::~PrefixCache() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    impl_->wake.notify_all();
  }
  if (impl_->writer.joinable()) impl_->writer.join();
}

CacheFound PrefixCache::Find(std::span<const int32_t> prompt) {
  Impl& c = *impl_;
  const std::lock_guard lock(c.mutex);
  const auto walk = c.tree.Follow(prompt);
  CacheFound found;
  found.shared = static_cast<uint64_t>(walk.shared);
  std::optional<CacheMiss> gone;
  for (auto it = walk.path.rbegin(); it != walk.path.rend() && found.snapshot == nullptr; ++it) {
    const Known& known = (*it)->value;
    if (!gone && known.gone && (*it)->end < std::ssize(prompt)) gone = known.gone;
    Entry* const entry = known.entry.get();
    if (entry == nullptr || entry->ram == nullptr || (*it)->end >= std::ssize(prompt)) continue;
    found.snapshot = entry->ram;
    found.tokens = static_cast<uint64_t>((*it)->end);
    found.from_disk = std::exchange(entry->just_read, false);
    c.Use(*entry);
  }
  found.why = found.snapshot != nullptr             ? CacheMiss::kHit
              : c.entries.empty() && c.gone.empty() ? CacheMiss::kEmpty
              : gone                                ? *gone
              : walk.shared < c.block               ? CacheMiss::kNothingShared
                                                    : CacheMiss::kShorterThanCheckpoint;
  ++c.counted.finds[static_cast<size_t>(found.why)];
  if (found.from_disk) ++c.counted.found_on_disk;
  c.counted.found_tokens += found.tokens;
  c.counted.lost_tokens += found.shared - found.tokens;
  return found;
}

std::shared_ptr<const Snapshot> PrefixCache::Fetch(std::span<const int32_t> prompt) try {
  Impl& c = *impl_;
  for (bool first = true;; first = false) {
    std::unique_lock one_at_a_time(c.loading, std::defer_lock);
    if (!first) one_at_a_time.lock();
    std::shared_ptr<Entry> entry;
    CacheFile file;
    SnapshotPtr like;
    std::vector<engine::RowsRange> ranges;
    std::string state;
    {
      const std::lock_guard lock(c.mutex);
      const auto walk = c.tree.Follow(prompt);
      for (auto it = walk.path.rbegin(); it != walk.path.rend() && entry == nullptr; ++it) {
        if ((*it)->value.entry != nullptr && (*it)->end < std::ssize(prompt) &&
            ((*it)->value.entry->ram != nullptr || (*it)->value.entry->file)) {
          entry = (*it)->value.entry;
        }
      }
      if (entry == nullptr) return nullptr;
      c.Use(*entry);
      if (entry->ram != nullptr) return entry->ram;
      if (first) continue;  // with the lock for reading
      ++entry->loading;
      const auto near = c.Nearest(walk, [](const Entry& e) { return e.ram != nullptr; }).first;
      if (near != nullptr) like = near->ram;
      state = c.directory->PathOf(entry->file->name);
      for (const RowsUse& use : entry->file->rows)
        ranges.push_back({c.directory->PathOf(use.name), use.first, use.end});
      c.MakeRoom(entry->file->bytes, nullptr);
    }
    engine::FileBytes read;
    std::string bad;
    auto loaded = engine::LoadSnapshot(c.model, state, ranges, like.get(), c.gauge, &read, &bad);
    like.reset();
    const std::lock_guard lock(c.mutex);
    --entry->loading;
    c.counted.read_bytes += read.bytes;
    if (loaded.ok()) {
      if (entry->node != nullptr && entry->ram == nullptr) {
        c.SetRam(*entry, *loaded);
        entry->just_read = true;
        c.Use(*entry);
        c.MakeRoom(0, entry.get());
        c.directory->Touched(entry->file->name);
      }
      return *loaded;
    }
    c.Blame(*entry, bad, loaded.status());
    const Code code = loaded.status().code();
    // Another time perhaps; what memory has is as good as it gets now.
    if (code == Code::kNoRoom || code == Code::kInternal || code == Code::kDevice) return nullptr;
  }
} catch (...) {
  (void)NoRoomOrRethrow();
  return nullptr;
}

Result<Session> PrefixCache::Open(const CacheFound& found, int64_t context) const {
  if (found.snapshot == nullptr) return Status(Code::kInternal, "nothing was found");
  return found.snapshot->Restore(impl_->model, {.context = context, .mtp = impl_->options.mtp});
}

std::vector<PrefixCache::Position> PrefixCache::KeepAt(std::span<const int32_t> prompt, uint64_t found,
                                                       std::span<const Position> marks) const {
  const Impl& c = *impl_;
  if (c.options.ram_bytes == 0) return {};
  const auto from = static_cast<int64_t>(found), size = static_cast<int64_t>(prompt.size());
  const auto floor = [&](int64_t at) { return at - at % c.block; };
  std::map<int64_t, CacheKind> at;
  const auto add = [&](int64_t position, CacheKind kind) {
    position = floor(std::min(position, size - 1));
    if (position > from && position >= c.options.least_tokens) at.try_emplace(position, kind);
  };
  for (const Position& mark : marks) {
    if (mark.kind == CacheKind::kMark || mark.tokens - from >= c.options.least_tokens)
      add(mark.tokens, mark.kind);
  }
  {
    const std::lock_guard lock(c.mutex);
    const auto walk = c.tree.Follow(prompt);
    // Where it ends within the prompt, the prompt parted there from another history.
    const bool parted = walk.below != walk.path.back() || !walk.path.back()->children.empty();
    if (walk.shared < size && parted) add(walk.shared, CacheKind::kFork);
  }
  if (size - from >= c.options.least_tokens) add(size - 1, CacheKind::kPrompt);
  // A fixed series, so that prompts that part early have the same ones.
  for (int64_t p = floor(c.options.interval); p < size; p += floor(std::max(c.options.interval, p / 4))) {
    const auto next = at.lower_bound(p);
    const bool near_next = next != at.end() && next->first - p < c.options.least_tokens;
    const bool near_before = next != at.begin() && p - std::prev(next)->first < c.options.least_tokens;
    if (!near_next && !near_before && p - from >= c.options.least_tokens) add(p, CacheKind::kInterval);
  }
  std::vector<Position> positions;
  for (const auto& [tokens, kind] : at) positions.push_back({tokens, kind});
  return positions;
}

void PrefixCache::Keep(const Session& session, CacheKind kind) try {
  Impl& c = *impl_;
  const int64_t position = session.position() - session.position() % c.block;
  if (position < c.options.least_tokens || c.options.ram_bytes == 0) return;
  if (c.options.mtp && !session.impl().options.mtp) return;  // nothing could go on from it
  const auto tokens = session.tokens().first(static_cast<size_t>(position));
  SnapshotPtr like;
  {
    const std::lock_guard lock(c.mutex);
    const auto walk = c.tree.Follow(tokens);
    if (const auto there = c.At(walk, tokens.size()); there != nullptr && there->ram != nullptr) {
      ++c.counted.kept_already;
      if (Urgency(kind) > Urgency(there->kind)) there->kind = kind;
      c.Use(*there);
      return;
    }
    const auto near = c.Nearest(walk, [](const Entry& e) { return e.ram != nullptr; });
    if (near.first != nullptr) like = near.first->ram;
    const int64_t fresh = (position - near.second) / c.layout.tokens + 1;
    c.MakeRoom(c.largest_state + static_cast<uint64_t>(fresh * c.layout.floats) * sizeof(float), nullptr);
  }
  auto taken = Snapshot::Take(session, position, like.get(), c.gauge);
  like.reset();
  const std::lock_guard lock(c.mutex);
  if (!taken.ok()) {
    ++c.counted.not_kept;
    if (taken.status().code() == Code::kUnsupported) {
      ++c.counted.not_finite;
      c.Log(fmt::format("prefix cache: {}", taken.status().message()));
    }
    return;
  }
  const auto entry = c.Add(tokens, kind);
  if (Urgency(kind) > Urgency(entry->kind)) entry->kind = kind;
  if (entry->ram == nullptr) c.SetRam(*entry, std::move(*taken));
  c.Use(*entry);
  c.MakeRoom(0, entry.get());
  if (c.RamBytes() > c.options.ram_bytes && entry->ram.use_count() == 1) {  // it alone is too large
    ++c.counted.not_kept;
    c.DropRam(*entry);
    c.RemoveIfNothing(*entry, CacheMiss::kEvicted);
    return;
  }
  ++c.counted.kept;
  c.changed = true;
  c.wake.notify_one();
} catch (...) {
  (void)NoRoomOrRethrow();
  const std::lock_guard lock(impl_->mutex);
  ++impl_->counted.not_kept;
}

void PrefixCache::Forget(std::span<const int32_t> tokens) {
  Impl& c = *impl_;
  const std::lock_guard lock(c.mutex);
  std::vector<std::shared_ptr<Entry>> all;
  for (Node* node : c.tree.Follow(tokens).path) {
    if (node->value.entry != nullptr) all.push_back(node->value.entry);
  }
  for (const auto& entry : all) {
    c.DropRam(*entry);
    c.DropFile(*entry);
    entry->writing = false;  // what is being written is dropped when it is done
    c.RemoveIfNothing(*entry, CacheMiss::kDamaged);
  }
}

bool PrefixCache::Flush(Clock::time_point until) {
  Impl& c = *impl_;
  std::unique_lock lock(c.mutex);
  if (!c.writer.joinable()) return c.options.directory.empty();
  const uint64_t round = c.rounds;
  c.changed = true;
  c.wake.notify_one();
  const bool done = c.rested.wait_until(lock, until, [&] { return c.rounds > round && !c.busy; });
  return done && c.directory != nullptr &&
         std::none_of(c.entries.begin(), c.entries.end(),
                      [](const auto& e) { return e->ram != nullptr && !e->file && !e->no_write; });
}

PrefixCacheStats PrefixCache::stats() const {
  const Impl& c = *impl_;
  const std::lock_guard lock(c.mutex);
  PrefixCacheStats s = c.counted;
  for (const auto& e : c.entries) {
    ++s.entries;
    if (e->ram != nullptr) ++s.entries_ram;
    if (e->file) ++s.entries_disk;
    if (e->ram != nullptr && !e->file && !e->no_write && !c.options.directory.empty()) ++s.waiting_writes;
  }
  s.ram_state_bytes = c.state_bytes;
  s.ram_rows_bytes = *c.gauge;
  s.ram_bytes = c.RamBytes();
  s.disk_bytes = c.directory != nullptr ? c.directory->bytes() : 0;
  s.disk = c.options.directory.empty() ? "off"
           : c.directory == nullptr    ? "another server uses it"
           : !c.resting.empty()        ? c.resting
                                       : "on";
  return s;
}

}  // namespace glint::serve
