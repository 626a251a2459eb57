#include "cli/npy.h"

#include <fmt/core.h>

#include <bit>

#include "base/checked.h"

namespace glint::cli {

static_assert(std::endian::native == std::endian::little, "the file is written as the values lie in memory");

Result<NpyWriter> NpyWriter::Create(const std::string& path, uint64_t rows, uint64_t columns,
                                    std::span<const std::string> inputs, bool replace) {
  const auto values = CheckedMul(rows, columns);
  if (!values)
    return Status(Code::kBadInput, fmt::format("{}: {} x {} values are too many", path, rows, columns));
  auto file = AtomicFile::Create(path, inputs, 0666, replace);
  if (!file.ok()) return file.status();

  // Magic, version, 16-bit length of the header text, the text padded with spaces so that the data begins at a multiple of 64.
  std::string text =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  const size_t before = 10;
  text.append(63 - (before + text.size()) % 64, ' ');
  text += '\n';
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  header += text;
  const Status status = file->Write(std::as_bytes(std::span(header)));
  if (!status.ok()) return status;
  return NpyWriter(std::move(*file), *values);
}

Status NpyWriter::Append(std::span<const float> values) {
  if (values.size() > missing_)
    return {Code::kInternal, "more values than the NumPy file was declared to hold"};
  missing_ -= values.size();
  return file_.Write(std::as_bytes(values));
}

Status NpyWriter::Commit() {
  if (missing_ > 0)
    return {Code::kInternal, fmt::format("{} values are missing from the NumPy file", missing_)};
  return file_.Commit();
}

}  // namespace glint::cli
