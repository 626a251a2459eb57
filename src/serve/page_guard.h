// A server without keys trusts whoever reaches it. Pages that a browser shows are not among those: any site's page can send requests
// to this machine.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace glint::serve {

struct PageGuard {
  // Pages of other origins than the server's own and `cors_origin` ("*": all) are refused.
  bool own_pages = false;
  // The Host must be an address, localhost or a name below it: a site whose name was pointed to this machine (DNS rebinding)
  // has pages that would pass for the server's own.
  bool local_names = false;
};

// Why the request is not to be answered, for whoever reads the answer; nothing if it is.
std::optional<std::string> WhyRefused(const PageGuard& guard, const HttpRequest& request,
                                      std::string_view cors_origin);

}  // namespace glint::serve
