// The prefix cache: what goes on from a checkpoint has the bits of a cold run; budgets, rate and faults of the disk.
#include "serve/prefix_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "engine/session_impl.h"
#include "engine/snapshot.h"
#include "tests/base/temp_dir.h"
#include "tests/engine/reference.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"

namespace glint::serve {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using Ids = std::vector<int32_t>;
using Clock = std::chrono::steady_clock;

const Model& Micro() {
  static const Model model = test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 2});
  return model;
}

Ids Random(size_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Ids ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(rng() % 256);
  return ids;
}

Ids Join(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

uint64_t Seed() {
  const std::string given = test::FromEnvironment("GLINT_SEED");
  const uint64_t seed = given.empty() ? std::random_device{}() : std::stoull(given);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::unique_ptr<PrefixCache> Make(PrefixCacheOptions options) {
  auto cache = PrefixCache::Create(Micro(), options);
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return cache.ok() ? std::move(*cache) : nullptr;
}

bool Flush(PrefixCache& cache) { return cache.Flush(Clock::now() + std::chrono::seconds(60)); }

// A server in small: prefills a prompt from what the cache has, keeps on the way and at the end. Counts the tokens prefilled.
struct Served {
  uint64_t prefilled = 0, reused = 0;
  CacheFound found = {};
  std::vector<float> logits = {};  // after the last token
};
Served Serve(PrefixCache& cache, const Ids& prompt, const std::vector<int64_t>& at = {}, bool keep = true) {
  Served served;
  std::vector<PrefixCache::Position> marks;
  for (const int64_t mark : at) marks.push_back({mark, CacheKind::kMark});
  const auto held = cache.Fetch(prompt);
  served.found = cache.Find(prompt);
  EXPECT_LT(served.found.tokens, prompt.size());
  std::optional<Session> session;
  if (served.found.snapshot != nullptr) {
    auto opened = cache.Open(served.found, std::ssize(prompt) + 8);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    session.emplace(std::move(*opened));
  } else {
    auto made = Session::Create(Micro(), {.context = std::ssize(prompt) + 8});
    EXPECT_TRUE(made.ok()) << made.status().message();
    session.emplace(std::move(*made));
  }
  EXPECT_TRUE(std::equal(session->tokens().begin(), session->tokens().end(), prompt.begin()));
  served.reused = static_cast<uint64_t>(session->position());
  EXPECT_EQ(served.reused, served.found.tokens);
  served.logits.resize(static_cast<size_t>(Micro().vocab_size()));
  auto positions = cache.KeepAt(prompt, served.found.tokens, marks);
  positions.push_back({std::ssize(prompt), CacheKind::kEnd});
  int64_t before = session->position();
  for (const auto& position : positions) {
    EXPECT_GT(position.tokens, before);
    const auto piece =
        std::span(prompt).subspan(static_cast<size_t>(before), static_cast<size_t>(position.tokens - before));
    EXPECT_TRUE(session->Append(piece, LogitRows::kLast, served.logits).ok());
    served.prefilled += piece.size();
    before = position.tokens;
    if (keep) cache.Keep(*session, position.kind);
  }
  return served;
}

std::vector<float> Cold(const Ids& prompt) {
  auto session = Session::Create(Micro(), {.context = std::ssize(prompt)});
  EXPECT_TRUE(session.ok());
  std::vector<float> logits(static_cast<size_t>(Micro().vocab_size()));
  EXPECT_TRUE(session->Append(prompt, LogitRows::kLast, logits).ok());
  return logits;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The one folder of a model in a cache's directory.
std::string FolderOf(const TempDir& dir) {
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    if (entry.is_directory()) return entry.path().string();
  }
  return "";
}

std::vector<std::string> Files(const TempDir& dir, std::string_view ending) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(FolderOf(dir))) {
    if (entry.path().string().ends_with(ending)) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Bytes of one checkpoint's state, by a cache that has one.
uint64_t StateBytes() {
  static const uint64_t bytes = [] {
    auto cache = Make({});
    Serve(*cache, Random(65, 1));
    const auto stats = cache->stats();
    EXPECT_EQ(stats.entries_ram, 1u);
    return stats.ram_state_bytes;
  }();
  return bytes;
}

// Prompts that begin as others did, in memory, on disk and after restarts, with budgets that make it forget: the bits are always those of a
// cold run, and nothing is prefilled that a checkpoint was found for.
TEST(PrefixCache, WhatGoesOnHasTheBitsOfAColdRun) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("GLINT_SEED=" + std::to_string(seed));
  std::mt19937_64 rng(seed);
  TempDir dir;
  PrefixCacheOptions options{.directory = dir.path(), .interval = 64, .least_tokens = 16};
  options.ram_bytes = 12 * StateBytes(), options.disk_bytes = 30 * StateBytes();
  auto cache = Make(options);
  std::vector<Ids> known = {Random(100, rng())};
  uint64_t reused = 0, from_disk = 0, tokens = 0;
  const int steps = test::kAnySanitizer ? 40 : 100;
  for (int step = 0; step < steps; ++step) {
    Ids prompt = known[rng() % known.size()];
    if (rng() % 3 == 0) prompt.resize(1 + rng() % prompt.size());
    prompt = Join(prompt, Random(rng() % 4 == 0 ? 150 : 1 + rng() % 30, rng()));
    if (prompt.size() > 250) prompt.resize(250);
    std::vector<int64_t> marks;
    if (rng() % 3 == 0) marks.push_back(static_cast<int64_t>(rng() % prompt.size()));
    const Served served = Serve(*cache, prompt, marks);
    ASSERT_TRUE(SameBits(served.logits, Cold(prompt)))
        << "step " << step << ", " << served.reused << " reused";
    const auto stats = cache->stats();
    EXPECT_LE(stats.ram_bytes, options.ram_bytes);
    reused += served.reused, tokens += prompt.size();
    from_disk += served.found.from_disk ? 1 : 0;
    known.push_back(prompt);
    if (step % 30 == 17) {
      Flush(*cache);
      cache.reset();
      cache = Make(options);
    }
  }
  Flush(*cache);
  const auto stats = cache->stats();
  EXPECT_LE(stats.disk_bytes, options.disk_bytes);
  EXPECT_EQ(stats.quarantined + stats.vanished + stats.write_failures, 0u);
  std::printf("%llu of %llu tokens reused, %llu times from the disk\n",
              static_cast<unsigned long long>(reused), static_cast<unsigned long long>(tokens),
              static_cast<unsigned long long>(from_disk));
  EXPECT_GT(reused, tokens / 4);
  EXPECT_GT(from_disk, 0u);
}

TEST(PrefixCache, ChoosesWhereToKeep) {
  auto cache = Make({.interval = 256, .least_tokens = 64});
  using P = PrefixCache::Position;
  const auto at = [&](const Ids& prompt, uint64_t found, std::vector<int64_t> marks = {}) {
    std::vector<P> positions;
    for (const int64_t mark : marks) positions.push_back({mark, CacheKind::kMark});
    return cache->KeepAt(prompt, found, positions);
  };
  EXPECT_EQ(at(Random(60, 1), 0), std::vector<P>());  // too short to be worth it
  EXPECT_EQ(at(Random(100, 1), 0), (std::vector<P>{{96, CacheKind::kPrompt}}));
  EXPECT_EQ(at(Random(96, 1), 0), (std::vector<P>{{80, CacheKind::kPrompt}}));  // a proper beginning
  EXPECT_EQ(at(Random(600, 1), 0, {130, 20, 900}), (std::vector<P>{{128, CacheKind::kMark},
                                                                   {256, CacheKind::kInterval},
                                                                   {512, CacheKind::kInterval},
                                                                   {592, CacheKind::kMark}}));
  // On from what was found.
  EXPECT_EQ(at(Random(600, 1), 528), (std::vector<P>{{592, CacheKind::kPrompt}}));
  EXPECT_EQ(at(Random(600, 1), 560), std::vector<P>());
  // Growing: never more than a quarter of the position apart, and that only at the end.
  const auto far = at(Random(30000, 1), 0);
  for (size_t i = 1; i < far.size(); ++i) {
    const int64_t gap = far[i].tokens - far[i - 1].tokens;
    EXPECT_LE(gap, std::max<int64_t>(256, far[i - 1].tokens / 4 + 16));
    EXPECT_EQ(far[i].tokens % 16, 0);
  }
  EXPECT_LT(far.size(), 30u);
  // Where it parts from a history that is kept.
  const Ids first = Random(300, 2);
  Serve(*cache, first);
  Ids second = first;
  second.resize(170);
  second = Join(second, Random(100, 3));
  const auto found = cache->Find(second);
  EXPECT_EQ(found.tokens, 0u);
  EXPECT_EQ(found.shared, 170u);
  EXPECT_EQ(found.why, CacheMiss::kShorterThanCheckpoint);
  EXPECT_EQ(at(second, 0), (std::vector<P>{{160, CacheKind::kFork}, {256, CacheKind::kPrompt}}));
  Serve(*cache, second);
  // A third that parts there costs the rest of a block.
  Ids third = first;
  third.resize(170);
  third = Join(third, Random(50, 4));
  EXPECT_EQ(cache->Find(third).tokens, 160u);
}

// Whatever changes at the end, what is prefilled is the change and at most one interval.
TEST(PrefixCache, AnEditCostsAtMostAnInterval) {
  const int64_t interval = 128;
  auto cache = Make({.interval = interval});
  const Ids history = Random(1200, 7);
  Serve(*cache, history);
  for (const size_t last : {1, 5, 50, 500}) {
    Ids edited = history;
    const Ids other = Random(last, 100 + last);
    std::copy(other.begin(), other.end(), edited.end() - static_cast<ptrdiff_t>(last));
    const Served served = Serve(*cache, edited);
    const auto place = static_cast<int64_t>(edited.size() - last);
    EXPECT_LE(served.prefilled, last + static_cast<uint64_t>(std::max(interval, place / 4) + 16)) << last;
    EXPECT_TRUE(SameBits(served.logits, Cold(edited)));
    std::printf("the last %zu tokens changed: %llu prefilled\n", last,
                static_cast<unsigned long long>(served.prefilled));
  }
}

// A position before everything that is kept.
TEST(PrefixCache, FallsBackToAColdRun) {
  auto cache = Make({});
  const Ids history = Random(500, 7);
  Serve(*cache, history, {}, false);
  auto session = Session::Create(Micro(), {.context = 500});
  ASSERT_TRUE(session->Append(history, LogitRows::kNone, {}).ok());
  cache->Keep(*session, CacheKind::kEnd);
  Ids shorter = history;
  shorter.resize(480);
  const Served same = Serve(*cache, shorter, {}, false);
  EXPECT_EQ(same.reused, 0u);
  EXPECT_EQ(same.found.why, CacheMiss::kShorterThanCheckpoint);
  EXPECT_EQ(same.found.shared, 480u);
  EXPECT_EQ(Serve(*cache, Join(shorter, Random(20, 1)), {}, false).reused, 0u);
  EXPECT_EQ(Serve(*cache, Random(200, 99), {}, false).found.why, CacheMiss::kNothingShared);
  EXPECT_EQ(Make({})->Find(history).why, CacheMiss::kEmpty);
  EXPECT_EQ(Serve(*cache, Join(history, {1}), {}, false).reused, 496u);
  const auto stats = cache->stats();
  EXPECT_EQ(stats.finds[static_cast<size_t>(CacheMiss::kHit)], 1u);
  EXPECT_EQ(stats.found_tokens, 496u);
}

// N checkpoints of one conversation are N states and one set of caches.
TEST(PrefixCache, OneConversationHasItsCachesOnce) {
  auto cache = Make({});
  Ids history = Random(100, 3);
  for (int turn = 0; turn < 8; ++turn) {
    Serve(*cache, history);
    history = Join(history, Random(100, 50 + static_cast<uint64_t>(turn)));
  }
  const auto stats = cache->stats();
  const auto layout = engine::RowsLayout::Of(Micro());
  // One a turn: the prompt's last block is where its end is kept, but where that falls on the grid (400, 800).
  EXPECT_EQ(stats.entries_ram, 8u + 2u);
  EXPECT_EQ(stats.ram_rows_bytes, 800u / 16 * static_cast<uint64_t>(layout.floats) * sizeof(float));
}

// Five chats in turns with one system prompt, room for three checkpoints: the shared beginning is never lost, and nobody's is dropped for
// one that a longer one makes redundant.
void RoundRobin(PrefixCacheOptions options, bool restart) {
  const Ids system = Random(512, 1);
  auto cache = Make(options);
  std::vector<Ids> chats(5, system);
  for (int round = 0; round < 4; ++round) {
    for (size_t chat = 0; chat < chats.size(); ++chat) {
      chats[chat] = Join(chats[chat], Random(20, 1000 * chat + static_cast<uint64_t>(round)));
      const Served served = Serve(*cache, chats[chat], {std::ssize(system)});
      EXPECT_GE(served.reused, round + chat == 0 ? 0u : 512u) << "chat " << chat << ", round " << round;
      EXPECT_LE(cache->stats().ram_bytes, options.ram_bytes);
      if (restart) {
        Flush(*cache);
        EXPECT_LE(cache->stats().disk_bytes, options.disk_bytes);
        cache.reset();
        cache = Make(options);
      }
    }
  }
}

TEST(PrefixCache, KeepsTheSharedBeginningInMemory) {
  const auto rows = static_cast<uint64_t>(engine::RowsLayout::Of(Micro()).floats) * sizeof(float);
  RoundRobin({.ram_bytes = 4 * StateBytes() + 60 * rows}, false);
}

TEST(PrefixCache, KeepsTheSharedBeginningOnDisk) {
  TempDir dir;
  const auto rows = static_cast<uint64_t>(engine::RowsLayout::Of(Micro()).floats) * sizeof(float);
  RoundRobin({.directory = dir.path(), .disk_bytes = 4 * StateBytes() + 60 * rows}, true);
}

// A full disk, and a checkpoint that the next write would delete first: it is not written, and what is on the disk stays.
TEST(PrefixCache, WritesNothingThatWouldBeDeletedNext) {
  TempDir dir;
  const auto rows = static_cast<uint64_t>(engine::RowsLayout::Of(Micro()).floats) * sizeof(float);
  auto cache = Make({.directory = dir.path(),
                     .disk_bytes = 5 * StateBytes() + 60 * rows,
                     .write_bytes_per_hour = 0,
                     .least_tokens = 16});
  const Ids history = Random(800, 3);
  const auto keep = [&](size_t tokens) {
    auto session = Session::Create(Micro(), {.context = 800});
    ASSERT_TRUE(session->Append(std::span(history).first(tokens), LogitRows::kNone, {}).ok());
    cache->Keep(*session, CacheKind::kInterval);
    Flush(*cache);
  };
  for (const size_t tokens : {800, 720, 640, 480, 400}) keep(tokens);
  const auto files = Files(dir, ".state");
  ASSERT_EQ(files.size(), 5u);
  const uint64_t written = cache->stats().written_files;
  keep(416);  // between two that are near
  EXPECT_EQ(Files(dir, ".state"), files);
  EXPECT_EQ(cache->stats().written_files, written);
  EXPECT_EQ(cache->stats().evicted_disk, 0u);
  EXPECT_EQ(cache->stats().entries_ram, 6u);
  keep(208);  // far from all
  EXPECT_NE(Files(dir, ".state"), files);
  EXPECT_EQ(cache->stats().evicted_disk, 1u);
}

// What is dropped first when one conversation fills the budget: what later checkpoints make redundant, the densest first; never the ends.
TEST(PrefixCache, DropsWhatIsRedundantFirst) {
  const auto rows = static_cast<uint64_t>(engine::RowsLayout::Of(Micro()).floats) * sizeof(float);
  auto cache = Make({.ram_bytes = 8 * StateBytes() + 200 * rows, .least_tokens = 16});
  const Ids other = Random(100, 77);
  Serve(*cache, other);
  Ids history = Random(100, 3);
  std::vector<Ids> turns;
  for (int turn = 0; turn < 20; ++turn) {
    Serve(*cache, history);
    turns.push_back(history);
    history = Join(history, Random(100, 50 + static_cast<uint64_t>(turn)));
  }
  EXPECT_GT(cache->stats().evicted_ram, 5u);
  const auto found = [&](const Ids& ids) { return cache->Find(Join(ids, {1})).tokens; };
  EXPECT_EQ(found(other), 96u) << "the end of an idle conversation went before what is redundant";
  EXPECT_EQ(found(turns[19]), 2000u);
  EXPECT_EQ(found(turns[18]), 1888u);  // for who edits the last turn
  // Of those before, some: the distance grows with that from the end.
  std::set<uint64_t> left;
  for (const Ids& turn : turns) left.insert(found(turn));
  EXPECT_GE(left.size(), 5u);
}

// A long checkpoint that is held is not dropped, and what alone is larger than the budget is not kept.
TEST(PrefixCache, RespectsItsBudget) {
  auto none = Make({.ram_bytes = 0});
  Serve(*none, Random(200, 1));
  EXPECT_EQ(none->stats().entries, 0u);
  auto small = Make({.ram_bytes = StateBytes() / 2});
  Serve(*small, Random(200, 1));
  EXPECT_EQ(small->stats().entries_ram, 0u);
  EXPECT_GT(small->stats().not_kept, 0u);
  EXPECT_EQ(small->stats().ram_bytes, 0u);
  const auto rows = static_cast<uint64_t>(engine::RowsLayout::Of(Micro()).floats) * sizeof(float);
  auto two = Make({.ram_bytes = 2 * StateBytes() + 40 * rows});
  Serve(*two, Random(100, 1));
  const auto held = two->Find(Join(Random(100, 1), {1}));
  ASSERT_NE(held.snapshot, nullptr);
  for (uint64_t seed = 2; seed < 8; ++seed) Serve(*two, Random(100, seed));
  EXPECT_EQ(two->Find(Join(Random(100, 1), {1})).tokens, 96u);
  EXPECT_EQ(two->Find(Join(Random(100, 3), {1})).why, CacheMiss::kEvicted);
}

// What one request spoils must not reach the next.
TEST(PrefixCache, AStateThatIsNotFiniteIsNeverKept) {
  std::vector<std::string> lines;
  auto cache = Make({.log = [&](const std::string& line) { lines.push_back(line); }});
  const Ids prompt = Random(100, 1);
  auto session = Session::Create(Micro(), {.context = 200});
  ASSERT_TRUE(session->Append(prompt, LogitRows::kNone, {}).ok());
  auto& state = *session->impl().state;
  auto part = state.Parts(100, 0)[0];
  std::vector<float> floats(static_cast<size_t>(part.rows * part.width));
  ASSERT_TRUE(state.Read(part, floats.data()).ok());
  floats[7] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(state.Write(part, floats.data()).ok());
  cache->Keep(*session, CacheKind::kEnd);
  EXPECT_EQ(cache->stats().not_finite, 1u);
  EXPECT_EQ(cache->stats().entries, 0u);
  EXPECT_EQ(lines.size(), 1u);
  // And a request that went wrong takes with it what it went on from.
  Serve(*cache, prompt);
  EXPECT_EQ(cache->Find(Join(prompt, {1})).tokens, 96u);
  cache->Forget(Join(prompt, {1}));
  EXPECT_EQ(cache->Find(Join(prompt, {1})).why, CacheMiss::kDamaged);
  EXPECT_EQ(cache->stats().ram_bytes, 0u);
}

// Found after a restart, as often as it is asked for; the files stay.
TEST(PrefixCache, ARestartFindsWhatWasKept) {
  TempDir dir;
  const PrefixCacheOptions options{.directory = dir.path()};
  const Ids history = Random(500, 3);
  const Ids prompt = Join(history, Random(10, 4));
  {
    auto cache = Make(options);
    Serve(*cache, history);
    EXPECT_TRUE(Flush(*cache));
    EXPECT_EQ(cache->stats().waiting_writes, 0u);
    EXPECT_EQ(cache->stats().disk, "on");
  }
  const auto states = Files(dir, ".state"), rows = Files(dir, ".rows");
  ASSERT_EQ(states.size(), 1u);
  ASSERT_EQ(rows.size(), 1u);
  struct stat about {};
  ASSERT_EQ(stat(states[0].c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777u, 0600u);
  const auto cold = Cold(prompt);
  for (int start = 0; start < 3; ++start) {
    auto cache = Make(options);
    EXPECT_EQ(cache->stats().entries_disk, 1u);
    EXPECT_EQ(cache->stats().entries_ram, 0u);
    EXPECT_EQ(cache->Find(prompt).tokens, 0u);  // never waits for the disk
    for (int again = 0; again < 2; ++again) {
      const Served served = Serve(*cache, prompt, {}, false);
      EXPECT_EQ(served.reused, 496u);
      EXPECT_EQ(served.prefilled, prompt.size() - 496);
      EXPECT_EQ(served.found.from_disk, again == 0);
      EXPECT_TRUE(SameBits(served.logits, cold));
    }
    EXPECT_EQ(cache->stats().found_on_disk, 1u);
    EXPECT_EQ(Files(dir, ".state"), states);
    EXPECT_EQ(Files(dir, ".rows"), rows);
  }
}

// Times of files are hints and no more.
TEST(PrefixCache, TimesOfFilesDoNotMatter) {
  TempDir dir;
  const PrefixCacheOptions options{.directory = dir.path()};
  const Ids history = Random(500, 3);
  {
    auto cache = Make(options);
    Serve(*cache, history);
    ASSERT_TRUE(Flush(*cache));
  }
  for (const auto hours : {-1000000, 1000000}) {
    for (const auto& path : Files(dir, ""))
      fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(hours));
    EXPECT_EQ(Serve(*Make(options), Join(history, {1}), {}, false).reused, 496u);
  }
}

// Over 50 turns the disk gets each turn's state and the caches of its new tokens once.
TEST(PrefixCache, WritesWhatIsNew) {
  TempDir dir;
  auto cache = Make({.directory = dir.path(), .write_bytes_per_hour = 0});
  const int turns = 50;
  auto session = Session::Create(Micro(), {.context = 200 + 32 * turns});
  ASSERT_TRUE(session->Append(Random(200, 3), LogitRows::kNone, {}).ok());
  for (int turn = 0; turn < turns; ++turn) {
    ASSERT_TRUE(session->Append(Random(32, 50 + static_cast<uint64_t>(turn)), LogitRows::kNone, {}).ok());
    cache->Keep(*session, CacheKind::kEnd);
    ASSERT_TRUE(Flush(*cache));
  }
  const auto stats = cache->stats();
  EXPECT_EQ(stats.entries_disk, static_cast<uint64_t>(turns));
  const uint64_t fresh = stats.ram_state_bytes + stats.ram_rows_bytes;  // each once
  std::printf("%llu bytes of states and caches, %llu written\n", static_cast<unsigned long long>(fresh),
              static_cast<unsigned long long>(stats.written_bytes));
  EXPECT_LT(stats.written_bytes, fresh + fresh / 4);
  EXPECT_EQ(stats.disk_bytes, stats.written_bytes);
}

// The rate: a first burst, then nothing until the clock says so; what waits is in memory all the time.
TEST(PrefixCache, WritesNoFasterThanItMay) {
  TempDir dir;
  std::atomic<int64_t> hours = 0;
  const auto start = Clock::now();
  PrefixCacheOptions options{.directory = dir.path()};
  options.write_bytes_per_hour = 2 * StateBytes() + StateBytes() / 2;
  options.now = [&] { return start + std::chrono::hours(hours); };
  auto cache = Make(options);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    auto session = Session::Create(Micro(), {.context = 100});
    ASSERT_TRUE(session->Append(Random(64, seed), LogitRows::kNone, {}).ok());
    cache->Keep(*session, CacheKind::kEnd);
  }
  EXPECT_FALSE(Flush(*cache));
  const auto first = cache->stats();
  EXPECT_GE(first.entries_disk, 1u);
  EXPECT_LE(first.written_bytes, options.write_bytes_per_hour);
  EXPECT_GT(first.writes_put_off, 0u);
  EXPECT_EQ(first.entries_ram, 6u);
  EXPECT_FALSE(Flush(*cache));
  EXPECT_EQ(cache->stats().written_bytes, first.written_bytes);
  // A clock that goes back brings nothing, one that leaps ahead an hour's worth.
  hours = -5;
  EXPECT_FALSE(Flush(*cache));
  EXPECT_EQ(cache->stats().written_bytes, first.written_bytes);
  hours = 1000;
  EXPECT_FALSE(Flush(*cache));
  EXPECT_GT(cache->stats().written_bytes, first.written_bytes);
  EXPECT_LE(cache->stats().written_bytes, first.written_bytes + options.write_bytes_per_hour);
  for (hours = 1001; hours < 1010; ++hours) Flush(*cache);
  EXPECT_EQ(cache->stats().entries_disk, 6u);
}

