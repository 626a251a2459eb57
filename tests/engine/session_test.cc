// Sessions: what they refuse, and that whatever is done to one, its numbers are those of a cold run of the same tokens.
#include "glint/session.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "base/memory.h"
#include "cpu/state.h"
#include "engine/session_impl.h"
#include "glint/sampler.h"
#include "tests/engine/reference.h"

namespace glint {
namespace {

Model Micro(const ModelOptions& options = {.threads = 2}) {
  return test::MustOpen(test::HfDirectory("micro"), options);
}

Session NewSession(const Model& model, int64_t context = 512, bool mtp = false) {
  auto session = Session::Create(model, {.context = context, .mtp = mtp});
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(*session);
}

std::vector<int32_t> Ids(size_t n, uint64_t seed = 1) {
  std::mt19937_64 rng(seed);
  std::vector<int32_t> ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(rng() % 256);
  return ids;
}

std::vector<float> ColdLogits(const Model& model, std::span<const int32_t> ids) {
  auto session = NewSession(model);
  std::vector<float> logits(ids.size() * static_cast<size_t>(model.vocab_size()), NAN);
  EXPECT_TRUE(session.Append(ids, LogitRows::kAll, logits).ok());
  return logits;
}

void ExpectRefused(const Status& status, Code code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

// The choice is the greedy sampler's over the logits that Append would have given, in every cut, and the session goes on the same.
TEST(Session, AppendBestChoosesAsTheGreedySampler) {
  const Model model = Micro();
  const auto ids = Ids(70);
  const auto vocab = static_cast<size_t>(model.vocab_size());
  const auto logits = ColdLogits(model, ids);
  const auto chosen = [&](size_t token) {
    auto sampler = Sampler::Create({.temperature = 0}, model.usable_vocab());
    EXPECT_TRUE(sampler.ok() && sampler->is_argmax());
    auto id = sampler->Sample(std::span(logits).subspan(token * vocab, vocab));
    EXPECT_TRUE(id.ok());
    return id.ok() ? *id : -1;
  };
  for (const bool check : {false, true}) {
    SCOPED_TRACE(check ? "checked" : "plain");
    auto session = Session::Create(model, {.context = 512, .check = check});
    ASSERT_TRUE(session.ok());
    size_t at = 0;
    for (const size_t rows : {1, 1, 40, 7, 1, 19}) {
      int32_t best = -7;
      ASSERT_TRUE(session->AppendBest(std::span(ids).subspan(at, rows), &best).ok());
      at += rows;
      EXPECT_EQ(best, chosen(at - 1)) << "after " << at << " tokens";
    }
    auto each = Session::Create(model, {.context = 512, .check = check});
    ASSERT_TRUE(each.ok());
    at = 0;
    for (const size_t rows : {4, 1, 3, 40, 21}) {
      std::vector<int32_t> best(rows, -7);
      ASSERT_TRUE(each->AppendBestOfEach(std::span(ids).subspan(at, rows), best).ok());
      for (size_t r = 0; r < rows; ++r) EXPECT_EQ(best[r], chosen(at + r)) << "token " << at + r;
      at += rows;
    }
    std::vector<float> row(vocab);
    ASSERT_TRUE(session->Append(std::span(ids).subspan(at), LogitRows::kLast, row).ok());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), logits.end() - static_cast<std::ptrdiff_t>(vocab)));
  }
  auto session = NewSession(model);
  int32_t best = -7;
  EXPECT_TRUE(session.AppendBest({}, &best).ok());
  EXPECT_EQ(best, -7);
  ExpectRefused(session.AppendBest(std::vector<int32_t>{256}, &best), Code::kBadInput, "256");
  EXPECT_TRUE(session.AppendBestOfEach({}, {}).ok());
  ExpectRefused(session.AppendBestOfEach(std::vector<int32_t>{1, 2}, {&best, 1}), Code::kBadInput,
                "`best` holds 1 ids; 2 tokens are as many");
}

