#include "serve/http.h"

#include <algorithm>
#include <array>

#include "base/printable.h"

namespace glint::serve {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool SameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

// A JSON string. Bytes that are not UTF-8 (messages may quote a request) become '?'.
std::string JsonString(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  const bool valid = ValidUtf8(text);
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      (((out += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15]);
    } else {
      out += valid || byte < 0x80 ? c : '?';
    }
  }
  return out += '"';
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (SameName(key, name)) return value;
  return {};
}

bool HttpRequest::HasHeader(std::string_view name) const {
  return std::any_of(headers.begin(), headers.end(), [&](const auto& h) { return SameName(h.first, name); });
}

std::string_view HttpRequest::Query(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return value;
  return {};
}

bool HttpRequest::HasQuery(std::string_view name) const {
  return std::any_of(query.begin(), query.end(), [&](const auto& q) { return q.first == name; });
}

std::string_view HttpReason(int status) {
  static constexpr std::array<std::pair<int, std::string_view>, 27> kReasons{{
      {100, "Continue"},
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {301, "Moved Permanently"},
      {302, "Found"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
      {507, "Insufficient Storage"},
  }};
  for (const auto& [number, reason] : kReasons)
    if (number == status) return reason;
  return "Status";
}

std::string_view HttpErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string HttpErrorBody(int status, std::string_view message, std::string_view code) {
  std::string body = "{\"type\": \"error\", \"error\": {\"type\": ";
  body += JsonString(HttpErrorType(status));
  body += ", \"message\": ";
  body += JsonString(message);
  body += ", \"param\": null, \"code\": ";
  body += code.empty() ? "null" : JsonString(code);
  return body += "}}";
}

void SendError(Reply& reply, int status, std::string_view message, std::string_view code,
               HttpHeaders headers) {
  headers.emplace_back("Content-Type", "application/json");
  reply.Send(status, std::move(headers), HttpErrorBody(status, message, code));
}

}  // namespace glint::serve
