#include "serve/load.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/json.h"
#include "base/printable.h"
#include "engine/random.h"
#include "serve/json_out.h"

namespace glint::serve {
namespace {

using Time = std::chrono::steady_clock;
double Since(Time::time_point begin) { return std::chrono::duration<double>(Time::now() - begin).count(); }

// Draws of a seed and a place, in the order in which they are asked for.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t place) : seed_(engine::Draw64(seed, place)) {}
  uint64_t Next() { return engine::Draw64(seed_, count_++); }
  int64_t In(const LoadRange& range) {
    return range.low + static_cast<int64_t>(Next() % static_cast<uint64_t>(range.high - range.low + 1));
  }
  double Share() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t seed_, count_ = 0;
};

constexpr std::string_view kWords[] = {
    "a",     "little", "fox",   "saw",  "the",   "red",   "house", "near",  "big",    "tree",  "and",
    "her",   "friend", "said",  "that", "it",    "was",   "cold",  "in",    "winter", "so",    "they",
    "made",  "warm",   "soup",  "with", "fresh", "bread", "old",   "man",   "who",    "had",   "two",
    "small", "dogs",   "went",  "to",   "river", "where", "blue",  "boats", "of",     "paper", "sailed",
    "under", "bridge", "until", "moon", "came",  "up",    "over",  "quiet", "hills",  "then",  "everyone",
    "slept", "well",   "but",   "one",  "hen",   "sang",  "at",    "first", "light"};

std::string Words(Dice& dice, int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[dice.Next() % std::size(kWords)];
  }
  return text;
}

// What a conversation asks for; the same whenever it is asked.
struct Turn {
  std::string message;
  std::vector<int64_t> ids;
  int64_t most_tokens = 0;
  uint64_t seed = 0;
  int64_t leave_after = 0;  // events with text; 0: never
};
struct Plan {
  std::string shared;
  std::vector<int64_t> shared_ids;
  std::vector<Turn> turns;
};

Plan PlanOf(const LoadOptions& o, int64_t conversation) {
  Plan plan;
  const auto ids = [&o](Dice& dice, int64_t count) {
    std::vector<int64_t> all(static_cast<size_t>(count));
    for (int64_t& id : all) id = dice.In({0, o.vocab - 1});
    return all;
  };
  Dice common(o.seed, 0), dice(o.seed, static_cast<uint64_t>(conversation) + 2);
  if (o.ids)
    plan.shared_ids = ids(common, o.shared);
  else
    plan.shared = Words(common, o.shared);
  for (int64_t i = 0; i < o.turns; ++i) {
    Turn turn;
    const int64_t length = dice.In(o.prompt);
    if (o.ids)
      turn.ids = ids(dice, length);
    else
      turn.message = Words(dice, length);
    turn.most_tokens = dice.In(o.answer);
    turn.seed = dice.Next() >> 12;  // exact as a double: some servers read numbers that way
    if (dice.Share() < o.cancel) turn.leave_after = dice.In({1, std::max<int64_t>(turn.most_tokens / 2, 1)});
    plan.turns.push_back(std::move(turn));
  }
  return plan;
}

struct Said {
  std::string user, answer;
};

std::string BodyOf(const LoadOptions& o, const std::string& model, const Plan& plan, size_t turn,
                   const std::vector<Said>& history) {
  const Turn& now = plan.turns[turn];
  JsonOut out;
  out.Begin('{').String("model", model);
  if (o.ids) {
    out.Key("prompt").Begin('[');
    for (const auto* part : {&plan.shared_ids, &now.ids})
      for (const int64_t id : *part) out.Integer(id);
    out.End(']');
  } else {
    out.Key("messages").Begin('[');
    const auto message = [&out](std::string_view role, std::string_view content) {
      out.Begin('{').String("role", role).String("content", content).End('}');
    };
    if (!plan.shared.empty()) message("system", plan.shared);
    for (const Said& said : history) message("user", said.user), message("assistant", said.answer);
    message("user", now.message);
    out.End(']');
  }
  out.Integer("max_tokens", now.most_tokens).Number("temperature", o.temperature);
  if (o.temperature > 0) out.Integer("seed", now.seed);
  out.Key("stream").Bool(true).Key("stream_options").Begin('{').Key("include_usage").Bool(true).End('}');
  return out.End('}').Take();
}

