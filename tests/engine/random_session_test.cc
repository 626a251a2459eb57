// Promise 2 of docs/design.md, at random: whatever was appended, cut, rewound, forked, saved, loaded (also in a new process, with other
// threads and levers) on the way, every row of logits, hidden states and drafts has the bits of a cold solo run of the same tokens.
// Every buffer and every part of a state that holds nothing is NaN.
//
// GLINT_SEEDS=N runs N cases instead of 500 (fewer under a sanitizer), GLINT_SEED=x replays one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "base/hash.h"
#include "cpu/backend.h"
#include "engine/session_impl.h"
#include "glint/session.h"
#include "tests/engine/reference.h"
#include "tests/support/child.h"

namespace glint {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kSeeds = 20;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kSeeds = 60;
#else
constexpr int kSeeds = 500;
#endif
constexpr int kVariants = 10;
constexpr size_t kMostTokens = 72;

const std::vector<std::string>& Subjects() {
  static const std::vector<std::string> subjects = {
      "micro", "tile", "tiny,layers=4,kda_heads=2,vocab=300,experts=4,mtp=1,topk=16,recipe=q4_k"};
  return subjects;
}

// The model with settings number `variant`: 0 is canonical and alone, 1 to 3 the default plan with as many threads, the others a
// choice of bitwise levers. All poisoned.
const Model& Variant(size_t subject, int variant) {
  static std::map<std::pair<size_t, int>, Model> models;
  if (const auto found = models.find({subject, variant}); found != models.end()) return found->second;
  std::mt19937_64 rng(static_cast<uint64_t>(variant));
  while (true) {
    ModelOptions options;
    options.threads = std::max(1, variant < 4 ? variant : 1 + variant % 3);
    options.mtp = subject != 1;
    if (variant == 0 || variant >= 4) options.without = {"all"};
    if (variant >= 4) {
      for (const auto& lever : cpu::Levers()) {
        if (lever.available && lever.bitwise && rng() % 2 == 0) options.with.emplace_back(lever.name);
      }
    }
    auto model = subject < 2 ? Model::Open(test::HfDirectory(Subjects()[subject]), options)
                             : Model::Synthetic(Subjects()[subject], options);
    if (!model.ok() && variant >= 4) continue;  // two levers over one stage: another choice
    EXPECT_TRUE(model.ok()) << model.status().message();
    auto& impl = *model->impl();
    impl.backend = cpu::MakeBackend(impl.data.hparams, impl.data.weights, options.threads,
                                    {.poison = true, .share_all = true});
    return models.emplace(std::pair(subject, variant), std::move(*model)).first->second;
  }
}

uint64_t HashOf(std::span<const float> row) { return Hash64(std::as_bytes(row)); }

// A session and what it gave for each position.
struct Subject {
  std::optional<Session> session;
  int variant = 0;
  std::vector<std::optional<uint64_t>> logits;  // [position], where they were asked for
  std::vector<std::vector<float>> hidden;       // [position]
  std::vector<uint64_t> mtp;                    // [MTP position] of its logits and h'
  std::vector<CheckpointId> checkpoints;

  void Shrink() {
    logits.resize(static_cast<size_t>(session->position()));
    hidden.resize(static_cast<size_t>(session->position()));
    mtp.resize(static_cast<size_t>(session->mtp_position()));
  }
};

class Case {
 public:
  Case(uint64_t seed, const std::string& folder)
      : rng_(seed),
        subject_(std::array<size_t, 8>{0, 0, 0, 0, 0, 2, 2, 1}[rng_() % 8]),
        mtp_(subject_ != 1 && Chance(2, 3)),
        folder_(folder) {
    vocab_ = static_cast<size_t>(Model_().vocab_size());
    width_ = static_cast<size_t>(Model_().hidden_size());
    log_ << Subjects()[subject_] << (mtp_ ? " with" : " without") << " MTP\n";
    // Few distinct tokens in some cases: equal scores and ties.
    alphabet_ = Chance(1, 4) ? 3 : static_cast<size_t>(Model_().usable_vocab());
  }

