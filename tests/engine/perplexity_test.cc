// Scoring of texts in windows, base files, and divergences by position.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "base/file.h"
#include "engine/base_file.h"
#include "engine/divergence.h"
#include "engine/scoring.h"
#include "gguf/copy.h"
#include "gguf/writer.h"
#include "glint/session.h"
#include "model/glm_flash/gguf_source.h"
#include "tests/base/temp_dir.h"
#include "tests/engine/reference.h"
#include "tests/engine/stories.h"

namespace glint::engine {
namespace {

using test::TempDir;

std::string Stories() { return GLINT_SOURCE_DIR "/models/stories/stories.gguf"; }

std::vector<int32_t> RandomIds(const Model& model, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(model.usable_vocab()));
  return ids;
}

// The rule of docs/quantization.md, counted token by token.
TEST(Scoring, EveryTokenIsScoredOnceAtTheRightPlace) {
  auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {});
  const auto ids = RandomIds(model, 90, 1);
  for (const Windows w :
       {Windows{32, 16, 1}, {32, 32, 1}, {32, 8, 20}, {32, 1, 31}, {90, 45, 1}, {200, 100, 7}}) {
    SCOPED_TRACE(testing::Message() << w.context << " " << w.stride << " " << w.first);
    std::vector<int> scored(ids.size());
    int64_t last = -1;
    const Status status = ScoreText(model, ids, w, [&](const ScoredToken& t) -> Status {
      ++scored[static_cast<size_t>(t.index)];
      EXPECT_GT(t.index, last);
      last = t.index;
      EXPECT_EQ(t.id, ids[static_cast<size_t>(t.index)]);
      EXPECT_GE(t.position, w.first);
      EXPECT_LT(t.position, w.context);
      EXPECT_EQ((t.index - t.position) % w.stride, 0);
      return {};
    });
    ASSERT_TRUE(status.ok()) << status.message();
    int64_t count = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(scored[i],
                static_cast<int64_t>(i) >= w.first && (w.stride < w.context || i % 32 != 0) ? 1 : 0)
          << i;
      count += scored[i];
    }
    EXPECT_EQ(count, ScoredTokens(w, ids.size()));
  }
  for (const Windows w : {Windows{1, 1, 1}, {32, 0, 1}, {32, 33, 1}, {32, 16, 0}, {32, 16, 32}, {32, 16, 20}})
    EXPECT_FALSE(CheckWindows(w, model, ids.size()).ok()) << w.context << " " << w.stride << " " << w.first;
  EXPECT_FALSE(CheckWindows({32, 16, 1}, model, 1).ok());
}

// The same loss as a loop over windows that knows nothing of ScoreText (tests/engine/stories.h), bit for bit.
TEST(Scoring, LossIsThatOfAPlainLoop) {
  auto model = test::MustOpen(GLINT_TEST_DATA "/reference/micro", {});
  const auto ids = RandomIds(model, 150, 2);
  LossSums sums;
  ASSERT_TRUE(ScoreText(model, ids, {64, 32, 1}, [&](const ScoredToken& t) -> Status {
                sums.Add(LogPartition(t.logits) - double{t.logits[static_cast<size_t>(t.id)]});
                return {};
              }).ok());
  const auto want = test::Loss(model, ids, 64, 32);
  EXPECT_EQ(sums.tokens, want.scored);
  EXPECT_NEAR(sums.Mean(), want.loss, 1e-12);
}

TEST(Divergence, IsTheDefinition) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> p(50), q(50);
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (size_t i = 0; i < p.size(); ++i) p[i] = normal(random), q[i] = normal(random);
    std::vector<double> base(p.size());
    for (size_t i = 0; i < p.size(); ++i) base[i] = p[i] - LogPartition(p);
    double sum_p = 0, sum_q = 0, kl = 0;
    for (size_t i = 0; i < p.size(); ++i) sum_p += std::exp(double{p[i]}), sum_q += std::exp(double{q[i]});
    for (size_t i = 0; i < p.size(); ++i) {
      const double a = std::exp(double{p[i]}) / sum_p, b = std::exp(double{q[i]}) / sum_q;
      kl += a * std::log(a / b);
    }
    const auto d = Compare(base, 0, q, 7);
    EXPECT_NEAR(d.kl, kl, 1e-10);
    EXPECT_NEAR(d.probability_change, std::exp(double{q[7]}) / sum_q - std::exp(double{p[7]}) / sum_p, 1e-12);
    EXPECT_NEAR(Compare(base, 0, p, 7).kl, 0, 1e-12);
    EXPECT_TRUE(Compare(base, 0, p, 7).same_top);
  }
  DivergenceBins bins({.edges = {0, 10}});
  for (int i = 0; i < 4; ++i)
    bins.Add(i, {.kl = double(i), .same_top = i == 0, .probability_change = i == 2 ? -0.5 : 0.1});
  EXPECT_EQ(bins.Bin(0).tokens, 4);
  EXPECT_EQ(bins.Bin(1).tokens, 0);
  EXPECT_NEAR(bins.All().mean, 1.5, 1e-7);
  EXPECT_NEAR(bins.All().median, 1.5, 1e-7);
  EXPECT_EQ(bins.All().most, 3);
  EXPECT_EQ(bins.All().same_top, 0.25);
  EXPECT_EQ(bins.All().largest_change, -0.5);
}

