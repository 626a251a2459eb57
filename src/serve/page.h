// The chat page at "/": one document with its style and script inside, compiled in. It asks for nothing but the paths of this server.
#pragma once
#include <string_view>

#include "serve/http.h"

namespace glint::serve {

// HTML, UTF-8; made from src/serve/page/ by cmake/page.cmake.
std::string_view PageText();
// Strong, in its quotes: changes with the text.
std::string_view PageTag();
// Its type, its tag, and what a browser may do with it: run the one script and style inside, whose hashes are named, ask this server, and
// nothing else: no other script, no picture or frame, no request to anywhere else, no form, no HTML made from strings.
HttpHeaders PageHeaders();

// Answers a GET or HEAD of the page: 200, or 304 if the request names its tag in If-None-Match.
void SendPage(const HttpRequest& request, Reply& reply);

}  // namespace glint::serve