  // Empty, or what went wrong.
  std::string Run() {
    Start();
    const size_t steps = 6 + rng_() % 14;
    for (size_t i = 0; i < steps && error_.empty(); ++i) Step();
    for (size_t i = 0; i < all_.size() && error_.empty(); ++i) Compare(i);
    return error_;
  }
  std::string Operations() const { return log_.str(); }

 private:
  bool Chance(uint64_t a, uint64_t of) { return rng_() % of < a; }
  const Model& Model_() { return Variant(subject_, 0); }
  int AnyVariant() { return static_cast<int>(rng_() % kVariants); }
  void Check(const Status& status, const char* what) {
    if (!status.ok() && error_.empty()) error_ = std::string(what) + ": " + status.message();
  }

  void Start() {
    Subject s;
    s.variant = AnyVariant();
    auto session = Session::Create(Variant(subject_, s.variant), {.context = Room(), .mtp = mtp_});
    Check(session.status(), "create");
    if (!session.ok()) return;
    log_ << "session 0 of variant " << s.variant << ", room " << session->capacity() << "\n";
    s.session.emplace(std::move(*session));
    all_.push_back(std::move(s));
  }
  int64_t Room() { return static_cast<int64_t>(kMostTokens + rng_() % 40); }

  void Step() {
    const size_t i = rng_() % all_.size();
    Subject& s = all_[i];
    log_ << "  [" << i << "] at " << s.session->position() << ": ";
    const uint64_t dice = rng_() % 100;
    if (dice < 40 || s.session->position() == 0) {
      Append(s);
    } else if (dice < 52) {
      mtp_ ? Drafts(s) : Append(s);
    } else if (dice < 60) {
      const auto id = s.session->Checkpoint();
      Check(id.status(), "checkpoint");
      if (id.ok()) s.checkpoints.push_back(*id);
      log_ << "checkpoint\n";
    } else if (dice < 68 && !s.checkpoints.empty()) {
      const size_t which = rng_() % s.checkpoints.size();
      Check(s.session->Rewind(s.checkpoints[which]), "rewind");
      s.checkpoints.resize(which + 1);
      log_ << "back to checkpoint " << which << ", " << s.session->position() << "\n";
      s.Shrink();
    } else if (dice < 78) {
      const auto where = s.session->Rewindable();
      const int64_t to = where[rng_() % where.size()];
      log_ << "back to " << to << "\n";
      Check(s.session->RewindTo(to), "rewind");
      // Checkpoints behind it are gone; the rest would do, but their number is not known from outside.
      s.checkpoints.clear();
      s.Shrink();
    } else if (dice < 84 && all_.size() < 3) {
      log_ << "fork\n";
      auto fork = s.session->Fork();
      Check(fork.status(), "fork");
      if (!fork.ok()) return;
      Subject copy;
      copy.session.emplace(std::move(*fork));
      copy.variant = s.variant, copy.logits = s.logits, copy.hidden = s.hidden, copy.mtp = s.mtp;
      all_.push_back(std::move(copy));
    } else {
      SaveAndLoad(s);
    }
  }

  void Append(Subject& s) {
    const size_t room = kMostTokens - static_cast<size_t>(s.session->position());
    size_t left = std::min<size_t>(room, 1 + rng_() % (Chance(1, 3) ? 40 : 8));
    log_ << "append";
    while (left > 0 && error_.empty()) {
      const size_t n = Chance(1, 2) ? left : 1 + rng_() % left;
      const auto which = static_cast<LogitRows>(rng_() % 3);
      const size_t rows = which == LogitRows::kAll ? n : which == LogitRows::kLast ? 1 : 0;
      log_ << " " << n << (rows == 0 ? "-" : rows == n ? "*" : ".");
      std::vector<int32_t> ids(n);
      for (auto& id : ids) id = static_cast<int32_t>(rng_() % alphabet_);
      std::vector<float> logits(rows * vocab_, NAN), hidden(n * width_, NAN);
      Check(s.session->AppendWithHidden(ids, which, logits, hidden), "append");
      for (size_t r = 0; r < n; ++r) {
        std::optional<uint64_t> hash;
        if (r + rows >= n) hash = HashOf(std::span(logits).subspan((r + rows - n) * vocab_, vocab_));
        s.logits.push_back(hash);
        s.hidden.emplace_back(hidden.begin() + static_cast<std::ptrdiff_t>(r * width_),
                              hidden.begin() + static_cast<std::ptrdiff_t>((r + 1) * width_));
      }
      left -= n;
    }
    log_ << "\n";
  }

