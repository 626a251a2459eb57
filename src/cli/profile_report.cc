#include "cli/profile_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/json_writer.h"
#include "cli/limits_report.h"
#include "cli/terminal.h"
#include "cli/units.h"

namespace glint::cli {
namespace {

using engine::PhaseProfile;
using plan::Price;
using plan::ProfileRow;

std::string Time(double seconds) {
  const char* sign = seconds < 0 ? "-" : "";
  const double s = std::abs(seconds);
  const auto three = [](double value) {
    return value < 9.995   ? fmt::format("{:.2f}", value)
           : value < 99.95 ? fmt::format("{:.1f}", value)
                           : fmt::format("{:.0f}", value);
  };
  if (s < 999.5e-6) return fmt::format("{}{} us", sign, three(s * 1e6));
  if (s < 999.5e-3) return fmt::format("{}{} ms", sign, three(s * 1e3));
  return fmt::format("{}{} s", sign, three(s));
}

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// How far the quartiles lie apart, of the median.
std::string SpreadText(const plan::Quartiles& q) {
  return q.median > 0 ? Percent((q.high - q.low) / q.median) : "";
}

std::string BytesText(double bytes) {
  return Bytes(static_cast<uint64_t>(std::llround(std::max(bytes, 0.0))));
}

double Over(double value, double seconds) { return seconds > 0 ? value / seconds : 0; }
std::string GigabytesASecond(double bytes, double seconds) {
  return seconds > 0 && bytes > 0 ? fmt::format("{:.2f}", bytes / seconds / 1e9) : "";
}
std::string OfRead(double bytes, double seconds, double bandwidth) {
  return bandwidth > 0 && seconds > 0 && bytes > 0 ? Percent(bytes / seconds / bandwidth) : "";
}

// Columns as wide as they need to be: the first `left` to the left, the others to the right.
class Table {
 public:
  Table(std::vector<std::string> head, size_t left) : left_(left) { Add(std::move(head)); }
  void Add(std::vector<std::string> cells) {
    widths_.resize(std::max(widths_.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], cells[i].size());
    rows_.push_back(std::move(cells));
  }
  std::string Text() const {
    std::string text;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        line += i < left_ ? fmt::format("{:<{}}  ", row[i], widths_[i])
                          : fmt::format("{:>{}}  ", row[i], widths_[i]);
      }
      while (line.ends_with(' ')) line.pop_back();
      text += line + "\n";
    }
    return text;
  }

