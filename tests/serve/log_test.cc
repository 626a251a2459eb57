// The log: lines that stay lines whatever they hold, nobody who waits, nothing lost without a word.
#include "serve/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "base/printable.h"
#include "tests/base/temp_dir.h"

namespace glint::serve {
namespace {

TEST(LogLine, IsTextOrJson) {
  const LogFields fields{{"id", std::string("abc")},
                         {"what", std::string("two words")},
                         {"n", int64_t{-3}},
                         {"tokens", uint64_t{7}},
                         {"ms", 12.25},
                         {"stream", true}};
  EXPECT_EQ(LogLine(false, 1796076000.1234, LogLevel::kInfo, "request", fields),
            "2026-11-30T22:00:00.123Z info    request id=abc what=\"two words\" n=-3 tokens=7 ms=12.25 "
            "stream=true\n");
  EXPECT_EQ(
      LogLine(true, 1796076000.1234, LogLevel::kWarning, "request", fields),
      "{\"time\":\"2026-11-30T22:00:00.123Z\",\"level\":\"warning\",\"event\":\"request\",\"id\":\"abc\","
      "\"what\":\"two words\",\"n\":-3,\"tokens\":7,\"ms\":12.25,\"stream\":true}\n");
  EXPECT_EQ(LogLine(true, 0, LogLevel::kInfo, "e", {{"x", std::nan("")}}),
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"info\",\"event\":\"e\",\"x\":null}\n");
  EXPECT_TRUE(LogLine(false, 0, LogLevel::kInfo, "e", {{"x", std::string()}}).ends_with(" x=\"\"\n"));
}

// No string ends its line, steers a terminal or looks like another field; JSON gives it back.
TEST(LogLine, HoldsWhateverStrangersSend) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const std::vector<std::string> pieces{"a",
                                        " ",
                                        "\n",
                                        "\r",
                                        "\x1b[2J",
                                        "\"",
                                        "\\",
                                        "=",
                                        "\x7f",
                                        "\xc2\x9b",
                                        "\xff",
                                        "\xe2\x80\xae",
                                        "\xe2\x80\xa8",
                                        "\xc3\xa9",
                                        "id=7",
                                        "\xf0\x9f\xa6\x8a",
                                        "\xf3\xa0\x80\x81",
                                        std::string(1, '\0')};
  for (int repeat = 0; repeat < 500; ++repeat) {
    std::string value;
    bool utf8 = true;
    for (size_t n = rng() % 9; n > 0; --n) {
      value += pieces[rng() % pieces.size()];
      utf8 = utf8 && !value.ends_with('\xff');
    }
    const LogFields fields{{"a", value}, {"b", std::string("end")}};
    for (const bool json : {false, true}) {
      std::string line = LogLine(json, 0, LogLevel::kInfo, "e", fields);
      ASSERT_TRUE(line.ends_with('\n'));
      line.pop_back();
      const std::string shown = Printable(line);  // doubles backslashes, and finds nothing else
      std::string halved;
      for (size_t i = 0; i < shown.size(); ++i) {
        halved += shown[i];
        if (shown[i] == '\\') ++i;
      }
      ASSERT_EQ(halved, line);
      if (json) {
        const auto parsed = ParseJson(line, "log");
        ASSERT_TRUE(parsed.ok()) << line << parsed.status().message();
        if (utf8) {
          EXPECT_EQ(*parsed->Get<std::string>("a"), value);
        }
        EXPECT_EQ(*parsed->Get<std::string>("b"), "end");
      } else {
        // The value is one word, or in quotes of which all within are escaped.
        const size_t begin = line.find(" a=") + 3, end = line.rfind(" b=end");
        const std::string word = line.substr(begin, end - begin);
        if (word.starts_with('"')) {
          ASSERT_TRUE(word.size() > 1 && word.ends_with('"')) << line;
          for (size_t i = 1; i + 1 < word.size(); ++i) {
            ASSERT_NE(word[i], '"') << line;
            if (word[i] == '\\') ++i;
          }
        } else {
          EXPECT_EQ(word.find_first_of(" =\"\\"), std::string::npos) << line;
        }
      }
    }
  }
}

std::unique_ptr<Log> Make(LogOptions options) {
  auto log = Log::Create(std::move(options));
  EXPECT_TRUE(log.ok()) << log.status().message();
  return *std::move(log);
}

size_t Lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Log, WritesEveryEventOnceFromManyThreads) {
  const test::TempDir folder;
  folder.Write("log", "before\n");
  {
    const auto log = Make({.json = true, .path = folder.Path("log"), .queue_bytes = size_t{64} << 20});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log, t] {
        for (int i = 0; i < 500; ++i)
          log->Write(LogLevel::kInfo, "e", {{"t", int64_t{t}}, {"i", int64_t{i}}});
      });
    }
    for (auto& thread : threads) thread.join();
    log->Write(LogLevel::kDebug, "not wanted");
  }
  std::istringstream all(folder.Read("log"));
  std::string line;
  ASSERT_TRUE(std::getline(all, line));
  EXPECT_EQ(line, "before");
  std::vector<int64_t> next(4);
  while (std::getline(all, line)) {
    const auto parsed = ParseJson(line, "log");
    ASSERT_TRUE(parsed.ok()) << line;
    EXPECT_EQ(*parsed->Get<int64_t>("i"), next.at(static_cast<size_t>(*parsed->Get<int64_t>("t")))++);
  }
  EXPECT_EQ(next, (std::vector<int64_t>{500, 500, 500, 500}));
}

