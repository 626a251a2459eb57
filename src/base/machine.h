// What a measurement must say of the machine it was made on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace glint {

// Empty or 0 where the system does not say.
struct Machine {
  std::string processor;          // "AMD EPYC 9575F 64-Core Processor"; or the architecture's name
  int cores = 0;                  // that this process may use
  uint64_t memory_bytes = 0;      // of the machine
  std::string system, kernel;     // "Debian GNU/Linux 12 (bookworm)", "Linux 6.1.0 x86_64"
  std::vector<std::string> gpus;  // by the driver's names, one entry a GPU
};

// Reads /proc and /etc/os-release; loads no driver library.
Machine ThisMachine();

// The value of the first `key<separator>value` line, without white space and quotes around it; empty if there is none.
// /proc/cpuinfo, /proc/meminfo: ':'; os-release: '='.
std::string FieldOf(const std::string& text, const std::string& key, char separator);

}  // namespace glint