BaseHeader HeaderOf(const Model& model, std::span<const int32_t> ids, const Windows& w) {
  return {.model = model.fingerprint(),
          .tokenizer = "",
          .text = TokensHash(ids),
          .tokens = ids.size(),
          .vocab = static_cast<uint64_t>(model.vocab_size()),
          .windows = w,
          .rows = static_cast<uint64_t>(ScoredTokens(w, ids.size()))};
}

// Rows of every kind of spread come back within the documented error, over several sections.
TEST(BaseFile, KeepsLogProbabilitiesWithinItsError) {
  const TempDir folder;
  constexpr size_t kVocab = 30000, kRows = 150;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(kVocab));
  for (size_t r = 0; r < kRows; ++r) {
    const float spread = r % 3 == 0 ? 0.0f : r % 3 == 1 ? 2.0f : 12.0f;
    for (float& x : rows[r]) x = 5 + spread * normal(random);
  }
  BaseHeader header{.model = std::string(32, 'a'),
                    .tokenizer = "",
                    .text = std::string(32, 'b'),
                    .tokens = 1000,
                    .vocab = kVocab,
                    .windows = {64, 32, 1},
                    .rows = kRows};
  {
    auto writer = BaseWriter::Create(folder.Path("x"), header, {});
    ASSERT_TRUE(writer.ok());
    for (const auto& row : rows) ASSERT_TRUE(writer->Add(row).ok());
    EXPECT_FALSE(writer->Add(rows[0]).ok());
    ASSERT_TRUE(writer->Commit().ok());
  }
  auto reader = BaseReader::Open(folder.Path("x"));
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_TRUE(reader->CheckMatches(header).ok());
  std::vector<double> got(kVocab);
  for (const auto& row : rows) {
    ASSERT_TRUE(reader->Next(got).ok());
    const double partition = LogPartition(row), top = *std::max_element(row.begin(), row.end()) - partition;
    double sum = 0;
    for (size_t i = 0; i < kVocab; ++i) {
      sum += std::exp(got[i]);
      const double want = std::max(row[i] - partition, top - kBaseRange);
      ASSERT_NEAR(got[i], want, kBaseError) << i;
    }
    EXPECT_NEAR(sum, 1, 1e-9);
    EXPECT_LT(Compare(got, kBaseError, row, 0).kl, 1e-6);
  }
  EXPECT_FALSE(reader->Next(got).ok());
  const auto differs = [&](auto change, const std::string& word) {
    BaseHeader other = header;
    change(other);
    const Status status = reader->CheckMatches(other);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  differs([](BaseHeader& h) { h.vocab = 7; }, "30000, this run has 7");
  differs([](BaseHeader& h) { h.tokens = 999; }, "1000, this run has 999");
  differs([](BaseHeader& h) { h.text = "c"; }, "this run has c");
  differs([](BaseHeader& h) { h.windows.context = 128; }, "--ctx 64, this run has 128");
  differs([](BaseHeader& h) { h.windows.stride = 8; }, "--stride 32, this run has 8");
  differs([](BaseHeader& h) { h.windows.first = 2; }, "--first 1, this run has 2");
}

// Any byte changed, any length cut, and bytes added: refused with a reason, at the latest while rows are read.
TEST(BaseFile, DamageIsRefused) {
  const TempDir folder;
  BaseHeader header{.model = std::string(32, 'a'),
                    .tokenizer = "",
                    .text = std::string(32, 'b'),
                    .tokens = 10,
                    .vocab = 50,
                    .windows = {8, 4, 1},
                    .rows = 5};
  {
    auto writer = BaseWriter::Create(folder.Path("x"), header, {});
    ASSERT_TRUE(writer.ok());
    std::mt19937 random(5);
    std::vector<float> row(50);
    for (int r = 0; r < 5; ++r) {
      for (float& x : row) x = static_cast<float>(random() % 1000) / 100;
      ASSERT_TRUE(writer->Add(row).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  }
  const std::string good = folder.Read("x");
  const auto read_all = [&](const std::string& bytes) -> Status {
    auto reader = BaseReader::Parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "x");
    if (!reader.ok()) return reader.status();
    std::vector<double> row(reader->header().vocab);
    for (uint64_t i = 0; i < reader->header().rows; ++i)
      if (Status s = reader->Next(row); !s.ok()) return s;
    return {};
  };
  ASSERT_TRUE(read_all(good).ok());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    const Status status = read_all(bad);
    // Rows and packing of a section are not under its checksum, but are checked against what there is.
    EXPECT_FALSE(status.ok()) << "byte " << i;
    EXPECT_FALSE(status.message().empty());
  }
  for (size_t length = 0; length < good.size(); length += 7)
    EXPECT_FALSE(read_all(good.substr(0, length)).ok());
  EXPECT_FALSE(read_all(good + "x").ok());
}