// Damaged, foreign, cut off, gone: left out, counted, and the rest serves; a shorter checkpoint takes the place of a longer one.
TEST(PrefixCache, DamagedFilesAreSetAside) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("GLINT_SEED=" + std::to_string(seed));
  std::mt19937_64 rng(seed);
  const Ids history = Random(600, 3);
  TempDir good;
  {
    auto cache = Make({.directory = good.path(), .write_bytes_per_hour = 0, .interval = 256});
    Serve(*cache, history);
    ASSERT_TRUE(Flush(*cache));
    EXPECT_EQ(cache->stats().entries_disk, 3u);  // 256, 512, 592
  }
  const Ids prompt = Join(history, {1, 2, 3});
  const auto cold = Cold(prompt);
  const auto names = Files(good, "");
  const int rounds = test::kAnySanitizer ? 15 : 60;
  uint64_t quarantined = 0, vanished = 0, shorter = 0;
  for (int round = 0; round < rounds; ++round) {
    TempDir dir;
    fs::copy(good.path(), dir.path(), fs::copy_options::recursive);
    // Before the start, or while the cache knows the files.
    const bool before = rng() % 2 == 0;
    std::unique_ptr<PrefixCache> cache;
    const PrefixCacheOptions options{.directory = dir.path(), .interval = 256};
    if (!before) cache = Make(options);
    std::string path;
    do {
      path = FolderOf(dir) + "/" + fs::path(names[rng() % names.size()]).filename().string();
    } while (path.ends_with("lock"));
    std::string bytes = ReadAll(path);
    const auto what = rng() % 6;
    SCOPED_TRACE(path + ", " + std::to_string(what) + (before ? " before" : ""));
    if (what == 0) {
      fs::remove(path);
    } else if (what == 1) {
      bytes.resize(rng() % bytes.size());
      WriteAll(path, bytes);
    } else if (what == 2) {
      WriteAll(path, "something else");
    } else if (what == 3) {
      fs::remove(path);
      fs::create_directory(path);
    } else {
      bytes[rng() % bytes.size()] ^= static_cast<char>(1 << rng() % 8);
      WriteAll(path, bytes);
    }
    if (before) cache = Make(options);
    for (int again = 0; again < 2; ++again) {
      const Served served = Serve(*cache, prompt, {}, again == 0);
      ASSERT_TRUE(SameBits(served.logits, cold));
      if (again == 0 && served.reused > 0 && served.reused < 592) ++shorter;
      if (again == 1) {
        EXPECT_GE(served.reused, 592u);  // kept anew
      }
    }
    const auto stats = cache->stats();
    quarantined += stats.quarantined, vanished += stats.vanished;
    EXPECT_EQ(Files(dir, ".bad").size(), stats.quarantined);
  }
  std::printf("%llu set aside, %llu vanished, %llu times a shorter one served\n",
              static_cast<unsigned long long>(quarantined), static_cast<unsigned long long>(vanished),
              static_cast<unsigned long long>(shorter));
  EXPECT_GT(quarantined, 0u);
}

