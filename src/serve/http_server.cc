// The server of serve/http.h. Beast parses requests (the one thing where other servers were broken into), Asio moves bytes, OpenSSL
// speaks TLS; how a connection lives is written here.
//
// One thread does all input and output: 400 streams leave it mostly idle, and no connection needs a lock. Handlers run in a small pool,
// so that none of them (a long prompt being tokenised) keeps another client's bytes waiting. Between the two stands Answer, the only
// thing here that several threads touch.
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/no_room.h"
#include "base/printable.h"
#include "serve/http.h"
#include "serve/http_target.h"

namespace glint::serve {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr size_t kReadBytes = size_t{16} << 10;
// What a client may send ahead (pipelined requests) while an answer is being made. Beyond it the connection is no longer read, and
// whether the client is there is asked of the system every kWatch.
constexpr size_t kReadAheadBytes = size_t{64} << 10;
constexpr milliseconds kWatch{20};
// After the last answer of a connection: how long what the client still sends is thrown away before the connection is closed. Closing
// with unread bytes would reset it, and the client would lose the answer it did not read yet.
constexpr milliseconds kLinger{2000};

bool SameName(std::string_view a, std::string_view b) { return boost::beast::iequals(a, b); }

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Digest DigestOf(std::string_view text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

// "Sun, 06 Nov 1994 08:49:37 GMT"; not strftime, whose names follow the locale.
std::string DateNow() {
  static constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[static_cast<size_t>(t.tm_wday)],
                     t.tm_mday, kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min,
                     t.tm_sec);
}

std::string EndpointText(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

class Connection;

// What connections, answers and the server share. Lives as long as any of them.
struct Core {
  explicit Core(HttpOptions o) : options(std::move(o)) {
    for (const auto& key : options.api_keys) keys.push_back(DigestOf(key));
  }

  // Runs `task` in the thread of input and output; does nothing once the server has stopped. A task that were kept after that would
  // keep a connection, which keeps this, which owns the queue.
  void Post(std::function<void()> task) {
    const std::lock_guard lock(post_mutex);
    if (!closed) asio::post(io, std::move(task));
  }

  // Every key is compared, in a time that depends on none of them: equal digests, not equal prefixes.
  bool HasKey(std::string_view presented) const {
    const Digest digest = DigestOf(presented);
    bool found = false;
    for (const Digest& key : keys) found |= CRYPTO_memcmp(key.data(), digest.data(), digest.size()) == 0;
    return found;
  }

  void Add(const std::shared_ptr<Connection>& connection);
  void Remove(const std::shared_ptr<Connection>& connection);

  const HttpOptions options;
  HttpHandler handler;
  std::vector<Digest> keys;
  asio::io_context io{1};
  std::optional<asio::ssl::context> tls;
  tcp::acceptor acceptor{io};
  asio::steady_timer accept_again{io};
  asio::thread_pool *pool = nullptr,
                    *urgent_pool = nullptr;  // of the server, which outlives the thread that uses them

  std::set<std::shared_ptr<Connection>> connections;  // that thread's
  std::mutex open_mutex;
  std::condition_variable open_changed;
  size_t open = 0;          // connections.size(), for other threads; under open_mutex
  bool all_closed = false;  // by Stop; under open_mutex

  std::mutex post_mutex;
  bool closed = false;  // under post_mutex

  std::atomic<bool> draining{false};
  std::atomic<size_t> bodies_bytes{0};
  std::atomic<uint64_t> accepted{0}, requests{0}, refused{0};
};

// The part of Core::bodies_bytes that one request holds.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  ~BodyShare() { core_->bodies_bytes -= bytes_; }
  bool GrowTo(size_t bytes) {
    core_->bodies_bytes += bytes - bytes_;
    bytes_ = bytes;
    return core_->bodies_bytes <= core_->options.max_bodies_bytes;
  }

 private:
  std::shared_ptr<Core> core_;
  size_t bytes_ = 0;
};

// An answer on its way from a handler to a connection. Thread-safe.
class Answer {
  using Callbacks = std::vector<std::function<void()>>;

 public:
  Answer(std::shared_ptr<Core> core, std::weak_ptr<Connection> connection, bool is_http_1_1, bool is_head,
         bool keep_alive)
      : core_(std::move(core)),
        connection_(std::move(connection)),
        is_http_1_1_(is_http_1_1),
        is_head_(is_head),
        keep_alive_(keep_alive) {}

