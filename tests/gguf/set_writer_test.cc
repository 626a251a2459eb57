// Sets of files whose making is cut off: what the next run takes over, and what nobody may take away.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "gguf/copy.h"
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

TEST(SetWriter, LeavesAFileAloneThatAppearsMeanwhile) {
  const TempDir folder;
  Source source;
  auto options = source.Options();
  options.progress = [&](uint64_t done, uint64_t total) {
    if (done == total) folder.Write("x-00002-of-00003.gguf", "precious");
    return true;
  };
  const auto made = source.Make().WriteSet(folder.Path("x.gguf"), options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("x-00002-of-00003.gguf"), std::string::npos)
      << made.status().message();
  EXPECT_EQ(folder.Read("x-00002-of-00003.gguf"), "precious");
  // What was made is kept; without leave to replace it is refused again, and then it is only named.
  EXPECT_FALSE(source.Make().WriteSet(folder.Path("x.gguf"), source.Options()).ok());
  EXPECT_EQ(folder.Read("x-00002-of-00003.gguf"), "precious");
  options = source.Options();
  options.replace = true;
  const auto again = source.Make().WriteSet(folder.Path("x.gguf"), options);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(source.produced, kTensors);
  EXPECT_EQ(folder.List().size(), 3u);
}

TEST(SetWriter, AFewBytesOfOthersAreNoJournal) {
  const TempDir folder;
  for (const char* notes : {"g", "glint", "glint-journal-2"}) {
    Source source;
    folder.Write("x.gguf.journal", notes);
    EXPECT_FALSE(source.Make().WriteSet(folder.Path("x.gguf"), source.Options()).ok()) << notes;
    EXPECT_EQ(folder.Read("x.gguf.journal"), notes);
  }
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

// What lies under the names of unfinished files may be another file's second name: that keeps its bytes.
TEST(SetWriter, RestartLeavesLinkedFilesAlone) {
  const TempDir folder;
  const std::string theirs = "bytes of someone else's";
  folder.Write("precious", theirs);
  std::filesystem::create_hard_link(folder.Path("precious"), folder.Path("x-00002-of-00003.gguf.part"));
  Source first, second;
  auto options = first.Options();
  options.restart = true;
  const auto made = first.Make().WriteSet(folder.Path("x.gguf"), options);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(folder.Read("precious"), theirs);
  std::filesystem::create_hard_link(folder.Path("precious"), folder.Path("x.gguf.journal"));
  options = second.Options();
  options.restart = options.replace = true;
  const auto refused = second.Make().WriteSet(folder.Path("x.gguf"), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("hard link"), std::string::npos) << refused.status().message();
  EXPECT_EQ(folder.Read("precious"), theirs);
}

// A folder takes the last part's name while the last tensor is noted.
Writer::SetOptions TakingTheLastName(Source& source, const TempDir& folder) {
  auto options = source.Options();
  options.remember = [&folder](size_t i) {
    if (i + 1 == kTensors) std::filesystem::create_directory(folder.Path("x-00003-of-00003.gguf"));
    return "note " + std::to_string(i);
  };
  return options;
}

// Something has taken the last name: hours of work are not thrown away for that, and the next run only names them.
TEST(SetWriter, WholePartsSurviveANameThatFails) {
  const TempDir folder;
  Source first, second;
  const auto failed = first.Make().WriteSet(folder.Path("x.gguf"), TakingTheLastName(first, folder));
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
  ASSERT_FALSE(first.Make().WriteSet(folder.Path("x.gguf"), TakingTheLastName(first, folder)).ok());
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

// One tensor of kPieces pieces, each given in its own call. How often each was made is counted where a killed process leaves it.
class LongTensor {
 public:
  static constexpr uint64_t kPieces = 64, kPieceBytes = 96;

  LongTensor()
      : made_(static_cast<int*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  LongTensor(const LongTensor&) = delete;
  ~LongTensor() { munmap(made_, kBytes); }

  // Waits `pause` microseconds after each piece.
  Result<Writer::SetSummary> Write(const std::string& path, int pause) {
    Writer writer;
    writer.SetString("general.architecture", "glm5next");
    writer.AddTensor("small", 0, {4}, 16,
                     [](const Writer::Sink& sink) { return sink(std::vector<std::byte>(16)); });
    writer.AddLongTensor("large", 0, {kPieces * kPieceBytes / 4}, kPieces * kPieceBytes,
                         [&, pause](uint64_t from, const Writer::Sink& sink) -> Status {
                           EXPECT_EQ(from % kPieceBytes, 0u);
                           EXPECT_EQ(from / kPieceBytes, recalled_) << "recall must come before the rest";
                           for (at_ = from / kPieceBytes; at_ < kPieces;) {
                             ++made_[at_];
                             const std::vector<std::byte> bytes(kPieceBytes,
                                                                static_cast<std::byte>(at_ * 7 + 1));
                             ++at_;
                             if (Status s = sink(bytes); !s.ok()) return s;
                             std::this_thread::sleep_for(std::chrono::microseconds(pause));
                           }
                           return {};
                         });
    Writer::SetOptions options;
    options.identity = "long";
    options.piece_bytes = 2 * kPieceBytes;
    options.remember = [this](size_t i) { return i == 1 ? std::to_string(at_) : std::string(); };
    options.recall = [this](size_t i, const std::string& line) {
      if (i == 1) recalled_ = std::stoul(line);
    };
    recalled_ = 0;
    return writer.WriteSet(path, options);
  }
  int made(uint64_t piece) const { return made_[piece]; }
  // Pieces that were begun.
  uint64_t begun() const {
    uint64_t n = 0;
    while (n < kPieces && made_[n] > 0) ++n;
    return n;
  }

 private:
  static constexpr size_t kBytes = kPieces * sizeof(int);
  int* const made_;
  uint64_t at_ = 0, recalled_ = 0;
};

TEST(SetWriter, KilledWithinATensorItGoesOnThere) {
  const TempDir whole, folder;
  LongTensor all;
  ASSERT_TRUE(all.Write(whole.Path("x.gguf"), 0).ok());
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  uint64_t taken_over = 0;
  for (int round = 0; round < 10; ++round) {
    LongTensor tensor;
    for (int kills = 0; kills < 2; ++kills) {
      const pid_t child = fork();
      if (child == 0) {
        (void)tensor.Write(folder.Path("x.gguf"), 300);
        _exit(0);
      }
      // Somewhere within the tensor, however slow the machine is; or where it is written already.
      const uint64_t pieces = rng() % (LongTensor::kPieces + 4);
      bool ended = false;
      while (!ended && tensor.begun() < pieces) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        ended = waitpid(child, nullptr, WNOHANG) == child;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(rng() % 1000));
      if (!ended) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
      }
      if (std::filesystem::exists(folder.Path("x.gguf"))) break;
    }
    if (!std::filesystem::exists(folder.Path("x.gguf")) ||
        std::filesystem::exists(folder.Path("x.gguf.journal"))) {
      const uint64_t begun = tensor.begun();
      std::vector<int> before;
      for (uint64_t p = 0; p < LongTensor::kPieces; ++p) before.push_back(tensor.made(p));
      const auto made = tensor.Write(folder.Path("x.gguf"), 0);
      ASSERT_TRUE(made.ok()) << made.status().message();
      // All that was noted is there: a note stands for two pieces, and the last piece begun may not be written.
      const uint64_t there = made->taken_over_bytes / LongTensor::kPieceBytes;
      EXPECT_GE(there + 2, begun);
      for (uint64_t p = 0; p < LongTensor::kPieces; ++p)
        EXPECT_EQ(tensor.made(p) - before[p], p < there ? 0 : 1) << p;
      taken_over += there;
    }
    EXPECT_TRUE(folder.Read("x.gguf") == whole.Read("x.gguf"));
    EXPECT_EQ(folder.List().size(), 1u);
    std::filesystem::remove(folder.Path("x.gguf"));
  }
  EXPECT_GT(taken_over, 0u);
}

// Of pieces that are no longer as the journal says, those before the first such one count, and no others; and what was made in their
// place counts when that run is killed too.
TEST(SetWriter, ADamagedPieceIsMadeAgainAndAllAfterIt) {
  const TempDir whole, folder;
  LongTensor all, tensor;
  ASSERT_TRUE(all.Write(whole.Path("x.gguf"), 0).ok());
  const auto killed_at = [&](uint64_t pieces) {
    const pid_t child = fork();
    if (child == 0) {
      (void)tensor.Write(folder.Path("x.gguf"), 2000);
      _exit(0);
    }
    while (tensor.begun() < pieces) std::this_thread::sleep_for(std::chrono::microseconds(100));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  };
  const auto damage = [&](uint64_t piece) {
    std::string part = folder.Read("x.gguf.part");
    const size_t at =
        whole.Read("x.gguf").size() - (LongTensor::kPieces - piece) * LongTensor::kPieceBytes + 5;
    part[at] = static_cast<char>(part[at] ^ 1);
    folder.Write("x.gguf.part", part);
  };
  killed_at(20);
  damage(9);
  killed_at(30);
  for (uint64_t p = 0; p < 20; ++p) EXPECT_EQ(tensor.made(p), p < 8 ? 1 : 2) << p;
  const uint64_t begun = tensor.begun();
  damage(begun - 5);
  const auto made = tensor.Write(folder.Path("x.gguf"), 0);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->taken_over_bytes, 16 + (begun - 5) / 2 * 2 * LongTensor::kPieceBytes);
  EXPECT_TRUE(folder.Read("x.gguf") == whole.Read("x.gguf"));
}

