// Any bytes as the target of a request line: whatever is accepted is a path that is safe as a name, and taking it apart again changes
// nothing.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "serve/http_target.h"

namespace {

using namespace glint;

void Check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view target(reinterpret_cast<const char*>(data), size);
  const auto parsed = serve::ParseTarget(target);
  if (!parsed.ok()) {
    Check(!parsed.status().message().empty() && ValidUtf8(parsed.status().message()));
    return 0;
  }
  const std::string& path = parsed->path;
  for (const auto& [name, value] : parsed->query) Check(ValidUtf8(name) && ValidUtf8(value));
  if (path == "*") return 0;
  Check(path.starts_with('/') && ValidUtf8(path) && path.find('\\') == path.npos &&
        path.find('\0') == path.npos);
  Check(path == "/" || !path.ends_with('/'));
  Check((path + '/').find("//") == path.npos || path == "/");
  Check((path + '/').find("/./") == path.npos && (path + '/').find("/../") == path.npos);
  std::string again;
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char c : path) {
    if (c == '/') {
      again += c;
    } else {
      ((again += '%') += kHex[static_cast<uint8_t>(c) >> 4]) += kHex[static_cast<uint8_t>(c) & 15];
    }
  }
  const auto twice = serve::ParseTarget(again);
  Check(twice.ok() && twice->path == path);
  return 0;
}
