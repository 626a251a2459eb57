// Passes over several sessions at once: each row of logits and each choice has the bits of a cold solo run of that session's tokens,
// whatever the company, and whatever was forked, rewound or refused in between. Buffers that hold nothing are NaN.
//
// GLINT_SEED=x replays one case.
#include "engine/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <random>

#include "base/hash.h"
#include "cpu/backend.h"
#include "engine/session_impl.h"
#include "plan/best.h"
#include "tests/engine/reference.h"
#include "tests/support/sanitizers.h"

namespace glint {
namespace {

using engine::AppendTogether;
using engine::BatchWork;
using engine::MostBatchRows;

// A backend that counts its passes, and whose shared passes fail if they are told to.
class Counting final : public plan::Backend {
 public:
  explicit Counting(std::unique_ptr<plan::Backend> real) : real_(std::move(real)) {}
  std::string_view name() const override { return real_->name(); }
  std::span<const plan::Lever> levers() const override { return real_->levers(); }
  uint64_t StateBytes(int64_t capacity, bool mtp) const override { return real_->StateBytes(capacity, mtp); }
  Result<std::unique_ptr<plan::SequenceState>> NewState(int64_t capacity, bool mtp) override {
    return real_->NewState(capacity, mtp);
  }
  Status Run(const plan::Plan& plan, const plan::Batch& batch, const plan::Observer& observer) override {
    ++passes;
    if (batch.segments.size() > 1) {
      ++shared;
      if (throws) throw std::bad_alloc();
      if (!fail_shared.ok()) return fail_shared;
    }
    Status status = real_->Run(plan, batch, observer);
    if (!status.ok()) ++failed;
    return status;
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
  int passes = 0, shared = 0, failed = 0;
  Status fail_shared;
  bool throws = false;

 private:
  std::unique_ptr<plan::Backend> real_;
};

// Puts itself before the model's backend.
Counting& CountPasses(const Model& model) {
  auto& impl = *model.impl();
  auto counting = std::make_unique<Counting>(std::move(impl.backend));
  Counting& made = *counting;
  impl.backend = std::move(counting);
  return made;
}

constexpr size_t kMostTokens = 90;

// Poisoned; variant 0 is canonical and alone, the others the default plan with as many threads.
const Model& Subject(int which, int variant) {
  static std::map<std::pair<int, int>, Model> models;
  if (const auto found = models.find({which, variant}); found != models.end()) return found->second;
  ModelOptions options;
  options.device = "cpu";
  options.threads = std::max(1, variant);
  if (variant == 0) options.without = {"all"};
  auto model = which == 0 ? Model::Open(test::HfDirectory("micro"), options)
                          : Model::Synthetic(
                                "tiny,layers=4,kda_heads=2,vocab=300,experts=4,topk=16,recipe=q4_k", options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  auto& impl = *model->impl();
  impl.backend = cpu::MakeBackend(impl.data.hparams, impl.data.weights, options.threads,
                                  {.poison = true, .share_all = true});
  CountPasses(*model);
  return models.emplace(std::pair(which, variant), std::move(*model)).first->second;
}

struct Sequence {
  std::optional<Session> session;
  std::vector<std::optional<uint64_t>> logits;  // [position] hashes, where they were asked for
  std::vector<std::optional<int32_t>> best;     // [position]
  std::vector<CheckpointId> checkpoints;
  void Resize() {
    logits.resize(static_cast<size_t>(session->position()));
    best.resize(static_cast<size_t>(session->position()));
  }
};

uint64_t HashOf(std::span<const float> row) { return Hash64(std::as_bytes(row)); }

class Case {
 public:
  explicit Case(uint64_t seed)
      : rng_(seed),
        which_(rng_() % 3 == 0 ? 1 : 0),
        model_(Subject(which_, static_cast<int>(1 + rng_() % 3))),
        vocab_(static_cast<size_t>(model_.vocab_size())) {}

  void Run() {
    const size_t sequences = 2 + rng_() % 5, steps = 8 + rng_() % 10;
    for (size_t i = 0; i < sequences; ++i) {
      Sequence s;
      auto session = Session::Create(model_, {.context = static_cast<int64_t>(kMostTokens + rng_() % 50)});
      ASSERT_TRUE(session.ok()) << session.status().message();
      s.session.emplace(std::move(*session));
      all_.push_back(std::move(s));
    }
    for (size_t i = 0; i < steps; ++i) {
      Change(all_[rng_() % all_.size()]);
      Together();
      if (testing::Test::HasFatalFailure()) return;
    }
    for (auto& s : all_) Compare(s);
    EXPECT_EQ(static_cast<Counting&>(*model_.impl()->backend).failed, 0) << "a shared pass was repeated";
  }

 private:
  void Change(Sequence& s) {
    const uint64_t dice = rng_() % 10;
    if (dice < 2) {
      auto id = s.session->Checkpoint();
      ASSERT_TRUE(id.ok());
      s.checkpoints.push_back(*id);
    } else if (dice < 4 && !s.checkpoints.empty()) {
      const size_t to = rng_() % s.checkpoints.size();
      ASSERT_TRUE(s.session->Rewind(s.checkpoints[to]).ok());
      s.checkpoints.resize(to + 1);
      s.Resize();
    } else if (dice < 6) {
      const auto where = s.session->Rewindable();
      ASSERT_TRUE(s.session->RewindTo(where[rng_() % where.size()]).ok());
      s.checkpoints.clear();
      s.Resize();
    } else if (dice < 7 && all_.size() < 8) {
      auto fork = s.session->Fork();
      ASSERT_TRUE(fork.ok());
      Sequence copy;
      copy.session.emplace(std::move(*fork));
      copy.logits = s.logits, copy.best = s.best;
      all_.push_back(std::move(copy));  // `s` is not used any more
    }
  }

  struct Asked {
    Sequence* of;
    bool bad;
    std::vector<int32_t> ids;
    std::vector<float> own;  // logits that lie apart
  };

  // A pass over some of them, in any order; among them works that must be refused.
  void Together() {
    std::vector<size_t> order(all_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), rng_);
    order.resize(1 + rng_() % order.size());
    const bool apart = rng_() % 2 == 0, mixed = rng_() % 2 == 0;
    std::vector<Asked> asked;
    std::vector<BatchWork> works;
    std::vector<std::vector<int32_t>> best(order.size());
    std::vector<float> logits(order.size() * kMostTokens * vocab_, NAN);
    asked.reserve(order.size());
    size_t used = 0;
    for (const size_t i : order) {
      Sequence& s = all_[i];
      const size_t room = kMostTokens - static_cast<size_t>(s.session->position());
      if (room == 0) continue;
      const size_t n = std::min<size_t>(room, rng_() % 3 == 0 ? 1 + rng_() % 40 : 1 + rng_() % 3);
      Asked& a = asked.emplace_back(Asked{&s, rng_() % 8 == 0, std::vector<int32_t>(n), {}});
      for (auto& id : a.ids) id = static_cast<int32_t>(rng_() % static_cast<uint64_t>(model_.usable_vocab()));
      if (a.bad) a.ids[rng_() % n] = rng_() % 2 == 0 ? -1 : static_cast<int32_t>(vocab_);
      BatchWork w{.session = &*s.session, .tokens = a.ids, .which = static_cast<LogitRows>(rng_() % 3)};
      const size_t rows = w.which == LogitRows::kAll ? n : w.which == LogitRows::kLast ? 1 : 0;
      if (mixed && rows > 0 && rng_() % 2 == 0) {
        best[works.size()].assign(rows, -7);
        w.best = best[works.size()];
      } else if (apart) {
        a.own.assign(rows * vocab_, NAN);
        w.logits = a.own;
      } else {
        w.logits = std::span(logits).subspan(used, rows * vocab_);
        used += rows * vocab_;
      }
      works.push_back(w);
    }
    AppendTogether(model_, works);
    for (size_t i = 0; i < works.size(); ++i) {
      const BatchWork& w = works[i];
      Sequence& s = *asked[i].of;
      if (asked[i].bad) {
        EXPECT_EQ(w.status.code(), Code::kBadInput);
        EXPECT_EQ(static_cast<size_t>(s.session->position()), s.logits.size());
        continue;
      }
      ASSERT_TRUE(w.status.ok()) << w.status.message();
      const size_t before = s.logits.size(), n = w.tokens.size();
      s.Resize();
      ASSERT_EQ(s.logits.size(), before + n);
      for (size_t r = 0; r < w.best.size(); ++r) s.best[before + n - w.best.size() + r] = w.best[r];
      for (size_t r = 0; r * vocab_ < w.logits.size(); ++r) {
        s.logits[before + n - w.logits.size() / vocab_ + r] = HashOf(w.logits.subspan(r * vocab_, vocab_));
      }
    }
  }

  void Compare(Sequence& s) {
    const std::vector<int32_t> ids(s.session->tokens().begin(), s.session->tokens().end());
    ASSERT_EQ(ids.size(), s.logits.size());
    if (ids.empty()) return;
    auto cold = Session::Create(Subject(which_, rng_() % 4 == 0 ? 0 : 1),
                                {.context = static_cast<int64_t>(ids.size())});
    ASSERT_TRUE(cold.ok());
    std::vector<float> logits(ids.size() * vocab_, NAN);
    ASSERT_TRUE(cold->Append(ids, LogitRows::kAll, logits).ok());
    for (size_t p = 0; p < ids.size(); ++p) {
      const auto row = std::span(logits).subspan(p * vocab_, vocab_);
      const int32_t best = plan::BestId(row.first(static_cast<size_t>(model_.usable_vocab())));
      ASSERT_EQ(s.logits[p].value_or(HashOf(row)), HashOf(row)) << "logits of position " << p;
      ASSERT_EQ(s.best[p].value_or(best), best) << "choice of position " << p;
    }
  }

  std::mt19937_64 rng_;
  int which_;
  const Model& model_;
  size_t vocab_;
  std::vector<Sequence> all_;
};

TEST(Batch, HasTheBitsOfSoloRuns) {
  const std::string one = test::FromEnvironment("GLINT_SEED");
  const uint64_t first = one.empty() ? uint64_t{std::random_device{}()} << 20 : std::stoull(one);
  const int cases = !one.empty() ? 1 : test::kThreadSanitizer ? 8 : test::kAnySanitizer ? 16 : 60;
  std::printf("%d cases, seeds from %llu\n", cases, static_cast<unsigned long long>(first));
  for (int i = 0; i < cases; ++i) {
    SCOPED_TRACE("GLINT_SEED=" + std::to_string(first + static_cast<uint64_t>(i)) + " replays it");
    Case random(first + static_cast<uint64_t>(i));
    random.Run();
    if (HasFatalFailure()) return;
  }
}

std::vector<int32_t> Ids(size_t n, int32_t first = 0) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>((i * 37 + static_cast<size_t>(first)) % 256));
  return ids;
}

Session NewSession(const Model& model, int64_t context, bool check = false) {
  auto session = Session::Create(model, {.context = context, .check = check});
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(*session);
}

// More rows than a pass takes: several passes; a work longer than a pass is its caller's to cut.
TEST(Batch, PacksPassesAndRefusesWhatIsLonger) {
  const Model model = test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 2});
  const Counting& counted = CountPasses(model);
  const auto most = static_cast<size_t>(MostBatchRows(model)),
             vocab = static_cast<size_t>(model.vocab_size());
  auto a = NewSession(model, 2000), b = NewSession(model, 2000), c = NewSession(model, 2000);
  const auto longest = Ids(most), longer = Ids(most + 1), some = Ids(7, 5);
  std::vector<float> rows(2 * vocab, NAN), solo(vocab, NAN);
  std::vector<BatchWork> works{
      {.session = &a, .tokens = longest, .which = LogitRows::kLast, .logits = std::span(rows).first(vocab)},
      {.session = &b, .tokens = longer},
      {.session = &c, .tokens = some, .which = LogitRows::kLast, .logits = std::span(rows).subspan(vocab)},
      {.session = &c, .tokens = some},
      {.session = &b},
      {.tokens = some}};
  AppendTogether(model, works);
  EXPECT_TRUE(works[0].status.ok()) << works[0].status.message();
  EXPECT_NE(works[1].status.message().find("a shared pass takes"), std::string::npos);
  EXPECT_TRUE(works[2].status.ok());
  for (size_t i : {1, 3, 4, 5}) EXPECT_EQ(works[i].status.code(), Code::kBadInput) << i;
  EXPECT_EQ(b.position(), 0);
  EXPECT_EQ(c.position(), 7);
  EXPECT_EQ(counted.passes, 2) << "one is full";
  works = {{.session = &a, .tokens = some}, {.session = &b, .tokens = some}, {.session = &c, .tokens = some}};
  AppendTogether(model, works);
  EXPECT_EQ(counted.passes, 3);
  EXPECT_EQ(counted.shared, 1);
  auto alone = NewSession(model, 2000);
  ASSERT_TRUE(alone.Append(longest, LogitRows::kLast, solo).ok());
  EXPECT_EQ(HashOf(solo), HashOf(std::span(rows).first(vocab)));
  alone.Reset();
  ASSERT_TRUE(alone.Append(some, LogitRows::kLast, solo).ok());
  EXPECT_EQ(HashOf(solo), HashOf(std::span(rows).subspan(vocab)));
}

