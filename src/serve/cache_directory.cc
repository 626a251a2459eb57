#include "serve/cache_directory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/printable.h"

namespace glint::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kState = ".state", kRows = ".rows", kBad = ".bad";
constexpr std::string_view kFirstLine = "glint prefix cache 1";
constexpr size_t kMostBad = 4;
constexpr std::array<std::string_view, 5> kKinds = {"mark", "interval", "fork", "prompt", "end"};

std::string HashOf(std::span<const int32_t> tokens) {
  Hasher hash;
  hash.AddBytes(std::as_bytes(tokens));
  return Hex(hash.Value());
}

// Whether it can be a file of caches of ours: nothing in it leads out of the folder.
bool IsRowsName(std::string_view name) {
  if (!name.ends_with(kRows)) return false;
  name.remove_suffix(kRows.size());
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-';
  });
}

// The next word of a line, taken off it.
std::string_view Word(std::string_view* line) {
  const size_t end = std::min(line->find(' '), line->size());
  const std::string_view word = line->substr(0, end);
  line->remove_prefix(std::min(end + 1, line->size()));
  return word;
}

bool ToNumber(std::string_view word, int64_t* value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *value);
  return error == std::errc() && end == word.data() + word.size() && *value >= 0;
}

// False if it is none.
bool ParseAttachment(std::string_view text, CacheKind* kind, std::vector<RowsUse>* rows) {
  bool first = true, has_kind = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (std::exchange(first, false)) {
      if (line != kFirstLine) return false;
      continue;
    }
    const auto what = Word(&line);
    if (what == "kind") {
      const auto found = std::find(kKinds.begin(), kKinds.end(), Word(&line));
      if (found == kKinds.end()) return false;
      *kind = static_cast<CacheKind>(found - kKinds.begin());
      has_kind = true;
    } else if (what == "rows") {
      RowsUse use;
      use.name = Word(&line);
      if (!IsRowsName(use.name) || !ToNumber(Word(&line), &use.first) || !ToNumber(Word(&line), &use.end))
        return false;
      rows->push_back(std::move(use));
    } else {
      return false;
    }
  }
  return has_kind;
}

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

// Its time, or the smallest there is.
fs::file_time_type TimeOf(const std::string& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return error ? fs::file_time_type::min() : time;
}

}  // namespace

std::string CacheDirectory::StateName(std::span<const int32_t> tokens) {
  return fmt::format("{}-{}{}", HashOf(tokens), tokens.size(), kState);
}

std::string CacheDirectory::RowsName(std::span<const int32_t> tokens, int64_t first) {
  return fmt::format("{}-{}-{}{}", HashOf(tokens), first, tokens.size(), kRows);
}

std::string CacheDirectory::Attachment(CacheKind kind, const std::vector<RowsUse>& rows) {
  std::string text = fmt::format("{}\nkind {}\n", kFirstLine, kKinds[static_cast<size_t>(kind)]);
  for (const RowsUse& use : rows) text += fmt::format("rows {} {} {}\n", use.name, use.first, use.end);
  return text;
}

Status CacheDirectory::Remake() const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error)
    return {Code::kIo, fmt::format("{}: cannot make the folder: {}", Printable(folder_), error.message())};
  return {};
}

