// glint quantize, merge and split as programs: what they refuse, what they leave behind, and what a kill costs.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A model of 45 tensors or so, small enough for hundreds of runs.
void MakeModel(const TempDir& folder, const std::string& name = "in.gguf") {
  ASSERT_EQ(RunGlint({"convert", testing::MicroModel(), folder.Path(name), "--type", "f32"}).code, 0);
}

std::vector<std::string> Command(const TempDir& folder, const std::string& in, const std::string& out,
                                 std::vector<std::string> more = {"--type", "q8_0"}) {
  more.insert(more.begin(), {"quantize", folder.Path(in), out});
  return more;
}

TEST(Quantize, MakesAModelThatRuns) {
  const TempDir folder;
  MakeModel(folder);
  const auto o = RunGlint(Command(folder, "in.gguf", folder.Path("out.gguf"),
                                  {"--type", "q8_0", "--report", folder.Path("report.json")}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(folder.List().size(), 3u) << "something was left behind";
  EXPECT_TRUE(Has(folder.Read("report.json"), "\"relative_rms_error\"")) << folder.Read("report.json");
  EXPECT_EQ(
      RunGlint({"logits", "-m", folder.Path("out.gguf"), "--ids", "1,2,3", "--out", folder.Path("x.npy")})
          .code,
      0);
}

TEST(Quantize, NeverHarmsItsInput) {
  const TempDir folder;
  MakeModel(folder);
  ASSERT_EQ(
      RunGlint({"split", folder.Path("in.gguf"), folder.Path("set.gguf"), "--split-tensors", "100"}).code, 0);
  std::filesystem::create_directory(folder.Path("sub"));
  std::filesystem::create_hard_link(folder.Path("in.gguf"), folder.Path("hard.gguf"));
  std::filesystem::create_symlink("in.gguf", folder.Path("soft.gguf"));
  std::vector<std::pair<std::string, std::string>> before;
  for (const std::string& name : folder.List())
    if (name.ends_with(".gguf")) before.emplace_back(name, folder.Read(name));
  ASSERT_GE(before.size(), 5u);
  for (const char* out : {"in.gguf", "hard.gguf", "soft.gguf", "sub/../in.gguf", "./in.gguf"}) {
    for (const char* force : {"--force", "--restart"}) {
      SCOPED_TRACE(std::string(out) + " " + force);
      for (const char* dry : {"", "--dry-run"}) {
        std::vector<std::string> more{"--type", "q8_0", force};
        if (*dry) more.emplace_back(dry);
        const auto o = RunGlint(Command(folder, "in.gguf", folder.Path(out), more));
        EXPECT_EQ(o.code, 1) << o.err;
        EXPECT_TRUE(Has(o.err, "is also an input") || Has(o.err, "exists; --force")) << o.err;
      }
    }
  }
  // Every part of a set is an input, whichever is named.
  const auto parts = RunGlint({"quantize", folder.Path("set-00001-of-00003.gguf"), folder.Path("set.gguf"),
                               "--type", "f32", "--split-size", "400K", "--force"});
  const auto cut = RunGlint({"split", folder.Path("set-00002-of-00003.gguf"), folder.Path("set.gguf"),
                             "--split-tensors", "100", "--force"});
  EXPECT_EQ(cut.code, 1);
  EXPECT_TRUE(Has(cut.err, "is also an input")) << cut.err;
  const auto merged = RunGlint(
      {"merge", folder.Path("set-00002-of-00003.gguf"), folder.Path("set-00003-of-00003.gguf"), "--force"});
  EXPECT_EQ(merged.code, 1) << merged.err;
  for (const auto& [name, bytes] : before)
    EXPECT_TRUE(folder.Read(name) == bytes) << name << "\n" << parts.err;
}

// What fails, fails in a dry run too, with the same words; and nothing is written by either.
TEST(Quantize, ADryRunFailsWhereTheRealOneWould) {
  const TempDir folder;
  MakeModel(folder);
  std::string broken = folder.Read("in.gguf");
  // The last matrix of the file: a NaN in it.
  const uint32_t nan = 0x7fc00000;
  const size_t at = broken.size() - 64 * 64 * 4;
  broken.replace(at / 4 * 4, 4, reinterpret_cast<const char*>(&nan), 4);
  folder.Write("nan.gguf", broken);
  folder.Write("there.gguf", "precious");
  folder.Write("bad.recipe", "* = q9\n");
  folder.Write("dir.recipe", "* = q8_0\n");
  std::filesystem::create_directory(folder.Path("locked"));
  std::filesystem::create_directory(folder.Path("folder.gguf"));
  const std::vector<std::vector<std::string>> cases{
      Command(folder, "in.gguf", folder.Path("there.gguf")),
      Command(folder, "in.gguf", folder.Path("folder.gguf"), {"--type", "q8_0", "--force"}),
      Command(folder, "in.gguf", folder.Path("no/such/out.gguf")),
      Command(folder, "in.gguf", folder.Path("out.gguf"), {"--recipe", folder.Path("bad.recipe")}),
      Command(folder, "in.gguf", folder.Path("out.gguf"), {"--recipe", "no-such-recipe"}),
      Command(folder, "in.gguf", folder.Path("out.gguf"),
              {"--type", "q8_0", "--imatrix", folder.Path("in.gguf")}),
      Command(folder, "nan.gguf", folder.Path("out.gguf")),
      Command(folder, "gone.gguf", folder.Path("out.gguf")),
      Command(folder, "in.gguf", folder.Path("out-00001-of-00002.gguf")),
  };
  const auto before = folder.List().size();
  for (auto arguments : cases) {
    const auto real = RunGlint(arguments);
    arguments.emplace_back("--dry-run");
    const auto dry = RunGlint(arguments);
    EXPECT_NE(real.code, 0) << arguments[1] << " " << arguments[2];
    EXPECT_EQ(real.code, dry.code);
    EXPECT_EQ(real.err, dry.err);
    EXPECT_EQ(folder.List().size(), before) << real.err;
  }
  EXPECT_EQ(folder.Read("there.gguf"), "precious");
  const auto fine =
      RunGlint(Command(folder, "in.gguf", folder.Path("out.gguf"), {"--type", "q8_0", "--dry-run"}));
  EXPECT_EQ(fine.code, 0) << fine.err;
  EXPECT_EQ(folder.List().size(), before);
}

TEST(Quantize, TheRecipeIsNotWrittenOver) {
  const TempDir folder;
  MakeModel(folder);
  folder.Write("my.recipe", "* = q8_0\n");
  const auto o = RunGlint(Command(folder, "in.gguf", folder.Path("my.recipe"),
                                  {"--recipe", folder.Path("my.recipe"), "--force"}));
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "is also an input")) << o.err;
  EXPECT_EQ(folder.Read("my.recipe"), "* = q8_0\n");
}

