#include "gguf/gguf.h"

#include <gtest/gtest.h>

#include "tests/base/temp_dir.h"
#include "tests/gguf/bytes.h"

namespace glint::gguf {
namespace {

using test::FewTypes;
using test::GgufBytes;
using test::GoodGguf;
using test::TempDir;

std::string_view Data(const TensorInfo& tensor) {
  return {reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes)};
}

// The error of opening these bytes, which must be of `code`, name the file, and contain `words`.
void ExpectRefused(const std::string& bytes, Code code, std::string_view words) {
  TempDir dir;
  const std::string path = dir.Write("bad.gguf", bytes);
  const auto file = File::Open(path, FewTypes);
  ASSERT_FALSE(file.ok()) << words;
  EXPECT_EQ(file.status().code(), code) << file.status().message();
  EXPECT_TRUE(file.status().message().starts_with(path + ": ")) << file.status().message();
  EXPECT_NE(file.status().message().find(words), std::string::npos)
      << file.status().message() << "\nlacks " << words;
}

TEST(GgufFile, ReadsEveryKindOfValue) {
  TempDir dir;
  for (const uint32_t version : {2u, 3u}) {
    GgufBytes good = GoodGguf();
    good.version = version;
    auto opened = File::Open(dir.Write("good.gguf", good.Bytes()), FewTypes);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const File file = *std::move(opened);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.metadata().size(), 17u);
    EXPECT_EQ(file.metadata()[0].first, "general.architecture");
    EXPECT_EQ(file.file_bytes(), good.Bytes().size());
    EXPECT_EQ(*file.GetString("general.name"), "fox \x1b[31m\xff");
    EXPECT_EQ(*file.GetUint("k.u8"), 200u);
    EXPECT_EQ(*file.GetUint("k.u16"), 60000u);
    EXPECT_EQ(*file.GetUint("k.u32"), 4000000000u);
    EXPECT_EQ(*file.GetUint("k.u64"), uint64_t{1} << 63);
    EXPECT_EQ(std::get<int64_t>(file.Find("k.i8")->data), -100);
    EXPECT_EQ(std::get<int64_t>(file.Find("k.i16")->data), -30000);
    EXPECT_EQ(std::get<int64_t>(file.Find("k.i32")->data), -2000000000);
    EXPECT_EQ(std::get<int64_t>(file.Find("k.i64")->data), -(int64_t{1} << 62));
    EXPECT_EQ(*file.GetFloat("k.f32"), double{1e-5f});
    EXPECT_EQ(*file.GetFloat("k.f64"), 0.1);
    EXPECT_EQ(*file.GetBool("k.bool"), true);
    EXPECT_EQ(*file.GetUints("k.i32s"), (std::vector<uint64_t>{0, 0, 1, 0}));
    EXPECT_EQ(*file.GetUints("k.u8"), std::vector<uint64_t>{200});
    EXPECT_EQ(*file.GetFloats("k.f32s"), (std::vector<double>{1.5, -2}));
    EXPECT_EQ(*file.GetStrings("k.texts"), (std::vector<std::string>{"a", "", "狐"}));
    EXPECT_EQ(file.Find("k.bools")->kind, Kind::kArray);
  }
}

TEST(GgufFile, GettersSayWhatIsWrong) {
  TempDir dir;
  const std::string path = dir.Write("good.gguf", GoodGguf().Bytes());
  auto file = File::Open(path, FewTypes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->GetUint("none").status().code(), Code::kNotFound);
  EXPECT_EQ(file->GetUint("none").status().message(), path + ": key 'none' is missing");
  EXPECT_EQ(file->GetUint("k.i8").status().message(),
            path + ": key 'k.i8' is of type i8 -100; wanted is a whole number of at least 0");
  EXPECT_EQ(file->GetUints("k.f32s").status().message(),
            path + ": key 'k.f32s[0]' is of type f32; wanted is whole numbers of at least 0");
  EXPECT_EQ(file->GetUint("k.f32").status().code(), Code::kBadFile);
  EXPECT_EQ(file->GetFloat("k.u8").status().code(), Code::kBadFile);
  EXPECT_EQ(file->GetBool("k.u8").status().code(), Code::kBadFile);
  EXPECT_EQ(file->GetString("k.texts").status().code(), Code::kBadFile);
}

