// Snapshots: what goes on from one, also from its files, has the bits of a cold run; prefixes are held once; bad states and bad files are
// refused.
#include "engine/snapshot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/session_impl.h"
#include "engine/snapshot_file.h"
#include "tests/base/temp_dir.h"
#include "tests/engine/reference.h"

namespace glint::engine {
namespace {

using test::TempDir;
using SnapshotPtr = std::shared_ptr<const Snapshot>;

const Model& Micro() {
  static const Model model =
      test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 2, .mtp = true});
  return model;
}

std::vector<int32_t> Ids(size_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<int32_t> ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(rng() % static_cast<uint64_t>(Micro().usable_vocab()));
  return ids;
}

Session Make(int64_t context, bool mtp = false) {
  auto session = Session::Create(Micro(), {.context = context, .mtp = mtp});
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(*session);
}

std::vector<float> Feed(Session& session, std::span<const int32_t> ids) {
  std::vector<float> logits(ids.size() * static_cast<size_t>(Micro().vocab_size()));
  const Status status = session.Append(ids, LogitRows::kAll, logits);
  EXPECT_TRUE(status.ok()) << status.message();
  return logits;
}

SnapshotPtr MustTake(const Session& session, int64_t at, const Snapshot* like = nullptr,
                     RowsPiece::Gauge gauge = nullptr) {
  auto taken = Snapshot::Take(session, at, like, std::move(gauge));
  EXPECT_TRUE(taken.ok()) << taken.status().message();
  return taken.ok() ? *taken : nullptr;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

uint64_t Seed() {
  const std::string given = test::FromEnvironment("GLINT_SEED");
  const uint64_t seed = given.empty() ? std::random_device{}() : std::stoull(given);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

TEST(Snapshot, WhatGoesOnHasTheBitsOfAColdRun) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("GLINT_SEED=" + std::to_string(seed));
  const auto ids = Ids(100, seed);
  const auto vocab = static_cast<size_t>(Micro().vocab_size());
  auto cold = Make(100);
  const auto truth = Feed(cold, ids);
  TempDir dir;
  for (const int64_t end : {0, 1, 2, 15, 16, 17, 31, 40, 63, 64, 90}) {
    auto session = Make(90 + 5);
    if (end > 0) Feed(session, std::span(ids).first(static_cast<size_t>(end)));
    const int64_t block = end - end % Micro().impl()->data.hparams.block;
    for (int64_t at = block; at <= end; at += at == block && end > block ? end - block : 1) {
      SCOPED_TRACE(std::to_string(at) + " of " + std::to_string(end));
      SnapshotPtr snapshot = MustTake(session, at);
      ASSERT_NE(snapshot, nullptr);
      for (const bool from_files : {false, true}) {
        if (from_files) {
          std::vector<RowsRange> rows;
          FileBytes bytes;
          const int64_t whole = std::ssize(snapshot->data().rows) * RowsLayout::Of(Micro()).tokens;
          const int64_t middle = whole / 2 / 16 * 16;
          for (const auto& [first, to] : {std::pair<int64_t, int64_t>{0, middle}, {middle, whole}}) {
            if (first == to) continue;
            rows.push_back({dir.Path("rows" + std::to_string(first)), first, to});
            ASSERT_TRUE(SaveRows(Micro(), *snapshot, first, to, rows.back().path, &bytes).ok());
          }
          ASSERT_TRUE(SaveState(*snapshot, dir.Path("state"), "words", &bytes).ok());
          std::string bad;
          auto loaded = LoadSnapshot(Micro(), dir.Path("state"), rows, nullptr, nullptr, &bytes, &bad);
          ASSERT_TRUE(loaded.ok()) << loaded.status().message();
          snapshot = *loaded;
          auto info = LookAt(Micro(), dir.Path("state"));
          ASSERT_TRUE(info.ok());
          EXPECT_EQ(info->attachment, "words");
          EXPECT_EQ(std::ssize(info->tokens), at);
        }
        auto again = snapshot->Restore(Micro(), {.context = 100});
        ASSERT_TRUE(again.ok()) << again.status().message();
        ASSERT_EQ(again->position(), at);
        EXPECT_TRUE(std::equal(again->tokens().begin(), again->tokens().end(), ids.begin()));
        const auto logits = Feed(*again, std::span(ids).subspan(static_cast<size_t>(at)));
        EXPECT_TRUE(SameBits(logits, std::span(truth).subspan(static_cast<size_t>(at) * vocab)));
      }
    }
  }
}

// Also taken of a session that was itself restored, at random, sharing with whatever there is.
TEST(Snapshot, RandomChainsHaveTheBitsOfAColdRun) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("GLINT_SEED=" + std::to_string(seed));
  std::mt19937_64 rng(seed);
  const auto vocab = static_cast<size_t>(Micro().vocab_size());
  // Histories that part at random places.
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::vector<float>> truths;
  for (int i = 0; i < 4; ++i) {
    auto ids = Ids(120, rng());
    if (i > 0) {
      const auto& other = texts[rng() % texts.size()];
      std::copy_n(other.begin(), rng() % 100, ids.begin());
    }
    auto cold = Make(120);
    truths.push_back(Feed(cold, ids));
    texts.push_back(std::move(ids));
  }
  std::vector<SnapshotPtr> kept;
  for (int step = 0; step < 60; ++step) {
    const size_t text = rng() % texts.size();
    const auto& ids = texts[text];
    SnapshotPtr begin;
    for (const auto& k : kept) {
      const auto& has = k->data().tokens;
      if (std::equal(has.begin(), has.end(), ids.begin()) && rng() % 2 == 0) begin = k;
    }
    auto session = Make(120);
    if (begin != nullptr) {
      auto restored = begin->Restore(Micro(), {.context = 120});
      ASSERT_TRUE(restored.ok()) << restored.status().message();
      session = std::move(*restored);
    }
    const auto at = static_cast<size_t>(session.position());
    const size_t more = rng() % (ids.size() - at + 1);
    const auto logits = Feed(session, std::span(ids).subspan(at, more));
    ASSERT_TRUE(SameBits(logits, std::span(truths[text]).subspan(at * vocab, more * vocab)))
        << "step " << step;
    const Snapshot* like = kept.empty() ? nullptr : kept[rng() % kept.size()].get();
    kept.push_back(MustTake(session, session.position(), like));
  }
}

