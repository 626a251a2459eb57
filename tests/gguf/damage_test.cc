// The readers on some hundreds of damaged files: each is refused with a message that names the file, or its spans lie inside it.
#include "tests/gguf/damage.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "gguf/gguf.h"
#include "gguf/safetensors.h"
#include "tests/base/temp_dir.h"
#include "tests/gguf/bytes.h"

namespace glint::gguf {
namespace {

using test::Damage;
using test::TempDir;

// Inside the file by the numbers, and readable by touching: the sanitizer and the kernel watch the latter.
template <class Tensor>
void ExpectInside(const Tensor& tensor, size_t file_bytes, unsigned& touched) {
  ASSERT_LE(tensor.offset, file_bytes) << tensor.name;
  ASSERT_LE(tensor.bytes, file_bytes - tensor.offset) << tensor.name;
  if (tensor.bytes > 0) {
    touched += static_cast<unsigned>(tensor.data[0]) + static_cast<unsigned>(tensor.data[tensor.bytes - 1]);
  }
}

void ExpectHonest(const Damage& damage, const Status& status, const std::string& path) {
  if (damage.code) {
    ASSERT_FALSE(status.ok()) << "taken";
    EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(*damage.code)) << status.message();
  }
  if (status.ok()) return;
  EXPECT_TRUE(status.message().starts_with(path + ": ")) << status.message();
  for (const char c : status.message())
    ASSERT_TRUE(static_cast<uint8_t>(c) >= 0x20 && c != 0x7f) << status.message();
}

void ExpectDistinct(const std::vector<Damage>& damages, const std::string& good, size_t least) {
  std::set<std::string> files;
  for (const Damage& damage : damages) {
    const std::string bad = damage.make(good);
    EXPECT_TRUE(bad != good) << damage.what;
    files.insert(bad);
  }
  EXPECT_GE(files.size(), least);
}

class DamagedFiles : public testing::TestWithParam<uint64_t> {};

TEST_P(DamagedFiles, GgufIsRefusedOrHarmless) {
  const uint64_t seed = GetParam() != 0 ? GetParam() : std::random_device{}();
  SCOPED_TRACE(seed);
  TempDir dir;
  unsigned touched = 0;
  const std::string good = test::GoodGguf().Bytes();
  const auto damages = test::DamageGguf(good, seed);
  ExpectDistinct(damages, good, 200);
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    const std::string bytes = damage.make(good), path = dir.Write("bad.gguf", bytes);
    const auto file = File::Open(path, test::FewTypes);
    ExpectHonest(damage, file.status(), path);
    if (!file.ok()) continue;
    for (const TensorInfo& tensor : file->tensors()) ExpectInside(tensor, bytes.size(), touched);
    for (const auto& [key, value] : file->metadata()) {
      for (const auto& text :
           file->GetStrings(key).ok() ? *file->GetStrings(key) : std::vector<std::string>()) {
        touched += static_cast<unsigned>(text.size());
      }
    }
  }
  EXPECT_GT(touched, 0u);
}

TEST_P(DamagedFiles, SafetensorsAreRefusedOrHarmless) {
  const uint64_t seed = GetParam() != 0 ? GetParam() : std::random_device{}();
  SCOPED_TRACE(seed);
  TempDir dir;
  unsigned touched = 0;
  const std::string good = test::GoodSafetensors();
  const auto damages = test::DamageSafetensors(good, seed);
  ExpectDistinct(damages, good, 120);
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    const std::string bytes = damage.make(good), path = dir.Write("bad.safetensors", bytes);
    const auto file = SafeTensors::OpenFile(path);
    ExpectHonest(damage, file.status(), path);
    if (!file.ok()) continue;
    for (const SafeTensor& tensor : file->tensors()) ExpectInside(tensor, bytes.size(), touched);
  }
  EXPECT_GT(touched, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DamagedFiles, testing::Values(1, 0));  // 0: another each time

// A real model's file: many tensors, where the generator must pick.
TEST(DamagedModel, SafetensorsAreRefusedOrHarmless) {
  TempDir dir;
  unsigned touched = 0;
  const auto good = ReadFile(std::string(GLINT_TEST_DATA) + "/reference/tile/weights.safetensors");
  ASSERT_TRUE(good.ok()) << good.status().message();
  for (const Damage& damage : test::DamageSafetensors(*good, 1)) {
    SCOPED_TRACE(damage.what);
    const std::string bytes = damage.make(*good), path = dir.Write("bad.safetensors", bytes);
    const auto file = SafeTensors::OpenFile(path);
    ExpectHonest(damage, file.status(), path);
    if (!file.ok()) continue;
    for (const SafeTensor& tensor : file->tensors()) ExpectInside(tensor, bytes.size(), touched);
  }
}

// Each single bit of the header in turn.
TEST(DamagedBits, EveryFlippedBitOfAGgufHeader) {
  TempDir dir;
  unsigned touched = 0;
  test::GgufBytes small;
  small.Text("general.architecture", "x");
  small.Numbers<int32_t>("a", 5, {1, 2});
  small.tensors = {{"t", {32}, 8, std::string(34, 'x')}, {"u", {3}, 0, std::string(12, 'y')}};
  const std::string good = small.Bytes();
  for (size_t bit = 0; bit < 8 * (good.size() - 96); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const std::string path = dir.Write("bad.gguf", bytes);
    const auto file = File::Open(path, test::FewTypes);
    if (!file.ok()) {
      ASSERT_TRUE(file.status().message().starts_with(path + ": ")) << file.status().message();
      continue;
    }
    for (const TensorInfo& tensor : file->tensors()) ExpectInside(tensor, bytes.size(), touched);
  }
}

}  // namespace
}  // namespace glint::gguf
