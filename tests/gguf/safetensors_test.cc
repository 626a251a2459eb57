#include "gguf/safetensors.h"

#include <gtest/gtest.h>

#include "tests/base/temp_dir.h"
#include "tests/gguf/bytes.h"

namespace glint::gguf {
namespace {

using test::GoodSafetensors;
using test::SafetensorsBytes;
using test::TempDir;

void ExpectRefused(const std::string& bytes, std::string_view words) {
  TempDir dir;
  const std::string path = dir.Write("bad.safetensors", bytes);
  const auto file = SafeTensors::OpenFile(path);
  ASSERT_FALSE(file.ok()) << words;
  EXPECT_EQ(file.status().code(), Code::kBadFile) << file.status().message();
  EXPECT_TRUE(file.status().message().starts_with(path + ": ")) << file.status().message();
  EXPECT_NE(file.status().message().find(words), std::string::npos)
      << file.status().message() << "\nlacks " << words;
}

TEST(SafeTensorsFile, PlacesTensors) {
  TempDir dir;
  const std::string bytes = GoodSafetensors();
  auto opened = SafeTensors::OpenFile(dir.Write("a.safetensors", bytes));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const SafeTensors file = *std::move(opened);
  ASSERT_EQ(file.tensors().size(), 4u);
  const SafeTensor* const norm = file.Find("model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->dtype, "BF16");
  EXPECT_EQ(norm->shape, std::vector<uint64_t>{6});
  EXPECT_EQ(norm->bytes, 12u);
  EXPECT_EQ(norm->offset, bytes.size() - 18);
  EXPECT_EQ(memcmp(norm->data, bytes.data() + norm->offset, 12), 0);
  EXPECT_EQ(file.Find("model.embed.weight")->shape, (std::vector<uint64_t>{4, 6}));
  EXPECT_EQ(file.Find("model.none")->bytes, 0u);
  EXPECT_EQ(file.Find("__metadata__"), nullptr);
}

TEST(SafeTensorsFile, TakesDataAtAnyByte) {
  TempDir dir;
  const std::string path =
      dir.Write("a.safetensors", SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                                  R"("b":{"dtype":"F64","shape":[2],"data_offsets":[3,19]}})",
                                                  std::string(19, 'x')));
  const auto file = SafeTensors::OpenFile(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->Find("b")->bytes, 16u);
  EXPECT_EQ(file->Find("b")->data - file->Find("a")->data, 3);
}

TEST(SafeTensorsFile, RefusesBadHeaders) {
  const std::string good = GoodSafetensors();
  ExpectRefused("", "ends within the header's length");
  ExpectRefused("\1\2\3", "ends within the header's length");
  std::string length = good;
  length.replace(0, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8));
  ExpectRefused(length, "18446744073709551615 bytes long; safetensors allows 100000000");
  length.replace(0, 8, std::string("\0\0\1\0\0\0\0\0", 8));
  ExpectRefused(length, "65536 bytes long, but only");
  ExpectRefused(SafetensorsBytes("[]", ""), "the header is an array");
  ExpectRefused(SafetensorsBytes("", ""), "JSON ends too early");
  ExpectRefused(SafetensorsBytes("{\"a\":", ""), "JSON ends too early");
  ExpectRefused(SafetensorsBytes("{\"a\xff\":1}", ""), "bad JSON");
  ExpectRefused(SafetensorsBytes(R"({"__metadata__":{"a":1}})", ""), "object of strings");
  ExpectRefused(SafetensorsBytes(R"({"__metadata__":7})", ""), "object of strings");
  ExpectRefused(SafetensorsBytes(std::string(64, '['), ""), "nested more than 8 deep");
}

TEST(SafeTensorsFile, RefusesBadTensors) {
  const auto one = [](std::string_view entry, size_t data = 16) {
    return SafetensorsBytes(R"({"t)"
                            "\\u001b"
                            R"(":)" +
                                std::string(entry) + "}",
                            std::string(data, 'x'));
  };
  const std::string where = "tensor 't\\x1b': ";
  ExpectRefused(one("7"), where + "'dtype': is missing");
  ExpectRefused(one(R"({"dtype":"F32","shape":[4]})"), where + "'data_offsets': is missing");
  ExpectRefused(one(R"({"dtype":4,"shape":[4],"data_offsets":[0,16]})"),
                where + "'dtype': is 4; wanted is a string");
  ExpectRefused(one(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"), where + "'shape[0]': is -4");
  ExpectRefused(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})"), where + "'data_offsets' must be");
  ExpectRefused(one(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"),
                where + "'data_offsets' must be");
  ExpectRefused(one(R"({"dtype":"F32","shape":[4],"data_offsets":[4,20]})"), where + "16 bytes of data");
  ExpectRefused(
      one(R"({"dtype":"F32","shape":[4],"data_offsets":[18446744073709551600,18446744073709551615]})"),
      "beyond the end");
  ExpectRefused(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"),
                where + "16 bytes of data at offset 0x");
  ExpectRefused(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"), "F32 of shape [3] takes 12");
  ExpectRefused(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]})"),
                "takes more than 2^61");
  ExpectRefused(one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})"), "F4 of shape [3]");
  ExpectRefused(one(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})"),
                "17 dimensions");
  ExpectRefused(
      SafetensorsBytes(
          R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},"b":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
          std::string(16, 'x')),
      "tensor 'b': data at offset");
  ExpectRefused(
      SafetensorsBytes(
          R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
          std::string(16, 'x')),
      "the key 'a' comes twice");
}