std::string StringAt(const Json& value, std::string_view path) {
  const auto text = value.Get<std::string>(path);
  return text.ok() ? *text : std::string();
}
uint64_t CountAt(const Json& value, std::string_view path) {
  const auto count = value.Get<uint64_t>(path);
  return count.ok() ? *count : 0;
}

class Asker {
 public:
  // stop: asked with each piece of an answer.
  Asker(const LoadOptions& o, std::function<bool()> stop)
      : o_(o), stop_(std::move(stop)), client_(o.url, o.patience) {
    headers_ = {{"Content-Type", "application/json"}};
    if (!o.api_key.empty()) headers_.emplace_back("Authorization", "Bearer " + o.api_key);
  }

  // Streams answer.body, and leaves after `leave_after` events with text if that is not 0. `plain`: the answer's own text, for histories.
  void Ask(int64_t leave_after, Time::time_point due, LoadAnswer& answer, std::string* plain) {
    SseReader reader;
    std::string reasoning, text, finish;
    std::optional<Time::time_point> last;
    uint64_t events = 0;
    bool done = false;
    const auto on_event = [&](std::string_view data) {
      if (data == "[DONE]") {
        done = true;
        return true;
      }
      const auto parsed = ParseJson(data, "an event");
      if (!parsed.ok()) return Wrong(answer, "not JSON", parsed.status().message());
      if (const Json* error = parsed->Find("error"); error != nullptr)
        return Wrong(answer, "error in the stream", StringAt(*error, "message"));
      if (const Json* usage = parsed->Find("usage");
          usage != nullptr && usage->kind() == Json::Kind::kObject) {
        answer.prompt_tokens = CountAt(*usage, "prompt_tokens");
        answer.tokens = CountAt(*usage, "completion_tokens");
        answer.cached_tokens = CountAt(*usage, "prompt_tokens_details.cached_tokens");
      }
      const Json* choices = parsed->Find("choices");
      if (choices == nullptr || choices->items().empty()) return true;
      const Json& choice = choices->items().front();
      const std::string piece = o_.ids ? StringAt(choice, "text") : StringAt(choice, "delta.content");
      const std::string thought = StringAt(choice, "delta.reasoning_content");
      if (const std::string reason = StringAt(choice, "finish_reason"); !reason.empty()) finish = reason;
      if (piece.empty() && thought.empty()) return true;
      const auto now = Time::now();
      if (last) answer.gaps.push_back(std::chrono::duration<double>(now - *last).count());
      if (!last) answer.first = std::chrono::duration<double>(now - due).count();
      last = now;
      text += piece, reasoning += thought;
      ++events;
      answer.left = leave_after > 0 && events >= static_cast<uint64_t>(leave_after);
      return !answer.left;
    };
    const auto got =
        client_.Ask("POST", o_.ids ? "/v1/completions" : "/v1/chat/completions", headers_, answer.body,
                    [&](std::string_view piece) { return !stop_() && reader.Feed(piece, on_event); });
    answer.whole = Since(due);
    if (answer.error.empty()) {
      if (!got.ok()) {
        Wrong(answer, got.status().code() == Code::kIo ? "connection" : "no HTTP", got.status().message());
      } else if (got->status != 200) {
        const auto parsed = ParseJson(got->body, "the error");
        Wrong(answer, fmt::format("HTTP {}", got->status),
              parsed.ok() ? StringAt(*parsed, "error.message") : Quoted(got->body, 200));
      } else if (!answer.left && (!done || finish.empty())) {
        Wrong(answer, "stream without end", "the stream ended before its answer did");
      }
    }
    if (answer.left) answer.tokens = events;
    answer.text = reasoning.empty() ? "" : "<think>" + reasoning;
    if (!reasoning.empty() && !(answer.left && text.empty())) answer.text += "</think>";
    answer.text += text;
    if (!answer.left) answer.text += "<" + finish + ">";
    if (plain != nullptr) *plain = text;
  }

