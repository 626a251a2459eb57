// Load on a server that speaks OpenAI's API, and whether its answers are those that it gives alone: what `glint bench-serve` runs.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "glint/status.h"
#include "serve/http_client.h"

namespace glint::serve {

struct LoadRange {
  int64_t low = 0, high = 0;  // both included
};

struct LoadOptions {
  HttpUrl url;
  std::string api_key, model;  // model empty: the first that the server names
  // Chat in words, or continuations of random token ids (/v1/completions), for models without a tokenizer and for exact lengths.
  bool ids = false;
  int32_t vocab = 256;  // of random ids, which are below it

  // Closed loop: that many users, each begins a conversation when its last has ended. Open loop, rate > 0: conversations begin at the
  // times of a Poisson process of that many a second, however slow the server is.
  int64_t users = 4;
  double rate = 0;
  int64_t conversations = 16;
  int64_t turns = 1;  // requests of a conversation, each with the ones before and their answers as history
  LoadRange prompt{10, 40};  // words, or ids, of a message
  LoadRange answer{16, 64};  // tokens, at most
  int64_t shared = 0;        // words, or ids, with which all conversations begin alike
  double cancel = 0;         // share of answers that are left in the middle
  double temperature = 0;
  uint64_t seed = 1;  // of all that is random: the same load again, and the same answers
  // Each request once more, when nothing else runs: the text must be the same.
  enum class Solo : uint8_t { kNone, kBefore, kAfter } solo = Solo::kAfter;
  std::chrono::milliseconds patience{120'000};  // with a server that says nothing
};

// One request as it went. Times in seconds.
struct LoadAnswer {
  int64_t conversation = 0, turn = 0;
  std::string body;   // what was sent
  std::string text;   // what came: reasoning, answer, and how it ended
  std::string error;  // empty: none; "HTTP 429", "connection", ...: a kind, for counting
  std::string what;   // the error in words
  bool left = false;  // by us, in the middle
  double began = 0;   // since the load began: when it was sent, or, in an open loop, when it was due
  double first = 0, whole = 0;  // from then to the first token and to the end
  std::vector<double> gaps;     // between events with text
  uint64_t prompt_tokens = 0, cached_tokens = 0,
           tokens = 0;  // as the usage says; tokens of an answer that was left: its events
  // Against the answer alone.
  enum class Check : uint8_t { kNone, kSame, kOther } check = Check::kNone;
  std::string alone;  // of kOther: what it would have been
};

struct LoadResult {
  std::string model;
  double seconds = 0;               // from the first request to the end of the last
  std::vector<LoadAnswer> answers;  // by conversation and turn
};

// progress: requests done, of the load and of the check. kBadInput for options out of range; kIo, kBadFile: no such server. What goes wrong with
// single requests is in their answers.
Result<LoadResult> RunLoad(const LoadOptions& options, const Progress& progress = {});

}  // namespace glint::serve
