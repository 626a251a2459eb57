#include "serve/http_client.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/printable.h"

namespace glint::serve {
namespace {

constexpr size_t kMostHead = 64 << 10, kMostBody = size_t{256} << 20;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool SameName(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return Lower(x) == Lower(y); });
}

bool SameValue(std::string_view a, std::string_view b) { return SameName(a, b); }

template <class T>
bool Number(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(std::string_view url) {
  const auto bad = [&](std::string_view what) {
    return Status(Code::kBadInput,
                  fmt::format("{}: {}; an address is like http://127.0.0.1:8080", Quoted(url), what));
  };
  std::string_view rest = url;
  if (rest.starts_with("https://"))
    return Status(Code::kUnsupported,
                  fmt::format("{}: TLS is not spoken here; measure behind what ends it", Quoted(url)));
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  if (rest.find("://") != std::string_view::npos) return bad("not http");
  HttpUrl parsed;
  const size_t slash = std::min(rest.find('/'), rest.size());
  parsed.base = rest.substr(slash);
  while (parsed.base.ends_with('/')) parsed.base.pop_back();
  std::string_view host = rest.substr(0, slash);
  size_t colon = host.rfind(':');
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return bad("a bracket without its end");
    colon = end + 1 < host.size() ? end + 1 : std::string_view::npos;
    parsed.host = host.substr(1, end - 1);
    if (colon != std::string_view::npos && host[colon] != ':') return bad("no port after the address");
  } else {
    parsed.host = host.substr(0, colon);
  }
  if (colon != std::string_view::npos && (!Number(host.substr(colon + 1), parsed.port) || parsed.port == 0))
    return bad("no port after the colon");
  if (parsed.host.empty()) return bad("no host");
  for (const char c : parsed.host + parsed.base)
    if (c <= ' ' || c == '\x7f') return bad("a character that no address has");
  return parsed;
}

std::string_view HttpAnswer::Header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (SameName(key, name)) return value;
  return {};
}

std::string HttpClient::Where() const { return fmt::format("{}:{}", url_.host, url_.port); }

void HttpClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  buffer_.clear();
}

Status HttpClient::Connect() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(url_.host.c_str(), std::to_string(url_.port).c_str(), &hints, &found);
  if (error != 0) return {Code::kIo, fmt::format("{}: {}", Where(), gai_strerror(error))};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  int reason = ECONNREFUSED;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) {
      reason = errno;
      continue;
    }
    int result = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (result == EINPROGRESS) {
      pollfd ready{fd, POLLOUT, 0};
      result = poll(&ready, 1, static_cast<int>(patience_.count())) > 0 ? 0 : ETIMEDOUT;
      socklen_t size = sizeof result;
      if (result == 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &size);
    }
    if (result == 0) {
      const int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      fd_ = fd;
      return {};
    }
    reason = result;
    close(fd);
  }
  return {Code::kIo, fmt::format("{}: can't connect: {}", Where(), strerror(reason))};
}

Status HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (poll(&ready, 1, static_cast<int>(patience_.count())) == 0)
      return {Code::kIo, Where() + ": takes no more of the request"};
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return {Code::kIo, fmt::format("{}: the connection broke: {}", Where(), strerror(errno))};
    }
  }
  return {};
}

Status HttpClient::Receive() {
  while (true) {
    pollfd ready{fd_, POLLIN, 0};
    const int polled = poll(&ready, 1, static_cast<int>(patience_.count()));
    if (polled == 0)
      return {Code::kIo, fmt::format("{}: says nothing for {} s", Where(), patience_.count() / 1000)};
    char bytes[16384];
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got > 0) {
      buffer_.append(bytes, static_cast<size_t>(got));
      return {};
    }
    if (got == 0) return {Code::kIo, Where() + ": the connection ended before the answer did"};
    if (errno != EAGAIN && errno != EINTR)
      return {Code::kIo, fmt::format("{}: the connection broke: {}", Where(), strerror(errno))};
  }
}

Status HttpClient::ReadLine(std::string& line) {
  size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (buffer_.size() > kMostHead)
      return {Code::kBadFile, Where() + ": does not speak HTTP: a line without end"};
    if (Status s = Receive(); !s.ok()) return s;
  }
  line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return {};
}

