#include "cli/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace glint::cli {
namespace {

// 0, or the errno of the failure.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // somebody made the shared terminal non-blocking
      pollfd wait{fd, POLLOUT, 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

Status Print(std::string_view text) {
  const int error = WriteAll(STDOUT_FILENO, text);
  if (error == 0) return {};
  if (error == EPIPE) return {Code::kIo, ""};
  return {Code::kIo, std::string("writing to stdout: ") + std::strerror(error)};
}

void PrintError(std::string_view text) { WriteAll(STDERR_FILENO, text); }

bool StreamsAreOne() {
  struct stat out, err;
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
         out.st_ino == err.st_ino;
}

void ReserveStandardStreams() {
  for (int fd = 0; fd < 3; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free descriptor is `fd` itself. Opened the wrong way round, so that using it still fails.
    if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) == -1) return;
  }
}

}  // namespace glint::cli
