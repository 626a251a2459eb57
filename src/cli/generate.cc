#include "cli/generate.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cli/interrupt.h"
#include "cli/progress_bar.h"

namespace glint::cli {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string_view Name(StopReason reason) {
  switch (reason) {
    case StopReason::kStopToken:
      return "stop";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "?";
}

Result<Generation> Generate(Session& session, Sampler& sampler, int64_t vocab_size,
                            std::span<const int32_t> prompt, const GenerateOptions& options,
                            const std::function<Status(int32_t id)>& on_token) {
  Generation out;
  // A greedy choice needs no logits here: it is made where they are.
  const bool argmax = sampler.is_argmax();
  int32_t best = -1;
  std::vector<float> logits(argmax ? 0 : static_cast<size_t>(vocab_size));
  const auto append = [&](std::span<const int32_t> ids,
                          const std::function<bool(uint64_t, uint64_t)>& progress = {}) {
    return argmax ? session.AppendBest(ids, &best, progress)
                  : session.Append(ids, LogitRows::kLast, logits, progress);
  };

  const int64_t before = session.position();
  const char* const suspects =
      before > 0 ? "weights, or the sequence that it goes on from, are" : "weights are";
  double start = Now();
  {
    ProgressBar bar("reading the prompt", Unit::kTokens);
    // Without a prompt there are no logits, so nothing may be asked for (max_tokens 0).
    const Status status = prompt.empty() ? Status() : append(prompt, bar.Callback());
    out.prefilled = session.position() - before;
    out.prefill_seconds = Now() - start;
    if (!status.ok() && Interrupted()) {
      out.reason = StopReason::kInterrupted;
      return out;
    }
    if (!status.ok()) return status;
  }
  if (options.after_prompt) {
    const Status status = options.after_prompt();
    if (!status.ok()) return status;
  }

  start = Now();
  while (true) {
    if (options.max_tokens >= 0 && static_cast<int64_t>(out.ids.size()) >= options.max_tokens) {
      out.reason = StopReason::kMaxTokens;
      break;
    }
    if (argmax && best < 0) {
      return Status(
          Code::kBadFile,
          fmt::format("{}: every logit after {} tokens is NaN or -infinity, wanted numbers; {} damaged",
                      options.source, session.position(), suspects));
    }
    const auto id = argmax ? Result<int32_t>(best) : sampler.Sample(logits);
    if (!id.ok()) {
      // Damage that no check of the file can see, such as a type of fewer bytes than the data has.
      if (std::all_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); })) {
        return Status(Code::kBadFile,
                      fmt::format("{}: every logit after {} tokens is NaN, wanted numbers; {} damaged",
                                  options.source, session.position(), suspects));
      }
      return id.status();
    }
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), *id) != options.stop_ids.end()) {
      out.stop_id = *id;
      out.reason = StopReason::kStopToken;
      break;
    }
    out.ids.push_back(*id);
    const Status shown = on_token(*id);
    if (!shown.ok()) return shown;
    if (options.max_tokens >= 0 && static_cast<int64_t>(out.ids.size()) >= options.max_tokens) {
      out.reason = StopReason::kMaxTokens;
      break;
    }
    // Only here, where the last token is not read yet: whoever goes on with the session begins with it.
    if (Interrupted()) {
      out.reason = StopReason::kInterrupted;
      break;
    }
    if (session.position() >= session.capacity()) {
      out.reason = StopReason::kContextFull;
      break;
    }
    const Status status = append({&*id, 1});
    if (!status.ok()) return status;
    ++out.decoded;
  }
  out.decode_seconds = Now() - start;
  return out;
}

}  // namespace glint::cli