// More tokens than a pass takes: the choices of the later passes follow those of the first.
TEST(Session, AppendBestOfEachGoesOnFromPassToPass) {
  const Model model = Micro();
  const auto rows = static_cast<size_t>(model.impl()->backend->prompt_rows()) + 70;
  const auto ids = Ids(rows);
  std::vector<int32_t> together(rows, -7), apart(rows, -8);
  auto one = Session::Create(model, {.context = 1024}), other = Session::Create(model, {.context = 1024});
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_TRUE(one->AppendBestOfEach(ids, together).ok());
  for (size_t at = 0, some = 1; at < rows; at += some, some = some % 50 + 7) {
    const size_t count = std::min(some, rows - at);
    ASSERT_TRUE(
        other->AppendBestOfEach(std::span(ids).subspan(at, count), std::span(apart).subspan(at, count)).ok());
  }
  EXPECT_EQ(together, apart);
}

TEST(Model, SaysWhatItIs) {
  const Model model = Micro({.threads = 3, .mtp = true});
  EXPECT_EQ(model.vocab_size(), 256);
  EXPECT_EQ(model.usable_vocab(), 256) << "without a tokenizer every row counts";
  EXPECT_EQ(model.hidden_size(), 64);
  EXPECT_EQ(model.context_length(), 4096);
  EXPECT_EQ(model.threads(), 3);
  EXPECT_TRUE(model.has_mtp());
  EXPECT_FALSE(model.has_tokenizer());
  // Everything of the trunk but the experts not chosen and the embedding rows not looked up; vectors count with what reads them.
  EXPECT_GT(model.weight_bytes_per_token(), 1000000u);
  EXPECT_LT(model.weight_bytes_per_token(), 3060032u);
  EXPECT_FALSE(Micro({.threads = 1}).has_mtp()) << "the MTP block is bound only if asked for";
}

TEST(Model, RefusesBadOptions) {
  const std::string path = test::HfDirectory("micro");
  ExpectRefused(Model::Open(path, {.threads = -1}).status(), Code::kBadInput, "threads is -1");
  ExpectRefused(Model::Open(path, {.threads = 100000}).status(), Code::kBadInput, "threads is 100000");
  for (const auto& options :
       {ModelOptions{.with = {"warp-drive"}}, ModelOptions{.without = {"warp-drive"}}}) {
    const auto status = Model::Open(path, options).status();
    ExpectRefused(status, Code::kBadInput, "warp-drive");
    ExpectRefused(status, Code::kBadInput, "threads");  // one of the known names
  }
  EXPECT_EQ(Model::Open(path + "/nowhere").status().code(), Code::kNotFound);
}

