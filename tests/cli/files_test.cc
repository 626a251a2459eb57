// What commands write: never over what they read, over another of their outputs, or unasked over a file that is there.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<std::string> Plus(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A command but for its output; the option of the output comes last ("" for a positional one).
struct Writing {
  std::vector<std::string> command;
  std::string option;
  std::vector<std::string> reads;  // names in the folder
  std::vector<std::string> With(const std::string& output) const {
    if (option.empty()) {
      auto out = command;
      out.insert(out.begin() + 2, output);
      return out;
    }
    return Plus(command, {option, output});
  }
};

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(RunGlint({"convert", testing::MicroModel(), Path("in.gguf"), "--type", "f32"}).code, 0);
    ASSERT_EQ(RunGlint({"split", Path("in.gguf"), Path("set.gguf"), "--split-tensors", "100"}).code, 0);
    for (const auto& entry : std::filesystem::directory_iterator(testing::MicroModel()))
      if (entry.is_regular_file()) hf_.push_back(entry.path().filename());
    std::filesystem::copy(testing::MicroModel(), Path("hf"));
    std::string ids;
    for (int i = 0; i < 40; ++i) ids += (i == 0 ? "" : ",") + std::to_string(i * 37 % 250);
    folder_.Write("ids", ids);
    folder_.Write("recipe", "* = q8_0\n");
    folder_.Write("precious", "precious");
    ASSERT_EQ(RunGlint({"imatrix", "-m", Path("in.gguf"), "--ids", "@" + Path("ids"), "--ctx", "16", "-o",
                        Path("importance.gguf")})
                  .code,
              0);
    ASSERT_EQ(RunGlint({"perplexity", "-m", Path("in.gguf"), "--ids", "@" + Path("ids"), "--ctx", "16",
                        "--save-base", Path("base")})
                  .code,
              0);
    const std::vector<std::string> set{"set-00001-of-00003.gguf", "set-00002-of-00003.gguf",
                                       "set-00003-of-00003.gguf"};
    const std::string first = Path(set[1]), at_ids = "@" + Path("ids");
    const auto with_set = [&](std::vector<std::string> more) {
      more.insert(more.end(), set.begin(), set.end());
      return more;
    };
    std::vector<std::string> hf;
    for (const std::string& name : hf_) hf.push_back("hf/" + name);
    commands_ = {
        {{"convert", Path("hf"), "--recipe", Path("recipe")}, "", Plus(hf, {"recipe"})},
        {{"quantize", first, "--recipe", Path("recipe"), "--imatrix", Path("importance.gguf")},
         "",
         with_set({"recipe", "importance.gguf"})},
        {{"quantize", first, Path("new.gguf"), "--recipe", Path("recipe"), "--imatrix",
          Path("importance.gguf")},
         "--report",
         with_set({"recipe", "importance.gguf"})},
        {{"merge", first}, "", set},
        {{"split", first, "--split-size", "50M"}, "", set},
        {{"imatrix", "-m", first, "--ids", at_ids, "--ctx", "16"}, "-o", with_set({"ids"})},
        {{"perplexity", "-m", first, "--ids", at_ids, "--ctx", "16", "--kld", Path("base")},
         "--save-base",
         with_set({"ids", "base"})},
        {{"logits", "-m", first, "--ids", at_ids}, "--out", with_set({"ids"})},
        {{"bench", "-f", Path("ids"), "--ctx", "0", "--prefill", "4", "--decode", "1", "-b", "1", "--arm",
          "a: --threads 1", "--arm", "b: -m " + first},
         "--csv",
         with_set({"ids"})},
        {{"profile", "-m", first, "--ids", at_ids, "--ctx", "8", "--rounds", "1", "--no-limits", "--tokens",
          "1"},
         "--chrome-trace",
         with_set({"ids"})},
    };
  }
  std::string Path(const std::string& name) const { return folder_.Path(name); }

  TempDir folder_;
  std::vector<std::string> hf_;
  std::vector<Writing> commands_;
};

