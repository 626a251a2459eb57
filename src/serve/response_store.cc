#include "serve/response_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <span>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/printable.h"

namespace glint::serve {
namespace {

constexpr int64_t kApplication = 0x676c6e72;  // "glnr", in the file's header
constexpr int64_t kVersion = 1;
constexpr uint64_t kRowBytes = 512;       // what a row costs beside its contents
constexpr int64_t kFreePages = 256;       // that a file may have before it is shortened
constexpr size_t kMostTokens = 1u << 28;  // of a row: SQLite's rows end at a gigabyte

// Indexes: who goes on from a row; the budget's sum; the oldest that can be asked for.
constexpr const char* kSchema = R"(
CREATE TABLE responses(
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  shown INTEGER NOT NULL,
  parent INTEGER,
  bytes INTEGER NOT NULL,
  created INTEGER NOT NULL,
  previous TEXT NOT NULL,
  shared INTEGER NOT NULL,
  body_sum INTEGER NOT NULL,
  turn_sum INTEGER NOT NULL,
  body TEXT NOT NULL,
  input TEXT NOT NULL,
  output TEXT NOT NULL,
  before TEXT NOT NULL,
  tokens BLOB NOT NULL
) STRICT;
CREATE INDEX responses_parent ON responses(parent);
CREATE INDEX responses_bytes ON responses(bytes);
CREATE INDEX responses_shown ON responses(shown, seq);
)";

// A statement and its row. Columns and parameters count from 0.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql)
      : db_(db), result_(sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr)) {}
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(int64_t value) { return Bound(sqlite3_bind_int64(statement_, ++bound_, value)); }
  Statement& Bind(std::string_view text) {
    // A null pointer would bind NULL.
    return Bound(sqlite3_bind_text64(statement_, ++bound_, text.empty() ? "" : text.data(), text.size(),
                                     SQLITE_STATIC, SQLITE_UTF8));
  }
  Statement& BindBlob(std::span<const std::byte> bytes) {
    return Bound(sqlite3_bind_blob64(statement_, ++bound_,
                                     bytes.empty() ? "" : static_cast<const void*>(bytes.data()),
                                     bytes.size(), SQLITE_STATIC));
  }
  Statement& BindNull() { return Bound(sqlite3_bind_null(statement_, ++bound_)); }

  // SQLITE_ROW, SQLITE_DONE, or an error.
  int Step() { return result_ == SQLITE_OK ? sqlite3_step(statement_) : result_; }

  bool IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  int64_t Integer(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string Text(int column) const {
    const auto* text = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    return text == nullptr ? std::string() : std::string(text, Bytes(column));
  }
  std::vector<int32_t> Tokens(int column) const {
    const void* blob = sqlite3_column_blob(statement_, column);
    std::vector<int32_t> tokens(Bytes(column) / sizeof(int32_t));
    if (!tokens.empty()) std::memcpy(tokens.data(), blob, tokens.size() * sizeof(int32_t));
    return tokens;
  }

 private:
  size_t Bytes(int column) const { return static_cast<size_t>(sqlite3_column_bytes(statement_, column)); }
  Statement& Bound(int result) {
    if (result_ == SQLITE_OK) result_ = result;
    return *this;
  }

  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  int result_;
  int bound_ = 0;
};

int64_t BodySum(const std::string& body) {
  return static_cast<int64_t>(Hash64(std::as_bytes(std::span(body))));
}

// Of all else that a row says.
struct Turn {
  int64_t seq = 0;
  std::optional<int64_t> parent;
  std::string input, output, before;
  uint64_t shared = 0;  // of the parent's tokens; then come:
  std::vector<int32_t> tokens;

  int64_t Sum(std::string_view id, std::string_view previous) const {
    Hasher hasher;
    for (const std::string_view text :
         {id, previous, std::string_view(input), std::string_view(output), std::string_view(before)})
      hasher.AddText(text);
    hasher.AddNumber(shared);
    hasher.AddBytes(std::as_bytes(std::span(tokens)));
    return static_cast<int64_t>(hasher.Value().low);
  }
};

