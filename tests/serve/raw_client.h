// An HTTP client of a socket's bytes, for tests: sends what it is told, however wrong, and takes answers apart by itself.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace glint::serve {

struct RawAnswer {
  int status = 0;                              // 0: the connection ended, or nothing came in time
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool complete = false;  // by its length, its last chunk or, without either, the end of the connection

  std::string Header(const std::string& name) const {  // empty if there is none
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

class RawClient {
 public:
  // `receive_buffer` > 0: of the socket, so that a reader who does not read is felt soon.
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { Close(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }

  // False once the server has closed.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void HalfClose() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Reset() {  // closes with a RST
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    Close();
  }

  // More bytes into buffer(); false at the end of the connection, or if none come in `patience`.
  bool Receive(std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    pollfd state{fd_, POLLIN, 0};
    if (poll(&state, 1, static_cast<int>(patience.count())) <= 0) return false;
    char bytes[16384];
    const ssize_t n = recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    buffer_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  bool ReceiveUntil(std::string_view text) {
    while (buffer_.find(text) == std::string::npos)
      if (!Receive()) return false;
    return true;
  }
  // Whether the connection ends without another byte.
  bool Ends() {
    while (buffer_.empty() && Receive()) {
    }
    return buffer_.empty() && ended_;
  }
  std::string& buffer() { return buffer_; }

  // The next answer. `has_body` false: of a HEAD request.
  RawAnswer Answer(bool has_body = true) {
    RawAnswer answer;
    if (!ReceiveUntil("\r\n\r\n")) return answer;
    const size_t end = buffer_.find("\r\n\r\n");
    std::string head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    if (!head.starts_with("HTTP/1.1 ")) return answer;
    answer.status = std::atoi(head.c_str() + 9);
    for (size_t line = head.find("\r\n") + 2; line < head.size(); line = head.find("\r\n", line) + 2) {
      const size_t colon = head.find(':', line), stop = head.find("\r\n", line);
      std::string name = head.substr(line, colon - line);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      answer.headers[name] = head.substr(colon + 2, stop - colon - 2);
    }
    if (!has_body || answer.status == 100 || answer.status == 204) {
      answer.complete = true;
    } else if (answer.headers.contains("content-length")) {
      const size_t length = std::strtoull(answer.headers["content-length"].c_str(), nullptr, 10);
      while (buffer_.size() < length && Receive()) {
      }
      answer.complete = buffer_.size() >= length;
      answer.body = buffer_.substr(0, length);
      buffer_.erase(0, length);
    } else if (answer.headers.contains("transfer-encoding")) {
      std::string piece;
      while (Chunk(piece)) answer.body += piece;
      answer.complete = last_chunk_;
    } else {
      while (Receive()) {
      }
      answer.body = std::exchange(buffer_, {});
      answer.complete = ended_;
    }
    return answer;
  }
  // The next chunk of a chunked body; false after the last one, or if none comes.
  bool Chunk(std::string& piece) {
    last_chunk_ = false;
    if (!ReceiveUntil("\r\n")) return false;
    const size_t size = std::strtoull(buffer_.c_str(), nullptr, 16);
    const size_t begin = buffer_.find("\r\n") + 2;
    while (buffer_.size() < begin + size + 2)
      if (!Receive()) return false;
    piece = buffer_.substr(begin, size);
    buffer_.erase(0, begin + size + 2);
    last_chunk_ = size == 0;
    return size > 0;
  }

 private:
  int fd_;
  bool connected_ = false, ended_ = false, last_chunk_ = false;
  std::string buffer_;
};

}  // namespace glint::serve