TEST(GgufFile, PlacesTensors) {
  TempDir dir;
  for (const uint64_t alignment : {8, 32, 64, 4096}) {
    GgufBytes good = GoodGguf();
    good.alignment = alignment;
    good.alignment_key = alignment != 32;
    auto opened = File::Open(dir.Write("good.gguf", good.Bytes()), FewTypes);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const File file = *std::move(opened);
    ASSERT_EQ(file.tensors().size(), good.tensors.size());
    for (const GgufBytes::Tensor& want : good.tensors) {
      const TensorInfo* const tensor = file.FindTensor(want.name);
      ASSERT_NE(tensor, nullptr) << want.name;
      EXPECT_EQ(tensor->dims, static_cast<int>(want.ne.size()));
      for (size_t d = 0; d < 4; ++d) EXPECT_EQ(tensor->ne[d], d < want.ne.size() ? want.ne[d] : 1);
      EXPECT_EQ(tensor->type, want.type);
      EXPECT_EQ(Data(*tensor), want.data) << want.name;
      EXPECT_EQ(tensor->offset % alignment, 0u);
    }
    EXPECT_EQ(file.FindTensor("none"), nullptr);
  }
}

TEST(GgufFile, KeepsTensorsOfUnknownTypesWithoutData) {
  TempDir dir;
  GgufBytes good = GoodGguf();
  good.tensors[1].type = 12345;
  auto file = File::Open(dir.Write("good.gguf", good.Bytes()), FewTypes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors()[1].type, 12345u);
  EXPECT_EQ(file->tensors()[1].bytes, 0u);
  EXPECT_EQ(file->tensors()[1].data, nullptr);
  EXPECT_EQ(Data(file->tensors()[2]), good.tensors[2].data);
}

TEST(GgufFile, WithoutTensorsMayEndAfterItsKeys) {
  TempDir dir;
  GgufBytes good = GoodGguf();
  good.tensors.clear();
  EXPECT_TRUE(File::Open(dir.Write("good.gguf", good.Bytes()), FewTypes).ok());
}

TEST(GgufFile, NeedsNoPaddingAfterTheLastTensor) {
  TempDir dir;
  const std::string good = GoodGguf().Bytes();
  const size_t padding = 32 - GoodGguf().tensors.back().data.size() % 32;
  EXPECT_TRUE(File::Open(dir.Write("good.gguf", good.substr(0, good.size() - padding)), FewTypes).ok());
  ExpectRefused(good.substr(0, good.size() - padding - 1), Code::kBadFile, "beyond the end of the file");
}

TEST(GgufFile, RefusesOtherFilesAndVersions) {
  ExpectRefused("", Code::kBadFile, "ends within the magic number");
  ExpectRefused("PK\x03\x04 and so on", Code::kBadFile, "'PK\\x03\\x04', not 'GGUF'");
  const std::string good = GoodGguf().Bytes();
  const auto version = [&](std::string_view four) { return std::string(good).replace(4, 4, four); };
  ExpectRefused(version({"\0\0\0\3", 4}), Code::kUnsupported, "big-endian");
  ExpectRefused(version({"\1\0\0\0", 4}), Code::kUnsupported, "version 1");
  ExpectRefused(version({"\4\0\0\0", 4}), Code::kBadFile, "version 4");
  ExpectRefused(version({"\0\0\0\0", 4}), Code::kBadFile, "version 0");
}

TEST(GgufFile, RefusesBadKeysAndAlignments) {
  const auto with = [](auto change) {
    GgufBytes file = GoodGguf();
    change(file);
    return file.Bytes();
  };
  ExpectRefused(with([](GgufBytes& f) { f.Text("general.name", "again"); }), Code::kBadFile,
                "'general.name': comes twice");
  ExpectRefused(with([](GgufBytes& f) { f.Text("", "x"); }), Code::kBadFile, "empty key");
  ExpectRefused(with([](GgufBytes& f) { f.Text("a\xff", "x"); }), Code::kBadFile,
                "'a\\xff' is not valid UTF-8");
  ExpectRefused(with([](GgufBytes& f) { f.Key<uint8_t>("b", 7, 2); }), Code::kBadFile,
                "'b': a bool of value 2");
  ExpectRefused(with([](GgufBytes& f) { f.Key<uint8_t>("b", 13, 2); }), Code::kBadFile, "'b': value type 13");
  ExpectRefused(with([](GgufBytes& f) { f.Numbers<uint64_t>("b", 9, {1}); }), Code::kUnsupported,
                "array of arrays");
  for (const uint64_t alignment : {0u, 1u, 4u, 24u, 0x80000000u}) {
    GgufBytes file = GoodGguf();
    file.Key("general.alignment", 4, static_cast<uint32_t>(alignment));
    ExpectRefused(file.Bytes(), Code::kBadFile, "'general.alignment': is " + std::to_string(alignment));
  }
  ExpectRefused(with([](GgufBytes& f) { f.Text("general.alignment", "32"); }), Code::kBadFile,
                "is of type string");
}

