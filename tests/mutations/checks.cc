#include "tests/mutations/checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>

#include "base/math.h"
#include "cpu/context.h"
#include "cpu/product.h"
#include "engine/session_impl.h"
#include "engine/verify.h"
#include "glint/sampler.h"
#include "glint/session.h"
#include "plan/best.h"
#include "quant/format.h"
#include "tests/engine/reference.h"

namespace glint::test {
namespace {

// As tests/engine/reference_test.cc.
constexpr double kLogitsTolerance = 2e-4;

Model Micro(std::vector<std::string> without = {}, bool mtp = true) {
  return MustOpen(ModelPath("micro", "hf"),
                  {.threads = 3, .with = {}, .without = std::move(without), .mtp = mtp});
}

std::vector<int32_t> Ids(size_t n) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(i * 37 % 256));
  return ids;
}

std::string Far(const std::string& what, std::span<const double> want, std::span<const float> got) {
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  const double bound = kLogitsTolerance * (*high - *low);
  for (size_t i = 0; i < got.size(); ++i) {
    const double off = std::abs(want[i] - double{got[i]});
    if (!(off <= bound))
      return fmt::format("{}: entry {} is {}, the reference says {}", what, i, got[i], want[i]);
  }
  return "";
}

std::string Other(const std::string& what, std::span<const float> got, std::span<const float> want) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i]))
      return fmt::format("{}: entry {} is {}, should be {}", what, i, got[i], want[i]);
  }
  return "";
}

}  // namespace

std::string CheckReference() {
  const Reference reference("micro");
  const Model model = Micro({"all"});
  const auto vocab = static_cast<size_t>(model.vocab_size()), d = static_cast<size_t>(model.hidden_size());
  for (const std::string prompt : {"p20", "p67"}) {
    const auto ids = reference.Ints(prompt + ".ids");
    const auto want = reference.Floats(prompt + ".logits_f64");
    auto session = Session::Create(model, {.context = 100, .mtp = true});
    std::vector<float> logits(ids.size() * vocab), hidden(ids.size() * d);
    std::string experts;
    session->impl().observer = [&](const plan::StepView& view) {
      const std::string name = fmt::format("{}.L{}.router.ids", prompt, view.step.layer);
      if (view.step.stage != plan::Stage::kMoeRoute || !reference.Has(name)) return;
      const auto chosen = reference.Ints(name);
      if (!std::equal(chosen.begin(), chosen.end(), view.Ints(plan::Slot::kExpertIds)))
        experts = name + " differ";
    };
    if (!session->AppendWithHidden(ids, LogitRows::kAll, logits, hidden).ok()) return "a pass failed";
    if (auto found = Far(prompt, want, logits); !found.empty()) return found;
    if (!experts.empty()) return experts;
    session->impl().observer = {};
    if (reference.Has(prompt + ".nextn.logits")) {
      const auto next = reference.Ints(prompt + ".nextn.tokens");
      std::vector<float> drafts(ids.size() * vocab);
      if (!session->AppendMtp(next, hidden, drafts, {}).ok()) return "an MTP pass failed";
      const auto found = Far(prompt + " MTP", reference.Floats(prompt + ".nextn.logits"), drafts);
      if (!found.empty()) return found;
    }
    session->Reset();
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto row = std::span(logits).subspan(i * vocab, vocab);
      if (!session->Append({&ids[i], 1}, LogitRows::kLast, row).ok()) return "a pass failed";
    }
    if (auto found = Far(prompt + " token by token", want, logits); !found.empty()) return found;
  }
  return "";
}

std::string CheckVerify() {
  const auto of = [](const Model& model, const std::string& what) -> std::string {
    for (const auto levers : {engine::VerifyOptions::Levers::kPlan, engine::VerifyOptions::Levers::kEach}) {
      engine::VerifyOptions options;
      options.levers = levers;
      options.prompt = Ids(45);
      options.decode = 2;
      options.mtp = model.has_mtp();
      const auto report = engine::Verify(model, options);
      if (!report.ok()) return report.status().message();
      for (const auto& c : report->cases) {
        if (c.difference) return fmt::format("{}: {}", what, plan::Describe(*c.difference));
      }
    }
    return "";
  };
  if (auto found = of(Micro(), "micro"); !found.empty()) return found;
  for (const std::string spec : {"tiny,recipe=q4_k", "tiny,recipe=q8_0"}) {
    const auto model = Model::Synthetic(spec, {.threads = 3, .mtp_if_any = true});
    if (!model.ok()) return model.status().message();
    if (auto found = of(*model, spec); !found.empty()) return found;
  }
  return "";
}