// Another model's files, copied where they do not belong.
TEST(PrefixCache, ForeignFilesAreSetAside) {
  TempDir dir;
  const Model tile = test::MustOpen(test::HfDirectory("tile"), {.device = "cpu", .threads = 1});
  {
    auto other = PrefixCache::Create(tile, {.directory = dir.path()});
    ASSERT_TRUE(other.ok());
    auto session = Session::Create(tile, {.context = 100});
    ASSERT_TRUE(session->Append(Random(64, 1), LogitRows::kNone, {}).ok());
    (*other)->Keep(*session, CacheKind::kEnd);
    ASSERT_TRUE(Flush(**other));
  }
  const auto foreign = Files(dir, ".state");
  ASSERT_EQ(foreign.size(), 1u);
  auto cache = Make({.directory = dir.path()});  // models do not meet
  EXPECT_EQ(cache->stats().entries, 0u);
  cache.reset();
  std::string mine;
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    if (foreign[0].find(entry.path().string()) == std::string::npos) mine = entry.path().string();
  }
  fs::copy(foreign[0], mine + "/" + fs::path(foreign[0]).filename().string());
  WriteAll(mine + "/notes.txt", "not ours");
  cache = Make({.directory = dir.path()});
  EXPECT_EQ(cache->stats().quarantined, 1u);
  EXPECT_EQ(cache->stats().entries, 0u);
  EXPECT_TRUE(fs::exists(mine + "/notes.txt"));
}