  void Send(int status, HttpHeaders headers, std::string_view body) {
    Callbacks dropped;  // destroyed after the lock is given back: they may own anything
    {
      const std::lock_guard lock(mutex_);
      if (begun_) return;
      begun_ = done_ = true;
      dropped.swap(on_gone_);
      std::string out = Head(status, headers);
      if (status != 204 && status != 304) out += fmt::format("Content-Length: {}\r\n", body.size());
      out += "\r\n";
      if (!is_head_ && status != 204 && status != 304) out += body;
      backlog_ += out.size();
      out_ = std::move(out);
    }
    Wake();
  }

  bool Start(int status, HttpHeaders headers) {
    {
      const std::lock_guard lock(mutex_);
      if (begun_ || gone_) return false;
      begun_ = true;
      if (!is_http_1_1_) keep_alive_ = false;  // the end of the connection is the end of the answer
      std::string out = Head(status, headers);
      if (is_http_1_1_) out += "Transfer-Encoding: chunked\r\n";
      out += "\r\n";
      backlog_ += out.size();
      out_ = std::move(out);
    }
    Wake();
    return true;
  }

  bool Write(std::string_view piece) {
    bool overflow = false;
    {
      const std::lock_guard lock(mutex_);
      if (!begun_ || done_ || gone_) return false;
      if (piece.empty() || is_head_) return true;
      overflow = backlog_ + piece.size() > core_->options.max_backlog_bytes;
      if (!overflow) {
        const size_t before = out_.size();
        if (is_http_1_1_) out_ += fmt::format("{:x}\r\n", piece.size());
        out_ += piece;
        if (is_http_1_1_) out_ += "\r\n";
        backlog_ += out_.size() - before;
      }
    }
    if (overflow) {
      Cut();
      return false;
    }
    Wake();
    return true;
  }

  void Finish() {
    Callbacks dropped;
    {
      const std::lock_guard lock(mutex_);
      if (!begun_ || done_) return;
      done_ = true;
      dropped.swap(on_gone_);
      if (is_http_1_1_ && !is_head_) {
        out_ += "0\r\n\r\n";
        backlog_ += 5;
      }
    }
    Wake();
  }

  // The handler will not come back to this.
  void Abandon() {
    bool begun = false;
    Callbacks dropped;
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      begun = begun_;
      if (!gone_) dropped.swap(on_gone_);  // else they are about to be called
    }
    if (begun) {
      Cut();
    } else {
      const HttpHeaders headers{{"Content-Type", "application/json"}};
      Send(500, headers,
           HttpErrorBody(500, "the server gave no answer to this request; its log may say why"));
    }
  }

  size_t Backlog() const {
    const std::lock_guard lock(mutex_);
    return backlog_;
  }
  bool Gone() const { return gone_; }

  void OnGone(std::function<void()> callback) {
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      if (!gone_) {
        on_gone_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

  // For the connection.
  struct Output {
    std::string bytes;
    bool done;        // nothing comes after these
    bool keep_alive;  // what the client was told; if done
  };
  Output Take() {
    const std::lock_guard lock(mutex_);
    wake_posted_ = false;
    return {std::exchange(out_, {}), done_, keep_alive_};
  }
  void Written(size_t bytes) {
    const std::lock_guard lock(mutex_);
    backlog_ -= std::min(bytes, backlog_);
  }
  void SetGone() {
    Callbacks callbacks;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      callbacks.swap(on_gone_);
    }
    for (const auto& callback : callbacks) {
      try {
        callback();
      } catch (const std::exception&) {  // the handler's affair; the connection goes on
      }
    }
  }

 private:
  // Status line and headers, but for those of the length. Under the mutex.
  std::string Head(int status, const HttpHeaders& headers) {
    if (core_->draining) keep_alive_ = false;
    std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, HttpReason(status), DateNow());
    for (const auto& [name, value] : headers) {
      const auto add = [&out](std::string_view text) {  // a line break in it would begin a header of its own
        for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? ' ' : c;
      };
      add(name);
      out += ": ";
      add(value);
      out += "\r\n";
    }
    if (!keep_alive_) out += "Connection: close\r\n";
    return out;
  }

  void Wake();
  void Cut();

  const std::shared_ptr<Core> core_;
  const std::weak_ptr<Connection> connection_;
  const bool is_http_1_1_, is_head_;

