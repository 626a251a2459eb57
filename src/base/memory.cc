#include "base/memory.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace glint {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The number after `key` in a file of "key value" lines; kUnknown if there is none ("max" included).
uint64_t Field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  while (file >> name) {
    uint64_t value = 0;
    if (name == key) return file >> value ? value : kUnknown;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnknown;
}

uint64_t Number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : kUnknown;
}

uint64_t Less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// What the group in `directory` leaves. Its inactive file pages are dropped before anybody is killed.
uint64_t GroupRoom(const std::string& directory, const char* limit_file, const char* usage_file,
                   const char* cache_key) {
  const uint64_t limit = Number(directory + limit_file), usage = Number(directory + usage_file);
  // Version 1 says "no limit" with a number near 2^63.
  if (limit >= uint64_t{1} << 60 || usage == kUnknown) return kUnknown;
  const uint64_t cache = Field(directory + "/memory.stat", cache_key);
  return Less(limit, Less(usage, cache == kUnknown ? 0 : cache));
}

// The tightest of the group `path` below `root` and all groups above it. Inside a container the path that
// /proc states may not exist below the mount; the root of the mount is then the container's own group.
uint64_t GroupsRoom(const std::string& root, std::string path, const char* limit_file, const char* usage_file,
                    const char* cache_key) {
  uint64_t room = kUnknown;
  for (;;) {
    room = std::min(room, GroupRoom(root + path, limit_file, usage_file, cache_key));
    if (path.empty() || path == "/") return room;
    path.resize(path.find_last_of('/'));
  }
}

uint64_t ControlGroups() {
  uint64_t room = kUnknown;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" (v2) or "4:memory:/path" (v1)
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    const std::string controllers = "," + line.substr(a + 1, b - a - 1) + ",", path = line.substr(b + 1);
    if (path.empty() || path[0] != '/') continue;
    if (controllers == ",,") {
      room = std::min(room,
                      GroupsRoom("/sys/fs/cgroup", path, "/memory.max", "/memory.current", "inactive_file"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      room = std::min(room, GroupsRoom("/sys/fs/cgroup/memory", path, "/memory.limit_in_bytes",
                                       "/memory.usage_in_bytes", "total_inactive_file"));
    }
  }
  return room;
}

uint64_t AddressSpace() {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
  const uint64_t pages = Number("/proc/self/statm");  // its first number: the size of all mappings
  if (pages == kUnknown) return kUnknown;
  return Less(limit.rlim_cur, pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

MemoryRoom AvailableMemory() {
  const uint64_t kilobytes = Field("/proc/meminfo", "MemAvailable:");
  const uint64_t machine = kilobytes == kUnknown ? kUnknown : kilobytes * 1024;
  const uint64_t groups = ControlGroups();
  const uint64_t addresses = AddressSpace();
  if (addresses < std::min(machine, groups)) return {addresses, "the limit on address space (ulimit -v)"};
  if (groups < machine) return {groups, "the control group's limit"};
  return {machine, "the machine's available memory"};
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB", "PB", "EB"}) {
    value /= 1000, unit = next;
    if (value < 999.5) break;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit);
}

}  // namespace glint
