// The target of a request line, taken apart: "/v1/models?after=a%20b" and its like.
#pragma once
#include <string>
#include <string_view>

#include "glint/status.h"
#include "serve/http.h"

namespace glint::serve {

struct HttpTarget {
  std::string path;
  HttpHeaders query;
};

// Takes "/path?query" and, as a proxy may send it, "http://host/path?query"; "*" stays "*". The path is decoded and safe to be used
// as a name: kBadInput for a bad %-escape, for what decodes to NUL, another control character, '/' or '\' or to bytes that are not
// UTF-8, and for "." and ".." as segments. Empty segments are dropped ("//a/" is "/a"). In the query '+' is a space; pairs without '='
// have an empty value; any decoded UTF-8 is allowed there.
Result<HttpTarget> ParseTarget(std::string_view target);

}  // namespace glint::serve