  mutable std::mutex mutex_;
  bool keep_alive_;
  bool begun_ = false, done_ = false;
  bool wake_posted_ = false;
  std::string out_;     // not taken by the connection yet
  size_t backlog_ = 0;  // bytes of out_ and those that the connection is sending
  Callbacks on_gone_;
  std::atomic<bool> gone_{false};  // written under the mutex
};

// What a handler holds. The connection holds the Answer, so only this knows when the handler has let go.
class AnswerReply final : public Reply {
 public:
  explicit AnswerReply(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  ~AnswerReply() override {
    try {
      answer_->Abandon();
    } catch (const std::exception&) {  // no memory for the message: the client waits until it gives up
    }
  }
  void Send(int status, HttpHeaders headers, std::string body) override {
    answer_->Send(status, std::move(headers), body);
  }
  bool Start(int status, HttpHeaders headers) override { return answer_->Start(status, std::move(headers)); }
  bool Write(std::string_view piece) override { return answer_->Write(piece); }
  void Finish() override { answer_->Finish(); }
  size_t Backlog() const override { return answer_->Backlog(); }
  bool Gone() const override { return answer_->Gone(); }
  void OnGone(std::function<void()> callback) override { answer_->OnGone(std::move(callback)); }

 private:
  const std::shared_ptr<Answer> answer_;
};

// One client. All its members run in the thread of input and output.
class Connection : public std::enable_shared_from_this<Connection> {
  // A completion handler that keeps this connection, does nothing once it is closed, and closes it where memory ran out.
  template <class F>
  auto Guarded(F f) {
    return [self = shared_from_this(), f = std::move(f)](auto... arguments) mutable {
      if (self->closed_) return;
      try {
        f(arguments...);
      } catch (const std::exception&) {
        self->Close();
      }
    };
  }

 public:
  Connection(std::shared_ptr<Core> core, tcp::socket socket)
      : core_(std::move(core)), socket_(std::move(socket)), deadline_(core_->io), watch_(core_->io) {
    if (core_->tls) tls_.emplace(socket_, *core_->tls);
  }

  // `refuse`: there are too many; this one only hears so.
  void Begin(bool refuse) {
    error_code ec;
    const tcp::endpoint remote = socket_.remote_endpoint(ec);
    if (ec) return Close();
    peer_ = EndpointText(remote);
    socket_.set_option(tcp::no_delay(true), ec);
    socket_.set_option(asio::socket_base::keep_alive(true), ec);
    // A client whose machine or network went away closes nothing: the system asks after 15 s of silence and gives up after 30.
    const int fd = socket_.native_handle();
    for (const auto& [option, value] : {std::pair{TCP_KEEPIDLE, 15}, {TCP_KEEPINTVL, 5}, {TCP_KEEPCNT, 3}})
      setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
    refuse_ = refuse;
    if (!tls_) return Greeted();
    SetDeadline(core_->options.header_timeout);
    tls_->async_handshake(asio::ssl::stream_base::server, Guarded([this](error_code failed) {
                            if (failed) return Close();
                            Greeted();
                          }));
  }

  // Sends what the answer has; called by it when there is something.
  void Flush() {
    if (closed_ || writing_) return;
    if (!early_.empty()) {
      sending_ = std::exchange(early_, {});
      sent_answer_ = false;
    } else {
      if (!answer_) return;
      Answer::Output output = answer_->Take();
      if (output.bytes.empty()) {
        if (output.done) EndAnswer(output.keep_alive);
        return;
      }
      sending_ = std::move(output.bytes);
      sent_answer_ = true;
    }
    sent_ = 0;
    WriteSome();
  }

  void Close() {
    if (closed_) return;
    closed_ = true;
    deadline_.cancel();
    watch_.cancel();
    error_code ec;
    socket_.close(ec);
    if (answer_) answer_->SetGone();
    core_->Remove(shared_from_this());
  }

  // A request has begun to arrive, or its answer is not complete.
  bool Busy() const { return phase_ == Phase::kAnswering || (phase_ == Phase::kReading && Arriving()); }
  void CloseIfIdle() {
    if (phase_ == Phase::kReading && !Arriving()) Close();
  }

 private:
  enum class Phase : uint8_t { kGreeting, kReading, kAnswering, kLingering };
  using Parser = beast_http::request_parser<beast_http::string_body>;