  Result<std::string> FirstModel() {
    const auto got = client_.Ask("GET", "/v1/models", headers_, "");
    if (!got.ok()) return got.status();
    const auto parsed = ParseJson(got->body, "/v1/models");
    if (got->status != 200) {
      return Status(Code::kIo,
                    fmt::format("/v1/models: HTTP {}: {}", got->status,
                                parsed.ok() ? StringAt(*parsed, "error.message") : Quoted(got->body, 200)));
    }
    const Json* data = parsed.ok() ? parsed->Find("data") : nullptr;
    if (data == nullptr || data->items().empty() || StringAt(data->items().front(), "id").empty())
      return Status(Code::kBadFile, "/v1/models names no model: give one with --model");
    return StringAt(data->items().front(), "id");
  }

 private:
  static bool Wrong(LoadAnswer& answer, std::string kind, std::string what) {
    answer.error = std::move(kind), answer.what = std::move(what);
    return false;
  }

  const LoadOptions& o_;
  const std::function<bool()> stop_;
  HttpClient client_;
  HttpHeaders headers_;
};

// Counts requests for the progress, and says when to stop.
class Meter {
 public:
  Meter(const Progress& progress, uint64_t total) : progress_(progress), total_(total) {}
  bool Stopped() const { return stopped_; }
  // Asked with each piece of an answer: hears of an interruption while nothing ends.
  bool StopsNow() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && progress_ && Since(asked_) > 0.1) {
      asked_ = Time::now();
      if (!progress_(std::min(done_, total_), total_)) stopped_ = true;
    }
    return stopped_;
  }
  void Step(uint64_t requests) {
    const std::lock_guard lock(mutex_);
    done_ += requests;
    if (progress_ && !progress_(std::min(done_, total_), total_)) stopped_ = true;
  }

 private:
  const Progress& progress_;
  const uint64_t total_;
  std::mutex mutex_;
  uint64_t done_ = 0;
  Time::time_point asked_ = Time::now();
  std::atomic<bool> stopped_ = false;
};

// One conversation from its first turn to its last, or to what went wrong.
void Converse(const LoadOptions& o, const std::string& model, int64_t conversation, Asker& asker,
              Time::time_point start, std::optional<Time::time_point> due, Meter& meter,
              std::vector<LoadAnswer>& answers) {
  const Plan plan = PlanOf(o, conversation);
  std::vector<Said> history;
  for (size_t turn = 0; turn < plan.turns.size() && !meter.Stopped(); ++turn) {
    LoadAnswer& answer = answers.emplace_back();
    answer.conversation = conversation, answer.turn = static_cast<int64_t>(turn);
    answer.body = BodyOf(o, model, plan, turn, history);
    const Time::time_point from = turn == 0 && due ? *due : Time::now();
    answer.began = std::chrono::duration<double>(from - start).count();
    std::string plain;
    asker.Ask(plan.turns[turn].leave_after, from, answer, &plain);
    meter.Step(answer.error.empty() ? 1 : plan.turns.size() - turn);
    if (!answer.error.empty()) return;
    history.push_back({plan.turns[turn].message, std::move(plain)});
  }
}

using Solos = std::map<std::string, std::string>;  // text by body

void Compare(const std::string& alone, LoadAnswer& answer) {
  // Of an answer that was left there is a beginning, and if it was left alone too, of that as well.
  const bool same =
      answer.left ? alone.starts_with(answer.text) || answer.text.starts_with(alone) : alone == answer.text;
  answer.check = same ? LoadAnswer::Check::kSame : LoadAnswer::Check::kOther;
  if (!same) answer.alone = alone;
}

Status Check(const LoadOptions& o) {
  const auto bad = [](const LoadRange& r) { return r.low < 1 || r.high < r.low; };
  if (o.users < 1 || o.conversations < 1 || o.turns < 1 || bad(o.prompt) || bad(o.answer) || o.shared < 0 ||
      !(o.rate >= 0) || !(o.cancel >= 0 && o.cancel <= 1) || o.vocab < 1)
    return {Code::kBadInput, "load: a number is out of its range"};
  if (o.ids && o.turns > 1)
    return {Code::kBadInput, "load: conversations of several turns are made of words, not of ids"};
  return {};
}

}  // namespace

