// Writer::WriteSet: files of many gigabytes, made in hours, by processes that may be killed.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/printable.h"
#include "base/work_file.h"
#include "gguf/shard.h"
#include "gguf/writer.h"

namespace glint::gguf {
namespace {

constexpr std::string_view kFirstWord = "glint-journal-2";
constexpr std::string_view kSealed = "sealed";  // all tensors are on the disk; only names are missing

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string LineHash(std::string_view line) { return fmt::format("{:016x}", Hash64(AsBytes(line))); }

// What an earlier run has done: lines "WORDS HASH-OF-WORDS", of which the first bad one ends the journal. A line of a tensor is
// "INDEX BEGIN END HASH-OF-THESE-BYTES NOTE"; pieces follow each other, and one that was made again drops those after it.
struct Journal {
  std::string identity;
  struct Piece {
    uint64_t end;  // in the tensor; begins where the one before it ends
    std::string hash, note;
  };
  std::map<size_t, std::vector<Piece>> done;  // by tensor
  bool sealed = false;
  uint64_t good_bytes = 0;  // up to the end of the last good line
};

// Takes the text up to a space from the front of `rest`, and the space.
std::string_view TakeWord(std::string_view& rest) {
  const size_t space = std::min(rest.find(' '), rest.size());
  const std::string_view word = rest.substr(0, space);
  rest.remove_prefix(std::min(space + 1, rest.size()));
  return word;
}

bool TakeNumber(std::string_view& rest, uint64_t& out) {
  const std::string_view word = TakeWord(rest);
  const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), out);
  return error == std::errc() && last == word.data() + word.size();
}

// False if the line is none of a tensor, or of a piece that does not follow another.
bool AddPiece(std::string_view words, Journal& journal) {
  uint64_t index = 0, begin = 0, end = 0;
  if (!TakeNumber(words, index) || !TakeNumber(words, begin) || !TakeNumber(words, end)) return false;
  auto& pieces = journal.done[static_cast<size_t>(index)];
  while (!pieces.empty() && pieces.back().end > begin) pieces.pop_back();
  if (begin != (pieces.empty() ? 0 : pieces.back().end) || end < begin) return false;
  const std::string_view hash = TakeWord(words);
  pieces.push_back({end, std::string(hash), std::string(words)});
  return true;
}

Journal ParseJournal(std::string_view text) {
  Journal journal;
  constexpr size_t kHash = 16;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos || end - begin < kHash + 2) break;
    const std::string_view whole = text.substr(begin, end - begin);
    const std::string_view words = whole.substr(0, whole.size() - kHash - 1);
    if (whole.substr(words.size() + 1) != LineHash(words)) break;
    if (begin == 0) {
      std::string_view rest = words;
      if (TakeWord(rest) != kFirstWord) break;
      journal.identity = rest;
    } else if (words == kSealed) {
      journal.sealed = true;
    } else if (!AddPiece(words, journal)) {
      break;
    }
    begin = end + 1;
    journal.good_bytes = begin;
  }
  return journal;
}

bool Exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

}  // namespace

// One run over one set.
class SetRun {
 public:
  SetRun(const Writer& writer, std::string path, const Writer::SetOptions& options)
      : writer_(writer), path_(std::move(path)), journal_path_(path_ + ".journal"), options_(options) {}

  Result<Writer::SetSummary> Run() {
    if (Status s = Lay(); !s.ok()) return s;
    if (Status s = CheckDestinations(); !s.ok()) return s;
    if (Status s = ReadJournal(); !s.ok()) return s;
    if (Status s = CheckRoom(); !s.ok()) return s;
    Status status = options_.dry ? DryRun() : Make();
    if (!status.ok() && !interrupted_ && !journal_.sealed) {
      // A disk that others fill, or their memory, is no reason to throw hours of work away.
      if (status.code() == Code::kNoRoom && noted_) {
        return Status(Code::kNoRoom, status.message() +
                                         "; what is made stays, and once there is room the "
                                         "same command goes on from there");
      }
      RemoveAll();
    }
    if (!status.ok()) return status;
    Writer::SetSummary summary;
    for (const Shard& shard : shards_) {
      summary.paths.push_back(shard.path);
      summary.bytes += shard.bytes();
    }
    summary.taken_over = taken_over_;
    summary.taken_over_bytes = taken_over_bytes_;
    return summary;
  }

