// The same weights in every dialect of GGUF, whole and split, give the same bits as the checkpoint they were made from.
#include <cmath>

#include "glint/session.h"
#include "tests/engine/reference.h"
#include "tests/model/dialects.h"

namespace glint {
namespace {

std::vector<float> Logits(const std::string& path, std::span<const int32_t> ids) {
  const Model model = test::MustOpen(path, {.threads = 2});
  auto session = Session::Create(model, {.context = static_cast<int64_t>(ids.size())});
  EXPECT_TRUE(session.ok()) << session.status().message();
  std::vector<float> logits(ids.size() * static_cast<size_t>(model.vocab_size()), NAN);
  EXPECT_TRUE(session->Append(ids, LogitRows::kAll, logits).ok());
  return logits;
}

class Dialects : public testing::TestWithParam<const char*> {};

TEST_P(Dialects, GiveTheSameLogits) {
  const std::string directory = test::HfDirectory(GetParam());
  const auto ids = test::Reference(GetParam()).Ints("p67.ids");
  const auto want = Logits(directory, ids);
  const auto data = model::Load(directory);
  ASSERT_TRUE(data.ok()) << data.status().message();
  for (const auto dialect : model::kAllDialects) {
    for (const int shards : {1, 3}) {
      SCOPED_TRACE(std::string("dialect ") + model::Name(dialect) + " in " + std::to_string(shards));
      const std::string stem = test::ScratchFolder() + "/" + GetParam() + "-" + model::Name(dialect) + "-" +
                               std::to_string(shards);
      const auto paths = model::WriteDialect(*data, stem, {.dialect = dialect, .shards = shards});
      ASSERT_TRUE(paths.ok()) << paths.status().message();
      // Any shard may be named.
      for (const auto& path : {paths->front(), paths->back()}) {
        const auto got = Logits(path, ids);
        ASSERT_EQ(got.size(), want.size());
        EXPECT_EQ(0, std::memcmp(got.data(), want.data(), want.size() * sizeof(float))) << path;
      }
      for (const auto& path : *paths) std::filesystem::remove(path);
    }
  }
}

TEST_P(Dialects, RefuseAFileWithoutPoolSize) {
  const auto data = model::Load(test::HfDirectory(GetParam()));
  ASSERT_TRUE(data.ok()) << data.status().message();
  for (const auto dialect : model::kAllDialects) {
    const std::string stem = test::ScratchFolder() + "/" + GetParam() + "-no-pool-" + model::Name(dialect);
    const auto paths = model::WriteDialect(
        *data, stem,
        {.dialect = dialect,
         .drop = {"attention.indexer.kpool", "attention.indexer.block_size", "attention.indexer.pool_size"}});
    ASSERT_TRUE(paths.ok()) << paths.status().message();
    const auto status = Model::Open(paths->front()).status();
    EXPECT_EQ(status.code(), Code::kBadFile) << status.message();
    EXPECT_NE(status.message().find("attention.indexer."), std::string::npos) << status.message();
    std::filesystem::remove(paths->front());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Dialects, testing::Values("micro", "tile"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace glint
