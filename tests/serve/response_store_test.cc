#include "serve/response_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <thread>

namespace glint::serve {
namespace {

namespace fs = std::filesystem;

class ResponseStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("glint_store_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path() const { return (folder_ / "responses.sqlite").string(); }
  std::unique_ptr<ResponseStore> Open(ResponseStoreOptions options = {}) {
    if (options.path.empty()) options.path = Path();
    auto store = ResponseStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return store.ok() ? std::move(store).value() : nullptr;
  }

  fs::path folder_;
};

std::string Id(int n) { return "resp_" + std::to_string(n); }

// Response n of a chain, unless `previous` is another; its conversation can be told from its numbers.
StoredResponse Numbered(int n, int previous = 0, std::vector<int32_t> tokens = {}, size_t padding = 0) {
  StoredResponse r;
  r.id = Id(n);
  if (previous != 0) r.previous = Id(previous);
  r.created = 1000 + n;
  const std::string number = std::to_string(n);
  r.body = "{\"body\":" + number + "}" + std::string(padding, ' ');
  r.input = "[\"in" + number + "\"]";
  r.output = "[\"out" + number + "\"]";
  r.tokens = std::move(tokens);
  return r;
}

void Put(ResponseStore& store, const StoredResponse& r) {
  const Status s = store.Put(r);
  EXPECT_TRUE(s.ok()) << r.id << ": " << s.message();
}

// Of one that is there: what its conversation says. "-": none.
std::string Said(ResponseStore& store, int n) {
  const auto found = store.Conversation(Id(n));
  EXPECT_TRUE(found.ok()) << found.status().message();
  if (!found.ok() || !found->has_value()) return "-";
  std::string all;
  for (const std::string& text : (*found)->items) all += text;
  return all;
}
std::vector<int32_t> Tokens(ResponseStore& store, int n) {
  const auto found = store.Conversation(Id(n));
  return found.ok() && found->has_value() ? (*found)->tokens : std::vector<int32_t>{-1};
}
bool Has(ResponseStore& store, int n) {
  const auto found = store.Get(Id(n));
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() && found->has_value();
}
uint64_t Rows(ResponseStore& store) { return store.Counts().value().turns; }

TEST_F(ResponseStoreTest, GivesWhatWasPut) {
  const auto store = Open();
  EXPECT_EQ(store->notice(), "");
  StoredResponse r = Numbered(1, 0, {1, 2, 3});
  r.body = "{\"x\":\"'; DROP TABLE responses; --\"}";
  r.input = std::string("[\"\0\"]", 5);
  Put(*store, r);
  const auto found = store->Get("resp_1");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->id, r.id);
  EXPECT_EQ((*found)->previous, "");
  EXPECT_EQ((*found)->created, 1001);
  EXPECT_EQ((*found)->body, r.body);
  EXPECT_EQ((*found)->input, r.input);
  EXPECT_EQ((*found)->output, r.output);
  EXPECT_EQ(store->Put(r).code(), Code::kBadInput);  // the id is taken
  EXPECT_FALSE(Has(*store, 2));
  EXPECT_EQ(Said(*store, 2), "-");
}

TEST_F(ResponseStoreTest, IdsAreCheckedAndMeanNothingElse) {
  const auto store = Open();
  Put(*store, Numbered(1));
  for (const std::string id : {"", "resp_", "1", "resp_1'", "resp_%", "resp_1 OR 1=1", "RESP_1", "resp_../1",
                               "resp_a_b", "resp_1\n"}) {
    SCOPED_TRACE(id);
    EXPECT_FALSE(IsResponseId(id));
    EXPECT_FALSE(store->Get(id).value().has_value());
    EXPECT_FALSE(store->Conversation(id).value().has_value());
    EXPECT_FALSE(store->Delete(id).value());
    StoredResponse r = Numbered(2);
    r.id = id;
    EXPECT_EQ(store->Put(r).code(), Code::kBadInput);
  }
  EXPECT_FALSE(IsResponseId("resp_" + std::string(129, 'a')));
  EXPECT_FALSE(IsResponseId(std::string("resp_a\0b", 8)));
  EXPECT_TRUE(IsResponseId("resp_" + NewResponseKey()));
  EXPECT_TRUE(Has(*store, 1));
}

TEST(ResponseKeys, AreLongAndNeverTheSame) {
  std::set<std::string> keys;
  std::set<char> letters;
  for (int i = 0; i < 1000; ++i) {
    const std::string key = NewResponseKey();
    EXPECT_EQ(key.size(), 32u);
    keys.insert(key);
    letters.insert(key.begin(), key.end());
  }
  EXPECT_EQ(keys.size(), 1000u);
  EXPECT_EQ(letters.size(), 62u);  // 32,000 draws miss one of 62 with a chance below 10^-220
}

TEST_F(ResponseStoreTest, ChainsSurviveARestart) {
  {
    const auto store = Open();
    Put(*store, Numbered(1, 0, {1, 2, 3}));
    Put(*store, Numbered(2, 1, {1, 2, 3, 4, 5}));
    Put(*store, Numbered(3, 2, {1, 2, 9}));  // of a prompt that went another way
    Put(*store, Numbered(4, 2, {}));         // and one whose tokens nobody said
    Put(*store, Numbered(5, 4, {7}));
  }
  const auto store = Open();
  EXPECT_EQ(store->notice(), "");
  EXPECT_EQ(Said(*store, 3), R"(["in1"]["out1"]["in2"]["out2"]["in3"]["out3"])");
  EXPECT_EQ(Said(*store, 5), R"(["in1"]["out1"]["in2"]["out2"]["in4"]["out4"]["in5"]["out5"])");
  EXPECT_EQ(Tokens(*store, 1), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(Tokens(*store, 2), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(Tokens(*store, 3), (std::vector<int32_t>{1, 2, 9}));
  EXPECT_EQ(Tokens(*store, 4), std::vector<int32_t>());
  EXPECT_EQ(Tokens(*store, 5), std::vector<int32_t>{7});
  EXPECT_EQ(store->Get(Id(3)).value()->previous, Id(2));
}

// A long conversation is kept once: each turn costs what it adds.
TEST_F(ResponseStoreTest, TurnsCostWhatTheyAdd) {
  const auto store = Open();
  std::vector<int32_t> tokens;
  for (int n = 1; n <= 50; ++n) {
    tokens.insert(tokens.end(), 100, n);
    Put(*store, Numbered(n, n - 1, tokens));
  }
  EXPECT_LT(store->Counts().value().bytes, 50u * (400 + 600));
  EXPECT_EQ(Tokens(*store, 50), tokens);
}

TEST_F(ResponseStoreTest, WhatIsDeletedStaysInLaterConversationsOnly) {
  const auto store = Open();
  for (int n = 1; n <= 3; ++n) Put(*store, Numbered(n, n - 1, std::vector<int32_t>(n, 5)));
  Put(*store, Numbered(4, 1));
  EXPECT_TRUE(store->Delete(Id(2)).value());
  EXPECT_FALSE(store->Delete(Id(2)).value());
  EXPECT_FALSE(Has(*store, 2));
  EXPECT_EQ(Said(*store, 2), "-");
  EXPECT_EQ(Said(*store, 3), R"(["in1"]["out1"]["in2"]["out2"]["in3"]["out3"])");
  EXPECT_EQ(Tokens(*store, 3), (std::vector<int32_t>{5, 5, 5}));
  EXPECT_EQ(Rows(*store), 4u);
  EXPECT_TRUE(store->Delete(Id(3)).value());  // 2 goes with it
  EXPECT_EQ(Rows(*store), 2u);
  EXPECT_TRUE(store->Delete(Id(1)).value());
  EXPECT_EQ(Said(*store, 4), R"(["in1"]["out1"]["in4"]["out4"])");
  EXPECT_TRUE(store->Delete(Id(4)).value());
  EXPECT_EQ(Rows(*store), 0u);
  EXPECT_EQ(store->Counts().value().bytes, 0u);
}

// Nothing of a deleted text is left in the file.
TEST_F(ResponseStoreTest, DeletedTextIsOverwritten) {
  {
    const auto store = Open();
    StoredResponse r = Numbered(1);
    r.input = "[\"" + std::string(20'000, 'q') + "SECRET\"]";
    Put(*store, r);
    Put(*store, Numbered(2));
    EXPECT_TRUE(store->Delete(Id(1)).value());
  }
  std::string all;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    all += text.str();
  }
  EXPECT_EQ(all.find("SECRET"), std::string::npos);
  EXPECT_NE(all.find("in2"), std::string::npos);
}

TEST_F(ResponseStoreTest, TheOldestLeaveABudgetOfResponses) {
  const auto store = Open({.max_responses = 3});
  for (int n = 1; n <= 5; ++n) Put(*store, Numbered(n));
  for (int n = 1; n <= 5; ++n) EXPECT_EQ(Has(*store, n), n >= 3) << n;
  EXPECT_EQ(Rows(*store), 3u);
}

TEST_F(ResponseStoreTest, TheOldestLeaveABudgetOfBytes) {
  const auto store = Open({.max_bytes = 50'000});
  for (int n = 1; n <= 20; ++n) {
    Put(*store, Numbered(n, 0, {}, 10'000));
    EXPECT_LE(store->Counts().value().bytes, 50'000u);
  }
  EXPECT_EQ(store->Counts().value().responses, 4u);
  EXPECT_TRUE(Has(*store, 20));
  EXPECT_FALSE(Has(*store, 16));
}

// What a conversation needs outlives the responses that said it; a conversation that is larger than the budget is refused, and what is
// there stays.
TEST_F(ResponseStoreTest, ChainsStayWholeInABudget) {
  const auto store = Open({.max_responses = 2, .max_bytes = 60'000});
  Put(*store, Numbered(99));
  std::string want;
  int n = 1;
  Status s;
  for (; n < 30; ++n) {
    StoredResponse r = Numbered(n, n - 1);
    r.input = "[\"" + std::string(5'000, static_cast<char>('a' + n)) + "\"]";
    s = store->Put(r);
    if (!s.ok()) break;
    want += r.input + r.output;
    ASSERT_TRUE(Said(*store, n) == want) << n;  // long texts, which nobody wants to see
    EXPECT_EQ(Has(*store, n - 2), false);
    EXPECT_LE(store->Counts().value().responses, 2u);
  }
  EXPECT_EQ(s.code(), Code::kNoRoom) << s.message();
  EXPECT_NE(s.message().find("60000 can be stored"), std::string::npos) << s.message();
  EXPECT_GE(n, 10);
  EXPECT_TRUE(Said(*store, n - 1) == want);
  EXPECT_TRUE(Has(*store, n - 2));
  Put(*store, Numbered(500));  // another conversation: the large one makes room
  Put(*store, Numbered(501));
  EXPECT_EQ(Rows(*store), 2u);
}

TEST_F(ResponseStoreTest, ASmallerBudgetHoldsAfterARestart) {
  {
    const auto store = Open();
    for (int n = 1; n <= 10; ++n) Put(*store, Numbered(n));
  }
  const auto store = Open({.max_responses = 4});
  EXPECT_EQ(store->Counts().value().responses, 4u);
  EXPECT_TRUE(Has(*store, 10));
}

TEST_F(ResponseStoreTest, TheFileShrinksWithTheBudget) {
  {
    const auto store = Open();
    for (int n = 1; n <= 100; ++n) Put(*store, Numbered(n, 0, {}, 50'000));
  }
  EXPECT_GT(fs::file_size(Path()), 5'000'000u);
  { const auto store = Open({.max_bytes = 500'000}); }
  EXPECT_LT(fs::file_size(Path()), 1'500'000u);
}

// Between reading a conversation and storing its next response others may have put the first out.
TEST_F(ResponseStoreTest, AResponseWhosePredecessorLeftHasTheConversation) {
  const auto store = Open();
  Put(*store, Numbered(1, 0, {1, 2}));
  EXPECT_TRUE(store->Delete(Id(1)).value());
  StoredResponse r = Numbered(2, 1, {1, 2, 3});
  r.before = R"(["in1","out1"])";
  Put(*store, r);
  EXPECT_EQ(Said(*store, 2), R"(["in1","out1"]["in2"]["out2"])");
  EXPECT_EQ(Tokens(*store, 2), (std::vector<int32_t>{1, 2, 3}));
}

TEST_F(ResponseStoreTest, OthersCannotReadTheFile) {
  const auto store = Open();
  Put(*store, Numbered(1));
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    struct stat status {};
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 3);  // the file, its log, the lock
}

TEST_F(ResponseStoreTest, MemoryNeedsNoFile) {
  const auto store = ResponseStore::Open({.max_responses = 2});
  ASSERT_TRUE(store.ok()) << store.status().message();
  for (int n = 1; n <= 3; ++n) Put(**store, Numbered(n, n - 1));
  EXPECT_EQ(Said(**store, 3), R"(["in1"]["out1"]["in2"]["out2"]["in3"]["out3"])");
  EXPECT_FALSE(Has(**store, 1));
}

TEST_F(ResponseStoreTest, TwoStoresShareAFile) {
  const auto a = Open(), b = Open();
  Put(*a, Numbered(1));
  Put(*b, Numbered(2, 1));
  Put(*a, Numbered(3, 2));
  EXPECT_EQ(Said(*b, 3), R"(["in1"]["out1"]["in2"]["out2"]["in3"]["out3"])");
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ResponseStore& store = t % 2 == 0 ? *a : *b;
      for (int i = 0; i < 25; ++i) {
        const int n = 100 + 25 * t + i;
        failed += !store.Put(Numbered(n, i == 0 ? 3 : n - 1)).ok();
        failed += !store.Get(Id(n)).value().has_value();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(a->Counts().value().responses, 103u);
  EXPECT_EQ(b->Counts().value().responses, 103u);
}

// A process that dies in the middle of its work leaves what it had finished.
TEST_F(ResponseStoreTest, AKilledProcessLosesNothing) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = ResponseStore::Open({.path = Path()});
    for (int n = 1; store.ok() && n < 100'000; ++n) {
      if (!(*store)->Put(Numbered(n, n - 1, {}, 3'000)).ok()) break;
      if (::write(pipe[1], &n, sizeof(n)) != sizeof(n)) break;
    }
    ::_exit(1);
  }
  ::close(pipe[1]);
  int last = 0;
  while (last < 100 && ::read(pipe[0], &last, sizeof(last)) == sizeof(last)) continue;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  int more = 0;
  while (::read(pipe[0], &more, sizeof(more)) == sizeof(more)) last = more;
  ::close(pipe[0]);
  ASSERT_GE(last, 100);
  const auto store = Open();
  EXPECT_EQ(store->notice(), "");
  EXPECT_TRUE(Has(*store, last));
  EXPECT_NE(Said(*store, last).find("\"out1\""), std::string::npos);
}

TEST_F(ResponseStoreTest, FoldersThatCannotBeWrittenToAreNamed) {
  const auto missing = ResponseStore::Open({.path = (folder_ / "no/such.sqlite").string()});
  EXPECT_EQ(missing.status().code(), Code::kNotFound) << missing.status().message();
  EXPECT_NE(missing.status().message().find("no/such.sqlite"), std::string::npos);
  std::ofstream(folder_ / "file") << "x";
  EXPECT_FALSE(ResponseStore::Open({.path = (folder_ / "file/x.sqlite").string()}).ok());
  fs::create_directories(folder_ / "folder.sqlite");
  EXPECT_FALSE(ResponseStore::Open({.path = (folder_ / "folder.sqlite").string()}).ok());
  if (::geteuid() != 0) {
    fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
    const auto closed = ResponseStore::Open({.path = Path()});
    EXPECT_EQ(closed.status().code(), Code::kIo) << closed.status().message();
    fs::permissions(folder_, fs::perms::owner_all);
  }
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}
void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_F(ResponseStoreTest, FilesThatAreNoneAreSetAside) {
  { Put(*Open(), Numbered(1)); }
  const std::string good = ReadAll(Path());
  sqlite3* db = nullptr;
  const std::string other = (folder_ / "other").string();
  ASSERT_EQ(sqlite3_open(other.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "CREATE TABLE t(a); PRAGMA application_id = 5", nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(db);
  const std::vector<std::string> bad{std::string(5000, 'x'), good.substr(0, good.size() / 2),
                                     good.substr(0, 100), ReadAll(other),
                                     good.substr(0, 4096) + std::string(good.size() - 4096, '\xff')};
  int n = 0;
  for (const std::string& bytes : bad) {
    SCOPED_TRACE(++n);
    WriteAll(Path(), bytes);
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    const std::string aside = Path() + ".damaged-" + std::to_string(n);
    EXPECT_NE(store->notice().find(aside), std::string::npos) << store->notice();
    EXPECT_EQ(ReadAll(aside), bytes);
    EXPECT_FALSE(Has(*store, 1));
    Put(*store, Numbered(1));
    EXPECT_TRUE(Has(*store, 1));
  }
}

TEST_F(ResponseStoreTest, AnEmptyFileIsANewOne) {
  WriteAll(Path(), "");
  const auto store = Open();
  EXPECT_EQ(store->notice(), "");
  Put(*store, Numbered(1));
}

TEST_F(ResponseStoreTest, ANewerVersionsFileIsLeftAlone) {
  { Put(*Open(), Numbered(1)); }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(Path().c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version = 7", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const auto store = ResponseStore::Open({.path = Path()});
  EXPECT_EQ(store.status().code(), Code::kUnsupported);
  EXPECT_NE(store.status().message().find("newer glint"), std::string::npos) << store.status().message();
  EXPECT_FALSE(fs::exists(Path() + ".damaged-1"));
}

// Any bit: the file is as it was, or set aside, or a response says that it is damaged. What is given is what was put.
TEST_F(ResponseStoreTest, FlippedBitsNeverGiveWrongAnswers) {
  const StoredResponse one = Numbered(1, 0, {1, 2, 3}), two = Numbered(2, 1, {1, 2, 3, 4}, 6'000);
  {
    const auto store = Open();
    Put(*store, one);
    Put(*store, two);
  }
  const std::string good = ReadAll(Path());
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  int aside = 0, damaged = 0;
  for (int i = 0; i < 150; ++i) {
    std::string bytes = good;
    const size_t at = rng() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng() % 8));
    SCOPED_TRACE(at);
    for (const char* suffix : {"", "-wal", "-shm", ".damaged-1"}) fs::remove(Path() + suffix);
    WriteAll(Path(), bytes);
    const auto opened = ResponseStore::Open({.path = Path()});
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().code(), Code::kUnsupported) << opened.status().message();
      continue;
    }
    ResponseStore& store = **opened;
    aside += !store.notice().empty();
    const auto got = store.Get(two.id);
    const auto said = store.Conversation(two.id);
    if (!got.ok() || !said.ok()) {
      ++damaged;
      const Code code = got.ok() ? said.status().code() : got.status().code();
      EXPECT_TRUE(code == Code::kBadFile || code == Code::kIo);
      continue;
    }
    if (!got->has_value()) continue;
    EXPECT_EQ((*got)->body, two.body);
    EXPECT_EQ((*got)->input + (*got)->output, two.input + two.output);
    ASSERT_TRUE(said->has_value());
    EXPECT_EQ((*said)->tokens, two.tokens);
    EXPECT_EQ((*said)->items, (std::vector<std::string>{one.input, one.output, two.input, two.output}));
  }
  EXPECT_GT(aside + damaged, 10);
}

// SQLite itself does not look at what rows say; their checksums do.
TEST_F(ResponseStoreTest, EachPartOfARowIsChecked) {
  {
    const auto store = Open();
    StoredResponse r = Numbered(1, 0, {0x51525354});
    r.previous = "resp_gone";
    r.before = "[\"before1\"]";
    Put(*store, r);
    Put(*store, Numbered(2, 1));
  }
  const std::string good = ReadAll(Path());
  for (const std::string part : {"in1", "out1", "before1", "TSRQ", "resp_gone", "{\"body\":1}"}) {
    SCOPED_TRACE(part);
    std::string bytes = good;
    const size_t at = bytes.find(part);
    ASSERT_NE(at, std::string::npos);
    bytes[at + 2] = static_cast<char>(bytes[at + 2] ^ 1);
    for (const char* suffix : {"-wal", "-shm"}) fs::remove(Path() + suffix);
    WriteAll(Path(), bytes);
    const auto store = Open();
    EXPECT_EQ(store->notice(), "");
    const auto got = store->Get(Id(1));
    EXPECT_EQ(got.status().code(), Code::kBadFile);
    EXPECT_NE(got.status().message().find("resp_1"), std::string::npos) << got.status().message();
    // The body is no part of a conversation, all else is.
    EXPECT_EQ(store->Conversation(Id(2)).ok(), part.find("body") != std::string::npos);
    // What goes on from it takes the conversation that its client was shown.
    StoredResponse next = Numbered(3, 1);
    next.before = "[\"shown\"]";
    Put(*store, next);
    if (part.find("body") == std::string::npos) {
      EXPECT_EQ(Said(*store, 3), R"(["shown"]["in3"]["out3"])");
    }
  }
}

// SQLite's file system with a disk that may be full.
std::atomic<bool> disk_full{false};
int (*real_open)(sqlite3_vfs*, sqlite3_filename, sqlite3_file*, int, int*) = nullptr;
int (*real_write)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;
// Of each kind of file, which differ in how they lock.
std::map<const sqlite3_io_methods*, sqlite3_io_methods> failing_methods;

int FailingWrite(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 at) {
  return disk_full ? SQLITE_FULL : real_write(file, bytes, size, at);
}
int FailingOpen(sqlite3_vfs* vfs, sqlite3_filename name, sqlite3_file* file, int flags, int* out) {
  const int result = real_open(vfs, name, file, flags, out);
  if (result != SQLITE_OK || file->pMethods == nullptr) return result;
  const auto [methods, is_new] = failing_methods.try_emplace(file->pMethods, *file->pMethods);
  if (is_new) {
    real_write = methods->second.xWrite;
    methods->second.xWrite = FailingWrite;
  }
  file->pMethods = &methods->second;
  return result;
}

TEST_F(ResponseStoreTest, AFullDiskIsSaidAndHurtsNothing) {
  sqlite3_vfs* const normal = sqlite3_vfs_find(nullptr);
  sqlite3_vfs failing = *normal;
  failing.zName = "failing";
  real_open = normal->xOpen;
  failing.xOpen = FailingOpen;
  ASSERT_EQ(sqlite3_vfs_register(&failing, 1), SQLITE_OK);
  {
    const auto store = Open();
    Put(*store, Numbered(1));
    disk_full = true;
    const Status s = store->Put(Numbered(2, 1, {}, 50'000));
    EXPECT_EQ(s.code(), Code::kNoRoom) << s.message();
    EXPECT_NE(s.message().find("free some space"), std::string::npos) << s.message();
    EXPECT_TRUE(Has(*store, 1));
    EXPECT_FALSE(Has(*store, 2));
    disk_full = false;
    Put(*store, Numbered(2, 1));
  }
  {
    const auto store = Open();
    EXPECT_EQ(store->notice(), "");
    EXPECT_TRUE(Has(*store, 2));
  }
  disk_full = true;
  const auto full = ResponseStore::Open({.path = (folder_ / "new.sqlite").string()});
  EXPECT_EQ(full.status().code(), Code::kNoRoom) << full.status().message();
  disk_full = false;
  sqlite3_vfs_unregister(&failing);
  sqlite3_vfs_register(normal, 1);
}

TEST_F(ResponseStoreTest, AFileThatIsHeldTooLongIsAnError) {
  const auto store = Open({.lock_wait_ms = 30});
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(Path().c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const Status s = store->Put(Numbered(1));
  EXPECT_EQ(s.code(), Code::kIo);
  EXPECT_NE(s.message().find("another process"), std::string::npos) << s.message();
  sqlite3_close(db);
  Put(*store, Numbered(1));
}

}  // namespace
}  // namespace glint::serve