TEST(Batch, WrongWorksDoNotTouchTheOthers) {
  const Model model = test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 1});
  const Model other = test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 1});
  const auto vocab = static_cast<size_t>(model.vocab_size());
  auto good = NewSession(model, 40), full = NewSession(model, 4), stranger = NewSession(other, 40),
       short_memory = NewSession(model, 40), both = NewSession(model, 40),
       checked = NewSession(model, 40, true);
  const auto ids = Ids(5);
  std::vector<float> row(vocab, NAN), of_checked(vocab, NAN), small(3), another(vocab);
  std::vector<int32_t> best(1, -7), two(2, -7);
  std::vector<BatchWork> works{
      {.session = &full, .tokens = ids},
      {.session = &good, .tokens = ids, .which = LogitRows::kLast, .logits = row},
      {.session = &stranger, .tokens = ids},
      {.session = &short_memory, .tokens = ids, .which = LogitRows::kLast, .logits = small},
      {.session = &both, .tokens = ids, .which = LogitRows::kLast, .logits = another, .best = best},
      {.session = &both, .tokens = ids, .which = LogitRows::kLast, .best = two},
      {.session = &checked, .tokens = ids, .which = LogitRows::kLast, .logits = of_checked}};
  AppendTogether(model, works);
  EXPECT_EQ(works[0].status.code(), Code::kNoRoom);
  EXPECT_TRUE(works[1].status.ok()) << works[1].status.message();
  for (size_t i : {2, 3, 4, 5}) EXPECT_EQ(works[i].status.code(), Code::kBadInput) << i;
  EXPECT_TRUE(works[6].status.ok()) << works[6].status.message();
  EXPECT_EQ(HashOf(row), HashOf(of_checked));
  for (const Session* s : {&full, &stranger, &short_memory, &both}) EXPECT_EQ(s->position(), 0);
}

