// Session files: what is loaded continues with the bits of a cold run; what is damaged, foreign or of another version is refused with
// a reason; what is killed while saving leaves a whole file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <set>

#include "base/compress.h"
#include "base/file.h"
#include "engine/session_file.h"
#include "engine/session_impl.h"
#include "glint/session.h"
#include "tests/base/temp_dir.h"
#include "tests/engine/reference.h"
#include "tests/support/child.h"
#include "tests/support/session_bytes.h"

namespace glint {
namespace {

using test::TempDir;

const Model& Micro(bool mtp = true) {
  static const Model with = test::MustOpen(test::HfDirectory("micro"), {.threads = 2, .mtp = true});
  static const Model without = test::MustOpen(test::HfDirectory("micro"), {.threads = 1});
  return mtp ? with : without;
}

std::vector<int32_t> Ids(const Model& model, size_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<int32_t> ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(rng() % static_cast<uint64_t>(model.usable_vocab()));
  return ids;
}

Session MustCreate(const Model& model, const SessionOptions& options) {
  auto session = Session::Create(model, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(*session);
}

// Appends tokens, and the MTP rows whose next token is known; gives the logits of all rows.
std::vector<float> Feed(Session& session, const Model& model, std::span<const int32_t> ids,
                        std::vector<float>* hidden) {
  std::vector<float> logits(ids.size() * static_cast<size_t>(model.vocab_size()));
  std::vector<float> rows(ids.size() * static_cast<size_t>(model.hidden_size()));
  const Status status = session.AppendWithHidden(ids, LogitRows::kAll, logits, rows);
  EXPECT_TRUE(status.ok()) << status.message();
  hidden->insert(hidden->end(), rows.begin(), rows.end());
  return logits;
}

std::vector<float> FeedMtp(Session& session, const Model& model, const std::vector<float>& hidden) {
  const auto from = static_cast<size_t>(session.mtp_position()),
             to = static_cast<size_t>(session.position()) - 1;
  const auto width = static_cast<size_t>(model.hidden_size());
  std::vector<float> logits((to - from) * static_cast<size_t>(model.vocab_size()));
  const Status status =
      session.AppendMtp(session.tokens().subspan(from + 1, to - from),
                        std::span(hidden).subspan(from * width, (to - from) * width), logits, {});
  EXPECT_TRUE(status.ok()) << status.message();
  return logits;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

TEST(SessionFile, ContinuesWithTheBitsOfAColdRun) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const Model& model = Micro();
  const auto ids = Ids(model, 90, seed);
  const auto vocab = static_cast<size_t>(model.vocab_size());
  auto cold = MustCreate(model, {.context = 90, .mtp = true});
  std::vector<float> cold_hidden;
  const auto truth = Feed(cold, model, ids, &cold_hidden);
  const auto mtp_truth = FeedMtp(cold, model, cold_hidden);
  TempDir dir;
  for (const size_t at : {0, 1, 2, 15, 16, 17, 40, 63, 64, 89}) {
    SCOPED_TRACE(at);
    auto session = MustCreate(model, {.context = 100, .mtp = true});
    std::vector<float> hidden;
    if (at > 0) Feed(session, model, std::span(ids).first(at), &hidden);
    if (at > 1) FeedMtp(session, model, hidden);
    const std::string path = dir.Path("session"), words = "words \n" + std::to_string(at);
    ASSERT_TRUE(session.Checkpoint().ok());
    ASSERT_TRUE(session.Save(path, words).ok());
    for (const int64_t context : {0, 90}) {
      std::string attachment;
      auto loaded = Session::Load(model, path, {.context = context, .mtp = true}, &attachment);
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      EXPECT_EQ(attachment, words);
      EXPECT_EQ(loaded->capacity(), context == 0 ? 100 : context);
      EXPECT_TRUE(std::equal(loaded->tokens().begin(), loaded->tokens().end(), ids.begin(),
                             ids.begin() + static_cast<int>(at)));
      EXPECT_EQ(loaded->mtp_position(), session.mtp_position());
      EXPECT_EQ(loaded->Rewindable(), session.Rewindable());  // the checkpoint was at the present position
      auto more = hidden;
      const auto logits = Feed(*loaded, model, std::span(ids).subspan(at), &more);
      EXPECT_TRUE(SameBits(logits, std::span(truth).subspan(at * vocab)));
      const size_t mtp_at = at > 1 ? at - 1 : 0;
      EXPECT_TRUE(SameBits(FeedMtp(*loaded, model, more), std::span(mtp_truth).subspan(mtp_at * vocab)));
    }
    // Without the MTP block, by a model that was opened without it.
    auto trunk = Session::Load(Micro(false), path);
    ASSERT_TRUE(trunk.ok()) << trunk.status().message();
    std::vector<float> ignored;
    EXPECT_TRUE(SameBits(Feed(*trunk, Micro(false), std::span(ids).subspan(at), &ignored),
                         std::span(truth).subspan(at * vocab)));
  }
  EXPECT_EQ(dir.List(), std::vector<std::string>{"session"});
}

// A state saved after loading is the state that was saved.
TEST(SessionFile, SavedAgainItIsTheSameFile) {
  const Model& model = Micro();
  TempDir dir;
  auto session = MustCreate(model, {.context = 100, .mtp = true});
  std::vector<float> hidden;
  Feed(session, model, Ids(model, 43, 1), &hidden);
  FeedMtp(session, model, hidden);
  ASSERT_TRUE(session.Save(dir.Path("a"), "x").ok());
  auto loaded = Session::Load(model, dir.Path("a"), {.context = 0, .mtp = true});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_TRUE(loaded->Save(dir.Path("b"), "x").ok());
  EXPECT_EQ(dir.Read("a"), dir.Read("b"));
}

// The MTP block is cut back to where its raw rows are gone: that state is saved and loaded too, and is as free as it was.
TEST(SessionFile, KeepsHowFarTheMtpBlockMayBeCut) {
  const Model& model = Micro();
  const auto ids = Ids(model, 60, 7);
  TempDir dir;
  for (int64_t to = 0; to <= 59; ++to) {
    auto session = MustCreate(model, {.context = 100, .mtp = true});
    std::vector<float> hidden;
    Feed(session, model, ids, &hidden);
    FeedMtp(session, model, hidden);
    if (!session.TruncateMtp(to).ok()) continue;
    ASSERT_TRUE(session.Save(dir.Path("s")).ok());
    auto loaded = Session::Load(model, dir.Path("s"), {.context = 0, .mtp = true});
    ASSERT_TRUE(loaded.ok()) << to << loaded.status().message();
    EXPECT_TRUE(SameBits(FeedMtp(*loaded, model, hidden), FeedMtp(session, model, hidden))) << to;
    auto again = Session::Load(model, dir.Path("s"), {.context = 0, .mtp = true});
    auto first = MustCreate(model, {.context = 100, .mtp = true});
    std::vector<float> unused;
    Feed(first, model, ids, &unused);
    FeedMtp(first, model, hidden);
    ASSERT_TRUE(first.TruncateMtp(to).ok());
    for (int64_t further = to; further >= 0; --further)
      EXPECT_EQ(again->TruncateMtp(further).ok(), first.TruncateMtp(further).ok()) << to << " to " << further;
  }
}

void ExpectRefused(const Status& status, Code code, std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(code)) << status.message();
  for (const auto part : parts)
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "no \"" << part << "\" in: " << status.message();
}

std::string GoodFile(const TempDir& dir, const Model& model, size_t tokens) {
  auto session = MustCreate(model, {.context = 100, .mtp = true});
  std::vector<float> hidden;
  Feed(session, model, Ids(model, tokens, 3), &hidden);
  FeedMtp(session, model, hidden);
  EXPECT_TRUE(session.Save(dir.Path("good"), "attached").ok());
  return dir.Read("good");
}

TEST(SessionFile, TellsApartWhatItCanNotLoad) {
  const Model& model = Micro();
  TempDir dir;
  const std::string good = GoodFile(dir, model, 37);
  const auto load = [&](const std::string& bytes,
                        const SessionOptions& options = {.context = 0, .mtp = true}) {
    return Session::Load(model, dir.Write("bad", bytes), options).status();
  };
  const auto edited = [&](size_t at, size_t bytes, uint64_t value) {
    std::string file = good;
    test::PutNumber(file, at, bytes, value);
    test::Seal(file);
    return file;
  };
  ASSERT_TRUE(load(good).ok());
  ExpectRefused(load(""), Code::kBadFile, {"empty"});
  ExpectRefused(load("GGUF and so on, long enough to be a header of something"), Code::kBadFile,
                {"not a session file"});
  ExpectRefused(load(good.substr(0, 20)), Code::kBadFile, {"cut off after 20 bytes"});
  ExpectRefused(load(good.substr(0, good.size() - 1)), Code::kBadFile, {"cut off after", "whole copy"});
  ExpectRefused(load(good + "x"), Code::kBadFile, {"1 bytes follow its end"});
  ExpectRefused(load(edited(8, 4, 2)), Code::kUnsupported, {"newer", "format 2", "update"});
  ExpectRefused(load(edited(8, 4, 0)), Code::kUnsupported, {"older", "format 0"});
  ExpectRefused(load(edited(32, 1, static_cast<uint8_t>(good[32]) ^ 1u)), Code::kBadInput, {"another model"});
  ExpectRefused(load(edited(48, 1, static_cast<uint8_t>(good[48]) ^ 1u)), Code::kBadInput,
                {"another MTP block"});
  ExpectRefused(load(edited(64, 1, static_cast<uint8_t>(good[64]) ^ 1u)), Code::kBadInput,
                {"another tokenizer"});
  ExpectRefused(load(good, {.context = 36, .mtp = true}), Code::kNoRoom, {"37 tokens"});
  ExpectRefused(Session::Load(model, dir.Path("none")).status(), Code::kNotFound, {"none"});
  ExpectRefused(Session::Load(model, dir.path()).status(), Code::kBadInput, {"directory"});
  // The MTP block of another model does not matter to who does not want it.
  EXPECT_TRUE(load(edited(48, 1, static_cast<uint8_t>(good[48]) ^ 1u), {.context = 0}).ok());

  auto plain = MustCreate(model, {.context = 50});
  ASSERT_TRUE(plain.Save(dir.Path("plain")).ok());
  ExpectRefused(Session::Load(model, dir.Path("plain"), {.context = 0, .mtp = true}).status(),
                Code::kBadInput, {"without the MTP block"});
  const Model other = test::MustOpen(test::HfDirectory("tile"), {.threads = 1});
  ExpectRefused(Session::Load(other, dir.Path("good")).status(), Code::kBadInput,
                {"another model", model.fingerprint(), other.fingerprint()});
}

TEST(SessionFile, ReplacesNothingButSessionFiles) {
  const Model& model = Micro();
  TempDir dir;
  auto session = MustCreate(model, {.context = 10});
  dir.Write("letter", "Dear reader,");
  ExpectRefused(session.Save(dir.Path("letter")), Code::kBadInput, {"letter", "not a session file"});
  EXPECT_EQ(dir.Read("letter"), "Dear reader,");
  ExpectRefused(session.Save(dir.Path("no/such/directory")), Code::kNotFound, {"directory"});
  ExpectRefused(session.Save(dir.path()), Code::kBadInput, {});
  dir.Write("empty", "");
  EXPECT_TRUE(session.Save(dir.Path("empty")).ok());
  EXPECT_TRUE(session.Save(dir.Path("new")).ok());
  EXPECT_TRUE(session.Save(dir.Path("new")).ok());
  EXPECT_EQ(std::filesystem::status(dir.Path("new")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  // Stopped by its caller it leaves the old file.
  const std::string before = dir.Read("new");
  ASSERT_TRUE(session.Append(std::vector<int32_t>{1, 2}, LogitRows::kNone, {}).ok());
  ExpectRefused(session.Save(dir.Path("new"), "", [](uint64_t, uint64_t) { return false; }), Code::kBadInput,
                {"interrupted"});
  EXPECT_EQ(dir.Read("new"), before);
  EXPECT_EQ(dir.List().size(), 3u);
}

struct Damaged {
  std::string what, bytes;
};

std::vector<Damaged> DamageOf(const std::string& good, uint64_t seed) {
  std::vector<Damaged> all;
  std::mt19937_64 rng(seed);
  const size_t header = test::NumberAt(good, 12, 4), sections = test::NumberAt(good, 108, 4);
  const auto cut = [&](size_t at) { all.push_back({"cut at " + std::to_string(at), good.substr(0, at)}); };
  const auto flip = [&](size_t at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ static_cast<char>(1u << rng() % 8));
    all.push_back({"a bit of byte " + std::to_string(at), bad});
  };
  // A number changed, with checksums that fit.
  const auto edit = [&](size_t at, size_t bytes, uint64_t value) {
    std::string bad = good;
    if (test::NumberAt(good, at, bytes) == value) return;
    test::PutNumber(bad, at, bytes, value);
    test::Seal(bad);
    all.push_back({"bytes at " + std::to_string(at) + " = " + std::to_string(value), bad});
  };
  for (const size_t at : {0, 1, 7, 8, 9, 12, 16, 24, 31, 32, 64, 127, 128, 129}) cut(at);
  cut(header - 1), cut(header), cut(header + 1);
  for (size_t at = 0; at < engine::kSessionFixedBytes; ++at) flip(at);
  for (size_t i = 0; i < sections; ++i) {
    const size_t entry = engine::kSessionFixedBytes + i * engine::kSessionSectionBytes;
    const size_t offset = test::NumberAt(good, entry + 40, 8), bytes = test::NumberAt(good, entry + 48, 8);
    flip(entry + rng() % engine::kSessionSectionBytes);
    flip(offset + rng() % bytes);
    cut(offset + rng() % bytes);
  }
  for (const size_t at : {80, 88, 96}) {
    const uint64_t value = test::NumberAt(good, at, 8);
    if (at != 96) edit(at, 8, value + 1);  // more room than it had would be harmless
    for (const uint64_t v : {value - 1, uint64_t{0}, uint64_t{1} << 31, ~uint64_t{0}}) {
      if (at != 96 || v < 37 || v > 1u << 20) edit(at, 8, v);
    }
  }
  for (const uint64_t v : {0u, 2u, 3u, ~0u}) edit(104, 4, v);
  for (const uint64_t v : {uint64_t{0}, sections - 1, sections + 1, uint64_t{~0u}}) edit(108, 4, v);
  edit(112, 8, 1), edit(120, 8, 1), edit(12, 4, header + 1), edit(12, 4, 0), edit(16, 8, good.size() - 1);
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}, sections / 2, sections - 1}) {
    const size_t entry = engine::kSessionFixedBytes + i * engine::kSessionSectionBytes;
    for (const uint64_t v : {0u, 2u, 4u, ~0u}) edit(entry, 4, v);  // kind
    for (const uint64_t v : {1 - test::NumberAt(good, entry + 4, 4), uint64_t{2}})
      edit(entry + 4, 4, v);                                           // encoding
    for (const uint64_t v : {1u, 8u, 9u, ~0u}) edit(entry + 8, 4, v);  // kind of part
    for (const uint64_t v : {1u, 100u, ~0u}) edit(entry + 12, 4, v);   // layer
    for (const size_t field : {16, 24, 32, 40, 48}) {                  // first, rows, width, offset, bytes
      const uint64_t value = test::NumberAt(good, entry + field, 8);
      for (const uint64_t v : {value + 1, value - 1, value + 16, uint64_t{0}, uint64_t{1} << 30,
                               uint64_t{1} << 62, ~uint64_t{0}})
        edit(entry + field, 8, v);
    }
  }
  {  // A token that is none.
    std::string bad = good;
    test::PutNumber(bad, header + 8, 4, 0x7fffffff);
    test::Seal(bad);
    all.push_back({"a token out of range", bad});
  }
  for (size_t i = 2; i + 1 < sections;
       i += 3) {  // two entries of the table in each other's place, content and all
    std::string bad = good;
    const size_t entry = engine::kSessionFixedBytes + i * engine::kSessionSectionBytes;
    std::swap_ranges(bad.begin() + static_cast<int>(entry), bad.begin() + static_cast<int>(entry) + 40,
                     bad.begin() + static_cast<int>(entry) + 64);
    if (bad == good) continue;
    test::Seal(bad);
    all.push_back({"entries " + std::to_string(i) + " in the wrong order", bad});
  }
  {  // Packed content that unpacks to far more than its section has.
    const std::vector<std::byte> zeros(size_t{64} << 20);
    const auto bomb = Compress(zeros, 4);
    const size_t entry = engine::kSessionFixedBytes + (sections - 1) * engine::kSessionSectionBytes;
    const size_t offset = test::NumberAt(good, entry + 40, 8);
    std::string bad =
        good.substr(0, offset) + std::string(reinterpret_cast<const char*>(bomb.data()), bomb.size());
    test::PutNumber(bad, entry + 4, 4, 1);
    test::PutNumber(bad, entry + 48, 8, bomb.size());
    test::PutNumber(bad, 16, 8, bad.size());
    test::Seal(bad);
    all.push_back({"a decompression bomb", bad});
  }
  for (int i = 0; i < 100; ++i) {
    std::string bad = good;
    for (uint64_t n = rng() % 4 + 1; n > 0; --n) bad[rng() % bad.size()] = static_cast<char>(rng());
    if (bad != good) all.push_back({"random bytes", bad});
  }
  return all;
}