TEST_F(Files, NoOutputIsAnInput) {
  for (const Writing& w : commands_) {
    for (const std::string& name : w.reads) {
      SCOPED_TRACE(w.command[0] + " " + w.option + " over " + name);
      const std::string before = folder_.Read(name);
      ASSERT_FALSE(before.empty());
      const auto o = RunGlint(Plus(w.With(Path(name)), {"--force"}));
      EXPECT_EQ(o.code, 1);
      // A set's part as the name of one file is refused for that already.
      EXPECT_TRUE(Has(o.err, "is also an input") || Has(o.err, "a name of one of")) << o.err;
      EXPECT_TRUE(folder_.Read(name) == before);
    }
  }
  // Through links too.
  std::filesystem::create_hard_link(Path("ids"), Path("hard"));
  std::filesystem::create_symlink("ids", Path("soft"));
  for (const char* name : {"hard", "soft"}) {
    const auto o =
        RunGlint({"imatrix", "-m", Path("in.gguf"), "--ids", "@" + Path("ids"), "-o", Path(name), "--force"});
    EXPECT_EQ(o.code, 1);
    EXPECT_TRUE(Has(o.err, "is also an input")) << o.err;
  }
}

TEST_F(Files, WhatIsThereIsReplacedOnlyWhenAskedTo) {
  for (const Writing& w : commands_) {
    SCOPED_TRACE(w.command[0] + " " + w.option);
    folder_.Write("there", "precious");
    const auto o = RunGlint(w.With(Path("there")));
    EXPECT_EQ(o.code, 1);
    EXPECT_TRUE(Has(o.err, "there exists; --force replaces it")) << o.err;
    EXPECT_EQ(folder_.Read("there"), "precious");
    EXPECT_FALSE(Has(o.err, "measuring") || Has(o.err, "takes ")) << "looked only after the work: " << o.err;
    if (w.command[0] == "profile" || w.command[0] == "bench") continue;  // take long
    const auto forced = RunGlint(Plus(w.With(Path("there")), {"--force"}));
    EXPECT_EQ(forced.code, 0) << forced.err;
    EXPECT_NE(folder_.Read("there"), "precious");
  }
}

TEST_F(Files, PlacesThatCannotBeWrittenToShowBeforeTheWork) {
  std::filesystem::create_directory(Path("folder"));
  const std::string bad[][2] = {{"", "names no file"},
                                {Path("folder/"), "names no file"},
                                {Path("folder"), "not a regular file"},
                                {"/dev/null", "not a regular file"},
                                {Path("no/such/file"), "directory cannot be opened"},
                                {Path(std::string(256, 'n')), "name"}};
  const size_t before = folder_.List().size();
  for (const Writing& w : commands_) {
    for (const auto& [path, why] : bad) {
      SCOPED_TRACE(w.command[0] + " " + w.option + " to " + path);
      const auto o = RunGlint(w.With(path));
      EXPECT_EQ(o.code, std::string(why) == "names no file" ? 2 : 1);
      EXPECT_TRUE(Has(o.err, why)) << o.err;
      EXPECT_FALSE(Has(o.err, "takes ")) << o.err;
      EXPECT_EQ(folder_.List().size(), before) << "something was left behind";
    }
  }
}

TEST_F(Files, OutputsAreToldApart) {
  for (const char* report : {"new.gguf", "new.gguf.part", "new.gguf.journal"}) {
    const auto o = RunGlint({"quantize", Path("in.gguf"), Path("new.gguf"), "--type", "q8_0", "--report",
                             Path(report), "--force"});
    EXPECT_EQ(o.code, 1);
    EXPECT_TRUE(Has(o.err, "is also written as")) << o.err;
  }
  const auto part = RunGlint({"quantize", Path("in.gguf"), Path("new.gguf"), "--type", "q8_0", "--split-size",
                              "200K", "--dry-run", "--report", Path("report")});
  ASSERT_EQ(part.code, 0) << part.err;
  const size_t at = part.err.rfind("new-00001-of-");
  ASSERT_NE(at, std::string::npos) << part.err;
  std::string second = part.err.substr(at, std::string("new-00001-of-00003.gguf").size());
  second[8] = '2';
  const auto o = RunGlint({"quantize", Path("in.gguf"), Path("new.gguf"), "--type", "q8_0", "--split-size",
                           "200K", "--report", Path(second)});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "is also written as")) << o.err;
  for (const std::string& name : folder_.List())
    EXPECT_FALSE(name.starts_with("new") || name == "report") << name;
}

