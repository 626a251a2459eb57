// The bytes of a session file (docs/file-formats.md, "Session files"): parsing apart from files and sessions, so that any bytes can
// be given to it.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "glint/status.h"
#include "plan/state_part.h"

namespace glint::engine {

inline constexpr std::array<char, 8> kSessionMagic = {'\x89', 'G', 'L', 'S', 'E', 'S', '\r', '\n'};
inline constexpr uint32_t kSessionVersion = 1;
inline constexpr size_t kSessionFixedBytes = 128, kSessionSectionBytes = 64;
// Where the header's checksum lies; it covers the header but for itself.
inline constexpr size_t kSessionHashAt = 24;
// The first bytes, which mean the same in every version.
inline constexpr size_t kSessionPreamble = kSessionHashAt + 8;
// Bytes of a section before packing, at most (but at least one row): bounds what saving and loading need besides the state.
inline constexpr uint64_t kSectionBytes = uint64_t{4} << 20;
inline constexpr uint64_t kAttachmentBytes = uint64_t{64} << 20;

struct SessionSection {
  enum class Kind : uint32_t { kTokens = 1, kAttachment = 2, kState = 3 };
  Kind kind = Kind::kTokens;
  bool packed = false;   // Compress() with planes of four; else as it is
  plan::StatePart part;  // kState: rows of it; others have first 0, width 1, and tokens or bytes as rows
  uint64_t offset = 0, bytes = 0, hash = 0;

  uint64_t EntryBytes() const { return kind == Kind::kAttachment ? 1 : 4; }
  // Of the content before packing. Was checked against overflow.
  uint64_t RawBytes() const {
    return static_cast<uint64_t>(part.rows) * static_cast<uint64_t>(part.width) * EntryBytes();
  }
};

struct SessionHeader {
  std::string model = {}, mtp_model = {}, tokenizer = {};  // fingerprints; empty: none
  int64_t position = 0, mtp_position = 0;
  int64_t capacity = 0;  // room the session had
  bool mtp = false;      // it kept the MTP block's caches
  // Tokens, then perhaps an attachment, then state, in the order of their bytes.
  std::vector<SessionSection> sections = {};
};

// Looks at the header alone. Everything in it is then consistent with itself and with the file's size: what is left to check is
// the model (Parts, capacity, vocabulary) and each section's checksum. Errors say what to do; they do not name the file.
// kBadFile: foreign, cut off or damaged. kUnsupported: another version.
Result<SessionHeader> ParseSessionHeader(std::span<const std::byte> file);
// The same where only the file's first bytes are at hand, its whole header at least; `size`: of the file.
Result<SessionHeader> ParseSessionHeader(std::span<const std::byte> head, uint64_t size);
// How many bytes the header says it has, never more than the file, by the file's first kSessionPreamble bytes.
Result<uint64_t> SessionHeaderBytes(std::span<const std::byte> preamble, uint64_t size);

// The header's bytes; sections must have their final numbers. `file_bytes`: of the whole file.
std::vector<std::byte> MakeSessionHeader(const SessionHeader& header, uint64_t file_bytes);

// Checks a section's checksum and unpacks it; `out` has RawBytes(). kBadFile for damage.
Status ReadSection(std::span<const std::byte> file, const SessionSection& section, std::span<std::byte> out);

// A message's words for the section: "latent of layer 3, rows 0 to 512 (offset 0x1000)".
std::string Describe(const SessionSection& section);

}  // namespace glint::engine
