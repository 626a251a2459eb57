// Every canonical stage, on what really flows into it, against the specification in double precision.
#include <gtest/gtest.h>

#include <random>

#include "tests/cpu/passes.h"
#include "tests/cpu/referee.h"

namespace glint::test {
namespace {

struct Shape {
  bool quantised;
  int64_t pool;
};

class Stages : public testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(Shapes, Stages,
                         testing::Values(Shape{false, 3}, Shape{true, 3}, Shape{false, 8}, Shape{false, 1},
                                         Shape{false, 20}),
                         [](const auto& p) {
                           return std::string(p.param.quantised ? "Q8" : "F32") + "Pool" +
                                  std::to_string(p.param.pool);
                         });

TEST_P(Stages, AgreeWithTheSpecificationInDouble) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  SmallModel model;
  MakeSmall(model, seed, GetParam().quantised, GetParam().pool);
  Conditions conditions = Canonical();
  conditions.keep_all = true;
  Runner runner(model, conditions);
  Referee referee(model);
  auto state = runner.State();
  const auto tokens = model.Tokens(78);
  const plan::Observer observe = [&](const plan::StepView& v) { referee(v); };
  // Pieces that begin and end before, at and behind the boundaries of blocks and pools.
  std::vector<float> hidden;
  for (size_t at = 0; const size_t rows : {7, 1, 8, 15, 1, 33, 13}) {
    const auto piece = std::span(tokens).subspan(at, rows);
    referee.Begin(state->position(), piece);
    runner.Trunk(*state, piece, &hidden, observe);
    referee.Begin(state->mtp_position(), piece, hidden.data());
    runner.Mtp(*state, piece, hidden.data(), nullptr, observe);
    ASSERT_FALSE(HasFatalFailure()) << "in the piece of " << rows << " rows from " << at;
    at += rows;
  }
  for (int s = 0; s < static_cast<int>(plan::Stage::kCount); ++s) {
    EXPECT_TRUE(referee.steps().contains(static_cast<plan::Stage>(s)))
        << plan::Name(static_cast<plan::Stage>(s));
  }
}

}  // namespace
}  // namespace glint::test
