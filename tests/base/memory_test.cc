// The room that a process has, under limits of its own.
#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace glint {
namespace {

// In a process of its own: what it maps already, and 300 MB more.
TEST(AvailableMemory, KnowsTheLimitOnAddressSpace) {
  const pid_t child = fork();
  if (child == 0) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    constexpr uint64_t kMore = 300'000'000;
    const rlimit limit{pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + kMore, RLIM_INFINITY};
    if (pages == 0 || setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
    const MemoryRoom room = AvailableMemory();
    if (room.bytes > kMore / 10 * 11 || room.bytes < kMore / 2)
      _exit(1);  // reading a file maps a little, for a while
    _exit(room.limited_by.find("ulimit -v") == std::string::npos ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace glint
