#include "cli/load_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/printable.h"
#include "base/statistics.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

using serve::LoadAnswer;
using Check = LoadAnswer::Check;

bool Refused(const LoadAnswer& answer) { return answer.error == "HTTP 429" || answer.error == "HTTP 503"; }

// A run in numbers.
struct Figures {
  size_t whole = 0, left = 0, failed = 0, checked = 0, other = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  std::vector<double> first, gaps, all;                          // seconds
  std::map<std::string, std::pair<size_t, std::string>> errors;  // by kind: how many, and one in words
};

Figures FiguresOf(const serve::LoadResult& result) {
  Figures f;
  for (const LoadAnswer& a : result.answers) {
    if (!a.error.empty()) {
      ++f.failed;
      auto& [count, words] = f.errors[a.error];
      if (count++ == 0) words = a.what;
      continue;
    }
    ++(a.left ? f.left : f.whole);
    f.checked += a.check != Check::kNone;
    f.other += a.check == Check::kOther;
    f.prompt_tokens += a.prompt_tokens, f.cached_tokens += a.cached_tokens, f.tokens += a.tokens;
    if (a.first > 0) f.first.push_back(a.first);
    f.gaps.insert(f.gaps.end(), a.gaps.begin(), a.gaps.end());
    if (!a.left) f.all.push_back(a.whole);
  }
  return f;
}

std::string Three(const std::vector<double>& seconds) {
  if (seconds.empty()) return "-";
  const auto ms = [&](double p) { return Rate(Quantile(seconds, p) * 1e3); };
  return fmt::format("{} / {} / {}", ms(0.5), ms(0.9), ms(0.99));
}

void Distribution(JsonWriter& json, std::string_view name, const std::vector<double>& seconds) {
  json.Key(name);
  if (seconds.empty()) {
    json.Null();
    return;
  }
  json.BeginObject().Member("count", static_cast<uint64_t>(seconds.size()));
  json.Member("p50", Quantile(seconds, 0.5))
      .Member("p90", Quantile(seconds, 0.9))
      .Member("p99", Quantile(seconds, 0.99));
  json.Member("most", Quantile(seconds, 1)).EndObject();
}

double Per(uint64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds : 0;
}

// Where two texts part, with a little around it.
std::string PartOf(const std::string& text, size_t from) {
  const size_t begin = from > 20 ? from - 20 : 0;
  return (begin > 0 ? "..." : "") + Quoted(std::string_view(text).substr(begin), 60);
}

}  // namespace

LoadSums Sum(const std::vector<LoadRun>& runs) {
  LoadSums sums;
  for (const LoadRun& run : runs) {
    const Figures f = FiguresOf(run.result);
    sums.whole += f.whole, sums.left += f.left, sums.failed += f.failed;
    sums.checked += f.checked, sums.other += f.other;
    sums.refused +=
        static_cast<size_t>(std::count_if(run.result.answers.begin(), run.result.answers.end(), Refused));
  }
  return sums;
}