TEST(Quantize, WeightsThatAreNoNumbersAreNamed) {
  const TempDir folder;
  MakeModel(folder);
  std::string bytes = folder.Read("in.gguf");
  const float nan = NAN;
  std::memcpy(bytes.data() + (bytes.size() - 64 * 64 * 4) / 4 * 4, &nan, 4);
  folder.Write("nan.gguf", bytes);
  const auto o = RunGlint(Command(folder, "nan.gguf", folder.Path("out.gguf")));
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "nan.gguf: blk.")) << o.err;
  EXPECT_TRUE(Has(o.err, "column ")) << o.err;
  EXPECT_EQ(folder.List().size(), 2u);
}

TEST(Quantize, AFullDiskIsAnErrorAndLeavesNothing) {
  const TempDir folder;
  MakeModel(folder);
  for (const char* more : {"--force", "--split-size"}) {
    std::vector<std::string> arguments =
        Command(folder, "in.gguf", folder.Path("out.gguf"), {"--type", "q8_0", more});
    if (arguments.back() == "--split-size") arguments.emplace_back("300K");
    const auto o = RunGlint(arguments, {.file_bytes = 100000});
    EXPECT_EQ(o.code, 1);
    EXPECT_TRUE(Has(o.err, "out")) << o.err;
    EXPECT_EQ(folder.List().size(), 1u) << o.err;
  }
}

// Starts the command, its words thrown away but for what goes to `err`.
pid_t Start(const std::vector<std::string>& arguments, const std::string& err = "/dev/null") {
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), 1), dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    testing::internal::Become(arguments, {});
  }
  return child;
}

