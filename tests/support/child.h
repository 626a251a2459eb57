// Runs a disabled test of this very program in a process of its own.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace glint::test {

class Child {
 public:
  // `test`: "Suite.DISABLED_Name"; it finds `task` in $GLINT_CHILD.
  Child(const std::string& test, const std::string& task) {
    std::vector<std::string> arguments = {"/proc/self/exe", "--gtest_filter=" + test,
                                          "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
    std::vector<char*> argv;
    for (auto& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    setenv("GLINT_CHILD", task.c_str(), 1);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ), 0);
    unsetenv("GLINT_CHILD");
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) Kill();
  }
  // As waitpid says.
  int Wait() {
    int status = -1;
    if (pid_ > 0) waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  bool Alive() {
    if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    return pid_ > 0;
  }
  bool Succeeded() {
    const int status = Wait();
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }

  static std::string Task() {
    const char* task = std::getenv("GLINT_CHILD");
    return task == nullptr ? "" : task;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace glint::test
