// Which sanitizer this build runs under, for tests whose size would cost minutes there.
#pragma once

namespace glint::test {

// ThreadSanitizer makes the canonical loops some 30 times slower. What it looks for (two threads and a missing order) shows in a few
// rows as well as in a hundred; how many conditions give the same bits is the release build's to show.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAnySanitizer = true;
#else
inline constexpr bool kAnySanitizer = kThreadSanitizer;
#endif

}  // namespace glint::test