TEST(SessionFile, DamagedFilesAreRefusedWithAReason) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const Model& model = Micro();
  TempDir dir;
  const std::string good = GoodFile(dir, model, 37);
  // A session that is there stays as it is whatever becomes of loading another.
  const auto ids = Ids(model, 30, seed);
  auto target = MustCreate(model, {.context = 50}), twin = MustCreate(model, {.context = 50});
  std::vector<float> ignored;
  Feed(target, model, std::span(ids).first(20), &ignored);
  Feed(twin, model, std::span(ids).first(20), &ignored);

  const auto damages = DamageOf(good, seed);
  std::set<std::string> distinct;
  for (const Damaged& damage : damages) {
    SCOPED_TRACE(damage.what);
    distinct.insert(damage.bytes);
    const std::string path = dir.Write("bad", damage.bytes);
    std::string attachment = "untouched";
    auto loaded = Session::Load(model, path, {.context = 0, .mtp = true}, &attachment);
    ASSERT_FALSE(loaded.ok()) << "taken";
    const Status& status = loaded.status();
    EXPECT_TRUE(status.code() == Code::kBadFile || status.code() == Code::kUnsupported ||
                status.code() == Code::kBadInput || status.code() == Code::kNoRoom)
        << status.message();
    EXPECT_TRUE(status.message().starts_with(path + ": ")) << status.message();
    EXPECT_EQ(attachment, "untouched");
  }
  EXPECT_GE(distinct.size(), 300u);
  RecordProperty("damaged_files", static_cast<int>(distinct.size()));
  EXPECT_TRUE(SameBits(Feed(target, model, std::span(ids).subspan(20), &ignored),
                       Feed(twin, model, std::span(ids).subspan(20), &ignored)));
}

