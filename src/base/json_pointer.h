// JSON pointers (RFC 6901) into a value, in the form of a URI's fragment that JSON schemas use for $ref.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace glint {

// What "#" or "#/$defs/name" names in `root`: ~0 and ~1 stand for ~ and /, %HH for a byte, and elements of an array are named by
// decimal index. Null if it is no such reference, or nothing is there.
const Json* FindReference(const Json& root, std::string_view reference);

// The pointer ("/$defs/name"; empty for the root itself) of a value that lies in `root`, found by address; empty if it does not.
std::string PointerTo(const Json& root, const Json& value);

}  // namespace glint
