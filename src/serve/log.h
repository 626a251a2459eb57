// The server's log: one line an event, as text for people or JSON for programs. docs/operating.md shows both.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "glint/status.h"

namespace glint::serve {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

struct LogOptions {
  bool json = false;
  std::string path = {};                 // a file that lines are appended to; empty: stderr
  LogLevel least = LogLevel::kInfo;      // events below are not written
  size_t queue_bytes = size_t{4} << 20;  // that wait to be written; beyond, events are dropped, and counted
};

// What an event says beside its name. Text may be anything that a stranger sent.
using LogValue = std::variant<std::string, int64_t, uint64_t, double, bool>;
using LogFields = std::vector<std::pair<std::string_view, LogValue>>;

struct LogCounters {
  uint64_t written = 0, dropped = 0;  // events
};

// Never holds up who writes: lines are handed to a thread of the log's own. Where the disk is full or nobody reads stderr, events are dropped, and
// their number is the first thing that the log says when it can write again.
//
// Threads: all functions from any thread.
class Log {
 public:
  // kIo and its like where the file can not be opened; a new one is for its owner's eyes (0600).
  static Result<std::unique_ptr<Log>> Create(LogOptions options);
  // Writes what waits, for two seconds at most.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // `event`: a word of ours, such as "request".
  void Write(LogLevel level, std::string_view event, const LogFields& fields = {});
  // Closes the file and opens its path anew: after a program that keeps logs short has renamed it. May be called from a signal handler. If it
  // cannot be opened, the old one is written on.
  void Reopen();
  LogCounters Counters() const;

 private:
  struct Impl;
  explicit Log(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One line with its end: what Write would write, at `unix_seconds`. Control characters, broken UTF-8 and what could reorder text are escaped
// in both forms, so that an event is one line and no value passes for another field.
std::string LogLine(bool json, double unix_seconds, LogLevel level, std::string_view event,
                    const LogFields& fields);
std::string_view Name(LogLevel level);  // "debug", "info", "warning", "error"

}  // namespace glint::serve
