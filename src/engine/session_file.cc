#include "engine/session_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "base/compress.h"
#include "base/hash.h"
#include "base/mutation.h"

namespace glint::engine {
namespace {

static_assert(std::endian::native == std::endian::little,
              "session files are little-endian; floats are written as they lie");

constexpr std::string_view kWhatToDo = "use a whole copy of it, or start a new session";

Status Damaged(const std::string& what) {
  return {Code::kBadFile, fmt::format("the session file is damaged: {}; {}", what, kWhatToDo)};
}

uint64_t Number(std::span<const std::byte> file, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(file[at + i]);
  return value;
}

void Put(std::span<std::byte> out, size_t at, size_t bytes, uint64_t value) {
  for (size_t i = 0; i < bytes; ++i, value >>= 8) out[at + i] = static_cast<std::byte>(value);
}

uint64_t HeaderHash(std::span<const std::byte> header) {
  Hasher hash;
  hash.AddBytes(header.first(kSessionHashAt));
  hash.AddBytes(header.subspan(kSessionHashAt + 8));
  return hash.Value().low;
}

constexpr size_t kPrintBytes = 16;

std::string PrintAt(std::span<const std::byte> file, size_t at) {
  std::string text;
  bool any = false;
  for (size_t i = 0; i < kPrintBytes; ++i) {
    const auto byte = std::to_integer<unsigned>(file[at + i]);
    any |= byte != 0;
    text += fmt::format("{:02x}", byte);
  }
  return any ? text : std::string();
}

void PutPrint(std::span<std::byte> out, size_t at, const std::string& print) {
  for (size_t i = 0; i < kPrintBytes && 2 * i + 1 < print.size(); ++i) {
    const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
    out[at + i] = static_cast<std::byte>(digit(print[2 * i]) << 4 | digit(print[2 * i + 1]));
  }
}

// A count that indices and products of floats must be able to hold.
bool Fits(uint64_t value) { return value <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max()); }

// `at`: of its entry in the table. `next`: where its bytes must begin; moved to their end.
Result<SessionSection> ParseSection(std::span<const std::byte> file, uint64_t size, size_t at,
                                    uint64_t* next) {
  const auto u32 = [&](size_t field) { return static_cast<uint32_t>(Number(file, at + field, 4)); };
  const auto u64 = [&](size_t field) { return Number(file, at + field, 8); };
  const uint32_t kind = u32(0), encoding = u32(4), part_kind = u32(8), layer = u32(12);
  const uint64_t first = u64(16), rows = u64(24), width = u64(32);
  const auto bad = [&](const std::string& what) {
    return Damaged(fmt::format("section at header offset 0x{:x}: {}", at, what));
  };
  if (kind < 1 || kind > 3) return bad(fmt::format("kind {}, wanted 1 to 3", kind));
  if (encoding > 1) return bad(fmt::format("encoding {}, wanted 0 or 1", encoding));
  SessionSection s;
  s.kind = static_cast<SessionSection::Kind>(kind);
  s.packed = encoding == 1;
  const bool state = s.kind == SessionSection::Kind::kState;
  if (part_kind >= static_cast<uint32_t>(plan::StatePart::Kind::kCount) ||
      (!state && (part_kind != 0 || layer != 0)) || !Fits(layer)) {
    return bad(fmt::format("part {} of layer {} is not one", part_kind, layer));
  }
  if (rows == 0 && state) return bad("no rows");
  if (!Fits(rows) || !Fits(first) || !Fits(first + rows) || !Fits(width) || width == 0 ||
      (!state && (first != 0 || width != 1))) {
    return bad(fmt::format("rows {} to {} of {} entries are not possible", first, first + rows, width));
  }
  s.part = {static_cast<plan::StatePart::Kind>(part_kind), static_cast<int>(layer),
            static_cast<int64_t>(first), static_cast<int64_t>(rows), static_cast<int64_t>(width)};
  // Both are below 2^31, so four times their product fits.
  const uint64_t row_bytes = width * s.EntryBytes(), most = std::max(kSectionBytes, row_bytes);
  if (state && rows * row_bytes > most)
    return bad(fmt::format("{} bytes; a section has {} at most", rows * row_bytes, most));
  if (s.kind == SessionSection::Kind::kAttachment && rows > kAttachmentBytes)
    return bad(fmt::format("an attachment of {} bytes; {} are possible", rows, kAttachmentBytes));
  s.offset = u64(40), s.bytes = u64(48), s.hash = u64(56);
  if (s.packed && !state) return bad("only state is packed");
  if (s.packed ? s.bytes >= s.RawBytes() || s.bytes == 0 : s.bytes != s.RawBytes())
    return bad(fmt::format("{} bytes for {} of content", s.bytes, s.RawBytes()));
  if (s.offset != *next || !Within<uint64_t>(s.offset, s.bytes, size))
    return bad(fmt::format("bytes 0x{:x} to 0x{:x} do not follow one another in the file", s.offset,
                           s.offset + s.bytes));
  *next = s.offset + s.bytes;
  return s;
}

// Of the header's numbers among themselves.
Status CheckSections(const SessionHeader& header) {
  using Kind = SessionSection::Kind;
  const auto& sections = header.sections;
  if (sections.empty() || sections[0].kind != Kind::kTokens)
    return Damaged("the first section does not hold the tokens");
  if (sections[0].part.rows != header.position)
    return Damaged(fmt::format("{} tokens at position {}", sections[0].part.rows, header.position));
  for (size_t i = 1; i < sections.size(); ++i) {
    if (sections[i].kind == Kind::kTokens || (sections[i].kind == Kind::kAttachment && i != 1))
      return Damaged(fmt::format("section {} of the header is out of order", i));
  }
  return {};
}

}  // namespace

