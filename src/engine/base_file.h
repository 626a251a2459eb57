// Base files: a model's predictions over a text, to compare others with (docs/file-formats.md, "Base files").
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/scoring.h"
#include "glint/status.h"

namespace glint::engine {

// Everything that must match for two runs to have scored the same tokens the same way; `model` is for information.
struct BaseHeader {
  std::string model,
      tokenizer;        // fingerprints; tokenizer is for information too: the tokens themselves must match
  std::string text;     // hash of the token ids
  uint64_t tokens = 0;  // of the text
  uint64_t vocab = 0;
  Windows windows;
  uint64_t rows = 0;  // scored tokens
};

std::string TokensHash(std::span<const int32_t> ids);

// A log-probability is kept to within this of what it was, in nats, down to kBaseRange below the row's largest; what is less likely
// counts as if it lay there. Rows are normed again when read, so that the divergence of a model from itself is at most the square
// of this, and that of another is off by at most twice this times one plus the mean of |log p/q|.
inline constexpr double kBaseRange = 32;
inline constexpr double kBaseError = kBaseRange / 65535;

// Streams rows of logits into a file that appears whole or not at all.
class BaseWriter {
 public:
  // `rows` of the header must be what will be added.
  static Result<BaseWriter> Create(const std::string& path, const BaseHeader& header,
                                   std::span<const std::string> inputs, bool replace = true);
  Status Add(std::span<const float> logits);
  Status Commit();

 private:
  BaseWriter(AtomicFile file, BaseHeader header) : file_(std::move(file)), header_(std::move(header)) {}
  Status Flush();
  AtomicFile file_;
  BaseHeader header_;
  std::vector<std::byte> section_;
  uint32_t section_rows_ = 0;
  uint64_t rows_ = 0;
};

// Reads rows in the order they were added. Takes any bytes: damage is kBadFile with a reason, a newer version kUnsupported.
class BaseReader {
 public:
  static Result<BaseReader> Open(const std::string& path);
  // Of bytes in memory, which must outlive it. `name` stands in messages.
  static Result<BaseReader> Parse(std::span<const std::byte> bytes, const std::string& name);

  const BaseHeader& header() const { return header_; }
  // kBadInput naming the first of text, vocabulary, context, stride and first position that differs, with both values.
  Status CheckMatches(const BaseHeader& wanted) const;
  // The next row as log-probabilities that sum to one, [vocab]. kBadFile for damage, and after the last row.
  Status Next(std::span<double> out);

 private:
  Status Damaged(const std::string& what) const;
  Status NextSection();
  MappedFile file_;
  std::span<const std::byte> bytes_;
  std::string name_;
  BaseHeader header_;
  uint64_t at_ = 0, given_ = 0;
  std::vector<std::byte> section_;
  uint32_t left_ = 0;  // rows of the section not given yet
  size_t section_at_ = 0;
};

}  // namespace glint::engine