constexpr const char* kTurnColumns =
    "SELECT seq, parent, input, output, before, shared, tokens, turn_sum, id, previous FROM responses ";

// Columns as above; false: not what was written.
bool ReadTurn(const Statement& row, Turn& turn) {
  turn.seq = row.Integer(0);
  turn.parent = row.IsNull(1) ? std::nullopt : std::optional(row.Integer(1));
  turn.input = row.Text(2);
  turn.output = row.Text(3);
  turn.before = row.Text(4);
  turn.shared = static_cast<uint64_t>(row.Integer(5));
  turn.tokens = row.Tokens(6);
  return turn.Sum(row.Text(8), row.Text(9)) == row.Integer(7);
}

// Held while a file is looked at, renamed or begun, so that two processes never do so at a time. A file of its own: the other may be
// renamed. Freed by the system if its owner dies.
class OpeningLock {
 public:
  static Result<OpeningLock> Take(const std::string& path, uint32_t wait_ms) {
    OpeningLock lock;
    lock.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock.fd_ < 0) return SystemError(path, "cannot be made");
    for (uint32_t waited = 0; ::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0; waited += 20) {
      if (errno != EWOULDBLOCK && errno != EINTR) return SystemError(path, "cannot be locked");
      if (waited >= wait_ms) {
        return Status(
            Code::kIo,
            fmt::format(
                "{}: another process has held this lock for {} ms; it is taken while stored responses are "
                "looked through at start",
                Printable(path), wait_ms));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return lock;
  }
  OpeningLock(OpeningLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OpeningLock& operator=(OpeningLock&&) = delete;
  ~OpeningLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  OpeningLock() = default;
  int fd_ = -1;
};

}  // namespace

bool IsResponseId(std::string_view id) {
  constexpr std::string_view kPrefix = "resp_";
  if (!id.starts_with(kPrefix)) return false;
  id.remove_prefix(kPrefix.size());
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

std::string NewResponseKey() {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string key;
  while (key.size() < 32) {
    std::array<uint8_t, 64> bytes;
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) continue;
    // 248 is the last multiple of 62: beyond it the first letters would come more often.
    for (const uint8_t byte : bytes)
      if (byte < 248 && key.size() < 32) key += kLetters[byte % kLetters.size()];
  }
  return key;
}

class ResponseStore::Impl {
 public:
  explicit Impl(ResponseStoreOptions options) : options_(std::move(options)) {}
  ~Impl() { Close(); }

