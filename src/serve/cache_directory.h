// The files of the prefix cache: names, lock, what is there after a restart, and which caches several checkpoints need. Says nothing of what is
// worth keeping.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/snapshot.h"
#include "engine/snapshot_file.h"
#include "glint/model.h"
#include "glint/status.h"
#include "serve/prefix_cache.h"

namespace glint::serve {

// Tokens [first, end) of a file of caches.
struct RowsUse {
  std::string name;
  int64_t first = 0, end = 0;
};

// A checkpoint on disk.
struct CacheFile {
  std::string name;  // of the file of its state
  uint64_t bytes = 0;
  std::vector<RowsUse> rows;
};

// One folder for each model (and for sessions with the MTP block's rows), so that models do not meet: DIRECTORY/FINGERPRINTS/. In it:
//   HASH-TOKENS.state       a state; its attachment names the files of caches it needs
//   HASH-FIRST-END.rows     caches of tokens; several states may need them
//   NAME.bad                a file that was damaged or did not belong there: the newest few stay, to be looked at
//   lock                    held by the server that uses the folder
// HASH is of the tokens up to the end, so a file's name says what is in it, and writing one again changes nothing.
//
// Threads: PathOf and the files themselves from any; all else one at a time.
class CacheDirectory {
 public:
  // Makes the folder if need be. kBadInput: another server holds the lock. kIo and kNotFound: it cannot be made or written.
  static Result<std::unique_ptr<CacheDirectory>> Open(const Model& model, const std::string& directory,
                                                      bool mtp);
  ~CacheDirectory();  // gives the lock back
  CacheDirectory(const CacheDirectory&) = delete;
  CacheDirectory& operator=(const CacheDirectory&) = delete;
  const std::string& folder() const { return folder_; }
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  struct Found {
    std::vector<int32_t> tokens;
    CacheKind kind = CacheKind::kEnd;
    CacheFile file;
  };
  // What is there, the least recently used first as far as the files' times say. Files that are damaged or foreign are set aside, caches
  // that nothing needs and states whose caches are gone are removed.
  std::vector<Found> Scan(uint64_t* quarantined);

  static std::string StateName(std::span<const int32_t> tokens);
  static std::string RowsName(std::span<const int32_t> tokens, int64_t first);  // tokens: up to the end
  static std::string Attachment(CacheKind kind, const std::vector<RowsUse>& rows);

  // A file of caches is there: removed again when the last that uses it is released.
  void AddRows(const std::string& name, uint64_t bytes);
  void Use(const std::vector<RowsUse>& rows);
  void Release(const std::vector<RowsUse>& rows);
  void AddState(const CacheFile& file);     // its rows are in use already
  void RemoveState(const CacheFile& file);  // and releases its rows
  // Another name for a damaged file, under which nothing looks for it.
  void Quarantine(const std::string& name);
  void Touched(const std::string& name) const;  // its time, for Scan after a restart
  bool Has(const std::string& rows) const { return rows_.contains(rows); }
  uint64_t bytes() const { return bytes_; }
  Status Remake() const;  // the folder, if somebody took it away

 private:
  struct RowsFile {
    uint64_t bytes = 0;
    int users = 0;
  };
  CacheDirectory() = default;
  void DropOldBad();
  std::string folder_;
  int lock_ = -1;
  Model model_{nullptr};
  std::map<std::string, RowsFile> rows_;
  uint64_t bytes_ = 0;
};

}  // namespace glint::serve
