#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <initializer_list>

namespace glint::cli {
namespace {

std::atomic<int> g_signal{0};
std::atomic<bool> g_forever{false};
std::atomic<void (*)()> g_on_hangup{nullptr};
int g_pipe[2] = {-1, -1};  // the handler writes a byte, so that a poll that began too late still wakes
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Only async-signal-safe calls in here.
void Handle(int number) {
  const int saved = errno;
  const bool again = g_signal.exchange(number) != 0;
  if (again && !(g_forever && number == SIGINT)) {
    signal(number, SIG_DFL);
    raise(number);
  }
  if (write(g_pipe[1], "", 1) < 0) {
    // The pipe is full of wake-ups already.
  }
  errno = saved;
}

}  // namespace

void CatchInterrupts() {
  if (g_pipe[0] == -1 && pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0) return;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction old {};
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN)
      continue;  // nohup, background jobs
    struct sigaction action {};
    action.sa_handler = Handle;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
}

void CatchInterruptsForever() {
  g_forever = true;
  CatchInterrupts();
}

void OnHangup(void (*act)()) {
  g_on_hangup = act;
  struct sigaction action {};
  action.sa_handler = [](int) {
    const int saved = errno;
    g_on_hangup.load()();
    errno = saved;
  };
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGHUP, &action, nullptr);
}

bool Interrupted() { return g_signal != 0; }
bool Terminated() { return g_signal != 0 && g_signal != SIGINT; }
int InterruptExitCode() { return 128 + (g_signal != 0 ? g_signal.load() : SIGINT); }

void ClearInterrupt() {
  int expected = SIGINT;
  if (!g_signal.compare_exchange_strong(expected, 0)) return;
  char drained[64];
  while (read(g_pipe[0], drained, sizeof drained) > 0) continue;
}

bool WaitReadable(int fd) {
  while (!Interrupted()) {
    pollfd wait[2] = {{fd, POLLIN, 0}, {g_pipe[0], POLLIN, 0}};
    if (poll(wait, 2, -1) < 0 && errno != EINTR) return true;  // let the read say what is wrong
    if (wait[0].revents != 0 && !Interrupted()) return true;
    char drained[64];
    while (!Interrupted() && read(g_pipe[0], drained, sizeof drained) > 0) continue;
  }
  return false;
}

}  // namespace glint::cli
