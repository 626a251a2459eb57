#include "serve/json_out.h"

#include <fmt/core.h>

#include <cmath>

#include "text/python_json.h"

namespace glint::serve {
namespace {

void AppendText(std::string_view text, std::string& out) {
  std::string plain;
  text::AppendInsideJsonString(text, plain);
  out += '"';
  for (size_t i = 0; i < plain.size(); ++i) {
    const std::string_view rest = std::string_view(plain).substr(i);
    if (rest[0] == '\x7f') {
      out += "\\u007f";
    } else if (rest.starts_with("\xc2\x85")) {
      out += "\\u0085", i += 1;
    } else if (rest.starts_with("\xe2\x80\xa8")) {
      out += "\\u2028", i += 2;
    } else if (rest.starts_with("\xe2\x80\xa9")) {
      out += "\\u2029", i += 2;
    } else {
      out += rest[0];
    }
  }
  out += '"';
}

void Append(const Json& value, JsonOut& out) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      out.Null();
      break;
    case Json::Kind::kBool:
      out.Bool(std::get<bool>(value.data()));
      break;
    case Json::Kind::kInteger:
      if (const auto* big = std::get_if<uint64_t>(&value.data())) {
        out.Raw(std::to_string(*big));
      } else {
        out.Integer(std::get<int64_t>(value.data()));
      }
      break;
    case Json::Kind::kFloat:
      out.Number(std::get<double>(value.data()));
      break;
    case Json::Kind::kString:
      out.String(std::get<std::string>(value.data()));
      break;
    case Json::Kind::kArray:
      out.Begin('[');
      for (const Json& item : value.items()) Append(item, out);
      out.End(']');
      break;
    case Json::Kind::kObject:
      out.Begin('{');
      for (const Json::Member& member : value.members()) {
        out.Key(member.key);
        Append(member.value, out);
      }
      out.End('}');
      break;
  }
}

}  // namespace

void JsonOut::Separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

JsonOut& JsonOut::Begin(char bracket) {
  Separate();
  out_ += bracket;
  first_ = true;
  return *this;
}

JsonOut& JsonOut::End(char bracket) {
  out_ += bracket;
  first_ = false;
  return *this;
}

JsonOut& JsonOut::Key(std::string_view key) {
  Separate();
  AppendText(key, out_);
  out_ += ':';
  first_ = true;
  return *this;
}

JsonOut& JsonOut::String(std::string_view text) {
  Separate();
  AppendText(text, out_);
  return *this;
}

JsonOut& JsonOut::Integer(int64_t value) { return Raw(std::to_string(value)); }

JsonOut& JsonOut::Number(double value) {
  return std::isfinite(value) ? Raw(text::PythonFloat(value)) : Null();
}

JsonOut& JsonOut::Bool(bool value) { return Raw(value ? "true" : "false"); }

JsonOut& JsonOut::Null() { return Raw("null"); }

JsonOut& JsonOut::Raw(std::string_view json) {
  Separate();
  out_ += json;
  return *this;
}

std::string ToText(const Json& value) {
  JsonOut out;
  Append(value, out);
  return out.Take();
}

std::string ToUtf8(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    const auto byte = [&](size_t k) { return static_cast<uint8_t>(i + k < bytes.size() ? bytes[i + k] : 0); };
    const uint8_t lead = byte(0);
    size_t length = lead < 0x80                   ? 1
                    : lead >= 0xc2 && lead < 0xe0 ? 2
                    : lead >= 0xe0 && lead < 0xf0 ? 3
                    : lead >= 0xf0 && lead < 0xf5 ? 4
                                                  : 0;
    for (size_t k = 1; k < length; ++k) {
      // What may follow a lead: no overlong forms, no surrogates, nothing beyond U+10FFFF.
      const uint8_t low = k == 1 && lead == 0xe0 ? 0xa0 : k == 1 && lead == 0xf0 ? 0x90 : 0x80;
      const uint8_t high = k == 1 && lead == 0xed ? 0x9f : k == 1 && lead == 0xf4 ? 0x8f : 0xbf;
      if (byte(k) < low || byte(k) > high) length = 0;
    }
    if (length == 0) {
      out += "\xef\xbf\xbd";
      ++i;
    } else {
      out += bytes.substr(i, length);
      i += length;
    }
  }
  return out;
}

}  // namespace glint::serve
