#include "cli/json_writer.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "base/printable.h"

namespace glint::cli {

void JsonWriter::Separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (open_.empty()) return;
  if (!first_) out_ += ',';
  if (open_.back() == '(')
    out_ += first_ ? "" : " ";
  else
    out_ += "\n" + std::string(2 * open_.size(), ' ');
}

JsonWriter& JsonWriter::Raw(std::string_view text) {
  Separate();
  out_ += text;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Begin(char bracket) {
  Raw(std::string_view(&bracket, 1));
  open_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::BeginArray(bool flat) {
  Begin('[');
  if (flat) open_.back() = '(';
  return *this;
}

JsonWriter& JsonWriter::End(char bracket) {
  const bool flat = open_.back() == '(';
  open_.pop_back();
  if (!first_ && !flat) out_ += "\n" + std::string(2 * open_.size(), ' ');
  out_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Value(key);
  out_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::Value(std::string_view text) {
  Separate();
  out_ += '"';
  for (size_t i = 0; i < text.size();) {
    char32_t code = 0;
    const size_t length = DecodeUtf8(text.substr(i), code);
    if (length == 0)
      out_ += "\xef\xbf\xbd";
    else if (code == '"' || code == '\\')
      out_ += '\\', out_ += text[i];
    else if (code == '\n')
      out_ += "\\n";
    else if (code == '\t')
      out_ += "\\t";
    else if (code < 0x20 || (code >= 0x7f && code < 0xa0))
      out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(code));
    else
      out_ += text.substr(i, length);
    i += length == 0 ? 1 : length;
  }
  out_ += '"';
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Value(bool value) { return Raw(value ? "true" : "false"); }

JsonWriter& JsonWriter::Value(double value) {
  if (!std::isfinite(value)) return Null();
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return Raw(std::string_view(text, static_cast<size_t>(end - text)));
}

JsonWriter& JsonWriter::Value(int64_t value) { return Raw(fmt::format("{}", value)); }
JsonWriter& JsonWriter::Value(uint64_t value) { return Raw(fmt::format("{}", value)); }
JsonWriter& JsonWriter::Null() { return Raw("null"); }

std::string JsonWriter::Take() {
  out_ += '\n';
  return std::move(out_);
}

}  // namespace glint::cli
