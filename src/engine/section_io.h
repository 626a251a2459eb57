// Files of sections (engine/session_file.h), written whole or not at all, and read piece by piece.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "engine/session_file.h"
#include "glint/status.h"

namespace glint::engine {

// Rows of a part that go into one section.
int64_t RowsOfSection(const plan::StatePart& part);
// Sections of a part.
size_t SectionsOf(const plan::StatePart& part);

// Writes such a file from front to back.
class SectionWriter {
 public:
  // sections: as many as will be added. content_bytes: of them before packing; disk space is taken for it.
  static Result<SectionWriter> Create(AtomicFile file, size_t sections, uint64_t content_bytes);
  Status AddTokens(std::span<const int32_t> tokens);
  Status AddAttachment(std::string_view text);
  // At most RowsOfSection of a part. Packed where that pays.
  Status AddState(const plan::StatePart& rows, std::span<const float> floats);
  // The header, whose sections are those added; then the file has its name.
  Status Finish(SessionHeader header);
  uint64_t size() const { return file_.size(); }

 private:
  explicit SectionWriter(AtomicFile file) : file_(std::move(file)) {}
  Status Add(SessionSection section, std::span<const std::byte> bytes);
  AtomicFile file_;
  std::vector<SessionSection> sections_;
};

// Reads such a file without mapping it: somebody else may cut it off at any time, which is an error here and no fault.
class SectionFile {
 public:
  // kNotFound; kBadFile as ParseSessionHeader; kBadInput for what is no regular file. A symbolic link is not followed.
  static Result<SectionFile> Open(const std::string& path);
  SectionFile(SectionFile&& other) noexcept;
  SectionFile& operator=(SectionFile&& other) noexcept;
  ~SectionFile();
  const SessionHeader& header() const { return header_; }
  uint64_t size() const { return size_; }
  // Content of a section of its header; `out` has RawBytes(). kBadFile for damage.
  Status Read(const SessionSection& section, std::span<std::byte> out) const;
  // Tokens and attachment, which come first.
  Status ReadTokens(std::vector<int32_t>* tokens) const;
  Status ReadAttachment(std::string* text) const;

 private:
  SectionFile() = default;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string path_;
  SessionHeader header_;
};

}  // namespace glint::engine