 private:
  size_t left_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

std::vector<const plan::Lever*> CommonModifiers(const plan::Plan& plan) {
  if (plan.steps.empty()) return {};
  auto common = plan.steps.front().modifiers;
  for (const plan::Step& step : plan.steps) {
    std::erase_if(common, [&](const plan::Lever* lever) {
      return std::find(step.modifiers.begin(), step.modifiers.end(), lever) == step.modifiers.end();
    });
  }
  return common;
}

std::string StageNames(const std::vector<plan::Stage>& stages) {
  std::string text;
  for (const plan::Stage stage : stages) text += (text.empty() ? "" : " + ") + std::string(plan::Name(stage));
  return text;
}

// The lever, and the modifiers that not every step has.
std::string LeverText(const ProfileRow& row, const std::vector<const plan::Lever*>& common) {
  std::string text(row.lever != nullptr ? row.lever->name : "canonical");
  for (const plan::Lever* modifier : row.modifiers) {
    if (std::find(common.begin(), common.end(), modifier) == common.end())
      text += " +" + std::string(modifier->name);
  }
  return text;
}

std::string LayerText(int layer) { return layer < 0 ? "" : fmt::format("{}", layer); }

std::string Headline(const PhaseProfile& phase) {
  const auto& p = phase.profile;
  const bool decode = phase.rows == 1;
  const int64_t position = phase.shapes.front().position;
  std::string line = decode ? fmt::format("decode: {} tokens from depth {}", phase.shapes.size(), position)
                            : fmt::format("prefill: a pass of {} tokens from depth {}", phase.rows, position);
  line += fmt::format(": {} a {}, {} tokens/s (quartiles {} to {})\n", Time(p.total.median),
                      decode ? "token" : "pass", Rate(static_cast<double>(phase.rows) / p.total.median),
                      Time(p.total.low), Time(p.total.high));
  return line;
}

// Seconds of the profile's rows that the stage has a part in.
double InProfile(const PhaseProfile& phase, plan::Stage stage) {
  double seconds = 0;
  for (const ProfileRow& row : phase.profile.rows)
    if (std::find(row.covers.begin(), row.covers.end(), stage) != row.covers.end())
      seconds += row.seconds.median;
  return seconds;
}

std::string PriceTable(const PhaseProfile& phase, const std::vector<Price>& prices, bool repeat,
                       double bandwidth) {
  const std::string pass = phase.rows == 1 ? "token" : "pass";
  const auto measured =
      std::find_if(prices.begin(), prices.end(), [](const Price& p) { return p.refused.empty(); });
  std::string text = repeat ? "repeat: each stage once more" : "ablate: each stage left out";
  if (measured != prices.end()) {
    text += fmt::format(", against {} a {} with all as it is (quartiles {} to {}); ",
                        Time(measured->baseline.median), pass, Time(measured->baseline.low),
                        Time(measured->baseline.high));
    text += repeat ? "the logits stayed the same bits\n"
                   : "THE OUTPUT OF THESE PASSES IS INVALID and was dropped, with their state\n";
    Table table({"stage", "served by", "calls", "price", "from", "to", "GB/s", "of read", "in the profile",
                 "price/profile"},
                2);
    for (const Price& p : prices) {
      if (!p.refused.empty()) continue;
      const double inside = InProfile(phase, p.stage), seconds = p.seconds.median;
      table.Add({std::string(plan::Name(p.stage)), p.served_by, fmt::format("{}", p.calls), Time(seconds),
                 Time(p.seconds.low), Time(p.seconds.high),
                 p.resolved() ? GigabytesASecond(p.bytes.total(), seconds) : "",
                 p.resolved() ? OfRead(p.bytes.total(), seconds, bandwidth) : "", Time(inside),
                 !p.resolved() ? "not resolved"
                 : inside > 0  ? fmt::format("{:.3f}", seconds / inside)
                               : ""});
    }
    text += table.Text();
    if (phase.repetitions == 1) text += "one round: prices without a spread, for which --rounds 5 or more\n";
  } else {
    text += "\n";
  }
  for (const Price& p : prices)
    if (!p.refused.empty()) text += "refused: " + p.refused + "\n";
  return text;
}

std::string PhaseTables(const PhaseProfile& phase, double bandwidth) {
  const auto& p = phase.profile;
  std::string text = Headline(phase);
  const auto common = CommonModifiers(*phase.plan);
  if (!common.empty()) {
    text += "on every step:";
    for (const plan::Lever* lever : common) text += " " + std::string(lever->name);
    text += "\n";
  }
  const bool layers =
      std::any_of(p.rows.begin(), p.rows.end(), [](const ProfileRow& r) { return r.layer >= 0; });
  std::vector<std::string> head{"stage",  "lever", "calls", "time",   "share",
                                "spread", "bytes", "GB/s",  "of read"};
  if (layers) head.insert(head.begin(), "layer");
  Table table(head, layers ? 3 : 2);
  const auto add = [&](std::vector<std::string> cells, int layer = -1) {
    if (layers) cells.insert(cells.begin(), LayerText(layer));
    table.Add(std::move(cells));
  };
  const double total = p.total.median;
  for (const ProfileRow& row : p.rows) {
    const double bytes = row.bytes.total(), seconds = row.seconds.median;
    add({StageNames(row.covers), LeverText(row, common), fmt::format("{}", row.calls), Time(seconds),
         Percent(Over(seconds, total)), SpreadText(row.seconds), BytesText(bytes),
         GigabytesASecond(bytes, seconds), OfRead(bytes, seconds, bandwidth)},
        row.layer);
  }
  add({"(of the pass, in no step)", "", "", Time(p.rest), Percent(Over(p.rest, total))});
  add({phase.rows == 1 ? "(outside: sampling, ...)" : "(outside the pass)", "", "", Time(p.outside),
       Percent(Over(p.outside, total))});
  if (p.clock > 0) add({"(timing the steps)", "", "", Time(p.clock), Percent(Over(p.clock, total))});
  const double bytes = p.bytes.total();
  add({"all", "", fmt::format("{}", phase.plan->steps.size()), Time(total), "100.0 %", SpreadText(p.total),
       BytesText(bytes), GigabytesASecond(bytes, total), OfRead(bytes, total, bandwidth)});
  text += table.Text();
  text +=
      fmt::format("with nobody timing the steps: {} (quartiles {} to {}); all rows{} add up to {} of it\n",
                  Time(p.untimed.median), Time(p.untimed.low), Time(p.untimed.high),
                  p.clock > 0 ? " but the timing's" : "", Percent(Over(p.undisturbed(), p.untimed.median)));
  if (!phase.ablated.empty()) text += "\n" + PriceTable(phase, phase.ablated, false, bandwidth);
  if (!phase.repeated.empty()) text += "\n" + PriceTable(phase, phase.repeated, true, bandwidth);
  return text;
}

void WriteLimits(JsonWriter& json, std::string_view key, const std::optional<plan::Limits>& limits) {
  json.Key(key);
  if (!limits) {
    json.Null();
    return;
  }
  cli::WriteLimits(json, *limits);
}

void WriteQuartiles(JsonWriter& json, std::string_view key, const plan::Quartiles& q) {
  json.Key(key)
      .BeginObject()
      .Member("low", q.low)
      .Member("median", q.median)
      .Member("high", q.high)
      .EndObject();
}

void WriteBytes(JsonWriter& json, const plan::StepBytes& b) {
  json.Key("bytes")
      .BeginObject()
      .Member("weights", b.weights)
      .Member("state", b.state)
      .Member("cache", b.cache);
  json.Member("activations", b.activations).Member("total", b.total()).EndObject();
}

void WriteTraffic(JsonWriter& json, const plan::StepBytes& bytes, double seconds, double bandwidth) {
  WriteBytes(json, bytes);
  json.Member("bytes_per_second", Over(bytes.total(), seconds));
  json.Key("share_of_read");
  if (bandwidth > 0)
    json.Value(Over(bytes.total(), seconds) / bandwidth);
  else
    json.Null();
}

template <class List, class Name>
void WriteNames(JsonWriter& json, std::string_view key, const List& list, Name name) {
  json.Key(key).BeginArray(true);
  for (const auto& item : list) json.Value(name(item));
  json.EndArray();
}

void WritePrices(JsonWriter& json, const PhaseProfile& phase, bool repeat, double bandwidth) {
  json.Key(repeat ? "repeat" : "ablate").BeginArray();
  for (const Price& p : repeat ? phase.repeated : phase.ablated) {
    json.BeginObject()
        .Member("stage", plan::Name(p.stage))
        .Member("served_by", p.served_by)
        .Member("calls", p.calls);
    if (!p.refused.empty()) {
      json.Member("refused", p.refused).EndObject();
      continue;
    }
    WriteQuartiles(json, "seconds", p.seconds);
    json.Member("resolved", p.resolved());
    WriteQuartiles(json, "whole_seconds", p.baseline);
    WriteTraffic(json, p.bytes, p.seconds.median, bandwidth);
    json.Member("seconds_in_profile", InProfile(phase, p.stage));
    json.Member("output", repeat ? "unchanged" : "invalid, dropped").EndObject();
  }
  json.EndArray();
}

void WritePhase(JsonWriter& json, const PhaseProfile& phase, double bandwidth) {
  const auto& p = phase.profile;
  json.BeginObject().Member("phase", phase.name).Member("rows", phase.rows);
  json.Member("repetitions", phase.repetitions);
  json.Member("position", phase.shapes.front().position)
      .Member("passes", static_cast<int64_t>(phase.shapes.size()));
  json.Member("tokens_per_second", Over(static_cast<double>(phase.rows), p.total.median));
  WriteQuartiles(json, "seconds", p.total);
  WriteQuartiles(json, "untimed_seconds", p.untimed);
  json.Member("seconds_in_steps", p.seconds_in_steps()).Member("seconds_in_no_step", p.rest);
  json.Member("seconds_outside", p.outside).Member("seconds_timing", p.clock);
  json.Member("share_of_untimed", Over(p.undisturbed(), p.untimed.median));
  WriteTraffic(json, p.bytes, p.total.median, bandwidth);
  json.Key("rows_by_stage").BeginArray();
  for (const ProfileRow& row : p.rows) {
    json.BeginObject();
    WriteNames(json, "stages", row.covers, [](plan::Stage s) { return plan::Name(s); });
    json.Member("lever", row.lever != nullptr ? row.lever->name : "canonical");
    WriteNames(json, "modifiers", row.modifiers, [](const plan::Lever* l) { return l->name; });
    if (row.layer >= 0) json.Member("layer", row.layer);
    json.Member("calls", row.calls);
    WriteQuartiles(json, "seconds", row.seconds);
    json.Member("share", Over(row.seconds.median, p.total.median));
    WriteTraffic(json, row.bytes, row.seconds.median, bandwidth);
    json.EndObject();
  }
  json.EndArray();
  WritePrices(json, phase, false, bandwidth);
  WritePrices(json, phase, true, bandwidth);
  json.EndObject();
}

}  // namespace

