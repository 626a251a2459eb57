// Which path does what: a table of routes, and the state that a server is in while its model loads, serves and ends.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/generation.h"
#include "serve/http.h"
#include "serve/page_guard.h"
#include "serve/service.h"

namespace glint::serve {

// A request that a route handles.
struct Call {
  const HttpRequest& request;
  std::shared_ptr<Reply> reply;
  std::vector<std::string> parts;    // what the {} of the route's path stood for
  std::shared_ptr<Service> service;  // null while the model loads, if the route does without
  ApiForm form = ApiForm::kOpenAi;   // how its errors are written
  std::string id;  // of the request: x-request-id and request-id of its answer are "req_" and this
};

struct Route {
  std::string method;         // "GET" also answers HEAD
  std::string pattern;        // "/v1/models/{}": {} is any one segment; the first route that matches counts
  bool needs_service = true;  // else it is called while the model loads and while the server ends, too
  std::function<void(const Call& call)> handle;
};

// An answer that was given.
struct HttpAnswered {
  std::string id;  // Call::id
  std::string method, path, peer;
  std::string route;   // the pattern of the route that gave it; empty: there is none
  int status = 0;      // 499: the client left before it had one
  double seconds = 0;  // from the request to the whole answer, or to the end of the stream
  std::string error;   // the message of an error, if it is JSON of ours
};

struct EndpointOptions {
  std::function<void(const HttpAnswered&)> answered = {};  // from any thread, and soon done
  std::string cors_origin = {};  // what Access-Control-Allow-Origin says; empty: nothing
  PageGuard guard = {};          // of all but /health
};

// Threads: Handle and the states from any thread; Add before the first request.
class Endpoints {
 public:
  // With the routes of this file.
  explicit Endpoints(EndpointOptions options = {});

  void Add(Route route);
  // What an HttpServer calls.
  void Handle(const HttpRequest& request, std::shared_ptr<Reply> reply) const;

  void SetLoading(uint64_t done, uint64_t total);
  // From now on requests are answered; null: no more, and what still comes is told to go elsewhere.
  void SetService(std::shared_ptr<Service> service);

 private:
  void AddOwnRoutes();
  void Health(const Call& call) const;
  ApiError WhyNot() const;  // there is no service
  std::shared_ptr<Service> service() const;

  const EndpointOptions options_;
  std::vector<Route> routes_;
  std::atomic<uint64_t> loaded_{0}, to_load_{0};
  mutable std::mutex mutex_;  // of what follows
  std::shared_ptr<Service> service_;
  bool ending_ = false;
};

// The form of errors on a path: Anthropic's under /v1/messages, and wherever its clients say who they are.
ApiForm FormOf(const HttpRequest& request);
// The error as a whole answer, with Retry-After if it has one.
void SendError(Reply& reply, ApiForm form, const ApiError& error, std::string_view request_id = {});
void SendError(const Call& call, const ApiError& error);
void SendJson(Reply& reply, std::string body, int status = 200);
// Whom the queue takes turns between: the address that the request came from, and a name for the key that it brought, which is not the key.
std::string ClientOf(const HttpRequest& request);

}  // namespace glint::serve