TEST(Session, RefusesWhatItCannotDo) {
  const Model model = Micro();
  ExpectRefused(Session::Create(model, {.context = 0}).status(), Code::kBadInput, "context is 0");
  ExpectRefused(Session::Create(model, {.context = 4097}).status(), Code::kBadInput, "1 to 4096");
  ExpectRefused(Session::Create(model, {.context = 64, .mtp = true}).status(), Code::kBadInput, "MTP");

  auto session = NewSession(model, 10);
  const auto ids = Ids(10);
  std::vector<float> row(256), rows(10 * 256);
  ASSERT_TRUE(session.Append(std::span(ids).first(7), LogitRows::kLast, row).ok());
  const auto unchanged = [&] {
    EXPECT_EQ(session.position(), 7);
    EXPECT_TRUE(std::equal(session.tokens().begin(), session.tokens().end(), ids.begin(), ids.begin() + 7));
  };
  ExpectRefused(session.Append(std::vector<int32_t>{1, 256}, LogitRows::kNone, {}), Code::kBadInput,
                "token 1 of 2 is id 256");
  ExpectRefused(session.Append(std::vector<int32_t>{-1}, LogitRows::kNone, {}), Code::kBadInput, "id -1");
  ExpectRefused(session.Append(std::vector<int32_t>{1}, LogitRows::kLast, rows), Code::kBadInput,
                "`logits` holds 2560");
  ExpectRefused(session.Append(std::vector<int32_t>{1}, LogitRows::kNone, row), Code::kBadInput,
                "`logits` holds 256");
  ExpectRefused(session.Append(std::vector<int32_t>{1, 2, 3, 4}, LogitRows::kLast, row), Code::kNoRoom,
                "room for 3 more");
  ExpectRefused(session.AppendWithHidden(std::vector<int32_t>{1}, LogitRows::kLast, row, {}), Code::kBadInput,
                "`hidden`");
  ExpectRefused(session.AppendMtp(std::vector<int32_t>{1}, std::vector<float>(64), {}, {}), Code::kBadInput,
                "MTP");
  ExpectRefused(session.Rewind({77}), Code::kBadInput, "no checkpoint 77");
  ExpectRefused(session.RewindTo(8), Code::kBadInput, "nearest are 7");
  ExpectRefused(session.RewindTo(-1), Code::kBadInput, "nearest are 0");
  ExpectRefused(session.TruncateMtp(1), Code::kBadInput, "it has 0 rows");
  unchanged();
  ASSERT_TRUE(session.Append({}, LogitRows::kAll, {}).ok());
  ASSERT_TRUE(session.Append({}, LogitRows::kLast, {}).ok());
  unchanged();
  ASSERT_TRUE(
      session.Append(std::span(ids).subspan(7), LogitRows::kAll, std::span(rows).first(3 * 256)).ok());
  const auto cold = ColdLogits(model, ids);
  EXPECT_EQ(0, std::memcmp(cold.data() + 7 * 256, rows.data(), 3 * 256 * sizeof(float)))
      << "errors left something behind";
}

TEST(Session, StatesItsMemoryAndRefusesWhatCannotFit) {
  const Model model = Micro({.threads = 1, .mtp = true});
  auto session = NewSession(model, 100);
  EXPECT_EQ(session.memory_bytes(), Session::MemoryNeeded(model, {.context = 100}));
  EXPECT_GT(Session::MemoryNeeded(model, {.context = 200}), Session::MemoryNeeded(model, {.context = 100}));
  EXPECT_GT(Session::MemoryNeeded(model, {.context = 100, .mtp = true}),
            Session::MemoryNeeded(model, {.context = 100}));
  const auto before = session.memory_bytes();
  ASSERT_TRUE(session.Checkpoint().ok());
  EXPECT_GT(session.memory_bytes(), before) << "checkpoints count";

  // The model states no limit: 2^31 - 1 tokens of 2 layers of 36 floats are some 600 GB.
  model.impl()->data.hparams.context_length = 0;
  const auto status = Session::Create(model, {.context = 2147483647}).status();
  ExpectRefused(status, Code::kNoRoom, "2147483647 tokens needs");
  ExpectRefused(status, Code::kNoRoom, "GB");
  ExpectRefused(Session::Create(model, {.context = 2147483648}).status(), Code::kBadInput, "1 to 2147483647");
}

TEST(Session, FormatsBytes) {
  EXPECT_EQ(FormatBytes(999), "999 bytes");
  EXPECT_EQ(FormatBytes(1000), "1.00 kB");
  EXPECT_EQ(FormatBytes(12345678), "12.3 MB");
  EXPECT_EQ(FormatBytes(999600), "1.00 MB");
  EXPECT_EQ(FormatBytes(152600000000), "153 GB");
  EXPECT_GT(AvailableMemory().bytes, 0u);
}

