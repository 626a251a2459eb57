#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "gguf/writer.h"
#include "tests/cli/program.h"

namespace glint::cli {
namespace {

using test::TempDir;
using testing::RunGlint;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool Harmless(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return false;
    if (byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;
  }
  return true;
}

// spec/budget.md section 5.1: formats A to E, their totals to the byte.
TEST(Inspect, SyntheticTotalsAreTheBudgets) {
  struct Row {
    const char* recipe;
    int64_t total, trunk, mtp;
  };
  for (const Row& row : {Row{"ds4", 190866009464, 186550763768, 4315245696},
                         Row{"q8_0-q4_k", 185145662840, 180868492536, 4277170304},
                         Row{"q8_0-iq3_xxs", 129145412984, 126170574072, 2974838912},
                         Row{"q4_k", 180629839224, 176444419320, 4185419904},
                         Row{"ud-iq3_xxs", 120358051192, 117558078712, 2799972480}}) {
    const auto o =
        RunGlint({"inspect", "--json", "--synthetic", std::string("glm-5.3-flash,recipe=") + row.recipe});
    ASSERT_EQ(o.code, 0) << o.err;
    const auto json = ParseJson(o.out, "stdout");
    ASSERT_TRUE(json.ok()) << json.status().message();
    EXPECT_EQ(json->Get<int64_t>("total_bytes").value(), row.total) << row.recipe;
    EXPECT_EQ(json->Get<int64_t>("trunk_bytes").value(), row.trunk) << row.recipe;
    EXPECT_EQ(json->Get<int64_t>("mtp_bytes").value(), row.mtp) << row.recipe;
    EXPECT_EQ(json->Get<int64_t>("parameters").value(), 320759404382) << row.recipe;
    int64_t sum = 0;
    for (const Json& tensor : json->Find("tensors")->items()) sum += tensor.Get<int64_t>("bytes").value();
    EXPECT_EQ(sum, row.total) << row.recipe;
  }
}

TEST(Inspect, SaysWhereItFits) {
  const auto o = RunGlint({"inspect", "--json", "--synthetic", "glm-5.3-flash,recipe=q8_0-iq3_xxs"});
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok());
  const Json& small = json->Find("fits")->items().front();
  EXPECT_EQ(small.Get<int64_t>("context").value(), 4096);
  // 129 GB of weights and well under a GB of state (spec/budget.md section 4, "Feasibility").
  EXPECT_FALSE(small.Get<bool>("80 GB").value());
  EXPECT_TRUE(small.Get<bool>("141 GB").value());
  const auto text = RunGlint({"inspect", "--synthetic", "glm-5.3-flash,recipe=q8_0-iq3_xxs"}).out;
  EXPECT_TRUE(Has(text, "141 GB") && Has(text, "here: ")) << text;
}

TEST(Inspect, AHuggingFaceDirectory) {
  const auto o = RunGlint({"inspect", testing::MicroModel(), "--tensors"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Has(o.out, "F32")) << o.out;
  EXPECT_TRUE(Has(o.out, "model.language_model.embed_tokens.weight"));
  EXPECT_TRUE(Has(o.out, "[256, 64]"));
  EXPECT_TRUE(Has(o.out, "read a token"));
  EXPECT_FALSE(Has(o.out, "cannot run")) << o.out;
}

TEST(Inspect, ALoneSafetensorsFile) {
  const auto o = RunGlint({"inspect", testing::MicroModel() + "/model.safetensors", "--json"});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "name its directory")) << o.err;
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok());
  EXPECT_FALSE(json->Get<bool>("runnable").value());
  EXPECT_GT(json->Find("tensors")->items().size(), 100u);
}