// A full disk (a limit on the size of files stands for it): what is in memory serves, nothing half-written stays, writing begins again.
TEST(PrefixCache, AFullDiskIsNotTheEnd) {
  TempDir dir;
  std::atomic<int64_t> seconds = 0;
  const auto start = Clock::now();
  PrefixCacheOptions options{.directory = dir.path()};
  options.now = [&] { return start + std::chrono::seconds(seconds); };
  auto cache = Make(options);
  const Ids history = Random(300, 3);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{16384, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Serve(*cache, history);
  const bool flushed = Flush(*cache);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(flushed);
  auto stats = cache->stats();
  EXPECT_EQ(stats.write_failures, 1u);
  EXPECT_NE(stats.disk, "on");
  EXPECT_EQ(stats.disk_bytes, 0u);
  EXPECT_TRUE(Files(dir, ".state").empty() && Files(dir, ".rows").empty());
  EXPECT_EQ(Serve(*cache, Join(history, {1}), {}, false).reused, 288u);
  EXPECT_FALSE(Flush(*cache));  // it rests
  EXPECT_EQ(cache->stats().write_failures, 1u);
  seconds = 11;
  EXPECT_TRUE(Flush(*cache));
  EXPECT_EQ(cache->stats().disk, "on");
  EXPECT_EQ(Files(dir, ".state").size(), 1u);
}

TEST(PrefixCache, ADirectoryThatCanNotBeMadeIsAnErrorOfTheStart) {
  TempDir dir;
  dir.Write("file", "x");
  const auto made = PrefixCache::Create(Micro(), {.directory = dir.Path("file/cache")});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("file/cache"), std::string::npos) << made.status().message();
  EXPECT_EQ(PrefixCache::Create(Micro(), {.interval = 5}).status().code(), Code::kBadInput);
}