  void SetDeadline(milliseconds after) {
    deadline_.expires_after(after);
    deadline_.async_wait(Guarded([this, number = ++deadline_number_](error_code) {
      if (number == deadline_number_) OnDeadline();
    }));
  }
  void ClearDeadline() {
    ++deadline_number_;
    deadline_.cancel();
  }
  void OnDeadline() {
    if (phase_ == Phase::kReading && Arriving())
      return Reject(408, "the request did not arrive in time", "request_timeout");
    Close();
  }

  bool Arriving() const { return !in_.empty() || (parser_ && parser_->got_some()); }

  void Greeted() {
    if (!refuse_) return NextRequest();
    Reject(503,
           fmt::format("this server has {} connections already: try again", core_->options.max_connections),
           "too_many_connections", {{"Retry-After", "1"}});
  }

  void NextRequest() {
    phase_ = Phase::kReading;
    answer_.reset();
    watch_.cancel();
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(core_->options.max_header_bytes));
    parser_->body_limit(boost::none);  // looked at in OnHeaders, after the key
    share_ = std::make_unique<BodyShare>(core_);
    target_ = {};
    headers_seen_ = false;
    const bool first = std::exchange(first_, false);
    SetDeadline(first || !in_.empty() ? core_->options.header_timeout : core_->options.idle_timeout);
    timing_headers_ = first || !in_.empty();
    Parse();
  }

  void Parse() {
    while (!in_.empty()) {
      error_code ec;
      const size_t used = parser_->put(asio::buffer(in_), ec);
      in_.erase(0, used);
      const bool needs_more = ec == beast_http::error::need_more;
      if (ec && !needs_more) return RejectParse(ec);
      if (!headers_seen_ && parser_->is_header_done()) {
        headers_seen_ = true;
        if (!OnHeaders()) return;
      }
      if (headers_seen_) {
        const size_t body = parser_->get().body().size();
        if (body > core_->options.max_body_bytes) return RejectBody();
        if (!share_->GrowTo(body))
          return Reject(503, "too many large requests are arriving at once: try again", "too_many_bodies",
                        {{"Retry-After", "1"}});
      }
      if (parser_->is_done()) return Dispatch();
      if (needs_more || used == 0) break;
    }
    // What is left is one line (or all headers), which the parser wants whole.
    if (in_.size() > core_->options.max_header_bytes)
      return Reject(
          431, fmt::format("a line or the headers have more than {} bytes", core_->options.max_header_bytes),
          "headers_too_large");
    if (eof_) {
      if (!Arriving()) return Close();
      return Reject(400, "the connection was closed in the middle of the request", "incomplete_request");
    }
    Read();
  }

  void RejectParse(error_code ec) {
    if (ec == beast_http::error::header_limit || ec == beast_http::error::buffer_overflow)
      return Reject(431, fmt::format("the headers have more than {} bytes", core_->options.max_header_bytes),
                    "headers_too_large");
    if (ec == beast_http::error::body_limit) return RejectBody();
    if (ec == beast_http::error::bad_version)
      return Reject(505, "the request line must end in HTTP/1.1", "http_version");
    Reject(400, fmt::format("this is not HTTP/1.1: {}", ec.message()), "bad_request");
  }
  void RejectBody() {
    Reject(413, fmt::format("the body has more than {} bytes", core_->options.max_body_bytes),
           "body_too_large");
  }