  // Catches the MTP block up with some of the tokens, then perhaps drafts beyond and forgets the drafts.
  void Drafts(Subject& s) {
    const size_t from = static_cast<size_t>(s.session->mtp_position()),
                 to = static_cast<size_t>(s.session->position()) - 1;
    if (to > from) {
      const size_t rows = 1 + rng_() % (to - from);
      log_ << "mtp rows " << rows;
      std::vector<float> hidden;
      for (size_t p = from; p < from + rows; ++p)
        hidden.insert(hidden.end(), s.hidden[p].begin(), s.hidden[p].end());
      MtpRows(s, s.session->tokens().subspan(from + 1, rows), hidden);
    }
    const int64_t before = s.session->mtp_position();
    if (Chance(1, 2) && error_.empty() && before + 20 < s.session->capacity()) {
      const size_t rows = 1 + rng_() % 6;
      log_ << " drafts " << rows;
      std::vector<int32_t> next(rows);
      for (auto& id : next) id = static_cast<int32_t>(rng_() % alphabet_);
      MtpRows(s, next, std::vector<float>(rows * width_, 0.25f));
      Check(s.session->TruncateMtp(before), "truncate");
      s.Shrink();
    }
    log_ << "\n";
  }
  void MtpRows(Subject& s, std::span<const int32_t> next, const std::vector<float>& hidden) {
    std::vector<float> logits(next.size() * vocab_, NAN), out(next.size() * width_, NAN);
    Check(s.session->AppendMtp(next, hidden, logits, out), "mtp");
    for (size_t r = 0; r < next.size(); ++r) {
      s.mtp.push_back(HashOf(std::span(logits).subspan(r * vocab_, vocab_)) ^
                      3 * HashOf(std::span(out).subspan(r * width_, width_)));
    }
  }

  void SaveAndLoad(Subject& s) {
    const std::string path = folder_ + "/session";
    Check(s.session->Save(path, "words"), "save");
    if (Chance(1, 24) && s.session->position() + 8 < static_cast<int64_t>(kMostTokens)) InNewProcess(s, path);
    const int variant = AnyVariant();
    log_ << "saved, loaded by variant " << variant << "\n";
    if (!error_.empty()) return;
    auto loaded =
        Session::Load(Variant(subject_, variant), path, {.context = Chance(1, 2) ? 0 : Room(), .mtp = mtp_});
    Check(loaded.status(), "load");
    if (!loaded.ok()) return;
    s.session.emplace(std::move(*loaded));
    s.variant = variant;
    s.checkpoints.clear();
  }

  // A new process appends a token and saves.
  void InNewProcess(Subject& s, const std::string& path) {
    const int variant = AnyVariant();
    const auto token = static_cast<int32_t>(rng_() % alphabet_);
    log_ << "a new process of variant " << variant << " appends " << token << ", ";
    std::ostringstream task;
    task << path << " " << subject_ << " " << variant << " " << (mtp_ ? 1 : 0) << " " << token;
    test::Child child("RandomSessionChild.DISABLED_AppendsOne", task.str());
    if (!child.Succeeded()) {
      error_ = "the new process failed";
      return;
    }
    std::vector<float> rows(vocab_ + width_, NAN);
    std::ifstream(path + ".rows", std::ios::binary)
        .read(reinterpret_cast<char*>(rows.data()), static_cast<std::streamsize>(4 * rows.size()));
    s.logits.emplace_back(HashOf(std::span(rows).first(vocab_)));
    s.hidden.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(vocab_), rows.end());
  }