// No file is larger than allowed, header and padding included, and none could have held the next tensor too.
TEST(SetWriter, FilesAreAsLargeAsAllowed) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 12; ++round) {
    const TempDir folder;
    const uint64_t alignment = uint64_t{8} << rng() % 8;
    Writer writer;
    writer.SetString("general.name", std::string(rng() % 300, 'n'));
    writer.SetU32("general.alignment", static_cast<uint32_t>(alignment));
    const int tensors = 2 + static_cast<int>(rng() % 12);
    uint64_t largest = 0;
    for (int i = 0; i < tensors; ++i) {
      const uint64_t floats = 1 + rng() % 200;
      largest = std::max(largest, 4 * floats);
      writer.AddTensor("t" + std::to_string(i), 0, {floats}, 4 * floats, [floats](const Writer::Sink& sink) {
        return sink(std::vector<std::byte>(4 * floats, std::byte{1}));
      });
    }
    Writer::SetOptions options;
    options.shard_bytes = largest + 4 * alignment + 500 + rng() % 1500;
    const auto made = writer.WriteSet(folder.Path("x.gguf"), options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    uint64_t bytes = 0;
    for (const std::string& path : made->paths) {
      const uint64_t size = std::filesystem::file_size(path);
      EXPECT_LE(size, options.shard_bytes) << path;
      bytes += size;
    }
    EXPECT_EQ(bytes, made->bytes);
    const auto file = File::Open(made->paths.front(), test::FewTypes);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_EQ(file->tensors().size(), static_cast<size_t>(tensors));
    EXPECT_EQ(*file->GetUint("general.alignment"), alignment);
    for (size_t i = 1; i < file->tensors().size(); ++i) {
      const TensorInfo &last = file->tensors()[i - 1], &next = file->tensors()[i];
      EXPECT_EQ(next.offset % alignment, 0u);
      if (last.file == next.file) continue;
      // As one more entry would have made the header longer: by at most its bytes and a padding.
      const uint64_t size = std::filesystem::file_size(file->paths()[static_cast<size_t>(last.file)]);
      EXPECT_GT(size + next.bytes + 100 + 2 * alignment, options.shard_bytes);
    }
    // What the message calls enough is enough, and a byte less is not.
    options.shard_bytes = 100;
    for (int tries = 0; tries < 20; ++tries) {
      const auto small = writer.WriteSet(folder.Path("y.gguf"), options);
      if (small.ok()) break;
      const std::string words = small.status().message();
      const size_t at = words.find("allow ");
      ASSERT_NE(at, std::string::npos) << words;
      const uint64_t wanted = std::stoul(words.substr(at + 6));
      ASSERT_GT(wanted, options.shard_bytes) << words;
      options.shard_bytes = wanted - 1;
      EXPECT_FALSE(writer.WriteSet(folder.Path("y.gguf"), options).ok());
      options.shard_bytes = wanted;
    }
    EXPECT_TRUE(std::filesystem::exists(folder.Path("y.gguf")) || folder.List().size() > made->paths.size());
  }
}

