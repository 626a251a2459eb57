#include "engine/synthetic_depth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/session_impl.h"
#include "tests/engine/reference.h"

namespace glint::engine {
namespace {

using plan::StatePart;

std::vector<int32_t> Ids(const Model& model, int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(i * 7 % static_cast<size_t>(model.vocab_size()));
  return ids;
}

std::vector<float> Rows(Session& session, StatePart part, int64_t first, int64_t rows) {
  part.first = first, part.rows = rows;
  std::vector<float> values(static_cast<size_t>(rows * part.width));
  EXPECT_TRUE(session.impl().state->Read(part, values.data()).ok());
  return values;
}

// Caches repeat what was read, everything else is as it was where reading ended, and the session goes on from there.
TEST(SyntheticDepth, RepeatsWhatWasRead) {
  const Model model = test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.threads = 1});
  const auto& hp = model.impl()->data.hparams;
  for (const int64_t depth : {300, 333, 335}) {
    SCOPED_TRACE(depth);
    const auto ids = Ids(model, depth + 8);
    auto session = Session::Create(model, {.context = depth + 8});
    ASSERT_TRUE(session.ok()) << session.status().message();
    const int64_t real = 64, from = real + (depth - real) % hp.block;
    ASSERT_TRUE(
        AppendSynthetically(*session, std::span(ids).first(static_cast<size_t>(depth)), real, {}).ok());
    EXPECT_EQ(session->position(), depth);
    auto read = Session::Create(model, {.context = depth + 8});
    ASSERT_TRUE(read.ok());
    ASSERT_TRUE(read->Append(std::span(ids).first(static_cast<size_t>(from)), LogitRows::kNone, {}).ok());
    for (const StatePart& part : session->impl().state->Parts(depth, 0)) {
      SCOPED_TRACE(testing::Message() << plan::Name(part.kind) << " of layer " << part.layer);
      const bool grows = part.kind == StatePart::Kind::kLatent || part.kind == StatePart::Kind::kPooledKey;
      const int64_t shift = grows || part.kind == StatePart::Kind::kKdaState ? 0 : depth - from;
      const int64_t period = part.kind == StatePart::Kind::kLatent ? real : real / hp.index_kpool;
      for (int64_t row = part.first; row < part.first + part.rows; ++row) {
        ASSERT_EQ(Rows(*session, part, row, 1), Rows(*read, part, grows ? row % period : row - shift, 1))
            << row;
      }
    }
    std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
    ASSERT_TRUE(session->Append(std::span(ids).last(8), LogitRows::kLast, logits).ok());
    EXPECT_EQ(session->position(), depth + 8);
    EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return x == x; }));
  }
}

// A state whose memory fails at the n-th call that changes it.
class FailingState final : public plan::SequenceState {
 public:
  FailingState(std::unique_ptr<plan::SequenceState> real, int at, Code code)
      : real_(std::move(real)), left_(at), code_(code) {}
  std::unique_ptr<plan::SequenceState> Take() { return std::move(real_); }
  bool failed() const { return left_ < 0; }

  int64_t position() const override { return real_->position(); }
  int64_t mtp_position() const override { return real_->mtp_position(); }
  int64_t capacity() const override { return real_->capacity(); }
  uint64_t bytes() const override { return real_->bytes(); }
  Result<std::unique_ptr<plan::StateMark>> Mark() const override { return real_->Mark(); }
  Status Return(const plan::StateMark& mark) override { return real_->Return(mark); }
  Status Truncate(int64_t position) override { return real_->Truncate(position); }
  Status TruncateMtp(int64_t position) override { return real_->TruncateMtp(position); }
  Result<std::unique_ptr<plan::SequenceState>> Clone() const override { return real_->Clone(); }
  void Clear() override { real_->Clear(); }
  std::vector<StatePart> Parts(int64_t position, int64_t mtp) const override {
    return real_->Parts(position, mtp);
  }
  Status Read(const StatePart& part, float* out) const override { return real_->Read(part, out); }
  Status Write(const StatePart& part, const float* in) override {
    return Fails() ? Status(code_, "the test took the memory") : real_->Write(part, in);
  }
  Status Place(int64_t position, int64_t mtp) override {
    return Fails() ? Status(code_, "the test took the memory") : real_->Place(position, mtp);
  }
  Status CopyFrom(const plan::SequenceState& other) override { return real_->CopyFrom(other); }

 private:
  bool Fails() { return left_ >= 0 && left_-- == 0; }
  std::unique_ptr<plan::SequenceState> real_;
  int left_;
  Code code_;
};

