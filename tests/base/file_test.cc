#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/base/temp_dir.h"

namespace glint {
namespace {

using test::TempDir;

std::span<const std::byte> Bytes(std::string_view s) { return std::as_bytes(std::span(s.data(), s.size())); }

std::string_view Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytesAndKeepsTheirAddressWhenMoved) {
  TempDir dir;
  const std::string path = dir.Write("a", "hello");
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::byte* const address = file->bytes().data();
  MappedFile moved = *std::move(file);
  EXPECT_EQ(Text(moved), "hello");
  EXPECT_EQ(moved.path(), path);
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.bytes().data(), address);
  std::filesystem::remove(path);
  EXPECT_EQ(Text(assigned), "hello");
}

TEST(MappedFile, OfAnEmptyFileIsEmpty) {
  TempDir dir;
  auto file = MappedFile::Open(dir.Write("empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, RefusesWhatIsNoFileWithoutWaiting) {
  TempDir dir;
  ASSERT_EQ(mkfifo(dir.Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(dir.Path("pipe")).status().code(), Code::kBadInput);
  EXPECT_EQ(MappedFile::Open(dir.path()).status().code(), Code::kBadInput);
  EXPECT_EQ(MappedFile::Open("/dev/zero").status().code(), Code::kBadInput);
  const Status missing = MappedFile::Open(dir.Path("miss\x1bing")).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_NE(missing.message().find("miss\\x1bing"), std::string::npos) << missing.message();
}

TEST(ReadFile, ReadsUpToTheLimitAndNoMore) {
  TempDir dir;
  const std::string path = dir.Write("a", std::string(100, 'x'));
  EXPECT_EQ(*ReadFile(path, 100), std::string(100, 'x'));
  EXPECT_EQ(ReadFile(path, 99).status().code(), Code::kBadFile);
  EXPECT_EQ(ReadFile(dir.Path("b")).status().code(), Code::kNotFound);
}

TEST(SameFile, SeesThroughLinksAndSpellings) {
  TempDir dir;
  const std::string a = dir.Write("a", "1"), b = dir.Write("b", "1");
  std::filesystem::create_hard_link(a, dir.Path("hard"));
  std::filesystem::create_symlink("a", dir.Path("soft"));
  EXPECT_TRUE(SameFile(a, dir.Path("hard")));
  EXPECT_TRUE(SameFile(a, dir.Path("soft")));
  EXPECT_TRUE(SameFile(a, dir.Path("./a")));
  EXPECT_FALSE(SameFile(a, b));
  EXPECT_FALSE(SameFile(a, dir.Path("none")));
  EXPECT_FALSE(SameFile(dir.Path("none"), dir.Path("none")));
}

TEST(SamePlace, AlsoOfFilesThatAreNotThereYet) {
  TempDir dir;
  std::filesystem::create_directory(dir.Path("sub"));
  std::filesystem::create_symlink("sub", dir.Path("link"));
  std::filesystem::create_symlink("sub/new", dir.Path("leads"));
  EXPECT_TRUE(SamePlace(dir.Path("sub/new"), dir.Path("link/new")));
  EXPECT_TRUE(SamePlace(dir.Path("sub/../sub/new"), dir.Path("leads")));
  EXPECT_FALSE(SamePlace(dir.Path("sub/new"), dir.Path("new")));
  EXPECT_FALSE(SamePlace(dir.Path("sub/new"), dir.Path("sub/other")));
  dir.Write("sub/other", "x");
  EXPECT_FALSE(SamePlace(dir.Path("sub/new"), dir.Path("sub/other")));
  EXPECT_TRUE(SamePlace(dir.Path("link/other"), dir.Path("sub/other")));
}

// Every way, as file systems lack the first two.
TEST(RenameToNew, TakesNoNameThatIsTaken) {
  for (const NewName way : {NewName::kRename, NewName::kLink, NewName::kLook}) {
    SCOPED_TRACE(static_cast<int>(way));
    TempDir dir;
    dir.Write("from", "new");
    dir.Write("taken", "precious");
    std::filesystem::create_symlink("nowhere", dir.Path("dangling"));
    EXPECT_EQ(RenameToNew(AT_FDCWD, dir.Path("from"), dir.Path("taken"), way), EEXIST);
    EXPECT_EQ(RenameToNew(AT_FDCWD, dir.Path("from"), dir.Path("dangling"), way), EEXIST);
    EXPECT_EQ(dir.Read("taken"), "precious");
    EXPECT_EQ(dir.Read("from"), "new");
    EXPECT_EQ(RenameToNew(AT_FDCWD, dir.Path("from"), dir.Path("free"), way), 0);
    EXPECT_EQ(dir.Read("free"), "new");
    EXPECT_FALSE(std::filesystem::exists(dir.Path("from")));
  }
}

TEST(AtomicFile, LeavesAFileAloneThatAppearsMeanwhile) {
  TempDir dir;
  auto file = AtomicFile::Create(dir.Path("out"), {}, 0666, false);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(file->Write(Bytes("new")).ok());
  dir.Write("out", "precious");
  const Status status = file->Commit();
  EXPECT_EQ(status.code(), Code::kBadInput);
  EXPECT_NE(status.message().find("out.new"), std::string::npos) << status.message();
  EXPECT_EQ(dir.Read("out"), "precious");
  EXPECT_EQ(dir.Read("out.new"), "new");  // hours of work are not lost by it
  EXPECT_EQ(dir.List().size(), 2u);
  const auto there = AtomicFile::Create(dir.Path("out"), {}, 0666, false);
  ASSERT_FALSE(there.ok());
  EXPECT_NE(there.status().message().find("--force"), std::string::npos) << there.status().message();
}

TEST(AtomicFile, AppearsWholeAtCommit) {
  TempDir dir;
  auto file = AtomicFile::Create(dir.Path("out"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(file->Reserve(1 << 20).ok());
  ASSERT_TRUE(file->Write(Bytes("hello world")).ok());
  ASSERT_TRUE(file->WriteAt(0, Bytes("HE")).ok());
  EXPECT_EQ(file->size(), 11u);
  EXPECT_EQ(file->WriteAt(10, Bytes("xy")).code(), Code::kInternal);
  ASSERT_TRUE(file->Write(Bytes("!")).ok());
  EXPECT_FALSE(std::filesystem::exists(dir.Path("out")));
  AtomicFile moved = *std::move(file);
  ASSERT_TRUE(moved.Commit().ok());
  EXPECT_EQ(dir.Read("out"), "HEllo world!");
  EXPECT_EQ(dir.List(), std::vector<std::string>{"out"});
  EXPECT_EQ(moved.Write(Bytes("late")).code(), Code::kInternal);
  EXPECT_EQ(moved.Commit().code(), Code::kInternal);
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  TempDir dir;
  dir.Write("out", "old");
  {
    auto file = AtomicFile::Create(dir.Path("out"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write(Bytes("new")).ok());
    EXPECT_EQ(dir.List().size(), 2u);
  }
  EXPECT_EQ(dir.List(), std::vector<std::string>{"out"});
  EXPECT_EQ(dir.Read("out"), "old");
}

TEST(AtomicFile, SetAsideItIsThereOnlyWhileItIsWritten) {
  for (const bool there : {false, true}) {
    TempDir dir;
    if (there) {
      dir.Write("out", "old");
      std::filesystem::permissions(dir.Path("out"), std::filesystem::perms(0640));
    }
    auto file = AtomicFile::Create(dir.Path("out"), {}, 0644);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file->SetAside();
    EXPECT_EQ(dir.List().size(), there ? 1u : 0u);
    AtomicFile moved = *std::move(file);
    ASSERT_TRUE(moved.Write(Bytes("new")).ok());
    EXPECT_EQ(dir.List().size(), there ? 2u : 1u);
    ASSERT_TRUE(moved.Commit().ok());
    EXPECT_EQ(dir.Read("out"), "new");
    EXPECT_EQ(dir.List().size(), 1u);
    EXPECT_EQ(moved.Write(Bytes("late")).code(), Code::kInternal);
    if (there) {
      EXPECT_EQ(std::filesystem::status(dir.Path("out")).permissions(), std::filesystem::perms(0640));
    }
  }
  // Files that come in the meantime stay, as ever; without a word written there is an empty file.
  TempDir dir;
  auto file = AtomicFile::Create(dir.Path("out"), {}, 0666, false);
  ASSERT_TRUE(file.ok());
  file->SetAside();
  dir.Write("out", "precious");
  ASSERT_TRUE(file->Write(Bytes("new")).ok());
  EXPECT_EQ(file->Commit().code(), Code::kBadInput);
  EXPECT_EQ(dir.Read("out"), "precious");
  EXPECT_EQ(dir.Read("out.new"), "new");
  auto empty = AtomicFile::Create(dir.Path("empty"));
  ASSERT_TRUE(empty.ok());
  empty->SetAside();
  ASSERT_TRUE(empty->Commit().ok());
  EXPECT_EQ(dir.Read("empty"), "");
}

TEST(AtomicFile, UsesANewNameEachTime) {
  TempDir dir;
  auto a = AtomicFile::Create(dir.Path("out"));
  auto b = AtomicFile::Create(dir.Path("out"));
  ASSERT_TRUE(a.ok() && b.ok());
  auto names = dir.List();
  ASSERT_EQ(names.size(), 2u);
  std::sort(names.begin(), names.end());
  EXPECT_NE(names[0], names[1]);
}

TEST(AtomicFile, RefusesToReplaceAnInput) {
  TempDir dir;
  const std::string in = dir.Write("in", "precious");
  std::filesystem::create_hard_link(in, dir.Path("hard"));
  std::filesystem::create_symlink(in, dir.Path("soft"));
  std::filesystem::create_symlink("soft", dir.Path("softer"));
  const std::vector<std::string> inputs = {dir.Write("other", ""), in};
  for (const char* name : {"in", "hard", "soft", "softer", "./in"}) {
    const Status status = AtomicFile::Create(dir.Path(name), inputs).status();
    EXPECT_EQ(status.code(), Code::kBadInput) << name;
    EXPECT_NE(status.message().find(in), std::string::npos) << status.message();
  }
  EXPECT_TRUE(AtomicFile::Create(dir.Path("new"), inputs).ok());
  EXPECT_EQ(dir.Read("in"), "precious");
  EXPECT_EQ(dir.List().size(), 5u);
}

TEST(AtomicFile, WritesThroughASymlinkThatStays) {
  TempDir dir;
  std::filesystem::create_directory(dir.Path("sub"));
  std::filesystem::create_symlink("sub/real", dir.Path("link"));
  for (const char* text : {"first", "second"}) {  // the link leads nowhere at first
    auto file = AtomicFile::Create(dir.Path("link"));
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_TRUE(file->Write(Bytes(text)).ok());
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_TRUE(std::filesystem::is_symlink(dir.Path("link")));
    EXPECT_EQ(dir.Read("sub/real"), text);
  }
  std::filesystem::create_symlink("loop", dir.Path("loop"));
  EXPECT_FALSE(AtomicFile::Create(dir.Path("loop")).ok());
}

TEST(AtomicFile, KeepsPermissionsAndRespectsTheMask) {
  TempDir dir;
  const auto mode = [&](const char* name) {
    struct stat status {};
    EXPECT_EQ(stat(dir.Path(name).c_str(), &status), 0);
    return status.st_mode & 0777u;
  };
  dir.Write("old", "x");
  chmod(dir.Path("old").c_str(), 0646);
  const mode_t mask = umask(027);
  for (const char* name : {"old", "new"}) {
    auto file = AtomicFile::Create(dir.Path(name));
    ASSERT_TRUE(file.ok() && file->Commit().ok());
  }
  umask(mask);
  EXPECT_EQ(mode("old"), 0646u);
  EXPECT_EQ(mode("new"), 0640u);
}

TEST(AtomicFile, RefusesPlacesThatAreNoFiles) {
  TempDir dir;
  std::filesystem::create_directory(dir.Path("sub"));
  EXPECT_EQ(AtomicFile::Create(dir.Path("sub")).status().code(), Code::kBadInput);
  EXPECT_EQ(AtomicFile::Create(dir.Path("sub/")).status().code(), Code::kBadInput);
  EXPECT_EQ(AtomicFile::Create("/dev/null").status().code(), Code::kBadInput);
  EXPECT_EQ(AtomicFile::Create(dir.Path("none/out")).status().code(), Code::kNotFound);
  EXPECT_EQ(AtomicFile::Create("").status().code(), Code::kBadInput);
}

// The file size limit stands for a full disk: both end in a short write and an error.
TEST(AtomicFile, SaysThereIsNoRoomAndCleansUp) {
  TempDir dir;
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status;
  {
    auto file = AtomicFile::Create(dir.Path("out"));
    EXPECT_TRUE(file.ok());
    if (file.ok()) status = file->Write(Bytes(std::string(10000, 'x')));
  }
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::kNoRoom) << status.message();
  EXPECT_NE(status.message().find(dir.Path("out")), std::string::npos);
  EXPECT_TRUE(dir.List().empty());
}

TEST(AtomicFile, ReserveSeesThatNoDiskIsSoLarge) {
  TempDir dir;
  auto file = AtomicFile::Create(dir.Path("out"));
  ASSERT_TRUE(file.ok());
  const Status status = file->Reserve(uint64_t{1} << 60);
  // File systems that cannot reserve say nothing; those that can must not say yes.
  if (!status.ok()) {
    EXPECT_EQ(status.code(), Code::kNoRoom) << status.message();
  }
}

// Fetching says what an access would end the process for.
TEST(MappedFile, FetchFindsPagesThatAreGone) {
  TempDir dir;
  const std::string path = dir.path() + "/file";
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::ofstream(path) << std::string(3 * page + 5, 'x');
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto bytes = file->bytes();
  EXPECT_TRUE(MappedFile::Fetch({}));
  EXPECT_TRUE(MappedFile::Fetch(bytes));
  EXPECT_TRUE(MappedFile::Fetch(bytes.subspan(page - 1, 2)));
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(page)), 0);
  EXPECT_TRUE(MappedFile::Fetch(bytes.first(page)));
  if (madvise(const_cast<std::byte*>(bytes.data()), page, MADV_POPULATE_READ) != 0)
    GTEST_SKIP() << "this kernel has no MADV_POPULATE_READ";
  EXPECT_FALSE(MappedFile::Fetch(bytes));
  EXPECT_FALSE(MappedFile::Fetch(bytes.subspan(page, 1)));
  const std::vector<std::byte> heap(10 * page + 1);
  EXPECT_TRUE(MappedFile::Fetch(heap));
}

}  // namespace
}  // namespace glint