TEST(GgufFile, RefusesBadTensors) {
  const auto with = [](auto change) {
    GgufBytes file = GoodGguf();
    change(file.tensors[3]);
    return file.Bytes();
  };
  using Tensor = GgufBytes::Tensor;
  const std::string where = "'blk.0.ffn_up_exps.weight': ";
  ExpectRefused(with([](Tensor& t) { t.name = "token_embd.weight"; }), Code::kBadFile,
                "'token_embd.weight': comes twice");
  ExpectRefused(with([](Tensor& t) { t.name = "a\xc0"; }), Code::kBadFile, "'a\\xc0' is not valid UTF-8");
  ExpectRefused(with([](Tensor& t) { t.name.clear(); }), Code::kBadFile, "empty name");
  ExpectRefused(with([](Tensor& t) { t.name = std::string(256, 'x'); }), Code::kBadFile,
                "256 bytes; at most 255");
  ExpectRefused(with([](Tensor& t) { t.ne = {}; }), Code::kBadFile, where + "0 dimensions");
  ExpectRefused(with([](Tensor& t) { t.ne = {256, 1, 1, 1, 1}; }), Code::kBadFile, where + "5 dimensions");
  ExpectRefused(with([](Tensor& t) { t.ne = {256, 0}; }), Code::kBadFile, where + "dimension 1 is 0");
  ExpectRefused(with([](Tensor& t) {
                  t.ne = {uint64_t{1} << 32, uint64_t{1} << 32};
                }),
                Code::kBadFile, "more than 2^63");
  ExpectRefused(with([](Tensor& t) {
                  t.ne = {uint64_t{1} << 33, 1, uint64_t{1} << 30};
                }),
                Code::kBadFile, "more than 2^63");
  ExpectRefused(with([](Tensor& t) {
                  t.ne = {255, 1};
                }),
                Code::kBadFile, where + "rows of 255 weights; type 12 needs a multiple of 256");
  ExpectRefused(with([](Tensor& t) { t.type = 0, t.ne = {uint64_t{1} << 62}; }), Code::kBadFile,
                where + "more than 2^64 bytes");
  ExpectRefused(with([](Tensor& t) { t.ne = {256, 1000}; }), Code::kBadFile, "beyond the end of the file");
  ExpectRefused(with([](Tensor& t) { t.name = "esc\x1b[2J", t.ne = {0}; }), Code::kBadFile, "'esc\\x1b[2J'");
}

TEST(GgufFile, RefusesDataThatOverlapsOrIsUnaligned) {
  GgufBytes file = GoodGguf();
  file.tensors[1].ne = {64, 8};  // 544 bytes where 160 are
  ExpectRefused(file.Bytes(), Code::kBadFile, "'blk.0.ssm_conv1d_q.weight': data at 0x");
  ExpectRefused(file.Bytes(), Code::kBadFile, "overlaps that of 'blk.0.attn_q.weight'");
  // The writer kept to 8 and says nothing of it.
  file = GoodGguf();
  file.alignment = 8;
  ExpectRefused(file.Bytes(), Code::kBadFile, "is not a multiple of the alignment 32");
}

TEST(GgufFile, RefusesBytesThatBelongToNoTensor) {
  GgufBytes file = GoodGguf();
  file.tensors[1].ne = {64, 1};  // 68 bytes and their padding where 160 are
  ExpectRefused(file.Bytes(), Code::kBadFile, "'blk.0.ssm_conv1d_q.weight': data at 0x");
  ExpectRefused(file.Bytes(), Code::kBadFile, "64 bytes after 'blk.0.attn_q.weight' belong to no tensor");
  file = GoodGguf();
  file.tensors[0].type = 8;  // Q8_0 where F32 was written: the shape is as possible
  ExpectRefused(file.Bytes(), Code::kBadFile, "bytes after 'token_embd.weight' belong to no tensor");
  // Nobody can say how long data of an unknown type is.
  file = GoodGguf();
  file.tensors[1].type = 999;
  TempDir dir;
  EXPECT_TRUE(File::Open(dir.Write("unknown.gguf", file.Bytes()), FewTypes).ok());
}

struct Set {
  std::vector<GgufBytes> parts;
  std::string Name(size_t i) const {
    char name[64];
    snprintf(name, sizeof name, "model-%05zu-of-%05zu.gguf", i + 1, parts.size());
    return name;
  }
  // Writes all parts and opens the set by one of them.
  Result<File> Open(const TempDir& dir, size_t named = 0) const {
    for (size_t i = 0; i < parts.size(); ++i) dir.Write(Name(i), parts[i].Bytes());
    return File::Open(dir.Path(Name(named)), FewTypes);
  }
};