// A checkpoint is the recurrent state and a list of pieces; the caches of what two share are there once.
TEST(Snapshot, PrefixesAreHeldOnce) {
  const auto ids = Ids(400, 5);
  const auto gauge = std::make_shared<std::atomic<uint64_t>>(0);
  const RowsLayout layout = RowsLayout::Of(Micro());
  const auto piece = static_cast<uint64_t>(layout.floats) * sizeof(float);
  {
    auto session = Make(500);
    std::vector<SnapshotPtr> kept;
    std::vector<uint64_t> own;
    for (const size_t end : {64, 128, 400}) {
      Feed(session, std::span(ids).subspan(static_cast<size_t>(session.position()),
                                           end - static_cast<size_t>(session.position())));
      kept.push_back(
          MustTake(session, session.position(), kept.empty() ? nullptr : kept.back().get(), gauge));
      EXPECT_EQ(*gauge, end / static_cast<uint64_t>(layout.tokens) * piece);
      const uint64_t tokens = end * sizeof(int32_t) + kept.back()->data().rows.size() * sizeof(SnapshotPtr);
      own.push_back(kept.back()->own_bytes() - tokens);
    }
    EXPECT_EQ(own[0], own[1]);
    EXPECT_EQ(own[1], own[2]);
    EXPECT_EQ(kept[0]->data().rows[0], kept[2]->data().rows[0]);
    // Parting after 100 tokens: six pieces of sixteen are the same.
    auto other_ids = Ids(160, 6);
    std::copy_n(ids.begin(), 100, other_ids.begin());
    auto other = Make(200);
    Feed(other, other_ids);
    const auto snapshot = MustTake(other, 160, kept.back().get(), gauge);
    EXPECT_EQ(*gauge, (400 / 16 + 160 / 16 - 6) * piece);
    EXPECT_EQ(snapshot->data().rows[5], kept[1]->data().rows[5]);
    EXPECT_NE(snapshot->data().rows[6], kept[1]->data().rows[6]);
  }
  EXPECT_EQ(*gauge, 0u);
}