TEST(Session, AnInterruptLeavesWhatIsDone) {
  const Model model = Micro();
  const int64_t context = 3 * engine::kChunkRows, tokens = context - 68;
  auto session = NewSession(model, context);
  const auto ids = Ids(static_cast<size_t>(tokens));
  ASSERT_TRUE(session.Append(std::span(ids).first(5), LogitRows::kNone, {}).ok());
  std::vector<uint64_t> reports;
  const auto status =
      session.Append(std::span(ids).subspan(5), LogitRows::kNone, {}, [&](uint64_t done, uint64_t total) {
        EXPECT_EQ(total, static_cast<uint64_t>(tokens - 5));
        reports.push_back(done);
        return reports.size() < 2;
      });
  ExpectRefused(status, Code::kBadInput, "interrupted");
  ASSERT_EQ(reports.size(), 2u);
  ASSERT_EQ(session.position(), static_cast<int64_t>(5 + reports[1]));
  EXPECT_EQ(session.position() % 16, 0) << "passes end on the grid";
  EXPECT_TRUE(std::equal(session.tokens().begin(), session.tokens().end(), ids.begin()));
  // It goes on as if nothing had happened.
  std::vector<float> row(256), cold(256);
  ASSERT_TRUE(session.Append(std::span(ids).subspan(session.position()), LogitRows::kLast, row).ok());
  auto other = NewSession(model, context);
  ASSERT_TRUE(other.Append(ids, LogitRows::kLast, cold).ok());
  EXPECT_EQ(0, std::memcmp(row.data(), cold.data(), sizeof(float) * 256));
  // A false at the very end has nothing to stop.
  session.Reset();
  EXPECT_TRUE(
      session.Append(ids, LogitRows::kNone, {}, [](uint64_t done, uint64_t total) { return done < total; })
          .ok());
}

TEST(Session, CheckpointsComeAndGo) {
  const Model model = Micro();
  auto session = NewSession(model);
  const auto ids = Ids(100);
  const auto append = [&](size_t from, size_t to) {
    ASSERT_TRUE(session.Append(std::span(ids).subspan(from, to - from), LogitRows::kNone, {}).ok());
  };
  append(0, 20);
  const auto a = session.Checkpoint();
  append(20, 50);
  const auto b = session.Checkpoint();
  append(50, 75);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(session.Rewindable(),
            (std::vector<int64_t>{20, 50, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75}));
  ExpectRefused(session.RewindTo(30), Code::kBadInput, "nearest are 20 and 50");
  ASSERT_TRUE(session.RewindTo(50).ok());
  EXPECT_EQ(session.position(), 50);
  EXPECT_EQ(session.Rewindable(), (std::vector<int64_t>{20, 48, 49, 50}));
  ASSERT_TRUE(session.RewindTo(49).ok());
  ExpectRefused(session.Rewind(*b), Code::kBadInput, "no checkpoint");  // its token 49 is gone
  ASSERT_TRUE(session.Rewind(*a).ok());
  ASSERT_TRUE(session.Rewind(*a).ok()) << "a checkpoint can be returned to again";
  EXPECT_EQ(session.position(), 20);
  append(20, 40);
  std::vector<float> row(256);
  ASSERT_TRUE(session.Append(std::span(ids).subspan(40, 1), LogitRows::kLast, row).ok());
  const auto cold = ColdLogits(model, std::span(ids).first(41));
  EXPECT_EQ(0, std::memcmp(row.data(), cold.data() + 40 * 256, sizeof(float) * 256));
  session.Reset();
  EXPECT_EQ(session.position(), 0);
  EXPECT_EQ(session.Rewindable(), std::vector<int64_t>{0});
  ExpectRefused(session.Rewind(*a), Code::kBadInput, "no checkpoint");
}

TEST(Session, MtpRowsGoAlongWithARewind) {
  const Model model = Micro({.threads = 1, .mtp = true});
  auto session = NewSession(model, 128, true);
  const auto ids = Ids(60);
  std::vector<float> hidden(60 * 64);
  ASSERT_TRUE(
      session
          .AppendWithHidden(std::span(ids).first(40), LogitRows::kNone, {}, std::span(hidden).first(40 * 64))
          .ok());
  ASSERT_TRUE(
      session.AppendMtp(std::span(ids).subspan(1, 39), std::span(hidden).first(39 * 64), {}, {}).ok());
  EXPECT_EQ(session.mtp_position(), 39);
  const auto checkpoint = session.Checkpoint();
  const auto rest = std::span(ids).subspan(40);
  ASSERT_TRUE(session.AppendWithHidden(rest, LogitRows::kNone, {}, std::span(hidden).subspan(40 * 64)).ok());
  std::vector<float> want(256), got(256);
  const auto tail = [&](std::vector<float>& logits) {
    ASSERT_TRUE(
        session.AppendMtp(std::span(ids).subspan(40, 19), std::span(hidden).subspan(39 * 64, 19 * 64), {}, {})
            .ok());
    ASSERT_TRUE(
        session.AppendMtp(std::span(ids).last(1), std::span(hidden).subspan(58 * 64, 64), logits, {}).ok());
  };
  tail(want);
  ASSERT_TRUE(session.RewindTo(55).ok());
  EXPECT_EQ(session.mtp_position(), 54) << "row 54 was made from token 55";
  ASSERT_TRUE(session.Rewind(*checkpoint).ok());
  EXPECT_EQ(session.mtp_position(), 39);
  ASSERT_TRUE(session.Append(rest, LogitRows::kNone, {}).ok());
  tail(got);
  EXPECT_EQ(0, std::memcmp(want.data(), got.data(), sizeof(float) * 256));
}

