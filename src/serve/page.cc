#include "serve/page.h"

#include <fmt/core.h>

#include <string>

#include "serve/page_bytes.h"

namespace glint::serve {
namespace {

// What If-None-Match names: "*", or a list of tags, each perhaps with W/ before it.
bool Names(std::string_view list, std::string_view tag) {
  return list == "*" ||
         list.find(tag) != std::string_view::npos;  // no tag is part of another: quotes are part of it
}

}  // namespace

std::string_view PageText() { return kPageText; }

std::string_view PageTag() {
  static const std::string kTag = fmt::format("\"{}\"", kPageTag);
  return kTag;
}

HttpHeaders PageHeaders() {
  // data: pictures are the icon alone, which the document names itself.
  std::string policy = fmt::format(
      "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri "
      "'none'; "
      "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
      kPageScriptHash, kPageStyleHash);
  return {
      {"Content-Type", "text/html; charset=utf-8"},
      {"Content-Security-Policy", std::move(policy)},
      {"Cache-Control", "no-cache"},
      {"ETag", std::string(PageTag())},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Permissions-Policy",
       "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
      // Browsers look up the names in links before anybody clicks them, which would tell what the model wrote.
      {"X-DNS-Prefetch-Control", "off"},
      {"X-Frame-Options", "DENY"}};
}

void SendPage(const HttpRequest& request, Reply& reply) {
  if (Names(request.Header("If-None-Match"), PageTag())) return reply.Send(304, PageHeaders(), "");
  reply.Send(200, PageHeaders(), std::string(kPageText));
}

}  // namespace glint::serve
