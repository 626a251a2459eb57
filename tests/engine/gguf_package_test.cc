// The public gguf package as the other side: what it writes loads and gives the same bits, and what glint writes it reads alike.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "glint/session.h"
#include "model/quantize.h"
#include "tests/base/temp_dir.h"
#include "tests/engine/reference.h"
#include "tests/model/dialects.h"
#include "tests/support/sanitizers.h"

namespace glint {
namespace {

std::vector<float> Logits(const std::string& path, std::span<const int32_t> ids) {
  const Model model = test::MustOpen(path, {.threads = 1});
  auto session = Session::Create(model, {.context = static_cast<int64_t>(ids.size())});
  EXPECT_TRUE(session.ok()) << session.status().message();
  std::vector<float> logits(ids.size() * static_cast<size_t>(model.vocab_size()), NAN);
  EXPECT_TRUE(session->Append(ids, LogitRows::kAll, logits).ok());
  return logits;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class GgufPackage : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(GLINT_PYTHON).empty())
      GTEST_SKIP() << "GLINT_PYTHON is not set: no reference package";
  }
  // What it printed; fails the test if the package disagrees.
  std::string Package(const std::string& arguments) {
    const std::string out = folder_.Path("package.txt");
    const std::string command = "'" GLINT_PYTHON "' '" GLINT_SOURCE_DIR "/tests/engine/referee_gguf.py' " +
                                arguments + " >'" + out + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << arguments << "\n" << folder_.Read("package.txt");
    return folder_.Read("package.txt");
  }
  test::TempDir folder_;
};

TEST_F(GgufPackage, FilesOfItsWriterGiveTheSameLogits) {
  const std::string directory = test::HfDirectory("micro");
  const auto ids = test::Reference("micro").Ints("p67.ids");
  const auto want = Logits(directory, ids);
  const auto data = model::Load(directory);
  ASSERT_TRUE(data.ok()) << data.status().message();
  for (const auto dialect : model::kAllDialects) {
    const auto paths = model::WriteDialect(*data, folder_.Path("ours"), {.dialect = dialect});
    ASSERT_TRUE(paths.ok()) << paths.status().message();
    for (const std::string how : {"", "split", "scalar", "trunk", "split scalar trunk"}) {
      SCOPED_TRACE(std::string("dialect ") + model::Name(dialect) + " " + how);
      const test::TempDir made;
      Package("rewrite '" + paths->front() + "' '" + made.Path("theirs") + "' " + how);
      const auto files = made.List();
      ASSERT_EQ(files.size() > 1, how.find("split") != std::string::npos);
      for (const std::string& file : {files.front(), files.back()}) {
        EXPECT_TRUE(SameBits(Logits(made.Path(file), ids), want)) << file;
        if (files.size() == 1 || test::kAnySanitizer) break;
      }
    }
  }
}

// Metadata, shapes and bytes as the package reads them; and the error that the report states is the one that it computes.
TEST_F(GgufPackage, ReadsWhatGlintQuantizes) {
  const auto data = model::LoadSynthetic("tiny,recipe=f32,layers=4,experts=3,vocab=300,dense_ffn=256");
  ASSERT_TRUE(data.ok()) << data.status().message();
  const auto paths = model::WriteDialect(*data, folder_.Path("in"));
  ASSERT_TRUE(paths.ok()) << paths.status().message();
  for (const quant::Format& format : quant::Formats()) {
    if (format.encode == nullptr) continue;
    SCOPED_TRACE(format.name);
    // Some tensors of the type, the others stay: their bytes must.
    const auto recipe =
        model::Recipe::Read("blk.{0-1}.{attn_q,ffn_up,ffn_down} = " + std::string(format.name) +
                                "\nblk.3.ffn_{gate,down}_exps = " + std::string(format.name) + "\n",
                            "test");
    ASSERT_TRUE(recipe.ok()) << recipe.status().message();
    model::QuantizeOptions options;
    options.replace = true, options.threads = 2;
    const auto report = model::Quantize(paths->front(), folder_.Path("out.gguf"), *recipe, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    std::map<std::string, std::pair<std::string, double>> theirs;
    std::istringstream lines(Package("compare '" + paths->front() + "' '" + folder_.Path("out.gguf") + "'"));
    for (std::string name, type, error; lines >> name >> type >> error;)
      theirs[name] = {type, std::stod(error)};
    size_t changed = 0;
    for (const model::QuantizedTensor& t : report->tensors) {
      if (t.kept) {
        EXPECT_FALSE(theirs.contains(t.name)) << t.name;
        continue;
      }
      ++changed;
      ASSERT_TRUE(theirs.contains(t.name)) << t.name;
      EXPECT_EQ(theirs[t.name].first, quant::Name(t.to)) << t.name;
      EXPECT_NEAR(theirs[t.name].second, t.relative_rms, 1e-6 + 1e-4 * t.relative_rms) << t.name;
      EXPECT_GE(t.largest_block, t.relative_rms * 0.99) << t.name;
    }
    EXPECT_EQ(changed, format.type == quant::Type::kF32 ? 0u : 8u);
    EXPECT_EQ(theirs.size(), changed);
  }
}

}  // namespace
}  // namespace glint
