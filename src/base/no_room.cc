#include "base/no_room.h"

#include <new>
#include <stdexcept>

namespace glint {
namespace {

// Short enough for a string to hold without memory of its own.
Status OutOfMemory() { return {Code::kNoRoom, "out of memory"}; }

}  // namespace

Status NoRoomOrRethrow() try { throw; } catch (const std::bad_alloc&) {
  return OutOfMemory();
} catch (const std::length_error&) {
  return OutOfMemory();
}

}  // namespace glint