// The MTP block's caches go along.
TEST(Snapshot, KeepsTheMtpBlock) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("GLINT_SEED=" + std::to_string(seed));
  const auto ids = Ids(70, seed);
  const auto width = static_cast<size_t>(Micro().hidden_size()),
             vocab = static_cast<size_t>(Micro().vocab_size());
  auto cold = Make(80, true);
  std::vector<float> hidden(ids.size() * width);
  ASSERT_TRUE(cold.AppendWithHidden(ids, LogitRows::kNone, {}, hidden).ok());
  std::vector<float> truth((ids.size() - 1) * vocab);
  ASSERT_TRUE(
      cold.AppendMtp(std::span(ids).subspan(1), std::span(hidden).first((ids.size() - 1) * width), truth, {})
          .ok());
  for (const int64_t end : {2, 16, 17, 33, 40, 48, 63}) {
    for (const bool at_block : {false, true}) {
      SCOPED_TRACE(end);
      auto session = Make(80, true);
      std::vector<float> rows(static_cast<size_t>(end) * width);
      ASSERT_TRUE(
          session.AppendWithHidden(std::span(ids).first(static_cast<size_t>(end)), LogitRows::kNone, {}, rows)
              .ok());
      ASSERT_TRUE(session
                      .AppendMtp(std::span(ids).subspan(1, static_cast<size_t>(end) - 1),
                                 std::span(hidden).first(static_cast<size_t>(end - 1) * width), {}, {})
                      .ok());
      const int64_t at = at_block ? end - end % 16 : end;
      const auto snapshot = MustTake(session, at);
      auto again = snapshot->Restore(Micro(), {.context = 80, .mtp = true});
      ASSERT_TRUE(again.ok()) << again.status().message();
      const auto from = static_cast<size_t>(again->mtp_position());
      EXPECT_EQ(again->mtp_position(), std::max<int64_t>(at - 1, 0));
      const auto rest = std::span(ids).subspan(static_cast<size_t>(at));
      std::vector<float> more(rest.size() * width);
      ASSERT_TRUE(again->AppendWithHidden(rest, LogitRows::kNone, {}, more).ok());
      std::vector<float> logits((ids.size() - 1 - from) * vocab);
      ASSERT_TRUE(again
                      ->AppendMtp(std::span(ids).subspan(from + 1),
                                  std::span(hidden).subspan(from * width, (ids.size() - 1 - from) * width),
                                  logits, {})
                      .ok());
      EXPECT_TRUE(SameBits(logits, std::span(truth).subspan(from * vocab)));
      // Without it, what has it serves as well; what has it not does not serve with it.
      EXPECT_TRUE(snapshot->Restore(Micro(), {.context = 80}).ok());
      auto trunk = Make(80);
      Feed(trunk, std::span(ids).first(20));
      EXPECT_EQ(MustTake(trunk, 20)->Restore(Micro(), {.context = 80, .mtp = true}).status().code(),
                Code::kBadInput);
    }
  }
}