void WaitForWritten(const Log& log, uint64_t events) {
  for (int i = 0; i < 4000 && log.Counters().written < events; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(log.Counters().written, events);
}

Log* g_log = nullptr;

TEST(Log, ReopensItsFileOnASignal) {
  const test::TempDir folder;
  const auto log = Make({.path = folder.Path("log")});
  struct stat kind {};
  ASSERT_EQ(stat(folder.Path("log").c_str(), &kind), 0);
  EXPECT_EQ(kind.st_mode & 0777u, 0600u);
  log->Write(LogLevel::kInfo, "first");
  WaitForWritten(*log, 1);
  std::filesystem::rename(folder.Path("log"), folder.Path("log.1"));
  log->Write(LogLevel::kInfo, "second");
  WaitForWritten(*log, 2);
  EXPECT_EQ(Lines(folder.Read("log.1")), 2u);
  g_log = log.get();
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { g_log->Reopen(); };
  sigaction(SIGHUP, &action, &before);
  raise(SIGHUP);
  sigaction(SIGHUP, &before, nullptr);
  log->Write(LogLevel::kInfo, "third");
  WaitForWritten(*log, 3);
  EXPECT_EQ(Lines(folder.Read("log.1")), 2u);
  EXPECT_NE(folder.Read("log").find(" third\n"), std::string::npos);
  // A path that can not be opened any more: the old file goes on, and says why.
  std::filesystem::remove(folder.Path("log"));
  std::filesystem::create_directory(folder.Path("log"));
  const int old = open(folder.Path("log").c_str(), O_RDONLY);
  log->Reopen();
  log->Write(LogLevel::kInfo, "fourth");
  WaitForWritten(*log, 4);
  close(old);
}

// A pipe that nobody reads: whoever writes goes on, events are dropped and counted, and told of once there is room.
TEST(Log, NeverWaitsAndCountsWhatItDrops) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  fcntl(ends[1], F_SETPIPE_SZ, 4096);
  const std::string path = "/proc/self/fd/" + std::to_string(ends[1]);
  const auto log = Make({.path = path, .queue_bytes = 20000});
  const std::string long_text(1000, 'x');
  for (int i = 0; i < 200; ++i) log->Write(LogLevel::kInfo, "e", {{"i", int64_t{i}}, {"text", long_text}});
  const uint64_t dropped = log->Counters().dropped;
  EXPECT_GT(dropped, 100u);
  std::string all;
  std::thread reader([&] {
    char bytes[4096];
    while (all.find(" after\n") == std::string::npos) {
      const ssize_t got = read(ends[0], bytes, sizeof bytes);
      if (got <= 0) return;
      all.append(bytes, static_cast<size_t>(got));
    }
  });
  WaitForWritten(*log, 200 - dropped);
  log->Write(LogLevel::kInfo, "after");
  reader.join();
  EXPECT_EQ(log->Counters().dropped, dropped);
  uint64_t told = 0, lines = 0;
  std::istringstream read(all);
  for (std::string line; std::getline(read, line); ++lines) {
    const size_t at = line.find(" log.dropped events=");
    if (at == std::string::npos) continue;
    told += std::stoull(line.substr(at + 20));
    --lines;
  }
  EXPECT_EQ(told, dropped);
  EXPECT_EQ(lines, 200 - dropped + 1);
  close(ends[0]), close(ends[1]);
}

TEST(Log, EndsThoughNobodyReads) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const auto log = Make({.path = "/proc/self/fd/" + std::to_string(ends[1])});
  for (int i = 0; i < 200; ++i) log->Write(LogLevel::kInfo, "e", {{"text", std::string(1000, 'x')}});
  close(ends[1]);  // the log's own end stays open, and full
  SUCCEED();       // the destructor gives up after two seconds
}

TEST(Log, AFullDiskDropsAndGoesOn) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  const auto log = Make({.path = "/dev/full"});
  for (int i = 0; i < 3; ++i) log->Write(LogLevel::kInfo, "e");
  for (int i = 0; i < 4000 && log->Counters().dropped < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(log->Counters().dropped, 3u);
  EXPECT_EQ(log->Counters().written, 0u);
}

TEST(Log, RefusesAPathThatIsNoFile) {
  const test::TempDir folder;
  const auto log = Log::Create({.path = folder.path()});
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find(folder.path()), std::string::npos);
}

}  // namespace
}  // namespace glint::serve
