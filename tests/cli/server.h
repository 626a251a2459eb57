// Starts `glint serve` and watches it.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/temp_dir.h"
#include "tests/cli/program.h"

namespace glint::cli::testing {

// A server in a process of its own, its output in files.
class Server {
 public:
  explicit Server(std::vector<std::string> arguments, const std::vector<std::string>& environment = {}) {
    arguments.insert(arguments.begin(), "serve");
    if (std::find(arguments.begin(), arguments.end(), "--port") == arguments.end())
      arguments.insert(arguments.end(), {"--port", "0"});
    child_ = fork();
    if (child_ == 0) {
      const int out = open(folder_.Path("out").c_str(), O_CREAT | O_WRONLY, 0600);
      const int err = open(folder_.Path("err").c_str(), O_CREAT | O_WRONLY, 0600);
      dup2(out, 1), dup2(err, 2);
      internal::Become(arguments, environment);
    }
    constexpr std::string_view kSaid = "listening on http://127.0.0.1:";
    while (!ended()) {
      const std::string out = ReadAll(folder_.Path("out"));
      if (out.find('\n') != std::string::npos) {
        EXPECT_TRUE(out.starts_with(kSaid)) << out;
        port_ = static_cast<uint16_t>(std::atoi(out.substr(kSaid.size()).c_str()));
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Server() {
    if (!ended()) kill(child_, SIGKILL), Wait();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::string err() const { return ReadAll(folder_.Path("err")); }
  pid_t child() const { return child_; }
  void Signal(int number) const { kill(child_, number); }
  // The exit code.
  int Wait() {
    int status = 0;
    if (!code_ && waitpid(child_, &status, 0) == child_) code_ = internal::CodeOf(status);
    return code_.value_or(-1);
  }

 private:
  bool ended() {
    int status = 0;
    if (!code_ && waitpid(child_, &status, WNOHANG) == child_) code_ = internal::CodeOf(status);
    return code_.has_value();
  }

  test::TempDir folder_;
  pid_t child_ = -1;
  std::optional<int> code_;
  uint16_t port_ = 0;
};

}  // namespace glint::cli::testing
