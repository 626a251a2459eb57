// Files: mapped for reading, written whole or not at all.
#pragma once
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint {

// A file mapped read-only. Empty files map to an empty span. The mapping lives as long as the object; moving
// keeps the addresses. A file that is truncated by somebody else while mapped faults on access: nothing can
// be done about that short of copying, and the docs say so.
class MappedFile {
 public:
  // kNotFound; kBadInput for a directory, device or pipe; kNoRoom if the address space does not suffice; kIo.
  static Result<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Gives back the memory of pages that lie whole in `part` of a mapping; the next access reads the file again.
  static void Release(std::span<const std::byte> part);
  // Brings in the pages of `part` of a mapping, or of any memory, in one call instead of a fault for every few of them; false if the
  // file has not got them any more or the disk fails, where an access would end the process. Does nothing on kernels before 5.14.
  static bool Fetch(std::span<const std::byte> part);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a small file; kBadFile if it is larger than `limit`.
Result<std::string> ReadFile(const std::string& path, uint64_t limit = uint64_t{64} << 20);
// Whether both paths lead to one file (device and inode; symlinks followed). A path that does not exist is no
// file.
bool SameFile(const std::string& a, const std::string& b);
// The same, also where there is no file yet: whether making one of them would make the other.
bool SamePlace(const std::string& a, const std::string& b);

// `errno` or `error` as a status: kNotFound, kNoRoom or kIo; the message is "PATH: WHAT: reason".
Status SystemError(const std::string& path, std::string_view what, int error = errno);
// All of `bytes` at `offset` of an open file.
Status WriteAllAt(int fd, uint64_t offset, std::span<const std::byte> bytes, const std::string& path);
// Where a path leads that may end in symbolic links, whether or not there is a file.
Result<std::string> FollowLinks(std::string path);
// kBadInput if the destination is one of the inputs: same path, hard link, symbolic link.
Status CheckNotInput(const std::string& destination, std::span<const std::string> inputs);
// kBadInput if the destination is one of the other files that are written; as above, and they need not exist.
Status CheckNotOutput(const std::string& destination, std::span<const std::string> others);
// kBadInput for a path that ends in no name: "", "folder/", "..".
Status CheckNamesFile(const std::string& path);

// How a file gets a name that no file has, in the order of trying: not every file system can do the first two.
enum class NewName : uint8_t { kRename, kLink, kLook };
// Renames within a directory; 0, or an errno: EEXIST where the name is taken, and what has it stays. kLook leaves a moment
// between looking and renaming. `first`: which way to begin with.
int RenameToNew(int directory, const std::string& from, const std::string& to,
                NewName first = NewName::kRename);

// Writes beside the destination under an unpredictable name (O_EXCL) and renames over it in Commit, after
// fsync of file and directory. Destroyed without Commit it leaves nothing behind and the destination as it
// was.
class AtomicFile {
 public:
  // `inputs`: files this output is made from; kBadInput if the destination is one of them (same path, hard
  // link, symlink), a directory, or a device. A symlink at the destination is followed, so the link stays a
  // link. Permissions of a file replaced are kept; one that may not be written to is not replaced (kIo).
  // `mode`: permissions of a file that is new, before the umask. Temporaries that killed processes have left in the directory
  // an hour ago or more are removed: they are this user's, and nobody holds the lock that a living writer has on its own.
  // `replace`: false refuses a file that is there, or that is there by the time of Commit.
  static Result<AtomicFile> Create(const std::string& destination, std::span<const std::string> inputs = {},
                                   uint32_t mode = 0666, bool replace = true);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;
  ~AtomicFile();

  // For a file that is written at the end of long work: takes the temporary away until the first Write, so that a process killed
  // before leaves nothing. Only before anything was written or reserved.
  void SetAside();
  // Takes the disk space for `bytes` in all now, where the file system can: a full disk shows before the
  // work, not after.
  Status Reserve(uint64_t bytes);
  Status Write(std::span<const std::byte> bytes);                     // appends; kNoRoom for a full disk
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);  // over bytes appended before
  uint64_t size() const { return size_; }                             // bytes appended so far
  // The file is whole, on the disk and under its name. After an error it is as if nothing had been written;
  // but where it may not replace a file that appeared meanwhile, the work is kept as NAME.new, if that is free.
  // Once.
  Status Commit();

 private:
  AtomicFile() = default;
  Status MakeTemporary();
  Status Open();  // after SetAside; kInternal after Commit
  void Discard();
  int fd_ = -1, directory_ = -1;
  uint64_t size_ = 0;
  uint32_t mode_ = 0;  // permissions of the file replaced, or of a new one before the umask
  bool replaces_ = false, may_replace_ = true, aside_ = false;
  std::string destination_;       // as in messages
  std::string name_, temporary_;  // within the directory
};

}  // namespace glint
