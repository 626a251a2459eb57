// Sequences that are kept by name, as session files of one directory (docs/file-formats.md).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "glint/model.h"
#include "glint/session.h"
#include "glint/status.h"

namespace glint::serve {

// Letters, digits, '_', '-' and '.', 1 to 64 of them, not beginning with '.': what is a plain file name everywhere, and leads nowhere else.
bool ValidSessionName(std::string_view name);

struct NamedSession {
  std::string name;
  uint64_t tokens = 0, bytes = 0;  // of the sequence, of the file
  int64_t modified = 0;            // seconds since 1970
};

// Threads: any; files appear whole or not at all.
class NamedSessions {
 public:
  // Makes the directory if it is not there (0700). kIo where it can not be written.
  static Result<NamedSessions> Open(std::string directory);

  // By name. Files that are no sessions are not among them.
  Result<std::vector<NamedSession>> List() const;
  // kBadInput for a name that is none; kNotFound.
  Result<NamedSession> Find(std::string_view name) const;
  Status Save(const Session& session, std::string_view name) const;  // replaces
  Result<Session> Load(const Model& model, std::string_view name, int64_t context) const;
  // The ids alone, without memory for the state.
  Result<std::vector<int32_t>> Tokens(std::string_view name) const;
  Status Remove(std::string_view name) const;

 private:
  explicit NamedSessions(std::string directory) : directory_(std::move(directory)) {}
  // kBadInput for a bad name.
  Result<std::string> PathOf(std::string_view name) const;
  std::string directory_;
};

}  // namespace glint::serve