Result<std::unique_ptr<CacheDirectory>> CacheDirectory::Open(const Model& model, const std::string& directory,
                                                             bool mtp) {
  std::unique_ptr<CacheDirectory> made(new CacheDirectory);
  made->model_ = model;
  const std::string& tokenizer = model.tokenizer_fingerprint();
  made->folder_ = fmt::format("{}/{}-{}{}", directory, model.fingerprint(),
                              tokenizer.empty() ? "none" : tokenizer.substr(0, 8), mtp ? "-mtp" : "");
  if (Status status = made->Remake(); !status.ok()) return status;
  (void)chmod(made->folder_.c_str(),
              0700);  // it holds what was said; where this fails, its files are 0600 all the same
  const std::string lock = made->PathOf("lock");
  made->lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (made->lock_ < 0) return SystemError(lock, "cannot open");
  if (flock(made->lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return Status(Code::kBadInput, fmt::format("{}: another server uses it", Printable(made->folder_)));
    return SystemError(lock, "cannot lock");
  }
  return made;
}

CacheDirectory::~CacheDirectory() {
  if (lock_ >= 0) close(lock_);
}

std::vector<CacheDirectory::Found> CacheDirectory::Scan(uint64_t* quarantined) {
  std::vector<std::string> states, rows;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(kState)) states.push_back(name);
    if (name.ends_with(kRows)) rows.push_back(name);
  }
  rows_.clear();
  bytes_ = 0;
  DropOldBad();
  for (const auto& name : rows) AddRows(name, SizeOf(PathOf(name)));

  struct Timed {
    fs::file_time_type time;
    Found found;
  };
  std::vector<Timed> all;
  for (const auto& name : states) {
    const std::string path = PathOf(name);
    auto info = engine::LookAt(model_, path);
    Found found;
    // A state under another's name would be looked for in vain.
    const bool good = info.ok() && StateName(info->tokens) == name &&
                      ParseAttachment(info->attachment, &found.kind, &found.file.rows);
    if (!good) {
      const Code code = info.ok() ? Code::kBadFile : info.status().code();
      if (code == Code::kBadFile || code == Code::kBadInput || code == Code::kUnsupported) {
        ++*quarantined;
        Quarantine(name);
      }
      continue;
    }
    found.file.name = name;
    found.file.bytes = info->bytes;
    if (std::any_of(found.file.rows.begin(), found.file.rows.end(),
                    [&](const RowsUse& use) { return !rows_.contains(use.name); })) {
      unlink(path.c_str());
      continue;
    }
    found.tokens = std::move(info->tokens);
    Use(found.file.rows);
    AddState(found.file);
    all.push_back({TimeOf(path), std::move(found)});
  }
  for (auto it = rows_.begin(); it != rows_.end();) {
    const auto here = it++;
    if (here->second.users > 0) continue;
    unlink(PathOf(here->first).c_str());
    bytes_ -= here->second.bytes;
    rows_.erase(here);
  }
  std::stable_sort(all.begin(), all.end(), [](const Timed& a, const Timed& b) { return a.time < b.time; });
  std::vector<Found> found;
  for (auto& timed : all) found.push_back(std::move(timed.found));
  return found;
}

void CacheDirectory::AddRows(const std::string& name, uint64_t bytes) {
  if (rows_.emplace(name, RowsFile{bytes, 0}).second) bytes_ += bytes;
}

void CacheDirectory::Use(const std::vector<RowsUse>& rows) {
  for (const RowsUse& use : rows) {
    const auto found = rows_.find(use.name);
    if (found != rows_.end()) ++found->second.users;
  }
}

void CacheDirectory::Release(const std::vector<RowsUse>& rows) {
  for (const RowsUse& use : rows) {
    const auto found = rows_.find(use.name);
    if (found == rows_.end() || --found->second.users > 0) continue;
    unlink(PathOf(use.name).c_str());
    bytes_ -= found->second.bytes;
    rows_.erase(found);
  }
}

void CacheDirectory::AddState(const CacheFile& file) { bytes_ += file.bytes; }

void CacheDirectory::RemoveState(const CacheFile& file) {
  unlink(PathOf(file.name).c_str());
  bytes_ -= file.bytes;
  Release(file.rows);
}

void CacheDirectory::Quarantine(const std::string& name) {
  const std::string bad = PathOf(name) + std::string(kBad);
  if (rename(PathOf(name).c_str(), bad.c_str()) != 0) unlink(PathOf(name).c_str());
  DropOldBad();
}

// They are few, but not counted: what is quarantined is for a person.
void CacheDirectory::DropOldBad() {
  std::vector<std::pair<fs::file_time_type, std::string>> bad;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (path.ends_with(kBad)) bad.emplace_back(TimeOf(path), path);
  }
  std::sort(bad.begin(), bad.end());
  for (size_t i = 0; i + kMostBad < bad.size(); ++i) unlink(bad[i].second.c_str());
}

void CacheDirectory::Touched(const std::string& name) const {
  (void)utimensat(AT_FDCWD, PathOf(name).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

}  // namespace glint::serve
