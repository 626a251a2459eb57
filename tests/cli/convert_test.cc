#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Convert, WhatItWritesRunsAlike) {
  const TempDir folder;
  const auto o = RunGlint({"convert", testing::MicroModel(), folder.Path("micro.gguf"), "--type", "f32"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "");
  EXPECT_TRUE(Has(o.err, "tensors")) << o.err;
  EXPECT_EQ(folder.List().size(), 1u) << "something was left behind";
  for (const char* from : {"a", "b"}) {
    const std::string model = *from == 'a' ? testing::MicroModel() : folder.Path("micro.gguf");
    ASSERT_EQ(
        RunGlint({"logits", "-m", model, "--ids", "1,2,3,4,5,6,7,8,9", "--out", folder.Path(from)}).code, 0);
  }
  EXPECT_EQ(folder.Read("a"), folder.Read("b"));
  EXPECT_EQ(RunGlint({"inspect", folder.Path("micro.gguf")}).code, 0);
}

TEST(Convert, ReplacesOnlyWhenForced) {
  const TempDir folder;
  folder.Write("out.gguf", "precious");
  const auto refused = RunGlint({"convert", testing::MicroModel(), folder.Path("out.gguf")});
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(Has(refused.err, "out.gguf exists; --force replaces it")) << refused.err;
  EXPECT_EQ(folder.Read("out.gguf"), "precious");
  EXPECT_EQ(RunGlint({"convert", testing::MicroModel(), folder.Path("out.gguf"), "--force"}).code, 0);
  EXPECT_EQ(folder.Read("out.gguf").substr(0, 4), "GGUF");
}

TEST(Convert, AnInputIsNeverTheOutput) {
  const TempDir folder;
  std::filesystem::copy(testing::MicroModel(), folder.path(), std::filesystem::copy_options::recursive);
  const std::string weights = folder.Read("model.safetensors");
  std::filesystem::create_symlink("model.safetensors", folder.Path("link.gguf"));
  std::filesystem::create_hard_link(folder.Path("model.safetensors"), folder.Path("hard.gguf"));
  for (const char* out : {"model.safetensors", "link.gguf", "hard.gguf", "config.json"}) {
    const auto o = RunGlint({"convert", folder.path(), folder.Path(out), "--force"});
    EXPECT_EQ(o.code, 1) << out;
  }
  EXPECT_EQ(folder.Read("model.safetensors"), weights);
}

// A checkpoint whose MTP block can not be used converts without it, and says so as running it does.
TEST(Convert, SaysWhatItLeavesOut) {
  const TempDir folder;
  std::filesystem::copy(testing::MicroModel(), folder.path());
  std::string weights = folder.Read("model.safetensors");
  const std::string name = "eh_proj.weight";
  const size_t at = weights.find(name);
  ASSERT_NE(at, std::string::npos);
  weights.replace(at, name.size(), "eh_porj.weight");
  folder.Write("model.safetensors", weights);
  const auto o = RunGlint({"convert", folder.path(), folder.Path("out.gguf")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.err, "note: ")) << o.err;
  EXPECT_TRUE(Has(o.err, "eh_proj.weight is missing")) << o.err;
}

TEST(Convert, ALimitOfTheSystemIsAnErrorAndLeavesNothing) {
  const TempDir folder;
  const auto o = RunGlint({"convert", testing::MicroModel(), folder.Path("x.gguf")}, {.file_bytes = 100000});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "x.gguf")) << o.err;
  EXPECT_TRUE(folder.List().empty());
}

TEST(Convert, FailuresLeaveNothing) {
  const TempDir folder, broken;
  const auto missing = RunGlint({"convert", "/no/such/folder", folder.Path("x.gguf")});
  EXPECT_EQ(missing.code, 1);
  EXPECT_TRUE(Has(missing.err, "/no/such/folder")) << missing.err;
  std::filesystem::copy(testing::MicroModel(), broken.path(), std::filesystem::copy_options::recursive);
  std::filesystem::resize_file(broken.Path("model.safetensors"), 1000000);
  EXPECT_EQ(RunGlint({"convert", broken.path(), folder.Path("x.gguf")}).code, 1);
  EXPECT_TRUE(folder.List().empty());
}

}  // namespace
}  // namespace glint::cli
