#include "gguf/writer.h"

#include <gtest/gtest.h>

#include "tests/base/temp_dir.h"
#include "tests/gguf/bytes.h"

namespace glint::gguf {
namespace {

using test::FewTypes;
using test::TempDir;

// Produces `text` in pieces of `piece` bytes.
Writer::Produce Pieces(std::string text, size_t piece) {
  return [text = std::move(text), piece](const Writer::Sink& sink) {
    for (size_t at = 0; at < text.size(); at += piece) {
      const std::string_view part = std::string_view(text).substr(at, piece);
      if (Status s = sink(std::as_bytes(std::span(part.data(), part.size()))); !s.ok()) return s;
    }
    return Status();
  };
}

// The same file, put together by hand.
TEST(GgufWriter, WritesTheBytesOfTheFormat) {
  TempDir dir;
  test::GgufBytes want;
  Writer writer;
  want.Text("general.architecture", "glm5next"), writer.SetString("general.architecture", "glm5next");
  want.Key<uint32_t>("u32", 4, 7), writer.SetU32("u32", 1);
  want.Key<uint16_t>("u16", 2, 65535), writer.SetU16("u16", 65535);
  want.Key<int32_t>("i32", 5, -7), writer.SetI32("i32", -7);
  want.Key<uint64_t>("u64", 10, 1ull << 40), writer.SetU64("u64", 1ull << 40);
  want.Key<float>("f32", 6, 0.1f), writer.SetF32("f32", 0.1f);
  want.Key<uint8_t>("bool", 7, 1), writer.SetBool("bool", true);
  want.Texts("texts", {"a", "", "狐"}), writer.SetStrings("texts", {"a", "", "狐"});
  want.Numbers<int32_t>("i32s", 5, {1, -1}), writer.SetI32s("i32s", {1, -1});
  want.Numbers<uint32_t>("u32s", 4, {}), writer.SetU32s("u32s", {});
  want.Numbers<float>("f32s", 6, {10, 10}), writer.SetF32s("f32s", {10, 10});
  writer.SetU32("u32", 7);  // keeps its place
  const std::string a(34, 'a'), b(20, 'b'), c(32, 'c');
  want.tensors = {{"a", {32}, 8, a}, {"b", {5, 1}, 0, b}, {"c", {2, 2, 2}, 0, c}};
  writer.AddTensor("a", 8, {32}, 34, Pieces(a, 10));
  writer.AddTensor("b", 0, {5, 1}, 20, Pieces(b, 100));
  writer.AddTensor("c", 0, {2, 2, 2}, 32, Pieces(c, 1));
  EXPECT_EQ(writer.tensor_bytes(), 86u);
  const Status status = writer.Write(dir.Path("out.gguf"), {});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(dir.Read("out.gguf") == want.Bytes());
}

TEST(GgufWriter, CopiesEveryKindOfValue) {
  TempDir dir;
  auto file = File::Open(dir.Write("in.gguf", test::GoodGguf().Bytes()), FewTypes);
  ASSERT_TRUE(file.ok());
  Writer writer;
  for (const auto& [key, value] : file->metadata()) writer.Set(key, value);
  for (const TensorInfo& t : file->tensors()) {
    const std::string data(reinterpret_cast<const char*>(t.data), t.bytes);
    writer.AddTensor(t.name, t.type, {t.ne.begin(), t.ne.begin() + t.dims}, t.bytes, Pieces(data, 1000));
  }
  ASSERT_TRUE(writer.Write(dir.Path("out.gguf"), file->paths()).ok());
  EXPECT_TRUE(dir.Read("out.gguf") == dir.Read("in.gguf"));
}

// Names that many programs do not read (they keep 64 bytes with the NUL) are written all the same, to the 255 that glint reads.
TEST(GgufWriter, WritesLongNames) {
  TempDir dir;
  test::GgufBytes want;
  Writer writer;
  want.Text("general.architecture", "glm5next"), writer.SetString("general.architecture", "glm5next");
  for (const size_t length : {63, 64, 65, 254, 255}) {
    const std::string name(length, 'n'), data(4, 'd');
    want.tensors.push_back({name, {1}, 0, data});
    writer.AddTensor(name, 0, {1}, 4, Pieces(data, 4));
  }
  const Status status = writer.Write(dir.Path("out.gguf"), {});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(dir.Read("out.gguf") == want.Bytes());
  const auto file = File::Open(dir.Path("out.gguf"), FewTypes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const test::GgufBytes::Tensor& tensor : want.tensors)
    EXPECT_NE(file->FindTensor(tensor.name), nullptr) << tensor.name.size();
}

TEST(GgufWriter, LeavesNothingAfterAnError) {
  TempDir dir;
  const std::string in = dir.Write("in", "precious");
  const auto error = [&](const Writer& writer, const Progress& progress = {}) {
    return writer.Write(dir.Path("out.gguf"), std::vector<std::string>{in}, progress).code();
  };
  Writer less, more, fails, twice, name, shape, ok;
  less.AddTensor("a", 0, {2}, 8, Pieces("1234567", 3));
  more.AddTensor("a", 0, {2}, 8, Pieces("123456789", 3));
  fails.AddTensor("a", 0, {2}, 8, [](const Writer::Sink&) { return Status(Code::kBadFile, "no"); });
  for (int i = 0; i < 2; ++i) twice.AddTensor("a", 0, {1}, 4, Pieces("1234", 4));
  name.AddTensor(std::string(256, 'n'), 0, {1}, 4, Pieces("1234", 4));
  shape.AddTensor("a", 0, {1, 0}, 0, Pieces("", 4));
  ok.AddTensor("a", 0, {2}, 8, Pieces("12345678", 4));
  EXPECT_EQ(error(less), Code::kInternal);
  EXPECT_EQ(error(more), Code::kInternal);
  EXPECT_EQ(error(fails), Code::kBadFile);
  EXPECT_EQ(error(twice), Code::kInternal);
  EXPECT_EQ(error(name), Code::kInternal);
  EXPECT_EQ(error(shape), Code::kInternal);
  EXPECT_EQ(error(ok, [](uint64_t done, uint64_t total) { return done < total / 2; }), Code::kBadInput);
  EXPECT_EQ(ok.Write(in, std::vector<std::string>{in}).code(), Code::kBadInput);
  EXPECT_EQ(dir.List(), std::vector<std::string>{"in"});
  EXPECT_EQ(dir.Read("in"), "precious");
  uint64_t last = 0;
  EXPECT_EQ(error(ok, [&](uint64_t done, uint64_t total) { return last = done, done <= total; }), Code::kOk);
  EXPECT_EQ(last, dir.Read("out.gguf").size());
}

}  // namespace
}  // namespace glint::gguf
