// Starts the built `glint` and watches it: through pipes, or on a terminal of its own.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/base/temp_dir.h"

namespace glint::cli::testing {

// Generous: it only keeps a hung program from hanging the suite.
constexpr int kPatienceMs = 600000;

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::string StoriesModel() { return GLINT_SOURCE_DIR "/models/stories/stories.gguf"; }
inline bool HaveStories() { return std::filesystem::exists(StoriesModel()); }
inline std::string MicroModel() { return GLINT_TEST_DATA "/reference/micro"; }

struct Outcome {
  int code = -1;  // exit code; 1000 + signal if it was killed; -1 if it took too long
  std::string out, err;
};

struct Setup {
  std::string input{};
  std::vector<std::string> environment{};    // NAME=VALUE, set on top of ours
  bool no_stdin = false, no_stdout = false;  // started with the descriptor closed
  rlim_t file_bytes = RLIM_INFINITY, memory_bytes = RLIM_INFINITY,
         open_files = RLIM_INFINITY;  // ulimit -f, -v and -n
  bool no_reserve = false;            // as on a file system that can't take disk space in advance
};

// One core means one thread unless --threads says otherwise: tests that run beside others don't wait for a core each.
inline void KeepToOneCore() {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int cpu = getpid() % CPU_SETSIZE;
  while (!CPU_ISSET(cpu, &allowed)) cpu = (cpu + 1) % CPU_SETSIZE;
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

namespace internal {

[[noreturn]] inline void Become(const std::vector<std::string>& arguments,
                                const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  // A shell starts what goes to the background with these ignored, and glint leaves an ignored signal so.
  for (const int number : {SIGINT, SIGQUIT}) signal(number, SIG_DFL);
  if (std::find(arguments.begin(), arguments.end(), "--threads") == arguments.end()) KeepToOneCore();
  std::vector<char*> argv{const_cast<char*>(GLINT_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(GLINT_PROGRAM, argv.data());
  _exit(127);
}

template <class Resource>
void Limit(Resource resource, rlim_t most) {
  const rlimit limit{most, RLIM_INFINITY};
  if (most != RLIM_INFINITY) setrlimit(resource, &limit);
}

// fallocate is no more, for this process and what it becomes.
inline void TakeFallocateAway() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fallocate, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{4, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    _exit(126);
}

inline int CodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status); }

}  // namespace internal

inline Outcome RunGlint(const std::vector<std::string>& arguments, const Setup& setup = {}) {
  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(in[0], 0), dup2(out[1], 1), dup2(err[1], 2);
    if (setup.no_stdin) close(0);
    if (setup.no_stdout) close(1);
    internal::Limit(RLIMIT_FSIZE, setup.file_bytes), internal::Limit(RLIMIT_AS, setup.memory_bytes);
    if (setup.open_files != RLIM_INFINITY) {
      const rlimit limit{setup.open_files, setup.open_files};
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (setup.no_reserve) internal::TakeFallocateAway();
    internal::Become(arguments, setup.environment);
  }
  close(in[0]), close(out[1]), close(err[1]);
  signal(SIGPIPE, SIG_IGN);
  fcntl(in[1], F_SETFL, O_NONBLOCK);

  Outcome outcome;
  std::string_view left = setup.input;
  int input = in[1];
  bool out_open = true, err_open = true;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (out_open || err_open) {
    if (input != -1 && left.empty()) close(input), input = -1;
    pollfd wait[3] = {
        {out_open ? out[0] : -1, POLLIN, 0}, {err_open ? err[0] : -1, POLLIN, 0}, {input, POLLOUT, 0}};
    poll(wait, 3, 1000);
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
      close(out[0]), close(err[0]);
      if (input != -1) close(input);
      return outcome;
    }
    char bytes[65536];
    const auto take = [&](int fd, short events, bool& open, std::string& text) {
      if (!events) return;
      const ssize_t got = read(fd, bytes, sizeof bytes);
      if (got > 0)
        text.append(bytes, static_cast<size_t>(got));
      else
        open = false;
    };
    take(out[0], wait[0].revents, out_open, outcome.out);
    take(err[0], wait[1].revents, err_open, outcome.err);
    if (wait[2].revents) {
      const ssize_t put = write(input, left.data(), left.size());
      if (put > 0)
        left.remove_prefix(static_cast<size_t>(put));
      else if (errno != EAGAIN)
        left = {};
    }
  }
  if (input != -1) close(input);
  close(out[0]), close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.code = internal::CodeOf(status);
  return outcome;
}

// The program on a terminal. What it writes is collected in screen(), stderr too.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& arguments, std::vector<std::string> environment = {}) {
    winsize size{};
    size.ws_row = 40, size.ws_col = 100;
    environment.insert(environment.begin(), {"TERM=xterm", "NO_COLOR="});
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) internal::Become(arguments, environment);
  }
  ~OnTerminal() {
    if (child_ > 0 && !done_) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(terminal_);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void Type(std::string_view text) {
    while (!text.empty()) {
      const ssize_t put = write(terminal_, text.data(), text.size());
      if (put <= 0) return;
      text.remove_prefix(static_cast<size_t>(put));
    }
  }
  // Waits until `text` has been written after what the last WaitFor found. False if the program ends or time is up first.
  bool WaitFor(std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (true) {
      const size_t at = screen_.find(text, seen_);
      if (at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (!ReadSome(deadline)) return false;
    }
  }
  int WaitForEnd() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (ReadSome(deadline)) continue;
    if (std::chrono::steady_clock::now() > deadline) return -1;
    int status = 0;
    waitpid(child_, &status, 0);
    done_ = true;
    return internal::CodeOf(status);
  }
  const std::string& screen() const { return screen_; }
  pid_t child() const { return child_; }

 private:
  bool ReadSome(std::chrono::steady_clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{terminal_, POLLIN, 0};
    if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) return false;
    char bytes[4096];
    const ssize_t got = read(terminal_, bytes, sizeof bytes);  // EIO once the program has gone
    if (got <= 0) return false;
    screen_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string screen_;
  size_t seen_ = 0;
  bool done_ = false;
};

}  // namespace glint::cli::testing