// Writes NaN wherever a state or a buffer holds nothing of value: rows above the position, and what passes left behind.
void Poison(Session& session) {
  auto& state = dynamic_cast<cpu::SequenceState&>(*session.impl().state);
  const auto& hp = session.impl().model->data.hparams;
  const int64_t at = state.position(), width = hp.kda_width();
  const auto fill = [](float* from, float* to) { std::fill(from, to, NAN); };
  for (int layer = 0; layer < hp.layers; ++layer) {
    if (hp.mixers[static_cast<size_t>(layer)] == model::Mixer::kKda) {
      const auto kda = state.Kda(layer);
      for (float* rows : {kda.kf, kda.delta, kda.g})
        fill(rows + at % hp.block * width, rows + hp.block * width);
    } else {
      const auto dsa = state.Dsa(layer);
      fill(dsa.latent + at * hp.kv_lora_rank, dsa.latent + state.capacity() * hp.kv_lora_rank);
      fill(dsa.pooled + at / hp.index_kpool * hp.index_head_dim,
           dsa.pooled + state.capacity() / hp.index_kpool * hp.index_head_dim);
    }
  }
}

void PoisonBuffers(Session& session) {
  session.impl().observer = [](const plan::StepView& view) {
    if (view.step.stage != plan::Stage::kHeadNorm)
      return;  // the last step that others' slots are not read after
    for (int slot = 0; slot < static_cast<int>(plan::Slot::kCount); ++slot) {
      const auto s = static_cast<plan::Slot>(slot);
      const auto& place = view.plan.buffers.places[static_cast<size_t>(slot)];
      if (s == plan::Slot::kFinal || s == plan::Slot::kLogits || place.bytes == 0 ||
          view.Floats(s) == nullptr)
        continue;
      std::memset(const_cast<float*>(view.Floats(s)), 0xff, place.bytes);
    }
  };
}