// A pass that fails as a whole is tried again one by one.
TEST(Batch, APassThatFailsAsAWhole) {
  for (const Code code : {Code::kNoRoom, Code::kInternal, Code::kDevice, Code::kOk}) {
    SCOPED_TRACE(static_cast<int>(code));
    const Model model = test::MustOpen(test::HfDirectory("micro"), {.device = "cpu", .threads = 1});
    Counting& backend = CountPasses(model);
    backend.throws = code == Code::kOk;
    backend.fail_shared = {code, "on purpose"};
    auto a = NewSession(model, 40), b = NewSession(model, 40);
    const auto inside = Ids(5), beyond = Ids(20);  // b leaves its first block
    std::vector<BatchWork> works{{.session = &a, .tokens = inside}, {.session = &b, .tokens = beyond}};
    AppendTogether(model, works);
    EXPECT_EQ(backend.shared, 1);
    if (code == Code::kDevice) {
      for (const auto& w : works) EXPECT_EQ(w.status.code(), Code::kDevice);
      EXPECT_EQ(a.Append(inside, LogitRows::kNone, {}).code(), Code::kDevice);
      continue;
    }
    EXPECT_TRUE(works[0].status.ok()) << works[0].status.message();
    EXPECT_EQ(a.position(), 5);
    if (code == Code::kOk) {  // memory ran out inside: what lay behind the block may be overwritten
      EXPECT_EQ(works[1].status.code(), Code::kNoRoom);
      b.Reset();
      EXPECT_TRUE(b.Append(beyond, LogitRows::kNone, {}).ok());
    } else {
      EXPECT_TRUE(works[1].status.ok()) << works[1].status.message();
    }
    EXPECT_EQ(b.position(), 20);
  }
}

}  // namespace
}  // namespace glint