// Whether the journal has `lines` whole lines before the child ends: then the child has stopped.
bool StopAtJournalLine(pid_t child, const TempDir& folder, int64_t lines) {
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == 0) {
    if (std::filesystem::exists(folder.Path("out.gguf.journal"))) {
      const std::string journal = folder.Read("out.gguf.journal");
      if (std::count(journal.begin(), journal.end(), '\n') >= lines) {
        kill(child, SIGSTOP);
        return true;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return false;
}

// A disk that others fill: what a run may write ends in its middle. Nothing has the output's name, and the hours before are not lost.
TEST(Quantize, ADiskThatFillsMeanwhileIsAnErrorAndTheWorkStays) {
  const TempDir folder;
  MakeModel(folder);
  const std::vector<std::string> more{"--type", "iq3_xxs", "--threads", "1"};
  ASSERT_EQ(RunGlint(Command(folder, "in.gguf", folder.Path("whole.gguf"), more)).code, 0);
  const std::string whole = folder.Read("whole.gguf"), input = folder.Read("in.gguf");
  const auto arguments = Command(folder, "in.gguf", folder.Path("out.gguf"), more);
  bool filled = false;
  for (int attempt = 0; attempt < 50 && !filled; ++attempt) {
    const pid_t child = Start(arguments, folder.Path("err"));
    int status = 0;
    if (StopAtJournalLine(child, folder, 2)) {
      const rlimit limit{whole.size() - whole.size() / 8, RLIM_INFINITY};
      EXPECT_EQ(prlimit(child, RLIMIT_FSIZE, &limit, nullptr), 0);
      kill(child, SIGCONT);
    }
    waitpid(child, &status, 0);
    if (testing::internal::CodeOf(status) == 0) {  // it was faster
      std::filesystem::remove(folder.Path("out.gguf"));
      continue;
    }
    filled = true;
    const std::string err = folder.Read("err");
    EXPECT_EQ(testing::internal::CodeOf(status), 1) << err;
    EXPECT_TRUE(Has(err, "out.gguf.part: cannot write at offset 0x") && Has(err, "goes on from there"))
        << err;
    EXPECT_FALSE(std::filesystem::exists(folder.Path("out.gguf")));
    EXPECT_TRUE(folder.Read("in.gguf") == input);
    const auto o = RunGlint(arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(Has(o.err, "were there from an earlier run")) << o.err;
    EXPECT_TRUE(folder.Read("out.gguf") == whole);
  }
  EXPECT_TRUE(filled);
  EXPECT_EQ(folder.List().size(), 4u) << "something was left behind";
}

// The report's temporary is there only while the report is written: each kill would leave another.
TEST(Quantize, AKillLeavesNothingOfTheReport) {
  const TempDir folder;
  MakeModel(folder);
  const auto arguments =
      Command(folder, "in.gguf", folder.Path("out.gguf"),
              {"--type", "iq3_xxs", "--threads", "1", "--report", folder.Path("report.json")});
  bool killed = false;
  for (int attempt = 0; attempt < 50 && !killed; ++attempt) {
    const pid_t child = Start(arguments);
    killed = StopAtJournalLine(child, folder, 2) && std::filesystem::exists(folder.Path("out.gguf.part"));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (killed) continue;
    for (const char* name : {"out.gguf", "report.json"}) std::filesystem::remove(folder.Path(name));
  }
  ASSERT_TRUE(killed);
  for (const std::string& name : folder.List()) EXPECT_FALSE(name.starts_with(".glint-")) << name;
  const auto o = RunGlint(arguments);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(folder.Read("report.json"), "\"relative_rms_error\""));
  EXPECT_EQ(folder.List().size(), 3u) << "something was left behind";
}

TEST(Imatrix, AFullDiskIsAnErrorAndLeavesNothing) {
  const TempDir folder;
  MakeModel(folder);
  for (const bool reserves : {true, false}) {
    SCOPED_TRACE(reserves);
    const auto o = RunGlint({"imatrix", "-m", folder.Path("in.gguf"), "--ids", "1,2,3,4", "--ctx", "4", "-o",
                             folder.Path("out.gguf")},
                            {.file_bytes = 4096, .no_reserve = !reserves});
    EXPECT_EQ(o.code, 1);
    // Whether taking space in advance is held to the limit depends on the file system.
    EXPECT_TRUE(Has(o.err, "out.gguf: cannot write at offset 0x") ||
                (reserves && Has(o.err, "out.gguf: no room for")))
        << o.err;
    EXPECT_EQ(folder.List().size(), 1u) << o.err;
  }
}

TEST(Quantize, LeavesFilesOfOthersAlone) {
  const TempDir folder;
  MakeModel(folder);
  for (const char* name : {"out.gguf.part", "out.gguf.journal"}) {
    for (const char* notes : {"somebody's notes of a long day", "gli", "glance"}) {
      if (std::string(notes) == "gli" && Has(name, "journal")) continue;  // as a journal may begin
      folder.Write(name, notes);
      const auto o = RunGlint(Command(folder, "in.gguf", folder.Path("out.gguf")));
      EXPECT_EQ(o.code, 1) << name;
      EXPECT_TRUE(Has(o.err, name)) << o.err;
      EXPECT_EQ(folder.Read(name), notes);
      std::filesystem::remove(folder.Path(name));
    }
  }
}

TEST(Quantize, KilledAtAnyMomentItGoesOn) {
  const TempDir folder;
  MakeModel(folder);
  const std::string input = folder.Read("in.gguf");
  const std::vector<std::string> more{"--type", "q6_k", "--split-size", "300K", "--threads", "1"};
  ASSERT_EQ(RunGlint(Command(folder, "in.gguf", folder.Path("whole.gguf"), more)).code, 0);
  std::vector<std::string> parts;
  for (const std::string& name : folder.List())
    if (name.starts_with("whole-")) parts.push_back(name.substr(5));
  ASSERT_GE(parts.size(), 2u);
  // How long one run takes here.
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(RunGlint(Command(folder, "in.gguf", folder.Path("timed.gguf"), more)).code, 0);
  const auto whole =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();

  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  int killed = 0;
  for (int moment = 0; moment < 20; ++moment) {
    const std::string out = folder.Path("out.gguf");
    const auto arguments = Command(folder, "in.gguf", out, more);
    for (int kills = 0; kills < 2; ++kills) {
      const pid_t child = fork();
      if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), 1), dup2(open("/dev/null", O_WRONLY), 2);
        testing::internal::Become(arguments, {});
      }
      std::this_thread::sleep_for(std::chrono::microseconds(rng() % static_cast<uint64_t>(whole)));
      kill(child, SIGKILL);
      int status = 0;
      waitpid(child, &status, 0);
      killed += WIFSIGNALED(status);
      // Finished: what has its name is all that there is.
      if (!WIFSIGNALED(status)) break;
      if (std::filesystem::exists(folder.Path("out.gguf.journal"))) continue;
    }
    const bool named = std::filesystem::exists(folder.Path("out" + parts.back())) &&
                       !std::filesystem::exists(folder.Path("out.gguf.journal"));
    if (!named) {
      const auto o = RunGlint(arguments);
      ASSERT_EQ(o.code, 0) << o.err;
    }
    for (const std::string& part : parts) {
      ASSERT_TRUE(folder.Read("out" + part) == folder.Read("whole" + part))
          << part << " after kill " << moment;
      std::filesystem::remove(folder.Path("out" + part));
    }
    for (const std::string& name : folder.List())
      ASSERT_FALSE(name.starts_with("out")) << name << " was left behind";
  }
  EXPECT_GT(killed, 0);
  EXPECT_TRUE(folder.Read("in.gguf") == input);
}

