#include "plan/print.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>

#include "base/memory.h"

namespace glint::plan {
namespace {

namespace json = boost::json;

std::string_view Name(Pass pass) { return pass == Pass::kTrunk ? "trunk" : "mtp"; }
std::string_view Name(Step::Site site) {
  return site == Step::Site::kAttn ? "attn" : site == Step::Site::kFfn ? "ffn" : "";
}
std::string_view Name(Lever::Kind kind) { return kind == Lever::Kind::kReplace ? "replace" : "modifier"; }

template <class List, class F>
std::string Join(const List& list, F&& name) {
  std::string text;
  for (const auto& item : list) {
    if (!text.empty()) text += ' ';
    text += name(item);
  }
  return text;
}

std::string Stages(const std::vector<Stage>& stages) {
  return Join(stages, [](Stage s) { return plan::Name(s); });
}
std::string Slots(const std::vector<Slot>& slots) {
  return Join(slots, [](Slot s) { return plan::Name(s); });
}
std::string LeverNames(const std::vector<const Lever*>& levers) {
  return Join(levers, [](const Lever* l) { return l->name; });
}

bool SameStep(const Step& a, const Step& b) {
  return a.covers == b.covers && a.site == b.site && a.lever == b.lever && a.modifiers == b.modifiers &&
         a.in == b.in && a.out == b.out && a.weight_bytes == b.weight_bytes;
}

// Steps [first, last) of each layer, so that like layers can be told as one.
struct LayerSteps {
  int first_layer, last_layer;
  size_t first, last;
};

std::vector<LayerSteps> GroupLayers(const Plan& plan) {
  const auto& steps = plan.steps;
  std::vector<LayerSteps> groups;
  for (size_t i = 0; i < steps.size();) {
    size_t end = i;
    while (end < steps.size() && steps[end].layer == steps[i].layer) ++end;
    const auto same = [&](const LayerSteps& g) {
      return g.last_layer + 1 == steps[i].layer && g.last_layer >= 0 && g.last - g.first == end - i &&
             std::equal(steps.begin() + static_cast<std::ptrdiff_t>(i),
                        steps.begin() + static_cast<std::ptrdiff_t>(end),
                        steps.begin() + static_cast<std::ptrdiff_t>(g.first), SameStep);
    };
    if (!groups.empty() && same(groups.back())) {
      groups.back().last_layer = steps[i].layer;
    } else {
      groups.push_back({steps[i].layer, steps[i].layer, i, end});
    }
    i = end;
  }
  return groups;
}

// Modifiers that every step of the plan has: told once, not in each line.
std::vector<const Lever*> CommonModifiers(const Plan& plan) {
  if (plan.steps.empty()) return {};
  std::vector<const Lever*> common = plan.steps.front().modifiers;
  for (const Step& step : plan.steps) {
    std::erase_if(common, [&](const Lever* lever) {
      return std::find(step.modifiers.begin(), step.modifiers.end(), lever) == step.modifiers.end();
    });
  }
  return common;
}

uint64_t WeightBytes(const Plan& plan) {
  uint64_t sum = 0;
  for (const Step& step : plan.steps) sum += step.weight_bytes;
  return sum;
}

}  // namespace

std::string DescribeLevers(std::span<const Lever> levers, const Plan* plan) {
  std::string out;
  auto to = std::back_inserter(out);
  fmt::format_to(to, "{:<18} {:<9} {:<12} {:<10} {}\n", "lever", "kind", "state", "promise", "what it does");
  for (const Lever& lever : levers) {
    const bool used =
        plan != nullptr && std::find(plan->levers.begin(), plan->levers.end(), &lever) != plan->levers.end();
    const std::string_view state = used               ? "in use"
                                   : !lever.available ? "unavailable"
                                   : plan != nullptr  ? "not laid"
                                   : lever.by_default ? "default"
                                                      : "on request";
    fmt::format_to(to, "{:<18} {:<9} {:<12} {:<10} {}\n", lever.name, Name(lever.kind), state,
                   lever.bitwise ? "bitwise" : fmt::format("{:g}", lever.tolerance), lever.summary);
  }
  return out;
}

std::string Describe(const Plan& plan, const PlanRequest& request) {
  std::string out;
  auto to = std::back_inserter(out);
  fmt::format_to(to, "{} pass, {} row{}: {} steps, {} of weights a row, {} of buffers\n", Name(plan.pass),
                 plan.max_rows, plan.max_rows == 1 ? "" : "s", plan.steps.size(),
                 FormatBytes(WeightBytes(plan)), FormatBytes(plan.buffers.total_bytes));
  const auto common = CommonModifiers(plan);
  if (!common.empty()) fmt::format_to(to, "modifiers on every step: {}\n", LeverNames(common));

  // Cells first, then columns as wide as they need to be; one without entries is left out.
  struct Cells {
    std::string stage, lever, modifiers;
  };
  std::vector<Cells> cells;
  size_t stage_width = 5, lever_width = 0, modifiers_width = 0;
  for (const Step& s : plan.steps) {
    const auto site = Name(s.site);
    std::vector<const Lever*> own;
    for (const Lever* lever : s.modifiers) {
      if (std::find(common.begin(), common.end(), lever) == common.end()) own.push_back(lever);
    }
    cells.push_back({Stages(s.covers) + (site.empty() ? "" : fmt::format(" ({})", site)),
                     std::string(s.lever != nullptr ? s.lever->name : ""), LeverNames(own)});
    const Cells& c = cells.back();
    stage_width = std::max(stage_width, c.stage.size());
    lever_width = std::max(lever_width, c.lever.size());
    modifiers_width = std::max(modifiers_width, c.modifiers.size());
  }
  const auto line = [&](std::string_view step, const Cells& c, std::string_view bytes,
                        std::string_view flow) {
    fmt::format_to(to, "{:>5}  {:<{}}", step, c.stage, stage_width);
    if (lever_width > 0) fmt::format_to(to, "  {:<{}}", c.lever, std::max<size_t>(lever_width, 5));
    if (modifiers_width > 0)
      fmt::format_to(to, "  {:<{}}", c.modifiers, std::max<size_t>(modifiers_width, 9));
    fmt::format_to(to, "  {:>12}  {}\n", bytes, flow);
  };
  out += '\n';
  line("step", {"stage", "lever", "modifiers"}, "weights", "in -> out (* advances state)");
  for (const LayerSteps& group : GroupLayers(plan)) {
    if (group.first_layer >= 0) {
      if (group.first_layer == group.last_layer) {
        fmt::format_to(to, "layer {}\n", group.first_layer);
      } else {
        fmt::format_to(to, "layers {} to {}, each\n", group.first_layer, group.last_layer);
      }
    } else if (group.first != 0) {
      fmt::format_to(to, "after the layers\n");
    }
    for (size_t i = group.first; i < group.last; ++i) {
      const Step& s = plan.steps[i];
      line(fmt::format("{}", i), cells[i], FormatBytes(s.weight_bytes),
           fmt::format("{} -> {}{}", Slots(s.in), Slots(s.out), s.advances_state ? " *" : ""));
    }
  }
  fmt::format_to(to, "\n{}\n", DescribeLevers(request.levers, &plan));
  fmt::format_to(to, "{:<16} {:>12} {:>12}  {}\n", "buffer", "offset", "size", "first and last step");
  for (size_t i = 0; i < plan.buffers.places.size(); ++i) {
    const auto& p = plan.buffers.places[i];
    if (p.bytes == 0) continue;
    fmt::format_to(to, "{:<16} {:>12} {:>12}  {} {}\n", plan::Name(static_cast<Slot>(i)),
                   FormatBytes(p.offset), FormatBytes(p.bytes), p.first_step, p.last_step);
  }
  return out;
}

std::string DescribeJson(const Plan& plan, const PlanRequest& request) {
  const auto stage_names = [](const std::vector<Stage>& stages) {
    json::array a;
    for (const Stage s : stages) a.emplace_back(json::string(plan::Name(s)));
    return a;
  };
  const auto slot_names = [](const std::vector<Slot>& slots) {
    json::array a;
    for (const Slot s : slots) a.emplace_back(json::string(plan::Name(s)));
    return a;
  };
  json::array steps;
  for (const Step& s : plan.steps) {
    json::array modifiers;
    for (const Lever* m : s.modifiers) modifiers.emplace_back(json::string(m->name));
    json::object o;
    o["stages"] = stage_names(s.covers);
    o["layer"] = s.layer;
    o["site"] = json::string(Name(s.site));
    o["lever"] = s.lever != nullptr ? json::value(json::string(s.lever->name)) : json::value(nullptr);
    o["modifiers"] = std::move(modifiers);
    o["in"] = slot_names(s.in);
    o["out"] = slot_names(s.out);
    o["advances_state"] = s.advances_state;
    o["weight_bytes"] = s.weight_bytes;
    steps.push_back(std::move(o));
  }
  json::array levers;
  for (const Lever& l : request.levers) {
    json::object o;
    o["name"] = json::string(l.name);
    o["kind"] = json::string(Name(l.kind));
    o["used"] = std::find(plan.levers.begin(), plan.levers.end(), &l) != plan.levers.end();
    o["available"] = l.available;
    o["default"] = l.by_default;
    o["bitwise"] = l.bitwise;
    o["tolerance"] = l.tolerance;
    o["covers"] = stage_names(l.covers);
    if (!l.or_covers.empty()) o["or_covers"] = stage_names(l.or_covers);
    o["summary"] = json::string(l.summary);
    levers.push_back(std::move(o));
  }
  json::array buffers;
  for (size_t i = 0; i < plan.buffers.places.size(); ++i) {
    const auto& p = plan.buffers.places[i];
    if (p.bytes == 0) continue;
    json::object o;
    o["slot"] = json::string(plan::Name(static_cast<Slot>(i)));
    o["offset"] = p.offset;
    o["bytes"] = p.bytes;
    o["first_step"] = p.first_step;
    o["last_step"] = p.last_step;
    buffers.push_back(std::move(o));
  }
  json::object root;
  root["pass"] = json::string(Name(plan.pass));
  root["rows"] = plan.max_rows;
  root["steps"] = std::move(steps);
  root["levers"] = std::move(levers);
  root["buffers"] = std::move(buffers);
  root["buffer_bytes"] = plan.buffers.total_bytes;
  root["weight_bytes"] = WeightBytes(plan);
  return json::serialize(root);
}

}  // namespace glint::plan