  void Compare(size_t i) {
    Subject& s = all_[i];
    const auto n = static_cast<size_t>(s.session->position());
    if (n == 0) return;
    const std::vector<int32_t> ids(s.session->tokens().begin(), s.session->tokens().end());
    // Some by the canonical plan: the scalar one takes its time.
    const Model& model = Variant(subject_, Chance(1, 4) ? 0 : 1);
    auto cold = Session::Create(model, {.context = static_cast<int64_t>(n), .mtp = mtp_});
    Check(cold.status(), "create");
    if (!cold.ok()) return;
    std::vector<float> logits(n * vocab_, NAN), hidden(n * width_, NAN);
    Check(cold->AppendWithHidden(ids, LogitRows::kAll, logits, hidden), "cold run");
    const auto differs = [&](const char* what, size_t at) {
      if (error_.empty())
        error_ = "session " + std::to_string(i) + ": " + what + " of position " + std::to_string(at) +
                 " of " + std::to_string(n) + " differ from the cold run's";
    };
    for (const float x : logits) {
      if (std::isnan(x)) return differs("(NaN) logits", 0);
    }
    for (size_t p = 0; p < n; ++p) {
      if (s.logits[p] && *s.logits[p] != HashOf(std::span(logits).subspan(p * vocab_, vocab_)))
        return differs("logits", p);
      if (HashOf(s.hidden[p]) != HashOf(std::span(hidden).subspan(p * width_, width_)))
        return differs("hidden states", p);
    }
    const size_t rows = s.mtp.size();
    if (rows == 0) return;
    std::vector<float> mtp(rows * vocab_, NAN), out(rows * width_, NAN);
    Check(cold->AppendMtp(std::span(ids).subspan(1, rows), std::span(hidden).first(rows * width_), mtp, out),
          "cold MTP run");
    for (size_t p = 0; p < rows; ++p) {
      const uint64_t want = HashOf(std::span(mtp).subspan(p * vocab_, vocab_)) ^
                            3 * HashOf(std::span(out).subspan(p * width_, width_));
      if (s.mtp[p] != want) return differs("MTP rows", p);
    }
  }

  std::mt19937_64 rng_;
  size_t subject_;
  bool mtp_;
  std::string folder_, error_;
  size_t vocab_ = 0, width_ = 0, alphabet_ = 0;
  std::vector<Subject> all_;
  std::ostringstream log_;
};

TEST(RandomSessionChild, DISABLED_AppendsOne) {
  std::istringstream task(test::Child::Task());
  std::string path;
  size_t subject = 0;
  int variant = 0, mtp = 0;
  int32_t token = 0;
  ASSERT_TRUE(task >> path >> subject >> variant >> mtp >> token);
  const Model& model = Variant(subject, variant);
  auto session = Session::Load(model, path, {.context = 0, .mtp = mtp == 1});
  ASSERT_TRUE(session.ok()) << session.status().message();
  std::vector<float> logits(static_cast<size_t>(model.vocab_size())),
      hidden(static_cast<size_t>(model.hidden_size()));
  ASSERT_TRUE(session->AppendWithHidden({&token, 1}, LogitRows::kAll, logits, hidden).ok());
  ASSERT_TRUE(session->Save(path, "words").ok());
  std::ofstream out(path + ".rows", std::ios::binary);
  out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(4 * logits.size()));
  out.write(reinterpret_cast<const char*>(hidden.data()), static_cast<std::streamsize>(4 * hidden.size()));
}

TEST(RandomSession, HasTheBitsOfAColdRun) {
  const std::string folder = test::ScratchFolder() + "/random";
  std::filesystem::create_directories(folder);
  const std::string count = test::FromEnvironment("GLINT_SEEDS"), one = test::FromEnvironment("GLINT_SEED");
  const int cases = !one.empty() ? 1 : count.empty() ? kSeeds : std::stoi(count);
  const uint64_t first = one.empty() ? uint64_t{std::random_device{}()} << 20 : std::stoull(one);
  std::printf("%d cases, seeds from %llu\n", cases, static_cast<unsigned long long>(first));
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    Case random(seed, folder);
    const std::string error = random.Run();
    ASSERT_EQ(error, "") << "GLINT_SEED=" << seed << " replays it:\n" << random.Operations();
  }
}

}  // namespace
}  // namespace glint
