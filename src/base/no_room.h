// What the library's interface gives in place of std::bad_alloc.
#pragma once
#include "glint/status.h"

namespace glint {

// To be called in the handler of a function that must not throw: kNoRoom where the system gave no more memory, or more was asked for than
// there can be. Any other exception (a callback's of the caller) goes on up.
Status NoRoomOrRethrow();

}  // namespace glint
