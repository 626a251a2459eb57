#include "cli/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::ReadAll;

TEST(Npy, IsWhatNumPyDescribes) {
  const TempDir folder;
  const std::string path = folder.Path("x.npy");
  const std::vector<float> values{0, 1, -2.5f, 3e38f, 1e-45f, -0.0f};
  auto npy = NpyWriter::Create(path, 2, 3);
  ASSERT_TRUE(npy.ok()) << npy.status().message();
  ASSERT_TRUE(npy->Append(std::span(values).first(4)).ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "there before it is whole";
  ASSERT_TRUE(npy->Append(std::span(values).subspan(4)).ok());
  ASSERT_TRUE(npy->Commit().ok());

  const std::string bytes = ReadAll(path);
  ASSERT_GE(bytes.size(), 10u);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  ASSERT_EQ(bytes.size(), 10 + header + 24);
  const std::string text = bytes.substr(10, header);
  EXPECT_TRUE(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }")) << text;
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(std::memcmp(bytes.data() + 10 + header, values.data(), 24), 0);
}

// Header texts of every length: the data always begins at a multiple of 64.
TEST(Npy, HeadersOfAnyLengthAlign) {
  const TempDir folder;
  for (uint64_t rows = 1; rows < 100000000000; rows *= 10) {
    for (uint64_t columns = 1; columns < 10000000; columns *= 10) {
      auto npy = NpyWriter::Create(folder.Path("x.npy"), rows, columns);
      ASSERT_TRUE(npy.ok());
      EXPECT_FALSE(npy->Commit().ok()) << "values are missing";
    }
  }
  auto npy = NpyWriter::Create(folder.Path("x.npy"), UINT64_MAX, 2);
  EXPECT_FALSE(npy.ok());
}

TEST(Npy, RefusesMoreThanDeclared) {
  const TempDir folder;
  auto npy = NpyWriter::Create(folder.Path("x.npy"), 1, 2);
  ASSERT_TRUE(npy.ok());
  EXPECT_EQ(npy->Append(std::vector<float>(3)).code(), Code::kInternal);
}

TEST(Npy, AnInputIsNotOverwritten) {
  const TempDir folder;
  folder.Write("in", "precious");
  std::filesystem::create_hard_link(folder.Path("in"), folder.Path("out.npy"));
  const std::vector<std::string> inputs{folder.Path("in")};
  EXPECT_FALSE(NpyWriter::Create(folder.Path("out.npy"), 1, 1, inputs).ok());
  EXPECT_EQ(folder.Read("in"), "precious");
}

}  // namespace
}  // namespace glint::cli
