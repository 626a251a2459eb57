// Files written by the formats' reference packages (tests/data/files/make.py).
#include <gtest/gtest.h>

#include <cstring>

#include "base/half.h"
#include "gguf/gguf.h"
#include "gguf/safetensors.h"
#include "tests/base/temp_dir.h"
#include "tests/gguf/bytes.h"
#include "tests/gguf/split_set.h"

namespace glint::gguf {
namespace {

const std::string kDirectory = std::string(GLINT_TEST_DATA) + "/files/";

// make.py's value i of tensor k.
float Wanted(size_t k, size_t i) {
  return static_cast<float>(static_cast<int>(i % 11) - 5) / 4 + static_cast<float>(k);
}

void ExpectValues(const std::byte* data, bool half, size_t k, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    uint16_t bits = 0;
    if (half) {
      std::memcpy(&bits, data + 2 * i, 2);
      value = HalfToFloat(bits);
    } else {
      std::memcpy(&value, data + 4 * i, 4);
    }
    ASSERT_EQ(value, Wanted(k, i)) << k << " " << i;
  }
}

void ExpectGguf(const File& file) {
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(*file.GetString("general.architecture"), "glm5next");
  EXPECT_EQ(*file.GetUint("k.u8"), 200u);
  EXPECT_EQ(*file.GetUint("k.u16"), 60000u);
  EXPECT_EQ(*file.GetUint("k.u32"), 4000000000u);
  EXPECT_EQ(*file.GetUint("k.u64"), uint64_t{1} << 63);
  EXPECT_EQ(std::get<int64_t>(file.Find("k.i8")->data), -100);
  EXPECT_EQ(std::get<int64_t>(file.Find("k.i16")->data), -30000);
  EXPECT_EQ(std::get<int64_t>(file.Find("k.i32")->data), -2000000000);
  EXPECT_EQ(std::get<int64_t>(file.Find("k.i64")->data), -(int64_t{1} << 62));
  EXPECT_EQ(*file.GetFloat("k.f32"), 0.5);
  EXPECT_EQ(*file.GetFloat("k.f64"), 0.1);
  EXPECT_EQ(*file.GetBool("k.bool"), true);
  EXPECT_EQ(*file.GetString("k.text"), "狐 fox");
  EXPECT_EQ(*file.GetStrings("k.texts"), (std::vector<std::string>{"a", "", "狐"}));
  EXPECT_EQ(std::get<std::shared_ptr<const Array>>(file.Find("k.i32s")->data)->values.size(), 4u);
  ASSERT_EQ(file.tensors().size(), 4u);
  const TensorInfo &embd = *file.FindTensor("token_embd.weight"),
                   &exps = *file.FindTensor("blk.0.ffn_up_exps.weight"),
                   &conv = *file.FindTensor("blk.0.conv"), &norm = *file.FindTensor("output_norm.weight");
  EXPECT_EQ(embd.ne, (std::array<uint64_t, 4>{32, 3, 1, 1}));
  EXPECT_EQ(exps.ne, (std::array<uint64_t, 4>{64, 3, 2, 1}));
  EXPECT_EQ(conv.ne, (std::array<uint64_t, 4>{4, 1, 8, 1}));
  EXPECT_EQ(conv.dims, 3);
  ExpectValues(embd.data, false, 0, 96);
  ExpectValues(conv.data, false, 2, 32);
  ExpectValues(norm.data, true, 3, 5);
  EXPECT_EQ(norm.type, 1u);
  EXPECT_EQ(exps.type, 8u);
  ASSERT_EQ(exps.bytes, 12u * 34u);
  for (size_t i = 0; i < 384;
       ++i) {  // a half for the scale, 32 signed bytes; within half a step of the value
    uint16_t scale = 0;
    std::memcpy(&scale, exps.data + i / 32 * 34, 2);
    const float value =
        HalfToFloat(scale) * static_cast<float>(static_cast<int8_t>(exps.data[i / 32 * 34 + 2 + i % 32]));
    ASSERT_NEAR(value, Wanted(1, i), 0.51f * HalfToFloat(scale)) << i;
  }
}

TEST(Published, GgufOfTheReferencePackage) {
  const auto file = File::Open(kDirectory + "whole.gguf", test::FewTypes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ExpectGguf(*file);
}

TEST(Published, SplitSetOfTheReferencePackage) {
  for (const char* part : {"set-00001-of-00003.gguf", "set-00003-of-00003.gguf"}) {
    const auto file = File::Open(kDirectory + part, test::FewTypes);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ExpectGguf(*file);
    for (const TensorInfo& tensor : file->tensors()) EXPECT_GT(tensor.file, 0);
  }
}

// Our writer and the package's agree to the byte.
TEST(Published, CopyOfAGgufHasItsBytes) {
  test::TempDir dir;
  const auto file = File::Open(kDirectory + "whole.gguf", test::FewTypes);
  ASSERT_TRUE(file.ok());
  Writer writer;
  for (const auto& [key, value] : file->metadata()) writer.Set(key, value);
  for (const TensorInfo& tensor : file->tensors()) test::AddCopy(writer, tensor);
  ASSERT_TRUE(writer.Write(dir.Path("copy"), file->paths()).ok());
  EXPECT_TRUE(dir.Read("copy") == *ReadFile(kDirectory + "whole.gguf"));
}

TEST(Published, CutIntoASetItReadsTheSame) {
  const auto whole = File::Open(kDirectory + "whole.gguf", test::FewTypes);
  ASSERT_TRUE(whole.ok());
  for (const size_t parts : {2, 3, 5, 9}) {
    test::TempDir dir;
    const auto paths = test::WriteSplitSet(*whole, dir.Path("cut"), parts);
    ASSERT_TRUE(paths.ok()) << paths.status().message();
    ASSERT_EQ(paths->size(), parts);
    const auto set = File::Open(paths->back(), test::FewTypes);
    ASSERT_TRUE(set.ok()) << set.status().message();
    ExpectGguf(*set);
  }
}

TEST(Published, SafetensorsOfTheReferencePackage) {
  const auto file = SafeTensors::OpenFile(kDirectory + "whole.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 4u);
  const SafeTensor &embd = *file->Find("token_embd.weight"), &exps = *file->Find("blk.0.ffn_up_exps.weight"),
                   &norm = *file->Find("output_norm.weight");
  EXPECT_EQ(embd.dtype, "F32");
  EXPECT_EQ(exps.dtype, "F16");
  EXPECT_EQ(exps.shape, (std::vector<uint64_t>{2, 3, 64}));
  ExpectValues(embd.data, false, 0, 96);
  ExpectValues(exps.data, true, 1, 384);
  ExpectValues(norm.data, true, 3, 5);
}

}  // namespace
}  // namespace glint::gguf