TEST(SafeTensorsFile, TakesUnknownTypesHolesAndEmptyTensors) {
  TempDir dir;
  const auto opens = [&](std::string header) {
    auto file =
        SafeTensors::OpenFile(dir.Write("a", SafetensorsBytes(std::move(header), std::string(16, 'x'))));
    EXPECT_TRUE(file.ok()) << file.status().message();
  };
  opens(R"({"a":{"dtype":"NEW","shape":[9],"data_offsets":[1,4]}})");
  opens(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})");
  opens(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[8,8]}})");
  opens(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})");
  opens("{}");
}

// ---- directories

std::string OneTensor(std::string_view name, char fill) {
  return SafetensorsBytes("{\"" + std::string(name) + R"(":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                          std::string(8, fill));
}

TEST(SafeTensorsDirectory, OpensOneFileOrASetWithItsIndex) {
  TempDir dir;
  EXPECT_EQ(SafeTensors::OpenDirectory(dir.path()).status().code(), Code::kNotFound);
  dir.Write("s1.safetensors", OneTensor("a", '1'));
  dir.Write("s2.safetensors", OneTensor("b", '2'));
  dir.Write("model.safetensors.index.json",
            R"({"metadata":{"total_size":16},"weight_map":{"b":"s2.safetensors","a":"s1.safetensors"}})");
  for (const std::string& path : {dir.path(), dir.path() + "/"}) {
    auto set = SafeTensors::OpenDirectory(path);
    ASSERT_TRUE(set.ok()) << set.status().message();
    EXPECT_EQ(set->paths(),
              (std::vector<std::string>{dir.Path("s2.safetensors"), dir.Path("s1.safetensors")}));
    EXPECT_EQ(set->Find("a")->file, 1);
    EXPECT_EQ(static_cast<char>(*set->Find("a")->data), '1');
    EXPECT_EQ(static_cast<char>(*set->Find("b")->data), '2');
  }
  dir.Write("model.safetensors", OneTensor("whole", '3'));
  EXPECT_NE(SafeTensors::OpenDirectory(dir.path())->Find("whole"), nullptr);
}

TEST(SafeTensorsDirectory, RefusesIndexesThatDoNotFit) {
  const auto refused = [](std::string_view map, Code code, std::string_view words) {
    TempDir dir;
    dir.Write("s1", OneTensor("a", '1'));
    dir.Write("s2", OneTensor("b", '2'));
    dir.Write("s3", OneTensor("a", '3'));
    std::filesystem::create_directory(dir.Path("sub"));
    dir.Write("sub/s1", OneTensor("a", '1'));
    dir.Write("model.safetensors.index.json", "{\"weight_map\":" + std::string(map) + "}");
    const auto set = SafeTensors::OpenDirectory(dir.path());
    ASSERT_FALSE(set.ok()) << map;
    EXPECT_EQ(set.status().code(), code) << set.status().message();
    EXPECT_TRUE(set.status().message().starts_with(dir.path() + "/")) << set.status().message();
    EXPECT_NE(set.status().message().find(words), std::string::npos) << set.status().message();
  };
  refused(R"({"a":"s1","b":"none"})", Code::kNotFound, "none");
  refused(R"({"a":"s2","b":"s2"})", Code::kBadFile, "tensor 'a' should be in 's2', but is in no shard");
  refused(R"({"a":"s2","b":"s1"})", Code::kBadFile, "tensor 'a' should be in 's2', but is in");
  refused(R"({"a":"s1","b":"s2","c":"s2"})", Code::kBadFile, "tensor 'c' should be in 's2'");
  refused(R"({"a":"s1","b":"s3"})", Code::kBadFile, "tensor 'a' is in");
  refused(R"({"a":"s1","a":"s3"})", Code::kBadFile, "comes twice");
  refused(R"({"a":"../s1"})", Code::kBadFile, "'../s1' is not a plain name");
  refused(R"({"a":"/etc/passwd"})", Code::kBadFile, "not a plain name");
  refused(R"({"a":"sub/s1"})", Code::kBadFile, "not a plain name");
  refused(R"({"a":".."})", Code::kBadFile, "not a plain name");
  refused(R"({"a":""})", Code::kBadFile, "not a plain name");
  refused(R"({"a":"s1\u0000x"})", Code::kBadFile, "not a plain name");
  refused(R"({"a":7})", Code::kBadFile, "its file is a number");
  refused(R"([])", Code::kBadFile, "'weight_map' must be an object");
  TempDir dir;
  dir.Write(
      "s1",
      SafetensorsBytes(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"x":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
          "12345678"));
  dir.Write("model.safetensors.index.json", R"({"weight_map":{"a":"s1"}})");
  const auto extra = SafeTensors::OpenDirectory(dir.path());
  EXPECT_EQ(extra.status().code(), Code::kBadFile);
  EXPECT_NE(extra.status().message().find("tensor 'x' is not in"), std::string::npos)
      << extra.status().message();
}

}  // namespace
}  // namespace glint::gguf