TEST_F(Files, MorePartsThanFilesMayBeOpen) {
  const auto o =
      RunGlint({"split", Path("in.gguf"), Path("many.gguf"), "--split-tensors", "4"}, {.open_files = 12});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_GT(std::count(o.out.begin(), o.out.end(), '\n'), 20);
}

TEST_F(Files, AReportThatCannotBeWrittenSaysThatTheModelIsThere) {
  std::filesystem::create_directory(Path("reports"));
  // The report's place goes while the model is made: a folder takes its name.
  const pid_t child = fork();
  if (child == 0) {
    while (!std::filesystem::exists(Path("new.gguf.journal"))) continue;
    std::filesystem::create_directory(Path("report"));
    _exit(0);
  }
  const auto o = RunGlint(
      {"quantize", Path("in.gguf"), Path("new.gguf"), "--type", "iq2_s", "--report", Path("report")});
  waitpid(child, nullptr, 0);
  if (o.code == 0) GTEST_SKIP() << "the model was made too fast";
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "new.gguf is complete")) << o.err;
  EXPECT_TRUE(std::filesystem::exists(Path("new.gguf")));
}

TEST_F(Files, RulesThatMatchNothingAreNamed) {
  folder_.Write("mine", "blk.99.* = q4_0\nblk.*.attn_q* = q8_0\nblk.1.attn_q* = q4_0\n* = q8_0\n");
  const auto o =
      RunGlint({"quantize", Path("in.gguf"), Path("new.gguf"), "--recipe", Path("mine"), "--dry-run"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.err, "mine: line 1: 'blk.99.* = q4_0' matches no tensor")) << o.err;
  EXPECT_FALSE(Has(o.err, "line 2")) << o.err;
  EXPECT_FALSE(Has(o.err, "line 4")) << o.err;
  // What comes with glint is for any model.
  const auto shipped =
      RunGlint({"quantize", Path("in.gguf"), Path("new.gguf"), "--recipe", "ds4", "--dry-run"});
  EXPECT_EQ(shipped.code, 0) << shipped.err;
  EXPECT_FALSE(Has(shipped.err, "matches no tensor")) << shipped.err;
}

// <(command) of a shell: a recipe has no size and can be read once.
TEST_F(Files, ARecipeMayComeThroughAPipe) {
  ASSERT_EQ(RunGlint({"quantize", Path("in.gguf"), Path("want.gguf"), "--recipe", Path("recipe")}).code, 0);
  const auto run = [&](const std::string& recipe, size_t times) {
    EXPECT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::ofstream pipe(Path("pipe"));
      for (size_t i = 0; i < times; ++i) pipe << recipe << std::flush;  // in pieces, as commands write
      pipe.close();
      _exit(0);
    }
    auto o = RunGlint({"quantize", Path("in.gguf"), Path("new.gguf"), "--recipe", Path("pipe")});
    kill(child, SIGKILL);  // where nobody has opened the pipe
    waitpid(child, nullptr, 0);
    std::filesystem::remove(Path("pipe"));
    return o;
  };
  const auto made = run("* = q8_0\n", 1);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(folder_.Read("new.gguf") == folder_.Read("want.gguf"));
  std::filesystem::remove(Path("new.gguf"));
  const auto wrong = run("* = q8_0\n* = q99\n", 1);
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(Has(wrong.err, "pipe: line 2")) << wrong.err;
  const auto endless = run(std::string(4096, '#') + "\n", 257);  // 1 MiB is read
  EXPECT_EQ(endless.code, 1);
  EXPECT_TRUE(Has(endless.err, "more than the 1048576 bytes")) << endless.err;
  EXPECT_FALSE(std::filesystem::exists(Path("new.gguf")));
}