  // Under the lock. kBadFile: damaged, or none of ours.
  Status TryOpen() {
    const bool in_memory = options_.path.empty();
    if (!in_memory) {
      // SQLite's own files take this one's mode. It is not opened where it exists: closing it would drop the locks that this process
      // has on it through another store.
      const int fd = ::open(options_.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (fd < 0 && errno != EEXIST) return SystemError(options_.path, "cannot be made");
      if (fd >= 0) ::close(fd);
      (void)::chmod(options_.path.c_str(), 0600);  // one that another user owns keeps its mode
    }
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    const int opened = sqlite3_open_v2(in_memory ? ":memory:" : options_.path.c_str(), &db_, flags, nullptr);
    if (opened != SQLITE_OK) return Error(opened, "cannot be opened");
    sqlite3_busy_timeout(db_, static_cast<int>(options_.lock_wait_ms));
    sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    // A damaged file is left as it is.
    sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    if (Status s = LookThrough(); !s.ok()) return s;
    sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
    return Fit();
  }

  void Close() {
    sqlite3_close(db_);
    db_ = nullptr;
  }

  // Renames the file and its log; says so in notice_.
  Status SetAside(const Status& why) {
    Close();
    const std::string& path = options_.path;
    std::string to;
    struct stat status {};
    for (int n = 1; to.empty() || ::lstat(to.c_str(), &status) == 0; ++n)
      to = fmt::format("{}.damaged-{}", path, n);
    for (const char* suffix : {"", "-wal"}) {
      if (::rename((path + suffix).c_str(), (to + suffix).c_str()) != 0 && errno != ENOENT)
        return SystemError(path + suffix, "is damaged, and cannot be renamed");
    }
    ::unlink((path + "-shm").c_str());
    notice_ = fmt::format(
        "{}; it is now {}, and a new one was begun: responses stored before are not found any more",
        why.message(), Printable(to));
    return {};
  }

  Status Put(const StoredResponse& response) {
    if (!IsResponseId(response.id))
      return Status(Code::kBadInput, fmt::format("'{}' is no id of a response", Printable(response.id)));
    if (response.tokens.size() > kMostTokens)
      return Status(Code::kNoRoom, fmt::format("a response of {} tokens; {} can be stored",
                                               response.tokens.size(), kMostTokens));
    const std::lock_guard lock(mutex_);
    Transaction transaction(*this);
    if (Status s = transaction.Begin(); !s.ok()) return s;

    Turn turn;
    turn.input = response.input;
    turn.output = response.output;
    std::span<const int32_t> tokens = response.tokens;
    if (!response.previous.empty()) {
      // A chain that has a damaged row is not gone on from: this row takes over the conversation.
      Result<std::optional<Chain>> chain = Walk(response.previous, false);
      if (!chain.ok() && chain.status().code() != Code::kBadFile) return chain.status();
      if (chain.ok() && chain->has_value()) {
        const std::vector<int32_t>& old = (*chain)->tokens;
        turn.parent = (*chain)->last;
        turn.shared = static_cast<uint64_t>(
            std::mismatch(old.begin(), old.end(), tokens.begin(), tokens.end()).first - old.begin());
        tokens = tokens.subspan(turn.shared);
      } else {
        turn.before = response.before;
      }
    }
    turn.tokens.assign(tokens.begin(), tokens.end());
    const uint64_t bytes = kRowBytes + response.body.size() + turn.input.size() + turn.output.size() +
                           turn.before.size() + turn.tokens.size() * sizeof(int32_t);
    {
      Statement insert(db_,
                       "INSERT INTO responses(id, shown, parent, bytes, created, previous, shared, body_sum, "
                       "turn_sum, body, "
                       "input, output, before, tokens) VALUES(?,1,?,?,?,?,?,?,?,?,?,?,?,?)");
      insert.Bind(response.id);
      if (turn.parent) {
        insert.Bind(*turn.parent);
      } else {
        insert.BindNull();
      }
      insert.Bind(static_cast<int64_t>(bytes)).Bind(response.created).Bind(response.previous);
      insert.Bind(static_cast<int64_t>(turn.shared))
          .Bind(BodySum(response.body))
          .Bind(turn.Sum(response.id, response.previous));
      insert.Bind(response.body).Bind(turn.input).Bind(turn.output).Bind(turn.before);
      insert.BindBlob(std::as_bytes(std::span(turn.tokens)));
      const int result = insert.Step();
      if (result == SQLITE_CONSTRAINT)
        return Status(Code::kBadInput, fmt::format("there is a response '{}' already", response.id));
      if (result != SQLITE_DONE) return Error(result, "a response cannot be stored");
    }
    if (Status s = MakeRoom(sqlite3_last_insert_rowid(db_)); !s.ok()) return s;
    if (Status s = transaction.Commit(); !s.ok()) return s;
    GiveBack();
    return {};
  }

  Result<std::optional<StoredResponse>> Get(std::string_view id) {
    std::optional<StoredResponse> found;
    if (!IsResponseId(id)) return found;
    const std::lock_guard lock(mutex_);
    Statement row(db_,
                  "SELECT seq, parent, input, output, before, shared, tokens, turn_sum, id, previous, "
                  "created, body, body_sum "
                  "FROM responses WHERE id = ? AND shown = 1");
    const int result = row.Bind(id).Step();
    if (result == SQLITE_DONE) return found;
    if (result != SQLITE_ROW) return Error(result, "a response cannot be read");
    Turn turn;
    found.emplace();
    const bool turn_is_whole = ReadTurn(row, turn);
    found->id = row.Text(8);
    found->previous = row.Text(9);
    found->created = row.Integer(10);
    found->body = row.Text(11);
    found->input = std::move(turn.input);
    found->output = std::move(turn.output);
    if (!turn_is_whole || BodySum(found->body) != row.Integer(12)) return Damaged(id);
    return found;
  }

  Result<std::optional<StoredConversation>> Conversation(std::string_view id) {
    std::optional<StoredConversation> found;
    if (!IsResponseId(id)) return found;
    const std::lock_guard lock(mutex_);
    Result<std::optional<Chain>> chain = Walk(id, true);
    if (!chain.ok()) return chain.status();
    if (!chain->has_value()) return found;
    found = StoredConversation{std::move((*chain)->items), std::move((*chain)->tokens)};
    return found;
  }

  Result<bool> Delete(std::string_view id) {
    if (!IsResponseId(id)) return false;
    const std::lock_guard lock(mutex_);
    Transaction transaction(*this);
    if (Status s = transaction.Begin(); !s.ok()) return s;
    int64_t seq = 0;
    {
      Statement row(db_, "SELECT seq FROM responses WHERE id = ? AND shown = 1");
      const int result = row.Bind(id).Step();
      if (result == SQLITE_DONE) return false;
      if (result != SQLITE_ROW) return Error(result, "a response cannot be read");
      seq = row.Integer(0);
    }
    const Result<uint64_t> freed = Release(seq);
    if (!freed.ok()) return freed.status();
    if (Status s = transaction.Commit(); !s.ok()) return s;
    GiveBack();
    return true;
  }

  Result<ResponseStoreCounts> Counts() {
    const std::lock_guard lock(mutex_);
    return Sums();
  }

  const std::string& notice() const { return notice_; }
  const std::string& path() const { return options_.path; }
  uint32_t lock_wait_ms() const { return options_.lock_wait_ms; }

 private:
  // Rolled back if it was not committed.
  class Transaction {
   public:
    explicit Transaction(Impl& store) : store_(store) {}
    ~Transaction() {
      if (open_) sqlite3_exec(store_.db_, "ROLLBACK", nullptr, nullptr, nullptr);
    }
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    Status Begin() {
      const int result = sqlite3_exec(store_.db_, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
      if (result != SQLITE_OK) return store_.Error(result, "cannot be written to");
      open_ = true;
      return {};
    }
    Status Commit() {
      const int result = sqlite3_exec(store_.db_, "COMMIT", nullptr, nullptr, nullptr);
      if (result != SQLITE_OK) return store_.Error(result, "cannot be written to");
      open_ = false;
      return {};
    }

   private:
    Impl& store_;
    bool open_ = false;
  };

  // Rows from a conversation's first to `last`.
  struct Chain {
    int64_t last = 0;
    std::vector<std::string> items;
    std::vector<int32_t> tokens;
  };

  Status Error(int result, std::string_view what) const {
    Code code = Code::kIo;
    std::string_view remedy;
    switch (result & 0xff) {
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        code = Code::kBadFile;
        break;
      case SQLITE_FULL:
        code = Code::kNoRoom;
        remedy = "; free some space on its disk";
        break;
      case SQLITE_NOMEM:
      case SQLITE_TOOBIG:
        code = Code::kNoRoom;
        break;
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        remedy = "; another process has held it for too long";
        break;
      case SQLITE_READONLY:
      case SQLITE_CANTOPEN:
      case SQLITE_PERM:
        remedy = "; it and its folder have to be writable";
        break;
      default:
        break;
    }
    // The connection's own words where it has some for this.
    const char* words = db_ != nullptr && sqlite3_errcode(db_) == (result & 0xff) ? sqlite3_errmsg(db_)
                                                                                  : sqlite3_errstr(result);
    return {code, fmt::format("{}: {}: {}{}", Name(), what, words, remedy)};
  }

  Status Damaged(std::string_view id) const {
    return {Code::kBadFile,
            fmt::format("{}: what is stored of the response '{}' is not what was written", Name(), id)};
  }

  std::string Name() const {
    return options_.path.empty() ? "stored responses" : std::string(Printable(options_.path));
  }

  Status Run(const char* sql, std::string_view what) {
    const int result = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
    return result == SQLITE_OK ? Status() : Error(result, what);
  }

  // The one value of a statement without parameters.
  Result<int64_t> Number(const char* sql) {
    Statement row(db_, sql);
    const int result = row.Step();
    if (result != SQLITE_ROW) return Error(result, "cannot be read");
    return row.Integer(0);
  }

  Status LookThrough() {
    const Result<int64_t> application = Number("PRAGMA application_id");
    if (!application.ok()) return application.status();
    const Result<int64_t> objects = Number("SELECT count(*) FROM sqlite_schema");
    if (!objects.ok()) return objects.status();
    const bool is_new = *application == 0 && *objects == 0;
    // Kept in the file, but for the mode of the log: how it grows and shrinks; that what is deleted is overwritten; that a commit is
    // in the log, though perhaps not on the disk when it returns, which fsync for each response would cost.
    if (is_new) {
      if (Status s = Run("PRAGMA auto_vacuum = INCREMENTAL", "cannot be written to"); !s.ok()) return s;
    } else if (*application != kApplication) {
      return {Code::kBadFile, fmt::format("{}: is no file of stored responses", Name())};
    }
    if (Status s = Run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON; "
                       "PRAGMA cell_size_check = ON; "
                       "PRAGMA journal_size_limit = 16777216; PRAGMA temp_store = MEMORY",
                       "cannot be written to");
        !s.ok()) {
      return s;
    }
    if (is_new) {
      const std::string all =
          fmt::format("BEGIN IMMEDIATE; {} PRAGMA application_id = {}; PRAGMA user_version = {}; COMMIT",
                      kSchema, kApplication, kVersion);
      return Run(all.c_str(), "cannot be written to");
    }
    const Result<int64_t> version = Number("PRAGMA user_version");
    if (!version.ok()) return version.status();
    if (*version > kVersion) {
      return {
          Code::kUnsupported,
          fmt::format(
              "{}: was written by a newer glint (version {} of the file; this one knows {}); use that one, "
              "or another folder",
              Name(), *version, kVersion)};
    }
    Statement check(db_, "PRAGMA integrity_check(1)");
    const int result = check.Step();
    if (result != SQLITE_ROW) return Error(result, "cannot be looked through");
    if (check.Text(0) != "ok")
      return {Code::kBadFile, fmt::format("{}: is damaged: {}", Name(), check.Text(0))};
    // That it has the table, too.
    Statement columns(db_,
                      "SELECT seq, id, shown, parent, bytes, created, previous, shared, body_sum, turn_sum, "
                      "body, input, output, "
                      "before, tokens FROM responses LIMIT 1");
    const int selected = columns.Step();
    if (selected == SQLITE_ERROR || *version != kVersion)
      return {Code::kBadFile, fmt::format("{}: is damaged: it lacks the table it should have", Name())};
    return selected == SQLITE_ROW || selected == SQLITE_DONE ? Status() : Error(selected, "cannot be read");
  }

  // A budget may be smaller than it was.
  Status Fit() {
    Transaction transaction(*this);
    if (Status s = transaction.Begin(); !s.ok()) return s;
    if (Status s = MakeRoom(0); !s.ok()) return s;
    if (Status s = transaction.Commit(); !s.ok()) return s;
    GiveBack();
    return {};
  }

  // `visible_only`: of the last, whose id is given.
  Result<std::optional<Chain>> Walk(std::string_view id, bool visible_only) {
    std::vector<Turn> turns;
    std::optional<int64_t> next;
    do {
      Statement row(
          db_,
          (std::string(kTurnColumns) + (next ? "WHERE seq = ?" : "WHERE id = ? AND shown >= ?")).c_str());
      const int result = next ? row.Bind(*next).Step() : row.Bind(id).Bind(int64_t{visible_only}).Step();
      if (result == SQLITE_DONE && !next) return std::optional<Chain>();
      if (result == SQLITE_DONE) return Damaged(id);  // a row that others go on from is not removed
      if (result != SQLITE_ROW) return Error(result, "a response cannot be read");
      Turn& turn = turns.emplace_back();
      if (!ReadTurn(row, turn) || (turn.parent && *turn.parent >= turn.seq))
        return Damaged(id);  // rows are older than their children
      next = turn.parent;
    } while (next);
    Chain chain;
    chain.last = turns.front().seq;
    for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
      for (std::string* text : {&turn->before, &turn->input, &turn->output})
        if (!text->empty()) chain.items.push_back(std::move(*text));
      if (turn->shared > chain.tokens.size()) return Damaged(id);
      chain.tokens.resize(turn->shared);
      chain.tokens.insert(chain.tokens.end(), turn->tokens.begin(), turn->tokens.end());
    }
    return std::optional(std::move(chain));
  }