TEST(Quantize, GoesOnOnlyWithTheSameWork) {
  const TempDir folder;
  MakeModel(folder);
  const auto arguments =
      Command(folder, "in.gguf", folder.Path("out.gguf"), {"--type", "q8_0", "--threads", "1"});
  // Until a kill leaves a journal with something in it.
  for (int attempt = 0; attempt < 200 && folder.Read("out.gguf.journal").size() < 200; ++attempt) {
    std::filesystem::remove(folder.Path("out.gguf"));
    const pid_t child = fork();
    if (child == 0) {
      dup2(open("/dev/null", O_WRONLY), 1), dup2(open("/dev/null", O_WRONLY), 2);
      testing::internal::Become(arguments, {});
    }
    while (folder.Read("out.gguf.journal").size() < 200 && waitpid(child, nullptr, WNOHANG) == 0) continue;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  ASSERT_GE(folder.Read("out.gguf.journal").size(), 200u);
  const auto other = RunGlint(Command(folder, "in.gguf", folder.Path("out.gguf"), {"--type", "q4_0"}));
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(Has(other.err, "--restart")) << other.err;
  // The same bytes, written again: nobody knows what else happened to them.
  const std::string bytes = folder.Read("in.gguf");
  folder.Write("in.gguf", bytes);
  const auto changed = RunGlint(arguments);
  EXPECT_EQ(changed.code, 1) << changed.err;
  auto again = arguments;
  again.emplace_back("--restart");
  EXPECT_EQ(RunGlint(again).code, 0);
  EXPECT_EQ(folder.List().size(), 2u);
}

TEST(MergeAndSplit, GiveTheFileBack) {
  const TempDir folder;
  MakeModel(folder);
  const std::string whole = folder.Read("in.gguf");
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--split-tensors", "20"},
                                              {"--split-tensors", "50"},
                                              {"--split-size", "200K"}}) {
    std::vector<std::string> split{"split", folder.Path("in.gguf"), folder.Path("cut.gguf")};
    split.insert(split.end(), how.begin(), how.end());
    const auto o = RunGlint(split);
    ASSERT_EQ(o.code, 0) << o.err;
    const std::string first = o.out.substr(0, o.out.find('\n'));
    const auto merged = RunGlint({"merge", first, folder.Path("again.gguf")});
    ASSERT_EQ(merged.code, 0) << merged.err;
    EXPECT_TRUE(folder.Read("again.gguf") == whole) << how[1];
    for (const std::string& name : folder.List())
      if (name != "in.gguf") std::filesystem::remove(folder.Path(name));
  }
}