TEST(PrefixCache, ADirectoryThatIsTakenAwayIsMadeAgain) {
  TempDir dir;
  std::atomic<int64_t> seconds = 0;
  const auto start = Clock::now();
  PrefixCacheOptions options{.directory = dir.path()};
  options.now = [&] { return start + std::chrono::seconds(seconds); };
  auto cache = Make(options);
  const Ids history = Random(300, 3), other = Random(300, 4);
  Serve(*cache, history);
  ASSERT_TRUE(Flush(*cache));
  fs::remove_all(FolderOf(dir));
  Serve(*cache, other);
  EXPECT_FALSE(Flush(*cache));
  EXPECT_EQ(Serve(*cache, Join(other, {1}), {}, false).reused, 288u);
  seconds = 11;
  EXPECT_TRUE(Flush(*cache));
  EXPECT_EQ(Files(dir, ".state").size(), 1u);
}

// Two servers, one directory: the first has it, the second works in memory until the first has ended.
TEST(PrefixCache, TwoServersDoNotMeet) {
  TempDir dir;
  std::atomic<int64_t> seconds = 0;
  const auto start = Clock::now();
  PrefixCacheOptions options{.directory = dir.path()};
  options.now = [&] { return start + std::chrono::seconds(seconds); };
  auto first = Make(options), second = Make(options);
  const Ids history = Random(300, 3), other = Random(300, 4);
  Serve(*first, history);
  Serve(*second, other);
  EXPECT_TRUE(Flush(*first));
  EXPECT_FALSE(Flush(*second));
  EXPECT_EQ(second->stats().disk, "another server uses it");
  EXPECT_EQ(Files(dir, ".state").size(), 1u);
  EXPECT_EQ(Serve(*second, Join(other, {1}), {}, false).reused, 288u);
  first.reset();
  seconds = 6;
  EXPECT_TRUE(Flush(*second));
  EXPECT_EQ(second->stats().disk, "on");
  EXPECT_EQ(Files(dir, ".state").size(), 2u);
  EXPECT_EQ(Serve(*second, Join(history, {1}), {}, false).reused, 288u);  // the other's
}

