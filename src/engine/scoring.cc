#include "engine/scoring.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "cpu/kernels.h"
#include "engine/session_impl.h"
#include "glint/session.h"

namespace glint::engine {
namespace {

constexpr int64_t kDefaultContext = 2048;
// Rows of logits in memory at a time.
constexpr int64_t kLogitBytes = int64_t{64} << 20;

// Window by window: where it begins, its length, and the first position in it that is scored.
template <class Each>
void ForEachWindow(const Windows& windows, size_t tokens, const Each& each) {
  const auto count = static_cast<int64_t>(tokens);
  int64_t scored_to = 0;
  for (int64_t start = 0; start < count; start += windows.stride) {
    const int64_t length = std::min(windows.context, count - start);
    const int64_t first = std::max(windows.first, scored_to - start);
    if (first < length && !each(start, length, first)) return;
    scored_to = std::max(scored_to, start + length);
    if (start + length == count) return;
  }
}

Status Bad(std::string what) { return {Code::kBadInput, std::move(what)}; }

}  // namespace

Windows DefaultWindows(const Model& model) {
  const int64_t made_for = model.context_length() > 0 ? model.context_length() : kDefaultContext;
  const int64_t context = std::max<int64_t>(std::min(kDefaultContext, made_for), 2);
  return {context, std::max<int64_t>(context / 2, 1), 1};
}

Status CheckWindows(const Windows& w) {
  if (w.context < 2)
    return Bad(fmt::format("a context of {} tokens; 2 are the fewest that score one", w.context));
  if (w.stride < 1 || w.stride > w.context)
    return Bad(
        fmt::format("a stride of {} tokens; from 1 to the context, {}, are possible", w.stride, w.context));
  if (w.first < 1 || w.first >= w.context)
    return Bad(fmt::format(
        "scoring from position {}; from 1 to below the context, {}, are possible (nothing comes before "
        "position 0)",
        w.first, w.context));
  if (w.first > w.context - w.stride && w.stride != w.context)
    return Bad(fmt::format(
        "scoring from position {} in windows of {} that begin every {}: tokens between would be scored "
        "by no window; a stride of at most {} scores all",
        w.first, w.context, w.stride, w.context - w.first));
  return {};
}

Status CheckWindows(const Windows& w, const Model& model, size_t tokens) {
  if (model.context_length() > 0 && w.context > model.context_length())
    return Bad(
        fmt::format("a context of {} tokens; the model was made for {}", w.context, model.context_length()));
  if (Status status = CheckWindows(w); !status.ok()) return status;
  if (ScoredTokens(w, tokens) < 1)
    return Bad(fmt::format("the text has {} tokens, none of them at position {} or later: it is too short",
                           tokens, w.first));
  return {};
}

int64_t ScoredTokens(const Windows& windows, size_t tokens) {
  int64_t sum = 0;
  ForEachWindow(windows, tokens, [&](int64_t, int64_t length, int64_t first) {
    sum += length - first;
    return true;
  });
  return sum;
}

int64_t TokensToRead(const Windows& windows, size_t tokens) {
  int64_t sum = 0;
  ForEachWindow(windows, tokens, [&](int64_t, int64_t length, int64_t) {
    sum += length;
    return true;
  });
  return sum;
}

namespace {

// One session a model; `each` gets the same token as every model scored it.
Status Score(std::span<const Model* const> models, std::span<const int32_t> ids, const Windows& windows,
             const std::function<Status(std::span<const ScoredToken>)>& each, std::span<double> seconds,
             const Progress& progress) {
  const auto vocab = static_cast<size_t>(models[0]->vocab_size());
  std::vector<Session> sessions;
  for (const Model* model : models) {
    if (Status status = CheckWindows(windows, *model, ids.size()); !status.ok()) return status;
    auto session = Session::Create(*model, {.context = windows.context});
    if (!session.ok()) return session.status();
    sessions.push_back(std::move(*session));
  }
  const int64_t piece = std::clamp<int64_t>(kLogitBytes / (static_cast<int64_t>(vocab) * 4), 16, kChunkRows);
  const size_t room = static_cast<size_t>(std::min(piece, windows.context)) * vocab;
  std::vector<std::vector<float>> logits(models.size(), std::vector<float>(room));
  std::vector<ScoredToken> tokens(models.size());
  const auto total = static_cast<uint64_t>(TokensToRead(windows, ids.size()));
  uint64_t done = 0;
  bool backwards = false;
  Status result;
  ForEachWindow(windows, ids.size(), [&](int64_t start, int64_t length, int64_t first) {
    for (Session& session : sessions) session.Reset();
    // The row before the first scored token is the first whose logits are wanted; the last token's row is of no use.
    for (int64_t at = 0; at + 1 < length;) {
      const bool wanted = at >= first - 1;
      const int64_t end = wanted ? std::min(at + piece, length - 1) : std::min(at + kChunkRows, first - 1);
      const auto part = ids.subspan(static_cast<size_t>(start + at), static_cast<size_t>(end - at));
      for (size_t i = 0; i < sessions.size(); ++i) {
        const size_t m = backwards ? sessions.size() - 1 - i : i;
        const auto begin = std::chrono::steady_clock::now();
        result = sessions[m].Append(part, wanted ? LogitRows::kAll : LogitRows::kNone,
                                    std::span(logits[m]).first(wanted ? part.size() * vocab : 0));
        if (!result.ok()) return false;
        if (!seconds.empty())
          seconds[m] += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      }
      backwards = !backwards;
      for (int64_t row = at; wanted && row < end; ++row) {
        for (size_t m = 0; m < tokens.size(); ++m)
          tokens[m] = {row + 1, start + row + 1, ids[static_cast<size_t>(start + row + 1)],
                       std::span(logits[m]).subspan(static_cast<size_t>(row - at) * vocab, vocab)};
        result = each(tokens);
        if (!result.ok()) return false;
      }
      at = end;
      if (progress && !progress(done + static_cast<uint64_t>(at), total)) {
        result = Status(Code::kBadInput, "interrupted");
        return false;
      }
    }
    done += static_cast<uint64_t>(length);
    return true;
  });
  return result;
}

}  // namespace

Status ScoreText(const Model& model, std::span<const int32_t> ids, const Windows& windows,
                 const std::function<Status(const ScoredToken&)>& each, const Progress& progress) {
  const Model* const models[] = {&model};
  return Score(
      models, ids, windows, [&](std::span<const ScoredToken> tokens) { return each(tokens[0]); }, {},
      progress);
}

Status ScoreTogether(const Model& a, const Model& b, std::span<const int32_t> ids, const Windows& windows,
                     const std::function<Status(const ScoredToken&, const ScoredToken&)>& each,
                     std::array<double, 2>* seconds, const Progress& progress) {
  if (a.vocab_size() != b.vocab_size())
    return {Code::kBadInput, fmt::format("vocabularies of {} and {} tokens have no divergence",
                                         a.vocab_size(), b.vocab_size())};
  const Model* const models[] = {&a, &b};
  return Score(
      models, ids, windows, [&](std::span<const ScoredToken> tokens) { return each(tokens[0], tokens[1]); },
      seconds == nullptr ? std::span<double>() : std::span<double>(*seconds), progress);
}

double LogPartition(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - highest);
  return std::log(sum) + highest;
}