// Without options a run takes the base's windows: where the model is too small for them, the base is what is to be changed.
TEST_F(Files, ABaseOfALargerContextThanTheModels) {
  const auto judge = [&](const std::string& context, const std::vector<std::string>& more) {
    return RunGlint(Plus({"perplexity", "--synthetic", "tiny,layers=2,experts=2,vocab=300,context=" + context,
                          "--ids", "@" + Path("ids")},
                         more));
  };
  const auto saved = judge("64", {"--ctx", "32", "--save-base", Path("large")});
  ASSERT_EQ(saved.code, 0) << saved.err;
  const auto same = judge("32", {"--kld", Path("large")});
  EXPECT_EQ(same.code, 0) << same.err;
  const auto small = judge("31", {"--kld", Path("large")});
  EXPECT_EQ(small.code, 1);
  EXPECT_TRUE(
      Has(small.err, "large: its windows do not fit here: a context of 32 tokens; the model was made for 31"))
      << small.err;
  // Who asks for other windows hears what the base has.
  const auto asked = judge("31", {"--kld", Path("large"), "--ctx", "16"});
  EXPECT_EQ(asked.code, 1);
  EXPECT_TRUE(Has(asked.err, "large: was made with --ctx 32, this run has 16")) << asked.err;
  const auto too_much = judge("31", {"--kld", Path("large"), "--ctx", "32"});
  EXPECT_EQ(too_much.code, 1);
  EXPECT_FALSE(Has(too_much.err, "large")) << too_much.err;
}

TEST_F(Files, WeightsThatNoScaleHoldsAreRefusedByTheDryRunToo) {
  std::string bytes = folder_.Read("in.gguf");
  const float large = 1e8f;
  bytes.replace((bytes.size() - 64 * 64 * 4) / 4 * 4, 4, reinterpret_cast<const char*>(&large), 4);
  folder_.Write("large.gguf", bytes);
  for (const char* type : {"q8_0", "f16", "iq4_xs"}) {
    for (const char* dry : {"--dry-run", "--restart"}) {
      const auto o = RunGlint({"quantize", Path("large.gguf"), Path("new.gguf"), "--type", type, dry});
      EXPECT_EQ(o.code, 1) << type << dry;
      EXPECT_TRUE(Has(o.err, " is 100000000, which ") && Has(o.err, "blk.")) << o.err;
    }
  }
  EXPECT_EQ(RunGlint({"quantize", Path("large.gguf"), Path("new.gguf"), "--type", "mxfp4"}).code, 0);
}

TEST_F(Files, CommandLinesThatContradictThemselves) {
  const auto code = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const auto o = RunGlint(arguments);
    EXPECT_TRUE(Has(o.err, why)) << o.err;
    return o.code;
  };
  const std::string in = Path("in.gguf");
  EXPECT_EQ(code({"imatrix", "-f", Path("ids"), "--ids", "1", "-o", Path("x")}, "not both"), 2);
  EXPECT_EQ(
      code({"perplexity", "-m", in, "--ids", "1,2,3", "--ctx", "8", "--stride", "9"}, "more than --ctx"), 2);
  EXPECT_EQ(code({"compare", in, in, "--ctx", "8"}, "give --text"), 2);
  EXPECT_EQ(code({"compare", in, in, "--ids", "1"}, "wanted 2 or more"), 2);
  folder_.Write("one", "1");
  EXPECT_EQ(code({"compare", in, in, "--ids", "@" + Path("one")}, "too short"), 1);
  const auto deep = RunGlint({"imatrix", "-m", in, "--ids", "1,2", "--ctx", "1000000000", "-o", Path("x")});
  EXPECT_EQ(deep.code, 1);
  EXPECT_TRUE(Has(deep.err, "the model was made for")) << deep.err;
  const auto apart =
      RunGlint({"perplexity", "-m", in, "--ids", "@" + Path("ids"), "--ctx", "8", "--stride", "8"});
  EXPECT_EQ(apart.code, 0);
  EXPECT_TRUE(Has(apart.err, "1 token at the beginning of each")) << apart.err;
}

}  // namespace
}  // namespace glint::cli
