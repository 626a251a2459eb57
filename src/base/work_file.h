// A file that is made over several runs of a program: unlike AtomicFile it stays when the process dies, under a name of its own,
// and is renamed when it is whole.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "glint/status.h"

namespace glint {

class WorkFile {
 public:
  // Opens `path`, or makes it; symlinks are not followed. kBadInput if another process works on it, or it is no regular file.
  static Result<WorkFile> Open(const std::string& path);
  // What Open would refuse, without making the file: a file that does not exist is free.
  static Status CheckFree(const std::string& path);
  WorkFile(WorkFile&& other) noexcept;
  WorkFile& operator=(WorkFile&& other) noexcept;
  ~WorkFile();

  uint64_t size() const;
  Status Resize(uint64_t bytes);
  // Takes disk space for `bytes` in all, where the file system can; kNoRoom.
  Status Reserve(uint64_t bytes);
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  Status ReadAt(uint64_t offset, std::span<std::byte> bytes) const;  // kBadFile if the file ends before
  Status Sync();
  // The file is on the disk under the other name, in the same directory; a file of that name is replaced, or kBadInput. `this`
  // stays open.
  Status RenameTo(const std::string& path, bool replace);
  Status Remove();
  const std::string& path() const { return path_; }

 private:
  WorkFile() = default;
  static Result<WorkFile> Open(const std::string& path, int flags);
  int fd_ = -1;
  std::string path_;
};

// The directory part of a path ("." if it has none).
std::string DirectoryOf(const std::string& path);
// Bytes that this user can still write where `path` lies or would lie; UINT64_MAX where the system does not say.
uint64_t DiskRoom(const std::string& path);

}  // namespace glint