TEST(MergeAndSplit, ADryRunFailsWhereTheRealOneWould) {
  const TempDir folder;
  MakeModel(folder);
  ASSERT_EQ(
      RunGlint({"split", folder.Path("in.gguf"), folder.Path("set.gguf"), "--split-tensors", "100"}).code, 0);
  folder.Write("there.gguf", "precious");
  folder.Write("notes.gguf.journal", "somebody's notes");
  folder.Write("parts.gguf.part", "somebody's part");
  std::filesystem::create_symlink("in.gguf", folder.Path("link.gguf.journal"));
  std::filesystem::create_directory(folder.Path("folder.gguf"));
  std::filesystem::create_symlink(folder.Path("no/such/place.gguf"), folder.Path("dangling.gguf"));
  std::string cut = folder.Read("set-00002-of-00003.gguf");
  std::filesystem::create_directory(folder.Path("cut"));
  for (const char* name : {"set-00001-of-00003.gguf", "set-00003-of-00003.gguf"})
    folder.Write("cut/" + std::string(name), folder.Read(name));
  folder.Write("cut/set-00002-of-00003.gguf", cut.substr(0, cut.size() - 1000));
  const std::string in = folder.Path("in.gguf"), set = folder.Path("set-00002-of-00003.gguf");
  const auto size = std::to_string(folder.Read("in.gguf").size());
  struct Case {
    std::vector<std::string> arguments;
    testing::Setup setup{};
  };
  std::vector<Case> cases;
  for (const char* out : {"there.gguf", "notes.gguf", "parts.gguf", "link.gguf", "dangling.gguf",
                          "no/such/out.gguf", "out-00001-of-00002.gguf", "in.gguf"}) {
    cases.push_back({{"merge", set, folder.Path(out)}});
    cases.push_back({{"split", in, folder.Path(out), "--split-size", size}});  // one file: the same name
  }
  cases.push_back({{"merge", set, folder.Path("folder.gguf"), "--force"}});
  cases.push_back({{"merge", folder.Path("cut/set-00001-of-00003.gguf"), folder.Path("out.gguf")}});
  cases.push_back({{"merge", set, set, "--force"}});
  cases.push_back({{"split", in, folder.Path("set.gguf"), "--split-tensors", "100"}});
  cases.push_back({{"split", in, folder.Path("out.gguf"), "--split-size", "1K"}});
  cases.push_back({{"split", in, folder.Path("out.gguf"), "--split-size", "400K"}, {.file_bytes = 300000}});
  std::vector<std::pair<std::string, std::string>> before;
  const auto snapshot = [&] {
    std::vector<std::pair<std::string, std::string>> out;
    for (const std::string& name : folder.List()) {
      const bool file = std::filesystem::is_regular_file(folder.Path(name));
      out.emplace_back(name, file ? folder.Read(name) : "");
    }
    std::sort(out.begin(), out.end());
    return out;
  };
  before = snapshot();
  for (Case& c : cases) {
    SCOPED_TRACE(c.arguments[0] + " " + c.arguments[2]);
    const auto real = RunGlint(c.arguments, c.setup);
    EXPECT_TRUE(snapshot() == before) << real.err;
    c.arguments.emplace_back("--dry-run");
    const auto dry = RunGlint(c.arguments, c.setup);
    EXPECT_NE(real.code, 0);
    EXPECT_EQ(real.code, dry.code);
    EXPECT_EQ(real.err, dry.err);
    EXPECT_TRUE(snapshot() == before) << dry.err;
  }
  for (const std::vector<std::string>& good :
       {std::vector<std::string>{"merge", set, folder.Path("out.gguf")},
        {"split", in, folder.Path("out.gguf"), "--split-size", "400K"}}) {
    auto arguments = good;
    arguments.emplace_back("--dry-run");
    const auto dry = RunGlint(arguments);
    EXPECT_EQ(dry.code, 0) << dry.err;
    EXPECT_TRUE(Has(dry.err, "would write ")) << dry.err;
    EXPECT_TRUE(snapshot() == before);
    const auto real = RunGlint(good);
    EXPECT_EQ(real.code, 0) << real.err;
    EXPECT_EQ(real.out, dry.out);
    EXPECT_EQ("would write " + real.err, dry.err);
    for (size_t at = 0; at < real.out.size();) {
      const size_t end = real.out.find('\n', at);
      const std::string path = real.out.substr(at, end - at);
      EXPECT_LE(std::filesystem::file_size(path), good[0] == "split" ? 400000u : UINT64_MAX) << path;
      std::filesystem::remove(path);
      at = end + 1;
    }
    EXPECT_TRUE(snapshot() == before);
  }
}

