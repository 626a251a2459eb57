#include "serve/http_target.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/printable.h"

namespace glint::serve {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Nothing if an escape is incomplete or has other than hexadecimal digits.
std::optional<std::string> Decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 1 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high << 4 | low);
      i += 2;
    }
  }
  return out;
}

Status Bad(std::string_view part, std::string_view why) {
  return {Code::kBadInput, fmt::format("the request's target: {} in {}", why, Quoted(part))};
}

}  // namespace

Result<HttpTarget> ParseTarget(std::string_view target) {
  HttpTarget parsed;
  if (target == "*") {
    parsed.path = "*";
    return parsed;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?#"), target.size()));
    if (target.empty()) target = "/";
    break;
  }
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  std::string_view path = target.substr(0, mark);
  std::string_view query = mark == target.npos ? std::string_view() : target.substr(mark + 1);
  if (!path.starts_with('/')) return Bad(path, "no '/' at the beginning");

  while (!path.empty()) {
    path.remove_prefix(1);  // the '/'
    const std::string_view raw = path.substr(0, path.find('/'));
    path.remove_prefix(raw.size());
    if (raw.empty()) continue;
    const auto segment = Decoded(raw, false);
    if (!segment) return Bad(raw, "a '%' without two hexadecimal digits");
    if (*segment == "." || *segment == "..") return Bad(raw, "a segment of dots alone");
    for (const char c : *segment) {
      if (c == '/' || c == '\\') return Bad(raw, "a slash or backslash that is part of a name");
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return Bad(raw, "a control character");
    }
    if (!ValidUtf8(*segment)) return Bad(raw, "bytes that are not UTF-8");
    parsed.path += '/';
    parsed.path += *segment;
  }
  if (parsed.path.empty()) parsed.path = "/";

  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const auto name = Decoded(pair.substr(0, equals), true);
    const auto value = Decoded(equals == pair.npos ? std::string_view() : pair.substr(equals + 1), true);
    if (!name || !value) return Bad(pair, "a '%' without two hexadecimal digits");
    if (!ValidUtf8(*name) || !ValidUtf8(*value)) return Bad(pair, "bytes that are not UTF-8");
    parsed.query.emplace_back(*name, *value);
  }
  return parsed;
}

}  // namespace glint::serve
