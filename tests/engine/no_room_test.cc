// Memory that the system refuses: every call of the library's interface says so with kNoRoom, and a session goes on with the bits it would have
// had, or says that it can't.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "glint/sampler.h"
#include "glint/session.h"
#include "tests/engine/reference.h"

namespace {

// Allocations that still succeed, on any thread; below zero: no limit.
std::atomic<int64_t> left{-1};

void* Allocate(size_t bytes, size_t alignment) {
  if (left.load(std::memory_order_relaxed) >= 0 && left.fetch_sub(1, std::memory_order_relaxed) <= 0) {
    left.store(0, std::memory_order_relaxed);  // and all after it, until the test lifts the limit
    throw std::bad_alloc();
  }
  const size_t unit = std::max(alignment, sizeof(void*));
  void* const at = std::aligned_alloc(unit, (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept { std::free(at); }

namespace glint {
namespace {

// Runs fn with 0, 1, 2 ... allocations, in longer and longer steps, until it succeeds. Every failure must be kNoRoom. `after` is called without
// the limit after each run, with what came of it.
template <class Fn, class After>
void WithEveryLimit(const char* what, Fn&& fn, After&& after) {
  int failures = 0;
  for (int64_t limit = 0;; limit += 1 + limit / 12) {
    SCOPED_TRACE(testing::Message() << what << " with " << limit << " allocations");
    left = limit;
    const Code code = fn();  // not the Status: a copy of it takes memory
    left = -1;
    after(code == Code::kOk);
    if (code == Code::kOk) break;
    ++failures;
    ASSERT_EQ(code, Code::kNoRoom);
  }
  EXPECT_GT(failures, 0) << what;
}
template <class Fn>
void WithEveryLimit(const char* what, Fn&& fn) {
  WithEveryLimit(what, fn, [](bool) {});
}

std::vector<int32_t> Ids(int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(i * 37 % 256);
  return ids;
}

TEST(NoRoom, OpeningAModel) {
  const std::string path = test::ModelPath("micro", "gguf");
  const ModelOptions options{.threads = 2};
  const std::string spec = "tiny";
  WithEveryLimit("Open", [&] { return Model::Open(path, options).status().code(); });
  WithEveryLimit("Synthetic", [&] { return Model::Synthetic(spec, options).status().code(); });
}

TEST(NoRoom, SamplingAndText) {
  const std::vector<float> logits(1000, 1.0f);
  const SamplerOptions biased{.logit_bias = {{3, 1.0f}}};
  WithEveryLimit("Create", [&] { return Sampler::Create(biased, 1000).status().code(); });
  auto sampler = Sampler::Create({.top_p = 0.9f, .repetition_penalty = 1.1f, .seed = 5}, 1000);
  auto same = Sampler::Create({.top_p = 0.9f, .repetition_penalty = 1.1f, .seed = 5}, 1000);
  ASSERT_TRUE(sampler.ok() && same.ok());
  int32_t got = -1;
  WithEveryLimit("Sample", [&] {
    const auto id = sampler->Sample(logits);
    if (id.ok()) got = *id;
    return id.status().code();
  });
  EXPECT_EQ(got, *same->Sample(logits));  // no draw was used up
}

// A pass on several threads that fails anywhere: a checkpoint brings the sequence back, and it goes on with the bits of one that met no limit.
class PassesOfASession : public testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Rows, PassesOfASession,
                         testing::Values(std::pair(3, 1), std::pair(3, 9), std::pair(5, 11), std::pair(7, 40),
                                         std::pair(15, 1), std::pair(20, 530)));

TEST_P(PassesOfASession, CheckpointsBringItBack) {
  const auto [before, rows] = GetParam();
  const Model model = test::MustOpen(test::ModelPath("micro", "hf"), {.threads = 3});
  const auto ids = Ids(before + rows + 1);
  const auto all = std::span<const int32_t>(ids);
  const auto first = all.first(static_cast<size_t>(before)),
             then = all.subspan(static_cast<size_t>(before), static_cast<size_t>(rows)), last = all.last(1);
  const auto vocab = static_cast<size_t>(model.vocab_size());
  std::vector<float> want(vocab), want_next(vocab), got(vocab);
  const SessionOptions options{.context = 600};
  auto plain = Session::Create(model, options);
  ASSERT_TRUE(plain.ok() && plain->Append(first, LogitRows::kNone, {}).ok());
  ASSERT_TRUE(plain->Append(then, LogitRows::kLast, want).ok());
  ASSERT_TRUE(plain->Append(last, LogitRows::kLast, want_next).ok());

  auto session = Session::Create(model, options);
  ASSERT_TRUE(session.ok() && session->Append(first, LogitRows::kNone, {}).ok());
  ASSERT_TRUE(session->Checkpoint().ok());
  WithEveryLimit(
      "Append", [&] { return session->Append(then, LogitRows::kLast, got).code(); },
      [&](bool ok) {
        if (ok) return;
        EXPECT_EQ(session->position(), before);
        EXPECT_EQ(session->Rewindable().back(), before);
        const Status back = session->RewindTo(before);
        EXPECT_TRUE(back.ok()) << back.message();
      });
  EXPECT_EQ(want, got);
  ASSERT_TRUE(session->Append(last, LogitRows::kLast, got).ok());
  EXPECT_EQ(want_next, got);
}

// As above without a checkpoint: what is lost says so until Reset, what is not goes on.
TEST_P(PassesOfASession, AreLostOnlyAtTheEndOfABlock) {
  const auto [before, rows] = GetParam();
  const Model model = test::MustOpen(test::ModelPath("micro", "hf"), {.threads = 3});
  const auto ids = Ids(before + rows);
  const auto first = std::span<const int32_t>(ids).first(static_cast<size_t>(before)),
             then = std::span<const int32_t>(ids).subspan(static_cast<size_t>(before));
  const auto vocab = static_cast<size_t>(model.vocab_size());
  std::vector<float> want(vocab), got(vocab);
  auto plain = Session::Create(model, {.context = 600});
  ASSERT_TRUE(plain.ok() && plain->Append(ids, LogitRows::kLast, want).ok());
  auto session = Session::Create(model, {.context = 600});
  ASSERT_TRUE(session.ok() && session->Append(first, LogitRows::kNone, {}).ok());
  const bool may_be_lost = before / 16 != (before + rows) / 16 && rows < 500;
  int lost = 0;
  WithEveryLimit(
      "Append", [&] { return session->Append(then, LogitRows::kLast, got).code(); },
      [&](bool ok) {
        if (ok) return;
        EXPECT_EQ(session->position(), before);
        const auto fork = session->Fork();
        if (fork.ok()) return;
        ++lost;
        EXPECT_EQ(fork.status().code(), Code::kNoRoom);
        EXPECT_EQ(session->Append(then, LogitRows::kLast, got).code(), Code::kNoRoom);
        EXPECT_EQ(session->Checkpoint().status().code(), Code::kNoRoom);
        EXPECT_EQ(session->Save(test::ScratchFolder() + "/lost").code(), Code::kNoRoom);
        EXPECT_FALSE(session->RewindTo(before).ok());
        EXPECT_TRUE(session->Rewindable().empty());
        session->Reset();
        EXPECT_TRUE(session->Append(first, LogitRows::kNone, {}).ok());
      });
  EXPECT_EQ(want, got);
  EXPECT_EQ(lost > 0, may_be_lost);
}

TEST(NoRoom, TheRestOfASession) {
  const Model model = test::MustOpen(test::ModelPath("micro", "hf"), {.threads = 2, .mtp = true});
  model.fingerprint();  // made once, when first asked for
  const auto ids = Ids(21);
  WithEveryLimit("Create",
                 [&] { return Session::Create(model, {.context = 64, .mtp = true}).status().code(); });
  auto session = Session::Create(model, {.context = 64, .mtp = true});
  ASSERT_TRUE(session.ok());
  const auto d = static_cast<size_t>(model.hidden_size());
  std::vector<float> hidden(20 * d), out(20 * d);
  ASSERT_TRUE(session->AppendWithHidden(std::span(ids).first(20), LogitRows::kNone, {}, hidden).ok());
  WithEveryLimit("AppendMtp", [&] {
    if (Status s = session->AppendMtp(std::span(ids).subspan(1, 5), std::span(hidden).first(5 * d), {}, {});
        !s.ok())
      return s.code();
    return session->TruncateMtp(0).code();
  });
  WithEveryLimit("Checkpoint", [&] { return session->Checkpoint().status().code(); });
  WithEveryLimit("Fork", [&] { return session->Fork().status().code(); });
  const std::string path = test::ScratchFolder() + "/no_room.session";
  WithEveryLimit("Save", [&] { return session->Save(path).code(); });
  WithEveryLimit("Load",
                 [&] { return Session::Load(model, path, {.context = 0, .mtp = true}).status().code(); });
  EXPECT_EQ(session->position(), 20);
}

}  // namespace
}  // namespace glint