std::string CheckSameBits() {
  const Model model = Micro();
  const auto vocab = static_cast<size_t>(model.vocab_size());
  const auto ids = Ids(70);
  auto whole = Session::Create(model, {.context = 100});
  std::vector<float> want(ids.size() * vocab), got(vocab);
  if (!whole->Append(ids, LogitRows::kAll, want).ok()) return "a pass failed";
  for (const size_t piece : {size_t{1}, size_t{5}, size_t{16}, size_t{21}, size_t{70}}) {
    auto session = Session::Create(model, {.context = 100});
    for (size_t at = 0; at < ids.size(); at += piece) {
      const size_t rows = std::min(piece, ids.size() - at);
      if (!session->Append(std::span(ids).subspan(at, rows), LogitRows::kLast, got).ok())
        return "a pass failed";
      const auto row = std::span(want).subspan((at + rows - 1) * vocab, vocab);
      if (auto found = Other(fmt::format("pieces of {}, up to {}", piece, at + rows), got, row);
          !found.empty())
        return found;
    }
  }
  return "";
}

namespace {

// A session with trunk and MTP rows of tokens, and what a cold run of the same tokens says.
class Sequence {
 public:
  explicit Sequence(const Model& model)
      : model_(model), session_(*Session::Create(model, {.context = 160, .mtp = true})) {}
  Sequence(const Model& model, Session session) : model_(model), session_(std::move(session)) {}

  // Appends to the trunk, then gives the MTP block all rows whose next token is known. The last logits of both.
  std::vector<float> Append(std::span<const int32_t> ids) {
    const auto vocab = static_cast<size_t>(model_.vocab_size()),
               d = static_cast<size_t>(model_.hidden_size());
    std::vector<float> logits(vocab), hidden(ids.size() * d);
    if (!session_.AppendWithHidden(ids, LogitRows::kLast, logits, hidden).ok()) return {};
    tail_.insert(tail_.end(), hidden.begin(), hidden.end());
    const auto all = session_.tokens();
    const auto from = static_cast<size_t>(session_.mtp_position());
    // Rows from `from` on whose hidden states are at hand: those before the last token.
    const size_t rows = all.size() - 1 - from;
    if (rows > 0 && tail_.size() / d >= rows + 1) {
      std::vector<float> drafts(rows * vocab);
      const auto h = std::span(tail_).last((rows + 1) * d).first(rows * d);
      if (!session_.AppendMtp(all.subspan(from + 1), h, drafts, {}).ok()) return {};
      logits.insert(logits.end(), drafts.end() - static_cast<std::ptrdiff_t>(vocab), drafts.end());
    }
    return logits;
  }
  // After going back: hidden states of rows that remain.
  void Keep(int64_t position) {
    tail_.resize(static_cast<size_t>(position) * static_cast<size_t>(model_.hidden_size()));
  }
  Session& session() { return session_; }
  const std::vector<float>& tail() const { return tail_; }
  void set_tail(std::vector<float> tail) { tail_ = std::move(tail); }

 private:
  const Model& model_;
  Session session_;
  std::vector<float> tail_;  // final rows of all tokens
};

}  // namespace

std::string CheckStates() {
  const Model model = Micro();
  const auto ids = Ids(90);
  const auto cold = [&](size_t n) { return Sequence(model).Append(std::span(ids).first(n)); };
  const auto wrong = std::vector<int32_t>(20, 99);
  // Inside the block: rows rejected at each distance, the MTP block's with them.
  for (const size_t keep : {size_t{32}, size_t{33}, size_t{38}}) {
    Sequence s(model);
    s.Append(std::span(ids).first(keep));
    s.Append(std::span(wrong).first(47 - keep));
    if (Status status = s.session().RewindTo(static_cast<int64_t>(keep)); !status.ok())
      return status.message();
    s.Keep(static_cast<int64_t>(keep));
    for (size_t at = keep; at < 50; at += 6) s.Append(std::span(ids).subspan(at, 6));
    const size_t end = keep + (50 - keep + 5) / 6 * 6;
    if (auto found =
            Other(fmt::format("back to {}", keep), s.Append(std::span(ids).subspan(end, 10)), cold(end + 10));
        !found.empty())
      return found;
  }
  // A checkpoint, across blocks.
  {
    Sequence s(model);
    s.Append(std::span(ids).first(37));
    const auto mark = s.session().Checkpoint();
    s.Append(wrong);
    if (Status status = s.session().Rewind(*mark); !status.ok()) return status.message();
    s.Keep(37);
    if (auto found = Other("checkpoint", s.Append(std::span(ids).subspan(37, 30)), cold(67)); !found.empty())
      return found;
  }
  // A fork and its origin live apart.
  {
    Sequence s(model);
    s.Append(std::span(ids).first(41));
    auto session = s.session().Fork();
    if (!session.ok()) return session.status().message();
    Sequence fork(model, std::move(*session));
    fork.set_tail(s.tail());
    s.Append(wrong);
    if (auto found = Other("fork", fork.Append(std::span(ids).subspan(41, 30)), cold(71)); !found.empty())
      return found;
  }
  // Afresh.
  {
    Sequence s(model);
    s.Append(std::span(wrong).first(20));
    s.session().Reset();
    s.Keep(0);
    if (auto found = Other("reset", s.Append(std::span(ids).first(30)), cold(30)); !found.empty())
      return found;
  }
  return "";
}