Result<LoadResult> RunLoad(const LoadOptions& o, const Progress& progress) {
  if (Status s = Check(o); !s.ok()) return s;
  LoadResult result;
  result.model = o.model;
  const auto requests = static_cast<uint64_t>(o.conversations * o.turns);
  Meter meter(progress, requests * (o.solo == LoadOptions::Solo::kNone ? 1 : 2));
  const auto stop = [&meter] { return meter.StopsNow(); };
  Asker alone(o, stop);
  if (result.model.empty()) {
    auto model = alone.FirstModel();
    if (!model.ok()) return model.status();
    result.model = *std::move(model);
  }

  Solos solos;
  if (o.solo == LoadOptions::Solo::kBefore) {
    for (int64_t c = 0; c < o.conversations && !meter.Stopped(); ++c) {
      std::vector<LoadAnswer> answers;
      Converse(o, result.model, c, alone, Time::now(), {}, meter, answers);
      if (meter.Stopped()) return Status(Code::kBadInput, "interrupted");
      for (LoadAnswer& answer : answers) {
        if (!answer.error.empty())
          return Status(Code::kIo, fmt::format("alone, before the load: {}: {}", answer.error, answer.what));
        solos[answer.body] = answer.text;
      }
    }
  }

  const auto start = Time::now();
  std::vector<std::vector<LoadAnswer>> answers(static_cast<size_t>(o.conversations));
  std::vector<std::thread> threads;
  if (o.rate > 0) {
    Dice dice(o.seed, 1);
    double due_s = 0;
    for (int64_t c = 0; c < o.conversations && !meter.Stopped(); ++c) {
      due_s -= std::log1p(-dice.Share()) / o.rate;
      const auto due =
          start + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(due_s));
      while (Time::now() < due && !meter.Stopped()) {
        std::this_thread::sleep_until(std::min(due, Time::now() + std::chrono::milliseconds(100)));
        meter.Step(0);
      }
      threads.emplace_back([&, c, due] {
        Asker asker(o, stop);
        Converse(o, result.model, c, asker, start, due, meter, answers[static_cast<size_t>(c)]);
      });
    }
  } else {
    static_assert(std::atomic<int64_t>::is_always_lock_free);
    std::atomic<int64_t> next = 0;
    for (int64_t u = 0; u < std::min(o.users, o.conversations); ++u) {
      threads.emplace_back([&] {
        Asker asker(o, stop);
        for (int64_t c = 0; (c = next++) < o.conversations && !meter.Stopped();)
          Converse(o, result.model, c, asker, start, {}, meter, answers[static_cast<size_t>(c)]);
      });
    }
    for (auto& thread : threads) thread.join();
    threads.clear();
  }
  for (auto& thread : threads) thread.join();
  result.seconds = Since(start);
  for (auto& list : answers)
    for (LoadAnswer& answer : list) result.answers.push_back(std::move(answer));
  if (meter.Stopped()) return Status(Code::kBadInput, "interrupted");

  for (LoadAnswer& answer : result.answers) {
    if (!answer.error.empty() || o.solo == LoadOptions::Solo::kNone) continue;
    auto found = solos.find(answer.body);
    if (found == solos.end()) {
      // Before the load a conversation was asked as far as it went alone; if it went another way, so did an answer before this one.
      if (o.solo == LoadOptions::Solo::kBefore) {
        answer.check = LoadAnswer::Check::kOther;
        continue;
      }
      LoadAnswer solo;
      solo.body = answer.body;
      alone.Ask(0, Time::now(), solo, nullptr);
      meter.Step(1);
      if (meter.Stopped()) return Status(Code::kBadInput, "interrupted");
      if (!solo.error.empty())
        return Status(Code::kIo, fmt::format("alone, after the load: {}: {}", solo.error, solo.what));
      found = solos.emplace(answer.body, std::move(solo.text)).first;
    }
    Compare(found->second, answer);
  }
  return result;
}

}  // namespace glint::serve