Result<SessionHeader> ParseSessionHeader(std::span<const std::byte> file) {
  return ParseSessionHeader(file, file.size());
}

Result<uint64_t> SessionHeaderBytes(std::span<const std::byte> preamble, uint64_t size) {
  const size_t magic = std::min(preamble.size(), kSessionMagic.size());
  if (magic == 0 || std::memcmp(preamble.data(), kSessionMagic.data(), magic) != 0)
    return Status(Code::kBadFile, "this is not a session file of glint's");
  if (preamble.size() < kSessionPreamble)
    return Damaged(fmt::format("cut off after {} bytes", preamble.size()));
  return std::min(Number(preamble, 12, 4), size);
}

Result<SessionHeader> ParseSessionHeader(std::span<const std::byte> file, uint64_t size) {
  const size_t magic = std::min(file.size(), kSessionMagic.size());
  if (file.empty() || std::memcmp(file.data(), kSessionMagic.data(), magic) != 0) {
    return Status(Code::kBadFile, file.empty() ? "the file is empty, so it is no session file of glint's"
                                               : "this is not a session file of glint's");
  }
  constexpr size_t kPreamble = kSessionPreamble;
  if (file.size() < kPreamble) return Damaged(fmt::format("cut off after {} bytes", file.size()));
  const auto version = static_cast<uint32_t>(Number(file, 8, 4));
  const uint64_t header_bytes = Number(file, 12, 4), file_bytes = Number(file, 16, 8);
  if (file_bytes > size) return Damaged(fmt::format("cut off after {} of {} bytes", size, file_bytes));
  if (file_bytes < size)
    return Damaged(fmt::format("{} bytes follow its end at offset 0x{:x}", size - file_bytes, file_bytes));
  if (header_bytes < kPreamble || header_bytes > file_bytes || header_bytes > file.size())
    return Damaged(fmt::format("a header of {} bytes in a file of {}", header_bytes, file_bytes));
  const auto head = file.first(static_cast<size_t>(header_bytes));
  if (HeaderHash(head) != Number(file, kSessionHashAt, 8))
    return Damaged("the header's checksum does not match");
  if (version > kSessionVersion) {
    return Status(
        Code::kUnsupported,
        fmt::format(
            "the session file was saved by a newer glint (session format {}, this one reads {}); update "
            "glint, or start a new session",
            version, kSessionVersion));
  }
  if (version < kSessionVersion) {
    return Status(
        Code::kUnsupported,
        fmt::format(
            "the session file was saved by an older glint (session format {}, this one reads {}); load it "
            "with the glint that saved it, or start a new session",
            version, kSessionVersion));
  }

  if (header_bytes < kSessionFixedBytes) return Damaged(fmt::format("a header of {} bytes", header_bytes));
  SessionHeader header;
  header.model = PrintAt(file, 32);
  header.mtp_model = PrintAt(file, 48);
  header.tokenizer = PrintAt(file, 64);
  const uint64_t position = Number(file, 80, 8), mtp_position = Number(file, 88, 8),
                 capacity = Number(file, 96, 8);
  const uint64_t flags = Number(file, 104, 4), sections = Number(file, 108, 4);
  if (flags > 1 || Number(file, 112, 8) != 0 || Number(file, 120, 8) != 0) return Damaged("unknown flags");
  if (!Fits(capacity) || position > capacity || mtp_position > capacity ||
      (flags == 0 && mtp_position != 0)) {
    return Damaged(
        fmt::format("positions {} and {} (MTP block) in a context of {}", position, mtp_position, capacity));
  }
  if (header_bytes != kSessionFixedBytes + sections * kSessionSectionBytes)
    return Damaged(fmt::format("a header of {} bytes for {} sections", header_bytes, sections));
  header.position = static_cast<int64_t>(position);
  header.mtp_position = static_cast<int64_t>(mtp_position);
  header.capacity = static_cast<int64_t>(capacity);
  header.mtp = flags == 1;
  // The table lies within the file, so there is no more of it than there are bytes.
  header.sections.reserve(static_cast<size_t>(sections));
  uint64_t next = header_bytes;
  for (uint64_t i = 0; i < sections; ++i) {
    auto section =
        ParseSection(file, size, static_cast<size_t>(kSessionFixedBytes + i * kSessionSectionBytes), &next);
    if (!section.ok()) return section.status();
    header.sections.push_back(*section);
  }
  if (next != file_bytes) return Damaged(fmt::format("{} bytes belong to no section", file_bytes - next));
  if (Status status = CheckSections(header); !status.ok()) return status;
  return header;
}