std::string CheckSessionFiles() {
  const Model model = Micro();
  const std::string path = ScratchFolder() + "/session";
  const auto ids = Ids(50);
  Sequence s(model);
  s.Append(std::span(ids).first(37));
  if (Status status = s.session().Save(path); !status.ok()) return status.message();
  {
    auto session = Session::Load(model, path, {.context = 0, .mtp = true});
    if (!session.ok()) return session.status().message();
    Sequence loaded(model, std::move(*session));
    loaded.set_tail(s.tail());
    const auto rest = std::span(ids).subspan(37);
    if (auto found = Other("loaded", loaded.Append(rest), s.Append(rest)); !found.empty()) return found;
  }
  const auto other = Model::Synthetic("tiny,recipe=q8_0,seed=4", {.threads = 1, .mtp_if_any = true});
  const auto same_shape = Model::Synthetic("tiny,recipe=q8_0,seed=5", {.threads = 1, .mtp_if_any = true});
  if (!other.ok() || !same_shape.ok()) return "no synthetic model";
  auto theirs = Session::Create(*other, {.context = 40});
  if (!theirs.ok() || !theirs->Append(Ids(20), LogitRows::kNone, {}).ok() || !theirs->Save(path + "2").ok())
    return "a pass failed";
  if (Session::Load(*same_shape, path + "2").ok()) return "a file of another model was loaded";
  // A bit of the state flipped, in the middle of the file.
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (const size_t share : {2u, 3u, 4u, 5u}) {
    auto damaged = bytes;
    damaged[damaged.size() - damaged.size() / share] ^= 1;
    std::ofstream(path + "3", std::ios::binary | std::ios::trunc) << damaged;
    if (Session::Load(model, path + "3").ok()) return "a damaged file was loaded";
  }
  return "";
}

namespace {

struct Product {
  Product(quant::Type t, int64_t n_columns, uint64_t seed) : type(t), columns(n_columns) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal;
    const quant::Format& format = *quant::Find(type);
    std::vector<float> weights(static_cast<size_t>(kRows * columns));
    for (float& w : weights) w = normal(rng) + 0.5f;  // minima matter
    row_bytes = static_cast<size_t>(columns) / format.block_weights * format.block_bytes;
    blocks.resize(row_bytes * kRows);
    for (int64_t r = 0; r < kRows; ++r)
      format.encode(weights.data() + r * columns, nullptr, blocks.data() + static_cast<size_t>(r) * row_bytes,
                    static_cast<size_t>(columns));
    x.resize(static_cast<size_t>(columns));
    for (float& v : x) v = normal(rng) + 0.25f;
  }
  std::vector<float> Run(const cpu::Kernels& kernels) const {
    model::Matrix w;
    w.type = type, w.columns = columns, w.rows = kRows, w.slices = 1;
    w.data = blocks.data();
    w.row_bytes = row_bytes;
    std::vector<float> y(kRows);
    cpu::Product({&kernels, nullptr, false}, w, 0, x.data(), columns, 1, y.data(), kRows);
    return y;
  }
  static constexpr int64_t kRows = 24;
  quant::Type type;
  int64_t columns;
  size_t row_bytes;
  std::vector<std::byte> blocks;
  std::vector<float> x;
};