 private:
  struct Shard {
    std::string path, target;  // as named, and where that leads
    size_t first = 0, count = 0;
    std::vector<std::byte> header;
    uint64_t data_bytes = 0;
    std::optional<WorkFile>
        file;  // open while its tensors are written: sets may have more files than may be open
    bool begun = false;

    uint64_t bytes() const { return header.size() + data_bytes; }
    std::string part() const { return target + ".part"; }
  };

  // The keys of one file.
  Writer KeysOf(size_t shard, bool set) const {
    Writer keys;
    keys.alignment_ = writer_.alignment_;
    for (const Writer::Entry& entry : writer_.entries_)
      if (shard == 0 || entry.key == "general.alignment") keys.entries_.push_back(entry);
    if (set) {
      keys.SetU16("split.no", static_cast<uint16_t>(shard));
      keys.SetU16("split.count", static_cast<uint16_t>(shards_.size()));
      keys.SetI32("split.tensors.count", static_cast<int32_t>(writer_.tensors_.size()));
    }
    return keys;
  }

  // How large a file grows.
  struct Size {
    uint64_t header, alignment, data = 0;
    uint64_t With(const Writer::Pending& tensor) const {
      return Padded(header + Writer::EntryBytes(tensor)) + data + Padded(tensor.bytes);
    }
    void Add(const Writer::Pending& tensor) {
      header += Writer::EntryBytes(tensor);
      data += Padded(tensor.bytes);
    }
    uint64_t bytes() const { return Padded(header) + data; }
    uint64_t Padded(uint64_t n) const { return (n + alignment - 1) / alignment * alignment; }
  };
  Size Empty(size_t shard, bool set) const {
    constexpr uint64_t kStart = 24;  // magic, version, numbers of tensors and keys
    return {kStart + KeysOf(shard, set).KeyBytes(), writer_.alignment_};
  }