// ---- killed while saving

constexpr int64_t kRoom = 200;
int32_t TokenAt(size_t i, const Model& model) {
  return static_cast<int32_t>((i * 7 + 3) % static_cast<size_t>(model.usable_vocab()));
}

// Appends one token after another and saves after each, until it is killed.
TEST(SessionChild, DISABLED_SavesUntilKilled) {
  const std::string path = test::Child::Task();
  ASSERT_FALSE(path.empty());
  const Model& model = Micro(false);
  auto session = std::filesystem::exists(path) ? Session::Load(model, path, {.context = kRoom})
                                               : Session::Create(model, {.context = kRoom});
  ASSERT_TRUE(session.ok()) << session.status().message();
  while (true) {
    if (session->position() == kRoom) session->Reset();
    const int32_t token = TokenAt(static_cast<size_t>(session->position()), model);
    ASSERT_TRUE(session->Append({&token, 1}, LogitRows::kNone, {}).ok());
    ASSERT_TRUE(session->Save(path).ok());
  }
}

TEST(SessionFile, KilledWhileSavingItLeavesAWholeFile) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const Model& model = Micro(false);
  TempDir dir;
  const std::string path = dir.Path("session");
  {
    auto session = MustCreate(model, {.context = kRoom});
    ASSERT_TRUE(session.Save(path).ok());
  }
  std::set<int64_t> lengths;
  for (int round = 0; round < 50; ++round) {
    const auto before = std::filesystem::last_write_time(path);
    test::Child child("SessionChild.DISABLED_SavesUntilKilled", path);
    // It is saving when the file has changed; then some moment within a few saves.
    for (int i = 0; i < 30000 && std::filesystem::last_write_time(path) == before; ++i) usleep(1000);
    usleep(static_cast<useconds_t>(rng() % 3000));
    child.Kill();
    auto session = Session::Load(model, path);
    ASSERT_TRUE(session.ok()) << session.status().message();
    lengths.insert(session->position());
    for (size_t i = 0; i < session->tokens().size(); ++i) ASSERT_EQ(session->tokens()[i], TokenAt(i, model));
  }
  EXPECT_GT(lengths.size(), 10u);  // it was really saving
  // What is left behind goes once it is old; a temporary of a writer that lives stays.
  const auto leftovers = dir.List().size() - 1;
  RecordProperty("temporaries_left", static_cast<int>(leftovers));
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
  auto writer = AtomicFile::Create(dir.Path("other"));
  ASSERT_TRUE(writer.ok());
  for (const auto& name : dir.List()) std::filesystem::last_write_time(dir.Path(name), old);
  dir.Write(".glint-0123456789abcdef0123456789abcdef.tmp", "young");
  auto session = Session::Load(model, path);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE(session->Save(path).ok());
  EXPECT_EQ(dir.List().size(), 3u);  // the session, the young one and the writer's
  EXPECT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(std::filesystem::exists(dir.Path("other")));
}

}  // namespace
}  // namespace glint