std::string ProfileTables(const engine::ProfileReport& report, const ProfileSubject& subject) {
  const double bandwidth = report.read_bandwidth();
  std::string text =
      fmt::format("{}, {} thread{}; context: {}\n", TerminalText(subject.model), subject.threads,
                  subject.threads == 1 ? "" : "s", TerminalText(subject.context));
  if (bandwidth > 0) {
    const auto& limits = report.before ? *report.before : *report.after;
    text += fmt::format(
        "memory reads {} GB/s, the best of {} passes over {} before and as many after ({} and {} GB/s "
        "typically)\n",
        Rate(bandwidth / 1e9), limits.passes, Bytes(limits.read_bytes),
        report.before ? Rate(report.before->read.median / 1e9) : "?",
        report.after ? Rate(report.after->read.median / 1e9) : "?");
    if (const std::string host = HostLimitsText(limits); !host.empty()) text += host + "\n";
  } else {
    text += fmt::format("the memory's bandwidth is not known: {}\n", report.no_limits);
  }
  for (const PhaseProfile& phase : report.phases) text += "\n" + PhaseTables(phase, bandwidth);
  return text;
}

std::string ProfileJson(const engine::ProfileReport& report, const ProfileSubject& subject) {
  const double bandwidth = report.read_bandwidth();
  JsonWriter json;
  json.BeginObject().Member("model", subject.model).Member("threads", subject.threads);
  json.Member("depth", subject.depth).Member("context", subject.context);
  json.Key("read_bytes_per_second");
  if (bandwidth > 0)
    json.Value(bandwidth);
  else
    json.Null();
  if (!report.no_limits.empty()) json.Member("no_limits", report.no_limits);
  WriteLimits(json, "limits_before", report.before);
  WriteLimits(json, "limits_after", report.after);
  json.Key("phases").BeginArray();
  for (const PhaseProfile& phase : report.phases) WritePhase(json, phase, bandwidth);
  json.EndArray();
  return json.EndObject().Take();
}

}  // namespace glint::cli
