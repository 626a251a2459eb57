#include "plan/chrome_trace.h"

#include <boost/json.hpp>

namespace glint::plan {
namespace {

namespace json = boost::json;

constexpr int kProcess = 1;

std::string_view NameOf(Step::Site site) {
  return site == Step::Site::kAttn ? "attn" : site == Step::Site::kFfn ? "ffn" : "";
}

std::string NameOf(const Step& step) {
  std::string name;
  for (const Stage stage : step.covers) name += (name.empty() ? "" : " + ") + std::string(Name(stage));
  return name;
}

json::object Metadata(const char* what, int thread, std::string_view name) {
  return {{"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"name", what}, {"args", {{"name", name}}}};
}

json::object Complete(int thread, std::string_view name, const char* category, double start, double seconds) {
  return {{"ph", "X"},       {"pid", kProcess},   {"tid", thread},       {"name", name},
          {"cat", category}, {"ts", start * 1e6}, {"dur", seconds * 1e6}};
}

}  // namespace

std::string ChromeTrace(std::string_view process, std::span<const TraceTrack> tracks,
                        const model::HParams& hparams, const model::Weights& weights) {
  json::array events;
  events.push_back(Metadata("process_name", 0, process));
  int thread = 0;
  for (const TraceTrack& track : tracks) {
    events.push_back(Metadata("thread_name", ++thread, track.name));
    double now = 0;
    for (size_t p = 0; p < track.passes.size(); ++p) {
      const PassTimes& pass = track.passes[p];
      const PassShape& shape = track.shapes[p];
      auto whole = Complete(thread, "pass", "pass", now, pass.whole);
      whole["args"] = {{"position", shape.position}, {"rows", shape.rows}};
      events.push_back(std::move(whole));
      const auto& steps = track.plan->steps;
      for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].layer >= 0 && (i == 0 || steps[i - 1].layer != steps[i].layer)) {
          size_t last = i;
          while (last + 1 < steps.size() && steps[last + 1].layer == steps[i].layer) ++last;
          const double end = pass.steps[last].start + pass.steps[last].seconds;
          events.push_back(Complete(thread, "layer " + std::to_string(steps[i].layer), "layer",
                                    now + pass.steps[i].start, end - pass.steps[i].start));
        }
        auto event =
            Complete(thread, NameOf(steps[i]), "stage", now + pass.steps[i].start, pass.steps[i].seconds);
        const StepBytes bytes = BytesOf(steps[i], hparams, weights, shape);
        json::array modifiers;
        for (const Lever* modifier : steps[i].modifiers) modifiers.emplace_back(json::string(modifier->name));
        json::object arguments{{"layer", steps[i].layer},
                               {"lever", steps[i].lever != nullptr ? json::string(steps[i].lever->name)
                                                                   : json::string("canonical")},
                               {"modifiers", std::move(modifiers)},
                               {"bytes", static_cast<uint64_t>(bytes.total())},
                               {"weight_bytes", static_cast<uint64_t>(bytes.weights)}};
        if (steps[i].site != Step::Site::kNone) arguments["site"] = NameOf(steps[i].site);
        event["args"] = std::move(arguments);
        events.push_back(std::move(event));
      }
      now += pass.whole + pass.outside;
    }
  }
  return json::serialize(json::object{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}});
}

}  // namespace glint::plan
