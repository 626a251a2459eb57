// Snapshots on disk: the caches of tokens and the rest of the state in files of their own, so that several snapshots share the former there
// too. Both are files of sections like a session file (docs/file-formats.md), each with a part of what a session file holds.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/snapshot.h"
#include "glint/model.h"
#include "glint/status.h"

namespace glint::engine {

// What was written or read, in bytes of files.
struct FileBytes {
  uint64_t bytes = 0;
};

// Tokens [first, end) of a file of caches; multiples of RowsLayout::tokens.
struct RowsRange {
  std::string path;
  int64_t first = 0, end = 0;
};

// Writes the caches of tokens [first, end) of a snapshot, and the tokens up to there. The file appears whole or not at all, mode 0600.
Status SaveRows(const Model& model, const Snapshot& snapshot, int64_t first, int64_t end,
                const std::string& path, FileBytes* written);
// Writes all else of it, and a text of the caller's.
Status SaveState(const Snapshot& snapshot, const std::string& path, std::string_view attachment,
                 FileBytes* written);

// What a file of either sort says of itself: header, tokens and attachment are checked, the state is not.
struct SnapshotFileInfo {
  std::vector<int32_t> tokens = {};
  std::string attachment = {};
  bool mtp = false;
  uint64_t bytes = 0;  // of the file
};
// kNotFound; kBadFile for damage; kUnsupported for another version; kBadInput for another model's or another vocabulary's.
Result<SnapshotFileInfo> LookAt(const Model& model, const std::string& path);

// Puts a snapshot together. rows: ranges that follow one another from 0 to the last whole piece of its tokens. Pieces whose tokens are those of
// `like` (null: none) are taken from there, and not read. bad: on an error, the path of the file to blame.
// Errors as LookAt.
Result<std::shared_ptr<const Snapshot>> LoadSnapshot(const Model& model, const std::string& state,
                                                     std::span<const RowsRange> rows, const Snapshot* like,
                                                     const RowsPiece::Gauge& gauge, FileBytes* read,
                                                     std::string* bad);

}  // namespace glint::engine