// A file is more than the state and the caches in it: where all but a few bytes would fit, the budget holds too.
TEST(PrefixCache, TheDiskBudgetHoldsToTheByte) {
  TempDir dir;
  uint64_t all = 0;
  for (uint64_t short_of = 0; short_of <= 4096; short_of = short_of == 0 ? 1 : 4 * short_of) {
    const uint64_t budget = short_of == 0 ? uint64_t{1} << 30 : all - short_of;
    SCOPED_TRACE(budget);
    auto cache = Make({.directory = dir.Path(std::to_string(short_of)),
                       .disk_bytes = budget,
                       .write_bytes_per_hour = 0,
                       .least_tokens = 16});
    for (uint64_t seed = 0; seed < 3; ++seed) {
      Serve(*cache, Random(100, seed));
      Flush(*cache);
      EXPECT_LE(cache->stats().disk_bytes, budget);
    }
    EXPECT_GT(cache->stats().disk_bytes, 0u);
    if (short_of == 0) all = cache->stats().disk_bytes;
  }
}

// Many threads ask and keep at once.
TEST(PrefixCache, ThreadsDoNotDisturbEachOther) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("GLINT_SEED=" + std::to_string(seed));
  TempDir dir;
  const PrefixCacheOptions options{.ram_bytes = 10 * StateBytes(),
                                   .directory = dir.path(),
                                   .disk_bytes = 15 * StateBytes(),
                                   .least_tokens = 16};
  auto cache = Make(options);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(seed + t);
      const int steps = test::kAnySanitizer ? 10 : 40;
      for (int step = 0; step < steps; ++step) {
        Ids prompt = Random(80 + 16 * (rng() % 5), rng() % 4);
        prompt = Join(prompt, Random(1 + rng() % 40, rng() % 8));
        if (!SameBits(Serve(*cache, prompt).logits, Cold(prompt))) ++wrong;
        if (rng() % 16 == 0) cache->Forget(prompt);
        (void)cache->stats();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  Flush(*cache);
  EXPECT_LE(cache->stats().disk_bytes, options.disk_bytes);
  EXPECT_LE(cache->stats().ram_bytes, options.ram_bytes);
}

