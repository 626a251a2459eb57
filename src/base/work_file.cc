#include "base/work_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/checked.h"
#include "base/file.h"
#include "base/printable.h"

namespace glint {

Result<WorkFile> WorkFile::Open(const std::string& path) { return Open(path, O_CREAT); }

Status WorkFile::CheckFree(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 && errno == ENOENT) return {};
  return Open(path, 0).status();
}

Result<WorkFile> WorkFile::Open(const std::string& path, int flags) {
  WorkFile file;
  file.path_ = path;
  file.fd_ = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  if (file.fd_ < 0) return SystemError(path, "cannot be made or opened");
  struct stat status {};
  if (fstat(file.fd_, &status) != 0) return SystemError(path, "cannot be examined");
  if (!S_ISREG(status.st_mode))
    return Status(Code::kBadInput, fmt::format("{}: exists and is not a regular file", Printable(path)));
  if (flock(file.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Status(Code::kBadInput, fmt::format("{}: another process works on it", Printable(path)));
  return file;
}

WorkFile::WorkFile(WorkFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

WorkFile& WorkFile::operator=(WorkFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

WorkFile::~WorkFile() {
  if (fd_ >= 0) close(fd_);
}

uint64_t WorkFile::size() const {
  struct stat status {};
  return fstat(fd_, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

Status WorkFile::Resize(uint64_t bytes) {
  if (ftruncate(fd_, static_cast<off_t>(bytes)) == 0) return {};
  return SystemError(path_, fmt::format("cannot be made {} bytes long", bytes));
}

Status WorkFile::Reserve(uint64_t bytes) {
  if (bytes == 0 || bytes > INT64_MAX) return {};
  int result = 0;
  do {
    result = fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  const bool full = result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG);
  return full ? SystemError(path_, fmt::format("no room for {} bytes", bytes)) : Status();
}

Status WorkFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  return WriteAllAt(fd_, offset, bytes, path_);
}

Status WorkFile::ReadAt(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path_, fmt::format("cannot read at offset 0x{:x}", offset));
    if (n == 0) return {Code::kBadFile, fmt::format("{}: ends at offset 0x{:x}", Printable(path_), offset)};
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status WorkFile::Sync() {
  return fsync(fd_) == 0 ? Status() : SystemError(path_, "cannot be brought to the disk");
}

Status WorkFile::RenameTo(const std::string& path, bool replace) {
  if (Status status = Sync(); !status.ok()) return status;
  int error = 0;
  if (!replace) {
    error = RenameToNew(AT_FDCWD, path_, path);
  } else if (rename(path_.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error == EEXIST) {
    return {
        Code::kBadInput,
        fmt::format("{}: a file of this name appeared meanwhile, and stays as it is; {} is whole, and the "
                    "same command with --force puts it there",
                    Printable(path), Printable(path_))};
  }
  if (error != 0)
    return SystemError(path, fmt::format("{} cannot be renamed to it", Printable(path_)), error);
  path_ = path;
  const int directory = open(DirectoryOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);  // some file systems cannot; the file is whole under its old or new name either way
    close(directory);
  }
  return {};
}

Status WorkFile::Remove() {
  return unlink(path_.c_str()) == 0 || errno == ENOENT ? Status() : SystemError(path_, "cannot be removed");
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

uint64_t DiskRoom(const std::string& path) {
  struct statvfs room {};
  if (statvfs(DirectoryOf(path).c_str(), &room) != 0) return UINT64_MAX;
  return CheckedMul<uint64_t>(room.f_bavail, room.f_frsize).value_or(UINT64_MAX);
}

}  // namespace glint