// Whatever it is that glint can't run: all that can be read is shown, and the exit code says that it will not run.
TEST(Inspect, CheckpointsThatCannotRunAreShownAndFail) {
  const std::string config = testing::ReadAll(testing::MicroModel() + "/config.json"),
                    weights = testing::ReadAll(testing::MicroModel() + "/model.safetensors");
  const auto changed = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  struct Case {
    std::string config, weights, why;
  };
  for (const Case& c :
       {Case{changed(config, "glm5_next", "llama_xxl"), weights, "model_type"},
        Case{changed(config, "silu", "gelu"), weights, "hidden_act"},
        Case{config, changed(weights, "\"F32\"", "\"X32\""), "X32"},
        Case{config, changed(weights, "\"F32\"", "\"I32\""), "I32"},
        Case{config, changed(weights, "lm_head", "ml_head"), "lm_head"}, Case{"", weights, "config.json"}}) {
    SCOPED_TRACE(c.why);
    const TempDir folder;
    if (!c.config.empty()) folder.Write("config.json", c.config);
    folder.Write("model.safetensors", c.weights);
    const auto text = RunGlint({"inspect", folder.path()}),
               json = RunGlint({"inspect", folder.path(), "--json"});
    EXPECT_EQ(text.code, 1);
    EXPECT_TRUE(Has(text.out, "\nTypes\n") && Has(text.out, "glint cannot run it: ")) << text.out;
    EXPECT_TRUE(text.err.starts_with("glint inspect: " + folder.path()) && Has(text.err, c.why)) << text.err;
    EXPECT_EQ(json.code, 1);
    const auto read = ParseJson(json.out, "stdout");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_FALSE(read->Get<bool>("runnable").value());
    EXPECT_EQ(RunGlint({"run", "-m", folder.path(), "--ids", "1", "-n", "1"}).code, 1);
  }
}

// Every command that takes a model says the same.
TEST(Inspect, ADirectoryThatIsNoCheckpoint) {
  const TempDir folder, out;
  const auto message = [&](const std::string& wanted) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"inspect", folder.path()},
                                                    {"run", "-m", folder.path(), "x"},
                                                    {"convert", folder.path(), out.Path("x.gguf")}}) {
      const auto o = RunGlint(command);
      EXPECT_EQ(o.code, 1);
      EXPECT_TRUE(Has(o.err, folder.path() + ": is no Hugging Face checkpoint: ") && Has(o.err, wanted))
          << o.err << "wanted: " << wanted;
    }
  };
  message("wanted are config.json, and model.safetensors or model.safetensors.index.json; it is empty\n");
  folder.Write("b.gguf", "");
  folder.Write("a\x1b.txt", "");
  message("; it holds a\\x1b.txt, b.gguf; a GGUF model is named by its file, " + folder.Path("b.gguf\n"));
  folder.Write("config.json", "{}");
  for (const char* name : {"d", "e", "f"}) folder.Write(name, "");
  message(
      "neither model.safetensors nor model.safetensors.index.json is in it; it holds a\\x1b.txt, b.gguf, "
      "config.json, d, e and 1 more; ");
  EXPECT_TRUE(Has(RunGlint({"convert", folder.Path("d"), out.Path("x.gguf")}).err, "is no directory"));
  EXPECT_TRUE(Has(RunGlint({"convert", folder.Path("g"), out.Path("x.gguf")}).err, "no such directory"));
}