  // False if the request was rejected.
  bool OnHeaders() {
    const auto& request = parser_->get();
    const auto reject = [this](int status, std::string_view message, std::string_view code,
                               HttpHeaders headers = {}) {
      Reject(status, message, code, std::move(headers));
      return false;
    };
    if (request.version() != 11 && request.version() != 10)
      return reject(505, "the request line must end in HTTP/1.1", "http_version");
    if (request.version() == 11 && request.count(beast_http::field::host) != 1)
      return reject(400, "a request needs one Host header", "bad_host");
    if (request.method() == beast_http::verb::connect)
      return reject(501, "this is no proxy: there is no CONNECT", "method");
    const std::string_view raw_target(request.target().data(), request.target().size());
    Result<HttpTarget> target = ParseTarget(raw_target);
    if (!target.ok()) return reject(400, target.status().message(), "bad_target");
    target_ = *std::move(target);
    const bool preflight = core_->options.preflights && request.method() == beast_http::verb::options;
    if (!core_->keys.empty() && target_.path != "/health" && !preflight && !HasKey(request)) {
      const bool reads =
          request.method() == beast_http::verb::get || request.method() == beast_http::verb::head;
      if (reads && target_.path == "/" && !core_->options.sign_in_page.empty()) {
        HttpHeaders headers = core_->options.sign_in_headers;
        headers.emplace_back("WWW-Authenticate", "Bearer");
        RejectWith(401, std::move(headers), core_->options.sign_in_page);
        return false;
      }
      return reject(401, "no valid API key: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
                    "invalid_api_key", {{"WWW-Authenticate", "Bearer"}});
    }
    // Bodies of a coding that is not understood have no known end (and two servers in a row may see two ends).
    if (request.count(beast_http::field::transfer_encoding) != 0 &&
        !SameName(request[beast_http::field::transfer_encoding], "chunked"))
      return reject(501, "of transfer codings only 'chunked' is understood", "transfer_encoding");
    if (request.count(beast_http::field::content_encoding) != 0 &&
        !SameName(request[beast_http::field::content_encoding], "identity"))
      return reject(415, "compressed bodies are not understood: send it without Content-Encoding",
                    "content_encoding");
    const auto length = parser_->content_length();
    if (length && *length > core_->options.max_body_bytes) {
      RejectBody();
      return false;
    }
    parser_->body_limit(core_->options.max_body_bytes);
    if (request.count(beast_http::field::expect) != 0 && request.version() == 11) {
      if (!SameName(request[beast_http::field::expect], "100-continue"))
        return reject(417, "of expectations only '100-continue' is met", "expectation");
      if (!parser_->is_done() && in_.empty()) {
        early_ = "HTTP/1.1 100 Continue\r\n\r\n";
        Flush();
      }
    }
    if (!parser_->is_done()) SetDeadline(core_->options.body_timeout);
    return true;
  }

  bool HasKey(const beast_http::request<beast_http::string_body>& request) const {
    bool found = false;
    for (const auto& field : request) {
      std::string_view value(field.value().data(), field.value().size());
      if (field.name() == beast_http::field::authorization) {
        constexpr std::string_view kScheme = "Bearer ";
        if (value.size() < kScheme.size() || !SameName(value.substr(0, kScheme.size()), kScheme)) continue;
        value.remove_prefix(kScheme.size());
        while (value.starts_with(' ')) value.remove_prefix(1);
      } else if (!SameName({field.name_string().data(), field.name_string().size()}, "x-api-key")) {
        continue;
      }
      found |= core_->HasKey(value);
    }
    return found;
  }

  // Answers with an error of the server's own, and ends the connection: where the next request would begin is not known.
  void Reject(int status, std::string_view message, std::string_view code, HttpHeaders headers = {}) {
    headers.emplace_back("Content-Type", "application/json");
    RejectWith(status, std::move(headers), HttpErrorBody(status, message, code));
  }
  void RejectWith(int status, HttpHeaders headers, std::string_view body) {
    ++core_->refused;
    phase_ = Phase::kAnswering;
    ClearDeadline();
    const bool is_head = parser_ && headers_seen_ && parser_->get().method() == beast_http::verb::head;
    parser_.reset();
    share_.reset();
    answer_ = std::make_shared<Answer>(core_, weak_from_this(), true, is_head, false);
    answer_->Send(status, std::move(headers), body);
    Flush();
  }

  void Dispatch() {
    phase_ = Phase::kAnswering;
    ClearDeadline();
    auto message = parser_->release();
    auto request = std::make_shared<HttpRequest>();
    request->method = std::string(message.method_string());
    request->path = std::move(target_.path);
    request->query = std::move(target_.query);
    for (const auto& field : message)
      request->headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    request->body = std::move(message.body());
    request->peer = peer_;
    const bool is_http_1_1 = message.version() == 11;
    answer_ = std::make_shared<Answer>(core_, weak_from_this(), is_http_1_1,
                                       message.method() == beast_http::verb::head,
                                       is_http_1_1 && message.keep_alive());
    if (eof_) answer_->SetGone();
    ++core_->requests;
    auto reply = std::make_shared<AnswerReply>(answer_);
    std::shared_ptr<BodyShare> share = std::move(share_);
    const auto& urgent = core_->options.urgent_paths;
    const bool is_urgent = std::find(urgent.begin(), urgent.end(), request->path) != urgent.end();
    asio::post(is_urgent ? *core_->urgent_pool : *core_->pool,
               [core = core_, request = std::move(request), share = std::move(share),
                reply = std::move(reply)]() mutable {
                 try {
                   core->handler(*request, reply);
                 } catch (const std::exception& e) {
                   SendError(*reply, 500, fmt::format("the request failed: {}", e.what()));
                 }
               });
    if (!eof_)
      Read();  // a client that leaves is seen by reading; what it sends meanwhile is its next request
  }

