#include "base/machine.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/thread_pool.h"

namespace glint {
namespace {

// Files of /proc have no size to map; one that is missing is empty.
std::string TextOf(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> Gpus() {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/driver/nvidia/gpus", error), end; !error && it != end;
       it.increment(error)) {
    folders.push_back(it->path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<std::string> gpus;
  for (const auto& folder : folders) {
    const std::string name = FieldOf(TextOf(folder / "information"), "Model", ':');
    if (!name.empty()) gpus.push_back(name);
  }
  return gpus;
}

}  // namespace

std::string FieldOf(const std::string& text, const std::string& key, char separator) {
  constexpr const char* kAround = " \t\r\"'";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t cut = line.find(separator);
    if (cut == std::string::npos) continue;
    const std::string name = line.substr(0, cut);
    const size_t end = name.find_last_not_of(kAround);
    if (end == std::string::npos || name.substr(0, end + 1) != key) continue;
    const size_t first = line.find_first_not_of(kAround, cut + 1);
    if (first == std::string::npos) return {};
    return line.substr(first, line.find_last_not_of(kAround) + 1 - first);
  }
  return {};
}

Machine ThisMachine() {
  Machine m;
  m.processor = FieldOf(TextOf("/proc/cpuinfo"), "model name", ':');
  m.cores = AvailableCores();
  m.memory_bytes =
      1024 * std::strtoull(FieldOf(TextOf("/proc/meminfo"), "MemTotal", ':').c_str(), nullptr, 10);
  m.system = FieldOf(TextOf("/etc/os-release"), "PRETTY_NAME", '=');
  utsname name{};
  if (uname(&name) == 0) {
    m.kernel = std::string(name.sysname) + " " + name.release + " " + name.machine;
    if (m.processor.empty()) m.processor = name.machine;
  }
  m.gpus = Gpus();
  return m;
}

}  // namespace glint