// What one request spoils must not reach the next.
TEST(Snapshot, AStateThatIsNotFiniteIsRefused) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    auto session = Make(100);
    Feed(session, Ids(40, 9));
    auto& state = *session.impl().state;
    for (const auto& part : state.Parts(40, 0)) {
      SCOPED_TRACE(std::string(Name(part.kind)) + " of layer " + std::to_string(part.layer));
      std::vector<float> floats(static_cast<size_t>(part.rows * part.width)), broken;
      ASSERT_TRUE(state.Read(part, floats.data()).ok());
      broken = floats;
      broken[broken.size() - 1] = bad;
      ASSERT_TRUE(state.Write(part, broken.data()).ok());
      EXPECT_EQ(Snapshot::Take(session, 40).status().code(), Code::kUnsupported);
      ASSERT_TRUE(state.Write(part, floats.data()).ok());
      EXPECT_TRUE(Snapshot::Take(session, 40).ok());
    }
  }
}

TEST(Snapshot, RefusesOtherPositionsAndModels) {
  auto session = Make(100);
  Feed(session, Ids(40, 9));
  for (const int64_t at : {0, 16, 31, 41, -1})
    EXPECT_EQ(Snapshot::Take(session, at).status().code(), Code::kBadInput);
  const auto snapshot = MustTake(session, 32);
  EXPECT_EQ(snapshot->Restore(Micro(), {.context = 31}).status().code(), Code::kNoRoom);
  const Model tile = test::MustOpen(test::HfDirectory("tile"), {.device = "cpu", .threads = 1});
  EXPECT_EQ(snapshot->Restore(tile, {.context = 100}).status().code(), Code::kBadInput);
}

// Any bit flipped and any length cut: refused, and the file to blame is named. (The attachment is not read here.)
TEST(SnapshotFiles, DamageIsRefused) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("GLINT_SEED=" + std::to_string(seed));
  std::mt19937_64 rng(seed);
  auto session = Make(100);
  Feed(session, Ids(48, 9));
  const auto snapshot = MustTake(session, 48);
  TempDir dir;
  FileBytes bytes;
  ASSERT_TRUE(SaveRows(Micro(), *snapshot, 0, 48, dir.Path("rows"), &bytes).ok());
  ASSERT_TRUE(SaveState(*snapshot, dir.Path("state"), "", &bytes).ok());
  const std::string state = dir.Read("state"), rows = dir.Read("rows");
  EXPECT_EQ(bytes.bytes, state.size() + rows.size());
  const RowsRange range{dir.Path("rows"), 0, 48};
  std::string bad;
  const auto load = [&] {
    return LoadSnapshot(Micro(), dir.Path("state"), {&range, 1}, nullptr, nullptr, &bytes, &bad);
  };
  ASSERT_TRUE(load().ok());
  for (int i = 0; i < 300; ++i) {
    const bool of_state = rng() % 2 == 0;
    const std::string& good = of_state ? state : rows;
    std::string broken = good;
    if (rng() % 4 == 0) {
      broken.resize(rng() % good.size());
    } else {
      broken[rng() % (rng() % 2 == 0 ? 4096 : good.size())] ^= static_cast<char>(1 << rng() % 8);
    }
    dir.Write(of_state ? "state" : "rows", broken);
    const auto loaded = load();
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(static_cast<int>(loaded.status().code()), static_cast<int>(Code::kInternal))
        << loaded.status().message();
    EXPECT_EQ(bad, dir.Path(of_state ? "state" : "rows")) << loaded.status().message();
    dir.Write(of_state ? "state" : "rows", good);
  }
  // Caches of other tokens under that name.
  auto other = Make(100);
  Feed(other, Ids(48, 10));
  ASSERT_TRUE(SaveRows(Micro(), *MustTake(other, 48), 0, 48, dir.Path("rows"), &bytes).ok());
  EXPECT_EQ(load().status().code(), Code::kBadFile);
  std::filesystem::remove(dir.Path("rows"));
  EXPECT_EQ(load().status().code(), Code::kNotFound);
  EXPECT_EQ(bad, dir.Path("rows"));
  // What is in memory is not read.
  EXPECT_TRUE(
      LoadSnapshot(Micro(), dir.Path("state"), {&range, 1}, snapshot.get(), nullptr, &bytes, &bad).ok());
}

}  // namespace
}  // namespace glint::engine
