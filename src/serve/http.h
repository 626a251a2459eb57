// HTTP/1.1 for `glint serve`: requests in, answers out whole or in pieces, and news of clients that leave. What it is made with
// (Boost.Beast's parser on Asio, OpenSSL) stays in http_server.cc.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "glint/status.h"

namespace glint::serve {

// Names and values in order. Names are compared without regard to case where HTTP does so.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // upper case: "GET", "POST", ...
  std::string path;   // decoded; begins with '/', holds no empty, "." or ".." segment and no NUL; valid UTF-8
  HttpHeaders query;  // decoded pairs in order; compared with case
  HttpHeaders headers;  // as they came
  std::string body;     // whole, at most HttpOptions::max_body_bytes
  std::string peer;     // "192.0.2.1:50123", "[2001:db8::1]:50123"

  // The first value of that name, or nothing ("" and false).
  std::string_view Header(std::string_view name) const;
  bool HasHeader(std::string_view name) const;
  std::string_view Query(std::string_view name) const;
  bool HasQuery(std::string_view name) const;
};

// The answer to one request. An interface, so that what fills it can be tested without a socket.
//
// A handler may keep it and answer later from any thread; all members may be called from several threads at a time and none
// of them waits for the client: what was not sent yet is kept, up to HttpOptions::max_backlog_bytes of a stream. A client that
// reads so slowly that more piles up, or that takes nothing for HttpOptions::write_timeout, is let go. Dropping the last
// reference without an answer gives a 500; dropping it in the middle of a stream cuts the connection, so that the client sees
// that something is missing.
//
// A client counts as gone once it has closed its side of the connection, even by half: a client that only finished sending
// looks the same as one that left until something is written to it. Whatever a handler then still Sends (whole) is written
// if the connection takes it; a stream is over.
class Reply {
 public:
  Reply() = default;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  virtual ~Reply() = default;

  // The whole answer. Content-Length, Date and Connection are added. Does nothing if an answer was begun before.
  virtual void Send(int status, HttpHeaders headers, std::string body) = 0;

  // Begins an answer whose length is not known, for instance server-sent events; it goes out at once. False if the client is
  // gone or an answer was begun before.
  virtual bool Start(int status, HttpHeaders headers) = 0;
  // The next piece; an empty one does nothing. False once the client has left (the piece is dropped then), or outside Start
  // and Finish.
  virtual bool Write(std::string_view piece) = 0;
  virtual void Finish() = 0;
  // Bytes of a stream that the network has not taken yet: what a producer may look at to slow down.
  virtual size_t Backlog() const = 0;

  virtual bool Gone() const = 0;
  // Calls `callback` once when the client leaves before the answer is complete, within 50 ms though nothing is being written; at once, in
  // this thread, if it has left already; otherwise in the server's own thread, which it must not hold up. Is dropped uncalled when the
  // answer is complete. The callback may own a weak reference to this, but no other: it would keep the answer from being given up.
  virtual void OnGone(std::function<void()> callback) = 0;
};

// Called in one of HttpOptions::handler_threads; the request is valid until it returns. An exception becomes a 500.
using HttpHandler = std::function<void(const HttpRequest&, std::shared_ptr<Reply>)>;

struct HttpOptions {
  std::string host =
      "127.0.0.1";    // address or name to listen on; of a name's addresses the first, IPv4 before IPv6
  uint16_t port = 0;  // 0: any free one
  // PEM files; both or none. With them the port speaks TLS (1.2 or newer) alone.
  std::string tls_certificate, tls_key;
  // If not empty, every request but those to /health must bring one, as "Authorization: Bearer KEY" or "x-api-key: KEY".
  std::vector<std::string> api_keys;
  // Whether OPTIONS needs none: a browser sends no key with its question whether a page of another origin may send one.
  bool preflights = false;
  // The body of the 401 that a GET of "/" without a key gets, with these headers: a page where a browser's user can give one. It tells
  // nothing of the server. Empty: the JSON that other paths give.
  std::string sign_in_page;
  HttpHeaders sign_in_headers;

  size_t max_body_bytes = size_t{32} << 20;
  size_t max_bodies_bytes = size_t{256} << 20;  // of all requests that are being received, together
  size_t max_header_bytes = size_t{32} << 10;   // request line and headers
  size_t max_connections = 1024;
  size_t max_backlog_bytes = size_t{4} << 20;
  int handler_threads = 2;
  // Answered by a thread of their own, so that they answer while all handler_threads are at work.
  std::vector<std::string> urgent_paths{"/health", "/metrics"};

  std::chrono::milliseconds header_timeout{
      10'000};  // from the first byte (or the connection's start) to the last header
  std::chrono::milliseconds body_timeout{120'000};  // from the last header to the last byte
  std::chrono::milliseconds idle_timeout{75'000};   // between requests of a connection
  std::chrono::milliseconds write_timeout{30'000};  // without the client taking a byte
};

struct HttpCounters {
  size_t connections = 0;   // open now
  uint64_t accepted = 0;    // connections, ever
  uint64_t requests = 0;    // handed to the handler, ever
  uint64_t refused = 0;     // answered by the server itself with an error (400, 401, 408, 413, ...), ever
  size_t bodies_bytes = 0;  // of requests being received or handled now
};

// The body of an error, in a form that the clients of all APIs served here understand:
// {"type": "error", "error": {"type": ..., "message": ..., "param": null, "code": ...}}. `code` empty: null.
std::string HttpErrorBody(int status, std::string_view message, std::string_view code = {});
// The `type` that goes with a status: "invalid_request_error", "authentication_error", "rate_limit_error", ...
std::string_view HttpErrorType(int status);
// "Not Found"; "Status" for a number without a name.
std::string_view HttpReason(int status);
// The whole answer for an error, as JSON.
void SendError(Reply& reply, int status, std::string_view message, std::string_view code = {},
               HttpHeaders headers = {});

// Errors before a handler sees the request are answered here, as JSON: 400 (no HTTP, bad target, no Host), 401 (key), 408,
// 413, 415 (a compressed body), 417, 431, 501 (CONNECT), 503 with Retry-After (too many connections or bodies), 505.
class HttpServer {
 public:
  // Listens; connections wait until Serve. kBadInput: an option is out of range, host has no address; kBadFile: a TLS file is
  // not what it should be; kIo: the port is taken or may not be had.
  static Result<std::unique_ptr<HttpServer>> Create(HttpOptions options);
  ~HttpServer();  // Stops
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // "http://127.0.0.1:8080"
  std::string url() const;
  // Begins to answer, in threads of its own, and returns. Once.
  void Serve(HttpHandler handler);
  // No new connections; idle ones are closed; requests under way are answered, for at most `limit`; then Stop. True if none
  // had to be cut off. Not to be called from a handler.
  bool Drain(std::chrono::milliseconds limit);
  // Cuts everything off (clients count as gone) and waits for handlers to return. Not to be called from a handler. A Reply
  // that outlives the server has a client that is gone.
  void Stop();
  HttpCounters Counters() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace glint::serve