// All or nothing: whatever write fails, the last step included, the session goes on from where it stood with the bits it would have had.
TEST(SyntheticDepth, AnErrorLeavesTheSessionAsItWas) {
  const Model model = test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.threads = 1});
  const auto& hp = model.impl()->data.hparams;
  const int64_t start = 64, depth = start + 4 * hp.block;  // nothing is left to read
  const auto ids = Ids(model, depth);
  const auto more = std::span(ids).subspan(static_cast<size_t>(start));
  auto session = Session::Create(model, {.context = depth});
  ASSERT_TRUE(session.ok()) << session.status().message();
  ASSERT_TRUE(session->Append(std::span(ids).first(static_cast<size_t>(start)), LogitRows::kNone, {}).ok());
  const auto next = [&](const Session& s) {
    auto fork = s.Fork();
    EXPECT_TRUE(fork.ok()) << fork.status().message();
    std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
    EXPECT_TRUE(fork->Append(more.first(3), LogitRows::kLast, logits).ok());
    return logits;
  };
  const auto want = next(*session);
  engine::SessionImpl& impl = session->impl();
  int at = 0;
  for (bool failed = true; failed; ++at) {
    SCOPED_TRACE(testing::Message() << "call " << at);
    auto* failing = new FailingState(std::move(impl.state), at, Code::kNoRoom);
    impl.state.reset(failing);
    const Status status = AppendSynthetically(*session, more, 64, {});
    failed = failing->failed();
    auto real = failing->Take();
    impl.state = std::move(real);
    if (!failed) {
      EXPECT_TRUE(status.ok()) << status.message();
      break;
    }
    EXPECT_EQ(status.code(), Code::kNoRoom) << status.message();
    ASSERT_EQ(session->position(), start);
    ASSERT_EQ(session->tokens().size(), static_cast<size_t>(start));
    ASSERT_TRUE(next(*session) == want);
  }
  EXPECT_GT(at, 10);  // several writes, and Place
  EXPECT_EQ(session->position(), depth);
  EXPECT_EQ(session->tokens().size(), static_cast<size_t>(depth));
}

// As after any other call in which the device goes.
TEST(SyntheticDepth, ADeviceThatFailsIsTheSessionsEnd) {
  const Model model = test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.threads = 1});
  const int64_t start = 64, depth = start + 4 * model.impl()->data.hparams.block;
  const auto ids = Ids(model, depth);
  for (const int at : {0, 5}) {
    auto session = Session::Create(model, {.context = depth});
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE(session->Append(std::span(ids).first(static_cast<size_t>(start)), LogitRows::kNone, {}).ok());
    engine::SessionImpl& impl = session->impl();
    impl.state = std::make_unique<FailingState>(std::move(impl.state), at, Code::kDevice);
    const auto more = std::span(ids).subspan(static_cast<size_t>(start));
    EXPECT_EQ(AppendSynthetically(*session, more, 64, {}).code(), Code::kDevice);
    const Status after = session->Append(more.first(1), LogitRows::kNone, {});
    EXPECT_EQ(after.code(), Code::kDevice);
    EXPECT_NE(after.message().find("the session ended"), std::string::npos) << after.message();
    EXPECT_EQ(AppendSynthetically(*session, more, 64, {}).code(), Code::kDevice);
  }
}

TEST(SyntheticDepth, AnInterruptLeavesTheSessionAsItWas) {
  const Model model = test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.threads = 1});
  const auto ids = Ids(model, 300);
  auto session = Session::Create(model, {.context = 300});
  ASSERT_TRUE(session.ok());
  for (int last = 1;; last += last / 2 + 1) {
    int calls = 0;
    const Status status =
        AppendSynthetically(*session, ids, 64, [&](uint64_t, uint64_t) { return ++calls < last; });
    if (status.ok()) break;
    SCOPED_TRACE(last);
    EXPECT_EQ(status.message(), "interrupted");
    ASSERT_EQ(session->position(), 0);
    ASSERT_TRUE(session->tokens().empty());
    ASSERT_LT(last, 1000);
  }
  EXPECT_EQ(session->position(), 300);
}

// Before anything is read.
TEST(SyntheticDepth, RefusesWhatDoesNotFit) {
  const Model model = test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.threads = 1});
  auto ids = Ids(model, 301);
  auto session = Session::Create(model, {.context = 300});
  ASSERT_TRUE(session.ok());
  const Progress never = [](uint64_t, uint64_t) {
    ADD_FAILURE() << "it began";
    return true;
  };
  const Status full = AppendSynthetically(*session, ids, 64, never);
  EXPECT_EQ(full.code(), Code::kNoRoom) << full.message();
  ids.pop_back();
  ids.back() = static_cast<int32_t>(model.vocab_size());
  const Status unknown = AppendSynthetically(*session, ids, 64, never);
  EXPECT_EQ(unknown.code(), Code::kBadInput) << unknown.message();
  EXPECT_EQ(session->position(), 0);
}

TEST(SyntheticDepth, ReadsShortContextsAndRefusesTooLittle) {
  const Model model = test::MustOpen(GLINT_SOURCE_DIR "/models/stories/stories.gguf", {.threads = 1});
  const auto ids = Ids(model, 100);
  auto session = Session::Create(model, {.context = 100});
  ASSERT_TRUE(session.ok());
  const Status refused = AppendSynthetically(*session, ids, 8, {});
  EXPECT_EQ(refused.code(), Code::kBadInput);
  EXPECT_NE(refused.message().find("not from 8"), std::string::npos) << refused.message();
  EXPECT_EQ(session->position(), 0);
  EXPECT_TRUE(AppendSynthetically(*session, std::span(ids).first(50), 64, {}).ok());
  EXPECT_EQ(session->position(), 50);
}

}  // namespace
}  // namespace glint::engine