  void Read() {
    if (reading_) return;
    if (phase_ == Phase::kAnswering && in_.size() >= kReadAheadBytes) return Watch();
    reading_ = true;
    const auto buffer = asio::buffer(read_);
    auto done = Guarded([this](error_code ec, size_t bytes) { OnRead(ec, bytes); });
    if (tls_) {
      tls_->async_read_some(buffer, std::move(done));
    } else {
      socket_.async_read_some(buffer, std::move(done));
    }
  }

  void OnRead(error_code ec, size_t bytes) {
    reading_ = false;
    if (ec) {
      eof_ = true;
      const bool ended = ec == asio::error::eof;
      // Reset, or TLS cut off: nothing can be sent any more.
      if (!ended && phase_ != Phase::kLingering) return Close();
      if (phase_ == Phase::kReading) return Parse();
      if (phase_ == Phase::kAnswering) return answer_->SetGone();
      return Close();
    }
    if (phase_ == Phase::kLingering) return Read();
    in_.append(read_.data(), bytes);
    if (phase_ == Phase::kAnswering) return Read();
    if (!std::exchange(timing_headers_, true)) SetDeadline(core_->options.header_timeout);
    Parse();
  }

  void Watch() {
    watch_.expires_after(kWatch);
    watch_.async_wait(Guarded([this](error_code ec) {
      if (ec || phase_ != Phase::kAnswering) return;
      pollfd state{socket_.native_handle(), POLLRDHUP, 0};
      if (poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        return answer_->SetGone();
      Watch();
    }));
  }

  void WriteSome() {
    writing_ = true;
    if (phase_ == Phase::kAnswering) SetDeadline(core_->options.write_timeout);
    const auto buffer = asio::buffer(sending_) + sent_;
    auto done = Guarded([this](error_code ec, size_t bytes) { OnWritten(ec, bytes); });
    if (tls_) {
      tls_->async_write_some(buffer, std::move(done));
    } else {
      socket_.async_write_some(buffer, std::move(done));
    }
  }

  void OnWritten(error_code ec, size_t bytes) {
    writing_ = false;
    if (ec) return Close();
    sent_ += bytes;
    if (sent_answer_) answer_->Written(bytes);
    if (sent_ < sending_.size()) return WriteSome();
    sending_ = {};
    if (phase_ == Phase::kAnswering) ClearDeadline();
    Flush();
  }

  void EndAnswer(bool keep_alive) {
    if (keep_alive && !core_->draining) return NextRequest();
    phase_ = Phase::kLingering;
    watch_.cancel();
    SetDeadline(kLinger);
    if (tls_) {
      tls_->async_shutdown(Guarded([this](error_code) { Close(); }));
      return;
    }
    error_code ec;
    socket_.shutdown(tcp::socket::shutdown_send, ec);
    if (eof_ || ec) return Close();
    Read();
  }

  const std::shared_ptr<Core> core_;
  tcp::socket socket_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
  std::string peer_;
  Phase phase_ = Phase::kGreeting;
  bool refuse_ = false;
  bool closed_ = false;

  asio::steady_timer deadline_, watch_;
  uint64_t deadline_number_ = 0;  // of the deadline that counts: one that was moved may be on its way already
  bool timing_headers_ = false;   // the deadline is that of the headers, not of an idle connection

  std::array<char, kReadBytes> read_;
  bool reading_ = false, eof_ = false;
  std::string in_;  // received, not parsed

  bool first_ = true;
  std::optional<Parser> parser_;
  bool headers_seen_ = false;
  HttpTarget target_;
  std::unique_ptr<BodyShare> share_;

  std::shared_ptr<Answer> answer_;
  std::string early_;    // an interim answer: 100 Continue
  std::string sending_;  // being written, from sent_ on
  size_t sent_ = 0;
  bool writing_ = false;
  bool sent_answer_ = false;  // sending_ is of answer_
};

void Answer::Wake() {
  {
    const std::lock_guard lock(mutex_);
    if (wake_posted_) return;
    wake_posted_ = true;
  }
  if (auto connection = connection_.lock())
    core_->Post([connection = std::move(connection)] { connection->Flush(); });
}

// The callbacks are left to the connection, in its thread: this one may hold locks that they want.
void Answer::Cut() {
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }
  if (auto connection = connection_.lock())
    core_->Post([connection = std::move(connection)] { connection->Close(); });
}

