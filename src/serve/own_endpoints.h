// What the server offers beside the APIs of others: /metrics, /tokenize, /detokenize, /apply-template and /sessions (docs/operating.md).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serve/endpoints.h"
#include "serve/log.h"
#include "serve/metrics.h"
#include "serve/named_sessions.h"

namespace glint::serve {

struct OwnEndpoints {
  std::string version;
  const RequestMetrics* requests = nullptr;
  std::function<HttpCounters()> http = {};
  const Log* log = nullptr;                    // may be null
  std::optional<NamedSessions> sessions = {};  // none: /sessions says how to get them
};

// All pointers outlive `endpoints`.
void AddOwnEndpoints(OwnEndpoints own, Endpoints& endpoints);

}  // namespace glint::serve