std::string LoadTable(const std::vector<LoadRun>& runs, std::string_view server) {
  const serve::LoadOptions& o = runs.front().options;
  const std::string_view unit = o.ids ? "ids" : "words";
  std::string out = fmt::format(
      "{}, model {}: {} of {}, messages of {} to {} {}", Printable(server),
      Printable(runs.front().result.model), Counted(static_cast<uint64_t>(o.conversations), "conversation"),
      Counted(static_cast<uint64_t>(o.turns), "turn"), o.prompt.low, o.prompt.high, unit);
  if (o.shared > 0) out += fmt::format(" after {} that all share", o.shared);
  out += fmt::format(", answers of {} to {} tokens\n\n", o.answer.low, o.answer.high);
  out += fmt::format("  {:<14}{:>9}{:>8}{:>11}{:>11}{:>8}  {:<24}{:<24}{:>10}\n", "load", "answers", "failed",
                     "tokens/s", "prompt/s", "reused", "first token, ms", "between tokens, ms", "as alone");
  out += fmt::format("  {:<14}{:>9}{:>8}{:>11}{:>11}{:>8}  {:<24}{:<24}\n", "", "", "", "", "tokens", "",
                     "50 / 90 / 99 %", "50 / 90 / 99 %");
  std::string below;
  for (const LoadRun& run : runs) {
    const Figures f = FiguresOf(run.result);
    const double s = run.result.seconds;
    const std::string reused = f.prompt_tokens == 0
                                   ? "-"
                                   : fmt::format("{:.0f} %", 100.0 * static_cast<double>(f.cached_tokens) /
                                                                 static_cast<double>(f.prompt_tokens));
    const std::string same =
        f.checked == 0 ? "not asked" : fmt::format("{} of {}", f.checked - f.other, f.checked);
    out += fmt::format("  {:<14}{:>9}{:>8}{:>11}{:>11}{:>8}  {:<24}{:<24}{:>10}\n", run.name,
                       f.whole + f.left, f.failed, Rate(Per(f.tokens, s)), Rate(Per(f.prompt_tokens, s)),
                       reused, Three(f.first), Three(f.gaps), same);
    if (f.left > 0)
      below +=
          fmt::format("{}: {} left in the middle, as --cancel asks\n", run.name, Counted(f.left, "answer"));
    for (const auto& [kind, error] : f.errors)
      below +=
          fmt::format("{}: {} x {}: {}\n", run.name, error.first, Printable(kind), Printable(error.second));
    int shown = 0;
    for (const LoadAnswer& a : run.result.answers) {
      if (a.check != Check::kOther || ++shown > 3) continue;
      if (a.alone.empty()) {
        below += fmt::format("{}: conversation {} went another way before turn {}\n", run.name,
                             a.conversation, a.turn);
        continue;
      }
      const size_t at = static_cast<size_t>(
          std::mismatch(a.text.begin(), a.text.end(), a.alone.begin(), a.alone.end()).first - a.text.begin());
      below += fmt::format("{}: conversation {}, turn {}, byte {}: {} in company, {} alone\n", run.name,
                           a.conversation, a.turn, at, PartOf(a.text, at), PartOf(a.alone, at));
    }
  }
  return below.empty() ? out : out + "\n" + below;
}

std::string LoadJson(const std::vector<LoadRun>& runs, std::string_view server) {
  const serve::LoadOptions& o = runs.front().options;
  JsonWriter json;
  json.BeginObject().Member("server", server).Member("model", std::string_view(runs.front().result.model));
  json.Key("load").BeginObject();
  json.Member("api", o.ids ? "completions" : "chat")
      .Member("conversations", o.conversations)
      .Member("turns", o.turns);
  json.Member("prompt_low", o.prompt.low).Member("prompt_high", o.prompt.high).Member("shared", o.shared);
  json.Member("answer_low", o.answer.low).Member("answer_high", o.answer.high).Member("cancel", o.cancel);
  json.Member("temperature", o.temperature).Member("seed", o.seed).EndObject();
  json.Key("runs").BeginArray();
  for (const LoadRun& run : runs) {
    const Figures f = FiguresOf(run.result);
    json.BeginObject();
    if (run.options.rate > 0)
      json.Member("rate", run.options.rate);
    else
      json.Member("users", run.options.users);
    json.Member("seconds", run.result.seconds).Member("answers", static_cast<uint64_t>(f.whole));
    json.Member("left", static_cast<uint64_t>(f.left)).Member("failed", static_cast<uint64_t>(f.failed));
    json.Member("tokens", f.tokens)
        .Member("prompt_tokens", f.prompt_tokens)
        .Member("cached_tokens", f.cached_tokens);
    json.Member("tokens_per_s", Per(f.tokens, run.result.seconds));
    json.Member("prompt_tokens_per_s", Per(f.prompt_tokens, run.result.seconds));
    json.Member("answers_per_s", Per(f.whole, run.result.seconds));
    Distribution(json, "first_token_s", f.first);
    Distribution(json, "between_tokens_s", f.gaps);
    Distribution(json, "answer_s", f.all);
    json.Member("checked", static_cast<uint64_t>(f.checked)).Member("differ", static_cast<uint64_t>(f.other));
    json.Key("errors").BeginArray();
    for (const auto& [kind, error] : f.errors) {
      json.BeginObject()
          .Member("kind", std::string_view(kind))
          .Member("count", static_cast<uint64_t>(error.first));
      json.Member("example", std::string_view(error.second)).EndObject();
    }
    json.EndArray().Key("different").BeginArray();
    for (const LoadAnswer& a : run.result.answers) {
      if (a.check != Check::kOther) continue;
      json.BeginObject().Member("conversation", a.conversation).Member("turn", a.turn);
      json.Member("request", std::string_view(a.body)).Member("answer", std::string_view(a.text));
      json.Member("alone", std::string_view(a.alone)).EndObject();
    }
    json.EndArray().EndObject();
  }
  return json.EndArray().EndObject().Take();
}

}  // namespace glint::cli