  Result<ResponseStoreCounts> Sums() {
    const Result<int64_t> shown = Number("SELECT count(*) FROM responses WHERE shown = 1");
    if (!shown.ok()) return shown.status();
    Statement row(db_, "SELECT count(*), coalesce(sum(bytes), 0) FROM responses");
    const int result = row.Step();
    if (result != SQLITE_ROW) return Error(result, "cannot be read");
    return ResponseStoreCounts{static_cast<uint64_t>(*shown), static_cast<uint64_t>(row.Integer(0)),
                               static_cast<uint64_t>(row.Integer(1))};
  }

  // Removes the oldest responses until the rest are within the budget. `newest` stays (0: none has to).
  Status MakeRoom(int64_t newest) {
    Result<ResponseStoreCounts> sums = Sums();
    if (!sums.ok()) return sums.status();
    while (sums->responses > options_.max_responses || sums->bytes > options_.max_bytes) {
      int64_t oldest = 0;
      {
        Statement row(db_, "SELECT seq FROM responses WHERE shown = 1 AND seq <> ? ORDER BY seq LIMIT 1");
        const int result = row.Bind(newest).Step();
        if (result == SQLITE_DONE) {
          return {Code::kNoRoom, fmt::format("a response and its conversation are {} bytes; {} can be stored",
                                             sums->bytes, options_.max_bytes)};
        }
        if (result != SQLITE_ROW) return Error(result, "cannot be read");
        oldest = row.Integer(0);
      }
      const Result<uint64_t> freed = Release(oldest);
      if (!freed.ok()) return freed.status();
      sums->responses -= 1;
      sums->bytes -= std::min(sums->bytes, *freed);
    }
    return {};
  }