std::vector<std::byte> MakeSessionHeader(const SessionHeader& header, uint64_t file_bytes) {
  std::vector<std::byte> out(kSessionFixedBytes + header.sections.size() * kSessionSectionBytes);
  std::memcpy(out.data(), kSessionMagic.data(), kSessionMagic.size());
  Put(out, 8, 4, kSessionVersion);
  Put(out, 12, 4, out.size());
  Put(out, 16, 8, file_bytes);
  PutPrint(out, 32, header.model);
  PutPrint(out, 48, header.mtp_model);
  PutPrint(out, 64, header.tokenizer);
  Put(out, 80, 8, static_cast<uint64_t>(header.position));
  Put(out, 88, 8, static_cast<uint64_t>(header.mtp_position));
  Put(out, 96, 8, static_cast<uint64_t>(header.capacity));
  Put(out, 104, 4, header.mtp ? 1 : 0);
  Put(out, 108, 4, header.sections.size());
  size_t at = kSessionFixedBytes;
  for (const SessionSection& s : header.sections) {
    Put(out, at, 4, static_cast<uint64_t>(s.kind));
    Put(out, at + 4, 4, s.packed ? 1 : 0);
    Put(out, at + 8, 4, static_cast<uint64_t>(s.part.kind));
    Put(out, at + 12, 4, static_cast<uint64_t>(s.part.layer));
    Put(out, at + 16, 8, static_cast<uint64_t>(s.part.first));
    Put(out, at + 24, 8, static_cast<uint64_t>(s.part.rows));
    Put(out, at + 32, 8, static_cast<uint64_t>(s.part.width));
    Put(out, at + 40, 8, s.offset);
    Put(out, at + 48, 8, s.bytes);
    Put(out, at + 56, 8, s.hash);
    at += kSessionSectionBytes;
  }
  Put(out, kSessionHashAt, 8, HeaderHash(out));
  return out;
}

std::string Describe(const SessionSection& section) {
  if (section.kind == SessionSection::Kind::kTokens)
    return fmt::format("tokens (offset 0x{:x})", section.offset);
  if (section.kind == SessionSection::Kind::kAttachment)
    return fmt::format("attachment (offset 0x{:x})", section.offset);
  const auto& part = section.part;
  return fmt::format("{} of layer {}, rows {} to {} (offset 0x{:x})", Name(part.kind), part.layer, part.first,
                     part.first + part.rows, section.offset);
}

Status ReadSection(std::span<const std::byte> file, const SessionSection& section, std::span<std::byte> out) {
  if (!Within<uint64_t>(section.offset, section.bytes, file.size()) || out.size() != section.RawBytes())
    return {Code::kInternal, "a section was read that is not the file's"};
  const auto bytes = file.subspan(static_cast<size_t>(section.offset), static_cast<size_t>(section.bytes));
  if (Hash64(bytes) != section.hash && !Mutated(Mutation::kChecksumNotChecked))
    return Damaged(fmt::format("{}: the checksum does not match", Describe(section)));
  if (!section.packed) {
    std::copy(bytes.begin(), bytes.end(), out.begin());
  } else if (!Decompress(bytes, 4, out)) {
    return Damaged(fmt::format("{}: does not unpack to {} bytes", Describe(section), out.size()));
  }
  return {};
}

}  // namespace glint::engine
