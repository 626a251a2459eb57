#include "base/json_pointer.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <optional>

namespace glint {
namespace {

std::optional<char> HexByte(std::string_view digits) {
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
  if (digits.size() != 2 || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<char>(byte);
}

// A fragment is a pointer with bytes percent-encoded: those are taken back first (RFC 6901, section 6), for "%7E1" is "~1".
std::string WithoutPercents(std::string_view fragment) {
  std::string out;
  for (size_t i = 0; i < fragment.size(); ++i) {
    const auto byte = fragment[i] == '%' ? HexByte(fragment.substr(i + 1, 2)) : std::nullopt;
    out += byte ? *byte : fragment[i];
    i += byte ? 2 : 0;
  }
  return out;
}

std::string Unescaped(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool escaped = name[i] == '~' && i + 1 < name.size() && (name[i + 1] == '0' || name[i + 1] == '1');
    out += !escaped ? name[i] : name[i + 1] == '0' ? '~' : '/';
    i += escaped ? 1 : 0;
  }
  return out;
}

std::string Escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

const Json* Child(const Json& at, std::string_view name) {
  if (at.kind() != Json::Kind::kArray) return at.Find(Unescaped(name));
  size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool whole =
      error == std::errc() && end == name.data() + name.size() && (name == "0" || name[0] != '0');
  return whole && index < at.items().size() ? &at.items()[index] : nullptr;
}

bool Search(const Json& at, const Json* wanted, std::string& path) {
  if (&at == wanted) return true;
  const size_t length = path.size();
  for (const auto& member : at.members()) {
    path += "/" + Escaped(member.key);
    if (Search(member.value, wanted, path)) return true;
    path.resize(length);
  }
  for (size_t i = 0; i < at.items().size(); ++i) {
    path += fmt::format("/{}", i);
    if (Search(at.items()[i], wanted, path)) return true;
    path.resize(length);
  }
  return false;
}

}  // namespace

const Json* FindReference(const Json& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  const std::string pointer = WithoutPercents(reference.substr(1));
  std::string_view rest = pointer;
  const Json* at = &root;
  while (at != nullptr && rest.starts_with('/')) {
    rest.remove_prefix(1);
    const std::string_view name = rest.substr(0, rest.find('/'));
    rest.remove_prefix(name.size());
    at = Child(*at, name);
  }
  return rest.empty() ? at : nullptr;
}

std::string PointerTo(const Json& root, const Json& value) {
  std::string path;
  Search(root, &value, path);
  return path;
}

}  // namespace glint