  Result<bool> HasChildren(int64_t seq) {
    Statement row(db_, "SELECT 1 FROM responses WHERE parent = ? LIMIT 1");
    const int result = row.Bind(seq).Step();
    if (result != SQLITE_ROW && result != SQLITE_DONE) return Error(result, "cannot be read");
    return result == SQLITE_ROW;
  }

  // A response cannot be asked for any more. Its row goes as well, and those before that nobody needs, or waits for those that go on
  // from it. Gives the bytes that became free.
  Result<uint64_t> Release(int64_t seq) {
    uint64_t freed = 0;
    Result<bool> needed = HasChildren(seq);
    if (!needed.ok()) return needed.status();
    if (*needed) {
      Statement size(db_, "SELECT length(CAST(body AS BLOB)) FROM responses WHERE seq = ?");
      if (const int result = size.Bind(seq).Step(); result != SQLITE_ROW)
        return Error(result, "cannot be read");
      Statement hide(
          db_, "UPDATE responses SET shown = 0, body = '', body_sum = ?, bytes = bytes - ? WHERE seq = ?");
      const int result = hide.Bind(BodySum("")).Bind(size.Integer(0)).Bind(seq).Step();
      if (result != SQLITE_DONE) return Error(result, "cannot be written to");
      return static_cast<uint64_t>(size.Integer(0));
    }
    for (std::optional<int64_t> gone = seq; gone;) {
      std::optional<int64_t> parent;
      {
        Statement row(db_, "SELECT parent, bytes FROM responses WHERE seq = ?");
        if (const int result = row.Bind(*gone).Step(); result != SQLITE_ROW)
          return Error(result, "cannot be read");
        if (!row.IsNull(0)) parent = row.Integer(0);
        freed += static_cast<uint64_t>(row.Integer(1));
      }
      Statement remove(db_, "DELETE FROM responses WHERE seq = ?");
      if (const int result = remove.Bind(*gone).Step(); result != SQLITE_DONE)
        return Error(result, "cannot be written to");
      gone.reset();
      if (!parent) break;
      Statement hidden(db_, "SELECT 1 FROM responses WHERE seq = ? AND shown = 0");
      const int result = hidden.Bind(*parent).Step();
      if (result != SQLITE_ROW && result != SQLITE_DONE) return Error(result, "cannot be read");
      if (result == SQLITE_DONE) break;
      needed = HasChildren(*parent);
      if (!needed.ok()) return needed.status();
      if (!*needed) gone = parent;
    }
    return freed;
  }

