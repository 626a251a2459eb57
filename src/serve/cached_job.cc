#include "serve/cached_job.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/snapshot.h"

namespace glint::serve {
namespace {

struct Kept {
  std::vector<int32_t> prompt;
  std::vector<PrefixCache::Position> marks, positions;
  std::shared_ptr<const engine::Snapshot> held;  // while the job waits
};

Result<Opening> Open(PrefixCache& cache, Kept& kept, int64_t context) {
  Opening opening;
  CacheFound found = cache.Find(kept.prompt);
  if (found.snapshot != nullptr) {
    auto session = cache.Open(found, context);
    if (session.ok()) {
      opening.session.emplace(std::move(*session));
    } else if (session.status().code() == Code::kNoRoom || session.status().code() == Code::kDevice) {
      return session.status();
    } else {
      cache.Forget(std::span(kept.prompt).first(static_cast<size_t>(found.tokens)));
      found.tokens = 0;
    }
  }
  kept.held.reset();
  kept.positions = cache.KeepAt(kept.prompt, found.tokens, kept.marks);
  for (const auto& position : kept.positions) opening.keep_at.push_back(position.tokens);
  return opening;
}

bool MayBeTheState(const JobResult& result) {
  const Code code = result.status.code();
  return result.end == JobEnd::kFailed && code != Code::kNoRoom && code != Code::kDevice;
}

}  // namespace

void GoOnFromCache(PrefixCache& cache, std::vector<PrefixCache::Position> marks, Job& job) {
  auto kept = std::make_shared<Kept>();
  kept->prompt = job.prompt;
  kept->marks = std::move(marks);
  kept->held = cache.Fetch(job.prompt);
  job.open = [&cache, kept](int64_t context) { return Open(cache, *kept, context); };
  job.on_keep = [&cache, kept](const Session& session) {
    const auto at = std::find_if(kept->positions.begin(), kept->positions.end(),
                                 [&](const auto& p) { return p.tokens == session.position(); });
    cache.Keep(session, at != kept->positions.end() ? at->kind : CacheKind::kInterval);
  };
  job.on_end = [&cache, kept, then = std::move(job.on_end)](JobResult result) {
    if (result.session) cache.Keep(*result.session, CacheKind::kEnd);
    if (MayBeTheState(result)) cache.Forget(kept->prompt);
    if (then) then(std::move(result));
  };
}

}  // namespace glint::serve
