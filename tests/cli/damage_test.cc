// inspect, run and convert on damaged files made from good ones: an error that names the file and exit code 1, or, where the
// damage left the file valid, success. Never a crash, a hang or a sanitizer's report.
#include <gtest/gtest.h>

#include "tests/cli/program.h"
#include "tests/gguf/damage.h"

namespace glint::cli {
namespace {

using test::Damage;
using test::TempDir;
using testing::RunGlint;

// What one command made of one file.
void Judge(const testing::Outcome& o, const std::string& file, bool must_fail) {
  EXPECT_TRUE(o.code == 0 || o.code == 1) << "exit code " << o.code << "\n" << o.err.substr(0, 4000);
  if (must_fail) {
    EXPECT_EQ(o.code, 1) << o.err;
  }
  if (o.code == 1) {
    EXPECT_NE(o.err.find(file), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
  EXPECT_LT(o.err.size(), 2000u) << "not an error a person reads";
  EXPECT_EQ(o.err.find("Sanitizer"), std::string::npos) << o.err.substr(0, 4000);
  EXPECT_EQ(o.err.find("runtime error"), std::string::npos) << o.err.substr(0, 4000);
  for (const std::string* text : {&o.out, &o.err}) {
    EXPECT_EQ(text->find('\x1b'), std::string::npos);
  }
}

constexpr uint64_t kSeed = 20261129;

TEST(Damaged, GgufFiles) {
  const TempDir folder;
  const std::string good = folder.Path("good.gguf"), bad = folder.Path("bad.gguf");
  ASSERT_EQ(RunGlint({"convert", testing::MicroModel(), good, "--type", "q8_0"}).code, 0);
  const std::string bytes = folder.Read("good.gguf");
  const std::vector<Damage> damages = test::DamageGguf(bytes, kSeed);
  ASSERT_GE(damages.size(), 200u);
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    folder.Write("bad.gguf", damage.make(bytes));
    Judge(RunGlint({"inspect", bad}), bad, damage.code.has_value());
    Judge(RunGlint({"run", "-m", bad, "--ids", "1", "-n", "1", "--greedy"}), bad, damage.code.has_value());
  }
}

// A matrix of float32 that is said to be float16 leaves bytes over.
TEST(Damaged, GgufWithARelabelledTensorOrANaN) {
  const TempDir folder;
  const std::string good = folder.Path("good.gguf"), bad = folder.Path("bad.gguf");
  ASSERT_EQ(RunGlint({"convert", testing::MicroModel(), good, "--type", "f32"}).code, 0);
  std::string bytes = folder.Read("good.gguf");
  const test::damage::GgufLayout layout(bytes);
  const auto tensor = std::find_if(layout.tensors.begin(), layout.tensors.end(), [&](const auto& t) {
    return bytes.compare(t.text, t.dims - t.text, "blk.2.ssm_f_a.weight") == 0;
  });
  ASSERT_NE(tensor, layout.tensors.end());
  ASSERT_EQ(test::damage::Get<uint32_t>(bytes, tensor->type), 0u);
  const std::vector<std::string> command{"run", "-m", bad, "--ids", "1,2", "-n", "2", "--greedy"};
  std::string damaged = bytes;
  damaged.replace(tensor->type, 4, test::damage::Raw(uint32_t{1}));
  folder.Write("bad.gguf", damaged);
  auto outcome = RunGlint(command);
  Judge(outcome, bad, true);
  EXPECT_NE(outcome.err.find("belong to no tensor"), std::string::npos) << outcome.err;
  // What no header shows, a matrix with a NaN in it, shows in the logits.
  damaged = bytes;
  damaged.replace(layout.data + tensor->data, 4, "\xff\xff\xff\x7f");
  folder.Write("bad.gguf", damaged);
  outcome = RunGlint(command);
  Judge(outcome, bad, true);
  EXPECT_NE(outcome.err.find("NaN"), std::string::npos) << outcome.err;
}

// The tokenizer is looked at by inspect too, not only by who needs it.
TEST(Damaged, VocabularyOfAGguf) {
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const TempDir folder;
  const std::string bad = folder.Path("bad.gguf"), good = testing::ReadAll(testing::StoriesModel());
  const test::damage::GgufLayout layout(good);
  const auto key = [&](std::string_view name) {
    return *std::find_if(layout.keys.begin(), layout.keys.end(),
                         [&](const auto& k) { return good.substr(k.text, k.kind - k.text) == name; });
  };
  // Past the element type and count: the first entry's length, then its bytes.
  const auto tokens = key("tokenizer.ggml.tokens"), merges = key("tokenizer.ggml.merges");
  const std::vector<std::pair<const char*, std::pair<size_t, char>>> damages = {
      {"token 0", {tokens.value + 20, '\xff'}},                // no UTF-8, no byte-level alphabet
      {"merge 0", {merges.value + 20, '\x01'}},                // of a token that is not there
      {"tokenizer.ggml.merges: absent", {merges.text, 'T'}}};  // the key has another name
  for (const auto& [words, edit] : damages) {
    SCOPED_TRACE(words);
    std::string bytes = good;
    bytes[edit.first] = edit.second;
    folder.Write("bad.gguf", bytes);
    for (const auto& command : {std::vector<std::string>{"inspect", bad},
                                std::vector<std::string>{"run", "-m", bad, "-n", "1", "hello"}}) {
      const auto outcome = RunGlint(command);
      Judge(outcome, bad, true);
      EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    }
  }
}

TEST(Damaged, SafetensorsFiles) {
  const TempDir folder, out;
  std::filesystem::copy(testing::MicroModel(), folder.path(), std::filesystem::copy_options::recursive);
  const std::string bytes = folder.Read("model.safetensors"), bad = folder.Path("model.safetensors");
  const std::vector<Damage> damages = test::DamageSafetensors(bytes, kSeed);
  ASSERT_GE(damages.size(), 100u);
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    folder.Write("model.safetensors", damage.make(bytes));
    Judge(RunGlint({"inspect", bad}), bad, damage.code.has_value());
    Judge(RunGlint({"inspect", folder.path()}), folder.path(), damage.code.has_value());
    Judge(RunGlint({"run", "-m", folder.path(), "--ids", "1", "-n", "1", "--greedy"}), folder.path(),
          damage.code.has_value());
    const auto converted = RunGlint({"convert", folder.path(), out.Path("x.gguf"), "--force"});
    EXPECT_TRUE(converted.code == 0 || converted.code == 1) << converted.code << "\n"
                                                            << converted.err.substr(0, 4000);
    if (damage.code) {
      EXPECT_EQ(converted.code, 1);
    }
    if (converted.code == 1) {
      EXPECT_NE(converted.err.find(folder.path()), std::string::npos) << converted.err;
      EXPECT_TRUE(out.List().empty()) << "a failed conversion left a file";
    }
    std::filesystem::remove(out.Path("x.gguf"));
  }
}

}  // namespace
}  // namespace glint::cli
