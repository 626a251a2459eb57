#include "engine/section_io.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/compress.h"
#include "base/hash.h"
#include "base/printable.h"

namespace glint::engine {
namespace {

using Kind = SessionSection::Kind;

// Packing must take off a tenth, or a section stays as it is: reading it back costs time each time (docs/file-formats.md has the
// measurement).
bool Pays(uint64_t packed, uint64_t raw) { return packed > 0 && packed <= raw - raw / 10; }

Status ReadAt(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t got = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, "cannot read");
    if (got == 0)
      return {Code::kBadFile, fmt::format("{}: the file ends at offset 0x{:x}", Printable(path), offset)};
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
  return {};
}

}  // namespace

int64_t RowsOfSection(const plan::StatePart& part) {
  return std::max<int64_t>(1, static_cast<int64_t>(kSectionBytes / 4) / part.width);
}

size_t SectionsOf(const plan::StatePart& part) {
  return static_cast<size_t>((part.rows + RowsOfSection(part) - 1) / RowsOfSection(part));
}

Result<SectionWriter> SectionWriter::Create(AtomicFile file, size_t sections, uint64_t content_bytes) {
  SectionWriter writer(std::move(file));
  // The header comes last: it holds the sections' sizes and checksums.
  const std::vector<std::byte> room(kSessionFixedBytes + sections * kSessionSectionBytes);
  if (Status status = writer.file_.Reserve(room.size() + content_bytes); !status.ok()) return status;
  if (Status status = writer.file_.Write(room); !status.ok()) return status;
  return writer;
}

Status SectionWriter::AddTokens(std::span<const int32_t> tokens) {
  return Add({.kind = Kind::kTokens, .part = {.rows = std::ssize(tokens), .width = 1}},
             std::as_bytes(tokens));
}

Status SectionWriter::AddAttachment(std::string_view text) {
  return Add({.kind = Kind::kAttachment, .part = {.rows = std::ssize(text), .width = 1}},
             std::as_bytes(std::span(text)));
}

Status SectionWriter::AddState(const plan::StatePart& rows, std::span<const float> floats) {
  const auto raw = std::as_bytes(floats);
  const auto packed = Compress(raw, sizeof(float));
  const bool pays = Pays(packed.size(), raw.size());
  return Add({.kind = Kind::kState, .packed = pays, .part = rows},
             pays ? std::span<const std::byte>(packed) : raw);
}

Status SectionWriter::Add(SessionSection section, std::span<const std::byte> bytes) {
  section.offset = file_.size();
  section.bytes = bytes.size();
  section.hash = Hash64(bytes);
  sections_.push_back(section);
  return file_.Write(bytes);
}

Status SectionWriter::Finish(SessionHeader header) {
  header.sections = std::move(sections_);
  if (Status status = file_.WriteAt(0, MakeSessionHeader(header, file_.size())); !status.ok()) return status;
  return file_.Commit();
}

Result<SectionFile> SectionFile::Open(const std::string& path) {
  SectionFile file;
  file.path_ = path;
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file.fd_ < 0) return SystemError(path, "cannot open");
  struct stat about {};
  if (fstat(file.fd_, &about) != 0) return SystemError(path, "cannot look at");
  if (!S_ISREG(about.st_mode))
    return Status(Code::kBadInput, fmt::format("{}: not a regular file", Printable(path)));
  file.size_ = static_cast<uint64_t>(about.st_size);
  std::vector<std::byte> head(static_cast<size_t>(std::min<uint64_t>(file.size_, kSessionPreamble)));
  if (Status status = ReadAt(file.fd_, 0, head, path); !status.ok()) return status;
  const auto named = [&](const Status& status) {
    return Status(status.code(), fmt::format("{}: {}", Printable(path), status.message()));
  };
  const auto bytes = SessionHeaderBytes(head, file.size_);
  if (!bytes.ok()) return named(bytes.status());
  head.resize(static_cast<size_t>(std::max<uint64_t>(*bytes, head.size())));
  if (Status status = ReadAt(file.fd_, 0, head, path); !status.ok()) return status;
  auto header = ParseSessionHeader(head, file.size_);
  if (!header.ok()) return named(header.status());
  file.header_ = std::move(*header);
  return file;
}

SectionFile::SectionFile(SectionFile&& other) noexcept { *this = std::move(other); }

SectionFile& SectionFile::operator=(SectionFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  std::swap(header_, other.header_);
  return *this;
}

SectionFile::~SectionFile() {
  if (fd_ >= 0) close(fd_);
}

Status SectionFile::Read(const SessionSection& section, std::span<std::byte> out) const {
  std::vector<std::byte> bytes(static_cast<size_t>(section.bytes));
  if (Status status = ReadAt(fd_, section.offset, bytes, path_); !status.ok()) return status;
  SessionSection here = section;
  here.offset = 0;
  Status status = ReadSection(bytes, here, out);
  if (status.ok()) return status;
  return {status.code(),
          fmt::format("{}: {} (section at 0x{:x})", Printable(path_), status.message(), section.offset)};
}

Status SectionFile::ReadTokens(std::vector<int32_t>* tokens) const {
  tokens->resize(static_cast<size_t>(header_.position));
  return Read(header_.sections[0], std::as_writable_bytes(std::span(*tokens)));
}

Status SectionFile::ReadAttachment(std::string* text) const {
  text->clear();
  if (header_.sections.size() < 2 || header_.sections[1].kind != Kind::kAttachment) return {};
  text->resize(static_cast<size_t>(header_.sections[1].part.rows));
  return Read(header_.sections[1], std::as_writable_bytes(std::span(*text)));
}

}  // namespace glint::engine