// Killed at any moment while it writes, the next start has whole checkpoints only.
TEST(PrefixCacheKill, DISABLED_Writer) {
  auto cache = Make({.directory = test::Child::Task(), .write_bytes_per_hour = 0, .least_tokens = 16});
  for (uint64_t seed = 0;; ++seed) Serve(*cache, Random(100 + seed % 50, seed % 200));
}

TEST(PrefixCacheKill, LeavesWholeFiles) {
  const Ids history = Random(100, 0);
  uint64_t found = 0;
  TempDir dir;
  for (int round = 0; round < (test::kAnySanitizer ? 2 : 6); ++round) {
    {
      test::Child writer("PrefixCacheKill.DISABLED_Writer", dir.path());
      for (int i = 0; i < 500 && (FolderOf(dir).empty() ||
                                  Files(dir, ".state").size() < 3 * static_cast<size_t>(round + 1));
           ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10 + round));
      writer.Kill();
    }
    auto cache = Make({.directory = dir.path(), .least_tokens = 16});
    EXPECT_EQ(cache->stats().quarantined, 0u);
    EXPECT_EQ(cache->stats().disk, "on");
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const Ids prompt = Join(Random(100 + seed % 50, seed), {1});
      const Served served = Serve(*cache, prompt, {}, false);
      EXPECT_TRUE(SameBits(served.logits, Cold(prompt)));
      found += served.reused > 0 ? 1 : 0;
    }
    EXPECT_EQ(cache->stats().quarantined + cache->stats().vanished, 0u);
  }
  EXPECT_GT(found, 0u);
}

}  // namespace
}  // namespace glint::serve