TEST(Copy, KeepsTheAlignmentAndRefusesTypesOfUnknownSize) {
  const TempDir folder;
  test::GgufBytes bytes;
  bytes.alignment = 256, bytes.alignment_key = true;
  bytes.Text("general.architecture", "x");
  bytes.tensors = {{"a", {3}, 0, std::string(12, 'a')}, {"b", {64}, 0, std::string(256, 'b')}};
  folder.Write("a.gguf", bytes.Bytes());
  const auto file = File::Open(folder.Path("a.gguf"), test::FewTypes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(Copy(*file, folder.Path("b.gguf"), Writer::SetOptions()).ok());
  const auto copy = File::Open(folder.Path("b.gguf"), test::FewTypes);
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ(*copy->GetUint("general.alignment"), 256u);
  EXPECT_EQ(copy->FindTensor("b")->offset % 256, 0u);
  EXPECT_EQ(copy->metadata().size(), file->metadata().size());

  bytes.tensors.push_back({"c", {64}, 99, std::string(256, 'c')});
  folder.Write("c.gguf", bytes.Bytes());
  const auto strange = File::Open(folder.Path("c.gguf"), test::FewTypes);
  ASSERT_TRUE(strange.ok()) << strange.status().message();
  const auto refused = Copy(*strange, folder.Path("d.gguf"), Writer::SetOptions());
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  EXPECT_NE(refused.status().message().find("'c'"), std::string::npos) << refused.status().message();
}

TEST(Writer, AlignmentsThatNoReaderTakesAreRefused) {
  const TempDir folder;
  for (const uint32_t alignment : {0u, 4u, 24u, 1u << 31}) {
    Writer writer;
    writer.SetU32("general.alignment", alignment);
    EXPECT_FALSE(writer.WriteSet(folder.Path("x.gguf"), Writer::SetOptions()).ok()) << alignment;
    EXPECT_FALSE(writer.Write(folder.Path("x.gguf"), {}).ok()) << alignment;
    EXPECT_TRUE(folder.List().empty());
  }
}

}  // namespace
}  // namespace glint::gguf