void Core::Add(const std::shared_ptr<Connection>& connection) {
  connections.insert(connection);
  const std::lock_guard lock(open_mutex);
  open = connections.size();
}

void Core::Remove(const std::shared_ptr<Connection>& connection) {
  connections.erase(connection);
  {
    const std::lock_guard lock(open_mutex);
    open = connections.size();
  }
  open_changed.notify_all();
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(HttpOptions options) : core_(std::make_shared<Core>(std::move(options))) {}
  ~Impl() { Stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status Listen() {
    const HttpOptions& o = core_->options;
    if (o.handler_threads < 1 || o.handler_threads > 256)
      return {Code::kBadInput, fmt::format("{} threads for handlers: 1 to 256 will do", o.handler_threads)};
    if (o.max_connections < 1 || o.max_header_bytes < 256 || o.max_header_bytes > (size_t{1} << 30))
      return {Code::kBadInput, "at least 1 connection, and 256 bytes to 1 GiB of headers, must be allowed"};
    for (const auto& key : o.api_keys)
      if (key.empty()) return {Code::kBadInput, "an API key is empty"};
    if (const Status status = ReadTls(); !status.ok()) return status;

    error_code ec;
    tcp::resolver resolver(core_->io);
    const auto found = resolver.resolve(o.host, std::to_string(o.port), tcp::resolver::passive, ec);
    if (ec || found.empty())
      return {Code::kBadInput,
              fmt::format("host {}: {}; give an address of this machine, such as 127.0.0.1 (this machine "
                          "alone) or 0.0.0.0 (whoever can reach it)",
                          Quoted(o.host), ec ? ec.message() : "has no address")};
    tcp::endpoint endpoint = found.begin()->endpoint();
    for (const auto& entry : found) {
      if (!entry.endpoint().address().is_v4()) continue;
      endpoint = entry.endpoint();
      break;
    }
    tcp::acceptor& acceptor = core_->acceptor;
    acceptor.open(endpoint.protocol(), ec);
    if (!ec)
      acceptor.set_option(tcp::acceptor::reuse_address(true), ec);  // or a restart waits for old connections
    if (!ec && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(false), ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (!ec) port_ = acceptor.local_endpoint(ec).port();
    if (ec == asio::error::address_in_use)
      return {
          Code::kIo,
          fmt::format("port {} of {} is taken by another program: choose another, or 0 for any that is free",
                      o.port, Printable(o.host))};
    if (ec)
      return {Code::kIo, fmt::format("{} may not be listened on: {}", EndpointText(endpoint), ec.message())};
    url_ = fmt::format("{}://{}", core_->tls ? "https" : "http", EndpointText({endpoint.address(), port_}));
    return {};
  }

  void Serve(HttpHandler handler) {
    const std::lock_guard lock(mutex_);
    if (thread_.joinable() || stopped_) return;
    core_->handler = std::move(handler);
    pool_.emplace(static_cast<size_t>(core_->options.handler_threads));
    urgent_pool_.emplace(1);
    core_->pool = &*pool_;
    core_->urgent_pool = &*urgent_pool_;
    work_.emplace(asio::make_work_guard(core_->io));
    Core* const core = core_.get();
    asio::post(core->io, [this] { Accept(); });
    thread_ = std::thread([core] {
      for (;;) {
        try {
          core->io.run();
          return;
        } catch (const std::exception&) {  // no memory for one step of one connection: the others go on
        }
      }
    });
  }

  bool Drain(milliseconds limit) {
    core_->draining = true;
    Core* const core = core_.get();
    core->Post([core] {
      error_code ec;
      core->acceptor.close(ec);
      core->accept_again.cancel();
      for (const auto& connection : Copy(*core)) connection->CloseIfIdle();
    });
    {
      const std::lock_guard lock(mutex_);
      if (!thread_.joinable()) return StopLocked() == 0;
    }
    {
      // The connection that is being accepted while the acceptor closes is seen here or ends by itself: it is told to close.
      std::unique_lock lock(core->open_mutex);
      core->open_changed.wait_for(lock, limit, [core] { return core->open == 0; });
    }
    const std::lock_guard lock(mutex_);
    return StopLocked() == 0;
  }

  void Stop() {
    const std::lock_guard lock(mutex_);
    StopLocked();
  }

  uint16_t port() const { return port_; }
  const std::string& url() const { return url_; }
  HttpCounters Counters() const {
    const std::lock_guard lock(core_->open_mutex);
    return {core_->open, core_->accepted, core_->requests, core_->refused, core_->bodies_bytes};
  }

 private:
  static std::vector<std::shared_ptr<Connection>> Copy(const Core& core) {
    return {core.connections.begin(), core.connections.end()};
  }

  Status ReadTls() {
    const HttpOptions& o = core_->options;
    if (o.tls_certificate.empty() != o.tls_key.empty())
      return {Code::kBadInput, "TLS needs both a certificate and its key"};
    if (o.tls_certificate.empty()) return {};
    asio::ssl::context& tls = core_->tls.emplace(asio::ssl::context::tls_server);
    error_code ec;
    tls.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, ec);
    tls.use_certificate_chain_file(o.tls_certificate, ec);
    if (ec)
      return {Code::kBadFile,
              fmt::format("{}: no certificate in PEM form: {}", Printable(o.tls_certificate), ec.message())};
    tls.use_private_key_file(o.tls_key, asio::ssl::context::pem, ec);
    if (ec)
      return {Code::kBadFile, fmt::format("{}: no private key in PEM form that belongs to {}: {}",
                                          Printable(o.tls_key), Printable(o.tls_certificate), ec.message())};
    return {};
  }

  void Accept() {
    if (core_->draining) return;
    core_->acceptor.async_accept([this](error_code ec, tcp::socket socket) {
      if (ec == asio::error::operation_aborted || !core_->acceptor.is_open()) return;
      if (ec) {  // no descriptors left, most likely: the next connection waits until some are given back
        core_->accept_again.expires_after(milliseconds(50));
        core_->accept_again.async_wait([this](error_code cancelled) {
          if (!cancelled) Accept();
        });
        return;
      }
      ++core_->accepted;
      const size_t now = core_->connections.size(), most = core_->options.max_connections;
      // A few above the limit are told so; were it many, telling them would take what the limit is to save.
      if (now < most + 16) {
        auto connection = std::make_shared<Connection>(core_, std::move(socket));
        core_->Add(connection);
        connection->Begin(now >= most);
      }
      Accept();
    });
  }

  // How many requests were cut off.
  size_t StopLocked() {
    if (std::exchange(stopped_, true)) return cut_;
    Core* const core = core_.get();
    if (thread_.joinable()) {
      core->Post([this, core] {
        core->draining = true;
        error_code ec;
        core->acceptor.close(ec);
        core->accept_again.cancel();
        const auto all = Copy(*core);
        for (const auto& connection : all) cut_ += connection->Busy();
        for (const auto& connection : all) connection->Close();
        const std::lock_guard lock(core->open_mutex);
        core->all_closed = true;
        core->open_changed.notify_all();
      });
      {
        std::unique_lock lock(core->open_mutex);
        core->open_changed.wait(lock, [core] { return core->all_closed; });
      }
      {
        const std::lock_guard lock(core->post_mutex);
        core->closed = true;
      }
      work_->reset();
      thread_.join();
      pool_->join();
      urgent_pool_->join();
    } else {
      const std::lock_guard lock(core->post_mutex);
      core->closed = true;
      error_code ec;
      core->acceptor.close(ec);
    }
    return cut_;
  }

  const std::shared_ptr<Core> core_;
  uint16_t port_ = 0;
  std::string url_;
  std::mutex mutex_;  // of what follows
  bool stopped_ = false;
  size_t cut_ = 0;  // requests that stopping cut off
  std::optional<asio::thread_pool> pool_, urgent_pool_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Create(HttpOptions options) try {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (Status status = impl->Listen(); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
} catch (...) {
  return NoRoomOrRethrow();
}

uint16_t HttpServer::port() const { return impl_->port(); }
std::string HttpServer::url() const { return impl_->url(); }
void HttpServer::Serve(HttpHandler handler) { impl_->Serve(std::move(handler)); }
bool HttpServer::Drain(milliseconds limit) { return impl_->Drain(limit); }
void HttpServer::Stop() { impl_->Stop(); }
HttpCounters HttpServer::Counters() const { return impl_->Counters(); }

}  // namespace glint::serve