std::vector<const cpu::Kernels*> Tables() {
  std::vector<const cpu::Kernels*> tables{&cpu::ScalarKernels()};
  for (const cpu::Kernels* t :
       {cpu::Avx2Kernels(), cpu::Avx512Kernels(), cpu::Avx512VbmiKernels(), cpu::NeonKernels()}) {
    if (t != nullptr) tables.push_back(t);
  }
  return tables;
}

}  // namespace

std::string CheckDouble() {
  for (const auto type : {quant::Type::kQ8_0, quant::Type::kQ4_K, quant::Type::kQ6_K, quant::Type::kQ5_0}) {
    const Product product(type, 1536, 5);
    std::vector<float> row(static_cast<size_t>(product.columns));
    for (const cpu::Kernels* table : Tables()) {
      const auto y = product.Run(*table);
      for (size_t o = 0; o < y.size(); ++o) {
        quant::Find(type)->decode(product.blocks.data() + o * product.row_bytes, row.data(), row.size());
        double sum = 0, magnitude = 0;
        for (size_t i = 0; i < row.size(); ++i) {
          sum += double{row[i]} * double{product.x[i]};
          magnitude += std::abs(double{row[i]} * double{product.x[i]});
        }
        if (!(std::abs(y[o] - sum) <= 1e-4 * magnitude))
          return fmt::format("{}, row {}: {}, in double precision {}", table->name, o, y[o], sum);
      }
    }
  }
  return "";
}

std::string CheckFormulas() {
  for (const cpu::Kernels* table : Tables()) {
    // Integer block products of Q8_0: units of 32 columns, parts of 1,024.
    const Product product(quant::Type::kQ8_0, 4096, 6);
    const auto y = product.Run(*table);
    for (size_t o = 0; o < y.size(); ++o) {
      float total = 0, acc = 0;
      for (int64_t k = 0; k < product.columns; k += 32) {
        quant::Unpacked block;
        quant::Find(product.type)
            ->unpack(product.blocks.data() + o * product.row_bytes + static_cast<size_t>(k / 32) * 34, block);
        float max = 0;
        for (int64_t i = k; i < k + 32; ++i)
          max = std::max(max, std::fabs(product.x[static_cast<size_t>(i)]));
        const float d = max / 32639.0f, inverse = 32639.0f / max;
        int32_t sum = 0;
        for (int64_t i = 0; i < 32; ++i)
          sum += block.code[i] *
                 static_cast<int32_t>(std::nearbyint(product.x[static_cast<size_t>(k + i)] * inverse));
        acc = std::fma(static_cast<float>(sum), block.scale[0] * d, acc);
        if ((k + 32) % 1024 == 0) {
          total = k < 1024 ? acc : total + acc;
          acc = 0;
        }
      }
      if (total != y[o]) return fmt::format("{}, Q8_0, row {}: {} and {}", table->name, o, y[o], total);
    }
    // Dot16 of every length around its lanes.
    for (int64_t n = 0; n < 70; ++n) {
      float lane[16] = {};
      for (int64_t k = 0; k < n; ++k) {
        const auto at = static_cast<size_t>(k);
        lane[k % 16] = std::fma(product.x[at], product.x[at + 100], lane[k % 16]);
      }
      for (int i = 0; i < 8; ++i) lane[i] += lane[i + 8];
      for (int i = 0; i < 4; ++i) lane[i] += lane[i + 4];
      const float want = (lane[0] + lane[2]) + (lane[1] + lane[3]);
      const float got = table->dot16(product.x.data(), product.x.data() + 100, n);
      if (want != got) return fmt::format("{}, Dot16 of {}: {} and {}", table->name, n, got, want);
    }
  }
  return "";
}

std::string CheckTies() {
  if (!(cpu::RankKey(0.5f, 3) > cpu::RankKey(0.5f, 5)))
    return "rank: equal scores, the higher index came first";
  if (cpu::RankedIndex(cpu::RankKey(0.5f, 3)) != 3) return "rank: the index is lost";
  auto sampler = Sampler::Create({.temperature = 0}, 6);
  if (!sampler.ok()) return sampler.status().message();
  const std::vector<float> logits{1, 4, 2, 4, 4, 0};
  const auto id = sampler->Sample(logits);
  if (!id.ok() || *id != 1) return "greedy: equal logits, not the lowest id";
  std::vector<float> many(5000, -1);
  many[700] = many[701] = many[1700] = many[4999] = 3;
  if (plan::BestId(many) != 700) return "best: equal logits, not the lowest id";
  return "";
}

}  // namespace glint::test
