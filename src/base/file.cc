#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "base/printable.h"

namespace glint {
namespace {

Code CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
      return Code::kNoRoom;
    default:
      return Code::kIo;
  }
}

}  // namespace

Status SystemError(const std::string& path, std::string_view what, int error) {
  return {CodeOf(error),
          fmt::format("{}: {}: {}", Printable(path), what, std::generic_category().message(error))};
}

namespace {

struct Descriptor {
  int fd = -1;
  Descriptor() = default;
  explicit Descriptor(int f) : fd(f) {}
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

struct OpenedFile {
  Descriptor descriptor;
  uint64_t size = 0;
};

Result<OpenedFile> OpenRegular(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
  OpenedFile file{Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  if (file.descriptor.fd < 0) return SystemError(path, "cannot be opened");
  struct stat status {};
  if (fstat(file.descriptor.fd, &status) != 0) return SystemError(path, "cannot be examined");
  if (!S_ISREG(status.st_mode)) {
    return Status(Code::kBadInput, fmt::format("{}: is {}, not a file", Printable(path),
                                               S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe"));
  }
  file.size = static_cast<uint64_t>(status.st_size);
  return file;
}

}  // namespace

// That is the name to rename to.
Result<std::string> FollowLinks(std::string path) {
  for (int hops = 0; hops < 40; ++hops) {
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return path;
    std::array<char, 4096> buffer{};
    const ssize_t length = readlink(path.c_str(), buffer.data(), buffer.size());
    if (length < 0) return SystemError(path, "cannot read the symbolic link");
    if (static_cast<size_t>(length) == buffer.size())
      return SystemError(path, "symbolic link too long", ENAMETOOLONG);
    const std::string_view target(buffer.data(), static_cast<size_t>(length));
    path.resize(target.starts_with('/') ? 0 : path.rfind('/') + 1);  // npos + 1 is 0
    path.append(target);
  }
  return SystemError(path, "cannot follow", ELOOP);
}

namespace {

constexpr std::string_view kTemporaryBegin = ".glint-", kTemporaryEnd = ".tmp";
constexpr time_t kStaleSeconds = 3600;

bool IsTemporary(std::string_view name) {
  constexpr size_t kDigits = 32;
  return name.size() == kTemporaryBegin.size() + kDigits + kTemporaryEnd.size() &&
         name.starts_with(kTemporaryBegin) && name.ends_with(kTemporaryEnd) &&
         name.substr(kTemporaryBegin.size(), kDigits).find_first_not_of("0123456789abcdef") ==
             std::string_view::npos;
}

// What a killed process left behind. The age keeps away from a file that was made but not locked yet, and from writers whose file
// system knows no locks; whatever goes wrong, the file stays.
void RemoveStale(int directory) {
  const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(fd), closedir);
  if (entries == nullptr) {
    close(fd);
    return;
  }
  while (const dirent* entry = readdir(entries.get())) {
    if (!IsTemporary(entry->d_name)) continue;
    const Descriptor file(openat(directory, entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (file.fd < 0 || fstat(file.fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid())
      continue;
    if (time(nullptr) - status.st_mtime < kStaleSeconds || flock(file.fd, LOCK_EX | LOCK_NB) != 0) continue;
    unlinkat(directory, entry->d_name, 0);
  }
}

}  // namespace

Status WriteAllAt(int fd, uint64_t offset, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), size_t{1} << 30);
    const ssize_t n = pwrite(fd, bytes.data(), piece, static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return SystemError(path, fmt::format("cannot write at offset 0x{:x}", offset));
    }
    if (n == 0) return SystemError(path, fmt::format("cannot write at offset 0x{:x}", offset), EIO);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  auto opened = OpenRegular(path);
  if (!opened.ok()) return opened.status();
  MappedFile file;
  file.path_ = path;
  if (opened->size == 0) return file;
  if (opened->size > SIZE_MAX / 2) return SystemError(path, "cannot be mapped", EFBIG);
  const auto size = static_cast<size_t>(opened->size);
  void* const address = mmap(nullptr, size, PROT_READ, MAP_SHARED, opened->descriptor.fd, 0);
  if (address == MAP_FAILED) return SystemError(path, fmt::format("cannot map {} bytes", size));
  // Weights are read row after row, so the kernel's usual read-ahead is right; tens of gigabytes through
  // small pages are many table walks, so large ones are welcome where the file system has them (elsewhere
  // this does nothing).
  madvise(address, size, MADV_HUGEPAGE);
  file.data_ = static_cast<const std::byte*>(address);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Release(std::span<const std::byte> part) {
  static const auto kPage = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t begin = (first + kPage - 1) / kPage * kPage, end = (first + part.size()) / kPage * kPage;
  if (begin < end) madvise(const_cast<std::byte*>(part.data()) + (begin - first), end - begin, MADV_DONTNEED);
}

bool MappedFile::Fetch(std::span<const std::byte> part) {
  static const auto kPage = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data()) / kPage * kPage;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size());
  if (part.empty()) return true;
  while (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ) != 0) {
    if (errno != EINTR) return errno != EFAULT && errno != EHWPOISON;
  }
  return true;
}

Result<std::string> ReadFile(const std::string& path, uint64_t limit) try {
  const auto opened = OpenRegular(path);
  if (!opened.ok()) return opened.status();
  if (opened->size > limit) {
    return Status(Code::kBadFile,
                  fmt::format("{}: {} bytes; at most {} are read", Printable(path), opened->size, limit));
  }
  // A file that grows meanwhile gives its first st_size bytes, one that shrinks what is left of it.
  std::string text(static_cast<size_t>(opened->size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = read(opened->descriptor.fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path, fmt::format("cannot read at offset 0x{:x}", done));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
} catch (const std::bad_alloc&) {
  return Status(Code::kNoRoom, fmt::format("{}: not enough memory to read it", Printable(path)));
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat x {
  }, y{};
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool SamePlace(const std::string& a, const std::string& b) {
  if (a == b) return true;
  struct stat x {
  }, y{};
  const bool there = stat(a.c_str(), &x) == 0;
  if (there != (stat(b.c_str(), &y) == 0)) return false;
  if (there) return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
  const auto to_a = FollowLinks(a), to_b = FollowLinks(b);
  if (!to_a.ok() || !to_b.ok()) return false;
  const auto split = [](const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::pair(std::string("."), path)
                                      : std::pair(path.substr(0, slash + 1), path.substr(slash + 1));
  };
  const auto [folder_a, name_a] = split(*to_a);
  const auto [folder_b, name_b] = split(*to_b);
  return name_a == name_b && SameFile(folder_a, folder_b);
}

Status CheckNotOutput(const std::string& destination, std::span<const std::string> others) {
  for (const std::string& other : others) {
    if (!SamePlace(other, destination)) continue;
    return {Code::kBadInput, fmt::format("{}: is also written as {}; name another output",
                                         Printable(destination), Printable(other))};
  }
  return {};
}

Status CheckNamesFile(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);  // all of it without a slash: npos + 1 is 0
  if (!name.empty() && name != "." && name != "..") return {};
  return {Code::kBadInput, fmt::format("{}: names no file", path.empty() ? "\"\"" : Printable(path))};
}

int RenameToNew(int directory, const std::string& from, const std::string& to, NewName first) {
  if (first == NewName::kRename) {
    if (renameat2(directory, from.c_str(), directory, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
  }
  if (first != NewName::kLook) {
    if (linkat(directory, from.c_str(), directory, to.c_str(), 0) == 0)
      return unlinkat(directory, from.c_str(), 0) == 0 ? 0 : errno;
    if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP && errno != EMLINK) return errno;
  }
  struct stat status {};
  if (fstatat(directory, to.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
  return renameat(directory, from.c_str(), directory, to.c_str()) == 0 ? 0 : errno;
}

Status CheckNotInput(const std::string& destination, std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    if (input != destination && !SameFile(input, destination)) continue;
    return {Code::kBadInput,
            fmt::format("{}: is also an input ({}), which would be lost; name another output",
                        Printable(destination), Printable(input))};
  }
  return {};
}

Result<AtomicFile> AtomicFile::Create(const std::string& destination, std::span<const std::string> inputs,
                                      uint32_t mode, bool replace) {
  if (Status status = CheckNamesFile(destination); !status.ok()) return status;
  if (Status status = CheckNotInput(destination, inputs); !status.ok()) return status;
  const auto target = FollowLinks(destination);
  if (!target.ok()) return target.status();
  AtomicFile file;
  file.destination_ = destination;
  const size_t slash = target->rfind('/');
  file.name_ = slash == std::string::npos ? *target : target->substr(slash + 1);
  if (Status names = CheckNamesFile(*target); !names.ok()) return names;  // a link may lead anywhere
  file.may_replace_ = replace;
  file.mode_ = mode;
  const std::string directory = slash == std::string::npos ? "." : target->substr(0, slash + 1);
  file.directory_ = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file.directory_ < 0) return SystemError(directory, "directory cannot be opened");

  struct stat status {};
  if (fstatat(file.directory_, file.name_.c_str(), &status, 0) == 0) {
    if (!S_ISREG(status.st_mode)) {
      return Status(Code::kBadInput,
                    fmt::format("{}: exists and is not a regular file", Printable(destination)));
    }
    // A rename asks only the directory; the owner who took away write permission meant the file.
    if (faccessat(file.directory_, file.name_.c_str(), W_OK, AT_EACCESS) != 0) {
      return SystemError(destination, "exists and may not be replaced");
    }
    file.mode_ = status.st_mode & 0777u;
    file.replaces_ = true;
  } else if (errno != ENOENT) {
    return SystemError(destination, "cannot be a file's name");
  }
  // A link that leads nowhere is something too.
  if (!replace && lstat(destination.c_str(), &status) == 0)
    return Status(Code::kBadInput, fmt::format("{} exists; --force replaces it", Printable(destination)));
  RemoveStale(file.directory_);
  if (Status made = file.MakeTemporary(); !made.ok()) return made;
  return file;
}

Status AtomicFile::MakeTemporary() {
  for (int attempt = 0; attempt < 16; ++attempt) {
    std::array<uint64_t, 2> random{};
    if (getrandom(random.data(), sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
      if (errno == EINTR) continue;
      return SystemError(destination_, "no random numbers for a temporary name");
    }
    std::string temporary =
        fmt::format("{}{:016x}{:016x}{}", kTemporaryBegin, random[0], random[1], kTemporaryEnd);
    fd_ = openat(directory_, temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                 replaces_ ? mode_ | 0600u : mode_);
    if (fd_ >= 0) {
      flock(fd_, LOCK_EX | LOCK_NB);  // shows that its writer lives; RemoveStale looks at it
      temporary_ = std::move(temporary);
      return {};
    }
    if (errno != EEXIST && errno != EINTR) break;
  }
  return SystemError(destination_, "cannot create a temporary file beside it");
}

void AtomicFile::SetAside() {
  if (fd_ < 0 || size_ > 0) return;
  close(std::exchange(fd_, -1));
  unlinkat(directory_, temporary_.c_str(), 0);
  temporary_.clear();
  aside_ = true;
}

Status AtomicFile::Open() {
  if (fd_ >= 0) return {};
  if (std::exchange(aside_, false)) return MakeTemporary();
  return {Code::kInternal, fmt::format("{}: not open for writing", Printable(destination_))};
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(directory_, other.directory_);
  std::swap(size_, other.size_);
  std::swap(mode_, other.mode_);
  std::swap(replaces_, other.replaces_);
  std::swap(may_replace_, other.may_replace_);
  std::swap(aside_, other.aside_);
  std::swap(destination_, other.destination_);
  std::swap(name_, other.name_);
  std::swap(temporary_, other.temporary_);
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  if (!temporary_.empty()) unlinkat(directory_, temporary_.c_str(), 0);
  temporary_.clear();
  if (directory_ >= 0) close(std::exchange(directory_, -1));
}

Status AtomicFile::Reserve(uint64_t bytes) {
  if (Status opened = Open(); !opened.ok()) return opened;
  if (bytes == 0 || bytes > INT64_MAX) return {};
  int result = 0;
  do {
    result = fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && CodeOf(errno) == Code::kNoRoom) {
    return SystemError(destination_, fmt::format("no room for {} bytes", bytes));
  }
  return {};  // other errors: the file system cannot reserve; writing will tell
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  if (Status opened = Open(); !opened.ok()) return opened;
  if (Status status = WriteAllAt(fd_, size_, bytes, destination_); !status.ok()) return status;
  size_ += bytes.size();
  return {};
}

Status AtomicFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  if (Status opened = Open(); !opened.ok()) return opened;
  if (!Within<uint64_t>(offset, bytes.size(), size_)) {
    return {Code::kInternal, fmt::format("{}: {} bytes at offset 0x{:x} are not among the {} written",
                                         Printable(destination_), bytes.size(), offset, size_)};
  }
  return WriteAllAt(fd_, offset, bytes, destination_);
}

Status AtomicFile::Commit() {
  if (Status opened = Open(); !opened.ok()) return opened;
  Status status;
  // Gives back what Reserve took too much. The data must be on the disk before the name is: after a power cut
  // the name would else lead to a file of zeros.
  if (ftruncate(fd_, static_cast<off_t>(size_)) != 0 || (replaces_ && fchmod(fd_, mode_) != 0) ||
      fsync(fd_) != 0) {
    status = SystemError(destination_, "cannot finish writing");
  }
  if (close(std::exchange(fd_, -1)) != 0 && status.ok())
    status = SystemError(destination_, "cannot finish writing");
  if (status.ok()) {
    int error = 0;
    if (!may_replace_) {
      error = RenameToNew(directory_, temporary_, name_);
    } else if (renameat(directory_, temporary_.c_str(), directory_, name_.c_str()) != 0) {
      error = errno;
    }
    if (error == EEXIST) {
      const bool kept = RenameToNew(directory_, temporary_, name_ + ".new") == 0;
      if (kept) temporary_.clear();
      status = {
          Code::kBadInput,
          fmt::format("{}: a file of this name appeared meanwhile, and stays as it is{}",
                      Printable(destination_),
                      kept ? fmt::format("; what was made is {}.new beside it", Printable(name_)) : "")};
    } else if (error != 0) {
      status = SystemError(destination_, "cannot rename the temporary file to it", error);
    } else {
      temporary_.clear();
    }
    fsync(directory_);  // some file systems cannot; the file is whole under its old or new name either way
  }
  Discard();
  return status;
}

}  // namespace glint