// A few hundred random operations on up to four sessions. Every row of logits that a session gave for the tokens it now
// holds must be the one a fresh session gives that takes them all at once.
void RandomOperations(const Model& model, int operations, int64_t context, uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 rng(seed);
  const auto pick = [&](uint64_t n) { return static_cast<int64_t>(rng() % n); };
  const auto vocab = static_cast<size_t>(model.vocab_size());
  struct Player {
    Session session;
    std::vector<int32_t> tokens;
    std::vector<float> logits;  // [tokens][vocab]
    std::vector<std::pair<CheckpointId, int64_t>> checkpoints;
    void Cut(int64_t to, size_t width) {
      tokens.resize(static_cast<size_t>(to));
      logits.resize(static_cast<size_t>(to) * width);
      std::erase_if(checkpoints, [&](const auto& c) { return c.second > to; });
    }
  };
  std::vector<Player> players;
  players.push_back({NewSession(model, context), {}, {}, {}});
  const auto check = [&](Player& p) {
    ASSERT_EQ(p.session.position(), static_cast<int64_t>(p.tokens.size()));
    ASSERT_TRUE(
        std::equal(p.tokens.begin(), p.tokens.end(), p.session.tokens().begin(), p.session.tokens().end()));
    auto cold = NewSession(model, context);
    std::vector<float> want(p.logits.size(), NAN);
    ASSERT_TRUE(cold.Append(p.tokens, LogitRows::kAll, want).ok());
    for (size_t row = 0; row < p.tokens.size(); ++row) {
      ASSERT_EQ(0, std::memcmp(&want[row * vocab], &p.logits[row * vocab], vocab * sizeof(float)))
          << "row " << row;
    }
  };
  for (int n = 0; n < operations; ++n) {
    Player& p = players[static_cast<size_t>(pick(players.size()))];
    SCOPED_TRACE("operation " + std::to_string(n) + " at position " + std::to_string(p.session.position()));
    switch (pick(10)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        constexpr int64_t kSizes[] = {1, 1, 2, 3, 5, 15, 16, 17, 37, 70};
        const int64_t size = std::min(kSizes[pick(10)], p.session.capacity() - p.session.position());
        std::vector<int32_t> ids(static_cast<size_t>(size));
        for (auto& id : ids) id = static_cast<int32_t>(pick(static_cast<uint64_t>(model.usable_vocab())));
        if (pick(2) == 0) Poison(p.session);
        p.session.impl().observer = {};
        if (pick(4) == 0) PoisonBuffers(p.session);
        const size_t at = p.logits.size();
        p.logits.resize(at + ids.size() * vocab, NAN);
        ASSERT_TRUE(p.session.Append(ids, LogitRows::kAll, std::span(p.logits).subspan(at)).ok());
        p.tokens.insert(p.tokens.end(), ids.begin(), ids.end());
        break;
      }
      case 4: {
        if (p.checkpoints.size() >= 4) break;
        const auto id = p.session.Checkpoint();
        ASSERT_TRUE(id.ok()) << id.status().message();
        p.checkpoints.emplace_back(*id, p.session.position());
        break;
      }
      case 5: {
        if (p.checkpoints.empty()) break;
        const auto [id, position] = p.checkpoints[static_cast<size_t>(pick(p.checkpoints.size()))];
        ASSERT_TRUE(p.session.Rewind(id).ok());
        std::erase_if(p.checkpoints, [&, value = id.value](const auto& c) { return c.first.value > value; });
        p.Cut(position, vocab);
        break;
      }
      case 6:
      case 7: {
        const auto where = p.session.Rewindable();
        const int64_t position = where[static_cast<size_t>(pick(where.size()))];
        const auto status = p.session.RewindTo(position);
        ASSERT_TRUE(status.ok()) << status.message();
        p.Cut(position, vocab);
        break;
      }
      case 8: {
        auto fork = p.session.Fork();
        ASSERT_TRUE(fork.ok()) << fork.status().message();
        Player copy{std::move(*fork), p.tokens, p.logits, {}};
        if (players.size() < 4) {
          players.push_back(std::move(copy));
        } else {
          players[static_cast<size_t>(pick(4))] = std::move(copy);
        }
        break;
      }
      default: {
        if (pick(4) == 0) {
          p.session.Reset();
          p.Cut(0, vocab);
          p.checkpoints.clear();
        } else {
          check(p);
        }
      }
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  for (auto& p : players) check(p);
}

TEST(Session, RandomOperationsAgreeWithColdRuns) {
  const Model model = Micro();
  RandomOperations(model, 400, 300, std::random_device{}());
  RandomOperations(model, 100, 300, 20261129);
}

// A backend whose passes report a failing device when told to; the rest is the CPU's.
class FailingBackend final : public plan::Backend {
 public:
  FailingBackend(std::unique_ptr<plan::Backend> real, int passes) : real_(std::move(real)), passes_(passes) {}
  std::string_view name() const override { return real_->name(); }
  std::span<const plan::Lever> levers() const override { return real_->levers(); }
  uint64_t StateBytes(int64_t capacity, bool mtp) const override { return real_->StateBytes(capacity, mtp); }
  Result<std::unique_ptr<plan::SequenceState>> NewState(int64_t capacity, bool mtp) override {
    return real_->NewState(capacity, mtp);
  }
  MemoryRoom Room() const override { return room; }
  Status Run(const plan::Plan& plan, const plan::Batch& batch, const plan::Observer& observer) override {
    if (passes_-- == 0) return {Code::kDevice, "waiting for GPU 7: gone"};
    return real_->Run(plan, batch, observer);
  }
  Status RunTimed(const plan::Plan& plan, const plan::Batch& batch, std::span<plan::StepTime> times,
                  double* whole) override {
    return real_->RunTimed(plan, batch, times, whole);
  }
  Result<plan::Limits> MeasureLimits(const Progress& progress) override {
    return real_->MeasureLimits(progress);
  }
  Result<std::unique_ptr<plan::Execution>> Begin(const plan::Plan& plan, const plan::Batch& batch) override {
    return real_->Begin(plan, batch);
  }
  MemoryRoom room{uint64_t{1} << 40, "the memory of GPU 7"};

 private:
  std::unique_ptr<plan::Backend> real_;
  int passes_;
};

// After a device failed in a pass the session refuses everything and says why; others, over the same model, go on.
TEST(Session, EndsWhenItsDeviceFails) {
  const Model model = Micro();
  const auto ids = Ids(40);
  const auto want = ColdLogits(model, ids);
  engine::ModelImpl& impl = *model.impl();
  impl.backend = std::make_unique<FailingBackend>(std::move(impl.backend), 2);
  auto session = NewSession(model);
  auto other = NewSession(model);
  ASSERT_TRUE(session.Append(std::span(ids).first(20), LogitRows::kNone, {}).ok());
  const auto mark = session.Checkpoint();
  ASSERT_TRUE(mark.ok());
  ASSERT_TRUE(other.Append(std::span(ids).first(10), LogitRows::kNone, {}).ok());
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  ExpectRefused(session.Append(std::span(ids).first(1), LogitRows::kLast, logits), Code::kDevice,
                "waiting for GPU 7: gone");

  const char* const kEnded = "the session ended when the device failed: waiting for GPU 7: gone";
  int32_t best = 0;
  ExpectRefused(session.Append(std::span(ids).first(1), LogitRows::kLast, logits), Code::kDevice, kEnded);
  ExpectRefused(session.AppendBest(std::span(ids).first(1), &best), Code::kDevice, kEnded);
  ExpectRefused(session.Checkpoint().status(), Code::kDevice, kEnded);
  ExpectRefused(session.Rewind(*mark), Code::kDevice, kEnded);
  ExpectRefused(session.RewindTo(20), Code::kDevice, kEnded);
  ExpectRefused(session.Fork().status(), Code::kDevice, kEnded);
  const std::string path = testing::TempDir() + "/ended.glint";
  ExpectRefused(session.Save(path), Code::kDevice, kEnded);
  EXPECT_FALSE(std::filesystem::exists(path));
  session.Reset();
  ExpectRefused(session.Append(std::span(ids).first(1), LogitRows::kLast, logits), Code::kDevice, kEnded);

  std::vector<float> rest(30 * logits.size());
  ASSERT_TRUE(other.Append(std::span(ids).subspan(10), LogitRows::kAll, rest).ok());
  EXPECT_EQ(rest, std::vector<float>(want.end() - static_cast<std::ptrdiff_t>(rest.size()), want.end()));
}

// What counts is the memory that the state will lie in, which is not the machine's where a device has its own.
TEST(Session, NeedsRoomOnItsDevice) {
  const Model model = Micro();
  engine::ModelImpl& impl = *model.impl();
  auto backend = std::make_unique<FailingBackend>(std::move(impl.backend), -1);
  FailingBackend& device = *backend;
  impl.backend = std::move(backend);
  auto session = NewSession(model);
  device.room.bytes = 1000;
  ExpectRefused(Session::Create(model, {.context = 64}).status(), Code::kNoRoom,
                "the memory of GPU 7 leaves 1.00 kB");
  ExpectRefused(session.Fork().status(), Code::kNoRoom, "the memory of GPU 7 leaves 1.00 kB");
}

}  // namespace
}  // namespace glint