Status HttpClient::ReadBody(HttpAnswer& answer, const std::function<bool(std::string_view)>& on_piece) {
  const Status bad{Code::kBadFile, Where() + ": does not speak HTTP: the body's length is none"};
  // True while more is wanted.
  const auto take = [&](std::string_view piece) {
    if (on_piece && answer.status == 200) return on_piece(piece);
    answer.body += piece;
    return answer.body.size() <= kMostBody;
  };
  const auto take_bytes = [&](size_t bytes) -> Status {  // of buffer_ and what follows
    while (bytes > 0) {
      if (buffer_.empty()) {
        if (Status s = Receive(); !s.ok()) return s;
      }
      const size_t n = std::min(bytes, buffer_.size());
      const bool more = take(std::string_view(buffer_).substr(0, n));
      buffer_.erase(0, n);
      bytes -= n;
      if (!more) {
        answer.stopped = true;
        return {};
      }
    }
    return {};
  };
  std::string line;
  if (SameValue(answer.Header("transfer-encoding"), "chunked")) {
    while (true) {
      if (Status s = ReadLine(line); !s.ok()) return s;
      size_t bytes = 0;
      if (!Number(std::string_view(line).substr(0, line.find_first_of("; ")), bytes, 16) || bytes > kMostBody)
        return bad;
      if (Status s = take_bytes(bytes); !s.ok() || answer.stopped) return s;
      if (bytes == 0) {
        do {  // trailers
          if (Status s = ReadLine(line); !s.ok()) return s;
        } while (!line.empty());
        return {};
      }
      if (Status s = ReadLine(line); !s.ok()) return s;
      if (!line.empty()) return bad;
    }
  }
  if (const std::string_view length = answer.Header("content-length"); !length.empty()) {
    size_t bytes = 0;
    return Number(length, bytes) && bytes <= kMostBody ? take_bytes(bytes) : bad;
  }
  while (true) {  // to the end of the connection
    if (Status s = take_bytes(buffer_.size()); !s.ok() || answer.stopped) return s;
    if (!Receive().ok()) {
      Close();
      return {};
    }
  }
}

Result<HttpAnswer> HttpClient::Ask(std::string_view method, std::string_view path, const HttpHeaders& headers,
                                   std::string_view body,
                                   const std::function<bool(std::string_view)>& on_piece) {
  const bool v6 = url_.host.find(':') != std::string::npos;
  std::string request =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}{}{}:{}\r\nContent-Length: {}\r\n", method, url_.base, path,
                  v6 ? "[" : "", url_.host, v6 ? "]" : "", url_.port, body.size());
  for (const auto& [name, value] : headers) request += fmt::format("{}: {}\r\n", name, value);
  request += "\r\n";
  request += body;
  HttpAnswer answer;
  std::string line;
  for (bool again = true; again;) {
    again =
        fd_ >=
        0;  // a kept connection may have been closed by the server, which shows now: try once more with a new one
    if (fd_ < 0) {
      if (Status s = Connect(); !s.ok()) return s;
    }
    Status s = Send(request);
    if (s.ok()) s = ReadLine(line);
    if (s.ok()) break;
    again = again && buffer_.empty();
    Close();
    if (!again) return s;
  }
  const auto finish = [&](Status status) -> Result<HttpAnswer> {
    if (!status.ok() || answer.stopped || SameValue(answer.Header("connection"), "close")) Close();
    if (!status.ok()) return status;
    return std::move(answer);
  };
  do {  // 100 and its like come before the answer
    while (answer.status != 0 && !line.empty()) {
      if (Status s = ReadLine(line); !s.ok()) return finish(s);
    }
    if (answer.status != 0) {
      if (Status s = ReadLine(line); !s.ok()) return finish(s);
    }
    if (!line.starts_with("HTTP/1.") || line.size() < 12 ||
        !Number(std::string_view(line).substr(9, 3), answer.status))
      return finish({Code::kBadFile, fmt::format("{}: does not speak HTTP: {}", Where(), Quoted(line))});
  } while (answer.status < 200);
  while (true) {
    if (Status s = ReadLine(line); !s.ok()) return finish(s);
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == std::string::npos || answer.headers.size() > 200)
      return finish({Code::kBadFile, fmt::format("{}: does not speak HTTP: {}", Where(), Quoted(line))});
    std::string value = line.substr(std::min(line.find_first_not_of(" \t", colon + 1), line.size()));
    while (value.ends_with(' ') || value.ends_with('\t')) value.pop_back();
    answer.headers.emplace_back(line.substr(0, colon), std::move(value));
  }
  if (answer.status == 204 || answer.status == 304 || method == "HEAD") return finish({});
  return finish(ReadBody(answer, on_piece));
}

bool SseReader::Feed(std::string_view piece, const std::function<bool(std::string_view data)>& event) {
  for (const char c : piece) {
    const bool second = after_cr_ && c == '\n';  // of a line end that was seen
    after_cr_ = c == '\r';
    if (second) continue;
    if (c != '\n' && c != '\r') {
      line_ += c;
      continue;
    }
    if (line_.empty()) {
      const std::string data = std::exchange(data_, {});
      if (std::exchange(has_data_, false) && !event(data)) return false;
    } else if (line_.starts_with("data:") || line_ == "data") {
      if (has_data_) data_ += '\n';
      data_ += line_.substr(std::min(line_.size(), size_t{line_.starts_with("data: ") ? 6u : 5u}));
      has_data_ = true;
    }
    line_.clear();
  }
  return true;
}

}  // namespace glint::serve