double QuickLogPartition(std::span<const float> logits) {
  constexpr size_t kChunk = 512;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  float highest = kNothing;
  for (const float l : logits) highest = l > highest ? l : highest;
  if (std::isinf(highest)) return highest;
  const cpu::Kernels& kernels = cpu::FastestKernels();
  double sum = 0;
  float below[kChunk], weight[kChunk];
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, logits.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      const float l = logits[begin + i];
      below[i] = l > kNothing ? l - highest : kNothing;
    }
    kernels.exp(below, weight, static_cast<int64_t>(count));
    double part = 0;
    for (size_t i = 0; i < count; ++i) part += double{weight[i]};
    sum += part;
  }
  return std::log(sum) + double{highest};
}

size_t PositionBins::BinOf(int64_t position) const {
  const auto above = std::upper_bound(edges.begin(), edges.end(), position);
  return static_cast<size_t>(std::max<std::ptrdiff_t>(above - edges.begin() - 1, 0));
}

std::string PositionBins::Name(size_t bin) const {
  return bin + 1 < edges.size() ? fmt::format("{}-{}", edges[bin], edges[bin + 1])
                                : fmt::format("{}+", edges[bin]);
}

double LossSums::MeanError() const {
  if (tokens < 2) return 0;
  const auto n = static_cast<double>(tokens);
  return std::sqrt(std::max(squares / n - Mean() * Mean(), 0.0) / (n - 1));
}

}  // namespace glint::engine
