// Writer::WriteSet: files of many gigabytes, made in hours, by processes that may be killed.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/file.h"
#include "base/hash.h"
#include "base/printable.h"
#include "base/work_file.h"
#include "gguf/writer.h"

namespace glint::gguf {
namespace {

constexpr std::string_view kFirstWord = "glint-journal-1";
constexpr std::string_view kSealed = "sealed";  // all tensors are on the disk; only names are missing

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string LineHash(std::string_view line) { return fmt::format("{:016x}", Hash64(AsBytes(line))); }

// What an earlier run has done: lines "WORDS HASH-OF-WORDS", of which the first bad one ends the journal.
struct Journal {
  std::string identity;
  struct Done {
    std::string hash, line;
  };
  std::map<size_t, Done> done;  // by tensor
  bool sealed = false;
  uint64_t good_bytes = 0;  // up to the end of the last good line
};

Journal ParseJournal(std::string_view text) {
  Journal journal;
  constexpr size_t kHash = 16;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos || end - begin < kHash + 2) break;
    const std::string_view whole = text.substr(begin, end - begin);
    const std::string_view words = whole.substr(0, whole.size() - kHash - 1);
    if (whole.substr(words.size() + 1) != LineHash(words)) break;
    const size_t space = std::min(words.find(' '), words.size());
    const std::string_view first = words.substr(0, space),
                           rest = words.substr(std::min(space + 1, words.size()));
    if (begin == 0) {
      if (first != kFirstWord) break;
      journal.identity = rest;
    } else if (first == kSealed) {
      journal.sealed = true;
    } else {
      size_t index = 0;
      const auto [last, error] = std::from_chars(first.data(), first.data() + first.size(), index);
      const size_t cut = std::min(rest.find(' '), rest.size());
      if (error != std::errc() || last != first.data() + first.size()) break;
      journal.done[index] = {std::string(rest.substr(0, cut)),
                             std::string(rest.substr(std::min(cut + 1, rest.size())))};
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
    Status status = options_.dry ? ProduceAll() : Make();
    if (!status.ok() && !interrupted_ && !journal_.sealed) RemoveAll();
    if (!status.ok()) return status;
    Writer::SetSummary summary;
    for (const Shard& shard : shards_) {
      summary.paths.push_back(shard.path);
      summary.bytes += shard.bytes();
    }
    summary.taken_over = taken_over_;
    return summary;
  }

 private:
  struct Shard {
    std::string path, target;  // as named, and where that leads
    size_t first = 0, count = 0;
    std::vector<std::byte> header;
    uint64_t data_bytes = 0;
    std::optional<WorkFile> file;

    uint64_t bytes() const { return header.size() + data_bytes; }
    std::string part() const { return target + ".part"; }
  };

