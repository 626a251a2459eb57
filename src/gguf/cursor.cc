#include "gguf/cursor.h"

#include <fmt/core.h>

#include "base/printable.h"

namespace glint::gguf {

void Cursor::Fail(Code code, uint64_t offset, std::string_view what) {
  if (!ok()) return;
  status_ = Status(code, fmt::format("{}: {}: {} (offset 0x{:x})", Printable(path_), part_, what, offset));
}

bool Cursor::Need(uint64_t bytes, std::string_view what) {
  if (!ok()) return false;
  if (bytes <= left()) return true;
  Fail(Code::kBadFile, at_,
       fmt::format("the file ends within {}: {} bytes are left where {} are needed", what, left(), bytes));
  return false;
}

std::string_view Cursor::Text(std::string_view what, uint64_t limit) {
  const uint64_t start = at_;
  const auto length = Number<uint64_t>(what);
  if (!ok()) return {};
  if (length > limit) {
    Fail(Code::kBadFile, start, fmt::format("{} of {} bytes; at most {} are allowed", what, length, limit));
    return {};
  }
  if (length > left()) {
    Fail(Code::kBadFile, start,
         fmt::format("{} of {} bytes, but only {} are left in the file", what, length, left()));
    return {};
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + at_),
                              static_cast<size_t>(length));
  at_ += length;
  return text;
}

}  // namespace glint::gguf
