// Sets of files whose making is cut off: what the next run takes over, and what nobody may take away.
#include <gtest/gtest.h>

#include "gguf/writer.h"
#include "tests/base/temp_dir.h"
#include "tests/gguf/bytes.h"

namespace glint::gguf {
namespace {

using test::TempDir;

constexpr int kTensors = 6;

// Counts what it produces; stops after `most`.
struct Source {
  int produced = 0, most = 1000;
  std::vector<std::string> recalled;

  Writer Make() {
    Writer writer;
    writer.SetString("general.architecture", "glm5next");
    for (int i = 0; i < kTensors; ++i) {
      writer.AddTensor("t" + std::to_string(i), 0, {16}, 64, [this, i](const Writer::Sink& sink) {
        ++produced;
        const std::vector<std::byte> bytes(64, static_cast<std::byte>('a' + i));
        return sink(bytes);
      });
    }
    return writer;
  }
  Writer::SetOptions Options() {
    Writer::SetOptions options;
    options.shard_tensors = 2;
    options.identity = "test";
    options.progress = [this](uint64_t, uint64_t) { return produced < most; };
    options.remember = [](size_t i) { return "note " + std::to_string(i); };
    options.recall = [this](size_t, const std::string& line) { recalled.push_back(line); };
    return options;
  }
};

std::vector<std::string> Contents(const TempDir& folder) {
  std::vector<std::string> out;
  for (int i = 1; i <= 3; ++i) out.push_back(folder.Read("x-0000" + std::to_string(i) + "-of-00003.gguf"));
  return out;
}

TEST(SetWriter, GoesOnAfterWhatWasDone) {
  const TempDir whole, folder;
  Source all;
  ASSERT_TRUE(all.Make().WriteSet(whole.Path("x.gguf"), all.Options()).ok());
  EXPECT_EQ(whole.List().size(), 3u);
  for (int most = 1; most <= kTensors; ++most) {
    SCOPED_TRACE(most);
    Source first{0, most, {}}, second;
    ASSERT_FALSE(first.Make().WriteSet(folder.Path("x.gguf"), first.Options()).ok());
    for (const std::string& name : folder.List())
      EXPECT_TRUE(name.ends_with(".part") || name.ends_with(".journal"));
    const auto made = second.Make().WriteSet(folder.Path("x.gguf"), second.Options());
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made->taken_over + static_cast<size_t>(second.produced), static_cast<size_t>(kTensors));
    EXPECT_GE(made->taken_over + 1, static_cast<size_t>(most));
    for (size_t i = 0; i < second.recalled.size(); ++i)
      EXPECT_EQ(second.recalled[i], "note " + std::to_string(i));
    EXPECT_EQ(Contents(folder), Contents(whole));
    EXPECT_EQ(folder.List().size(), 3u);
    for (const std::string& name : folder.List()) std::filesystem::remove(folder.Path(name));
  }
}

// A power cut can take what a kill leaves: bytes that are not as the journal says are made again.
TEST(SetWriter, LooksAtWhatTheJournalSays) {
  const TempDir whole, folder;
  Source all, first{0, 5, {}}, second;
  ASSERT_TRUE(all.Make().WriteSet(whole.Path("x.gguf"), all.Options()).ok());
  ASSERT_FALSE(first.Make().WriteSet(folder.Path("x.gguf"), first.Options()).ok());
  const std::string part = "x-00001-of-00003.gguf.part";
  std::string bytes = folder.Read(part);
  const size_t at = bytes.find("aaaa");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 10] = 'z';
  folder.Write(part, bytes);
  std::string journal = folder.Read("x.gguf.journal");
  folder.Write("x.gguf.journal", journal.substr(0, journal.size() - 20) + "garbage");
  const auto made = second.Make().WriteSet(folder.Path("x.gguf"), second.Options());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_GE(second.produced,
            3);  // the damaged one, the one whose line was damaged, the one that was never begun
  EXPECT_LT(second.produced, kTensors);
  EXPECT_EQ(Contents(folder), Contents(whole));
}

TEST(SetWriter, AnotherIdentityIsRefusedAndRestartDropsIt) {
  const TempDir folder;
  Source first{0, 3, {}}, second, third;
  ASSERT_FALSE(first.Make().WriteSet(folder.Path("x.gguf"), first.Options()).ok());
  auto options = second.Options();
  options.identity = "another";
  const auto refused = second.Make().WriteSet(folder.Path("x.gguf"), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kBadInput);
  EXPECT_NE(refused.status().message().find("--restart"), std::string::npos) << refused.status().message();
  EXPECT_EQ(second.produced, 0);
  options = third.Options();
  options.identity = "another", options.restart = true;
  const auto made = third.Make().WriteSet(folder.Path("x.gguf"), options);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->taken_over, 0u);
}

// Something has taken the last name: hours of work are not thrown away for that, and the next run only names them.
TEST(SetWriter, WholePartsSurviveANameThatFails) {
  const TempDir folder;
  Source first, second;
  auto options = first.Options();
  options.remember = [&](size_t i) {
    if (i + 1 == kTensors) std::filesystem::create_directory(folder.Path("x-00003-of-00003.gguf"));
    return "note " + std::to_string(i);
  };
  const auto failed = first.Make().WriteSet(folder.Path("x.gguf"), options);
  ASSERT_FALSE(failed.ok());
  EXPECT_TRUE(std::filesystem::exists(folder.Path("x-00003-of-00003.gguf.part")));
  std::filesystem::remove(folder.Path("x-00003-of-00003.gguf"));
  const auto made = second.Make().WriteSet(folder.Path("x.gguf"), second.Options());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(second.produced, 0);
  EXPECT_EQ(second.recalled.size(), static_cast<size_t>(kTensors));
  EXPECT_EQ(folder.List().size(), 3u);
  EXPECT_TRUE(File::Open(folder.Path("x-00001-of-00003.gguf"), test::FewTypes).ok());
}

// A part that was taken away between sealing and naming: no success without the file.
TEST(SetWriter, APartThatIsGoneIsNotSuccess) {
  const TempDir folder;
  Source first, second;
  auto options = first.Options();
  options.remember = [&](size_t i) {
    if (i + 1 == kTensors) std::filesystem::create_directory(folder.Path("x-00003-of-00003.gguf"));
    return "note " + std::to_string(i);
  };
  ASSERT_FALSE(first.Make().WriteSet(folder.Path("x.gguf"), options).ok());
  std::filesystem::remove(folder.Path("x-00003-of-00003.gguf"));
  ASSERT_TRUE(std::filesystem::remove(folder.Path("x-00003-of-00003.gguf.part")));
  const auto again = second.Make().WriteSet(folder.Path("x.gguf"), second.Options());
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find("it is gone"), std::string::npos) << again.status().message();
}

TEST(SetWriter, ATensorThatFailsLeavesNothing) {
  const TempDir folder;
  Writer writer;
  writer.AddTensor("t", 0, {16}, 64, [](const Writer::Sink&) { return Status(Code::kBadFile, "no"); });
  EXPECT_EQ(writer.WriteSet(folder.Path("x.gguf"), Writer::SetOptions()).status().message(), "no");
  EXPECT_TRUE(folder.List().empty());
}

}  // namespace
}  // namespace glint::gguf
