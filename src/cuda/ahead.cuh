// Sums whose every step waits for the one before, over operands in shared memory.
#pragma once

namespace glint::cuda {

// Calls take(operands of kAhead steps) for the steps 0 .. `steps`, a multiple of 2 kAhead, in order. What kAhead steps need is fetched,
// fetch(to, first step), while the kAhead before are taken: else each step would wait for its operands as well. Operands: a struct or
// an array, kept in registers.
template <class Operands, int kAhead, class Fetch, class Take>
__device__ inline void TakeInOrder(int steps, Fetch&& fetch, Take&& take) {
  Operands now, next;
  fetch(now, 0);
  for (int first = 0; first < steps; first += 2 * kAhead) {
    fetch(next, first + kAhead);
    take(now);
    const int after = first + 2 * kAhead;
    fetch(now, after < steps ? after : 0);  // nothing is left: anything will do, and a branch would cost more
    take(next);
  }
}

}  // namespace glint::cuda