// A copy of the model with one tensor changed: its data given to `change`.
void Perturb(const std::string& from, const std::string& to, const std::string& name,
             const std::function<void(std::vector<std::byte>&)>& change) {
  auto file = gguf::File::Open(from, model::BlockSizeOf);
  ASSERT_TRUE(file.ok());
  gguf::Writer writer;
  gguf::CopyKeys(*file, writer);
  bool found = false;
  for (const gguf::TensorInfo& tensor : file->tensors()) {
    if (tensor.name != name) {
      EXPECT_TRUE(gguf::CopyTensor(*file, tensor, writer).ok());
      continue;
    }
    found = true;
    std::vector<std::byte> data(tensor.data, tensor.data + tensor.bytes);
    change(data);
    writer.AddTensor(tensor.name, tensor.type, {tensor.ne.begin(), tensor.ne.begin() + tensor.dims},
                     tensor.bytes, [data](const gguf::Writer::Sink& sink) { return sink(data); });
  }
  ASSERT_TRUE(found) << name;
  ASSERT_TRUE(writer.Write(to, std::vector<std::string>{from}).ok());
}

// What the bins are for: errors of the recurrent state grow with position, errors of the head do not.
TEST(Divergence, GrowsWithPositionWhereTheStateIsWrong) {
  if (!MappedFile::Open(Stories()).ok()) GTEST_SKIP() << "no embedded model";
  const TempDir folder;
  const std::string drifting = folder.Path("kda.gguf"), flat = folder.Path("head.gguf");
  // Channels that should forget keep more: -exp(A_log) half of what it was.
  Perturb(Stories(), drifting, "blk.2.ssm_a", [](std::vector<std::byte>& data) {
    for (size_t i = 0; i < data.size(); i += sizeof(float)) {
      float a;
      std::memcpy(&a, &data[i], sizeof a);
      a *= 0.5f;
      std::memcpy(&data[i], &a, sizeof a);
    }
  });
  Perturb(Stories(), flat, "output_norm.weight", [](std::vector<std::byte>& data) {
    for (size_t i = 0; i < data.size(); i += sizeof(float)) {
      float w;
      std::memcpy(&w, &data[i], sizeof w);
      w *= i % 8 == 0 ? 1.1f : 0.9f;
      std::memcpy(&data[i], &w, sizeof w);
    }
  });
  auto model = test::MustOpen(Stories(), {});
  const auto text = ReadFile(GLINT_SOURCE_DIR "/tests/data/stories/valid_start.txt");
  ASSERT_TRUE(text.ok());
  auto ids = model.tokenizer().Encode(*text);
  ids.resize(std::min<size_t>(ids.size(), 2048));
  const Windows windows{256, 256, 1};
  const auto header = HeaderOf(model, ids, windows);
  {
    auto writer = BaseWriter::Create(folder.Path("base"), header, {});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(
        ScoreText(model, ids, windows, [&](const ScoredToken& t) { return writer->Add(t.logits); }).ok());
    ASSERT_TRUE(writer->Commit().ok());
  }
  const auto against = [&](const std::string& path) {
    auto other = test::MustOpen(path, {});
    auto reader = BaseReader::Open(folder.Path("base"));
    EXPECT_TRUE(reader.ok());
    DivergenceBins bins({.edges = {0, 16, 64, 128}});
    std::vector<double> row(header.vocab);
    EXPECT_TRUE(ScoreText(other, ids, windows, [&](const ScoredToken& t) -> Status {
                  if (Status s = reader->Next(row); !s.ok()) return s;
                  bins.Add(t.position, Compare(row, kBaseError, t.logits, t.id));
                  return {};
                }).ok());
    return bins;
  };
  const auto same = against(Stories()), state = against(drifting), head = against(flat);
  for (size_t bin = 0; bin < 4; ++bin) {
    EXPECT_GT(same.Bin(bin).tokens, 0);
    EXPECT_LT(same.Bin(bin).most, 1e-6) << bin;
    EXPECT_EQ(same.Bin(bin).same_top, 1) << bin;
  }
  EXPECT_GT(state.Bin(1).mean, 2 * state.Bin(0).mean);
  EXPECT_GT(state.Bin(3).mean, 4 * state.Bin(0).mean);
  EXPECT_LT(head.Bin(3).mean, 1.5 * head.Bin(0).mean);
  EXPECT_GT(head.Bin(3).mean, head.Bin(0).mean / 1.5);
}

}  // namespace
}  // namespace glint::engine
