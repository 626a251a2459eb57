// A long context without the time it takes to read it: for measuring.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "base/progress.h"
#include "glint/session.h"

namespace glint::engine {

// As Session::Append(tokens, no logits), but only about the first `real` tokens are read; what the caches hold of the rest repeats the
// rows before it, over and over, and the recurrent states stay as they are. Times are those of a true context but for where the
// selected rows lie; the output means nothing. A session that is deeper than `real` already reads only up to the grid.
// After an error or an interruption the session is as before the call, but where it ends up short enough to be read as a whole (then as
// after Append); a device that failed is the end of it. kBadInput where `real` is under two blocks of the grid or two pools, where the session has checkpoints or an MTP block, or "interrupted".
Status AppendSynthetically(Session& session, std::span<const int32_t> tokens, int64_t real,
                           const Progress& progress);

// What reports say of such a context, behind what its tokens are.
std::string DescribeSynthetic(int64_t real);

}  // namespace glint::engine