TEST(MergeAndSplit, ForeignMissingAndCutPartsAreErrors) {
  const TempDir folder;
  MakeModel(folder);
  ASSERT_EQ(RunGlint({"quantize", folder.Path("in.gguf"), folder.Path("other.gguf"), "--type", "q8_0"}).code,
            0);
  const auto cut = [&](const char* from, const char* to) {
    ASSERT_EQ(RunGlint({"split", folder.Path(from), folder.Path(to), "--split-tensors", "100"}).code, 0);
  };
  cut("in.gguf", "a.gguf");
  cut("other.gguf", "b.gguf");
  const std::string second = "a-00002-of-00003.gguf";
  const std::string part = folder.Read(second);
  const auto expect_error = [&](const std::string& word) {
    for (const char* command : {"merge", "quantize"}) {
      std::vector<std::string> arguments{command, folder.Path("a-00001-of-00003.gguf"),
                                         folder.Path("out.gguf")};
      if (*command == 'q') arguments.insert(arguments.end(), {"--type", "q8_0"});
      const auto o = RunGlint(arguments);
      EXPECT_EQ(o.code, 1) << command;
      EXPECT_TRUE(Has(o.err, word)) << o.err;
      EXPECT_FALSE(std::filesystem::exists(folder.Path("out.gguf")));
      EXPECT_FALSE(std::filesystem::exists(folder.Path("out.gguf.part")));
    }
  };
  folder.Write(second, part.substr(0, part.size() - 1000));  // cut short
  expect_error("cut short");
  folder.Write(second, folder.Read("a-00003-of-00003.gguf"));  // another part of the set
  expect_error("split.no");
  std::string wrong = part;
  const size_t at = wrong.find("split.count");
  ASSERT_NE(at, std::string::npos);
  wrong[at + 11 + 4] = 4;
  folder.Write(second, wrong);
  expect_error("split.count");
  std::filesystem::remove(folder.Path(second));
  expect_error(second);
}

}  // namespace
}  // namespace glint::cli