// Three parts, the first with all keys and no tensor, as published files are.
Set GoodSet() {
  Set set;
  set.parts.resize(3);
  const GgufBytes whole = GoodGguf();
  set.parts[0] = whole;
  set.parts[0].tensors.clear();
  for (size_t i = 0; i < whole.tensors.size(); ++i)
    set.parts[i < 2 ? 1 : 2].tensors.push_back(whole.tensors[i]);
  for (uint16_t i = 0; i < 3; ++i) set.parts[i].Split(i, 3, 5);
  return set;
}

TEST(GgufSplit, AnyPartOpensTheSet) {
  for (size_t named = 0; named < 3; ++named) {
    TempDir dir;
    const Set set = GoodSet();
    auto file = set.Open(dir, named);
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(file->paths().at(i), dir.Path(set.Name(i)));
    EXPECT_EQ(*file->GetString("general.architecture"), "glm5next");
    const GgufBytes whole = GoodGguf();
    ASSERT_EQ(file->tensors().size(), whole.tensors.size());
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(file->tensors()[i].name, whole.tensors[i].name);
      EXPECT_EQ(file->tensors()[i].file, i < 2 ? 1 : 2);
      EXPECT_EQ(Data(file->tensors()[i]), whole.tensors[i].data);
    }
  }
}

void ExpectSetRefused(const Set& set, size_t part, std::string_view words) {
  TempDir dir;
  const auto file = set.Open(dir, 1);
  ASSERT_FALSE(file.ok()) << words;
  const std::string& message = file.status().message();
  EXPECT_EQ(file.status().code(), Code::kBadFile) << message;
  EXPECT_TRUE(message.starts_with(dir.Path(set.Name(part)) + ": ")) << message;
  EXPECT_NE(message.find(words), std::string::npos) << message << "\nlacks " << words;
}

TEST(GgufSplit, RefusesForeignParts) {
  const auto keys = [](uint16_t number, uint16_t count, int32_t total) {
    GgufBytes file;
    file.Split(number, count, total);
    return file;
  };
  const auto with = [&](size_t i, GgufBytes part) {
    Set set = GoodSet();
    part.tensors = set.parts[i].tensors;
    set.parts[i] = part;
    return set;
  };
  ExpectSetRefused(with(2, keys(1, 3, 5)), 2, "'split.no' should be 2");
  ExpectSetRefused(with(2, keys(2, 4, 5)), 2, "'split.count' is 4");
  ExpectSetRefused(with(2, keys(2, 3, 6)), 2, "'split.tensors.count' should be");
  ExpectSetRefused(with(1, GgufBytes()), 1, "has no number 'split.count'");
  GgufBytes foreign = keys(2, 3, 5), same = foreign;
  foreign.Text("general.architecture", "glm5-next");
  ExpectSetRefused(with(2, foreign), 2, "'general.architecture' differs");
  same.Text("general.architecture", "glm5next");
  TempDir dir;
  EXPECT_TRUE(with(2, same).Open(dir).ok());
  Set twice = GoodSet();
  twice.parts[2].tensors[0] = twice.parts[1].tensors[0];
  ExpectSetRefused(twice, 2, "'token_embd.weight' is in ");
}

TEST(GgufSplit, RefusesMissingPartsAndWrongNames) {
  TempDir dir;
  const Set set = GoodSet();
  ASSERT_TRUE(set.Open(dir).ok());
  std::filesystem::remove(dir.Path(set.Name(1)));
  const Status missing = File::Open(dir.Path(set.Name(2)), FewTypes).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_TRUE(missing.message().starts_with(dir.Path(set.Name(1)))) << missing.message();
  std::filesystem::rename(dir.Path(set.Name(2)), dir.Path("part.gguf"));
  const Status lone = File::Open(dir.Path("part.gguf"), FewTypes).status();
  EXPECT_EQ(lone.code(), Code::kBadFile);
  EXPECT_NE(lone.message().find("'split.count' is 3"), std::string::npos) << lone.message();
  for (const char* name : {"m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-00001-of-99999.gguf"}) {
    EXPECT_EQ(File::Open(dir.Path(name), FewTypes).status().code(), Code::kBadInput) << name;
  }
  for (const char* name : {"m.gguf", "-00001-of-00003.gguf", "m-0001-of-0003.gguf", "m-00001-of-00003.bin",
                           "m-0000x-of-00003.gguf"}) {
    EXPECT_EQ(*SplitPaths(name), std::vector<std::string>{name});
  }
}

}  // namespace
}  // namespace glint::gguf
