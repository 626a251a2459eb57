// A plain HTTP/1.1 client for `glint bench-serve`: one connection, one request at a time, and the time at which each piece of an answer came.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "glint/status.h"
#include "serve/http.h"

namespace glint::serve {

struct HttpUrl {
  std::string host;
  uint16_t port = 80;
  std::string base;  // path before that of a request, without a slash at its end: "" or "/api"
};
// "http://host[:port][/base]", "host:port"; the host may be "[::1]". kUnsupported for https.
Result<HttpUrl> ParseHttpUrl(std::string_view url);

struct HttpAnswer {
  int status = 0;
  HttpHeaders headers;
  std::string body;      // empty where pieces were asked for
  bool stopped = false;  // on_piece had enough; the connection is closed, as a client that leaves would

  std::string_view Header(std::string_view name) const;
};

// Keeps its connection; one that the server closed meanwhile is made anew. Threads: one at a time.
class HttpClient {
 public:
  // patience: how long the server may say nothing.
  HttpClient(HttpUrl url, std::chrono::milliseconds patience) : url_(std::move(url)), patience_(patience) {}
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient() { Close(); }

  // Host and Content-Length are added. on_piece: takes the body of a 200 as it comes; false: enough. kIo: no connection, or it ended
  // before the answer; kBadFile: no HTTP.
  Result<HttpAnswer> Ask(std::string_view method, std::string_view path, const HttpHeaders& headers,
                         std::string_view body, const std::function<bool(std::string_view)>& on_piece = {});
  void Close();

 private:
  Status Connect();
  Status Send(std::string_view bytes);
  // More bytes into buffer_; kIo at the end of the connection.
  Status Receive();
  Status ReadLine(std::string& line);
  Status ReadBody(HttpAnswer& answer, const std::function<bool(std::string_view)>& on_piece);
  std::string Where() const;

  HttpUrl url_;
  std::chrono::milliseconds patience_;
  int fd_ = -1;
  std::string buffer_;
};

// Server-sent events out of pieces that are cut anywhere.
class SseReader {
 public:
  // Calls `event` with the data of each event that the piece completes; false: enough.
  bool Feed(std::string_view piece, const std::function<bool(std::string_view data)>& event);

 private:
  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false;
};

}  // namespace glint::serve
