#include "engine/synthetic_depth.h"

#include <gtest/gtest.h>

#include <algorithm>
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
