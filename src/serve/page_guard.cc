#include "serve/page_guard.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/printable.h"

namespace glint::serve {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

bool IsLocalName(std::string_view host) {
  if (host.starts_with('[')) return true;  // an IPv6 address
  host = host.substr(0, host.rfind(':'));
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  // No top-level domain is a number, so what has only digits and dots is an IPv4 address.
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::optional<std::string> WhyRefused(const PageGuard& guard, const HttpRequest& request,
                                      std::string_view cors_origin) {
  const std::string host = Lower(request.Header("host"));
  if (guard.local_names && !host.empty() && !IsLocalName(host)) {
    return fmt::format(
        "This server has no API keys and answers by its address or as localhost alone, not as '{}'. "
        "--api-key "
        "lifts that.",
        Printable(host));
  }
  if (!guard.own_pages || !request.HasHeader("origin") || cors_origin == "*") return {};
  const std::string origin = Lower(request.Header("origin"));
  if (origin == Lower(cors_origin)) return {};
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme) && origin.substr(scheme.size()) == host) return {};
  }
  return fmt::format(
      "This server has no API keys and answers no pages of other sites, such as '{}'. --cors-origin allows "
      "one "
      "of them.",
      Printable(origin));
}

}  // namespace glint::serve
