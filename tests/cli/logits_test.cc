#include <gtest/gtest.h>

#include <cstring>

#include "glint/session.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::RunGlint;

// The values of a float32 NumPy file, read without the writer; the shape goes to `shape` as its text.
std::vector<float> Values(const std::string& path, std::string* shape) {
  const std::string bytes = testing::ReadAll(path);
  if (bytes.size() < 10) return {};
  const size_t data = 10 + static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  const size_t open = bytes.find('(');
  *shape = bytes.substr(open, bytes.find(')') + 1 - open);
  std::vector<float> values((bytes.size() - data) / 4);
  std::memcpy(values.data(), bytes.data() + data, values.size() * 4);
  return values;
}

TEST(Logits, AreTheSessionsWhateverTheChunkAndThreads) {
  auto model = Model::Open(testing::MicroModel());
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<int32_t> ids;
  std::string list;
  for (int i = 0; i < 45; ++i) {
    ids.push_back(i * 37 % 256);
    list += (i ? "," : "") + std::to_string(ids.back());
  }
  auto session = Session::Create(*model, {.context = 45});
  ASSERT_TRUE(session.ok());
  std::vector<float> wanted(45 * 256);
  ASSERT_TRUE(session->Append(ids, LogitRows::kAll, wanted).ok());

  const TempDir folder;
  for (const std::vector<std::string>& how : {std::vector<std::string>{},
                                              {"--chunk", "1"},
                                              {"--chunk", "16"},
                                              {"--chunk", "37", "--threads", "1"},
                                              {"--rows", "all", "--threads", "4"}}) {
    std::vector<std::string> arguments{"logits",  "-m",    testing::MicroModel(), "--ids", list,
                                       "--force", "--out", folder.Path("x.npy")};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const auto o = RunGlint(arguments);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, "");
    std::string shape;
    const auto values = Values(folder.Path("x.npy"), &shape);
    EXPECT_EQ(shape, "(45, 256)");
    ASSERT_EQ(values.size(), wanted.size());
    EXPECT_EQ(std::memcmp(values.data(), wanted.data(), 4 * wanted.size()), 0);
  }

  folder.Write("ids", list + "\n");
  for (const char* chunk : {"1", "44", "45", "1000"}) {
    const auto o =
        RunGlint({"logits", "-m", testing::MicroModel(), "--ids", "@" + folder.Path("ids"), "--rows", "last",
                  "--chunk", chunk, "--force", "--out", folder.Path("last.npy")});
    ASSERT_EQ(o.code, 0) << o.err;
    std::string shape;
    const auto values = Values(folder.Path("last.npy"), &shape);
    EXPECT_EQ(shape, "(1, 256)");
    ASSERT_EQ(values.size(), 256u);
    EXPECT_EQ(std::memcmp(values.data(), wanted.data() + 44 * 256, 4 * 256), 0);
  }
}

TEST(Logits, NumPyReadsTheFile) {
  if (std::string(GLINT_PYTHON).empty()) GTEST_SKIP() << "no GLINT_PYTHON";
  const TempDir folder;
  ASSERT_EQ(RunGlint({"logits", "--synthetic", "tiny", "--ids", "1,2", "--out", folder.Path("x.npy")}).code,
            0);
  const std::string check =
      std::string(GLINT_PYTHON) + " -c \"import numpy; x = numpy.load('" + (folder.Path("x.npy")) +
      "'); assert x.dtype == numpy.float32 and x.shape[0] == 2 and numpy.isfinite(x).all()\"";
  EXPECT_EQ(std::system(check.c_str()), 0);
}

TEST(Logits, AFailureLeavesNoFile) {
  const TempDir folder;
  EXPECT_EQ(
      RunGlint({"logits", "-m", testing::MicroModel(), "--ids", "1,999", "--out", folder.Path("x.npy")}).code,
      1);
  EXPECT_EQ(
      RunGlint({"logits", "-m", testing::MicroModel(), "--ids", "1", "--out", folder.Path("no/x.npy")}).code,
      1);
  EXPECT_TRUE(folder.List().empty());
}

TEST(Logits, NoFileItReadsIsOverwritten) {
  const TempDir folder;
  std::filesystem::copy(testing::MicroModel(), folder.path());
  folder.Write("generation_config.json", "{}");
  const std::string ids = folder.Write("ids.txt", "1,2,3\n");
  std::filesystem::create_symlink("ids.txt", folder.Path("link.npy"));
  for (const char* out :
       {"config.json", "generation_config.json", "model.safetensors", "ids.txt", "link.npy"}) {
    const std::string before = folder.Read(out);
    const auto o = RunGlint({"logits", "-m", folder.path(), "--ids", "@" + ids, "--out", folder.Path(out)});
    EXPECT_EQ(o.code, 1) << out << ": " << o.err;
    EXPECT_NE(o.err.find("is also an input"), std::string::npos) << o.err;
    EXPECT_EQ(folder.Read(out), before) << out;
  }
}

TEST(Logits, TheModelIsNotOverwritten) {
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const TempDir folder;
  std::filesystem::copy(testing::StoriesModel(), folder.Path("model.gguf"));
  std::filesystem::create_hard_link(folder.Path("model.gguf"), folder.Path("x.npy"));
  const auto o =
      RunGlint({"logits", "-m", folder.Path("model.gguf"), "--ids", "1", "--out", folder.Path("x.npy")});
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(folder.Read("model.gguf"), testing::ReadAll(testing::StoriesModel()));
}

}  // namespace
}  // namespace glint::cli
