#include "serve/log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/printable.h"
#include "serve/json_out.h"

namespace glint::serve {
namespace {

// "2026-11-30T22:00:00.123Z"
std::string Rfc3339(double unix_seconds) {
  const auto milliseconds = static_cast<int64_t>(std::floor(unix_seconds * 1e3));
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, milliseconds % 1000);
}

// A number with three decimals at most: times in milliseconds, mostly.
std::string Short(double value) {
  std::string text = fmt::format("{:.3f}", value);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// As it is where nobody could take it for something else; else in quotes.
std::string Word(std::string_view text) {
  const std::string shown = Printable(text);
  const auto plain = [](char c) { return c > ' ' && c != '"' && c != '=' && c != '\\' && c != '\x7f'; };
  bool all = !shown.empty();
  for (const char c : shown) all = all && plain(c);
  if (all) return shown;
  std::string quoted = "\"";
  for (const char c : shown) {
    if (c == '"') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string TextValue(const LogValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return Word(*text);
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<uint64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&value)) return Short(*number);
  return std::get<bool>(value) ? "true" : "false";
}

// JSON may hold any character as it stands, but a log is read on terminals too: what Printable would escape is written as \uXXXX.
std::string JsonText(std::string_view text) {
  std::string out = "\"";
  const std::string whole = ToUtf8(text);
  for (std::string_view rest = whole; !rest.empty();) {
    char32_t c = 0;
    const std::string_view one = rest.substr(0, std::max<size_t>(DecodeUtf8(rest, c), 1));
    rest.remove_prefix(one.size());
    if (one == "\"" || one == "\\") {
      out.append("\\").append(one);
    } else if (Printable(one) == one) {
      out += one;
    } else if (c > 0xffff) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((uint32_t{c} - 0x10000) >> 10),
                         0xdc00 + (uint32_t{c} & 0x3ff));
    } else {
      out += fmt::format("\\u{:04x}", uint32_t{c});
    }
  }
  return out + '"';
}

std::string JsonValue(const LogValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return JsonText(*text);
  if (const auto* number = std::get_if<double>(&value))
    return std::isfinite(*number) ? Short(*number) : "null";
  return TextValue(value);
}

}  // namespace

std::string_view Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "info";
}

std::string LogLine(bool json, double unix_seconds, LogLevel level, std::string_view event,
                    const LogFields& fields) {
  std::string line;
  if (json) {
    line = fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",\"event\":{}", Rfc3339(unix_seconds), Name(level),
                       JsonText(event));
    for (const auto& [name, value] : fields) line += fmt::format(",{}:{}", JsonText(name), JsonValue(value));
    return line + "}\n";
  }
  line = fmt::format("{} {:<7} {}", Rfc3339(unix_seconds), Name(level), Word(event));
  for (const auto& [name, value] : fields) line += fmt::format(" {}={}", name, TextValue(value));
  return line + '\n';
}

struct Log::Impl {
  LogOptions options;
  int file = STDERR_FILENO;  // the writer's
  std::thread writer;
  sem_t wake{};  // sem_post is one of the few things that a signal handler may do
  std::atomic<bool> reopen{false}, ending{false};
  std::atomic<int64_t> give_up_ns{0};  // when ending: the steady clock's time after which what waits is left
  std::atomic<uint64_t> written{0}, dropped{0};
  std::mutex mutex;   // of the queue
  std::string queue;  // whole lines
  uint64_t queued = 0;

  Status Open() {
    const int opened =
        open(options.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (opened < 0) return SystemError(options.path, "can't be opened as a log");
    if (file != STDERR_FILENO) close(file);
    file = opened;
    return {};
  }

  static int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  bool GiveUp() const { return ending.load() && NowNs() > give_up_ns.load(); }

  // What was left unwritten of `text`.
  std::string_view Put(std::string_view text) {
    // What poll says there is room for: a pipe that is "writable" takes this much without waiting.
    constexpr size_t kPiece = 4096;
    while (!text.empty()) {
      pollfd ready{file, POLLOUT, 0};
      const int polled = poll(&ready, 1, 100);
      if (polled == 0 || (polled < 0 && errno == EINTR)) {
        if (GiveUp()) break;
        continue;
      }
      const ssize_t put = write(file, text.data(), std::min(text.size(), kPiece));
      if (put > 0) {
        text.remove_prefix(static_cast<size_t>(put));
      } else if (put < 0 && errno != EINTR && errno != EAGAIN) {
        break;  // full, closed or broken
      } else if (GiveUp()) {
        break;
      }
    }
    return text;
  }

  std::string Line(LogLevel level, std::string_view event, const LogFields& fields) const {
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    return LogLine(options.json, now, level, event, fields);
  }

  void Run() {
    uint64_t told = 0;  // of the events dropped, how many the log itself speaks of
    bool torn = false;  // the last line that was begun has no end
    while (true) {
      while (sem_wait(&wake) != 0) {
      }
      const bool last = ending.load();
      if (reopen.exchange(false) && !options.path.empty()) {
        if (const Status opened = Open(); !opened.ok())
          Put(Line(LogLevel::kWarning, "log.not_reopened", {{"error", opened.message()}}));
        else
          torn = false;
      }
      std::string lines;
      uint64_t count = 0;
      {
        const std::lock_guard lock(mutex);
        lines.swap(queue);
        std::swap(count, queued);
      }
      const uint64_t lost = dropped.load();
      if (!lines.empty() || lost > told) {
        std::string head = torn ? "\n" : "";
        if (lost > told) head += Line(LogLevel::kWarning, "log.dropped", {{"events", lost - told}});
        if (const std::string_view left_of_head = Put(head); !left_of_head.empty()) {
          torn = torn || left_of_head.size() < head.size();
          dropped += count;
        } else {
          torn = false;
          told = lost;
          const std::string_view rest = Put(lines);
          uint64_t left = 0;
          for (const char c : rest) left += c == '\n';
          torn = !rest.empty() && rest.size() < lines.size() && lines[lines.size() - rest.size() - 1] != '\n';
          written += count - left;
          dropped += left;
        }
      }
      if (last) {
        const std::lock_guard lock(mutex);
        if (queue.empty() || GiveUp()) return;
        sem_post(&wake);
      }
    }
  }
};

Log::Log(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Log>> Log::Create(LogOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  if (!impl->options.path.empty()) {
    if (Status opened = impl->Open(); !opened.ok()) return opened;
  }
  sem_init(&impl->wake, 0, 0);
  impl->writer = std::thread([raw = impl.get()] { raw->Run(); });
  return std::unique_ptr<Log>(new Log(std::move(impl)));
}

Log::~Log() {
  impl_->give_up_ns = Impl::NowNs() + 2'000'000'000;
  impl_->ending = true;
  sem_post(&impl_->wake);
  impl_->writer.join();
  sem_destroy(&impl_->wake);
  if (impl_->file != STDERR_FILENO) close(impl_->file);
}

void Log::Write(LogLevel level, std::string_view event, const LogFields& fields) {
  if (level < impl_->options.least) return;
  const std::string line = impl_->Line(level, event, fields);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->queue.size() + line.size() > impl_->options.queue_bytes) {
      ++impl_->dropped;
      return;
    }
    impl_->queue += line;
    ++impl_->queued;
  }
  sem_post(&impl_->wake);
}

void Log::Reopen() {
  impl_->reopen = true;
  sem_post(&impl_->wake);
}

LogCounters Log::Counters() const { return {impl_->written.load(), impl_->dropped.load()}; }

}  // namespace glint::serve