  // Which tensors go into which file, and the headers.
  Status Lay() {
    const auto& tensors = writer_.tensors_;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool full = !shards_.empty() && shards_.back().count > 0 &&
                        ((options_.shard_bytes > 0 && shard_sum_ + tensors[i].bytes > options_.shard_bytes) ||
                         (options_.shard_tensors > 0 && shards_.back().count >= options_.shard_tensors));
      if (shards_.empty() || full) {
        shards_.emplace_back().first = i;
        shard_sum_ = 0;
      }
      ++shards_.back().count;
      shard_sum_ += tensors[i].bytes;
    }
    if (shards_.empty()) shards_.emplace_back();
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
      Writer keys;
      if (i == 0) keys.entries_ = writer_.entries_;
      if (set) {
        keys.SetU16("split.no", static_cast<uint16_t>(i));
        keys.SetU16("split.count", static_cast<uint16_t>(shards_.size()));
        keys.SetI32("split.tensors.count", static_cast<int32_t>(tensors.size()));
      }
      auto header = Writer::Header(shard.path, keys.entries_,
                                   std::span(tensors).subspan(shard.first, shard.count), &shard.data_bytes);
      if (!header.ok()) return header.status();
      shard.header = std::move(*header);
      hasher.AddBytes(shard.header);
    }
    identity_ = Hex(hasher.Value());
    return {};
  }

  Status CheckDestinations() const {
    const std::string directory = DirectoryOf(shards_.front().target);
    if (access(directory.c_str(), F_OK) != 0) return SystemError(directory, "directory cannot be opened");
    if (access(directory.c_str(), W_OK | X_OK) != 0)
      return SystemError(directory, "no file can be made in this directory");
    std::vector<std::string> outputs{journal_path_};
    for (const Shard& shard : shards_) outputs.insert(outputs.end(), {shard.path, shard.part()});
    for (const std::string& output : outputs) {
      if (Status s = CheckNotInput(output, options_.inputs); !s.ok()) return s;
    }
    return {};
  }

  // Files that are there are refused, but for those of a run that was killed while it named them.
  Status ReadJournal() {
    if (Exists(journal_path_)) {
      constexpr uint64_t kLargest = uint64_t{1} << 30;
      const auto text = ReadFile(journal_path_, kLargest);
      if (!text.ok()) return text.status();
      journal_ = ParseJournal(*text);
      const bool empty =
          journal_.identity.empty() && text->size() < kFirstWord.size();  // killed in its first moment
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
      if (Exists(shard.path) && !options_.replace && !journal_.sealed)
        return {Code::kBadInput, fmt::format("{} exists; --force replaces it", Printable(shard.path))};
      struct stat status {};
      if (stat(shard.target.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
        return {Code::kBadInput, fmt::format("{}: exists and is not a regular file", Printable(shard.path))};
      if (Exists(shard.target) && access(shard.target.c_str(), W_OK) != 0)
        return SystemError(shard.path, "exists and may not be replaced");
    }
    return {};
  }

  Status CheckRoom() const {
    uint64_t needed = 0;
    for (const Shard& shard : shards_) {
      struct stat status {};
      constexpr uint64_t kBlock = 512;  // st_blocks counts these
      const bool there = stat(shard.part().c_str(), &status) == 0;
      const uint64_t has = there ? static_cast<uint64_t>(status.st_blocks) * kBlock : 0;
      needed += shard.bytes() - std::min(has, shard.bytes());
    }
    const uint64_t room = DiskRoom(shards_.front().target);
    if (journal_.sealed || needed <= room) return {};
    return {Code::kNoRoom,
            fmt::format("{}: needs {} bytes more on the disk, {} are free", Printable(path_), needed, room)};
  }

  Status Make() {
    auto journal = WorkFile::Open(journal_path_);
    if (!journal.ok()) return interrupted_ = true, journal.status();  // what is there is another process's
    journal_file_.emplace(std::move(*journal));
    const bool fresh = journal_.identity.empty();
    if (Status s = journal_file_->Resize(journal_.good_bytes); !s.ok()) return s;
    if (journal_.sealed) {
      taken_over_ = journal_.done.size();
      for (const auto& [index, done] : journal_.done)
        if (options_.recall && index < writer_.tensors_.size()) options_.recall(index, done.line);
      return NameAll();
    }
    for (Shard& shard : shards_) {
      auto file = WorkFile::Open(shard.part());
      if (!file.ok()) return file.status();
      shard.file.emplace(std::move(*file));
      if (fresh) {
        if (Status s = shard.file->Resize(0); !s.ok()) return s;
      }
      if (Status s = shard.file->Reserve(shard.bytes()); !s.ok()) return s;
      if (Status s = shard.file->WriteAt(0, shard.header); !s.ok()) return s;
    }
    if (fresh) {
      if (Status s = Note(fmt::format("{} {}", kFirstWord, identity_)); !s.ok()) return s;
    }
    if (Status s = ProduceAll(); !s.ok()) return s;
    for (Shard& shard : shards_) {
      if (Status s = shard.file->Resize(shard.bytes()); !s.ok()) return s;
      if (Status s = shard.file->Sync(); !s.ok()) return s;
    }
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
      for (size_t i = shard.first; i < shard.first + shard.count; ++i) {
        const Writer::Pending& tensor = writer_.tensors_[i];
        bool there = false;
        if (Status s = TakeOver(i, shard, offset, &there); !s.ok()) return s;
        if (!there) {
          if (Status s = Produce(i, shard, offset, done, total); !s.ok()) return s;
        }
        done += tensor.bytes;
        if (Status s = Report(done, total); !s.ok()) return s;
        offset += (tensor.bytes + kAlignment - 1) / kAlignment * kAlignment;
      }
    }
    return {};
  }

  // Whether an earlier run made the tensor and its bytes are still so.
  Status TakeOver(size_t index, const Shard& shard, uint64_t offset, bool* there) {
    const auto found = journal_.done.find(index);
    if (found == journal_.done.end() || options_.dry) return {};
    Hasher hasher;
    std::vector<std::byte> buffer(size_t{1} << 20);
    for (uint64_t left = writer_.tensors_[index].bytes; left > 0;) {
      const std::span piece =
          std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(left, buffer.size())));
      if (!shard.file->ReadAt(offset, piece).ok()) return {};
      hasher.AddBytes(piece);
      offset += piece.size();
      left -= piece.size();
    }
    *there = Hex(hasher.Value()) == found->second.hash;
    if (!*there) return {};
    ++taken_over_;
    if (options_.recall) options_.recall(index, found->second.line);
    return {};
  }

  Status Produce(size_t index, Shard& shard, uint64_t offset, uint64_t done, uint64_t total) {
    const Writer::Pending& tensor = writer_.tensors_[index];
    Hasher hasher;
    uint64_t at = 0;
    const auto wrong = [&](std::string_view what) {
      return Status(Code::kInternal, fmt::format("{}: tensor {}: {} (it has {} bytes)", Printable(path_),
                                                 Quoted(tensor.name), what, tensor.bytes));
    };
    const Writer::Sink sink = [&](std::span<const std::byte> bytes) -> Status {
      if (options_.dry) return Report(done, total);
      if (bytes.size() > tensor.bytes - at) return wrong("gives more bytes than it has");
      if (Status s = shard.file->WriteAt(offset + at, bytes); !s.ok()) return s;
      hasher.AddBytes(bytes);
      at += bytes.size();
      return Report(done + at, total);
    };
    if (Status s = tensor.produce(sink); !s.ok()) return s;
    if (options_.dry) return {};
    if (at != tensor.bytes) return wrong(fmt::format("gave {}", at));
    const std::string line = options_.remember ? options_.remember(index) : "";
    return Note(fmt::format("{} {} {}", index, Hex(hasher.Value()), line));
  }

  Status NameAll() {
    for (Shard& shard : shards_) {
      if (!shard.file) {              // an earlier run sealed it
        if (!Exists(shard.part())) {  // named already, or gone
          struct stat status {};
          if (stat(shard.target.c_str(), &status) == 0 &&
              static_cast<uint64_t>(status.st_size) == shard.bytes())
            continue;
          return {Code::kBadFile,
                  fmt::format(
                      "{}: the journal says that it is whole, but it is gone, and {} is not it; --restart "
                      "makes all anew",
                      Printable(shard.part()), Printable(shard.path))};
        }
        auto file = WorkFile::Open(shard.part());
        if (!file.ok()) return file.status();
        shard.file.emplace(std::move(*file));
      }
      if (Status s = shard.file->RenameTo(shard.target); !s.ok()) return s;
    }
    return journal_file_->Remove();
  }

  Status Note(const std::string& words) {
    const std::string line = fmt::format("{} {}\n", words, LineHash(words));
    return journal_file_->WriteAt(journal_file_->size(), AsBytes(line));
  }

  Status Report(uint64_t done, uint64_t total) {
    if (!options_.progress || options_.progress(done, total)) return {};
    interrupted_ = true;
    return {Code::kBadInput, "interrupted; the same command goes on from there"};
  }

  void RemoveAll() {
    if (options_.dry) return;
    for (Shard& shard : shards_)
      if (shard.file && shard.file->path() == shard.part()) (void)shard.file->Remove();
    if (journal_file_) (void)journal_file_->Remove();
  }

  const Writer& writer_;
  const std::string path_, journal_path_;
  const Writer::SetOptions& options_;
  std::vector<Shard> shards_;
  uint64_t shard_sum_ = 0;
  std::string identity_;
  Journal journal_;
  std::optional<WorkFile> journal_file_;
  size_t taken_over_ = 0;
  bool interrupted_ = false;
};

Result<Writer::SetSummary> Writer::WriteSet(const std::string& path, const SetOptions& options) const {
  return SetRun(*this, path, options).Run();
}

}  // namespace glint::gguf