// A file of another architecture, with everything in it that could hurt a terminal.
class InspectForeign : public ::testing::Test {
 protected:
  void SetUp() override {
    gguf::Writer writer;
    writer.SetString("general.architecture", "llama");
    writer.SetString("general.name",
                     "\x1b[31mred\x07\nline \\ \"quoted\" \xc2\x9b"
                     "2J \xf0\x9f\xa6\x8a");
    writer.SetStrings("evil.list", {"\x1b]0;title\x07", "fine", "\r\r"});
    std::vector<std::string> many;
    for (int i = 0; i < 5000; ++i) many.push_back("word" + std::to_string(i));
    writer.SetStrings("tokenizer.ggml.tokens", many);
    writer.SetString("long.text", std::string(5000, 'x') + "END");
    writer.SetF32("float", 0.1f);
    writer.SetU64("big", UINT64_MAX);
    writer.SetI32("negative", -5);
    writer.SetBool("yes", true);
    const std::vector<float> data(8, 1.0f);
    writer.AddTensor("blk.0.\x1b[5mweight", 0, {4, 2}, 32,
                     [&](const gguf::Writer::Sink& sink) { return sink(std::as_bytes(std::span(data))); });
    path_ = folder_.Path("foreign.gguf");
    const Status status = writer.Write(path_, {});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  TempDir folder_;
  std::string path_;
};

TEST_F(InspectForeign, IsShownAndExplained) {
  const auto o = RunGlint({"inspect", path_, "--tensors"});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "llama")) << o.err;
  EXPECT_TRUE(Has(o.out, "general.architecture") && Has(o.out, "\"llama\"")) << o.out;
  EXPECT_TRUE(Has(o.out, "[4, 2]")) << o.out;
  EXPECT_TRUE(Has(o.out, "cannot run it: ")) << o.out;
  EXPECT_TRUE(Has(o.out, "string[5000]") && Has(o.out, "5,000 in all") && !Has(o.out, "word4000"));
  EXPECT_TRUE(Has(o.out, "5,003 bytes in all") && !Has(o.out, "END"));
  EXPECT_TRUE(Has(o.out, "  0.1\n") && Has(o.out, "18446744073709551615") && Has(o.out, "-5\n") &&
              Has(o.out, "true\n"))
      << o.out;
}

TEST_F(InspectForeign, NeverSteersATerminal) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"inspect", path_, "--tensors"},
                                                    {"inspect", path_, "--json"},
                                                    {"inspect", path_, "--key", "evil.list"},
                                                    {"inspect", path_, "--key", "evil.lisp"},
                                                    {"run", "-m", path_, "--ids", "1"}}) {
    const auto o = RunGlint(arguments);
    EXPECT_TRUE(Harmless(o.out)) << arguments.back();
    EXPECT_TRUE(Harmless(o.err)) << arguments.back();
  }
  testing::OnTerminal terminal({"inspect", path_, "--key", "general.name"});
  EXPECT_EQ(terminal.WaitForEnd(), 0);
  EXPECT_FALSE(Has(terminal.screen(), "\x1b")) << terminal.screen();
}

TEST_F(InspectForeign, KeysArePrintedWhole) {
  EXPECT_EQ(RunGlint({"inspect", path_, "--key", "long.text"}).out, std::string(5000, 'x') + "END");
  EXPECT_EQ(RunGlint({"inspect", path_, "--key", "float"}).out, "0.1\n");
  EXPECT_TRUE(Has(RunGlint({"inspect", path_, "--key", "tokenizer.ggml.tokens"}).out, "word4999\n"));
  const auto o = RunGlint({"inspect", path_, "--key", "general.nam"});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(Has(o.err, "did you mean general.name?")) << o.err;
}

TEST_F(InspectForeign, JsonHasItAll) {
  const auto o = RunGlint({"inspect", path_, "--json"});
  const auto json = ParseJson(o.out, "stdout");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_FALSE(json->Get<bool>("runnable").value());
  const Json& metadata = *json->Find("metadata");
  EXPECT_EQ(metadata.Find("tokenizer.ggml.tokens")->items().size(), 5000u);
  EXPECT_EQ(metadata.Find("big")->Get<uint64_t>("").value(), UINT64_MAX);
  EXPECT_TRUE(Has(metadata.Find("general.name")->Get<std::string>("").value(), "\x1b[31mred"))
      << "a parser gets the real text";
}

TEST(Inspect, TheEmbeddedModel) {
  if (!testing::HaveStories()) GTEST_SKIP() << "no embedded model";
  const auto o = RunGlint({"inspect", "--tensors"});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part : {"general.architecture", "tokenizer.chat_template", "token_embd.weight",
                           "routed experts", "Where it fits"}) {
    EXPECT_TRUE(Has(o.out, part)) << part;
  }
  EXPECT_FALSE(Has(o.out, "cannot run"));
}

}  // namespace
}  // namespace glint::cli