  // Which tensors go into which file.
  Status Cut() {
    const auto& tensors = writer_.tensors_;
    const uint64_t most_bytes = options_.shard_bytes > 0 ? options_.shard_bytes : UINT64_MAX;
    const uint64_t most_tensors = options_.shard_tensors > 0 ? options_.shard_tensors : UINT64_MAX;
    Size all = Empty(0, false);
    for (const Writer::Pending& tensor : tensors) all.Add(tensor);
    shards_.emplace_back();
    if (all.bytes() <= most_bytes && tensors.size() <= most_tensors) {
      shards_.back().count = tensors.size();
      return {};
    }
    const auto too_large = [&](std::string_view what, uint64_t bytes) {
      return Status(Code::kBadInput,
                    fmt::format("{}: {} make a file of {} bytes, and files may have {}; allow {} at least",
                                Printable(path_), what, bytes, most_bytes, bytes));
    };
    Size size = Empty(0, true);
    if (size.bytes() > most_bytes) return too_large("all keys", size.bytes());
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (size.With(tensors[i]) > most_bytes || shards_.back().count >= most_tensors) {
        // The first file may have no tensor: published sets are like that.
        size = Empty(shards_.size(), true);
        shards_.emplace_back().first = i;
        if (size.With(tensors[i]) > most_bytes)
          return too_large(Quoted(tensors[i].name) + " and its header", size.With(tensors[i]));
      }
      size.Add(tensors[i]);
      ++shards_.back().count;
    }
    return {};
  }

  // Files, their names and headers.
  Status Lay() {
    if (Status s = CheckNamesFile(path_); !s.ok()) return s;
    if (!ValidAlignment(writer_.alignment_)) return writer_.Header(path_, {}, nullptr).status();
    if (Status s = Cut(); !s.ok()) return s;
    if (shards_.size() == 1) {
      const auto named = SplitPaths(path_);
      if (!named.ok()) return named.status();
      if (named->size() > 1)
        return {Code::kBadInput,
                fmt::format("{}: a name of one of {} files of a set, but this is one file: nothing could "
                            "read it under that name",
                            Printable(path_), named->size())};
    }
    constexpr size_t kMostShards = 65535;  // split.no has 16 bits
    if (shards_.size() > kMostShards)
      return {Code::kBadInput, fmt::format("{}: {} files, at most {} make a set; cut into larger ones",
                                           Printable(path_), shards_.size(), kMostShards)};
    const bool set = shards_.size() > 1;
    constexpr std::string_view kEnding = ".gguf";
    const std::string stem =
        path_.ends_with(kEnding) ? path_.substr(0, path_.size() - kEnding.size()) : path_;
    Hasher hasher;
    hasher.AddText(options_.identity);
    for (size_t i = 0; i < shards_.size(); ++i) {
      Shard& shard = shards_[i];
      shard.path = set ? fmt::format("{}-{:05}-of-{:05}{}", stem, i + 1, shards_.size(), kEnding) : path_;
      auto target = FollowLinks(shard.path);
      if (!target.ok()) return target.status();
      shard.target = std::move(*target);
      auto header = KeysOf(i, set).Header(
          shard.path, std::span(writer_.tensors_).subspan(shard.first, shard.count), &shard.data_bytes);
      if (!header.ok()) return header.status();
      shard.header = std::move(*header);
      hasher.AddBytes(shard.header);
    }
    identity_ = Hex(hasher.Value());
    return {};
  }

  Status CheckDestinations() const {
    std::set<std::string> directories{DirectoryOf(journal_path_)};  // more than one where names are links
    for (const Shard& shard : shards_) directories.insert(DirectoryOf(shard.target));
    for (const std::string& directory : directories) {
      if (access(directory.c_str(), F_OK) != 0) return SystemError(directory, "directory cannot be opened");
      if (access(directory.c_str(), W_OK | X_OK) != 0)
        return SystemError(directory, "no file can be made in this directory");
    }
    std::vector<std::string> outputs{journal_path_};
    for (const Shard& shard : shards_) outputs.insert(outputs.end(), {shard.path, shard.part()});
    for (const std::string& output : outputs) {
      if (Status s = CheckNotInput(output, options_.inputs); !s.ok()) return s;
      if (Status s = CheckNotOutput(output, options_.others); !s.ok()) return s;
      struct stat status {};
      if (lstat(output.c_str(), &status) != 0 && errno != ENOENT)
        return SystemError(output, "cannot be a file's name");
    }
    return {};
  }

  // Files that are there are refused, but for those of a run that was killed while it named them.
  Status ReadJournal() {
    if (Exists(journal_path_)) {
      // A run that is still going shows first: it is not unfinished.
      if (Status s = WorkFile::CheckFree(journal_path_); !s.ok()) return s;
      struct stat status {};
      if (lstat(journal_path_.c_str(), &status) == 0 && status.st_nlink > 1)
        return {Code::kBadInput,
                fmt::format("{}: has another name too (a hard link), whose bytes would be lost; move it",
                            Printable(journal_path_))};
      constexpr uint64_t kLargest = uint64_t{1} << 30;
      const auto text = ReadFile(journal_path_, kLargest);
      if (!text.ok()) return text.status();
      journal_ = ParseJournal(*text);
      // Killed in its first moment: what is there begins as this run's first line does, or is nothing.
      const std::string first = FirstLine();
      const bool empty = text->empty() || (text->size() > kFirstWord.size() && first.starts_with(*text));
      if (journal_.identity != identity_ && !empty && !options_.restart) {
        return {
            Code::kBadInput,
            fmt::format(
                "{}: an unfinished run is there, of {}; finish it with the command that began it, or throw "
                "it away with --restart",
                Printable(journal_path_),
                journal_.identity.empty() ? "something that is no journal of this program"
                                          : "other inputs, types or settings")};
      }
      if (options_.restart || journal_.identity != identity_) journal_ = {};
    }
    // Without a journal no run of ours made them, and a new run would begin by emptying them.
    for (const Shard& shard : shards_) {
      if (!Exists(journal_path_) && Exists(shard.part()) && !options_.restart)
        return {
            Code::kBadInput,
            fmt::format(
                "{}: is in the way: unfinished files have this name, and no journal tells of it; move it, or "
                "throw it away with --restart",
                Printable(shard.part()))};
    }
    for (const Shard& shard : shards_) {
      struct stat status {};
      if (stat(shard.target.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
        return {Code::kBadInput, fmt::format("{}: exists and is not a regular file", Printable(shard.path))};
      const bool named = journal_.sealed && !Exists(shard.part());
      if (Exists(shard.path) && !options_.replace && !named)
        return {Code::kBadInput, fmt::format("{} exists; --force replaces it", Printable(shard.path))};
      if (Exists(shard.target) && access(shard.target.c_str(), W_OK) != 0)
        return SystemError(shard.path, "exists and may not be replaced");
    }
    return {};
  }

  Status CheckRoom() const {
    struct Disk {
      uint64_t needed = 0, room = 0;
    };
    std::map<dev_t, Disk> disks;
    rlimit largest{RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &largest);
    for (const Shard& shard : shards_) {
      if (shard.bytes() > largest.rlim_cur)
        return {Code::kNoRoom,
                fmt::format("{}: needs {} bytes, and this process may write files of {} at most (ulimit -f)",
                            Printable(shard.path), shard.bytes(), largest.rlim_cur)};
      struct stat status {};
      constexpr uint64_t kBlock = 512;  // st_blocks counts these
      const bool there = stat(shard.part().c_str(), &status) == 0;
      const uint64_t has = there ? static_cast<uint64_t>(status.st_blocks) * kBlock : 0;
      const std::string directory = DirectoryOf(shard.target);
      if (stat(directory.c_str(), &status) != 0) return SystemError(directory, "cannot be examined");
      Disk& disk = disks[status.st_dev];
      disk.needed += shard.bytes() - std::min(has, shard.bytes());
      disk.room = DiskRoom(shard.target);
    }
    for (const auto& [device, disk] : disks) {
      if (disk.needed <= disk.room || journal_.sealed) continue;
      return {Code::kNoRoom, fmt::format("{}: needs {} bytes more on the disk, {} are free", Printable(path_),
                                         disk.needed, disk.room)};
    }
    return {};
  }

  // What opening these files would fail with, without making them.
  Status CheckFree() const {
    if (Status s = WorkFile::CheckFree(journal_path_); !s.ok()) return s;
    for (const Shard& shard : shards_)
      if (Status s = WorkFile::CheckFree(shard.part()); !s.ok()) return s;
    return {};
  }

  Status DryRun() {
    Status status = CheckFree();
    return status.ok() && !journal_.sealed ? ProduceAll() : status;
  }

  Status Make() {
    auto journal = WorkFile::Open(journal_path_);
    if (!journal.ok()) return interrupted_ = true, journal.status();  // what is there is another process's
    journal_file_.emplace(std::move(*journal));
    const bool fresh = journal_.identity.empty();
    noted_ = !journal_.done.empty();
    if (Status s = journal_file_->Resize(journal_.good_bytes); !s.ok()) return s;
    if (journal_.sealed) {
      for (const auto& [index, pieces] : journal_.done) {
        if (index >= writer_.tensors_.size() || pieces.empty()) continue;
        ++taken_over_;
        taken_over_bytes_ += pieces.back().end;
        if (options_.recall) options_.recall(index, pieces.back().note);
      }
      return NameAll();
    }
    for (Shard& shard : shards_) {
      if (fresh) {  // a new file: what has this name may be a link, and another file's bytes
        if (Status s = WorkFile::CheckFree(shard.part()); !s.ok()) return s;
        if (unlink(shard.part().c_str()) != 0 && errno != ENOENT)
          return SystemError(shard.part(), "cannot be removed");
      }
      if (Status s = OpenPart(shard); !s.ok()) return s;
      if (Status s = shard.file->Reserve(shard.bytes()); !s.ok()) return s;
      if (Status s = shard.file->WriteAt(0, shard.header); !s.ok()) return s;
      shard.file.reset();
    }
    if (fresh) {
      if (Status s = NoteLine(FirstLine()); !s.ok()) return s;
    }
    if (Status s = ProduceAll(); !s.ok()) return s;
    if (Status s = Note(std::string(kSealed)); !s.ok()) return s;
    if (Status s = journal_file_->Sync(); !s.ok()) return s;
    journal_.sealed = true;  // from here on what is there is whole: no failure to name it may remove it
    return NameAll();
  }

  Status ProduceAll() {
    uint64_t done = 0;
    const uint64_t total = writer_.tensor_bytes();
    if (Status s = Report(0, total); !s.ok()) return s;
    for (Shard& shard : shards_) {
      uint64_t offset = shard.header.size();
      if (!options_.dry) {
        if (Status s = OpenPart(shard); !s.ok()) return s;
      }
      for (size_t i = shard.first; i < shard.first + shard.count; ++i) {
        const Writer::Pending& tensor = writer_.tensors_[i];
        const auto from = TakeOver(i, shard, offset);
        if (from != tensor.bytes) {
          if (Status s = Produce(i, shard, offset, from.value_or(0), done, total); !s.ok()) return s;
        }
        done += tensor.bytes;
        if (Status s = Report(done, total); !s.ok()) return s;
        offset += (tensor.bytes + writer_.alignment_ - 1) / writer_.alignment_ * writer_.alignment_;
      }
      if (options_.dry) continue;
      if (Status s = shard.file->Resize(shard.bytes()); !s.ok()) return s;
      if (Status s = shard.file->Sync(); !s.ok()) return s;
      shard.file.reset();
    }
    return {};
  }

  Status OpenPart(Shard& shard) {
    auto file = WorkFile::Open(shard.part());
    if (!file.ok()) return file.status();
    shard.file.emplace(std::move(*file));
    shard.begun = true;
    return {};
  }

  // How many of the tensor's bytes an earlier run made, and are still as it left them; none: not a piece of it.
  std::optional<uint64_t> TakeOver(size_t index, const Shard& shard, uint64_t offset) {
    const auto found = journal_.done.find(index);
    if (found == journal_.done.end() || options_.dry) return std::nullopt;
    const Writer::Pending& tensor = writer_.tensors_[index];
    const Journal::Piece* last = nullptr;
    uint64_t from = 0;
    for (const Journal::Piece& piece : found->second) {
      if (piece.end > tensor.bytes || HashOf(shard, offset + from, piece.end - from) != piece.hash) break;
      last = &piece;
      from = piece.end;
    }
    if (last == nullptr || (from < tensor.bytes && !tensor.resumable)) return std::nullopt;
    if (options_.recall) options_.recall(index, last->note);
    if (from == tensor.bytes) ++taken_over_;
    taken_over_bytes_ += from;
    return from;
  }

  // Of bytes on the disk; empty if they are not there.
  std::string HashOf(const Shard& shard, uint64_t offset, uint64_t bytes) const {
    Hasher hasher;
    std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(bytes, uint64_t{1} << 20)));
    while (bytes > 0) {
      const std::span piece =
          std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(bytes, buffer.size())));
      if (!shard.file->ReadAt(offset, piece).ok()) return "";
      hasher.AddBytes(piece);
      offset += piece.size();
      bytes -= piece.size();
    }
    return Hex(hasher.Value());
  }

  Status Produce(size_t index, Shard& shard, uint64_t offset, uint64_t from, uint64_t done, uint64_t total) {
    const Writer::Pending& tensor = writer_.tensors_[index];
    std::optional<Hasher> hasher{std::in_place};
    uint64_t at = from, noted = from;
    const auto wrong = [&](std::string_view what) {
      return Status(Code::kInternal, fmt::format("{}: tensor {}: {} (it has {} bytes)", Printable(path_),
                                                 Quoted(tensor.name), what, tensor.bytes));
    };
    const auto note = [&] {
      const std::string line = options_.remember ? options_.remember(index) : "";
      Status status = Note(fmt::format("{} {} {} {} {}", index, noted, at, Hex(hasher->Value()), line));
      noted_ = noted_ || status.ok();
      hasher.emplace();
      noted = at;
      return status;
    };
    const Writer::Sink sink = [&](std::span<const std::byte> bytes) -> Status {
      if (options_.dry) return Report(done, total);
      if (bytes.size() > tensor.bytes - at) return wrong("gives more bytes than it has");
      if (Status s = shard.file->WriteAt(offset + at, bytes); !s.ok()) return s;
      hasher->AddBytes(bytes);
      at += bytes.size();
      if (tensor.resumable && at - noted >= options_.piece_bytes && at < tensor.bytes) {
        if (Status s = note(); !s.ok()) return s;
      }
      return Report(done + at, total);
    };
    if (Status s = tensor.produce(from, sink); !s.ok()) return s;
    if (options_.dry) return {};
    if (at != tensor.bytes) return wrong(fmt::format("gave {}", at));
    return note();
  }

  Status NameAll() {
    for (Shard& shard : shards_) {
      if (!Exists(shard.part())) {  // named by the earlier run that sealed it, or gone
        struct stat status {};
        if (stat(shard.target.c_str(), &status) == 0 &&
            static_cast<uint64_t>(status.st_size) == shard.bytes())
          continue;
        return {Code::kBadFile,
                fmt::format("{}: the journal says that it is whole, but it is gone, and {} is not it; "
                            "--restart makes all anew",
                            Printable(shard.part()), Printable(shard.path))};
      }
      if (Status s = OpenPart(shard); !s.ok()) return s;
      if (Status s = shard.file->RenameTo(shard.target, options_.replace); !s.ok()) return s;
      shard.file.reset();
    }
    return journal_file_->Remove();
  }

  static std::string Line(const std::string& words) { return fmt::format("{} {}\n", words, LineHash(words)); }
  std::string FirstLine() const { return Line(fmt::format("{} {}", kFirstWord, identity_)); }
  Status NoteLine(const std::string& line) {
    return journal_file_->WriteAt(journal_file_->size(), AsBytes(line));
  }
  Status Note(const std::string& words) { return NoteLine(Line(words)); }

  Status Report(uint64_t done, uint64_t total) {
    if (!options_.progress || options_.progress(done, total)) return {};
    interrupted_ = true;
    return {Code::kBadInput, "interrupted; the same command goes on from there"};
  }

  void RemoveAll() {
    if (options_.dry) return;
    for (const Shard& shard : shards_)
      if (shard.begun) unlink(shard.part().c_str());
    if (journal_file_) (void)journal_file_->Remove();
  }

  const Writer& writer_;
  const std::string path_, journal_path_;
  const Writer::SetOptions& options_;
  std::vector<Shard> shards_;
  std::string identity_;
  Journal journal_;
  std::optional<WorkFile> journal_file_;
  size_t taken_over_ = 0;
  uint64_t taken_over_bytes_ = 0;
  bool interrupted_ = false;
  bool noted_ = false;  // the journal tells of a tensor, or a piece of one
};

Result<Writer::SetSummary> Writer::WriteSet(const std::string& path, const SetOptions& options) const {
  return SetRun(*this, path, options).Run();
}

}  // namespace glint::gguf
