// A warp's ring of stages in shared memory, filled with what it will read of a matrix. On sm_90 and up one lane asks for a whole stage
// (a bulk copy, which counts its bytes at a barrier in shared memory); elsewhere all lanes copy 16 bytes at a time.
#pragma once
#include <cstdint>

#include "cuda/async.cuh"

namespace glint::cuda {

class TileRing {
 public:
  // Shared memory of a ring, a multiple of 128: the stages and a barrier for each.
  __host__ __device__ static constexpr int Bytes(int stages, int stage_bytes) {
    return (stages * (stage_bytes + 8) + 127) / 128 * 128;
  }

  // `memory` at a multiple of 16; stages 2 to 4, stage_bytes a multiple of 16.
  __device__ TileRing(uint8_t* memory, int stages, int stage_bytes, int lane)
      : memory_(memory), stages_(stages), stage_bytes_(stage_bytes), lane_(lane) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (lane == 0) {
      for (int i = 0; i < stages; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(Barrier(i)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncwarp();
#endif
  }

  // The next stage is to be filled with `bytes` at `from`, both multiples of 16. It must be free.
  __device__ void Ask(const uint8_t* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (lane_ == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Barrier(asked_)), "r"(bytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
          "[%3], %4;" ::"r"(Address(memory_ + asked_ * stage_bytes_)),
          "l"(from), "r"(bytes), "r"(Barrier(asked_)), "l"(policy_)
          : "memory");
    }
#else
    for (int at = lane_ * 16; at < bytes; at += 512)
      CopyOnceAsync16(memory_ + asked_ * stage_bytes_ + at, from + at, policy_);
    CommitCopies();
#endif
    if (++asked_ == stages_) asked_ = 0;
  }
  // Instead of Ask, when there is nothing more to read.
  __device__ void AskNothing() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 900
    CommitCopies();
#endif
  }
  // Waits for the oldest stage that is not free. `stages` calls of Ask or AskNothing have come before, and one for each Free.
  __device__ const uint8_t* Next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "wait:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra wait;\n"
        "}\n" ::"r"(Barrier(read_)),
        "r"(parity_)
        : "memory");
#else
    if (stages_ == 4)
      WaitForCopies<3>();
    else if (stages_ == 3)
      WaitForCopies<2>();
    else
      WaitForCopies<1>();
    __syncwarp();
#endif
    return memory_ + read_ * stage_bytes_;
  }
  // Nobody reads that stage any more.
  __device__ void Free() {
    __syncwarp();
    if (++read_ == stages_) read_ = 0, parity_ ^= 1;
  }

 private:
  __device__ static uint32_t Address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
  }
  __device__ uint32_t Barrier(int i) const { return Address(memory_ + stages_ * stage_bytes_) + 8 * i; }

  uint8_t* memory_;
  int stages_, stage_bytes_, lane_;
  uint64_t policy_ = ReadOncePolicy();
  int asked_ = 0, read_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace glint::cuda
