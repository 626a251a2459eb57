#include "engine/base_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/compress.h"
#include "base/hash.h"
#include "base/printable.h"

namespace glint::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "base files are little-endian");

constexpr std::array<char, 8> kMagic = {'\x89', 'G', 'L', 'B', 'A', 'S', '\r', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 144, kHashAt = 24, kPreamble = 32;
constexpr size_t kSectionHead = 24;                    // rows, packed or not, bytes, hash
constexpr uint64_t kSectionBytes = uint64_t{4} << 20;  // before packing, but at least one row
constexpr uint64_t kMostVocab = uint64_t{1} << 28;
constexpr size_t kRowHead = 8;  // two floats: the smallest log-probability, and the step
constexpr double kSteps = 65535;
constexpr size_t kPrintBytes = 16;

uint64_t RowBytes(uint64_t vocab) { return kRowHead + 2 * vocab; }

uint64_t RowsOfSection(uint64_t vocab) { return std::max<uint64_t>(kSectionBytes / RowBytes(vocab), 1); }

template <class T>
T Get(std::span<const std::byte> bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void Put(std::span<std::byte> bytes, uint64_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

uint64_t HeaderHash(std::span<const std::byte> header) {
  Hasher hash;
  hash.AddBytes(header.first(kHashAt));
  hash.AddBytes(header.subspan(kHashAt + sizeof(uint64_t)));
  return hash.Value().low;
}

// 32 hexadecimal digits as 16 bytes; empty as zeros.
void PutPrint(std::span<std::byte> out, size_t at, const std::string& print) {
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  for (size_t i = 0; i < kPrintBytes && 2 * i + 1 < print.size(); ++i)
    out[at + i] = static_cast<std::byte>(digit(print[2 * i]) << 4 | digit(print[2 * i + 1]));
}

std::string GetPrint(std::span<const std::byte> bytes, size_t at) {
  std::string text;
  for (size_t i = 0; i < kPrintBytes; ++i)
    text += fmt::format("{:02x}", std::to_integer<unsigned>(bytes[at + i]));
  return text;
}

std::vector<std::byte> MakeHeader(const BaseHeader& h, uint64_t file_bytes) {
  std::vector<std::byte> out(kHeaderBytes);
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  Put<uint32_t>(out, 8, kVersion);
  Put<uint32_t>(out, 12, kHeaderBytes);
  Put<uint64_t>(out, 16, file_bytes);
  PutPrint(out, 32, h.model);
  PutPrint(out, 48, h.tokenizer);
  PutPrint(out, 64, h.text);
  Put<uint64_t>(out, 80, h.vocab);
  Put<uint64_t>(out, 88, h.tokens);
  Put<int64_t>(out, 96, h.windows.context);
  Put<int64_t>(out, 104, h.windows.stride);
  Put<int64_t>(out, 112, h.windows.first);
  Put<uint64_t>(out, 120, h.rows);
  Put<uint64_t>(out, kHashAt, HeaderHash(out));
  return out;
}

}  // namespace

std::string TokensHash(std::span<const int32_t> ids) {
  Hasher hasher;
  hasher.AddBytes(std::as_bytes(ids));
  return Hex(hasher.Value());
}

Result<BaseWriter> BaseWriter::Create(const std::string& path, const BaseHeader& header,
                                      std::span<const std::string> inputs, bool replace) {
  auto file = AtomicFile::Create(path, inputs, 0666, replace);
  if (!file.ok()) return file.status();
  if (Status s = file->Write(MakeHeader(header, 0)); !s.ok()) return s;
  return BaseWriter(std::move(*file), header);
}

Status BaseWriter::Add(std::span<const float> logits) {
  if (logits.size() != header_.vocab || rows_ == header_.rows)
    return {Code::kInternal,
            fmt::format("row {} of {} logits does not belong to this base", rows_, logits.size())};
  const double partition = LogPartition(logits);
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  if (!std::isfinite(partition))
    return {Code::kBadFile, "the model's logits are no numbers, so there is nothing to compare with"};
  // Floats of both, as the reader will have them.
  const auto base = static_cast<float>(std::max(static_cast<double>(*low), *high - kBaseRange) - partition);
  // The base as a float may lie above the largest where all are equal.
  const auto step = static_cast<float>(std::max(*high - partition - base, 0.0) / kSteps);
  const size_t at = section_.size();
  section_.resize(at + RowBytes(header_.vocab));
  Put(section_, at, base);
  Put(section_, at + 4, step);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double code = step > 0 ? (static_cast<double>(logits[i]) - partition - base) / step : 0;
    Put(section_, at + kRowHead + 2 * i, static_cast<uint16_t>(std::lrint(std::clamp(code, 0.0, kSteps))));
  }
  ++rows_;
  return ++section_rows_ == RowsOfSection(header_.vocab) ? Flush() : Status();
}

Status BaseWriter::Flush() {
  if (section_rows_ == 0) return {};
  const auto packed = Compress(section_, 2);
  const bool pack = !packed.empty() && packed.size() < section_.size();
  const std::span<const std::byte> bytes = pack ? packed : section_;
  std::vector<std::byte> head(kSectionHead);
  Put<uint32_t>(head, 0, section_rows_);
  Put<uint32_t>(head, 4, pack);
  Put<uint64_t>(head, 8, bytes.size());
  Put<uint64_t>(head, 16, Hash64(bytes));
  Status status = file_.Write(head);
  if (status.ok()) status = file_.Write(bytes);
  section_.clear();
  section_rows_ = 0;
  return status;
}

Status BaseWriter::Commit() {
  if (rows_ != header_.rows)
    return {Code::kInternal, fmt::format("{} rows of {} were added to the base", rows_, header_.rows)};
  if (Status s = Flush(); !s.ok()) return s;
  if (Status s = file_.WriteAt(0, MakeHeader(header_, file_.size())); !s.ok()) return s;
  return file_.Commit();
}

Status BaseReader::Damaged(const std::string& what) const {
  return {Code::kBadFile, fmt::format("{}: the base file is damaged: {}; make it again with --save-base",
                                      Printable(name_), what)};
}

Result<BaseReader> BaseReader::Open(const std::string& path) {
  auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  auto reader = Parse(file->bytes(), path);
  if (reader.ok()) reader->file_ = std::move(*file);
  return reader;
}

Result<BaseReader> BaseReader::Parse(std::span<const std::byte> bytes, const std::string& name) {
  BaseReader reader;
  reader.bytes_ = bytes;
  reader.name_ = name;
  const size_t magic = std::min(bytes.size(), kMagic.size());
  if (bytes.empty() || std::memcmp(bytes.data(), kMagic.data(), magic) != 0)
    return Status(
        Code::kBadFile,
        fmt::format("{}: is no base file of glint's (perplexity --save-base makes one)", Printable(name)));
  if (bytes.size() < kPreamble) return reader.Damaged(fmt::format("cut off after {} bytes", bytes.size()));
  const auto version = Get<uint32_t>(bytes, 8);
  const uint64_t header_bytes = Get<uint32_t>(bytes, 12), file_bytes = Get<uint64_t>(bytes, 16);
  if (file_bytes != bytes.size())
    return reader.Damaged(fmt::format("it has {} bytes and says {}", bytes.size(), file_bytes));
  if (header_bytes < kPreamble || header_bytes > file_bytes)
    return reader.Damaged(fmt::format("a header of {} bytes", header_bytes));
  const auto head = bytes.first(static_cast<size_t>(header_bytes));
  if (HeaderHash(head) != Get<uint64_t>(bytes, kHashAt))
    return reader.Damaged("the header's checksum does not match");
  if (version != kVersion) {
    return Status(
        Code::kUnsupported,
        fmt::format("{}: a base file of version {}, this glint reads {}; make it again with --save-base",
                    Printable(name), version, kVersion));
  }
  if (header_bytes != kHeaderBytes) return reader.Damaged(fmt::format("a header of {} bytes", header_bytes));
  BaseHeader& h = reader.header_;
  h.model = GetPrint(bytes, 32);
  h.tokenizer = GetPrint(bytes, 48);
  h.text = GetPrint(bytes, 64);
  h.vocab = Get<uint64_t>(bytes, 80);
  h.tokens = Get<uint64_t>(bytes, 88);
  h.windows = {Get<int64_t>(bytes, 96), Get<int64_t>(bytes, 104), Get<int64_t>(bytes, 112)};
  h.rows = Get<uint64_t>(bytes, 120);
  const Windows& w = h.windows;
  if (h.vocab == 0 || h.vocab > kMostVocab || h.rows == 0 || h.rows > h.tokens || w.context < 2 ||
      w.stride < 1 || w.stride > w.context || w.first < 1 || w.first >= w.context)
    return reader.Damaged("its numbers make no sense together");
  reader.at_ = header_bytes;
  return reader;
}

Status BaseReader::CheckMatches(const BaseHeader& wanted) const {
  const auto differs = [&](std::string_view what, const auto& here, const auto& there) {
    return Status(Code::kBadInput, fmt::format("{}: was made with {} {}, this run has {}", Printable(name_),
                                               what, here, there));
  };
  const Windows &a = header_.windows, &b = wanted.windows;
  if (header_.vocab != wanted.vocab) return differs("a vocabulary of", header_.vocab, wanted.vocab);
  if (header_.tokens != wanted.tokens)
    return differs("a text whose tokens number", header_.tokens, wanted.tokens);
  if (header_.text != wanted.text)
    return differs("a text whose tokens have the hash", header_.text, wanted.text);
  if (a.context != b.context) return differs("--ctx", a.context, b.context);
  if (a.stride != b.stride) return differs("--stride", a.stride, b.stride);
  if (a.first != b.first) return differs("--first", a.first, b.first);
  if (header_.rows != wanted.rows) return differs("a number of scored tokens of", header_.rows, wanted.rows);
  return {};
}

Status BaseReader::NextSection() {
  if (!Within<uint64_t>(at_, kSectionHead, bytes_.size()))
    return Damaged(fmt::format("{} rows where there should be {}", given_, header_.rows));
  const auto rows = Get<uint32_t>(bytes_, at_), packed = Get<uint32_t>(bytes_, at_ + 4);
  const auto size = Get<uint64_t>(bytes_, at_ + 8), hash = Get<uint64_t>(bytes_, at_ + 16);
  const uint64_t begin = at_ + kSectionHead;
  const uint64_t raw = rows * RowBytes(header_.vocab);
  const uint64_t most = std::min(RowsOfSection(header_.vocab), header_.rows - given_);
  if (rows == 0 || rows > most || packed > 1 || !Within<uint64_t>(begin, size, bytes_.size()) ||
      (packed == 0 && size != raw))
    return Damaged(fmt::format("the section at offset {:#x} has impossible numbers", at_));
  const auto content = bytes_.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
  if (Hash64(content) != hash)
    return Damaged(fmt::format("the checksum of the section at offset {:#x} does not match", at_));
  section_.resize(static_cast<size_t>(raw));
  if (packed == 0)
    std::memcpy(section_.data(), content.data(), content.size());
  else if (!Decompress(content, 2, section_))
    return Damaged(fmt::format("the section at offset {:#x} does not unpack", at_));
  at_ = begin + size;
  left_ = rows;
  section_at_ = 0;
  return {};
}

Status BaseReader::Next(std::span<double> out) {
  if (given_ == header_.rows || out.size() != header_.vocab)
    return {Code::kInternal, fmt::format("row {} of {} entries is none of this base", given_, out.size())};
  if (left_ == 0) {
    if (Status s = NextSection(); !s.ok()) return s;
  }
  const auto base = Get<float>(section_, section_at_), step = Get<float>(section_, section_at_ + 4);
  // Whatever the numbers are, the sum below is finite: no entry lies above the largest, and that one counts as one.
  if (!std::isfinite(base) || !(step >= 0 && step <= 2 * kBaseError))
    return Damaged(fmt::format("row {} has impossible numbers", given_));
  double sum = 0;
  uint16_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i)
    largest = std::max(largest, Get<uint16_t>(section_, section_at_ + kRowHead + 2 * i));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto code = Get<uint16_t>(section_, section_at_ + kRowHead + 2 * i);
    out[i] = static_cast<double>(step) * (static_cast<int>(code) - largest);
    sum += std::exp(out[i]);
  }
  const double norm = std::log(sum);
  for (double& x : out) x -= norm;
  section_at_ += RowBytes(header_.vocab);
  ++given_;
  --left_;
  if (given_ == header_.rows && at_ != bytes_.size())
    return Damaged(fmt::format("{} bytes follow its last row", bytes_.size() - at_));
  return {};
}

}  // namespace glint::engine