  // Shortens a file that much was deleted from. If that fails it is as good as before.
  void GiveBack() {
    const Result<int64_t> free = Number("PRAGMA freelist_count");
    if (free.ok() && *free > kFreePages)
      sqlite3_exec(db_, "PRAGMA incremental_vacuum", nullptr, nullptr, nullptr);
  }

  ResponseStoreOptions options_;
  std::string notice_;
  std::mutex mutex_;  // of all below
  sqlite3* db_ = nullptr;
};

ResponseStore::ResponseStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResponseStore::~ResponseStore() = default;

Result<std::unique_ptr<ResponseStore>> ResponseStore::Open(ResponseStoreOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  std::optional<OpeningLock> lock;
  if (!impl->path().empty()) {
    Result<OpeningLock> taken = OpeningLock::Take(impl->path() + ".lock", impl->lock_wait_ms());
    if (!taken.ok()) return taken.status();
    lock.emplace(std::move(taken).value());
  }
  Status opened = impl->TryOpen();
  if (opened.code() == Code::kBadFile) {
    if (Status s = impl->SetAside(opened); !s.ok()) return s;
    opened = impl->TryOpen();
  }
  if (!opened.ok()) return opened;
  return std::unique_ptr<ResponseStore>(new ResponseStore(std::move(impl)));
}

const std::string& ResponseStore::notice() const { return impl_->notice(); }
Status ResponseStore::Put(const StoredResponse& response) { return impl_->Put(response); }
Result<std::optional<StoredResponse>> ResponseStore::Get(std::string_view id) { return impl_->Get(id); }
Result<std::optional<StoredConversation>> ResponseStore::Conversation(std::string_view id) {
  return impl_->Conversation(id);
}
Result<bool> ResponseStore::Delete(std::string_view id) { return impl_->Delete(id); }
Result<ResponseStoreCounts> ResponseStore::Counts() { return impl_->Counts(); }

}  // namespace glint::serve
